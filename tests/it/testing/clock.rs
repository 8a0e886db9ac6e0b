//! The test clock: everything that depends on the time of day follows this clock.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use tests::Client;
use tests::client::Identity;

use super::{CONFIG_MAPS, config_map, control, send, server};

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn event(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Tested",
    })
}

#[tokio::test]
async fn the_test_clock_can_be_set_advanced_frozen_and_reset() {
    let server = server(&[]).await;
    let client = server.client();
    let clock =
        |method: &'static str, body: Value| async move { control(client, method, "/clock", body).await };

    let set = clock("PUT", json!({"time": "2030-01-01T00:00:00Z", "frozen": true})).await;
    assert_eq!((&set["time"], &set["frozen"]), (&json!("2030-01-01T00:00:00.000Z"), &json!(true)));
    for name in ["a", "b"] {
        let made = client.post(CONFIG_MAPS, &config_map(name, "1")).await.json();
        assert_eq!(made["metadata"]["creationTimestamp"], "2030-01-01T00:00:00Z", "{made}");
    }
    let later = clock("PUT", json!({"advance": "1h30m"})).await;
    assert_eq!((&later["time"], &later["frozen"]), (&json!("2030-01-01T01:30:00.000Z"), &json!(true)));
    let made = client.post(CONFIG_MAPS, &config_map("c", "1")).await.json();
    assert_eq!(made["metadata"]["creationTimestamp"], "2030-01-01T01:30:00Z");
    let fields = &made["metadata"]["managedFields"][0];
    assert!(fields.is_null() || fields["time"] == "2030-01-01T01:30:00Z", "{fields}");

    let runs = clock("PUT", json!({"frozen": false})).await;
    assert!(runs["frozen"] == json!(false) && runs["ahead"] != "0s", "{runs}");
    assert_eq!(clock("DELETE", Value::Null).await["ahead"], "0s");
    let made = client.post(CONFIG_MAPS, &config_map("d", "1")).await.json();
    assert!(made["metadata"]["creationTimestamp"].as_str() < Some("2030"), "{made}");
}

#[tokio::test]
async fn events_expire_when_the_test_clock_passes_their_time() {
    let server = server(&["--event-ttl=1h"]).await;
    let client = server.client();
    for name in ["early", "late"] {
        assert_eq!(client.post(EVENTS, &event(name)).await.status, 201);
        control(client, "PUT", "/clock", json!({"advance": "40m"})).await;
    }
    // The first event is 80 minutes old, the second event 40 minutes.
    client.until_gone(&format!("{EVENTS}/early")).await;
    assert_eq!(client.get(&format!("{EVENTS}/late")).await.status, 200);
    control(client, "PUT", "/clock", json!({"advance": "40m"})).await;
    client.until_gone(&format!("{EVENTS}/late")).await;
}

#[tokio::test]
async fn tokens_expire_by_the_test_clock_but_administrators_keep_access() {
    let server = server(&[]).await;
    let client = server.client();
    let request_body = json!({"spec": {"expirationSeconds": 600}});
    client.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "robot"}})).await;
    let token =
        client.post("/api/v1/namespaces/default/serviceaccounts/robot/token", &request_body).await.json();
    let robot = client.with_token(token["status"]["token"].as_str().unwrap_or_else(|| panic!("{token}")));
    assert_eq!(robot.get("/version").await.status, 200);
    control(client, "PUT", "/clock", json!({"advance": "11m"})).await;
    assert_eq!(robot.get("/version").await.status, 401);
    assert_eq!(client.get(CONFIG_MAPS).await.status, 200);

    control(client, "PUT", "/clock", json!({"time": "2099-01-01T00:00:00Z"})).await;
    assert_eq!(client.get(CONFIG_MAPS).await.status, 200, "administrators are always accepted");
    control(client, "DELETE", "/clock", Value::Null).await;
    assert_eq!(client.get(CONFIG_MAPS).await.status, 200);
    assert_eq!(robot.get("/version").await.status, 200);
}

/// Returns a client with a certificate of the user `robot` that the server has issued for ten minutes.
async fn robot(client: &Client) -> Client {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "robot");
    let request = STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap());
    let request_body = json!({
        "metadata": {"name": "robot"},
        "spec": {
            "request": request,
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            "expirationSeconds": 600,
        },
    });
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made = client.post(path, &request_body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let condition = json!({"type": "Approved", "status": "True", "reason": "Tested"});
    let approval = json!({"status": {"conditions": [condition]}});
    let approved = client.patch(&format!("{path}/robot/approval"), "merge", &approval).await;
    assert_eq!(approved.status, 200, "{}", approved.text());
    let is_signed =
        |object: Option<&Value>| object.is_some_and(|object| object["status"]["certificate"].is_string());
    let signed = client.until(&format!("{path}/robot"), is_signed).await.unwrap();
    let certificate = STANDARD.decode(signed["status"]["certificate"].as_str().unwrap()).unwrap();
    Client::new(Identity { certificate, key: key.serialize_pem().into_bytes(), ..client.identity().clone() })
}

#[tokio::test]
async fn certificates_expire_by_the_test_clock() {
    let server = server(&[]).await;
    let robot = robot(server.client()).await;
    let user = async || {
        let text =
            robot.another().get(CONFIG_MAPS).await.json()["message"].as_str().unwrap_or_default().to_owned();
        text.split('"').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(user().await, "robot");
    control(server.client(), "PUT", "/clock", json!({"advance": "9m"})).await;
    assert_eq!(user().await, "robot");
    control(server.client(), "PUT", "/clock", json!({"advance": "2m"})).await;
    assert_eq!(user().await, "system:anonymous");
    control(server.client(), "DELETE", "/clock", Value::Null).await;
    assert_eq!(user().await, "robot");
}

#[tokio::test]
async fn a_watch_ends_when_the_test_clock_passes_its_timeout() {
    let server = server(&[]).await;
    let client = server.client();
    // A controller of the server writes this object.
    client.until(&format!("{CONFIG_MAPS}/kube-root-ca.crt"), |found| found.is_some()).await;
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1200")).await;
    let mut longer = client.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=3000")).await;
    // The two watches send the existing config map first.
    client.post(CONFIG_MAPS, &config_map("a", "1")).await;
    control(client, "PUT", "/clock", json!({"advance": "19m"})).await;
    client.post(CONFIG_MAPS, &config_map("b", "1")).await;
    let mut names = Vec::new();
    while names.last().is_none_or(|name| name != "b") {
        names.push(watch.expect().await.1);
    }
    // At its timeout, a watch ends even if it has not sent all changes, so the test has read the last change.
    control(client, "PUT", "/clock", json!({"advance": "2m"})).await;
    assert!(watch.next().await.is_none(), "the watch ends without another event");
    assert!(names.ends_with(&["a".to_owned(), "b".to_owned()]), "{names:?}");
    client.post(CONFIG_MAPS, &config_map("c", "1")).await;
    while longer.expect().await.1 != "c" {}
}

#[tokio::test]
async fn history_ends_when_the_test_clock_passes_its_retention() {
    let server = server(&["--history-retention=1h"]).await;
    let client = server.client();
    let made = client.post(CONFIG_MAPS, &config_map("a", "old")).await.json();
    let version = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    client.put(&format!("{CONFIG_MAPS}/a"), &config_map("a", "new")).await;
    let then = format!("/as-of/{version}{CONFIG_MAPS}/a");
    assert_eq!(client.get(&then).await.json()["data"]["value"], "old");
    control(client, "PUT", "/clock", json!({"advance": "2h"})).await;
    // The newest revision before the retention period stays readable, so a later revision must exist.
    client.put(&format!("{CONFIG_MAPS}/a"), &config_map("a", "newer")).await;
    control(client, "PUT", "/clock", json!({"advance": "2h"})).await;
    let began = std::time::Instant::now();
    while client.get(&then).await.status != 410 {
        assert!(began.elapsed() < tests::PATIENCE, "the old state is still readable");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn invalid_times_for_the_test_clock_are_refused() {
    let server = server(&[]).await;
    let client = server.client();
    for (body, want) in [
        (json!({}), "nothing to change"),
        (json!({"time": "tomorrow"}), "invalid time"),
        (json!({"time": "1969-12-31T23:59:59Z"}), "out of range"),
        (json!({"time": "2100-01-02T00:00:00Z"}), "out of range"),
        (json!({"time": "2099-01-01T00:00:00Z", "advance": "80000h"}), "out of range"),
        (json!({"advance": "-1h"}), "not negative"),
        (json!({"advance": "1"}), "missing unit"),
        (json!({"advance": 1}), "invalid type"),
        (json!({"frozen": "yes"}), "invalid type"),
        (json!({"freeze": true}), "unknown field"),
    ] {
        let reply = send(client, "PUT", "/clock", &body).await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.text());
        assert!(reply.text().contains(want), "{body}: {}", reply.text());
    }
    let clock = control(client, "GET", "/clock", Value::Null).await;
    assert_eq!((&clock["ahead"], &clock["frozen"]), (&json!("0s"), &json!(false)));
}
