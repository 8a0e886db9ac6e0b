//! Selectors (docs/api/selectors.md): the grammars of label selectors and field selectors, the errors for invalid
//! selectors, and every selectable field of every kind.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::fixture::{Fixture, escape, names, outcome, report};
use crate::support::reference;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn label_selectors_select_objects() {
    let fixture = Fixture::new("labels").await;
    for (name, labels) in [
        ("a", json!({"app": "web", "tier": "1", "example.com/zone": "x"})),
        ("b", json!({"app": "db", "tier": "20"})),
        ("c", json!({"app": "", "in": "notin"})),
        ("d", json!({})),
    ] {
        fixture.make("$core/secrets", &[json!({"metadata": {"name": name, "labels": labels}})]).await;
    }
    for (selector, want) in [
        ("", "a b c d"),
        (" \t\r\n", "a b c d"),
        ("app", "a b c"),
        ("!app", "d"),
        ("! app", "d"),
        ("app=web", "a"),
        ("app==web", "a"),
        (" app = web ", "a"),
        ("app!=web", "b c d"),
        ("app=", "c"),
        ("app==", "c"),
        ("app!=", "a b d"),
        ("app in (web,db)", "a b"),
        ("app in(web)", "a"),
        ("app in (,db)", "b c"),
        ("app in ()", "c"),
        ("app notin (web)", "b c d"),
        ("app notin (web,db,)", "d"),
        ("tier>5", "b"),
        ("tier > 20", ""),
        ("tier < 5", "a"),
        ("app>5", ""),
        ("app=web,tier=1", "a"),
        ("app=web, tier=2", ""),
        ("app,!tier", "c"),
        ("example.com/zone=x", "a"),
        ("in=notin", "c"),
        ("in in (notin)", "c"),
        ("notin", ""),
        ("tier=1,tier=20", ""),
        ("tier,tier!=1", "b"),
    ] {
        let list = fixture.get(&format!("$core/secrets?labelSelector={}", escape(selector))).await;
        assert_eq!(names(&list).join(" "), want, "selectors {selector}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_selectors_have_the_errors_of_kube_apiserver() {
    const PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
        alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
        must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
        validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let fixture = Fixture::new("nolabels").await;
    let long = "v".repeat(64);
    let in_requirement = |text: &str| format!("unable to parse requirement: {text}");
    let labels = [
        (",", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("=x", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        ("app=web,", "found '', expected: identifier after ','".to_owned()),
        ("app,,tier", "found ',', expected: identifier after ','".to_owned()),
        ("app=web tier", "found 'tier', expected: ',' or 'end of string'".to_owned()),
        ("!app in (web)", "found 'in', expected: ',' or 'end of string'".to_owned()),
        ("!", in_requirement("found '', expected: identifier")),
        ("!!app", in_requirement("found '!', expected: identifier")),
        ("app web", in_requirement("found 'web', expected: in, notin, =, ==, !=, gt, lt")),
        ("app IN (web)", in_requirement("found 'IN', expected: in, notin, =, ==, !=, gt, lt")),
        ("app=(web)", in_requirement("found '(', expected: identifier")),
        ("app in web", in_requirement("found 'web' expected: '('")),
        ("app in (", in_requirement("found '', expected: ',', ')' or identifier")),
        ("app in (web", in_requirement("found '', expected: ',' or ')'")),
        ("app in (web db)", in_requirement("found 'db', expected: ',' or ')'")),
        ("app in (web,", in_requirement("found '', expected: ',', or identifier")),
        (
            "tier>x",
            in_requirement(
                "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ),
        ("-a-=x", in_requirement(&format!("<nil>: Invalid value: \"-a-\": {PART}"))),
        ("app=-web-", in_requirement(&format!("values[0][app]: Invalid value: \"-web-\": {VALUE}"))),
        (
            &format!("app={long}"),
            in_requirement(&format!(
                "values[0][app]: Invalid value: \"{long}\": must be no more than 63 bytes"
            )),
        ),
    ];
    let fields = [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("type=a,spec.x>1", "invalid selector: 'type=a,spec.x>1'; can't understand 'spec.x>1'"),
        (r"metadata.name=a\x", r"invalid field selector: invalid escape sequence: \x"),
        (r"metadata.name=a\", r"invalid field selector: invalid escape sequence: \"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("data.k=red", "field label not supported: data.k"),
        (" metadata.name=a", "field label not supported:  metadata.name"),
        ("=", "field label not supported: "),
    ];
    let labels = labels.iter().map(|(text, want)| ("labelSelector", *text, want.as_str()));
    let fields = fields.iter().map(|(text, want)| ("fieldSelector", *text, *want));
    let mut wrong = Vec::new();
    for (parameter, text, want) in labels.chain(fields) {
        // A list, a watch and a deletecollection return the same errors.
        for request in ["GET $core/secrets?", "GET $core/secrets?watch=1&", "DELETE $core/secrets?"] {
            let got = outcome(&fixture.send(&format!("{request}{parameter}={}", escape(text)), "").await);
            let want = format!("400 BadRequest: {want}");
            if got != want {
                wrong.push(format!("selectors {request} {text}\n  want {want}\n  got  {got}"));
            }
        }
    }
    report(&wrong);
    // Empty terms are skipped; escaped characters are text.
    for text in ["", ",", ",,", r"metadata.name=a\,b\=c\\", "metadata.name!=", "metadata.name==a"] {
        let got =
            outcome(&fixture.send(&format!("GET $core/secrets?fieldSelector={}", escape(text)), "").await);
        assert_eq!(got, "200 SecretList", "selectors {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_resource_accepts_exactly_the_field_selectors_of_the_reference() {
    let Some(path) = reference("facts/selectable_fields.json") else { return };
    let facts: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let fixture = Fixture::new("known").await;
    let (mut wrong, mut served) = (Vec::new(), 0);
    for row in facts["resources"].as_array().unwrap() {
        let text = |name: &str| row[name].as_str().unwrap();
        let (group, version, resource, kind) =
            (text("group"), text("version"), text("resource"), text("kind"));
        let path = match group {
            "" => format!("/api/{version}/{resource}"),
            group => format!("/apis/{group}/{version}/{resource}"),
        };
        // Groups with `*` have rules instead of a row. Some versions in the reference data are not served.
        if group == "*" || fixture.client.get(&path).await.status != 200 {
            continue;
        }
        served += 1;
        let accepted = row["fields"].as_array().unwrap().iter().map(|field| field["label"].as_str().unwrap());
        let accepted = accepted.map(|label| (label, format!("200 {kind}List")));
        let rejected = row["rejected"].as_array().into_iter().flatten().map(|label| label.as_str().unwrap());
        let refusal = |label: &str| {
            if kind == "Job" {
                format!("400 BadRequest: field label \"{label}\" not supported for Job")
            } else if kind == "ResourceSlice" {
                format!(
                    "400 BadRequest: field label not supported for {group}/{version}, Kind={kind}: {label}"
                )
            } else if row["explicit"] == true {
                format!("400 BadRequest: field label not supported: {label}")
            } else {
                format!(
                    "400 BadRequest: \"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            }
        };
        let rejected =
            rejected.chain(["spec.nothing", "metadata.uid", "name"]).map(|label| (label, refusal(label)));
        for (label, want) in accepted.chain(rejected) {
            let got = outcome(&fixture.client.get(&format!("{path}?fieldSelector={label}%3Dnobody")).await);
            if got != want {
                wrong.push(format!("selectors {path} {label}\n  want {want}\n  got  {got}"));
            }
        }
    }
    report(&wrong);
    for (query, count) in [("", 3), ("?fieldSelector=metadata.name%3Dnobody", 0), ("?labelSelector=none", 0)]
    {
        let list = fixture.get(&format!("/api/v1/componentstatuses{query}")).await;
        assert_eq!(names(&list).len(), count, "selectors: unstored objects {query}");
    }
    assert!(served > 55, "only {served} of the reference's resources are served");
}

/// The fields of a resource, each with a value and the objects that have it.
type Fields<'f> = &'f [(&'f str, &'f str, &'f str)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_selectable_field_selects_exactly_the_matching_objects() {
    let fixture = Fixture::new("fields").await;
    let ns = fixture.ns.clone();
    let topic = json!({"topic": ns});
    let meta = |name: &str| json!({"name": name, "labels": topic});

    let pod = |name: &str, spec: Value| {
        let mut pod = json!({"metadata": meta(name), "spec": {"containers": [{"name": "c", "image": "i"}]}});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    };
    fixture.make("$core/serviceaccounts", &[json!({"metadata": {"name": "robot"}})]).await;
    fixture
        .make(
            "$core/pods",
            &[
                pod("p1", json!({"nodeName": "n1", "restartPolicy": "Never", "schedulerName": "s1"})),
                pod("p2", json!({"nodeName": "n2", "serviceAccountName": "robot", "hostNetwork": true})),
                pod("p3", json!({})),
            ],
        )
        .await;
    let running = json!({"status": {"phase": "Running", "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
    fixture.send("PATCH $core/pods/p2/status", &running.to_string()).await;
    let nominated = json!({"status": {"nominatedNodeName": "n9"}});
    fixture.send("PATCH $core/pods/p3/status", &nominated.to_string()).await;
    check(
        &fixture,
        "/api/v1",
        "pods",
        &[
            ("metadata.name", "p2", "p2"),
            ("metadata.namespace", &ns, "p1 p2 p3"),
            ("spec.nodeName", "n1", "p1"),
            ("spec.nodeName", "", "p3"),
            ("spec.host", "n2", "p2"),
            ("spec.restartPolicy", "Never", "p1"),
            ("spec.restartPolicy", "Always", "p2 p3"),
            ("spec.schedulerName", "s1", "p1"),
            ("spec.schedulerName", "default-scheduler", "p2 p3"),
            ("spec.serviceAccountName", "robot", "p2"),
            ("spec.hostNetwork", "true", "p2"),
            ("spec.hostNetwork", "false", "p1 p3"),
            ("status.phase", "Running", "p2"),
            ("status.phase", "Pending", "p1 p3"),
            ("status.podIP", "10.0.0.1", "p2"),
            ("status.podIP", "fd00::1", ""),
            // The selector is accepted, but no object has a value.
            ("status.podIPs", "10.0.0.1", ""),
            ("status.podIPs", "", "p1 p2 p3"),
            ("status.nominatedNodeName", "n9", "p3"),
        ],
    )
    .await;

    let kubelet = json!({"metadata": meta("e1"), "reason": "Started", "type": "Normal", "message": "m",
        "source": {"component": "kubelet"}, "reportingComponent": "other",
        "involvedObject": {"kind": "Pod", "namespace": ns, "name": "p1", "uid": "u1", "apiVersion": "v1",
            "resourceVersion": "11", "fieldPath": "spec.containers{c}"}});
    let controller = json!({"metadata": meta("e2"), "reason": "Scaled", "type": "Warning", "message": "m",
        "reportingComponent": "controller",
        "involvedObject": {"kind": "ReplicaSet", "namespace": ns, "name": "rs", "uid": "u2", "apiVersion": "apps/v1",
            "resourceVersion": "22"}});
    fixture.make("$core/events", &[kubelet, controller]).await;
    check(
        &fixture,
        "/api/v1",
        "events",
        &[
            ("metadata.name", "e1", "e1"),
            ("metadata.namespace", "elsewhere", ""),
            ("involvedObject.kind", "Pod", "e1"),
            ("involvedObject.namespace", &ns, "e1 e2"),
            ("involvedObject.name", "rs", "e2"),
            ("involvedObject.uid", "u1", "e1"),
            ("involvedObject.apiVersion", "apps/v1", "e2"),
            ("involvedObject.resourceVersion", "11", "e1"),
            ("involvedObject.fieldPath", "spec.containers{c}", "e1"),
            ("involvedObject.fieldPath", "", "e2"),
            ("reason", "Scaled", "e2"),
            ("reportingComponent", "controller", "e2"),
            ("reportingComponent", "other", "e1"),
            // For an event without a source, the field has the name of the reporting component.
            ("source", "kubelet", "e1"),
            ("source", "controller", "e2"),
            ("source", "other", ""),
            ("type", "Warning", "e2"),
        ],
    )
    .await;
    check(
        &fixture,
        "/apis/events.k8s.io/v1",
        "events",
        &[
            ("metadata.name", "e2", "e2"),
            ("metadata.namespace", &ns, "e1 e2"),
            ("regarding.kind", "ReplicaSet", "e2"),
            ("regarding.namespace", "elsewhere", ""),
            ("regarding.name", "p1", "e1"),
            ("regarding.uid", "u2", "e2"),
            ("regarding.apiVersion", "v1", "e1"),
            ("regarding.resourceVersion", "22", "e2"),
            ("regarding.fieldPath", "spec.containers{c}", "e1"),
            ("reason", "Started", "e1"),
            ("reportingController", "controller", "e2"),
            ("type", "Normal", "e1"),
        ],
    )
    .await;

    let secret = json!({"metadata": meta("s1")});
    let typed = json!({"metadata": meta("s2"), "type": "example.com/t"});
    fixture.make("$core/secrets", &[secret, typed]).await;
    check(
        &fixture,
        "/api/v1",
        "secrets",
        &[
            ("metadata.name", "s1", "s1"),
            ("metadata.namespace", &ns, "s1 s2"),
            ("type", "Opaque", "s1"),
            ("type", "example.com/t", "s2"),
        ],
    )
    .await;

    let inner = json!({"metadata": meta("v1"), "spec": {"ports": [{"port": 80}]}});
    let outer =
        json!({"metadata": meta("v2"), "spec": {"type": "ExternalName", "externalName": "example.com"}});
    fixture.make("$core/services", &[inner, outer]).await;
    let address = fixture.get("$core/services/v1").await["spec"]["clusterIP"].as_str().unwrap().to_owned();
    check(
        &fixture,
        "/api/v1",
        "services",
        &[
            ("metadata.name", "v2", "v2"),
            ("metadata.namespace", &ns, "v1 v2"),
            ("spec.clusterIP", &address, "v1"),
            ("spec.clusterIP", "", "v2"),
            ("spec.type", "ClusterIP", "v1"),
            ("spec.type", "ExternalName", "v2"),
        ],
    )
    .await;

    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let controller =
        |name: &str| json!({"metadata": meta(name), "spec": {"selector": {"a": "b"}, "template": template}});
    fixture.make("$core/replicationcontrollers", &[controller("r1"), controller("r2")]).await;
    fixture.send("PATCH $core/replicationcontrollers/r1/status", r#"{"status":{"replicas":3}}"#).await;
    check(
        &fixture,
        "/api/v1",
        "replicationcontrollers",
        &[
            ("metadata.name", "r1", "r1"),
            ("metadata.namespace", &ns, "r1 r2"),
            ("status.replicas", "3", "r1"),
            ("status.replicas", "0", "r2"),
            ("status.replicas", "03", ""),
        ],
    )
    .await;

    let job = |name: &str| {
        json!({"metadata": meta(name), "spec": {"completions": 5, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    };
    fixture.make("$batch/jobs", &[job("j1"), job("j2")]).await;
    let started = json!({"status": {"succeeded": 2, "startTime": "2024-01-01T00:00:00Z"}});
    let patched = fixture.send("PATCH $batch/jobs/j1/status", &started.to_string()).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    check(
        &fixture,
        "/apis/batch/v1",
        "jobs",
        &[
            ("metadata.name", "j2", "j2"),
            ("metadata.namespace", &ns, "j1 j2"),
            ("status.successful", "2", "j1"),
            ("status.successful", "0", "j2"),
        ],
    )
    .await;

    // Labels keep these cluster-scoped objects apart from the objects of other tests.
    let full = |name: &str| format!("{ns}-{name}");
    let node = |name: &str, off: bool| json!({"metadata": meta(&full(name)), "spec": {"unschedulable": off}});
    fixture.make("/api/v1/nodes", &[node("on", false), node("off", true)]).await;
    let (on, off) = (full("on"), full("off"));
    check(
        &fixture,
        "/api/v1",
        "nodes",
        &[
            ("metadata.name", &on, &on),
            ("spec.unschedulable", "false", &on),
            ("spec.unschedulable", "true", &off),
        ],
    )
    .await;

    let kept = json!({"name": full("going"), "labels": topic, "finalizers": ["example.com/hold"]});
    fixture
        .make("/api/v1/namespaces", &[json!({"metadata": meta(&full("live"))}), json!({"metadata": kept})])
        .await;
    let (live, going) = (full("live"), full("going"));
    assert_eq!(fixture.client.delete(&format!("/api/v1/namespaces/{going}")).await.status, 200);
    check(
        &fixture,
        "/api/v1",
        "namespaces",
        &[
            ("metadata.name", &going, &going),
            ("status.phase", "Active", &live),
            ("status.phase", "Terminating", &going),
        ],
    )
    .await;
    fixture.send(&format!("PATCH /api/v1/namespaces/{going}"), r#"{"metadata":{"finalizers":null}}"#).await;

    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let request = STANDARD.encode(request);
    let signing = |name: &str, signer: &str| {
        json!({"metadata": meta(&full(name)),
            "spec": {"signerName": signer, "request": request, "usages": ["client auth"]}})
    };
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    fixture.make(requests, &[signing("c1", "example.com/a"), signing("c2", "example.com/b")]).await;
    check(
        &fixture,
        "/apis/certificates.k8s.io/v1",
        "certificatesigningrequests",
        &[
            ("metadata.name", &full("c1"), &full("c1")),
            ("spec.signerName", "example.com/a", &full("c1")),
            ("spec.signerName", "example.com/b", &full("c2")),
        ],
    )
    .await;

    let slice = |name: &str, location: Value, driver: &str| {
        let mut slice = json!({"metadata": meta(&full(name)), "spec": {"driver": driver,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d"}]}});
        slice["spec"].as_object_mut().unwrap().extend(location.as_object().unwrap().clone());
        slice
    };
    let slices = [
        slice("l1", json!({"nodeName": "n1"}), "a.example.com"),
        slice("l2", json!({"allNodes": true}), "b.example.com"),
    ];
    fixture.make("/apis/resource.k8s.io/v1/resourceslices", &slices).await;
    check(
        &fixture,
        "/apis/resource.k8s.io/v1",
        "resourceslices",
        &[
            ("metadata.name", &full("l2"), &full("l2")),
            ("spec.nodeName", "n1", &full("l1")),
            ("spec.nodeName", "", &full("l2")),
            ("spec.driver", "b.example.com", &full("l2")),
        ],
    )
    .await;

    // Selectors with several conditions, in one namespace and in all namespaces.
    for (path, selector, want) in [
        ("/api/v1/pods", format!("metadata.namespace={ns}"), "p1 p2 p3"),
        ("/api/v1/pods", format!("metadata.namespace={ns},spec.nodeName=n1"), "p1"),
        ("$core/pods", "spec.nodeName!=n1,spec.restartPolicy=Always,status.phase=Pending".to_owned(), "p3"),
        ("$core/pods", "metadata.name=p1,metadata.name=p2".to_owned(), ""),
        ("$core/pods", "metadata.name!=p1,metadata.name!=p2".to_owned(), "p3"),
    ] {
        let list = fixture.get(&format!("{path}?fieldSelector={}", escape(&selector))).await;
        assert_eq!(names(&list).join(" "), want, "read-consistency {path} {selector}");
    }
}

/// Checks each field of a resource with its three operators, and that no field was left out.
async fn check(fixture: &Fixture, group_version: &str, resource: &str, fields: Fields<'_>) {
    let path = format!("{group_version}/{resource}");
    let select = async |selector: &str| {
        let selector = escape(selector);
        let query = format!("{path}?labelSelector=topic%3D{}&fieldSelector={selector}", fixture.ns);
        names(&fixture.get(&query).await)
    };
    let all = select("").await;
    let mut wrong = Vec::new();
    for (label, value, want) in fields {
        let have: Vec<String> = want.split_whitespace().map(str::to_owned).collect();
        let others: Vec<String> = all.iter().filter(|name| !have.contains(name)).cloned().collect();
        for (operator, want) in [("=", &have), ("==", &have), ("!=", &others)] {
            let got = select(&format!("{label}{operator}{value}")).await;
            let (mut got, mut want) = (got, want.clone());
            got.sort();
            want.sort();
            if got != want {
                wrong.push(format!("selectors {path} {label}{operator}{value}: {got:?}, not {want:?}"));
            }
        }
    }
    report(&wrong);

    let Some(facts) = reference("facts/selectable_fields.json") else { return };
    let facts: Value = serde_json::from_slice(&std::fs::read(facts).unwrap()).unwrap();
    let (group, version) = group_version.trim_start_matches("/apis/").split_once('/').unwrap_or_default();
    let (group, version) = if group_version == "/api/v1" { ("", "v1") } else { (group, version) };
    let row = facts["resources"].as_array().unwrap().iter().find(|row| {
        (&row["group"], &row["version"], &row["resource"])
            == (&json!(group), &json!(version), &json!(resource))
    });
    let known = row.expect("the reference has the resource")["fields"].as_array().unwrap();
    let left_out: Vec<&Value> = known
        .iter()
        .map(|field| &field["label"])
        .filter(|label| !fields.iter().any(|(mine, ..)| *label == mine))
        .collect();
    assert!(left_out.is_empty(), "{path}: {left_out:?}");
}
