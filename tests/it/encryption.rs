//! Stored objects are encrypted as the configuration says, and clients see no difference (docs/api/encryption.md).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Options, Server};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Longest time until a changed file is in force.
const RELOADED_WITHIN: Duration = Duration::from_secs(60);

fn configuration(providers: &str) -> String {
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n\
         resources: [{{resources: [secrets], providers: [{providers}]}}]\n"
    )
}

const OLD: &str = "{aescbc: {keys: [{name: old, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}";
const NEW: &str = "{secretbox: {keys: [{name: new, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}}";

/// How often a text is in the files of the log.
fn count_on_disk(server: &Server, text: &str) -> usize {
    let files = std::fs::read_dir(server.data_dir().join("log")).unwrap();
    let files = files.map(|file| std::fs::read(file.unwrap().path()).unwrap_or_default());
    files.map(|bytes| bytes.windows(text.len()).filter(|found| *found == text.as_bytes()).count()).sum()
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_objects_are_read_and_their_keys_are_changed() {
    let mut server = Server::start(Options {
        files: vec![("encryption.yaml", configuration(OLD))],
        flags: [
            "--encryption-provider-config=$dir/encryption.yaml",
            "--encryption-provider-config-automatic-reload=true",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Options::default()
    })
    .await;
    let client = server.client().clone();
    let mut watch = client.watch(&format!("{SECRETS}?watch=1")).await;
    let word = json!({"word": "very-much-hidden"});
    for (path, data) in [(SECRETS, "stringData"), (MAPS, "data")] {
        let made = client.post(path, &json!({"metadata": {"name": "one"}, data: word})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let hidden = "dmVyeS1tdWNoLWhpZGRlbg=="; // the word in base64
    assert_eq!(watch.next().await.unwrap()["object"]["data"]["word"], hidden);
    let list = client.get(SECRETS).await.json();
    assert_eq!(list["items"][0]["data"]["word"], hidden);
    assert_eq!(count_on_disk(&server, hidden), 0, "secrets are not readable on the disk");
    assert_ne!(count_on_disk(&server, "k8s:enc:aescbc:v1:old:"), 0);
    assert_ne!(count_on_disk(&server, "very-much-hidden"), 0, "other objects are not encrypted");

    server.kill();
    server.restart().await;
    let client = server.client().clone();
    let one = format!("{SECRETS}/one");
    let read = client.get(&one).await.json();
    assert_eq!(read["data"]["word"], hidden);
    let same = client.put(&one, &read).await.json();
    assert_eq!(version(&same), version(&read), "nothing changes, and the key is the right one");

    let file = server.data_dir().join("encryption.yaml");
    std::fs::write(&file, configuration(&format!("{NEW}, {OLD}"))).unwrap();
    let began = Instant::now();
    while version(&client.put(&one, &read).await.json()) == version(&read) {
        assert!(began.elapsed() < RELOADED_WITHIN, "the object is never written with the new key");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(count_on_disk(&server, "k8s:enc:secretbox:v1:new:"), 1);
    let again = client.get(&one).await.json();
    let same = client.put(&one, &again).await.json();
    assert_eq!((version(&same), &same["data"]["word"]), (version(&again), &json!(hidden)));

    let mut watch = client.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&again))).await;
    assert_eq!(client.delete(&one).await.status, 200);
    let deleted = watch.next().await.unwrap();
    assert_eq!((&deleted["type"], &deleted["object"]["data"]["word"]), (&json!("DELETED"), &json!(hidden)));
    assert!(version(&deleted["object"]) > version(&again), "the last state is stamped anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_whose_key_is_gone_is_an_error_of_its_own() {
    let mut server = Server::start(Options {
        files: vec![("encryption.yaml", configuration(OLD))],
        flags: vec!["--encryption-provider-config=$dir/encryption.yaml".to_owned()],
        ..Options::default()
    })
    .await;
    for (path, name) in [(SECRETS, "one"), (MAPS, "one")] {
        let made = server.client().post(path, &json!({"metadata": {"name": name}})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let file = server.data_dir().join("encryption.yaml");
    std::fs::write(&file, configuration(NEW)).unwrap();
    assert_eq!(server.terminate(), Some(0));
    server.restart().await;
    let refused = server.client().get(&format!("{SECRETS}/one")).await;
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("no matching prefix found"), "{}", refused.text());
    assert_eq!(server.client().get(&format!("{MAPS}/one")).await.status, 200);
    let made = server.client().post(SECRETS, &json!({"metadata": {"name": "two"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
}
