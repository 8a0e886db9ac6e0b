//! The first requests of a client.

use serde_json::json;
use tests::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_created_read_changed_listed_watched_and_deleted() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";

    let created = client.post(maps, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let object = created.json();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert!(object["metadata"]["uid"].is_string() && object["metadata"]["creationTimestamp"].is_string());
    let version = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();

    let read = client.get(&format!("{maps}/a")).await;
    assert_eq!((read.status, read.json()), (200, object.clone()));

    let mut watch = client.watch(&format!("{maps}?watch=1&resourceVersion={version}")).await;
    let patched = client.patch(&format!("{maps}/a"), "merge", &json!({"data": {"k": "w"}})).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let second = patched.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    assert_eq!(watch.expect().await, ("MODIFIED".into(), "a".into(), second.clone()));

    let stale = client.put(&format!("{maps}/a"), &object).await;
    assert_eq!((stale.status, stale.json()["reason"].clone()), (409, json!("Conflict")));

    let list = client
        .get(&format!("{maps}?labelSelector=!x&fieldSelector=metadata.name!=kube-root-ca.crt"))
        .await
        .json();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("ConfigMapList"), 1));
    assert_eq!(list["items"][0].get("kind"), None);

    let deleted = client.delete(&format!("{maps}/a")).await;
    assert_eq!((deleted.status, deleted.json()["status"].clone()), (200, json!("Success")));
    let (kind, name, third) = watch.expect().await;
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "a"));
    assert!(third.parse::<u64>().unwrap() > second.parse::<u64>().unwrap());
    assert_eq!(client.get(&format!("{maps}/a")).await.status, 404);
}
