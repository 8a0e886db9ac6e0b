//! Registers with many writers on several servers: for each key, the acknowledged operations must form one
//! order that respects time.
//!
//! Each value is written once, so a read identifies the write that it returns. A history is checked by the versions:
//! writes of a key are ordered by their versions, and a read that begins after a write or another read has
//! ended never sees an older version. The checker itself is first tested with faulty histories.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tests::PATIENCE;

use super::cluster::Etcd;
use super::{MAPS, map, version};
use crate::support::Random;

const WRITERS: usize = 64;
pub(super) const KEYS: u64 = 4;
const TIME: Duration = Duration::from_secs(6);

/// An operation that got a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) key: u64,
    begun: Instant,
    ended: Instant,
    /// The version written or seen.
    pub(super) version: u64,
    /// The value written or seen.
    pub(super) value: u64,
    pub(super) writes: bool,
    /// The version that a write replaced.
    replaced: u64,
}

/// A list request that got a response.
#[derive(Clone, Debug)]
pub(super) struct List {
    begun: Instant,
    ended: Instant,
    /// Version of the list itself.
    version: u64,
    /// Version and value of each register.
    registers: Vec<(u64, u64)>,
}

/// All responses to the clients of a round.
#[derive(Default)]
pub(super) struct History {
    pub(super) operations: Vec<Operation>,
    pub(super) lists: Vec<List>,
}

impl History {
    /// Returns the problems of the history: of single registers, and of lists as states of all registers at
    /// one version.
    pub(super) fn check(&self) -> Vec<String> {
        let mut all = self.operations.clone();
        for list in &self.lists {
            // A list reads each register.
            all.extend(list.registers.iter().zip(0..).map(|(&(version, value), key)| Operation {
                key,
                begun: list.begun,
                ended: list.ended,
                version,
                value,
                writes: false,
                replaced: 0,
            }));
        }
        let mut wrong = check(&all);
        for list in &self.lists {
            for (&(version, _), key) in list.registers.iter().zip(0..) {
                if version > list.version {
                    wrong.push(format!("register {key} is newer than its list: {list:?}"));
                }
                let torn = |operation: &&Operation| {
                    operation.key == key && operation.version > version && operation.version <= list.version
                };
                if let Some(missed) = all.iter().find(torn) {
                    wrong.push(format!("{list:?} misses {missed:?}"));
                }
            }
            let known = self.lists.iter().filter(|other| other.ended < list.begun).map(|other| other.version);
            let written = self.operations.iter().filter(|one| one.ended < list.begun).map(|one| one.version);
            if known.chain(written).max() > Some(list.version) {
                wrong.push(format!("a newer version was known before {list:?}"));
            }
        }
        wrong
    }
}

/// Returns the problems of a history; empty if the versions are consistent with a linearizable history.
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
        // No operation sees an older version than an operation that ended before it began.
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
fn the_linearizability_checker_finds_planted_violations() {
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

#[test]
fn the_linearizability_checker_finds_planted_violations_in_lists() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let write = |ms, key, version, replaced| Operation {
        key,
        begun: at(ms),
        ended: at(ms + 1),
        version,
        value: version,
        writes: true,
        replaced,
    };
    let list = |ms, version, registers: [u64; 2]| List {
        begun: at(ms),
        ended: at(ms + 1),
        version,
        registers: registers.into_iter().map(|version| (version, version)).collect(),
    };
    let operations = || vec![write(0, 0, 5, 1), write(2, 1, 6, 2), write(4, 0, 7, 5)];
    let good = History { operations: operations(), lists: vec![list(1, 5, [5, 2]), list(6, 7, [7, 6])] };
    assert_eq!(good.check(), Vec::<String>::new());
    for (fault, faulty) in [
        ("a list is of no single state", list(3, 7, [5, 6])),
        ("a list is older than a write before it", list(6, 6, [5, 6])),
        ("an item is newer than its list", list(6, 6, [7, 6])),
        ("a list goes back behind another list", list(8, 5, [7, 6])),
    ] {
        let history = History { operations: operations(), lists: vec![list(6, 7, [7, 6]), faulty] };
        assert!(!history.check().is_empty(), "{fault}");
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
    let history = Arc::new(Mutex::new(History::default()));
    let count = || history.lock().operations.iter().filter(|operation| operation.writes).count();
    let begun = Instant::now();
    // A slow machine needs more rounds for enough writes. Each writer of a round has its own seed.
    for round in 0_u64.. {
        let until = Instant::now() + TIME;
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let client = servers[writer % servers.len()].client().another();
            let seed = round * WRITERS as u64 + writer as u64 + 1;
            writers.push(tokio::spawn(exercise(client, seed, until, history.clone())));
        }
        tokio::time::sleep(TIME / 3).await;
        servers[2].kill();
        servers[2].restart().await;
        for writer in writers {
            writer.await.unwrap();
        }
        if count() > 50 || begun.elapsed() > PATIENCE {
            break;
        }
    }
    let writes = count();
    let history = history.lock();
    let wrong = history.check();
    assert!(
        wrong.is_empty(),
        "{} faults in {} operations: {:#?}",
        wrong.len(),
        history.operations.len(),
        &wrong[..wrong.len().min(5)]
    );
    assert!(writes > 50, "{writes} writes of {} operations", history.operations.len());
}

/// Reads and writes registers on one server until the time is over. Each writer has its own `seed`.
pub(super) async fn exercise(client: tests::Client, seed: u64, until: Instant, history: Arc<Mutex<History>>) {
    let mut random = Random(seed);
    let mut count = 0_u64;
    while Instant::now() < until {
        if random.below(4) == 0 {
            let begun = Instant::now();
            if let Some(list) = list(&client, begun).await {
                history.lock().lists.push(list);
            }
        }
        let key = random.below(KEYS);
        let path = format!("{MAPS}/r{key}");
        let begun = Instant::now();
        let Some(read) = client.try_get(&path).await.filter(|read| read.status == 200) else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let ended = Instant::now();
        let mut object: Value = read.json();
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
        history.lock().operations.push(operation);
        count += 1;
        let value = seed * 1_000_000 + count;
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
            history.lock().operations.push(Operation {
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
}

/// Returns the value of a register.
pub(super) fn number(object: &Value) -> u64 {
    object["data"]["v"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Lists all registers; `None` if the server does not respond with a list.
pub(super) async fn list(client: &tests::Client, begun: Instant) -> Option<List> {
    let reply = client.try_get(MAPS).await.filter(|reply| reply.status == 200)?;
    let ended = Instant::now();
    let list = reply.json();
    let of = |key: u64| {
        let name = format!("r{key}");
        let item = list["items"].as_array()?.iter().find(|item| item["metadata"]["name"] == *name)?;
        Some((version(item), number(item)))
    };
    let registers: Option<Vec<_>> = (0..KEYS).map(of).collect();
    let registers = registers.expect("the list has all registers");
    Some(List { begun, ended, version: version(&list), registers })
}

impl List {
    /// Returns the newest version of a register.
    pub(super) fn newest(&self) -> u64 {
        self.registers.iter().map(|(version, _)| *version).max().unwrap_or(0)
    }
}

impl History {
    /// Returns a history with consecutive writes of the first register, by version and value.
    pub(super) fn of_writes(writes: &[(u64, u64)]) -> History {
        let mut replaced = 0;
        let operations = writes.iter().map(|&(version, value)| {
            let now = Instant::now();
            let before = std::mem::replace(&mut replaced, version);
            Operation { key: 0, begun: now, ended: now, version, value, writes: true, replaced: before }
        });
        History { operations: operations.collect(), lists: Vec::new() }
    }
}
