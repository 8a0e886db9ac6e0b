//! A full disk under load: writes are refused with the reason and have no effect, reads and watches continue,
//! and writes succeed again without a restart as soon as there is space.
//!
//! The log is on a small file system that the test mounts; without the permission to mount, the test
//! prints a message and passes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::SmallDisk;
use tests::client::Watch;
use tests::{Client, Options, PATIENCE, Server, TempDir};
use tokio::sync::mpsc::{Receiver, channel};

use crate::support::{from_environment, metric};

/// Size of the file system: room for the bootstrap objects and some hundred writes.
pub const DISK_BYTES: usize = 12 * 1024 * 1024;

/// Size of the file that occupies space on the file system until it is removed.
const BALLAST_BYTES: usize = 5 * 1024 * 1024;

/// Parallel writers, each with its own object.
const WRITERS: usize = 8;

/// Number of writes of each writer after there is space again. All these writes need much less space than the removed
/// file.
const WRITES_WITH_ROOM: usize = 5;

/// Size of the content of an object.
const FILL_BYTES: usize = 20_000;

/// Maximum number of events that wait for the test. The tests make fewer writes, so the task that reads a watch never
/// waits.
const EVENTS_MAX: usize = 100_000;

const PATH: &str = "/api/v1/namespaces/default/configmaps";
const REASON: &str = "no space left on the store's disk";

/// State shared by all writers.
#[derive(Default)]
struct Shared {
    /// Number of writers that were refused at least once.
    refused: AtomicUsize,
    /// Whether there is space again.
    room: AtomicBool,
}

/// The acknowledged writes of one writer, in order: version and tag.
type Acknowledged = Vec<(u64, String)>;

/// Writes an object repeatedly, until the disk has space again and some more writes have succeeded. Checks each refusal
/// and then tries the next write.
async fn write(client: Client, name: String, shared: Arc<Shared>) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let (mut refused, mut with_room) = (false, 0);
    for count in 0.. {
        let room = shared.room.load(Ordering::SeqCst);
        let tag = format!("{name}.{count}");
        let fill = tag.chars().cycle().take(FILL_BYTES).collect::<String>();
        let object = json!({"metadata": {"name": name}, "data": {"tag": tag, "fill": fill}});
        let reply = if acknowledged.is_empty() {
            client.post(PATH, &object).await
        } else {
            client.put(&format!("{PATH}/{name}"), &object).await
        };
        if reply.status == 503 {
            let status = reply.json();
            assert_eq!(status["reason"], "ServiceUnavailable", "{status}");
            assert!(status["message"].as_str().is_some_and(|message| message.contains(REASON)), "{status}");
            shared.refused.fetch_add(usize::from(!refused), Ordering::SeqCst);
            refused = true;
            // After a refusal, writers wait before they retry.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
        let version = reply.json()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        acknowledged.push((version, tag));
        with_room += usize::from(room);
        if with_room == WRITES_WITH_ROOM {
            break;
        }
    }
    acknowledged
}

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the next event of an object of the writers. Events of objects that the server writes are skipped.
async fn next_of_ours(watch: &mut Watch) -> Value {
    loop {
        let event = tokio::time::timeout(PATIENCE, watch.next()).await.expect("the watch continues");
        let event = event.expect("the watch has another event");
        if is_ours(&event["object"]) {
            return event;
        }
    }
}

/// Reads a watch in a task, because the server may compact the history that a slow watch has not read yet.
fn events_of_ours(mut watch: Watch) -> Receiver<Value> {
    let (seen, events) = channel(EVENTS_MAX);
    tokio::spawn(async move { while seen.send(next_of_ours(&mut watch).await).await.is_ok() {} });
    events
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("writer-"))
}

/// Returns name, version and tag of the stored objects.
async fn list(client: &Client) -> BTreeMap<String, (u64, String)> {
    let reply = client.get(PATH).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = reply.json()["items"].as_array().cloned().unwrap();
    let ours = items.iter().filter(|item| is_ours(item));
    ours.map(|item| {
        let version = text(&item["metadata"]["resourceVersion"]).parse().unwrap();
        (text(&item["metadata"]["name"]), (version, text(&item["data"]["tag"])))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_until_space_is_freed_and_reads_continue() {
    let directory = TempDir::new();
    let log = directory.path().join("log");
    let Some(disk) = SmallDisk::mount(&log, DISK_BYTES) else { return };
    let ballast = log.join("ballast");
    std::fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
    let mut server = Server::start_in(directory, Options::default()).await;
    // Unmount before the directory is removed.
    let _disk = disk;
    let client = server.client().clone();
    let start = client.get(PATH).await.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch_path = format!("{PATH}?watch=1&resourceVersion={start}");
    let watch = client.watch(&watch_path).await;
    let mut events = events_of_ours(watch);

    let shared = Arc::new(Shared::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| tokio::spawn(write(client.another(), format!("writer-{number}"), shared.clone())))
        .collect();
    until("every writer is refused", async || shared.refused.load(Ordering::SeqCst) == WRITERS).await;

    let reader = client.another();
    // Poll, because the server may have written a small record meanwhile.
    until("the server is not ready", async || reader.get("/readyz").await.status == 500).await;
    until("the readiness check names the reason", async || {
        let why = reader.get("/readyz/etcd").await;
        why.status == 500 && why.text().contains(REASON)
    })
    .await;
    assert_eq!(reader.get("/livez").await.status, 200);
    until("the metrics show the refusal", async || {
        metric(&server, "apiserver_store_refuses_writes").await == 1
    })
    .await;
    assert!(!list(&reader).await.is_empty());
    // A watch that begins now reads the objects from the log. The watch names no version, because history takes at most a
    // fourth of the disk, so the server may have compacted the version `start`.
    let mut late = reader.watch(&format!("{PATH}?watch=1")).await;
    assert_eq!(next_of_ours(&mut late).await["type"], json!("ADDED"));

    std::fs::remove_file(&ballast).unwrap();
    shared.room.store(true, Ordering::SeqCst);
    until("the server is ready again", async || reader.get("/readyz").await.status == 200).await;
    let (mut promised, mut last) = (BTreeMap::new(), BTreeMap::new());
    for (number, writer) in writers.into_iter().enumerate() {
        let name = format!("writer-{number}");
        let acknowledged =
            tokio::time::timeout(PATIENCE, writer).await.expect("writes resume").expect("no writer fails");
        last.insert(name.clone(), acknowledged.last().cloned().unwrap());
        for (version, tag) in acknowledged {
            let before = promised.insert(version, (name.clone(), tag));
            assert_eq!(before, None, "version {version} was given twice");
        }
    }

    // Acknowledged writes are stored once and in order, and refused writes are not stored.
    assert_eq!(list(&client).await, last);
    for (version, (name, tag)) in promised {
        let object = events.recv().await.expect("the watch continues")["object"].take();
        let metadata = &object["metadata"];
        assert_eq!(
            (&metadata["name"], &metadata["resourceVersion"]),
            (&json!(name), &json!(version.to_string()))
        );
        assert_eq!(object["data"]["tag"], json!(tag));
    }
    assert_eq!(metric(&server, "apiserver_store_refuses_writes").await, 0);
    let revision = metric(&server, "apiserver_store_revision").await;
    assert!(metric(&server, "apiserver_store_commits_total").await <= revision);
    assert!(last.values().all(|&(version, _)| version <= revision));
    // The same objects are stored after the process was killed.
    server.kill();
    server.restart().await;
    assert_eq!(list(server.client()).await, last);
}

/// Size of a file system that is large enough for the reserve, which takes at most a sixteenth of the free
/// space.
const LARGER_DISK_BYTES: usize = 512 * 1024 * 1024;

/// Number of objects that are deleted on the full disk, and the size of each.
const LARGE: (usize, usize) = (20, 900_000);

/// Fills the remaining space of a disk.
fn fill(ballast: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::options().create(true).append(true).open(ballast).unwrap();
    for len in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; len]).is_ok() {}
    }
}

fn reserve_files(log: &Path) -> usize {
    let names = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("reserve-")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_that_free_space_succeed_on_a_full_disk() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let directory = TempDir::new();
    let log = directory.path().join("log");
    let Some(disk) = SmallDisk::mount(&log, LARGER_DISK_BYTES) else { return };
    let flags = vec!["--history-retention=1s".to_owned()];
    let server = Server::start_in(directory, Options { flags, ..Options::default() }).await;
    let _disk = disk;
    let client = server.client().clone();
    let reserved = reserve_files(&log);
    assert!(reserved > 0, "the server reserves disk space");

    let large = |name: &str| json!({"metadata": {"name": name}, "data": {"k": "x".repeat(LARGE.1)}});
    for n in 0..LARGE.0 {
        let made = client.post(PATH, &large(&format!("large-{n}"))).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let kept = json!({"metadata": {"name": "kept", "finalizers": ["example.com/kept"]}});
    assert_eq!(client.post(PATH, &kept).await.status, 201);
    let lease = json!({"metadata": {"name": "alive"}, "spec": {"holderIdentity": "a"}});
    let made = client.post(LEASES, &lease).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let mut lease = made.json();

    let ballast = log.join("ballast");
    fill(&ballast);
    // Blocks that are allocated ahead of the log's end allow some more writes.
    until("writes are refused", async || {
        fill(&ballast);
        client.post(PATH, &large(&format!("more-{}", next_number()))).await.status == 503
    })
    .await;
    // While other clients keep trying to write, all objects are deleted, and leases are renewed.
    let rival = client.another();
    let trying = tokio::spawn(async move {
        let mut taken = 0;
        loop {
            let tried = rival.post(PATH, &json!({"metadata": {"generateName": "rival-"}})).await;
            assert!(matches!(tried.status, 201 | 503), "{}", tried.text());
            taken += usize::from(tried.status == 201);
            if taken > 0 {
                return taken;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for n in 0..LARGE.0 {
        let deleted = client.delete(&format!("{PATH}/large-{n}")).await;
        assert_eq!(deleted.status, 200, "{n}: {}", deleted.text());
        lease["spec"]["holderIdentity"] = format!("holder-{n}").into();
        let renewed = client.put(&format!("{LEASES}/alive"), &lease).await;
        assert_eq!(renewed.status, 200, "{n}: {}", renewed.text());
        lease = renewed.json();
    }
    let marked = client.delete(&format!("{PATH}/kept")).await;
    assert_eq!(marked.status, 200, "{}", marked.text());
    let freed =
        client.patch(&format!("{PATH}/kept"), "merge", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(freed.status, 200, "{}", freed.text());
    assert_eq!(client.get(&format!("{PATH}/kept")).await.status, 404);
    // The space of the deleted objects becomes free although the large file is still there, and all
    // requests succeed as before.
    assert_eq!(tokio::time::timeout(PATIENCE, trying).await.expect("writes resume").unwrap(), 1);
    until("the server is ready again", async || client.get("/readyz").await.status == 200).await;
    assert_eq!(reserve_files(&log), reserved);
}

/// Fills a small disk with ConfigMaps of this size, and checks that deletes succeed until writes resume.
async fn a_way_back(megabytes: usize, fill_bytes: usize) {
    let directory = TempDir::new();
    let log = directory.path().join("log");
    let Some(disk) = SmallDisk::mount(&log, megabytes << 20) else { return };
    let mut server = Server::start_in(directory, Options::default()).await;
    let _disk = disk;
    let client = server.client().clone();
    let made: Arc<Mutex<Vec<String>>> = Arc::default();
    let filling = (0..WRITERS).map(|writer| {
        let (client, made) = (client.another(), made.clone());
        tokio::spawn(async move {
            for n in 0.. {
                let name = format!("{writer}-{n}");
                let data = json!({"k": "x".repeat(fill_bytes)});
                let outcome = client.post(PATH, &json!({"metadata": {"name": name}, "data": data})).await;
                match outcome.status {
                    201 => made.lock().push(name),
                    503 => return,
                    _ => panic!("{}", outcome.text()),
                }
            }
        })
    });
    for filled in join_all(filling).await {
        filled.unwrap();
    }
    let mut left = std::mem::take(&mut *made.lock());
    let all = left.len();
    let start = client.get(PATH).await.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = client.watch(&format!("{PATH}?watch=1&resourceVersion={start}")).await;
    let probe = json!({"metadata": {"name": "probe"}, "data": {"k": "x".repeat(fill_bytes)}});
    let begun = Instant::now();
    loop {
        let tried = client.post(PATH, &probe).await;
        if tried.status == 201 {
            break;
        }
        assert_eq!(tried.status, 503, "{}", tried.text());
        assert!(left.len() > all / 3 && begun.elapsed() < PATIENCE, "{} of {all} are left", left.len());
        for _ in 0..(all / 300).max(1) {
            // Choose objects from all parts of the log.
            let name = left.swap_remove(left.len() * 7 / 11);
            let deleted = client.delete(&format!("{PATH}/{name}")).await;
            assert_eq!(deleted.status, 200, "{} of {all} are left: {}", left.len(), deleted.text());
            let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
            assert_eq!(
                (&event["type"], &event["object"]["metadata"]["name"]),
                (&json!("DELETED"), &json!(name))
            );
            assert_eq!(event["object"]["data"]["k"].as_str().map(str::len), Some(fill_bytes));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!(
        "{megabytes} MB, {fill_bytes} bytes: {} of {all} deleted until writes resumed, after {:?}",
        all - left.len(),
        begun.elapsed()
    );
    left.push("probe".to_owned());
    left.sort_unstable();
    let names = async |client: &Client| -> Vec<String> {
        let list = client.get(PATH).await.json();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let names = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        let mut names: Vec<_> = names.filter(|name| !name.ends_with(".crt")).collect();
        names.sort_unstable();
        names
    };
    assert!(names(&client).await == left);
    server.kill();
    server.restart().await;
    assert!(names(server.client()).await == left);
    assert_eq!(server.terminate(), Some(0));
}

/// Returns the size of the disk. `FULL_DISK_MEGABYTES` sets a larger size, for example 40, 80 or 200.
fn megabytes() -> usize {
    from_environment("FULL_DISK_MEGABYTES", 16)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_full_of_small_objects_is_emptied_by_deletes() {
    a_way_back(megabytes(), 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_full_of_large_objects_is_emptied_by_deletes() {
    a_way_back(megabytes().max(40), 900_000).await;
}

/// Returns a number for a name that was not used before.
fn next_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
