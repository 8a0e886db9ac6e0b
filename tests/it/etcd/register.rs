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
        writers.push(tokio::spawn(exercise(client, writer as u64 + 1, until, history.clone())));
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

/// Reads and writes registers on one server until the time is over. `seed` is another for each writer.
async fn exercise(client: tests::Client, seed: u64, until: Instant, history: Arc<Mutex<Vec<Operation>>>) {
    let mut random = Random(seed);
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
        let number =
            |object: &Value| object["data"]["v"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
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
}

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Nothing,
    /// A server is killed and started again.
    KillServer,
    /// A member is killed and started again.
    KillMember,
    /// A member stands still for a while.
    StopMember,
    /// What a member says and hears comes late.
    Delay,
    /// Connections of a member break off, again and again.
    Drop,
    /// etcd forgets its history.
    Compact,
}

const FAULTS: [Fault; 7] = [
    Fault::Nothing,
    Fault::KillServer,
    Fault::KillMember,
    Fault::StopMember,
    Fault::Delay,
    Fault::Drop,
    Fault::Compact,
];

/// One round of each fault, in an order that the seed says; more with `ETCD_ROUNDS`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registers_are_linearizable_whatever_goes_wrong() {
    let number =
        |name: &str, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (rounds, seed) = (number("ETCD_ROUNDS", FAULTS.len() as u64), number("ETCD_SEED", 1));
    let Some(mut etcd) = Etcd::start(3).await else { return };
    let proxies = etcd.proxies().await;
    let urls: Vec<&str> = proxies.iter().map(|proxy| proxy.url.as_str()).collect();
    let flags = vec![format!("--etcd-servers={}", urls.join(",")), "--controllers=".to_owned()];
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers
            .push(tests::Server::start(tests::Options { flags: flags.clone(), ..Default::default() }).await);
    }
    for key in 0..KEYS {
        let made = servers[0].client().post(MAPS, &map(&format!("r{key}"), "0")).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let (mut random, mut operations) = (Random(seed), 0);
    for round in 0..rounds {
        let fault = FAULTS[(round % FAULTS.len() as u64) as usize];
        let history = Arc::new(Mutex::new(Vec::new()));
        let until = Instant::now() + Duration::from_secs(3);
        let exercises: Vec<_> = (0..16)
            .map(|writer| {
                let client = servers[writer % servers.len()].client().another();
                tokio::spawn(exercise(client, round * 100 + writer as u64 + 1, until, history.clone()))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500 + random.below(500))).await;
        let victim = random.below(3) as usize;
        let lasts = Duration::from_millis(200 + random.below(1300));
        match fault {
            Fault::Nothing => {}
            Fault::KillServer => {
                servers[victim].kill();
                servers[victim].restart().await;
            }
            Fault::KillMember => {
                etcd.kill(victim);
                tokio::time::sleep(lasts).await;
                etcd.restart(victim);
            }
            Fault::StopMember => {
                etcd.pause_one(victim, true);
                tokio::time::sleep(lasts).await;
                etcd.pause_one(victim, false);
            }
            Fault::Delay => {
                proxies[victim].delay(random.below(400));
                tokio::time::sleep(lasts).await;
                proxies[victim].delay(0);
            }
            Fault::Drop => {
                for _ in 0..5 {
                    proxies[victim].cut();
                    tokio::time::sleep(lasts / 5).await;
                }
            }
            Fault::Compact => {
                let now = etcd.put("/unrelated", Vec::new()).await;
                etcd.client().compact(now).await.expect("etcd compacts");
            }
        }
        for exercise in exercises {
            exercise.await.unwrap();
        }
        etcd.answers().await;
        let history = history.lock();
        let wrong = check(&history);
        assert!(wrong.is_empty(), "round {round}, {fault:?}: {:#?}", &wrong[..wrong.len().min(5)]);
        operations += history.len();
        eprintln!("round {round}: {fault:?}, {} operations", history.len());
    }
    assert!(operations > 0, "nothing was written");
}
