//! A damaged store: until the operator accepts the loss, the server deletes no object because of unreadable records
//! (docs/api/operations.md#damage).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tests::server::TempDir;
use tests::{Client, Options, Server};

use crate::backups::{MAPS, flag, report, tool};
use crate::support::{Random, metric};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/g.example/v1/namespaces/default/things";

/// Waiting time for the collector: many times as long as the collector needs in an undamaged store.
const WAIT: Duration = Duration::from_millis(1500);

/// The files of a stopped store, which the test damages repeatedly.
struct Files(Vec<(PathBuf, Vec<u8>)>);

impl Files {
    fn read(log: &Path) -> Files {
        let files = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with("reserve"));
        Files(files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect())
    }

    fn put_back(&self, log: &Path) {
        for entry in fs::read_dir(log).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (path, bytes) in &self.0 {
            fs::write(path, bytes).unwrap();
        }
    }
}

/// Returns the records of a store, in the order of the log: file, offset, size, key.
fn records(data_dir: &Path) -> Vec<(String, u64, u64, String)> {
    let output = tool(&["inspect", &flag("data-dir", data_dir), "--output=json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let values = serde_json::Deserializer::from_str(&lines).into_iter::<Value>().map(Result::unwrap);
    let all: Vec<Value> = values.collect();
    let record = |line: &Value| {
        let number = |member: &str| line[member].as_u64().unwrap_or_else(|| panic!("{line}"));
        let text = |member: &str| line[member].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
        (text("file"), number("offset"), number("stored_bytes"), text("key"))
    };
    all.iter().filter(|line| line["key"].is_string()).map(record).collect()
}

fn flip(data_dir: &Path, file: &str, at: u64, bit: u32) {
    let path = data_dir.join("log").join(file);
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
}

async fn create(client: &Client, path: &str, object: &Value) -> String {
    let made = client.post(path, object).await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn dependent(name: &str, version: &str, kind: &str, uid: &str) -> Value {
    let owner = json!({"apiVersion": version, "kind": kind, "name": "owner", "uid": uid});
    json!({"metadata": {"name": name, "ownerReferences": [owner]}})
}

/// Returns a stopped server with these objects: an owner with ten dependents, a custom type with an object that owns
/// another object, and a namespace with content.
async fn stopped() -> Server {
    let mut server = Server::start(Options::default()).await;
    let client = server.client();
    let owner = create(client, MAPS, &json!({"metadata": {"name": "owner"}})).await;
    for n in 0..10 {
        create(client, MAPS, &dependent(&format!("dependent-{n}"), "v1", "ConfigMap", &owner)).await;
    }
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"metadata": {"name": "things.g.example"}, "spec": {"group": "g.example",
        "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    create(client, DEFINITIONS, &definition).await;
    while client.get(THINGS).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let thing = json!({"apiVersion": "g.example/v1", "kind": "Thing", "metadata": {"name": "owner"}});
    let thing = create(client, THINGS, &thing).await;
    create(client, MAPS, &dependent("of-thing", "g.example/v1", "Thing", &thing)).await;
    create(client, "/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await;
    create(client, "/api/v1/namespaces/other/configmaps", &json!({"metadata": {"name": "content"}})).await;
    assert_eq!(server.terminate(), Some(0), "{}", server.log());
    server
}

/// Returns the keys that exist.
fn keys(data_dir: &Path) -> BTreeSet<String> {
    let output = tool(&["inspect", &flag("data-dir", data_dir), "--output=json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut keys = BTreeSet::new();
    for line in serde_json::Deserializer::from_str(&text).into_iter::<Value>().map(Result::unwrap) {
        let Some(key) = line["key"].as_str().map(str::to_owned) else { continue };
        match line["kind"].as_str() {
            Some("put") => keys.insert(key),
            _ => keys.remove(&key),
        };
    }
    keys
}

fn owner_of(records: &[(String, u64, u64, String)]) -> (String, u64, u64, String) {
    let owner = records.iter().rfind(|(.., key)| key.ends_with("/configmaps/default/owner"));
    owner.unwrap_or_else(|| panic!("{records:?}")).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_affects_no_other_object() {
    let mut server = stopped().await;
    let (data_dir, log) = (server.data_dir().to_owned(), server.data_dir().join("log"));
    let files = Files::read(&log);
    let (records, before) = (records(&data_dir), keys(&data_dir));
    let mut random = Random(44);
    // Damage the owner's header and key first, then random positions.
    let owner = owner_of(&records);
    let mut hits = vec![(owner.clone(), 20), (owner, 75)];
    let own =
        |key: &str| ["/core/", "/g.example/", "/apiextensions"].iter().any(|prefix| key.starts_with(prefix));
    let candidates: Vec<_> = records.iter().filter(|(.., key)| own(key)).collect();
    for _ in 0..6 {
        let hit = candidates[random.below(candidates.len() as u64) as usize].clone();
        let byte = random.below(hit.2 - 8);
        hits.push((hit, byte));
    }
    for ((file, offset, _, key), byte) in hits {
        files.put_back(&log);
        flip(&data_dir, &file, offset + byte, random.below(8) as u32);
        server.restart().await;
        tokio::time::sleep(WAIT).await;
        assert_eq!(server.terminate(), Some(0), "{}", server.log());
        let after = keys(&data_dir);
        // A record with an unreadable key does not count as a deletion.
        let gone: Vec<_> = before.difference(&after).filter(|gone| **gone != key).collect();
        assert!(gone.is_empty(), "{key}, byte {byte}: {gone:?}");
    }
}

/// Cuts the last segment to `len` of its written bytes.
fn cut(data_dir: &Path, len: impl Fn(u64) -> u64) {
    let last = records(data_dir).last().map(|(file, offset, size, _)| (file.clone(), offset + size)).unwrap();
    let path = data_dir.join("log").join(last.0);
    fs::File::options().write(true).open(path).unwrap().set_len(len(last.1)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_log_is_reported_as_damaged() {
    for is_killed in [false, true] {
        let mut server = stopped().await;
        let data_dir = server.data_dir().to_owned();
        if is_killed {
            // The durable mark covers all writes from before the server was ready, even if the server ran only briefly.
            fs::remove_dir_all(data_dir.join("log")).unwrap();
            fs::remove_file(data_dir.join("defaults")).unwrap();
            server.restart().await;
            server.kill();
        }
        let newest = records(&data_dir).len() as u64;
        cut(&data_dir, |end| if is_killed { 4096 } else { 4096 + (end - 4096) / 2 });
        let verified = tool(&["verify", &flag("data-dir", &data_dir)]);
        assert_eq!(verified.status.code(), Some(2), "killed: {is_killed}, {verified:?}");
        let before = server.log();
        let said = "the log ends before the last known durable revision";
        server.restart().await;
        tokio::time::sleep(WAIT).await;
        let log = server.until_logged(said, before.matches(said).count() + 1).await;
        let log = &log[before.len()..];
        assert!(!log.contains("never acknowledged"), "{log}");
        assert_eq!(metric(&server, "apiserver_store_removing_controllers_off").await, 1);
        let lost = metric(&server, "apiserver_store_unaccepted_lost_revisions").await;
        let made = server.client().post(MAPS, &json!({"metadata": {"name": "new"}})).await;
        let version: u64 = made.json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        // After a kill, the newest writes may be missing.
        let known = newest - newest / 10;
        assert!(
            version > known && lost > newest / 4,
            "killed: {is_killed}, {version} after {newest}, {lost} lost"
        );
    }
}

/// Starts the binary with arguments that it must refuse, and returns its output.
fn refusal(arguments: &[&str]) -> String {
    let mut child = std::process::Command::new(tests::server::binary())
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > tests::PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_another_naming_profile_is_refused_regardless_of_the_profile_file() {
    let mut server = stopped().await;
    let data_dir = server.data_dir().to_owned();
    let before = keys(&data_dir);
    for text in [None, Some("cluster\n")] {
        match text {
            None => fs::remove_file(data_dir.join("profile")).unwrap(),
            Some(text) => fs::write(data_dir.join("profile"), text).unwrap(),
        }
        let why = refusal(&[&flag("data-dir", &data_dir), "--naming=cluster", "--secure-port=free"]);
        assert!(why.contains("was made with --naming=kubernetes, not cluster"), "{text:?}: {why}");
        assert_eq!(keys(&data_dir), before, "{text:?}");
        server.restart().await;
        assert_eq!(server.terminate(), Some(0), "{}", server.log());
        assert_eq!(fs::read_to_string(data_dir.join("profile")).unwrap(), "kubernetes\n", "{text:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accept_loss_reports_and_accepts_the_present_loss_but_no_later_one() {
    let mut server = stopped().await;
    let data_dir = server.data_dir().to_owned();
    let sound = tool(&["accept-loss", &flag("data-dir", &data_dir)]);
    let text = String::from_utf8(sound.stdout).unwrap();
    assert_eq!(
        (sound.status.code(), text.trim_end().ends_with("there is no loss to accept")),
        (Some(0), true),
        "{text}"
    );
    let (file, offset, ..) = owner_of(&records(&data_dir));
    flip(&data_dir, &file, offset + 20, 1);
    server.restart().await;
    tokio::time::sleep(WAIT).await;
    let client = server.client();
    assert_eq!(client.get(&format!("{MAPS}/owner")).await.status, 404);
    assert_eq!(client.get(&format!("{MAPS}/dependent-9")).await.status, 200);
    assert_eq!(client.get("/readyz").await.text(), "ok");
    let ready = client.get("/readyz?verbose").await.text();
    assert!(
        ready.contains("store-losses 1 lost revisions and 0 unreadable records are not accepted"),
        "{ready}"
    );
    assert_eq!(metric(&server, "apiserver_store_unaccepted_lost_revisions").await, 1);
    assert_eq!(metric(&server, "apiserver_store_removing_controllers_off").await, 1);
    let way_out = format!("cluster-apiserver accept-loss --data-dir={}", data_dir.display());
    for said in ["the store has unreadable records", &way_out, "controller is off"] {
        server.until_logged(said, 1).await;
    }
    // Deletions that a client requests are carried out.
    assert_eq!(client.delete(&format!("{MAPS}/dependent-0")).await.status, 200);
    let running = tool(&["accept-loss", &flag("data-dir", &data_dir)]);
    let why = String::from_utf8(running.stderr).unwrap();
    assert!(running.status.code() == Some(1) && why.contains("is in use: stop the server"), "{why}");
    assert_eq!(server.terminate(), Some(0), "{}", server.log());

    // A backup, and a store restored from it, have the same losses.
    let copies = TempDir::new();
    let (backup, restored) = (copies.path().join("backup"), copies.path().join("restored"));
    let made = tool(&["backup", &flag("data-dir", &data_dir), &flag("to", &backup)]);
    assert_eq!(made.status.code(), Some(2), "{made:?}");
    let refused = tool(&["restore", &flag("from", &backup), &flag("data-dir", &restored)]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let made = tool(&["restore", "--skip-damaged", &flag("from", &backup), &flag("data-dir", &restored)]);
    let text = String::from_utf8(made.stdout.clone()).unwrap();
    assert!(
        made.status.code() == Some(2) && text.contains("stay off until the loss is accepted"),
        "{made:?}"
    );

    // After the loss is accepted in the store itself, everything except the requested object is deleted;
    // later damage is not accepted.
    let accepted = report(&["accept-loss", &flag("data-dir", &data_dir)]);
    assert_eq!(accepted["lost"].as_array().map(Vec::len), Some(1), "{accepted}");
    assert_eq!(accepted["damage"][0]["offset"], json!(offset), "{accepted}");
    let again = report(&["accept-loss", &flag("data-dir", &data_dir)]);
    assert_eq!((&again["lost"], &again["unreadable"]), (&json!([]), &json!([])), "{again}");
    server.restart().await;
    for n in 0..10 {
        server.client().until_gone(&format!("{MAPS}/dependent-{n}")).await;
    }
    let ready = server.client().get("/readyz?verbose").await.text();
    assert!(!ready.contains("store-losses"), "{ready}");
    assert_eq!(metric(&server, "apiserver_store_removing_controllers_off").await, 0);
    assert_eq!(server.terminate(), Some(0), "{}", server.log());
    let all = records(&data_dir);
    let (file, offset, ..) = all.iter().find(|(.., key)| key.ends_with("/things/default/owner")).unwrap();
    flip(&data_dir, file, offset + 20, 1);
    server.restart().await;
    tokio::time::sleep(WAIT).await;
    assert_eq!(server.client().get(&format!("{MAPS}/of-thing")).await.status, 200);
    assert_eq!(metric(&server, "apiserver_store_removing_controllers_off").await, 1);
    drop(server);

    // The restored store behaves in the same way.
    let directory = TempDir::new();
    fs::rename(restored.join("log"), directory.path().join("log")).unwrap();
    let mut server = Server::start_in(directory, Options::default()).await;
    tokio::time::sleep(WAIT).await;
    assert_eq!(metric(&server, "apiserver_store_removing_controllers_off").await, 1);
    for n in 1..10 {
        assert_eq!(server.client().get(&format!("{MAPS}/dependent-{n}")).await.status, 200);
    }
    assert_eq!(server.terminate(), Some(0), "{}", server.log());
    report(&["accept-loss", &flag("data-dir", server.data_dir())]);
    server.restart().await;
    server.client().until_gone(&format!("{MAPS}/dependent-1")).await;
}
