//! Tests the rules and selectors that select writes.

use super::*;
use values::naming::KUBERNETES;
use values::testing::object;

/// Returns the version in which the write matches, or `no`.
fn matched(matching: &str, write: [&str; 4], labels: &str) -> String {
    let registry = Registry::new(&KUBERNETES);
    let [group, version, plural, subresource] = write;
    let resource = registry.resource(group, version, plural).unwrap();
    let new = object(&format!(r#"{{"metadata":{{"name":"web","labels":{labels}}}}}"#));
    let namespace = object(r#"{"metadata":{"name":"ns","labels":{"team":"a"}}}"#);
    let policy_write = PolicyWrite {
        operation: Operation::Create,
        resource,
        subresource,
        namespace: if resource.namespaced() { "ns" } else { "" },
        name: "web",
        old: None,
        new: Some(&new),
    };
    let matching = MatchResources::read(&Value::Object(object(matching)));
    let found = matching.matches(&policy_write, &registry, || Some(&namespace));
    found.map_or_else(|| "no".to_owned(), |found| found.version.to_string())
}

#[test]
fn policy_rules_match_operations_groups_versions_resources_scopes_and_names() {
    let deployment = ["apps", "v1", "deployments", ""];
    for (rule, write, want) in [
        (
            r#""operations":["*"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"]"#,
            deployment,
            "v1",
        ),
        (
            r#""operations":["UPDATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"]"#,
            deployment,
            "no",
        ),
        (r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]"#, deployment, "v1"),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]"#,
            ["apps", "v1", "deployments", "status"],
            "no",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"]"#,
            ["apps", "v1", "deployments", "status"],
            "v1",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*/scale"]"#,
            ["apps", "v1", "deployments", "status"],
            "no",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"Cluster""#,
            deployment,
            "no",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"Namespaced""#,
            ["", "v1", "nodes", ""],
            "no",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"resourceNames":["api"]"#,
            deployment,
            "no",
        ),
        // By default, the same objects in another version match as well.
        (
            r#""operations":["*"],"apiGroups":["autoscaling"],"apiVersions":["v1"],"resources":["horizontalpodautoscalers"]"#,
            ["autoscaling", "v2", "horizontalpodautoscalers", ""],
            "v1",
        ),
    ] {
        assert_eq!(matched(&format!(r#"{{"resourceRules":[{{{rule}}}]}}"#), write, "{}"), want, "{rule}");
    }
    let exact = r#"{"matchPolicy":"Exact","resourceRules":[{"operations":["*"],"apiGroups":["autoscaling"],
        "apiVersions":["v1"],"resources":["horizontalpodautoscalers"]}]}"#;
    assert_eq!(matched(exact, ["autoscaling", "v2", "horizontalpodautoscalers", ""], "{}"), "no");
}

#[test]
fn selectors_and_exclude_rules_narrow_the_match_of_a_policy() {
    let deployment = ["apps", "v1", "deployments", ""];
    for (matching, write, want) in [
        (r#"{"objectSelector":{"matchLabels":{"app":"web"}}}"#, deployment, "v1"),
        (r#"{"objectSelector":{"matchLabels":{"app":"other"}}}"#, deployment, "no"),
        (r#"{"namespaceSelector":{"matchLabels":{"team":"a"}}}"#, deployment, "v1"),
        (r#"{"namespaceSelector":{"matchLabels":{"team":"b"}}}"#, deployment, "no"),
        // Cluster-scoped objects have no namespace. For a namespace, the selector reads the labels of the
        // namespace itself.
        (r#"{"namespaceSelector":{"matchLabels":{"team":"b"}}}"#, ["", "v1", "nodes", ""], "v1"),
        (r#"{"namespaceSelector":{"matchLabels":{"app":"web"}}}"#, ["", "v1", "namespaces", ""], "v1"),
        (r#"{"namespaceSelector":{"matchLabels":{"team":"a"}}}"#, ["", "v1", "namespaces", ""], "no"),
        (
            r#"{"excludeResourceRules":[{"operations":["*"],"apiGroups":["apps"],"apiVersions":["*"],"resources":["*"]}]}"#,
            deployment,
            "no",
        ),
    ] {
        assert_eq!(matched(matching, write, r#"{"app":"web"}"#), want, "{matching}");
    }
}

#[test]
fn only_an_empty_object_selector_matches_connect_options() {
    let options = object(r#"{"kind":"PodExecOptions","apiVersion":"v1"}"#);
    let labelled = object(r#"{"metadata":{"labels":{"a":"b"}}}"#);
    for (selector, operation, objects, want) in [
        ("{}", Operation::Connect, [Some(&options), None], true),
        (r#"{"matchLabels":{"a":"b"}}"#, Operation::Connect, [Some(&options), None], false),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}"#,
            Operation::Connect,
            [Some(&options), None],
            false,
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}"#,
            Operation::Create,
            [Some(&options), None],
            true,
        ),
        // The selector matches if it matches the new object or the stored object.
        (r#"{"matchLabels":{"a":"b"}}"#, Operation::Update, [Some(&options), Some(&labelled)], true),
        (r#"{"matchLabels":{"a":"b"}}"#, Operation::Delete, [None, Some(&labelled)], true),
        ("{}", Operation::Delete, [None, None], true),
    ] {
        let member = Value::Object(object(&format!(r#"{{"objectSelector":{selector}}}"#)));
        let selector = super::selector(&member, "objectSelector");
        assert_eq!(takes(&selector, operation, objects), want, "{member:?} {operation:?}");
    }
}

#[test]
fn a_namespace_selector_uses_the_new_labels_of_a_namespace_written_as_a_whole() {
    let (new, old) = (object(r#"{"a":1}"#), object(r#"{"b":1}"#));
    for (operation, subresource, want) in [
        (Operation::Create, "", &new),
        (Operation::Update, "", &new),
        (Operation::Update, "status", &old),
        (Operation::Delete, "", &old),
    ] {
        let namespace_found = own_namespace(operation, subresource, Some(&new), Some(&old)).unwrap();
        assert!(std::ptr::eq(namespace_found, want), "{operation:?} {subresource}");
    }
}
