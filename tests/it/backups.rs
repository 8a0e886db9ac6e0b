//! Backups of a server under full load, and their restore. A backup has exactly the state at one revision, with every
//! write that was acknowledged before the backup began. The restored store continues at revisions that no client has
//! seen.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tests::server::{TempDir, binary};
use tests::{Client, Options, Server};

use crate::support::Random;

/// Parallel writers, each with its own connection and objects.
const WRITERS: usize = 64;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Name, version and content of each object.
type State = BTreeMap<String, (u64, Value)>;

pub fn tool(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).output().expect("the binary runs")
}

#[track_caller]
pub fn report(arguments: &[&str]) -> Value {
    let output = tool(&[arguments, &["--output=json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

pub fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Returns the contents of a list, by name.
fn state(list: &Value) -> State {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let entry = |item: &Value| {
        (item["metadata"]["name"].as_str().unwrap().to_owned(), (version(item), item["data"].clone()))
    };
    items.iter().map(entry).collect()
}

/// Creates, replaces and deletes objects until stopped. Returns the acknowledged writes by version: the name,
/// and the content of a write that is not a delete.
async fn write(
    number: usize,
    client: Client,
    stop: Arc<AtomicBool>,
) -> BTreeMap<u64, (String, Option<Value>)> {
    let mut random = Random(number as u64);
    let mut acknowledged = BTreeMap::new();
    let mut there = [false; 4];
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let at = random.below(4) as usize;
        let name = format!("w{number:02}-{at}");
        let data =
            json!({"count": format!("{number}.{count}"), "fill": "x".repeat(random.below(400) as usize)});
        let object = json!({"metadata": {"name": name}, "data": data});
        let path = format!("{MAPS}/{name}");
        let deletes = there[at] && random.below(5) == 0;
        let reply = match (there[at], deletes) {
            (false, _) => client.post(MAPS, &object).await,
            (true, false) => client.put(&path, &object).await,
            (true, true) => client.delete(&path).await,
        };
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
        if deletes {
            // The reply does not contain the version of the deletion. A new object later shows that the deletion
            // happened.
            there[at] = false;
        } else {
            acknowledged.insert(version(&reply.json()), (name, Some(data)));
            there[at] = true;
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_full_load_restores_to_exactly_the_state_at_its_revision() {
    // The history that is compared at the end must still be readable.
    let flags = vec!["--history-retention=24h".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| tokio::spawn(write(number, server.client().another(), stop.clone())))
        .collect();
    let (backups, restored) = (TempDir::new(), TempDir::new());
    let mut taken = Vec::new();
    for round in 0..4 {
        // Each backup must contain the writes acknowledged before it began.
        let marker = json!({"metadata": {"name": format!("marker-{round}")}});
        let marked = server.client().post(MAPS, &marker).await;
        assert_eq!(marked.status, 201, "{}", marked.text());
        let marked = version(&marked.json());
        // The backups alternate between the network and the directory, each with its own target.
        let (fixture, source, flags) = match round % 2 {
            0 => ("network", flag("kubeconfig", &server.kubeconfig()), &[][..]),
            _ => ("directory", flag("data-dir", server.data_dir()), &["--with-pki"][..]),
        };
        let fixture = backups.path().join(fixture);
        let target = flag("data-dir", &restored.path().join(round.to_string()));
        let (backup, verify, restore) = tokio::task::spawn_blocking(move || {
            let to = flag("to", &fixture);
            let backup = report(&[&["backup", &source, &to], flags].concat());
            let verify = report(&["verify", &flag("data-dir", &fixture)]);
            (backup, verify, report(&["restore", &flag("from", &fixture), &target]))
        })
        .await
        .unwrap();
        let revision = backup["revision"].as_u64().unwrap();
        assert!(revision >= marked, "{revision} < {marked}");
        assert_eq!((&verify["damages"], &verify["revision"]), (&json!(0), &json!(revision)));
        assert_eq!(restore["from_revision"], json!(revision));
        taken.push((revision, restore["revision"].as_u64().unwrap()));
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }

    for (round, (revision, bumped)) in taken.into_iter().enumerate() {
        let path = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
        let reply = server.client().get(&path).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let want = state(&reply.json());
        // The backup has every acknowledged write up to its revision, unless a later write replaced or deleted the
        // object.
        for (version, (name, data)) in acknowledged.range(..=revision) {
            if let Some((found, held)) = want.get(name).filter(|(found, _)| found <= version) {
                assert_eq!((found, Some(held)), (version, data.as_ref()), "{name}");
            }
        }
        let directory = restored.path().join(round.to_string());
        let lines = tool(&[
            "inspect",
            &flag("data-dir", &directory),
            "--values",
            "--output=json",
            "--prefix=/core/configmaps/default/",
        ]);
        let records = String::from_utf8(lines.stdout).unwrap();
        let got: State = records
            .lines()
            .map(|line| {
                let record: Value = serde_json::from_str(line).unwrap();
                let object = &record["value"];
                assert_eq!(record["revision"], json!(version(object)));
                (
                    object["metadata"]["name"].as_str().unwrap().to_owned(),
                    (version(object), object["data"].clone()),
                )
            })
            .collect();
        assert_eq!(got.len(), want.len());
        assert_eq!(got, want, "round {round}");
        if round == 3 {
            serve_again(&directory, &want, revision, bumped).await;
        }
    }
}

/// Starts a server on the restored store, and checks that it has the same objects at revisions that no client
/// has seen.
async fn serve_again(directory: &Path, want: &State, revision: u64, bumped: u64) {
    let fixture = TempDir::new();
    std::fs::remove_dir(fixture.path()).unwrap();
    std::fs::rename(directory, fixture.path()).unwrap();
    let server = Server::start_in(fixture, Options::default()).await;
    let client = server.client();
    let list = client.get(MAPS).await.json();
    assert!(state(&list).contains_key("kube-root-ca.crt"));
    assert_eq!(state(&list), *want);
    assert!(version(&list) >= bumped && bumped > revision, "{} {bumped} {revision}", version(&list));
    // Old watches, lists at an exact old version and old continue tokens get 410.
    for old in [1, revision - 1, revision, revision + 50, bumped - 1] {
        let reply = client.get(&format!("{MAPS}?watch=true&resourceVersion={old}")).await;
        let status = reply.json();
        let code = if reply.status == 200 { &status["object"]["code"] } else { &status["code"] };
        assert_eq!(code, &json!(410), "watch from {old}: {status}");
        let reply = client.get(&format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await;
        assert_eq!(reply.status, 410, "{old}: {}", reply.text());
        // A restored store begins a new history, and the answer names its first point.
        let reply = client.get(&format!("/as-of/{old}{MAPS}")).await;
        let status = reply.json();
        assert_eq!(reply.status, 410, "{old}: {status}");
        assert_eq!(status["details"]["causes"][0]["reason"], "OldestRevision");
        assert_eq!(status["details"]["causes"][0]["message"], bumped.to_string());
    }
    // A new list gives a version to continue from.
    let mut watch = client.watch(&format!("{MAPS}?watch=true&resourceVersion={}", version(&list))).await;
    let made = client.post(MAPS, &json!({"metadata": {"name": "after"}})).await;
    assert_eq!(watch.expect().await, ("ADDED".into(), "after".into(), version(&made.json()).to_string()));
    // Stored objects can be written as before.
    let (name, (old, _)) = want.iter().next().unwrap();
    let object =
        json!({"metadata": {"name": name, "resourceVersion": old.to_string()}, "data": {"new": "1"}});
    let put = client.put(&format!("{MAPS}/{name}"), &object).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert!(version(&put.json()) > bumped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_includes_the_history() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let map = |n: &str| json!({"metadata": {"name": "one"}, "data": {"n": n}});
    let first = version(&client.post(MAPS, &map("1")).await.json());
    let one = format!("{MAPS}/one");
    let second = version(&client.put(&one, &map("2")).await.json());
    assert_eq!(client.delete(&one).await.status, 200);
    let backups = TempDir::new();
    report(&["backup", &flag("data-dir", server.data_dir()), &flag("to", backups.path())]);
    drop(server);
    let server = Server::start_in(backups, Options::default()).await;
    for (revision, n) in [(first, "1"), (second, "2")] {
        let then = server.client().get(&format!("/as-of/{revision}{one}")).await;
        assert_eq!(then.json()["data"]["n"], n);
    }
    let log = server.client().get(&format!("/history{one}")).await.json();
    let operations: Vec<&Value> =
        log["items"].as_array().unwrap().iter().map(|item| &item["operation"]).collect();
    assert_eq!(operations, ["Delete", "Update", "Create"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backup_leaves_the_previous_backup() {
    let server = Server::start_upstream().await;
    let fill =
        |n: usize| json!({"metadata": {"name": format!("m{n}")}, "data": {"fill": "x".repeat(300_000)}});
    for n in 0..8 {
        assert_eq!(server.client().post(MAPS, &fill(n)).await.status, 201);
    }
    let backups = TempDir::new();
    let (from, to) = (flag("data-dir", server.data_dir()), flag("to", backups.path()));
    let first = report(&["backup", &from, &to]);
    let own = flag("data-dir", backups.path());
    let mut random = Random(7);
    for n in 8..20 {
        assert_eq!(server.client().post(MAPS, &fill(n)).await.status, 201);
        let mut child = Command::new(binary())
            .args(["backup", &from, &to])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        std::thread::sleep(std::time::Duration::from_micros(random.below(40_000)));
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
        // A complete backup remains, no matter when the command was killed: the new backup or an earlier one.
        let verified = report(&["verify", &own]);
        assert_eq!(verified["damages"], 0);
        assert!(verified["revision"].as_u64() >= first["revision"].as_u64(), "{verified}");
    }
    let last = report(&["backup", &from, &to]);
    let verified = report(&["verify", &own]);
    assert_eq!((&verified["revision"], &verified["damages"]), (&last["revision"], &json!(0)));
    let names: Vec<_> = std::fs::read_dir(backups.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name == "log.next"), "{names:?}");
}
