//! Admission policies as in public policy libraries (docs/api/policies.md), applied to manifests: each object is
//! refused by the expected policies. `tests/fixtures/policies.txt` has the policies.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tests::{Options, Server};

use crate::support::reference;

const FIXTURE: &str = include_str!("../fixtures/policies.txt");

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Resources that create pods.
const WORKLOADS: &str =
    "pods replicationcontrollers deployments statefulsets daemonsets replicasets jobs cronjobs";

/// Returns the group of a resource.
fn group(resource: &str) -> &'static str {
    match resource {
        "deployments" | "statefulsets" | "daemonsets" | "replicasets" => "apps",
        "jobs" | "cronjobs" => "batch",
        "ingresses" => "networking.k8s.io",
        "roles" => "rbac.authorization.k8s.io",
        _ => "",
    }
}

/// Returns the policy of a line of the fixture, with a binding. The binding reports failures as warnings, so that a
/// response shows all of them.
fn policy(line: &str) -> [Value; 2] {
    let mut parts = line.splitn(4, "; ");
    let mut part = || parts.next().unwrap_or_else(|| panic!("{line}"));
    let (name, resources, expression, message) = (part(), part(), part(), part());
    let resources = if resources == "W" { WORKLOADS } else { resources };
    let rule = |resource: &str| json!({"apiGroups": [group(resource)], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]});
    let rules: Vec<Value> = resources.split(' ').map(rule).collect();
    let spec = "object.kind == 'Pod' ? object.spec : object.kind == 'CronJob' ? object.spec.jobTemplate.spec.template.spec \
                : object.spec.template.spec";
    let all = "variables.spec.containers + (has(variables.spec.initContainers) ? variables.spec.initContainers : [])";
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": rules},
        "variables": [{"name": "spec", "expression": spec}, {"name": "all", "expression": all}],
        "validations": [{"expression": expression, "message": message}],
    }});
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Warn"]}});
    [policy, binding]
}

/// Starts a server with all policies of the fixture.
async fn server() -> Server {
    let flags =
        ["--disable-admission-plugins=ServiceAccount", "--allow-privileged"].map(str::to_owned).to_vec();
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let lines = FIXTURE.lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for [policy, binding] in lines.map(policy) {
        for (kind, object) in
            [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
        {
            let made = server.client().post(&format!("{GROUP}/{kind}"), &object).await;
            assert_eq!(made.status, 201, "{}", made.text());
        }
        count += 1;
    }
    assert_eq!(count, 50);
    server
}

/// Returns the names of the policies that refuse an object.
async fn refusals(server: &Server, object: &Value) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap();
    let plural = match kind {
        "Ingress" => "ingresses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    let ns = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let path = format!("/{root}/{version}/namespaces/{ns}/{plural}?dryRun=All");
    let made = server.client().post(&path, object).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let named = |warning: &String| {
        let rest = warning.split("Validation failed for ValidatingAdmissionPolicy '").nth(1)?;
        Some(rest.split('\'').next()?.to_owned())
    };
    let mut names: Vec<String> = made.header_all("warning").iter().filter_map(named).collect();
    names.sort();
    names
}

/// Manifests, and the policies that refuse them.
const OWN: &[(&str, &str)] = &[
    (
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"sound","namespace":"apps","labels":{"app":"a","team":"t"},
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"1"}]},
            "spec":{"automountServiceAccountToken":false,"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},
            "containers":[{"name":"c","image":"registry.k8s.io/app:v1@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"2048Mi"}},
            "securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}}}]}}"#,
        "",
    ),
    (
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"wild","labels":{"app":"A"}},
            "spec":{"hostNetwork":true,"hostPID":true,"hostIPC":true,"terminationGracePeriodSeconds":301,
            "securityContext":{"runAsUser":0},
            "volumes":[{"name":"v","hostPath":{"path":"/"}}],
            "initContainers":[{"name":"i","image":"docker.io/init","imagePullPolicy":"Never"}],
            "containers":[{"name":"c","image":"app:latest","imagePullPolicy":"Never","ports":[{"containerPort":80,"hostPort":80}],
            "env":[{"name":"DB_PASSWORD","value":"x"},{"name":"A","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}],
            "resources":{"limits":{"memory":"3Gi"}},
            "securityContext":{"privileged":true,"capabilities":{"add":["SYS_ADMIN"]}}}]}}"#,
        "allowed-capabilities allowed-registries cpu-limits cpu-requests drop-all-capabilities grace-period-max \
         image-by-digest image-has-tag label-values-lower-case memory-limit-max no-bare-pods \
         no-default-namespace no-host-ipc no-host-network no-host-path no-host-pid no-host-ports no-latest-tag \
         no-passwords-in-environment no-privilege-escalation no-privileged no-secrets-in-environment no-token-mount \
         no-user-zero pull-policy-always read-only-root required-label-owner run-as-non-root \
         seccomp-profile volume-types",
    ),
    (
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"NodePort",
            "externalIPs":["192.0.2.1"],"ports":[{"port":80}]}}"#,
        "named-ports no-external-addresses no-node-ports",
    ),
    (
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","annotations":{"example.com/internal":""}},
            "spec":{"type":"LoadBalancer","ports":[{"port":80,"name":"web"}]}}"#,
        "",
    ),
    (
        r#"{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"i"},"spec":{
            "tls":[{"hosts":["a.example"]}],"rules":[{"host":"a.example"},{"host":"*.b.example"}]}}"#,
        "ingress-has-tls ingress-host-no-wildcard",
    ),
    (
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r"},
            "rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]},{"apiGroups":[""],"resources":["pods"],"verbs":["*"]}]}"#,
        "no-wildcard-verbs",
    ),
    (
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"b","key":"BEGIN PRIVATE KEY"}}"#,
        "no-credentials-in-config",
    ),
    (
        r#"{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"j","namespace":"apps","labels":{"app":"a","team":"t"}},
            "spec":{"schedule":"0 3 * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never",
            "automountServiceAccountToken":false,"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"},
            "sysctls":[{"name":"kernel.msgmax","value":"1"}]},
            "containers":[{"name":"c","image":"registry.k8s.io/app","resources":{"requests":{"cpu":"1","memory":"1Gi"},
            "limits":{"cpu":"1","memory":"1Gi"}},"securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,
            "capabilities":{"drop":["ALL"]}}}]}}}}}}"#,
        "image-by-digest image-has-tag no-overlapping-runs no-unsafe-sysctls",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_policies_refuse_the_objects_that_they_target() {
    let server = server().await;
    let made = server.client().post("/api/v1/namespaces", &json!({"metadata": {"name": "apps"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let mut wrong = Vec::new();
    for (manifest, expected) in OWN {
        let object: Value = serde_json::from_str(manifest).unwrap();
        let got = refusals(&server, &object).await.join(" ");
        if got != *expected {
            wrong.push(format!(
                "{} {}\n  want {expected}\n  got  {got}",
                object["kind"], object["metadata"]["name"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // A policy refuses the request once its binding says Deny.
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings/no-latest-tag");
    let deny = json!({"spec": {"validationActions": ["Deny"]}});
    assert_eq!(server.client().patch(&bindings, "merge", &deny).await.status, 200);
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "a:latest"}]}});
    let refused = server.client().post("/api/v1/namespaces/apps/pods", &pod).await;
    let message = "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'no-latest-tag' with binding 'no-latest-tag' denied \
                   request: images have no latest tag";
    assert_eq!((refused.status, refused.json()["message"].as_str().unwrap()), (422, message));
}

/// Collects the documents of all manifests below a directory, by kind and name.
fn manifests(directory: &Path, found: &mut BTreeMap<String, Value>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            manifests(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for part in text.split("\n---") {
            let Ok(document) = values::yaml::parse(part.as_bytes()) else { continue };
            let mut text = Vec::new();
            values::json::write(&document.value, &mut text);
            let object: Value = serde_json::from_slice(&text).unwrap();
            if let (Some(kind), Some(name)) = (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
                found.insert(format!("{kind}/{name}"), object.clone());
            }
        }
    }
}

/// Some of the public manifests, and the policies that refuse them in addition to [`COMMON`].
const PUBLIC: &[(&str, &str)] = &[
    ("Deployment/frontend", "cpu-limits memory-limits no-default-namespace required-label-app"),
    ("Service/frontend", "named-ports"),
];

/// The policies that refuse all public manifests.
const COMMON: &str = "allowed-registries drop-all-capabilities image-by-digest liveness-probe no-privilege-escalation \
                      no-token-mount read-only-root readiness-probe required-label-owner run-as-non-root \
                      seccomp-profile spread";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_manifests_violate_the_expected_policies() {
    let Some(directory) = reference("manifests/workloads") else { return };
    let server = server().await;
    let mut found = BTreeMap::new();
    manifests(&directory, &mut found);
    let is_known = |key: &String| {
        ["Deployment/", "Service/", "StatefulSet/", "Pod/", "ReplicationController/", "Job/"]
            .iter()
            .any(|kind| key.starts_with(kind))
    };
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (key, object) in found.iter().filter(|(key, _)| is_known(key)) {
        let mut object = object.clone();
        object["metadata"]["namespace"] = "default".into();
        if !matches!(object["apiVersion"].as_str(), Some("v1" | "apps/v1" | "batch/v1")) {
            continue;
        }
        let got = refusals(&server, &object).await;
        checked += 1;
        if key.starts_with("Service/") {
            assert!(
                got.iter()
                    .all(|name| ["named-ports", "no-node-ports", "balancer-is-internal"]
                        .contains(&name.as_str())),
                "{key}: {got:?}"
            );
        } else {
            assert!(got.contains(&"no-default-namespace".to_owned()), "{key}: {got:?}");
        }
        let own: Vec<&str> = got
            .iter()
            .map(String::as_str)
            .filter(|name| !COMMON.split(' ').any(|common| common == *name))
            .collect();
        if let Some((_, expected)) = PUBLIC.iter().find(|(known, _)| known == key)
            && own.join(" ") != *expected
        {
            wrong.push(format!("{key}\n  want {expected}\n  got  {}", own.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 20, "{checked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_checks_and_match_conditions_are_counted() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    // No controller creates objects of this type.
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["podtemplates"]});
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "c", "expression": "object.metadata.name != 'excluded'"}],
        "validations": [{"expression": "object.metadata.labels.a == 'x'"}],
    }});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Warn", "Audit"]}});
    for (kind, object) in
        [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    {
        let made = client.post(&format!("{GROUP}/{kind}"), &object).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    for (name, labels) in [
        ("excluded", json!({"a": "y"})),
        ("good", json!({"a": "x"})),
        ("bad", json!({"a": "y"})),
        ("failing", json!({})),
    ] {
        let template = json!({"metadata": {"name": name, "labels": labels},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
        let made = client.post("/api/v1/namespaces/default/podtemplates", &template).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let page = client.get("/metrics").await.text();
    let checks = "apiserver_validating_admission_policy_check";
    let conditions = "apiserver_admission_match_condition";
    let owner = r#"kind="policy",name="p",operation="CREATE",type="validate""#;
    let check = |action: &str, error: &str| {
        format!(r#"{{enforcement_action="{action}",error_type="{error}",policy="p",policy_binding="b"}} 1"#)
    };
    for line in [
        format!("{checks}_total{}", check("warn", "invalid_error")),
        format!("{checks}_total{}", check("audit", "invalid_error")),
        format!("{checks}_total{}", check("allow", "invalid_error")),
        format!("{checks}_duration_seconds_count{}", check("warn", "invalid_error")),
        format!("{conditions}_exclusions_total{{{owner}}} 1"),
        format!("{conditions}_evaluation_seconds_count{{{owner}}} 4"),
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutations_continue_after_a_failing_policy_and_are_reinvoked_in_order() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["podtemplates"]});
    let labelled = |name: &str, value: &str| {
        let expression = format!("Object{{metadata: Object.metadata{{labels: {{'{name}': {value}}}}}}}");
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
    };
    let is_late = "has(object.metadata.labels) && 'late' in object.metadata.labels";
    for (name, reinvocation, conditions, mutations) in [
        // The condition skips this policy in the first round, so the second round also skips the policy.
        ("a", "IfNeeded", json!([{"name": "c", "expression": is_late}]), vec![labelled("a", "'made'")]),
        ("b", "IfNeeded", json!([]), vec![labelled("b", &format!("{is_late} ? 'late' : 'early'"))]),
        ("c", "Never", json!([]), vec![labelled("c", &format!("{is_late} ? 'late' : 'early'"))]),
        (
            "d",
            "Never",
            json!([]),
            vec![labelled("d", "object.metadata.labels.absent"), labelled("late", "'x'")],
        ),
    ] {
        let policy = json!({"metadata": {"name": name}, "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": reinvocation,
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": conditions,
            "mutations": mutations,
        }});
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
        for (kind, object) in
            [("mutatingadmissionpolicies", policy), ("mutatingadmissionpolicybindings", binding)]
        {
            let made = client.post(&format!("{GROUP}/{kind}"), &object).await;
            assert_eq!(made.status, 201, "{}", made.text());
        }
    }
    let template = json!({"metadata": {"name": "t"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let made = client.post("/api/v1/namespaces/default/podtemplates", &template).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["metadata"]["labels"], json!({"b": "late", "c": "early", "late": "x"}));
}
