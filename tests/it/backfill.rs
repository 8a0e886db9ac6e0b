//! Backfill of defaults: a store of another release gets the defaults of this release once
//! (docs/decisions/0008-older-objects-get-new-defaults-once.md).

use std::path::Path;

use engine::{Change, Engine, Expected, Options, Payload, Write};
use serde_json::{Value, json};
use tests::Server;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFAULT: &str = r#","schedulerName":"default-scheduler""#;

/// Stores the pod `old` without defaulted fields, in the log of a stopped server.
async fn remove_default(data_dir: &Path) {
    let engine = Engine::open(Options::new(data_dir.join("log"))).unwrap();
    let key = b"/core/pods/default/old";
    let entry = engine.snapshot().get(key).expect("the pod is stored");
    let record = entry.read().unwrap();
    let text = std::str::from_utf8(&record.value).unwrap();
    assert!(text.contains(DEFAULT), "{text}");
    let text = text.replacen(DEFAULT, "", 1);
    // The write inserts the new revision at this position.
    let (before, version) = text.split_once(r#""resourceVersion":""#).unwrap();
    let at = before.len() + r#""resourceVersion":""#.len();
    let after = version.trim_start_matches(|c: char| c.is_ascii_digit());
    let value = format!("{}{after}", &text[..at]);
    let payload = Payload {
        attributes: record.attributes.clone(),
        value: value.into_bytes().into(),
        stamp_at: Some(at.try_into().unwrap()),
        ttl: None,
        essential: false,
    };
    let expected = Expected::Revision(entry.revision());
    let write = Write { key: key.as_slice().into(), expected, change: Change::Put(payload) };
    engine.commit(write).await.unwrap();
    engine.close().await;
}

async fn get(server: &Server, path: &str) -> Value {
    let reply = server.client().get(path).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_an_older_release_get_new_defaults_exactly_once() {
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    let pod = json!({"metadata": {"name": "old"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(client.post(PODS, &pod).await.status, 201);
    let map = client.post(MAPS, &json!({"metadata": {"name": "m"}})).await.json();
    assert_eq!(server.terminate(), Some(0));
    let mark = server.data_dir().join("defaults");
    let written = std::fs::read_to_string(&mark).unwrap();
    assert_eq!(written, format!("{:016x}\n", api::writes::backfill::MARK));

    // The file records the defaults of another release.
    remove_default(server.data_dir()).await;
    std::fs::write(&mark, "0000000000000000\n").unwrap();
    server.restart().await;
    let now = get(&server, &format!("{PODS}/old")).await;
    assert_eq!(now["spec"]["schedulerName"], "default-scheduler");
    let selected =
        get(&server, &format!("{PODS}?fieldSelector=spec.schedulerName%3Ddefault-scheduler")).await;
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(get(&server, &format!("{MAPS}/m")).await, map, "an object with all defaults is not written");
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), written);
    server.until_logged("stored objects updated with the defaults of this release", 1).await;

    // A second start finds the record and reads no objects. A start without the record reads the objects
    // and finds nothing to change.
    for is_marked in [true, false] {
        assert_eq!(server.terminate(), Some(0));
        if !is_marked {
            std::fs::remove_file(&mark).unwrap();
        }
        server.restart().await;
        assert_eq!(get(&server, &format!("{PODS}/old")).await, now);
    }
    assert_eq!(server.terminate(), Some(0));
    remove_default(server.data_dir()).await;
    server.restart().await;
    let untouched = get(&server, &format!("{PODS}/old")).await;
    assert_eq!(untouched["spec"]["schedulerName"], Value::Null, "if the mark exists, objects are not read");
}
