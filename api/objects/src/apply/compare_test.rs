//! Tests of comparisons, grouped by kind of type.

use super::*;
use types::schema::builtin;
use values::naming::KUBERNETES;
use values::testing::object;

fn compared(message: &str, old: &str, new: &str, skip: &[&'static str]) -> [String; 3] {
    let message = builtin::message(&KUBERNETES, message).unwrap();
    let (old, new) = (object(old), object(new));
    let found = compare(message, &old, &new, &FieldSet::of_fields(skip));
    [found.removed.text(), found.modified.text(), found.added.text()]
}

#[test]
fn a_comparison_reports_removed_modified_and_added_paths() {
    const META: &str = "apimachinery.pkg.apis.meta.v1.ObjectMeta";
    const POD: &str = "api.core.v1.PodSpec";
    const NO: &str = "{}";
    for (message, old, new, removed, modified, added) in [
        // Scalars, and maps of scalars.
        (META, r#"{"name":"a"}"#, r#"{"name":"b"}"#, NO, r#"{"f:name":{}}"#, NO),
        (META, r#"{"labels":{"a":"1"}}"#, r#"{"labels":{"a":"1"}}"#, NO, NO, NO),
        (META, NO, r#"{"labels":{"a":"1"}}"#, NO, NO, r#"{"f:labels":{".":{},"f:a":{}}}"#),
        (
            META,
            r#"{"labels":{"a":"1"}}"#,
            r#"{"labels":{"a":"1","b":"2"}}"#,
            NO,
            NO,
            r#"{"f:labels":{"f:b":{}}}"#,
        ),
        (META, r#"{"labels":{"a":"1"}}"#, NO, r#"{"f:labels":{".":{},"f:a":{}}}"#, NO, NO),
        // Sets.
        (
            META,
            r#"{"finalizers":["a","b"]}"#,
            r#"{"finalizers":["b","c"]}"#,
            r#"{"f:finalizers":{"v:\"a\"":{}}}"#,
            NO,
            r#"{"f:finalizers":{"v:\"c\"":{}}}"#,
        ),
        // A different order is not a change.
        (META, r#"{"finalizers":["a","b"]}"#, r#"{"finalizers":["b","a"]}"#, NO, NO, NO),
        // Atomic lists, maps and structs are leaves.
        (
            POD,
            r#"{"nodeSelector":{"a":"1"}}"#,
            r#"{"nodeSelector":{"a":"2"}}"#,
            NO,
            r#"{"f:nodeSelector":{}}"#,
            NO,
        ),
        (POD, NO, r#"{"tolerations":[{"key":"a"}]}"#, NO, NO, r#"{"f:tolerations":{}}"#),
        // The order of the members of atomic values is irrelevant, so members that are not sorted make no difference.
        (
            POD,
            r#"{"nodeSelector":{"a":"1","b":"2"},"tolerations":[{"key":"a","effect":"b"}]}"#,
            r#"{"nodeSelector":{"b":"2","a":"1"},"tolerations":[{"effect":"b","key":"a"}]}"#,
            NO,
            NO,
            NO,
        ),
        (
            POD,
            r#"{"nodeSelector":{"a":"1","b":"2"}}"#,
            r#"{"nodeSelector":{"b":"1","a":"2"}}"#,
            NO,
            r#"{"f:nodeSelector":{}}"#,
            NO,
        ),
        // Keyed lists, with the fields of an element.
        (
            POD,
            r#"{"containers":null}"#,
            r#"{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{}}]}"#,
            NO,
            NO,
            r#"{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{}}}}"#,
        ),
        (
            POD,
            r#"{"containers":[{"name":"a","image":"x"},{"name":"b"}]}"#,
            r#"{"containers":[{"name":"a","image":"y"}]}"#,
            r#"{"f:containers":{"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}"#,
            r#"{"f:containers":{"k:{\"name\":\"a\"}":{"f:image":{}}}}"#,
            NO,
        ),
        // Repeated elements are owned as a whole.
        (
            POD,
            r#"{"containers":[{"name":"a","image":"x"}]}"#,
            r#"{"containers":[{"name":"a","image":"x"},{"name":"a","image":"y"}]}"#,
            r#"{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}}}}"#,
            NO,
            r#"{"f:containers":{"k:{\"name\":\"a\"}":{}}}"#,
        ),
        (
            POD,
            r#"{"containers":[{"name":"a","image":"x"},{"name":"a","image":"y"}]}"#,
            r#"{"containers":[{"name":"a","image":"x"},{"name":"a","image":"z"}]}"#,
            NO,
            r#"{"f:containers":{"k:{\"name\":\"a\"}":{}}}"#,
            NO,
        ),
        // Empty and absent values, and values that are empty in different ways.
        (POD, NO, r#"{"securityContext":{}}"#, NO, NO, r#"{"f:securityContext":{}}"#),
        (
            POD,
            r#"{"securityContext":{}}"#,
            r#"{"securityContext":{"runAsUser":1}}"#,
            NO,
            NO,
            r#"{"f:securityContext":{"f:runAsUser":{}}}"#,
        ),
        (POD, r#"{"containers":null}"#, r#"{"containers":[]}"#, NO, r#"{"f:containers":{}}"#, NO),
    ] {
        assert_eq!(compared(message, old, new, &[]), [removed, modified, added], "{old} → {new}");
    }
}

#[test]
fn values_without_a_schema_have_deduced_types() {
    const SCHEMA: &str = "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    const NO: &str = "{}";
    for (old, new, removed, modified, added) in [
        (
            r#"{"default":{"a":{"b":1}}}"#,
            r#"{"default":{"a":{"b":2}}}"#,
            NO,
            r#"{"f:default":{"f:a":{"f:b":{}}}}"#,
            NO,
        ),
        (r#"{"default":{"a":[1]}}"#, r#"{"default":{"a":[2]}}"#, NO, r#"{"f:default":{"f:a":{}}}"#, NO),
        (
            r#"{"default":{"a":{"b":1}}}"#,
            r#"{"default":{"a":1}}"#,
            r#"{"f:default":{"f:a":{"f:b":{}}}}"#,
            r#"{"f:default":{"f:a":{}}}"#,
            NO,
        ),
        (
            r#"{"default":{"a":1}}"#,
            r#"{"default":{"a":{"b":1}}}"#,
            NO,
            r#"{"f:default":{"f:a":{}}}"#,
            r#"{"f:default":{"f:a":{"f:b":{}}}}"#,
        ),
        (
            r#"{"default":{"a":{"b":1}}}"#,
            r#"{"default":{"a":null}}"#,
            r#"{"f:default":{"f:a":{"f:b":{}}}}"#,
            NO,
            NO,
        ),
    ] {
        assert_eq!(compared(SCHEMA, old, new, &[]), [removed, modified, added], "{old} → {new}");
    }
}

#[test]
fn embedded_json_is_one_leaf() {
    const REVISION: &str = "api.apps.v1.ControllerRevision";
    let (one, two) = (r#"{"data":{"a":{"b":1}}}"#, r#"{"data":{"a":{"b":2},"c":[]}}"#);
    assert_eq!(compared(REVISION, one, two, &[]), ["{}", r#"{"f:data":{}}"#, "{}"]);
    assert_eq!(compared(REVISION, "{}", two, &[]), ["{}", "{}", r#"{"f:data":{}}"#]);
}

#[test]
fn skipped_paths_are_ignored() {
    const POD: &str = "api.core.v1.Pod";
    let old = r#"{"metadata":{"name":"a"},"status":{"phase":"x"}}"#;
    let new = r#"{"metadata":{"name":"b","labels":{"a":"b"}},"spec":{"nodeName":"n"}}"#;
    let [removed, modified, added] = compared(POD, old, new, &["metadata.name", "status"]);
    assert_eq!((removed.as_str(), modified.as_str()), ("{}", "{}"));
    assert_eq!(added, r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{".":{},"f:nodeName":{}}}"#);
}
