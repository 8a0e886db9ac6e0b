//! Writes of the server itself pass admission. These writes have the identities of the controllers of
//! kube-controller-manager (docs/api/admission.md).

use std::future::ready;
use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::Fixture;
use super::hook::Hook;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Returns a review response that allows everything except the deletion of `kept` by a user who is not the
/// administrator.
fn verdict(review: &Value) -> Value {
    let request = &review["request"];
    let is_kept = request["operation"] == "DELETE"
        && request["oldObject"]["metadata"]["name"] == "kept"
        && request["userInfo"]["username"] != "cluster-admin";
    let mut response = json!({"uid": request["uid"], "allowed": !is_kept});
    if is_kept {
        response["status"] = json!({"message": "it is kept"});
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// Returns the user, operation and object of a review in one line.
fn line(review: &Value) -> String {
    let request = &review["request"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let user = text(&request["userInfo"]["username"]);
    let mut resource = text(&request["resource"]["resource"]);
    if let Some(subresource) = request["subResource"].as_str() {
        resource = format!("{resource}/{subresource}");
    }
    let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
    let user = user.trim_start_matches("system:serviceaccount:kube-system:").to_owned();
    format!(
        "{user} {} {resource} {} {}",
        text(&request["operation"]),
        text(&object["metadata"]["name"]),
        text(&request["options"]["kind"]),
    )
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_controllers_pass_admission_and_may_be_refused() {
    let fixture = Fixture::new("own-writes").await;
    let (client, ns) = (&fixture.client, &fixture.ns);
    let hook = Hook::start(|review: Value| ready(verdict(&review))).await;
    let config = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": ns},
        "webhooks": [{
            "name": "hook.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"url": hook.url("/review"), "caBundle": hook.ca_bundle()},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
        }],
    });
    assert_eq!(client.post(VALIDATING, &config).await.status, 201);
    let core = format!("/api/v1/namespaces/{ns}");
    let maps = format!("{core}/configmaps");
    let map = |name: &str| json!({"metadata": {"name": name}});
    let saw = |expected: &str| hook.received().iter().any(|review| line(review) == expected);

    // The service account of a namespace is created again.
    assert_eq!(client.delete(&format!("{core}/serviceaccounts/default")).await.status, 200);
    let made = "service-account-controller CREATE serviceaccounts default CreateOptions";
    until(made, async || saw(made)).await;

    // The server charges usage to the quota, and the controller counts it.
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "10"}}});
    assert_eq!(client.post(&format!("{core}/resourcequotas"), &quota).await.status, 201);
    let counted = "resourcequota-controller UPDATE resourcequotas/status q UpdateOptions";
    until(counted, async || saw(counted)).await;
    let owner = client.post(&maps, &map("owner")).await.json();
    assert!(saw("system:apiserver UPDATE resourcequotas/status q UpdateOptions"));

    // The garbage collector deletes a dependent of the deleted owner.
    let mut dependent = map("dependent");
    dependent["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]);
    assert_eq!(client.post(&maps, &dependent).await.status, 201);
    assert_eq!(client.delete(&format!("{maps}/owner")).await.status, 200);
    let collected = "generic-garbage-collector DELETE configmaps dependent DeleteOptions";
    until(collected, async || saw(collected)).await;

    // If the deletion of an object is refused, its namespace stays too, and reports the reason.
    assert_eq!(client.post(&maps, &map("kept")).await.status, 201);
    let own = format!("/api/v1/namespaces/{ns}");
    assert_eq!(client.delete(&own).await.status, 200);
    let condition = async || {
        let namespace = client.get(&own).await.json();
        let list = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        list.into_iter().find(|one| one["type"] == "NamespaceDeletionContentFailure").unwrap_or_default()
    };
    until("the condition reports the refusal", async || condition().await["status"] == "True").await;
    let message = condition().await["message"].as_str().unwrap_or_default().to_owned();
    let why = r#"admission webhook "hook.example.com" denied the request: it is kept"#;
    assert!(message.contains(why), "{message}");
    let swept = "namespace-controller DELETE configmaps kept DeleteOptions";
    let reviews = hook.received();
    let review = reviews.iter().find(|review| line(review) == swept).expect(swept);
    assert_eq!(review["request"].get("name"), None, "the review of a collection has no name");
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    assert_eq!(review["request"]["userInfo"]["groups"], json!(groups));
    assert!(saw(&format!("namespace-controller UPDATE namespaces/status {ns} UpdateOptions")));

    // The refusal does not delay other deletions.
    assert_eq!(client.get(&format!("{maps}/owner")).await.status, 404);
    assert_eq!(client.delete(&format!("{VALIDATING}/{ns}")).await.status, 200);
    until("the namespace is removed", async || client.get(&own).await.status == 404).await;
}
