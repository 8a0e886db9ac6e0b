//! Registers under many writers on several servers: what was acknowledged forms one order for each key that respects time.
//!
//! Each value is written once, so a read says which write it saw. A history is checked by the versions: writes of a key have
//! the order of their versions, and a read that begins after a write or another read has ended never sees an older version.
//! The checker is shown histories with planted faults first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use super::cluster::Etcd;
use super::{MAPS, map, version};
use crate::support::Random;

const WRITERS: usize = 64;
const KEYS: u64 = 4;
const TIME: Duration = Duration::from_secs(6);

/// One operation that was answered.
#[derive(Clone, Copy, Debug)]
struct Operation {
    key: u64,
    begun: Instant,
    ended: Instant,
    /// The version written or seen.
    version: u64,
    /// The value written or seen.
    value: u64,
    writes: bool,
    /// The version that a write replaced.
    replaced: u64,
}

/// What is wrong with a history; nothing: it is linearizable as far as versions tell.
fn check(history: &[Operation]) -> Vec<String> {
    let mut wrong = Vec::new();
    for key in 0..KEYS {
        let mut operations: Vec<&Operation> =
            history.iter().filter(|operation| operation.key == key).collect();
        // A version has one value, and a version is replaced once.
        let mut values = std::collections::BTreeMap::new();
        let mut replaced = std::collections::BTreeMap::new();
        for operation in &operations {
            if *values.entry(operation.version).or_insert(operation.value) != operation.value {
                wrong.push(format!("two values of one version: {operation:?}"));
            }
            if operation.writes && replaced.insert(operation.replaced, operation.version).is_some() {
                wrong.push(format!("a version was replaced twice: {operation:?}"));
            }
            if operation.writes && operation.version <= operation.replaced {
                wrong.push(format!("a write went back: {operation:?}"));
            }
        }
        // No operation sees less than what had ended before it began.
        operations.sort_by_key(|operation| operation.begun);
        let mut ended: Vec<&Operation> = operations.clone();
        ended.sort_by_key(|operation| operation.ended);
        let (mut newest, mut next) = (0, 0);
        for operation in operations {
            while next < ended.len() && ended[next].ended < operation.begun {
                newest = newest.max(ended[next].version);
                next += 1;
            }
            if operation.version < newest {
                wrong.push(format!("version {newest} was known before: {operation:?}"));
            }
        }
    }
    wrong
}

#[test]
fn the_checker_finds_planted_faults() {
    let start = Instant::now();
    let at = |begun: u64, ended: u64, version, value, writes, replaced| Operation {
        key: 0,
        begun: start + Duration::from_millis(begun),
        ended: start + Duration::from_millis(ended),
        version,
        value,
        writes,
        replaced,
    };
    let good = [
        at(0, 1, 5, 1, true, 4),
        at(2, 3, 6, 2, true, 5),
        at(1, 4, 5, 1, false, 0),
        at(4, 5, 6, 2, false, 0),
    ];
    assert_eq!(check(&good), Vec::<String>::new());
    for (fault, operation) in [
        ("an old state is read", at(6, 7, 5, 1, false, 0)),
        ("an update is lost", at(6, 7, 7, 3, true, 5)),
        ("a version has two values", at(6, 7, 6, 9, false, 0)),
        ("a write goes back", at(6, 7, 3, 9, true, 4)),
    ] {
        let history: Vec<Operation> = good.iter().copied().chain([operation]).collect();
        assert!(!check(&history).is_empty(), "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registers_are_linearizable_on_three_servers_while_one_is_killed() {
    let Some(etcd) = Etcd::start(3).await else { return };
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(etcd.server(&["--controllers="]).await);
    }
    for key in 0..KEYS {
        let made = servers[0].client().post(MAPS, &map(&format!("r{key}"), "0")).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let history = Arc::new(Mutex::new(Vec::new()));
    let until = Instant::now() + TIME;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let client = servers[writer % servers.len()].client().another();
        let history = history.clone();
        writers.push(tokio::spawn(async move {
            let mut random = Random(writer as u64 + 1);
            let mut count = 0_u64;
            while Instant::now() < until {
                let key = random.below(KEYS);
                let path = format!("{MAPS}/r{key}");
                let begun = Instant::now();
                let Some(read) = client.try_get(&path).await.filter(|read| read.status == 200) else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let ended = Instant::now();
                let mut object: Value = read.json();
                let number = |object: &Value| {
                    object["data"]["v"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
                };
                let seen = version(&object);
                let operation = Operation {
                    key,
                    begun,
                    ended,
                    version: seen,
                    value: number(&object),
                    writes: false,
                    replaced: 0,
                };
                history.lock().push(operation);
                count += 1;
                let value = (writer as u64 + 1) * 1_000_000 + count;
                object["data"]["v"] = value.to_string().into();
                let begun = Instant::now();
                let body = object.to_string();
                let json = [("content-type", "application/json")];
                let Some(reply) = client.try_send("PUT", &path, &json, body.as_bytes()).await else {
                    continue;
                };
                if reply.status == 200 {
                    let ended = Instant::now();
                    let version = version(&reply.json());
                    history.lock().push(Operation {
                        key,
                        begun,
                        ended,
                        version,
                        value,
                        writes: true,
                        replaced: seen,
                    });
                }
            }
        }));
    }
    tokio::time::sleep(TIME / 3).await;
    servers[2].kill();
    servers[2].restart().await;
    for writer in writers {
        writer.await.unwrap();
    }
    let history = history.lock();
    let writes = history.iter().filter(|operation| operation.writes).count();
    let wrong = check(&history);
    assert!(
        wrong.is_empty(),
        "{} faults in {} operations: {:#?}",
        wrong.len(),
        history.len(),
        &wrong[..wrong.len().min(5)]
    );
    assert!(writes > 50, "{writes} writes of {} operations", history.len());
}
