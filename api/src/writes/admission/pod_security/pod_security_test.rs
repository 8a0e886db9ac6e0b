//! Tests pod security with requests to a server.

use crate::writes::admission::{Files, Settings, Wishes};
use crate::writes::write::server_fixture::TestServer;

const PODS: &str = "/api/v1/namespaces/n/pods";

fn namespace(labels: &str) -> String {
    let labels: Vec<String> = labels
        .split_whitespace()
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            format!(r#""pod-security.kubernetes.io/{name}":"{value}""#)
        })
        .collect();
    format!(r#"{{"metadata":{{"name":"n","labels":{{{}}}}}}}"#, labels.join(","))
}

fn pod(name: &str, more: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i"}}]{more}}}}}"#
    )
}

async fn server(labels: &str) -> TestServer {
    let server = TestServer::start();
    let (code, ..) = server.send("POST /api/v1/namespaces", &namespace(labels)).await;
    assert_eq!(code, 201);
    server
}

#[tokio::test]
async fn pod_violations_are_refused_and_template_violations_cause_warnings() {
    let server = server("enforce=baseline audit=restricted").await;
    let violates = r#"PodSecurity "baseline:latest": host namespaces (hostNetwork=true)"#;
    let (code, warnings, body) =
        server.send(&format!("POST {PODS}"), &pod("p", r#","hostNetwork":true"#)).await;
    assert_eq!((code, warnings), (403, vec![]));
    assert_eq!(body.str_at(&["message"]), format!("pods \"p\" is forbidden: violates {violates}"));
    let (code, warnings, _) = server.send(&format!("POST {PODS}"), &pod("p", "")).await;
    assert_eq!((code, warnings), (201, vec![]));
    let template = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},
        "template":{"metadata":{"labels":{"a":"b"}},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}}}"#;
    let (code, warnings, _) = server.send("POST /apis/apps/v1/namespaces/n/deployments", template).await;
    let warning = format!("299 - \"would violate {}\"", violates.replace('"', "\\\""));
    assert_eq!((code, warnings), (201, vec![warning]));
}

#[tokio::test]
async fn pod_updates_are_checked_only_if_they_change_security_relevant_fields() {
    let server = server("").await;
    server.send(&format!("POST {PODS}"), &pod("p", r#","hostNetwork":true"#)).await;
    let label = r#"{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}"#;
    let (code, warnings, _) = server.send("MERGE /api/v1/namespaces/n", label).await;
    assert_eq!((code, warnings.len()), (200, 2), "{warnings:?}");
    for (request, body, want) in [
        ("MERGE", r#"{"metadata":{"labels":{"a":"b"}}}"#, 200),
        ("STRATEGIC", r#"{"spec":{"containers":[{"name":"c","image":"other"}]}}"#, 403),
    ] {
        let (code, ..) = server.send(&format!("{request} {PODS}/p"), body).await;
        assert_eq!(code, want, "{body}");
    }
}

#[tokio::test]
async fn new_invalid_pod_security_labels_are_refused() {
    let server = server("").await;
    let bad = r#"{"metadata":{"labels":{"pod-security.kubernetes.io/warn-version":"1"}}}"#;
    let (code, _, body) = server.send("MERGE /api/v1/namespaces/n", bad).await;
    assert_eq!(code, 422);
    assert_eq!(
        body.str_at(&["message"]),
        "Namespace \"n\" is invalid: metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1\": must \
         be \"latest\" or \"v1.x\""
    );
}

struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> Result<Vec<u8>, String> {
        Err("no files".to_owned())
    }
}

/// Starts a server with these defaults and exemptions.
fn configured(defaults: &str, exemptions: &str) -> TestServer {
    let config = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{{name: PodSecurity, \
         configuration: {{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, \
         defaults: {defaults}, exemptions: {exemptions}}}}}]"
    );
    let disable = ["ServiceAccount".to_owned()];
    let wishes = Wishes { disable: &disable, config: Some(config.as_bytes()), ..Wishes::default() };
    TestServer::admitting(Settings::parse(&wishes, &NoFiles).unwrap())
}

#[tokio::test]
async fn a_policy_of_an_exempt_namespace_causes_a_warning() {
    let ignored = |policy: &str| {
        format!(
            r#"299 - "namespace \"n\" is exempt from Pod Security, and the policy ({policy}) will be ignored""#
        )
    };
    for (defaults, exempt, labels, want) in [
        ("{}", "n", "", None),
        ("{}", "n", "enforce=privileged audit-version=v1.30", None),
        ("{}", "other", "enforce=baseline", None),
        ("{}", "n", "enforce=baseline", Some("enforce=baseline:latest")),
        (
            "{}",
            "n",
            "enforce=baseline audit-version=v1.30 audit=restricted warn=privileged",
            Some("enforce=baseline:latest, audit=restricted:v1.30"),
        ),
        ("{enforce: baseline, warn: baseline}", "n", "enforce=baseline", None),
        ("{enforce: baseline}", "n", "warn=restricted", Some("warn=restricted:latest")),
    ] {
        let server = configured(defaults, &format!("{{namespaces: [{exempt:?}]}}"));
        let want: Vec<String> = want.map(ignored).into_iter().collect();
        let (code, warnings, _) = server.send("POST /api/v1/namespaces", &namespace(labels)).await;
        assert_eq!((code, warnings), (201, want), "{defaults} {labels}");
    }
    // An update gets the warning if the enforced level becomes stricter.
    let server = configured("{}", "{namespaces: [\"n\"]}");
    server.send("POST /api/v1/namespaces", &namespace("")).await;
    for (labels, want) in
        [("warn=baseline", None), ("enforce=baseline", Some("enforce=baseline:latest, warn=baseline:latest"))]
    {
        let (code, warnings, _) = server.send("MERGE /api/v1/namespaces/n", &namespace(labels)).await;
        let want: Vec<String> = want.map(ignored).into_iter().collect();
        assert_eq!((code, warnings), (200, want), "{labels}");
    }
}

#[tokio::test]
async fn exempt_users_namespaces_and_runtime_classes_are_not_checked() {
    for (exemptions, want) in [
        ("{}", 403),
        ("{usernames: [\"system:anonymous\"]}", 201),
        ("{usernames: [other]}", 403),
        ("{namespaces: [\"n\"]}", 201),
        ("{runtimeClasses: [r]}", 403),
    ] {
        let server = configured("{enforce: restricted}", exemptions);
        server.send("POST /api/v1/namespaces", &namespace("")).await;
        let (code, ..) = server.send(&format!("POST {PODS}"), &pod("p", "")).await;
        assert_eq!(code, want, "{exemptions}");
    }
}
