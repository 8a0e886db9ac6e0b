//! Tests the interpretation of webhook responses.

use super::configuration::WebhookConfiguration;
use super::mutating::operations;
use super::report::LoggedCall;
use super::review::verdict;
use crate::writes::write::server_fixture::TestServer;
use values::naming::KUBERNETES;
use values::testing::object;
use wire::outgoing::Identities;

#[test]
fn an_admission_response_is_a_verdict_or_a_described_error() {
    let invalid = "received invalid webhook response:";
    let failed = "failed to call webhook:";
    for (version, mutating, response, want) in [
        ("v1", false, r#"{"uid":"u","allowed":true}"#, Ok("allowed")),
        (
            "v1",
            false,
            r#"{"uid":"u"}"#,
            Ok("400 admission webhook \"w\" denied the request without explanation"),
        ),
        (
            "v1",
            false,
            r#"{"uid":"u","status":{"code":302,"reason":"Because"}}"#,
            Ok("400 admission webhook \"w\" denied the request: Because"),
        ),
        (
            "v1",
            false,
            r#"{"uid":"u","status":{"code":409,"message":"m"}}"#,
            Ok("409 admission webhook \"w\" denied the request: m"),
        ),
        ("v1", false, "null", Err(format!("{invalid} webhook response was absent"))),
        ("v1", false, "{}", Err(format!("{invalid} expected response.uid=\"u\", got \"\""))),
        ("v1beta1", false, r#"{"allowed":true}"#, Ok("allowed")),
        ("v1beta1", true, r#"{"allowed":true,"patch":"W10="}"#, Ok("allowed")),
        (
            "v1",
            true,
            r#"{"uid":"u","allowed":true,"patch":"W10="}"#,
            Err(format!("{invalid} webhook returned response.patch but not response.patchType")),
        ),
        ("v1", true, r#"{"uid":"u","allowed":true,"patch":"W10=","patchType":"MergePatch"}"#, Ok("allowed")),
        (
            "v1",
            false,
            r#"{"uid":"u","allowed":true,"patch":"W10=","patchType":"JSONPatch"}"#,
            Err(format!("{invalid} validating webhook may not return response.patch")),
        ),
        (
            "v1",
            false,
            r#"{"uid":"u","allowed":"true"}"#,
            Err(format!(
                "{failed} json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of \
                 type bool"
            )),
        ),
    ] {
        let text = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/{version}","response":{response}}}"#
        );
        let got = verdict(text.as_bytes(), version, "u", mutating, &KUBERNETES).map(|verdict| match &verdict
            .denial
        {
            None => "allowed".to_owned(),
            Some(denial) => {
                let status = denial.status("w");
                format!("{} {}", status.code.as_u16(), status.message)
            }
        });
        assert_eq!(got, want.map(str::to_owned), "{response}");
    }
}

#[test]
fn webhook_patches_are_checked_in_the_order_of_the_reference_server() {
    let configuration = r#"{"webhooks":[{"name":"w","clientConfig":{"url":"https://a.example.com"}}]}"#;
    let configuration = WebhookConfiguration::read(&object(configuration), &Identities::default());
    let webhook = &configuration.webhooks[0];
    let failed = "Internal error occurred: failed calling webhook \"w\":";
    let on_delete = "Internal error occurred: admission webhook \"w\" attempted to modify the object, which is not \
                     supported for this operation";
    let unsupported = format!("{failed} unsupported patch type \"X\"");
    let undecodable = format!("{failed} received undecodable patch in webhook response: ");
    // The patches in base64: `[]`, `x`, and `[{"op":"remove","path":"/a"}]`.
    let (none, bad, some) = ("W10=", "eA==", "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2EifV0=");
    for (patch, form, is_written, want) in [
        (none, "X", true, "none"),
        (none, "X", false, "none"),
        (bad, "X", true, &*undecodable),
        (bad, "JSONPatch", false, &undecodable),
        (some, "X", false, on_delete),
        (some, "JSONPatch", false, on_delete),
        (some, "X", true, &unsupported),
        (some, "JSONPatch", true, "some"),
    ] {
        let response = format!(r#"{{"uid":"u","allowed":true,"patch":"{patch}","patchType":"{form}"}}"#);
        let text = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{response}}}"#
        );
        let verdict = verdict(text.as_bytes(), "v1", "u", true, &KUBERNETES).unwrap();
        let got = match operations(&verdict, webhook, is_written, &LoggedCall::default()) {
            Ok(None) => "none".to_owned(),
            Ok(Some(_)) => "some".to_owned(),
            Err(status) => status.into_message(),
        };
        assert!(got.starts_with(want), "{patch} {form} {is_written}: {got}");
    }
}

#[test]
fn a_denial_with_status_success_is_reported_as_a_failure() {
    for (said, want) in [("Success", ""), ("", ""), ("Failure", "Failure"), ("Odd", "Odd")] {
        let text = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{{"uid":"u","status":{{"status":"{said}"}}}}}}"#
        );
        let verdict = verdict(text.as_bytes(), "v1", "u", false, &KUBERNETES).unwrap();
        let status = verdict.denial.unwrap().status("w");
        // An empty status becomes a failure in the response.
        assert_eq!(status.remote.as_ref().unwrap().status, want, "{said}");
    }
}

#[test]
fn admission_responses_of_another_kind_or_version_are_refused() {
    for (text, version, want) in [
        ("[]", "v1", "json: cannot unmarshal array"),
        ("hello", "v1", "json: cannot unmarshal string"),
        (
            r#"{"kind":"ConfigMap","apiVersion":"v1"}"#,
            "v1",
            "no kind \"ConfigMap\" is registered for version \"v1\"",
        ),
        (
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
            "v1beta1",
            "converting (v1.AdmissionReview) to (v1beta1.AdmissionReview): unknown conversion",
        ),
    ] {
        let why = verdict(text.as_bytes(), version, "u", false, &KUBERNETES).unwrap_err();
        assert!(why.starts_with("failed to call webhook: ") && why.contains(want), "{text}: {why}");
    }
}

#[tokio::test]
async fn a_failing_match_condition_refuses_the_request_with_the_name_of_the_object() {
    let server = TestServer::start();
    let webhook = r#"{"name":"w.g.example","admissionReviewVersions":["v1"],"sideEffects":"None",
        "clientConfig":{"url":"https://127.0.0.1:1"},"matchConditions":[{"name":"c","expression":"object.data.k == 'v'"}],
        "rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}"#;
    let configuration = format!(r#"{{"metadata":{{"name":"w"}},"webhooks":[{webhook}]}}"#);
    for (path, body) in [
        ("/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#),
        ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &configuration),
    ] {
        assert_eq!(server.send(&format!("POST {path}"), body).await.0, 201, "{path}");
    }
    for (metadata, want) in [
        (
            r#"{"name":"c"}"#,
            r#"configmaps "c" is forbidden: expression 'object.data.k == 'v'' resulted in error: "#,
        ),
        (
            r#"{"generateName":"c-"}"#,
            "configmaps is forbidden: expression 'object.data.k == 'v'' resulted in error: ",
        ),
    ] {
        let body = format!(r#"{{"metadata":{metadata}}}"#);
        let (code, _, answer) = server.send("POST /api/v1/namespaces/n/configmaps", &body).await;
        let message = answer.str_at(&["message"]);
        assert!(code == 403 && message.starts_with(want), "{metadata}: {code} {message}");
    }
}
