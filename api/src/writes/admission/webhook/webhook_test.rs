//! What answers mean.

use super::review::verdict;
use crate::values::naming::KUBERNETES;

#[test]
fn answers_are_verdicts_or_say_why_they_are_none() {
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
        (
            "v1",
            true,
            r#"{"uid":"u","allowed":true,"patch":"W10=","patchType":"MergePatch"}"#,
            Err("unsupported patch type \"MergePatch\"".to_owned()),
        ),
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
        let got =
            verdict(text.as_bytes(), (version, "u"), mutating, &KUBERNETES).map(|verdict| {
                match &verdict.denial {
                    None => "allowed".to_owned(),
                    Some(denial) => {
                        let status = denial.status("w");
                        format!("{} {}", status.code.as_u16(), status.message)
                    }
                }
            });
        assert_eq!(got, want.map(str::to_owned), "{response}");
    }
}

#[test]
fn answers_of_another_kind_or_version_are_refused() {
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
        let why = verdict(text.as_bytes(), (version, "u"), false, &KUBERNETES).unwrap_err();
        assert!(why.starts_with("failed to call webhook: ") && why.contains(want), "{text}: {why}");
    }
}
