use super::*;
use values::naming::KUBERNETES;
use values::testing;

fn created(pod: &str) -> (Object, Vec<String>) {
    let mut pod = testing::object(pod);
    let user = auth::User::new("a", [] as [String; 0]);
    let mut creation = Creation { user: &user, naming: &KUBERNETES, is_labelled: true, warnings: Vec::new() };
    create(&mut pod, &mut creation);
    (pod, creation.warnings)
}

#[test]
fn a_gated_pod_gets_a_pod_scheduled_condition_with_the_time_of_its_creation() {
    let (pod, _) = created(r#"{"spec":{"schedulingGates":[{"name":"g"}],"containers":[]}}"#);
    let conditions = object::at(&pod, "status.conditions").and_then(Value::as_array).unwrap();
    let [condition] = conditions else { panic!("{conditions:?}") };
    assert_eq!(condition.str_at(&["type"]), "PodScheduled");
    let since = clock::parse_seconds(condition.str_at(&["lastTransitionTime"])).expect("a time");
    assert!((clock::now_seconds() - since).abs() < 60, "{since}");
    assert!(condition.get("lastProbeTime").is_some_and(Value::is_null));
}

#[test]
fn a_negative_grace_period_counts_as_one_second() {
    for (given, want) in [(-1, 1), (-7, 1), (0, 0), (30, 30)] {
        let mut pod = testing::object(&format!(r#"{{"spec":{{"terminationGracePeriodSeconds":{given}}}}}"#));
        raise_grace_period(&mut pod);
        let got = object::at(&pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
        assert_eq!(got, Some(want), "{given}");
    }
}

#[test]
fn match_label_keys_become_requirements_of_the_selector() {
    let of = |place: &str| {
        format!(r#"{{"metadata":{{"labels":{{"k":"v","m":"w"}}}},"spec":{{"containers":[],{place}}}}}"#)
    };
    let required = r#""requiredDuringSchedulingIgnoredDuringExecution""#;
    let preferred = r#""preferredDuringSchedulingIgnoredDuringExecution""#;
    for (place, want) in [
        (
            r#""topologySpreadConstraints":[{"labelSelector":{"matchLabels":{"a":"b"}},"matchLabelKeys":["k","none"]}]"#.to_owned(),
            r#""topologySpreadConstraints":[{"labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]},"matchLabelKeys":["k","none"]}]"#.to_owned(),
        ),
        (
            r#""topologySpreadConstraints":[{"matchLabelKeys":["k"]}]"#.to_owned(),
            r#""topologySpreadConstraints":[{"matchLabelKeys":["k"]}]"#.to_owned(),
        ),
        (
            format!(r#""affinity":{{"podAffinity":{{{required}:[{{"labelSelector":{{"matchExpressions":[{{"key":"x"}}]}},"matchLabelKeys":["k"],"mismatchLabelKeys":["m"]}}]}}}}"#),
            format!(r#""affinity":{{"podAffinity":{{{required}:[{{"labelSelector":{{"matchExpressions":[{{"key":"x"}},{{"key":"k","operator":"In","values":["v"]}},{{"key":"m","operator":"NotIn","values":["w"]}}]}},"matchLabelKeys":["k"],"mismatchLabelKeys":["m"]}}]}}}}"#),
        ),
        (
            format!(r#""affinity":{{"podAntiAffinity":{{{preferred}:[{{"podAffinityTerm":{{"labelSelector":{{}},"mismatchLabelKeys":["m"]}}}}]}}}}"#),
            format!(r#""affinity":{{"podAntiAffinity":{{{preferred}:[{{"podAffinityTerm":{{"labelSelector":{{"matchExpressions":[{{"key":"m","operator":"NotIn","values":["w"]}}]}},"mismatchLabelKeys":["m"]}}}}]}}}}"#),
        ),
    ] {
        let (pod, _) = created(&of(&place));
        assert_eq!(pod.get("spec"), testing::object(&of(&want)).get("spec"), "{place}");
    }
}

#[test]
fn containers_take_apparmor_profiles_from_annotations() {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/c";
    let pod = |value: &str, spec: &str, container: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{"{ANNOTATION}":"{value}"}}}},"spec":{{{spec}"containers":[{{"name":"c"{container}}}]}}}}"#
        )
    };
    let armor_warnings = || vec![format!("metadata.annotations[{ANNOTATION}]: {}", warnings::ARMOR)];
    let own = r#","securityContext":{"appArmorProfile":{"type":"Unconfined"}}"#;
    let of_pod = r#""securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}},"#;
    for (value, spec, container, want, warnings) in [
        ("runtime/default", "", "", Some(r#"{"type":"RuntimeDefault"}"#), armor_warnings()),
        ("unconfined", "", "", Some(r#"{"type":"Unconfined"}"#), armor_warnings()),
        ("localhost/x", "", "", Some(r#"{"type":"Localhost","localhostProfile":"x"}"#), armor_warnings()),
        ("localhost/", "", "", None, armor_warnings()),
        ("other", "", "", None, armor_warnings()),
        ("runtime/default", "", own, Some(r#"{"type":"Unconfined"}"#), vec![]),
        ("runtime/default", of_pod, "", None, vec![]),
        ("unconfined", of_pod, "", Some(r#"{"type":"Unconfined"}"#), armor_warnings()),
        ("unconfined", r#""os":{"name":"windows"},"#, "", None, vec![]),
    ] {
        let (made, said) = created(&pod(value, spec, container));
        let containers = object::at(&made, "spec.containers").and_then(Value::as_array).unwrap();
        let profile = containers[0].at(&["securityContext", "appArmorProfile"]).and_then(Value::as_object);
        assert_eq!(profile.cloned(), want.map(testing::object), "{value} {spec} {container}");
        assert_eq!(said, warnings, "{value} {spec} {container}");
    }
}

#[test]
fn a_status_update_keeps_omitted_fields() {
    let old = testing::object(
        r#"{"status":{"qosClass":"Burstable","observedGeneration":4,"conditions":[{"type":"A","observedGeneration":1},{"type":"A","observedGeneration":2},{"type":"B"}]}}"#,
    );
    for (new, want) in [
        ("{}", r#"{"qosClass":"Burstable","observedGeneration":4}"#),
        (
            r#"{"qosClass":"","observedGeneration":0,"conditions":[{"type":"B"},{"type":"A"},{"type":"A"},{"type":"A"}]}"#,
            r#"{"qosClass":"Burstable","observedGeneration":4,"conditions":[{"type":"B"},{"type":"A","observedGeneration":1},{"type":"A","observedGeneration":2},{"type":"A"}]}"#,
        ),
        (
            r#"{"qosClass":"Guaranteed","observedGeneration":5,"conditions":[{"type":"A","observedGeneration":3}]}"#,
            r#"{"qosClass":"Guaranteed","observedGeneration":5,"conditions":[{"type":"A","observedGeneration":3}]}"#,
        ),
    ] {
        let mut pod = testing::object(&format!(r#"{{"status":{new}}}"#));
        keep_what_is_left_out(&mut pod, &old);
        assert_eq!(pod, testing::object(&format!(r#"{{"status":{want}}}"#)), "{new}");
    }
}
