//! A store that kube-apiserver wrote, put into an etcd: read as it was served, and changed in nothing but what a request changes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cluster::Etcd;
use crate::support::reference;

/// The object without what depends on this store.
fn plain(mut object: Value) -> Value {
    object["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
    object
}

/// The path of an object, by its own words and the discovery of the server.
async fn path(client: &tests::Client, served: &Value) -> Option<String> {
    let api_version = served["apiVersion"].as_str()?;
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    let resources = client.get(&format!("{root}/{api_version}")).await.json();
    let kind = &served["kind"];
    let resource = resources["resources"].as_array()?.iter().find(|resource| {
        resource["kind"] == *kind && !resource["name"].as_str().is_some_and(|name| name.contains('/'))
    })?;
    let (plural, name) = (resource["name"].as_str()?, served["metadata"]["name"].as_str()?);
    let name = name.replace('%', "%25");
    Some(match served["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{plural}/{name}"),
        None => format!("{root}/{api_version}/{plural}/{name}"),
    })
}

#[tokio::test]
async fn a_store_of_the_reference_server_is_served_and_kept() {
    let Some(file) = reference("etcd/objects.jsonl") else {
        return eprintln!("skipped: a recorded store is not at hand");
    };
    let Some(etcd) = Etcd::start(1).await else { return };
    let mut recorded = Vec::new();
    for line in std::fs::read_to_string(file).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let key = line["key"].as_str().unwrap().to_owned();
        let value = match line["base64"].as_str() {
            Some(text) => STANDARD.decode(text).unwrap(),
            None => line["text"].as_str().unwrap().as_bytes().to_vec(),
        };
        etcd.put(&key, value.clone()).await;
        if line["served"].is_object() {
            recorded.push((key, value, line["served"].clone()));
        }
    }
    // No controller changes the records that are compared.
    let server = etcd.server(&["--controllers=", "--service-cluster-ip-range=10.0.0.0/24"]).await;
    let client = server.client();
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for (key, value, served) in &recorded {
        // What a start writes: the server's own objects.
        let now = etcd.get(key).await.map(|kv| kv.value.to_vec());
        if now.as_ref() != Some(value) {
            continue;
        }
        let Some(path) = path(client, served).await else {
            wrong.push(format!("{key} is not served"));
            continue;
        };
        looked_at += 1;
        let shown = client.get(&path).await.json();
        if plain(shown.clone()) != plain(served.clone()) {
            wrong.push(format!("{key} is shown as\n  {shown}\n  {served}"));
        }
    }
    assert!(looked_at > 400, "{looked_at} of {}", recorded.len());
    // A label changes the label, and who owns it.
    let mut changed = 0;
    for (key, _, served) in
        recorded.iter().filter(|(key, ..)| key.contains("/configmaps/") || key.contains("/pods/"))
    {
        let Some(path) = path(client, served).await else { continue };
        let reply = client.patch(&path, "merge", &json!({"metadata": {"labels": {"etcd-test": "x"}}})).await;
        if reply.status != 200 {
            wrong.push(format!("{key}: {}", reply.text()));
            continue;
        }
        changed += 1;
        let mut after = client.get(&path).await.json();
        let mut before = served.clone();
        for object in [&mut after, &mut before] {
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.remove("managedFields");
            if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                labels.remove("etcd-test");
                if labels.is_empty() {
                    metadata.remove("labels");
                }
            }
        }
        if plain(after.clone()) != plain(before.clone()) {
            wrong.push(format!("{key} became\n  {after}\n  {before}"));
        }
    }
    assert!(changed > 10, "{changed}");
    let shown: Vec<String> = wrong.iter().take(5).map(|text| text.chars().take(3000).collect()).collect();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), shown.join("\n"));
}
