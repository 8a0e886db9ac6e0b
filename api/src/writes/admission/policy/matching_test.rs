//! Tests which writes rules and selectors match.

use super::*;
use values::naming::KUBERNETES;
use values::testing::object;

/// Returns whether the write of a deployment or another resource is matched, and as which version.
fn matched(matching: &str, write: (&str, &str, &str, &str), labels: &str) -> String {
    let registry = Registry::new(&KUBERNETES);
    let (group, version, plural, subresource) = write;
    let resource = registry.resource(group, version, plural).unwrap();
    let new = object(&format!(r#"{{"metadata":{{"name":"web","labels":{labels}}}}}"#));
    let namespace = object(r#"{"metadata":{"name":"ns","labels":{"team":"a"}}}"#);
    let asked = Asked {
        operation: Operation::Create,
        resource,
        subresource,
        namespace: if resource.namespaced() { "ns" } else { "" },
        name: "web",
        old: None,
        new: Some(&new),
    };
    let matching = Matching::read(&Value::Object(object(matching)));
    let found = matching.matches(&asked, &registry, || Some(&namespace));
    found.map_or_else(|| "no".to_owned(), |found| found.version.to_string())
}

#[test]
fn rules_name_operations_groups_versions_resources_scopes_and_names() {
    let deployment = ("apps", "v1", "deployments", "");
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
            ("apps", "v1", "deployments", "status"),
            "no",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"]"#,
            ("apps", "v1", "deployments", "status"),
            "v1",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*/scale"]"#,
            ("apps", "v1", "deployments", "status"),
            "no",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"Cluster""#,
            deployment,
            "no",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"Namespaced""#,
            ("", "v1", "nodes", ""),
            "no",
        ),
        (
            r#""operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"resourceNames":["api"]"#,
            deployment,
            "no",
        ),
        // The same objects in another version match, unless the policy says otherwise.
        (
            r#""operations":["*"],"apiGroups":["autoscaling"],"apiVersions":["v1"],"resources":["horizontalpodautoscalers"]"#,
            ("autoscaling", "v2", "horizontalpodautoscalers", ""),
            "v1",
        ),
    ] {
        assert_eq!(matched(&format!(r#"{{"resourceRules":[{{{rule}}}]}}"#), write, "{}"), want, "{rule}");
    }
    let exact = r#"{"matchPolicy":"Exact","resourceRules":[{"operations":["*"],"apiGroups":["autoscaling"],
        "apiVersions":["v1"],"resources":["horizontalpodautoscalers"]}]}"#;
    assert_eq!(matched(exact, ("autoscaling", "v2", "horizontalpodautoscalers", ""), "{}"), "no");
}

#[test]
fn selectors_and_exclusions_narrow_the_match() {
    let deployment = ("apps", "v1", "deployments", "");
    for (matching, write, want) in [
        (r#"{"objectSelector":{"matchLabels":{"app":"web"}}}"#, deployment, "v1"),
        (r#"{"objectSelector":{"matchLabels":{"app":"other"}}}"#, deployment, "no"),
        (r#"{"namespaceSelector":{"matchLabels":{"team":"a"}}}"#, deployment, "v1"),
        (r#"{"namespaceSelector":{"matchLabels":{"team":"b"}}}"#, deployment, "no"),
        // Cluster-scoped objects have no namespace; a namespace is matched by its own labels.
        (r#"{"namespaceSelector":{"matchLabels":{"team":"b"}}}"#, ("", "v1", "nodes", ""), "v1"),
        (r#"{"namespaceSelector":{"matchLabels":{"app":"web"}}}"#, ("", "v1", "namespaces", ""), "v1"),
        (r#"{"namespaceSelector":{"matchLabels":{"team":"a"}}}"#, ("", "v1", "namespaces", ""), "no"),
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
fn only_the_selector_of_everything_takes_the_options_of_a_connection() {
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
        // A match of either the new or the stored object is enough.
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
fn a_namespace_is_judged_by_its_new_labels_where_it_is_written_as_a_whole() {
    let (new, old) = (object(r#"{"a":1}"#), object(r#"{"b":1}"#));
    for (operation, subresource, want) in [
        (Operation::Create, "", &new),
        (Operation::Update, "", &new),
        (Operation::Update, "status", &old),
        (Operation::Delete, "", &old),
    ] {
        let judged = own_namespace(operation, subresource, Some(&new), Some(&old)).unwrap();
        assert!(std::ptr::eq(judged, want), "{operation:?} {subresource}");
    }
}
