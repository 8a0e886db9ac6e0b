use super::*;
use values::naming::KUBERNETES;
use values::testing;

#[test]
fn a_job_keeps_the_labels_and_selector_of_its_writer() {
    let user = auth::User::new("a", [] as [String; 0]);
    let generated =
        r#""batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"n","controller-uid":"u""#;
    for (labels, selector, is_labelled, want, own) in [
        ("", "", true, format!(r#"{generated},"job-name":"n""#), None),
        (r#""x":"y""#, "", false, format!(r#"{generated},"job-name":"n","x":"y""#), Some("x")),
        (r#""job-name":"other""#, "", true, format!(r#"{generated},"job-name":"other""#), None),
        (
            "",
            r#""batch.kubernetes.io/controller-uid":"q""#,
            true,
            format!(r#"{generated},"job-name":"n""#),
            None,
        ),
    ] {
        let mut job = testing::object(&format!(
            r#"{{"metadata":{{"name":"n","uid":"u"}},"spec":{{"selector":{{"matchLabels":{{{selector}}}}},"template":{{"metadata":{{"labels":{{{labels}}}}}}}}}}}"#
        ));
        let mut creation = Creation { user: &user, naming: &KUBERNETES, is_labelled, warnings: Vec::new() };
        create_job(&mut job, &mut creation);
        let labels = object::at(&job, "spec.template.metadata.labels").and_then(Value::as_object).unwrap();
        assert_eq!(*labels, testing::object(&format!("{{{want}}}")));
        let selector_is = if selector.is_empty() { "u" } else { "q" };
        let chosen = object::at(&job, "spec.selector.matchLabels").unwrap();
        assert_eq!(chosen.str_at(&["batch.kubernetes.io/controller-uid"]), selector_is);
        let taken = object::at(&job, "metadata.labels").and_then(Value::as_object);
        assert_eq!(taken, own.map(|_| labels), "labels of the job beside {labels:?}");
    }
}

#[test]
fn conditions_of_a_decision_cannot_be_changed() {
    let of = |conditions: &str| testing::object(&format!(r#"{{"status":{{"conditions":[{conditions}]}}}}"#));
    let made = r#"{"type":"Approved","message":"a"}"#;
    let changed = r#"{"type":"Approved","message":"b"}"#;
    let failed = r#"{"type":"Failed","message":"b"}"#;
    for (new, want) in [
        (changed.to_owned(), made.to_owned()),
        (format!("{failed},{changed}"), format!("{failed},{made}")),
        (String::new(), String::new()),
        (format!("{changed},{changed}"), format!("{changed},{changed}")),
    ] {
        let mut request = of(&new);
        keep_conditions(&mut request, &of(made), "Approved");
        assert_eq!(request, of(&want), "{new}");
    }
}

#[test]
fn fields_that_are_not_stored_are_removed() {
    type Change = fn(&mut Object, &Object);
    let secrets: Change = |object, _| keep_names_of_secrets(object);
    let topology: Change = |object, old| drop_topology(object, Some(old));
    let devices: Change = forget_devices;
    let balancer: Change = |object, _| forget_balancer(object);
    let balanced = |kind: &str, addresses: &str| {
        format!(r#"{{"spec":{{"type":"{kind}"}},"status":{{"loadBalancer":{{{addresses}}}}}}}"#)
    };
    let addresses = r#""ingress":[{"ip":"1.2.3.4"}]"#;
    let device = r#"{"driver":"a","pool":"b","device":"c"}"#;
    let claim = |allocated: &str, said: &str| {
        format!(
            r#"{{"status":{{"allocation":{{"devices":{{"results":[{allocated}]}}}}{}}}}}"#,
            if said.is_empty() { String::new() } else { format!(r#","devices":[{said}]"#) }
        )
    };
    let endpoints = |members: &str| format!(r#"{{"endpoints":[{{"addresses":["1.2.3.4"]{members}}}]}}"#);
    let old_form = r#","deprecatedTopology":{"kubernetes.io/hostname":"n"}"#;
    for (change, new, old, want) in [
        (
            secrets,
            r#"{"secrets":[{"kind":"Secret","name":"x","uid":"u"},{}]}"#.to_owned(),
            "{}".to_owned(),
            r#"{"secrets":[{"name":"x"},{}]}"#.to_owned(),
        ),
        (topology, endpoints(old_form), endpoints(""), endpoints("")),
        (topology, endpoints(old_form), endpoints(old_form), endpoints(r#","nodeName":"n""#)),
        (devices, claim(device, device), claim(device, ""), claim(device, device)),
        (devices, claim("", device), claim(device, device), claim("", "")),
        (devices, claim("", device), claim("", ""), claim("", device)),
        (balancer, balanced("LoadBalancer", addresses), "{}".to_owned(), balanced("LoadBalancer", addresses)),
        (balancer, balanced("NodePort", addresses), "{}".to_owned(), balanced("NodePort", "")),
    ] {
        let mut object = testing::object(&new);
        change(&mut object, &testing::object(&old));
        assert_eq!(object, testing::object(&want), "{new} beside {old}");
    }
}
