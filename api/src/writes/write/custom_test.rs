//! Tests custom types from their definition to their removal with requests to a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::server_fixture::TestServer;
use crate::system::controllers;
use types::schema::registry::Group;
use values::json::Value;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/g.example/v1/namespaces/here/things";

/// Returns a definition of a namespaced type with these names and with this schema for `spec`.
fn definition(names: &str, spec: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"things.g.example"}},"spec":{{"group":"g.example","scope":"Namespaced","names":{names},
            "versions":[{{"name":"v1","served":true,"storage":true,"subresources":{{"status":{{}}}},
                "additionalPrinterColumns":[{{"name":"Size","type":"integer","jsonPath":".spec.size"}}],
                "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{
                    "spec":{spec},"status":{{"type":"object","properties":{{"ready":{{"type":"boolean"}}}}}}}}}}}}}}]}}}}"#
    )
}

const NAMES: &str = r#"{"plural":"things","kind":"Thing","shortNames":["th"]}"#;

const SPEC: &str = r#"{"type":"object","properties":{
    "size":{"type":"integer","minimum":1,"default":3},
    "rows":{"type":"array","items":{"type":"object","additionalProperties":{"type":"array","items":{"type":"integer","nullable":true}}}},
    "port":{"x-kubernetes-int-or-string":true},
    "open":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
    "ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
        "items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"number":{"type":"integer"}}}}}}"#;

/// Starts a server and its controllers, and creates a namespace.
async fn start() -> (Arc<TestServer>, controllers::Controllers) {
    let server = Arc::new(TestServer::start());
    let controllers = controllers::start(server.itself(), &controllers::Selection::default());
    server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"here"}}"#).await;
    (server, controllers)
}

/// Repeats a request until `accepts` accepts the response. Returns the body of that response.
async fn until(server: &TestServer, request: &str, accepts: impl Fn(u16, &Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let (code, _, body) = server.send(request, "").await;
        if accepts(code, &body) {
            return body;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{request}: {code} {body:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn condition<'v>(definition: &'v Value, kind: &str) -> (&'v str, &'v str) {
    let conditions = definition.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.str_at(&["type"]) == kind);
    found.map_or(("", ""), |found| (found.str_at(&["status"]), found.str_at(&["reason"])))
}

async fn established(server: &TestServer, name: &str) -> Value {
    let request = format!("GET {DEFINITIONS}/{name}");
    until(server, &request, |_, body| condition(body, "Established").0 == "True").await
}

/// Reads a stream to its end and returns it as one text.
async fn rest_of(response: wire::response::Response) -> String {
    use http_body_util::BodyExt;
    let collected = tokio::time::timeout(Duration::from_secs(60), response.into_body().collect()).await;
    String::from_utf8(collected.expect("the watch ends").unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_type_is_served_by_every_verb_and_encoding_of_builtin_types() {
    let (server, controllers) = start().await;
    let (code, _, body) = server.send(&format!("POST {DEFINITIONS}"), &definition(NAMES, SPEC)).await;
    assert_eq!(code, 201, "{body:?}");
    let stored_definition = established(&server, "things.g.example").await;
    assert_eq!(condition(&stored_definition, "NamesAccepted"), ("True", "NoConflicts"));
    assert_eq!(stored_definition.str_at(&["status", "acceptedNames", "listKind"]), "ThingList");

    // Missing fields get their defaults, unknown fields are dropped, and null is kept if the schema allows
    // null.
    let object = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"a","labels":{"l":"1"}},
        "spec":{"rows":[{"x":[1,null]}],"port":"http","open":{"z":[{"q":1}]},"unknown":1}}"#;
    let (code, warnings, made) = server.send(&format!("POST {THINGS}"), object).await;
    assert_eq!(
        (code, warnings),
        (201, vec![r#"299 - "unknown field \"spec.unknown\"""#.to_owned()]),
        "{made:?}"
    );
    assert_eq!(made.at(&["spec", "size"]), Some(&Value::Int(3)));
    assert!(made.at(&["spec", "unknown"]).is_none() && made.at(&["spec", "open", "z"]).is_some());

    // Two managers own different elements of a list, and conflict about a field of one element.
    let apply = |manager: &str, number: u32| {
        let port = format!(r#"{{"name":"{manager}","number":1}},{{"name":"both","number":{number}}}"#);
        let body = format!(
            r#"{{"apiVersion":"g.example/v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{{"ports":[{port}]}}}}"#
        );
        (format!("APPLY {THINGS}/a?fieldManager={manager}"), body)
    };
    let (request, body) = apply("one", 7);
    assert_eq!(server.send(&request, &body).await.0, 200);
    let (request, body) = apply("two", 7);
    let (code, _, both) = server.send(&request, &body).await;
    assert_eq!((code, both.at(&["spec", "ports"]).unwrap().as_array().unwrap().len()), (200, 3));
    let (request, body) = apply("two", 8);
    let (code, _, conflict) = server.send(&request, &body).await;
    assert_eq!((code, conflict.str_at(&["reason"])), (409, "Conflict"));

    // Patches change the spec or the status, depending on the endpoint.
    let (code, _, invalid) = server.send(&format!("MERGE {THINGS}/a"), r#"{"spec":{"size":0}}"#).await;
    assert_eq!((code, invalid.str_at(&["reason"])), (422, "Invalid"));
    let both = r#"{"spec":{"size":5},"status":{"ready":true}}"#;
    let (_, _, patched) = server.send(&format!("MERGE {THINGS}/a"), both).await;
    assert_eq!((patched.at(&["spec", "size"]), patched.get("status")), (Some(&Value::Int(5)), None));
    let (_, _, patched) = server.send(&format!("MERGE {THINGS}/a/status"), both).await;
    assert_eq!(patched.at(&["status", "ready"]), Some(&Value::Bool(true)));
    let patch = r#"[{"op":"add","path":"/spec/port","value":80}]"#;
    let (code, _, patched) = server.send(&format!("JSON {THINGS}/a"), patch).await;
    assert_eq!((code, patched.at(&["spec", "port"])), (200, Some(&Value::Int(80))));
    assert_eq!(server.send(&format!("STRATEGIC {THINGS}/a"), "{}").await.0, 415);

    // The custom type is in lists, tables and OpenAPI documents.
    for (query, count) in [("", 1), ("?labelSelector=l%3D1", 1), ("?labelSelector=l%3D2", 0)] {
        let (_, _, list) = server.send(&format!("GET {THINGS}{query}"), "").await;
        let items = list.get("items").and_then(Value::as_array).map(<[_]>::len);
        assert_eq!((list.str_at(&["kind"]), items), ("ThingList", Some(count)), "{query}");
    }
    let table = server.get(THINGS, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert!(table.contains(r#""cells":["a",5]"#), "{table}");
    let list = server.get("/apis/g.example/v1", "application/json").await;
    assert!(list.contains(r#""name":"things/status""#) && list.contains(r#""shortNames":["th"]"#), "{list}");
    let document = server.get("/openapi/v3/apis/g.example/v1", "application/json").await;
    assert!(document.contains("example.g.v1.ThingList") && document.contains("int-or-string"), "{document}");
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_of_the_status_of_a_custom_object_owns_only_the_status() {
    let (server, controllers) = start().await;
    server.send(&format!("POST {DEFINITIONS}"), &definition(NAMES, SPEC)).await;
    established(&server, "things.g.example").await;
    let object = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"size":4}}"#;
    assert_eq!(server.send(&format!("POST {THINGS}"), object).await.0, 201);
    for (verb, label, force) in [("MERGE", "l", ""), ("APPLY", "m", "&force=true")] {
        let body = format!(
            r#"{{"apiVersion":"g.example/v1","kind":"Thing","metadata":{{"name":"a","labels":{{"{label}":"1"}}}},
                "spec":{{"size":9}},"status":{{"ready":true}}}}"#
        );
        let request = format!("{verb} {THINGS}/a/status?fieldManager={verb}{force}");
        let (code, _, made) = server.send(&request, &body).await;
        assert_eq!((code, made.at(&["metadata", "labels"])), (200, None), "{made:?}");
        assert_eq!(made.at(&["spec", "size"]), Some(&Value::Int(4)));
        let entries = made.at(&["metadata", "managedFields"]).and_then(Value::as_array).unwrap();
        let entry = entries.iter().find(|entry| entry.str_at(&["manager"]) == verb).unwrap();
        let fields = entry.at(&["fieldsV1"]).and_then(Value::as_object).unwrap();
        let names: Vec<&str> = fields.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["f:status"], "{verb}: {entry:?}");
    }
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_status_of_a_custom_object_gets_its_defaults() {
    let (server, controllers) = start().await;
    let ready = r#""status":{"type":"object","properties":{"ready""#;
    let schema = definition(NAMES, SPEC)
        .replace(ready, &ready.replace("\"properties\"", "\"default\":{\"ready\":false},\"properties\""));
    server.send(&format!("POST {DEFINITIONS}"), &schema).await;
    established(&server, "things.g.example").await;
    let object = |name: &str| {
        format!(
            r#"{{"apiVersion":"g.example/v1","kind":"Thing","metadata":{{"name":"{name}"}},"status":{{"ready":true}}}}"#
        )
    };
    for (request, name) in [
        (format!("POST {THINGS}?dryRun=All"), "a"),
        (format!("POST {THINGS}"), "a"),
        (format!("APPLY {THINGS}/b?fieldManager=m"), "b"),
        (format!("MERGE {THINGS}/a"), "a"),
        (format!("GET {THINGS}/a"), ""),
        (format!("GET {THINGS}/b"), ""),
    ] {
        let (_, _, found) = server.send(&request, &object(name)).await;
        assert_eq!(found.at(&["status", "ready"]), Some(&Value::Bool(false)), "{request}: {found:?}");
        let managed = found.at(&["metadata", "managedFields"]).map(|entries| format!("{entries:?}"));
        assert!(!managed.is_some_and(|entries| entries.contains("f:status")), "{request}: {found:?}");
    }
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_types_have_their_own_list_paths_and_warnings() {
    let (server, controllers) = start().await;
    let spec = r#"{"type":"object","properties":{"n":{"type":"integer",
        "x-kubernetes-validations":[{"rule":"self < 10","message":"too large"}]},"m":{"type":"integer"}}}"#;
    let lenient = spec.replace("self < 10", "true");
    let (_, _, made) = server.send(&format!("POST {DEFINITIONS}"), &definition(NAMES, &lenient)).await;
    established(&server, "things.g.example").await;
    let object = r#"{"apiVersion":"g.example/v1","kind":"Thing",
        "metadata":{"name":"a","finalizers":["plain","a.b/c"]},"spec":{"n":20}}"#;
    let (code, warnings, _) = server.send(&format!("POST {THINGS}"), object).await;
    let plain = r#"299 - "metadata.finalizers: \"plain\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers""#;
    assert_eq!((code, warnings), (201, vec![plain.to_owned()]));

    // Items contain their kind and version, and the last chunk has an empty continue token.
    let list = server.get(THINGS, "application/json").await;
    assert!(list.contains(r#""continue":"""#), "{list}");
    assert!(list.contains(r#""items":[{"kind":"Thing","apiVersion":"g.example/v1","metadata""#), "{list}");
    let table = server.get(THINGS, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert!(!table.contains(r#""continue""#), "{table}");

    for (request, want) in [
        (format!("GET {THINGS}/a/nonsense"), (404, r#"things.g.example "a" not found"#)),
        (format!("GET {THINGS}/a/scale"), (404, r#"things.g.example "a" not found"#)),
        (
            format!("POST {THINGS}/a/status"),
            (405, r#"create is not supported on resources of kind "things.g.example""#),
        ),
        (format!("PUT {THINGS}"), (400, "name must be provided")),
        (format!("MERGE {THINGS}"), (400, "name must be provided")),
        (
            format!("STRATEGIC {THINGS}"),
            (
                415,
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ),
        ),
        ("GET /apis/g.example/v1/things/a".to_owned(), (404, "")),
    ] {
        let (code, _, body) = server.send(&request, "{}").await;
        assert_eq!((code, body.str_at(&["message"])), want, "{request}");
    }
    // The name of a new object comes from the request body, regardless of the path.
    let named = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"c"}}"#;
    let (code, _, other) = server.send(&format!("POST {THINGS}/other"), named).await;
    assert_eq!((code, other.str_at(&["metadata", "name"])), (201, "c"), "{other:?}");

    // The version document of a custom type is served for every method.
    assert_eq!(server.send("DELETE /apis/g.example/v1", "").await.0, 200);

    // A request that is refused before its verb begins still gets the deprecation warning.
    let deprecated = r#"[{"op":"add","path":"/spec/versions/0/deprecated","value":true}]"#;
    assert_eq!(server.send(&format!("JSON {DEFINITIONS}/things.g.example"), deprecated).await.0, 200);
    let began = Instant::now();
    loop {
        let (code, warnings, _) = server.send(&format!("POST {THINGS}/a/status"), "{}").await;
        assert_eq!(code, 405);
        if !warnings.is_empty() {
            break assert_eq!(warnings, [r#"299 - "g.example/v1 Thing is deprecated""#]);
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }

    // A value that was stored before the rule existed may stay. The writer of an update gets a warning.
    let strict = definition(NAMES, spec).replacen(
        r#"{"name":"things.g.example""#,
        &format!(
            r#"{{"name":"things.g.example","resourceVersion":"{}""#,
            until(&server, &format!("GET {DEFINITIONS}/things.g.example"), |_, _| true)
                .await
                .str_at(&["metadata", "resourceVersion"])
        ),
        1,
    );
    let (code, _, body) = server.send(&format!("PUT {DEFINITIONS}/things.g.example"), &strict).await;
    assert_eq!(code, 200, "{made:?} {body:?}");
    let refused = format!("POST {THINGS}?dryRun=All");
    let body = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"b"},"spec":{"n":20}}"#;
    until_refused(&server, &refused, body).await;
    let (code, warnings, _) = server.send(&format!("MERGE {THINGS}/a"), r#"{"spec":{"m":1}}"#).await;
    assert_eq!((code, warnings), (200, vec![r#"299 - "spec.n: Invalid value: 20: too large""#.to_owned()]));
    controllers.stop().await;
}

/// Repeats a request until the response is 422.
async fn until_refused(server: &TestServer, request: &str, body: &str) {
    let began = Instant::now();
    while server.send(request, body).await.0 != 422 {
        assert!(began.elapsed() < Duration::from_secs(60), "{request}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_with_its_custom_type_after_sending_all_events() {
    let (server, controllers) = start().await;
    server.send(&format!("POST {DEFINITIONS}"), &definition(NAMES, SPEC)).await;
    established(&server, "things.g.example").await;
    server
        .send(
            &format!("POST {THINGS}"),
            r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"a"}}"#,
        )
        .await;

    // A change of the metadata of a definition does not change the types. A change of the schema replaces the types.
    let first = server.open(&format!("{THINGS}?watch=1&resourceVersion=0")).await;
    let one = format!("{DEFINITIONS}/things.g.example");
    let types = server.types.now();
    server.send(&format!("MERGE {one}"), r#"{"metadata":{"labels":{"a":"b"}}}"#).await;
    let (code, ..) = server.send(&format!("MERGE {one}"), &definition(NAMES, &SPEC.replace('3', "4"))).await;
    assert_eq!(code, 200);
    assert!(rest_of(first).await.contains(r#""type":"ADDED""#));
    let resource = types.registry().resource("g.example", "v1", "things").unwrap();
    assert!(!server.types.now().has(resource));
    let (_, _, made) = server
        .send(
            &format!("POST {THINGS}"),
            r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"b"},"spec":{}}"#,
        )
        .await;
    assert_eq!(made.at(&["spec", "size"]), Some(&Value::Int(4)), "{made:?}");

    // The type stays while an object with a finalizer exists. No new object can be created in the meantime.
    let second = server.open(&format!("{THINGS}?watch=1")).await;
    server.send(&format!("MERGE {THINGS}/a"), r#"{"metadata":{"finalizers":["g.example/held"]}}"#).await;
    let (code, _, deleted) = server.send(&format!("DELETE {one}"), "").await;
    assert_eq!((code, condition(&deleted, "Terminating").1), (200, "InstanceDeletionPending"), "{deleted:?}");
    assert_eq!(deleted.at(&["metadata", "finalizers"]).unwrap().as_array().unwrap().len(), 1);
    let (code, _, refused) = server
        .send(
            &format!("POST {THINGS}"),
            r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"c"}}"#,
        )
        .await;
    let message = r#"things.g.example "c" is forbidden: create not allowed while custom resource definition is terminating"#;
    assert_eq!((code, refused.str_at(&["message"])), (403, message));
    until(&server, &format!("GET {THINGS}/b"), |code, _| code == 404).await;
    let stored_definition = until(&server, &format!("GET {one}"), |_, body| {
        condition(body, "Terminating").1 == "InstanceDeletionInProgress"
    })
    .await;
    assert_eq!(condition(&stored_definition, "Established").0, "True");
    // Discovery contains only the verbs that are still possible.
    until(&server, "GET /apis/g.example/v1", |_, shown| {
        let things = shown.get("resources").and_then(Value::as_array).and_then(<[_]>::first);
        let verbs = things.and_then(|things| things.get("verbs")).and_then(Value::as_array);
        verbs.is_some_and(|verbs| verbs.len() == 5)
    })
    .await;
    let (code, _, again) = server.send(&format!("DELETE {one}"), "").await;
    assert_eq!((code, again.at(&["metadata", "deletionGracePeriodSeconds"])), (200, Some(&Value::Int(0))));
    server.send(&format!("MERGE {THINGS}/a"), r#"{"metadata":{"finalizers":null}}"#).await;
    until(&server, &format!("GET {one}"), |code, _| code == 404).await;
    assert_eq!(rest_of(second).await.matches(r#""type":"DELETED""#).count(), 2);
    // The types are gone before the definition, and they do not come back.
    assert_eq!(server.send(&format!("GET {THINGS}"), "").await.0, 404);
    assert!(server.types.now().registry().group("g.example").is_none());

    // A new definition with the same name serves the type again, without the earlier objects.
    server.send(&format!("POST {DEFINITIONS}"), &definition(NAMES, SPEC)).await;
    established(&server, "things.g.example").await;
    let (_, _, list) = server.send(&format!("GET {THINGS}"), "").await;
    assert_eq!(list.get("items").and_then(Value::as_array).map(<[_]>::len), Some(0));
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_names_go_to_a_waiting_definition() {
    let (server, controllers) = start().await;
    let other = definition(NAMES, SPEC).replace("things.g.example", "others.g.example");
    let other = other.replace(r#""plural":"things""#, r#""plural":"others""#);
    server.send(&format!("POST {DEFINITIONS}"), &definition(NAMES, SPEC)).await;
    established(&server, "things.g.example").await;
    server.send(&format!("POST {DEFINITIONS}"), &other).await;
    let request = format!("GET {DEFINITIONS}/others.g.example");
    let refused = until(&server, &request, |_, body| condition(body, "NamesAccepted").0 == "False").await;
    assert_eq!(condition(&refused, "Established"), ("False", "NotAccepted"));
    assert_eq!(server.send("GET /apis/g.example/v1/others", "").await.0, 404);
    server.send(&format!("DELETE {DEFINITIONS}/things.g.example"), "").await;
    established(&server, "others.g.example").await;
    assert_eq!(server.send("GET /apis/g.example/v1/others", "").await.0, 200);
    controllers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn established_types_are_served_from_the_first_request_after_a_restart() {
    let (server, controllers) = start().await;
    server.send(&format!("POST {DEFINITIONS}"), &definition(NAMES, SPEC)).await;
    established(&server, "things.g.example").await;
    let thing = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"a","finalizers":["g.example/held"]}}"#;
    assert_eq!(server.send(&format!("POST {THINGS}"), thing).await.0, 201);
    server.send(&format!("DELETE {DEFINITIONS}/things.g.example"), "").await;
    controllers.stop().await;

    // The deletion continues after the restart.
    let server = Arc::new(Arc::into_inner(server).unwrap().restart().await);
    crate::system::startup::load_types(&server).unwrap();
    assert_eq!(server.send(&format!("GET {THINGS}/a"), "").await.0, 200);
    let controllers = controllers::start(server.itself(), &controllers::Selection::default());
    server.send(&format!("MERGE {THINGS}/a"), r#"{"metadata":{"finalizers":null}}"#).await;
    let request = format!("GET {DEFINITIONS}/things.g.example");
    until(&server, &request, |code, _| code == 404).await;
    controllers.stop().await;
}

#[tokio::test]
async fn a_type_that_cannot_be_compiled_on_first_use_fails_only_its_own_requests() {
    use objects::custom::definition::Definition;
    use objects::custom::established::Prepared;

    let server = TestServer::start();
    let text = |keys: &str| {
        format!(
            r#"{{"metadata":{{"name":"things.g.example","uid":"u","generation":1}},"spec":{{"group":"g.example","scope":"Namespaced","versions":[
                {{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"l":{{"type":"array",
                "x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["{keys}"],"items":{{"type":"object","properties":{{"a":{{"type":"string"}}}}}}}}}}}}}}}}]}},
                "status":{{"acceptedNames":{{"plural":"things","kind":"Thing","listKind":"ThingList","singular":"thing"}}}}}}"#
        )
    };
    for (keys, code, message) in [
        ("a", 200, ""),
        (
            "b",
            500,
            "Internal error occurred: type of definition things.g.example cannot be served: elements have no field b to tell them apart",
        ),
    ] {
        let text = text(keys);
        let object = values::testing::object(&text);
        let definition = Definition::read(&object);
        server.establish(|established, changes| {
            let pool = Arc::clone(established.pool());
            let (name, text) = ("things.g.example", text.clone().into());
            let prepared = Prepared::deferred(name, &object, &definition, text, &pool).unwrap();
            established.put(prepared, server.types.naming, changes);
        });
        // Discovery works without a schema.
        assert_eq!(server.send("GET /apis/g.example/v1", "").await.0, 200);
        let (got, _, body) = server.send(&format!("GET {THINGS}"), "").await;
        assert_eq!((got, body.str_at(&["message"])), (code, message));
    }
}

#[tokio::test]
async fn changing_one_of_a_thousand_types_does_not_rebuild_the_others() {
    let server = TestServer::start();
    let make = |at: usize| {
        let spec = types::schema::make::Struct::new("Spec").node().unwrap();
        let thing = types::schema::make::Struct::new("Thing").field("spec", spec);
        let made = types::schema::make::ResourceMaker::new(
            &format!("g{at}.example"),
            "v1",
            "things",
            types::schema::table::Scope::Cluster,
            thing,
        );
        made.unwrap().make(server.types.naming)
    };
    let priorities = types::schema::registry::Priorities::CUSTOM;
    let many: Vec<_> = (0..1000).map(make).collect();
    server.types.change(|registry| Ok::<_, ()>(registry.changed(&[], many, priorities))).unwrap();
    for at in 0..20 {
        let before = server.types.now();
        server.types.change(|registry| Ok::<_, ()>(registry.with(make(at), priorities))).unwrap();
        let after = server.types.now();
        let kept = |group: &&Arc<Group>| {
            after.registry().group(&group.name).is_some_and(|now| Arc::ptr_eq(now, group))
        };
        let groups = before.registry().groups();
        let changed: Vec<&str> =
            groups.iter().filter(|group| !kept(group)).map(|group| group.name.as_str()).collect();
        assert_eq!(changed, [format!("g{at}.example")], "of {} groups", groups.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_runs_convert_between_versions_and_objects_of_removed_versions_are_an_error() {
    let (server, controllers) = start().await;
    let version = |name: &str, is_stored: bool, field: &str| {
        format!(
            r#"{{"name":"{name}","served":true,"storage":{is_stored},"schema":{{"openAPIV3Schema":{{"type":"object",
                "properties":{{"spec":{{"type":"object","properties":{{
                    "both":{{"type":"string"}},"{field}":{{"type":"string"}}}}}}}}}}}}}}"#
        )
    };
    let definition = format!(
        r#"{{"metadata":{{"name":"things.g.example"}},"spec":{{"group":"g.example","scope":"Namespaced","names":{NAMES},
            "versions":[{},{}]}}}}"#,
        version("v1", true, "one"),
        version("v2", false, "two"),
    );
    server.send(&format!("POST {DEFINITIONS}"), &definition).await;
    established(&server, "things.g.example").await;
    let things = THINGS.replace("v1", "v2");
    let object = |spec: &str| {
        format!(r#"{{"apiVersion":"g.example/v2","kind":"Thing","metadata":{{"name":"a"}},"spec":{spec}}}"#)
    };
    // The stored version does not have the field `two`.
    for (request, spec, want) in [
        (format!("POST {things}?dryRun=All"), r#"{"both":"1","two":"2"}"#, (201, "1")),
        (format!("POST {things}"), r#"{"both":"1","two":"2"}"#, (201, "1")),
        (format!("MERGE {things}/a?dryRun=All"), r#"{"both":"3","two":"4"}"#, (200, "3")),
        (format!("MERGE {things}/a"), r#"{"both":"3","two":"4"}"#, (200, "3")),
    ] {
        let (code, _, body) = server.send(&request, &object(spec)).await;
        assert_eq!((code, body.str_at(&["spec", "both"])), want, "{request}");
        assert!(body.at(&["spec", "two"]).is_none(), "{request}");
    }

    // If a version was removed before the objects in that version were migrated, these objects cannot be
    // read.
    let one = format!("{DEFINITIONS}/things.g.example");
    let changed = |versions: &str| format!(r#"{{"spec":{{"versions":[{versions}]}}}}"#);
    let both = format!("{},{}", version("v1", false, "one"), version("v2", true, "two"));
    assert_eq!(server.send(&format!("MERGE {one}"), &changed(&both)).await.0, 200);
    let trimmed = r#"{"status":{"storedVersions":["v2"]}}"#;
    assert_eq!(server.send(&format!("MERGE {one}/status"), trimmed).await.0, 200);
    assert_eq!(server.send(&format!("MERGE {one}"), &changed(&version("v2", true, "two"))).await.0, 200);
    let read = format!("GET {things}/a");
    let body = until(&server, &read, |code, _| code == 500).await;
    let why = "request to convert CR from an invalid group/version: g.example/v1";
    assert_eq!((body.str_at(&["message"]), body.str_at(&["reason"])), (why, ""));
    controllers.stop().await;
}
