//! Tests of snapshots of the whole state.

use serde_json::{Value, json};

use super::{CONFIG_MAPS, config_map, control, send, server};
use crate::fixture::{names, version};
use crate::support::anonymous_bytes;

#[tokio::test]
async fn a_restored_snapshot_has_the_saved_objects_and_watches_start_again() {
    let server = server(&[]).await;
    let client = server.client();
    // A controller of the server writes this object, which the lists below contain.
    client.until(&format!("{CONFIG_MAPS}/kube-root-ca.crt"), |found| found.is_some()).await;
    for name in ["kept", "changed", "deleted"] {
        client.post(CONFIG_MAPS, &config_map(name, "1")).await;
    }
    let before = client.get(CONFIG_MAPS).await.json();
    let saved = control(client, "PUT", "/snapshots/clean", Value::Null).await;
    assert!(saved["objects"].as_u64() > Some(3), "{saved}");
    let mut watch =
        client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&before))).await;

    client.put(&format!("{CONFIG_MAPS}/changed"), &config_map("changed", "2")).await;
    client.delete(&format!("{CONFIG_MAPS}/deleted")).await;
    client.post(CONFIG_MAPS, &config_map("added", "1")).await;
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "added"}})).await;
    let dirty = client.get(CONFIG_MAPS).await.json();
    let restored = control(client, "POST", "/snapshots/clean/restore", Value::Null).await;
    assert!(restored["writes"].as_u64() >= Some(4), "{restored}");

    let after = client.get(CONFIG_MAPS).await.json();
    assert_eq!(names(&after), names(&before));
    assert!(version(&after) > version(&dirty));
    for (now, then) in after["items"].as_array().unwrap().iter().zip(before["items"].as_array().unwrap()) {
        assert_eq!(now["data"], then["data"]);
        for field in ["uid", "creationTimestamp", "name"] {
            assert_eq!(now["metadata"][field], then["metadata"][field]);
        }
    }
    assert_eq!(client.get("/api/v1/namespaces/added").await.status, 404);
    let mut last = None;
    while let Some(event) = watch.next().await {
        last = Some(event);
    }
    assert_eq!(last.unwrap()["object"]["code"], 410, "the watch ends so that its informer lists again");
    let resumed = client
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&dirty)))
        .await
        .next()
        .await;
    assert_eq!(resumed.unwrap()["object"]["code"], 410);
    let mut again = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&after))).await;
    client.post(CONFIG_MAPS, &config_map("later", "1")).await;
    assert_eq!(again.expect().await.1, "later");

    assert_eq!(send(client, "POST", "/snapshots/unknown/restore", &Value::Null).await.status, 404);
    assert_eq!(send(client, "PUT", "/snapshots/a%2Fb", &Value::Null).await.status, 404);
    assert_eq!(send(client, "PUT", "/snapshots/a%20b", &Value::Null).await.status, 400);
    let list = control(client, "GET", "/snapshots", Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    control(client, "DELETE", "/snapshots/clean", Value::Null).await;
}

#[tokio::test]
async fn a_restored_snapshot_includes_custom_types_and_service_addresses() {
    let server = server(&[]).await;
    let client = server.client();
    control(client, "PUT", "/snapshots/clean", Value::Null).await;
    let definition = json!({
        "metadata": {"name": "baskets.e2e.example.com"},
        "spec": {
            "group": "e2e.example.com", "scope": "Namespaced",
            "names": {"plural": "baskets", "singular": "basket", "kind": "Basket"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let baskets = "/apis/e2e.example.com/v1/namespaces/default/baskets";
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.0.0.77", "ports": [{"port": 80}]}});
    for _ in 0..3 {
        assert_eq!(client.post(definitions, &definition).await.status, 201);
        client.until(baskets, |list| list.is_some()).await;
        let basket = json!({"apiVersion": "e2e.example.com/v1", "kind": "Basket", "metadata": {"name": "b"}});
        assert_eq!(client.post(baskets, &basket).await.status, 201);
        let made = client.post("/api/v1/namespaces/default/services", &service).await;
        assert_eq!(made.status, 201, "{}", made.text());
        control(client, "POST", "/snapshots/clean/restore", Value::Null).await;
        client.until_gone(baskets).await;
    }
}

#[tokio::test]
async fn a_thousand_restores_of_a_snapshot_leak_nothing() {
    let server = server(&[]).await;
    let client = server.client();
    for n in 0..50 {
        client.post(CONFIG_MAPS, &config_map(&format!("c{n}"), &"x".repeat(500))).await;
    }
    control(client, "PUT", "/snapshots/clean", Value::Null).await;
    let disk = || {
        let files = std::fs::read_dir(server.data_dir().join("log")).unwrap();
        files
            .map(|file| std::os::unix::fs::MetadataExt::blocks(&file.unwrap().metadata().unwrap()) * 512)
            .sum::<u64>()
    };
    let round = async |n: usize| {
        let path = format!("{CONFIG_MAPS}/c{}", n % 50);
        client.put(&path, &config_map(&format!("c{}", n % 50), "changed")).await;
        client.post(CONFIG_MAPS, &config_map("new", &"y".repeat(500))).await;
        client.delete(&format!("{CONFIG_MAPS}/c{}", (n + 1) % 50)).await;
        let restored = control(client, "POST", "/snapshots/clean/restore", Value::Null).await;
        assert!(restored["writes"].as_u64() >= Some(3), "{restored}");
    };
    for n in 0..200 {
        round(n).await;
    }
    let (memory, files) = (anonymous_bytes(server.pid()), disk());
    for n in 200..1000 {
        round(n).await;
    }
    let list = client.get(CONFIG_MAPS).await.json();
    assert_eq!(names(&list).iter().filter(|name| name.starts_with('c')).count(), 50);
    let grown = (anonymous_bytes(server.pid()).saturating_sub(memory), disk().saturating_sub(files));
    assert!(grown.0 < 16 << 20, "memory grew by {} bytes", grown.0);
    assert!(grown.1 < 96 << 20, "files grew by {} bytes", grown.1);
}
