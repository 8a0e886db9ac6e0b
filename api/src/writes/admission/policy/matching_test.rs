//! Which writes rules and selectors match.

use super::*;
use crate::testing::object;
use crate::values::naming::KUBERNETES;

/// Whether the write of a deployment, or of another resource, is matched, and as which version.
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
        // The same objects in another version count, unless the policy says otherwise.
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
        // Objects of the cluster are in no namespace; a namespace is judged by its own labels.
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
