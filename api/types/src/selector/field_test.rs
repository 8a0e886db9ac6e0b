//! Tests of field selectors: grammar, labels per resource, and errors
//! (docs/api/selectors.md#field-selectors).

use std::sync::LazyLock;

use super::*;
use crate::schema::make;
use testkit::Random;

fn resource(scope: Scope, has_own_list: bool, selectable: &[Selectable]) -> ResourceTable {
    let table = make::nothing("things", "Thing");
    let selectable_refusal = table.selectable_refusal.clone().filter(|_| has_own_list);
    ResourceTable { scope, selectable_refusal, selectable: selectable.to_vec().into(), ..table }
}

fn at(label: &'static str, path: &'static str) -> Selectable {
    Selectable { label: label.into(), path: path.into(), absent: "".into() }
}

static CONFIG_MAPS: LazyLock<ResourceTable> = LazyLock::new(|| resource(Scope::Namespaced, false, &[]));
static STORAGE_CLASSES: LazyLock<ResourceTable> = LazyLock::new(|| resource(Scope::Cluster, false, &[]));
static NODES: LazyLock<ResourceTable> =
    LazyLock::new(|| resource(Scope::Cluster, true, &[at("spec.unschedulable", "spec.unschedulable")]));
static PODS: LazyLock<ResourceTable> = LazyLock::new(|| {
    resource(
        Scope::Namespaced,
        true,
        &[
            at("spec.nodeName", "spec.nodeName"),
            at("spec.host", "spec.nodeName"),
            at("status.podIPs", ""),
            at("status.phase", "status.phase"),
        ],
    )
});
// Two resources that share one storage.
static EVENTS: LazyLock<ResourceTable> = LazyLock::new(|| {
    resource(
        Scope::Namespaced,
        true,
        &[at("reason", "reason"), at("involvedObject.kind", "involvedObject.kind"), at("type", "type")],
    )
});
static NEW_EVENTS: LazyLock<ResourceTable> = LazyLock::new(|| {
    resource(Scope::Namespaced, true, &[at("type", "type"), at("regarding.kind", "involvedObject.kind")])
});

fn canonical(text: &str) -> String {
    match FieldTerms::parse(text) {
        Ok(terms) => terms.to_string(),
        Err(status) => {
            assert_eq!(status.code, 400);
            format!("error: {}", status.message)
        }
    }
}

#[test]
fn field_selectors_are_parsed_as_documented() {
    for (text, want) in [
        ("", ""),
        (",", ""),
        ("a=b", "a=b"),
        ("a==b", "a=b"),
        ("a!=b", "a!=b"),
        ("a=", "a="),
        ("=b", "=b"),
        ("z=1,,a=2,", "a=2,z=1"),
        (" a = b ", " a = b "),
        (r"a=x\,y", r"a=x\,y"),
        (r"a=x\=y\\z", r"a=x\=y\\z"),
        (r"a=x\,y,b=c", r"a=x\,y,b=c"),
        ("a", "error: invalid selector: 'a'; can't understand 'a'"),
        ("x=1,a>b", "error: invalid selector: 'x=1,a>b'; can't understand 'a>b'"),
        ("a!b", "error: invalid selector: 'a!b'; can't understand 'a!b'"),
        (r"a=\x", r"error: invalid field selector: invalid escape sequence: \x"),
        (r"a=b\", r"error: invalid field selector: invalid escape sequence: \"),
        ("a=b=c", "error: invalid field selector: unescaped character in value: 61"),
        ("a!==c", "error: invalid field selector: unescaped character in value: 61"),
        ("ä=ö", "ä=ö"),
    ] {
        assert_eq!(canonical(text), want, "{text}");
    }
}

#[test]
fn each_resource_accepts_its_documented_field_labels() {
    for (resource, label, want) in [
        (&CONFIG_MAPS, "metadata.name", "ok"),
        (&CONFIG_MAPS, "metadata.namespace", "ok"),
        (
            &CONFIG_MAPS,
            "data",
            "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (&STORAGE_CLASSES, "metadata.namespace", "ok"),
        (&NODES, "metadata.name", "ok"),
        (&NODES, "spec.unschedulable", "ok"),
        (&NODES, "metadata.namespace", "field label not supported: metadata.namespace"),
        (&PODS, "metadata.namespace", "ok"),
        (&PODS, "spec.host", "ok"),
        (&PODS, "spec.hostIP", "field label not supported: spec.hostIP"),
        (&PODS, "", "field label not supported: "),
        (&NEW_EVENTS, "involvedObject.kind", "field label not supported: involvedObject.kind"),
    ] {
        let got = match FieldSelector::parse(&format!("{label}=x"), resource, resource) {
            Ok(_) => "ok".to_owned(),
            Err(status) => status.into_message(),
        };
        assert_eq!(got, want);
    }
}

#[test]
fn attribute_slots_are_the_distinct_field_paths_of_the_stored_form() {
    let paths = |resource| slots(resource).map(|slot| slot.path.clone()).collect::<Vec<_>>();
    assert_eq!(paths(&PODS), ["spec.nodeName", "status.phase"]);
    // Both resources of events use the same slot.
    for (resource, label) in [(&EVENTS, "involvedObject.kind"), (&NEW_EVENTS, "regarding.kind")] {
        let selector = FieldSelector::parse(&format!("{label}=Pod"), resource, &EVENTS).unwrap();
        assert!(selector.needs_slots());
        assert!(selector.matches("", "", |slot| if slot == 1 { "Pod" } else { "" }), "{label}");
    }
}

#[test]
fn field_selectors_compare_values_as_text() {
    let slot = |at: usize| ["node-1", "Running"][at];
    for (text, want) in [
        ("", true),
        ("metadata.name=a", true),
        ("metadata.name!=a", false),
        ("metadata.namespace=default,metadata.name=a", true),
        ("metadata.namespace=other", false),
        ("spec.nodeName=node-1", true),
        ("spec.host=node-1", true),
        ("spec.nodeName=", false),
        ("status.phase!=Pending", true),
        ("status.phase=Running,spec.nodeName=node-2", false),
        ("status.podIPs=", true),
        ("status.podIPs=1.2.3.4", false),
    ] {
        let selector = FieldSelector::parse(text, &PODS, &PODS).unwrap();
        assert_eq!(selector.matches("a", "default", slot), want, "{text}");
    }
    // The namespace of cluster-scoped objects is empty.
    let selector = FieldSelector::parse("metadata.namespace=x", &STORAGE_CLASSES, &STORAGE_CLASSES).unwrap();
    assert!(!selector.matches("a", "", |_| ""));
}

#[test]
fn an_exact_name_is_found() {
    for (text, name, namespace) in [
        ("", None, None),
        ("metadata.name=a", Some("a"), None),
        ("metadata.name==a,metadata.namespace=n", Some("a"), Some("n")),
        ("metadata.name!=a", None, None),
        ("metadata.name!=a,metadata.name=b", Some("b"), None),
        ("metadata.name=b,metadata.name=a", Some("a"), None),
        ("metadata.name=", Some(""), None),
    ] {
        let terms = FieldTerms::parse(text).unwrap();
        assert_eq!((terms.exact(NAME), terms.exact(NAMESPACE)), (name, namespace), "{text}");
        let selector = terms.resolve(&PODS, &PODS).unwrap();
        assert_eq!((selector.exact_name(), selector.exact_namespace()), (name, namespace), "{text}");
        assert_eq!(selector.is_everything(), text.is_empty());
    }
}

#[test]
fn random_field_selectors_never_panic_and_survive_a_round_trip() {
    let mut random = Random(44);
    let pieces = ["a", "=", "==", "!", "!=", ",", "\\", "\\\\", "\\,", "ä", "\0", " ", "metadata.name"];
    let mut read = 0;
    for _ in 0..100_000 {
        let text: String = (0..random.index(8)).map(|_| random.pick(&pieces)).collect();
        if let Ok(terms) = FieldTerms::parse(&text) {
            read += 1;
            // The order of terms follows the text; the selected objects do not depend on the order.
            let sorted = |FieldTerms(mut terms)| {
                terms.sort_by(|a: &Term, b: &Term| {
                    (&a.label, a.equals, &a.value).cmp(&(&b.label, b.equals, &b.value))
                });
                terms
            };
            let again = FieldTerms::parse(&terms.to_string()).unwrap();
            assert_eq!(sorted(again), sorted(terms.clone()), "{text}");
            let _ = terms.resolve(&PODS, &PODS).map(|selector| selector.matches("a", "b", |_| ""));
        }
    }
    assert!(read > 1_000, "{read}");
}

#[test]
fn built_in_resources_accept_the_documented_labels() {
    use crate::schema::registry::Registry;
    use values::naming::KUBERNETES;

    let registry = Registry::new(&KUBERNETES);
    for (group, version, plural, labels) in [
        (
            "",
            "v1",
            "pods",
            "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase status.podIP status.podIPs status.nominatedNodeName spec.host",
        ),
        ("", "v1", "nodes", "spec.unschedulable"),
        (
            "",
            "v1",
            "events",
            "involvedObject.kind involvedObject.fieldPath reason reportingComponent source type",
        ),
        (
            "events{suffix}",
            "v1",
            "events",
            "regarding.kind regarding.fieldPath reason reportingController type",
        ),
        ("", "v1", "namespaces", "status.phase"),
        ("", "v1", "secrets", "type metadata.namespace"),
        ("", "v1", "services", "spec.clusterIP spec.type"),
        ("", "v1", "replicationcontrollers", "status.replicas"),
        ("batch", "v1", "jobs", "status.successful"),
        ("certificates{suffix}", "v1", "certificatesigningrequests", "spec.signerName"),
        ("resource{suffix}", "v1", "resourceslices", "spec.nodeName spec.driver"),
        ("apps", "v1", "deployments", "metadata.name metadata.namespace"),
        ("storage{suffix}", "v1", "storageclasses", "metadata.name metadata.namespace"),
    ] {
        let resource = &registry.resource(&KUBERNETES.fill(group), version, plural).unwrap().table;
        for label in labels.split(' ') {
            assert!(
                FieldSelector::parse(&format!("{label}=x"), resource, resource).is_ok(),
                "{plural} {label}"
            );
        }
        let error = FieldSelector::parse("no.such=x", resource, resource).unwrap_err().into_message();
        let expected = match plural {
            "deployments" | "storageclasses" => {
                r#""no.such" is not a known field selector: only "metadata.name", "metadata.namespace""#
            }
            "jobs" => r#"field label "no.such" not supported for Job"#,
            "resourceslices" => {
                "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: no.such"
            }
            _ => "field label not supported: no.such",
        };
        assert_eq!(error, expected, "{plural}");
    }
    for plural in ["nodes", "namespaces"] {
        let resource = &registry.resource("", "v1", plural).unwrap().table;
        let error = FieldSelector::parse("metadata.namespace=x", resource, resource).unwrap_err();
        assert_eq!(error.message, "field label not supported: metadata.namespace");
    }
    // Events of both groups are stored as core events. Every label that is not always empty has a slot in
    // this storage.
    let stored = &registry.resource("", "v1", "events").unwrap().table;
    for group in ["", "events{suffix}"] {
        let resource = &registry.resource(&KUBERNETES.fill(group), "v1", "events").unwrap().table;
        for field in &*resource.selectable {
            let selector = FieldSelector::parse(&format!("{}=x", field.label), resource, stored).unwrap();
            assert!(selector.needs_slots(), "{group} {}", field.label);
        }
    }
    let pods = &registry.resource("", "v1", "pods").unwrap().table;
    let never = FieldSelector::parse("status.podIPs=", pods, pods).unwrap();
    assert!(!never.needs_slots(), "status.podIPs is accepted and always empty");
}
