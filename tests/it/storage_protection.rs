//! A deleted object that is in use is removed only when it is no longer in use
//! (docs/api/admission.md#storage-protection).

use std::time::Duration;

use serde_json::{Value, json};
use tests::{Client, Server};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";

async fn make(client: &Client, path: &str, object: &Value) {
    let made = client.post(path, object).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

fn claim(name: &str, class: Option<&str>) -> Value {
    let requests = json!({"requests": {"storage": "1Gi"}});
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": requests, "volumeAttributesClassName": class});
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Returns a pod on a node that uses a claim, with a grace period of 0.
fn pod(name: &str, claim: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": "n1",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

/// Creates another pod, and returns whether an object that is being deleted still exists shortly afterwards.
async fn waits(client: &Client, path: &str) -> bool {
    let mut other = pod("", "none");
    other["metadata"] = json!({"generateName": "other-"});
    make(client, &format!("{NAMESPACE}/pods"), &other).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.get(path).await.json()["metadata"]["deletionTimestamp"].is_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_volumes_are_deleted_only_after_their_users() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let (claims, pods) = (format!("{NAMESPACE}/persistentvolumeclaims"), format!("{NAMESPACE}/pods"));
    make(client, &claims, &claim("used", None)).await;
    make(client, &claims, &claim("free", None)).await;
    for name in ["first", "second"] {
        make(client, &pods, &pod(name, "used")).await;
    }
    let used = format!("{claims}/used");
    client.delete(&format!("{claims}/free")).await;
    client.until_gone(&format!("{claims}/free")).await;
    client.delete(&used).await;
    assert!(waits(client, &used).await, "two pods use the claim");
    client.delete(&format!("{pods}/first")).await;
    client.until_gone(&format!("{pods}/first")).await;
    assert!(waits(client, &used).await, "the second pod uses the claim");
    client.delete(&format!("{pods}/second")).await;
    client.until_gone(&used).await;

    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({
        "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}},
    });
    make(client, volumes, &volume).await;
    let (volume, status) = (format!("{volumes}/v"), format!("{volumes}/v/status"));
    client.patch(&status, "merge", &json!({"status": {"phase": "Bound"}})).await;
    client.delete(&volume).await;
    assert!(waits(client, &volume).await, "the volume is bound");
    client.patch(&status, "merge", &json!({"status": {"phase": "Released"}})).await;
    client.until_gone(&volume).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_class_in_use_is_deleted_after_its_claims_even_across_a_restart() {
    let mut server = Server::start_upstream().await;
    let client = server.client();
    let claims = format!("{NAMESPACE}/persistentvolumeclaims");
    let class =
        json!({"metadata": {"name": "fast"}, "driverName": "d.example.com", "parameters": {"iops": "5"}});
    make(client, CLASSES, &class).await;
    make(client, &claims, &claim("c", Some("fast"))).await;
    make(client, &format!("{NAMESPACE}/pods"), &pod("p", "c")).await;
    client.delete(&format!("{CLASSES}/fast")).await;
    client.delete(&format!("{claims}/c")).await;
    assert!(waits(client, &format!("{CLASSES}/fast")).await, "the claim uses the class");
    server.kill();
    server.restart().await;
    let client = server.client();
    assert!(waits(client, &format!("{claims}/c")).await, "the pod uses the claim");
    client.delete(&format!("{NAMESPACE}/pods/p")).await;
    client.until_gone(&format!("{claims}/c")).await;
    client.until_gone(&format!("{CLASSES}/fast")).await;
}
