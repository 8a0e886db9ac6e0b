//! Tests of strategic merge patches (docs/api/patches.md#strategic-merge-patch). The types are simplified
//! pods, deployments and services with the merge keys of the built-in types.

use std::sync::LazyLock;

use super::super::{PatchKind, apply as patch};
use super::*;
use types::schema::builtin::{ELEMENT, FIELD};
use types::schema::make::plain;
use types::schema::table::{Element, List, ListType, Map, Ref};
use values::json::parse;
use values::testing::text;

fn field(name: &'static str, kind: Kind, patch: PatchStrategy) -> Field {
    Field { name: name.into(), number: 1, kind, patch, ..FIELD }
}

const NONE: PatchStrategy =
    PatchStrategy { merge: false, retain_keys: false, replace: false, merge_key: None };
const SET: PatchStrategy = PatchStrategy { merge: true, ..NONE };
const REPLACE: PatchStrategy = PatchStrategy { replace: true, ..NONE };

const fn by(key: &'static str) -> PatchStrategy {
    PatchStrategy { merge: true, merge_key: Some(key), ..NONE }
}

fn one(name: &'static str, kind: Kind) -> Field {
    field(name, kind, NONE)
}

fn list(name: &'static str, item: Kind, patch: PatchStrategy) -> Field {
    let item = Element { kind: item, ..ELEMENT };
    field(name, Kind::List(Ref::new(List { item, merge: ListType::Atomic, wrapped: false })), patch)
}

fn map(name: &'static str) -> Field {
    field(name, Kind::Map(Ref::new(Map { value: ELEMENT, atomic: false })), NONE)
}

/// Returns a type with these fields.
fn message<const N: usize>(name: &'static str, fields: [Field; N]) -> Kind {
    Kind::Message(Ref::new(plain(name, Vec::from(fields))))
}

fn message_of(kind: Kind) -> Ref<Message> {
    kind.message().unwrap().clone()
}

fn port() -> Kind {
    let fields =
        [one("containerPort", Kind::Int32), one("name", Kind::String), one("protocol", Kind::String)];
    message("ContainerPort", fields)
}

fn meta() -> Kind {
    message("ObjectMeta", [map("annotations"), list("finalizers", Kind::String, SET), map("labels")])
}

static POD_SPEC: LazyLock<Ref<Message>> = LazyLock::new(|| {
    let env = message("EnvVar", [one("name", Kind::String), one("value", Kind::String)]);
    let container = message(
        "Container",
        [
            list("args", Kind::String, NONE),
            list("env", env, by("name")),
            one("image", Kind::String),
            one("name", Kind::String),
            list("ports", port(), by("containerPort")),
        ],
    );
    let volume = message(
        "Volume",
        [
            one("configMap", Kind::RawExtension),
            one("emptyDir", Kind::RawExtension),
            one("name", Kind::String),
        ],
    );
    let toleration = message("Toleration", [one("key", Kind::String)]);
    Ref::new(plain(
        "PodSpec",
        vec![
            list("containers", container, by("name")),
            map("nodeSelector"),
            list("tolerations", toleration, NONE),
            list("volumes", volume, PatchStrategy { retain_keys: true, ..by("name") }),
        ],
    ))
});

static OBJECT: LazyLock<Ref<Message>> = LazyLock::new(|| {
    let template = [one("metadata", meta()), one("spec", Kind::Message(POD_SPEC.clone()))];
    let rolling = message("RollingUpdate", [one("maxSurge", Kind::IntOrString)]);
    let strategy = message("DeploymentStrategy", [one("rollingUpdate", rolling), one("type", Kind::String)]);
    let spec = message(
        "DeploymentSpec",
        [
            list("ports", port(), by("containerPort")),
            one("replicas", Kind::Int32),
            field("selector", message("LabelSelector", [map("matchLabels")]), REPLACE),
            field("strategy", strategy, PatchStrategy { retain_keys: true, ..NONE }),
            one("template", message("PodTemplateSpec", template)),
        ],
    );
    let fields = vec![one("metadata", meta()), one("spec", spec), one("status", Kind::RawExtension)];
    Ref::new(plain("Deployment", fields))
});

/// Returns the merged object, or the code and text of the failure.
fn run(message: &Message, original: &str, change: &str) -> String {
    let original = parse(original.as_bytes()).unwrap();
    match patch(PatchKind::Strategic, Some(message), original, change.as_bytes(), false) {
        Ok(patched) => text(&patched.value),
        Err(status) => format!("{} {}", status.code.as_u16(), status.message),
    }
}

fn check_all(message: &Message, cases: &[(&str, &str, &str, &str)]) {
    for (why, original, change, want) in cases {
        assert_eq!(&run(message, original, change), want, "{why}");
    }
}

#[test]
fn objects_merge_and_null_deletes() {
    check_all(
        &OBJECT,
        &[
            ("no change", r#"{"spec":{"replicas":1}}"#, "null", r#"{"spec":{"replicas":1}}"#),
            (
                "scalar",
                r#"{"spec":{"replicas":1}}"#,
                r#"{"spec":{"replicas":2}}"#,
                r#"{"spec":{"replicas":2}}"#,
            ),
            (
                "null",
                r#"{"spec":{"replicas":1,"x":2}}"#,
                r#"{"spec":{"replicas":null}}"#,
                r#"{"spec":{"x":2}}"#,
            ),
            ("null of nothing", r#"{"spec":{}}"#, r#"{"spec":{"replicas":null}}"#, r#"{"spec":{}}"#),
            (
                "maps merge",
                r#"{"metadata":{"labels":{"a":"1","b":"2"}}}"#,
                r#"{"metadata":{"labels":{"b":null,"c":"3"}}}"#,
                r#"{"metadata":{"labels":{"a":"1","c":"3"}}}"#,
            ),
            (
                "new values come without nulls and directives",
                r#"{}"#,
                r#"{"spec":{"a":null,"b":{"c":null,"d":{"$patch":"delete"}},"e":[{"f":null},{"$patch":"delete"}]}}"#,
                r#"{"spec":{"b":{},"e":[{}]}}"#,
            ),
            (
                "a new value that is a directive",
                r#"{"x":1}"#,
                r#"{"spec":{"$patch":"replace","a":1}}"#,
                r#"{"x":1}"#,
            ),
            (
                "another type replaces",
                r#"{"spec":[1]}"#,
                r#"{"spec":{"replicas":1,"x":null}}"#,
                r#"{"spec":{"replicas":1}}"#,
            ),
            (
                "strategy replace",
                r#"{"spec":{"selector":{"matchLabels":{"a":"1"}}}}"#,
                r#"{"spec":{"selector":{"matchLabels":{"b":"1"}}}}"#,
                r#"{"spec":{"selector":{"matchLabels":{"b":"1"}}}}"#,
            ),
            (
                "unknown fields merge like a merge patch",
                r#"{"new":{"a":{"b":1,"c":[1,2]}}}"#,
                r#"{"new":{"a":{"c":[3],"d":null}}}"#,
                r#"{"new":{"a":{"b":1,"c":[3]}}}"#,
            ),
        ],
    );
}

#[test]
fn strategic_merge_directives_on_objects_are_applied() {
    check_all(
        &OBJECT,
        &[
            (
                "$patch: replace",
                r#"{"metadata":{"labels":{"a":"1"}}}"#,
                r#"{"metadata":{"labels":{"$patch":"replace","b":"2"}}}"#,
                r#"{"metadata":{"labels":{"b":"2"}}}"#,
            ),
            (
                "$patch: delete",
                r#"{"metadata":{"labels":{"a":"1"}}}"#,
                r#"{"metadata":{"labels":{"$patch":"delete"}}}"#,
                r#"{"metadata":{"labels":{}}}"#,
            ),
            (
                "another $patch",
                r#"{"metadata":{"labels":{"a":"1"}}}"#,
                r#"{"metadata":{"labels":{"b":"2","$patch":"frob"}}}"#,
                "500 unknown patch type: frob in map: map[$patch:frob b:2]",
            ),
            (
                "a $patch that is not text",
                r#"{"metadata":{}}"#,
                r#"{"metadata":{"$patch":1}}"#,
                "500 unknown patch type: %!s(int64=1) in map: map[$patch:1]",
            ),
            (
                "$retainKeys",
                r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
                r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#,
                r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
            ),
            (
                "$retainKeys and a null",
                r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
                r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate","rollingUpdate":null}}}"#,
                r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
            ),
            (
                "$retainKeys that misses a key of the patch",
                r#"{"spec":{"strategy":{"type":"A"}}}"#,
                r#"{"spec":{"strategy":{"$retainKeys":["rollingUpdate"],"type":"B"}}}"#,
                "400 invalid patch format of retainKeys",
            ),
            (
                "$retainKeys that is not a list",
                r#"{"spec":{"strategy":{"type":"A"}}}"#,
                r#"{"spec":{"strategy":{"$retainKeys":"type"}}}"#,
                "400 invalid patch format of retainKeys",
            ),
        ],
    );
}

#[test]
fn lists_merge_by_key_and_keep_their_order() {
    check_all(
        &POD_SPEC,
        &[
            (
                "an element with the same key merges",
                r#"{"containers":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}"#,
                r#"{"containers":[{"name":"b","image":"2"}]}"#,
                r#"{"containers":[{"name":"a","image":"1"},{"name":"b","image":"2"}]}"#,
            ),
            (
                "a new element precedes those the patch does not name",
                r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
                r#"{"containers":[{"name":"c"}]}"#,
                r#"{"containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}"#,
            ),
            (
                "the patch orders what it names",
                r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#,
                r#"{"containers":[{"name":"c"},{"name":"a"}]}"#,
                r#"{"containers":[{"name":"b"},{"name":"c"},{"name":"a"}]}"#,
            ),
            (
                "$patch: delete",
                r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#,
                r#"{"containers":[{"$patch":"delete","name":"b"},{"name":"c","image":"2"}]}"#,
                r#"{"containers":[{"name":"a"},{"name":"c","image":"2"}]}"#,
            ),
            (
                "$patch: delete of every match",
                r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"a"}]}"#,
                r#"{"containers":[{"$patch":"delete","name":"a"}]}"#,
                r#"{"containers":[{"name":"b"}]}"#,
            ),
            (
                "$patch: delete and the same anew",
                r#"{"containers":[{"name":"a","image":"1"},{"name":"b"}]}"#,
                r#"{"containers":[{"name":"a","args":["x"]},{"$patch":"delete","name":"a"}]}"#,
                r#"{"containers":[{"name":"a","args":["x"]},{"name":"b"}]}"#,
            ),
            (
                "$patch: replace",
                r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
                r#"{"containers":[{"name":"c"},{"$patch":"replace"},{"name":"a","image":"2"}]}"#,
                r#"{"containers":[{"name":"c"},{"name":"a","image":"2"}]}"#,
            ),
            (
                "$patch: merge",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"containers":[{"$patch":"merge","name":"a"}]}"#,
                "500 merging lists cannot yet be specified in the patch",
            ),
            (
                "another $patch",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"containers":[{"$patch":"x","name":"a"}]}"#,
                "500 unknown patch type: x in map: map[$patch:x name:a]",
            ),
            (
                "no merge key",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"containers":[{"image":"2"}]}"#,
                "500 map: map[image:2] does not contain declared merge key: name",
            ),
            (
                "no merge key to delete",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"containers":[{"$patch":"delete"}]}"#,
                "500 map: map[$patch:delete] does not contain declared merge key: name",
            ),
            (
                "mixed elements",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"containers":["a"]}"#,
                "500 list element types are not identical: [[map[name:a]] [a]]",
            ),
            (
                "lists of lists",
                r#"{"containers":[]}"#,
                r#"{"containers":[["a"]]}"#,
                "422 the server rejected our request due to an error in our request",
            ),
            (
                "nested lists",
                r#"{"containers":[{"name":"a","env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}],"args":["x","y"]}]}"#,
                r#"{"containers":[{"name":"a","env":[{"name":"Y","value":"3"}],"args":["z"]}]}"#,
                r#"{"containers":[{"name":"a","env":[{"name":"X","value":"1"},{"name":"Y","value":"3"}],"args":["z"]}]}"#,
            ),
            (
                "a list that does not merge is replaced",
                r#"{"tolerations":[{"key":"a"}]}"#,
                r#"{"tolerations":[{"key":"b"}]}"#,
                r#"{"tolerations":[{"key":"b"}]}"#,
            ),
            (
                "a new list",
                r#"{}"#,
                r#"{"containers":[{"name":"a","image":null}]}"#,
                r#"{"containers":[{"name":"a"}]}"#,
            ),
            (
                "an empty list changes nothing",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"containers":[]}"#,
                r#"{"containers":[{"name":"a"}]}"#,
            ),
            (
                "numbers as keys; equal ones of the live object both stay",
                r#"{"containers":[{"name":"a","ports":[{"containerPort":53,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}]}]}"#,
                r#"{"containers":[{"name":"a","ports":[{"containerPort":53,"name":"dns"}]}]}"#,
                r#"{"containers":[{"name":"a","ports":[{"containerPort":53,"protocol":"TCP","name":"dns"},{"containerPort":53,"protocol":"UDP"}]}]}"#,
            ),
            (
                "$retainKeys in an element",
                r#"{"volumes":[{"name":"v","emptyDir":{}}]}"#,
                r#"{"volumes":[{"$retainKeys":["configMap","name"],"configMap":{"name":"c"},"name":"v"}]}"#,
                r#"{"volumes":[{"name":"v","configMap":{"name":"c"}}]}"#,
            ),
        ],
    );
}

#[test]
fn set_element_order_decides_the_order() {
    check_all(
        &POD_SPEC,
        &[
            (
                "order without changes",
                r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#,
                r#"{"$setElementOrder/containers":[{"name":"c"},{"name":"b"},{"name":"a"}]}"#,
                r#"{"containers":[{"name":"c"},{"name":"b"},{"name":"a"}]}"#,
            ),
            (
                "an injected element stays after its predecessor",
                r#"{"containers":[{"name":"a"},{"name":"sidecar"},{"name":"b"}]}"#,
                r#"{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"b","image":"2"}]}"#,
                r#"{"containers":[{"name":"a"},{"name":"sidecar"},{"name":"b","image":"2"}]}"#,
            ),
            (
                "a new element goes where the order says",
                r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
                r#"{"$setElementOrder/containers":[{"name":"a"},{"name":"n"},{"name":"b"}],"containers":[{"name":"n"}]}"#,
                r#"{"containers":[{"name":"a"},{"name":"n"},{"name":"b"}]}"#,
            ),
            (
                "deletions need not be in the order",
                r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
                r#"{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"b","image":"2"},{"$patch":"delete","name":"a"}]}"#,
                r#"{"containers":[{"name":"b","image":"2"}]}"#,
            ),
            (
                "the last element goes",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"$setElementOrder/containers":[],"containers":[{"$patch":"delete","name":"a"}]}"#,
                r#"{"containers":[]}"#,
            ),
            (
                "no list yet",
                r#"{}"#,
                r#"{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"b"},{"name":"a"}]}"#,
                r#"{"containers":[{"name":"b"},{"name":"a"}]}"#,
            ),
            (
                "no list at all",
                r#"{"x":1}"#,
                r#"{"$setElementOrder/containers":[{"name":"a"}]}"#,
                r#"{"x":1}"#,
            ),
            (
                "an element that the order does not name",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"b"}]}"#,
                "500 The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
            ),
            (
                "elements in another order",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"b"},{"name":"a"}]}"#,
                "500 The order in patch list:\n[map[name:b] map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:a] map[name:b]]\n",
            ),
            (
                "adding with an empty order puts the new ones where upstream's sort does",
                r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
                r#"{"$setElementOrder/containers":[],"containers":[{"name":"c"},{"name":"d"}]}"#,
                r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"d"},{"name":"c"}]}"#,
            ),
            (
                "an order that is not a list",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"$setElementOrder/containers":"a"}"#,
                "500 expected a []interface {}, but received a string",
            ),
            (
                "an order of what is not a list",
                r#"{"containers":{}}"#,
                r#"{"$setElementOrder/containers":[]}"#,
                "500 expected a []interface {}, but received a map[string]interface {}",
            ),
            (
                "an order without keys",
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"$setElementOrder/containers":[{"image":"a"}]}"#,
                "500 map: map[image:a] does not contain declared merge key: name",
            ),
            (
                "an order of nothing known",
                r#"{}"#,
                r#"{"$setElementOrder/frobs":[]}"#,
                "500 unable to find api field in struct PodSpec for the json field \"frobs\"",
            ),
            (
                "an order of no name",
                r#"{}"#,
                r#"{"$setElementOrderX":[]}"#,
                "400 invalid patch format of setElementOrder list",
            ),
        ],
    );
}

#[test]
fn sets_of_scalars_are_joined() {
    check_all(
        &message_of(meta()),
        &[
            (
                "join",
                r#"{"finalizers":["a","b"]}"#,
                r#"{"finalizers":["b","c"]}"#,
                r#"{"finalizers":["a","b","c"]}"#,
            ),
            (
                "delete",
                r#"{"finalizers":["a","b","c"]}"#,
                r#"{"$deleteFromPrimitiveList/finalizers":["a","x"]}"#,
                r#"{"finalizers":["b","c"]}"#,
            ),
            ("delete from nothing", r#"{}"#, r#"{"$deleteFromPrimitiveList/finalizers":["a"]}"#, r#"{}"#),
            (
                "delete, add and order as the command line does",
                r#"{"finalizers":["a","b","server"]}"#,
                r#"{"$deleteFromPrimitiveList/finalizers":["b"],"$setElementOrder/finalizers":["c","a"],"finalizers":["c"]}"#,
                r#"{"finalizers":["c","a","server"]}"#,
            ),
            (
                "a delete list without a name",
                r#"{}"#,
                r#"{"$deleteFromPrimitiveListX":["a"]}"#,
                "400 invalid patch format of primitive list",
            ),
            (
                "a delete list that is none",
                r#"{"finalizers":["a"]}"#,
                r#"{"$deleteFromPrimitiveList/finalizers":"a"}"#,
                r#"{"finalizers":["a"]}"#,
            ),
            (
                "a delete list that is null",
                r#"{"finalizers":["a"],"labels":{}}"#,
                r#"{"$deleteFromPrimitiveList/finalizers":null}"#,
                r#"{"labels":{}}"#,
            ),
            (
                "of another type",
                r#"{"finalizers":["a"]}"#,
                r#"{"finalizers":[1]}"#,
                "500 list element types are not identical: [[a] [1]]",
            ),
        ],
    );
}

/// The patch is a patch of `kubectl apply` that changes an image, adds a variable, removes a port and a
/// label, and changes the update strategy.
#[test]
fn a_kubectl_apply_patch_of_a_deployment_gives_the_result_of_the_reference_server() {
    let live = r#"{
      "metadata": {"annotations": {"deployment/revision": "1", "last-applied": "old"}, "labels": {"app": "web", "tier": "x"}},
      "spec": {"replicas": 3,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
          "containers": [
            {"name": "web", "image": "web:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
             "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 443, "protocol": "TCP"}]},
            {"name": "injected", "image": "proxy:1"}],
          "volumes": [{"name": "data", "emptyDir": {}}]}}}}"#;
    let change = r#"{
      "metadata": {"annotations": {"last-applied": "new"}, "labels": {"tier": null}},
      "spec": {
        "strategy": {"$retainKeys": ["type"], "rollingUpdate": null, "type": "Recreate"},
        "template": {"spec": {
          "$setElementOrder/containers": [{"name": "web"}],
          "$setElementOrder/volumes": [{"name": "data"}],
          "containers": [{
            "$setElementOrder/env": [{"name": "C"}, {"name": "A"}],
            "$setElementOrder/ports": [{"containerPort": 80}],
            "env": [{"name": "C", "value": "3"}, {"$patch": "delete", "name": "B"}],
            "image": "web:2", "name": "web",
            "ports": [{"$patch": "delete", "containerPort": 443}]}],
          "volumes": [{"$retainKeys": ["configMap", "name"], "configMap": {"name": "cm"}, "name": "data"},
                      {"$patch": "delete", "name": "gone"}]}}}}"#;
    let want = r#"{
      "metadata": {"annotations": {"deployment/revision": "1", "last-applied": "new"}, "labels": {"app": "web"}},
      "spec": {"replicas": 3,
        "strategy": {"type": "Recreate"},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
          "containers": [
            {"name": "web", "image": "web:2", "env": [{"name": "C", "value": "3"}, {"name": "A", "value": "1"}],
             "ports": [{"containerPort": 80, "protocol": "TCP"}]},
            {"name": "injected", "image": "proxy:1"}],
          "volumes": [{"name": "data", "configMap": {"name": "cm"}}]}}}}"#;
    assert_eq!(run(&OBJECT, live, change), text(&parse(want.as_bytes()).unwrap()));
}

#[test]
fn malformed_patches_are_refused() {
    let original = || parse(b"{}").unwrap();
    let status = patch(PatchKind::Strategic, None, original(), b"{}", true).unwrap_err();
    assert_eq!(
        (status.code.as_u16(), &*status.message),
        (400, "strategic merge patch format is not supported")
    );
    let status = patch(PatchKind::Strategic, Some(&OBJECT), original(), b"[]", true).unwrap_err();
    assert_eq!(
        (status.code.as_u16(), &*status.message),
        (400, "json: cannot unmarshal array into Go value of type map[string]interface {}")
    );
    assert_eq!(patch(PatchKind::Strategic, Some(&OBJECT), original(), b"{", true).unwrap_err().code, 400);
}

#[test]
fn long_lists_merge_in_linear_time() {
    let begin = testkit::processor_time();
    let items = |from: usize| -> String {
        let items: Vec<String> = (from..from + 30_000).map(|n| format!(r#"{{"name":"c{n}"}}"#)).collect();
        items.join(",")
    };
    let change =
        format!(r#"{{"$setElementOrder/containers":[{}],"containers":[{}]}}"#, items(15_000), items(15_000));
    let original = parse(format!(r#"{{"containers":[{}]}}"#, items(0)).as_bytes()).unwrap();
    let patched = patch(PatchKind::Strategic, Some(&POD_SPEC), original, change.as_bytes(), true).unwrap();
    assert_eq!(patched.value.get("containers").unwrap().as_array().unwrap().len(), 45_000);
    let finalizers: Vec<String> = (0..50_000).map(|n| format!("\"f{n}\"")).collect();
    let set = format!(r#"{{"finalizers":[{}]}}"#, finalizers.join(","));
    assert_eq!(run(&message_of(meta()), &set, &set), set);
    let took = testkit::processor_time() - begin;
    assert!(took.as_secs() < 10, "quadratic: {took:?}");
}

/// Tests the built-in types, whose schemas declare merge keys and strategies.
#[test]
fn built_in_types_merge_by_their_own_keys() {
    use types::schema::builtin;
    use values::naming::KUBERNETES;

    for (stem, original, change, want) in [
        (
            "api.apps.v1.Deployment",
            r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%"}},"template":{"spec":{"containers":[{"name":"a","image":"1","ports":[{"containerPort":80,"protocol":"TCP"}],"volumeMounts":[{"mountPath":"/d","name":"v"}]}],"volumes":[{"name":"v","emptyDir":{}}],"imagePullSecrets":[{"name":"s"}],"tolerations":[{"key":"a"}]}}}}"#,
            r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"},"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"b","image":"2"},{"name":"a","ports":[{"containerPort":80,"name":"http"}],"volumeMounts":[{"$patch":"delete","mountPath":"/d"},{"mountPath":"/e","name":"v"}]}],"volumes":[{"$retainKeys":["name","secret"],"name":"v","secret":{"secretName":"s"}}],"imagePullSecrets":[{"name":"t"}],"tolerations":[{"key":"b"}]}}}}"#,
            r#"{"spec":{"strategy":{"type":"Recreate"},"template":{"spec":{"containers":[{"name":"b","image":"2"},{"name":"a","image":"1","ports":[{"containerPort":80,"protocol":"TCP","name":"http"}],"volumeMounts":[{"mountPath":"/e","name":"v"}]}],"volumes":[{"name":"v","secret":{"secretName":"s"}}],"imagePullSecrets":[{"name":"t"},{"name":"s"}],"tolerations":[{"key":"b"}]}}}}"#,
        ),
        (
            "api.core.v1.Service",
            r#"{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":80,"nodePort":30000},{"port":443,"protocol":"TCP"}],"selector":{"a":"1"},"clusterIPs":["10.0.0.1"]}}"#,
            r#"{"spec":{"$setElementOrder/ports":[{"port":80}],"ports":[{"port":80,"targetPort":8080},{"$patch":"delete","port":443}],"selector":{"a":null,"b":"2"},"clusterIPs":["10.0.0.2"]}}"#,
            r#"{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":8080,"nodePort":30000}],"selector":{"b":"2"},"clusterIPs":["10.0.0.2"]}}"#,
        ),
        (
            "api.core.v1.Pod",
            r#"{"metadata":{"finalizers":["a"],"ownerReferences":[{"uid":"1","name":"x"}]},"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Scheduled","status":"True"}]}}"#,
            r#"{"metadata":{"finalizers":["b"],"ownerReferences":[{"uid":"2","name":"y"},{"$patch":"delete","uid":"1"}]},"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"Scheduled"}],"conditions":[{"type":"Ready","status":"True"}]}}"#,
            r#"{"metadata":{"finalizers":["b","a"],"ownerReferences":[{"uid":"2","name":"y"}]},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Scheduled","status":"True"}]}}"#,
        ),
        (
            "api.policy.v1.PodDisruptionBudget",
            r#"{"spec":{"selector":{"matchLabels":{"a":"1"}},"minAvailable":1}}"#,
            r#"{"spec":{"selector":{"matchLabels":{"b":"2"}}}}"#,
            r#"{"spec":{"selector":{"matchLabels":{"b":"2"}},"minAvailable":1}}"#,
        ),
        (
            "api.admissionregistration.v1.ValidatingWebhookConfiguration",
            r#"{"webhooks":[{"name":"a","rules":[{"verbs":["x"]}]},{"name":"b"}]}"#,
            r#"{"webhooks":[{"name":"a","rules":[{"verbs":["y"]}]}]}"#,
            r#"{"webhooks":[{"name":"a","rules":[{"verbs":["y"]}]},{"name":"b"}]}"#,
        ),
    ] {
        let message = builtin::message(&KUBERNETES, stem).unwrap();
        assert_eq!(run(message, original, change), want, "{stem}");
    }
}
