//! Rounds with one failure each, while clients write, read, list and watch registers on three servers with three
//! members of etcd.
//!
//! After each round the test checks the history (`register.rs`) and the events of the watches: there must be no
//! duplicates, no wrong order and no missing events, even if a watch was resumed. When the stream of a watcher ends,
//! the watcher continues at the next server; after a 410 response it lists again. `ETCD_ROUNDS` sets the number of
//! rounds, `ETCD_SEED` their order, and `ETCD_ROUND_MS` their duration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tests::client::Watch;
use tests::{Client, Options, PATIENCE, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::cluster::{Etcd, pause};
use super::register::{History, KEYS, exercise, list, number};
use super::{MAPS, map, version};
use crate::support::Random;

/// Number of clients in a round.
const CLIENTS: usize = 16;

/// The failure of a round.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Nothing,
    /// A server is killed and started again.
    KillServer,
    /// A server is stopped for a while.
    StopServer,
    /// A member is killed and started again.
    KillMember,
    /// A member is stopped for a while.
    StopMember,
    /// The traffic of a member is delayed.
    Delay,
    /// Connections of a member are closed repeatedly.
    Drop,
    /// etcd is compacted during writes.
    Compact,
    /// etcd is compacted while connections break: the history is lost before a stream has received it.
    CompactBehind,
    /// etcd refuses writes: its NOSPACE alarm is raised, and later disarmed.
    Full,
}

const FAULTS: [Fault; 10] = [
    Fault::Nothing,
    Fault::KillServer,
    Fault::StopServer,
    Fault::KillMember,
    Fault::StopMember,
    Fault::Delay,
    Fault::Drop,
    Fault::Compact,
    Fault::CompactBehind,
    Fault::Full,
];

/// An event of a watcher, in the order of arrival.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WatchOutput {
    /// The version and value of a register.
    State { key: u64, version: u64, value: u64 },
    /// All events up to this version have arrived.
    Bookmark(u64),
    /// The watch lists again: states of a new version follow, and events in between may be missing.
    Begun,
}

#[derive(Default)]
struct Watcher {
    outputs: Vec<WatchOutput>,
    /// The newest version received, from which the watch resumes.
    at: u64,
    resumed: u64,
    begun_again: u64,
}

/// Returns the problems of a watcher's events compared with `history`, starting after `from`.
fn check_watch(outputs: &[WatchOutput], history: &History, from: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = BTreeMap::new();
    // Ranges of versions whose events may be missing because the watcher listed again.
    let mut excused: Vec<(u64, u64)> = Vec::new();
    let (mut at, mut begins) = (from, false);
    for one in outputs {
        match *one {
            WatchOutput::Begun => begins = true,
            // This bookmark ends the initial states.
            WatchOutput::Bookmark(version) if begins => {
                excused.push((at, version));
                (at, begins) = (version, false);
            }
            WatchOutput::Bookmark(version) if version < at => wrong.push(format!("{one:?} after {at}")),
            WatchOutput::Bookmark(version) => at = version,
            WatchOutput::State { version, value, .. } if begins => {
                seen.insert(version, value);
            }
            WatchOutput::State { version, value, .. } => {
                if version <= at {
                    wrong.push(format!("{one:?} after {at}"));
                }
                at = at.max(version);
                seen.insert(version, value);
            }
        }
    }
    for write in history.operations.iter().filter(|one| one.writes && one.version > from) {
        let is_excused = excused.iter().any(|(after, to)| (*after..=*to).contains(&write.version));
        match seen.get(&write.version) {
            None if is_excused => {}
            None => wrong.push(format!("a watch was not told of {write:?}")),
            Some(value) if *value != write.value => {
                wrong.push(format!("a watch was told {value}: {write:?}"));
            }
            Some(_) => {}
        }
    }
    wrong
}

#[test]
fn the_watch_checker_finds_planted_violations() {
    let state = |version| WatchOutput::State { key: 0, version, value: version };
    let history = History::of_writes(&[(5, 5), (6, 6), (9, 9)]);
    for good in [
        vec![state(5), state(6), WatchOutput::Bookmark(7), state(9)],
        vec![state(5), WatchOutput::Begun, state(6), WatchOutput::Bookmark(8), state(9)],
        vec![WatchOutput::Begun, state(9), WatchOutput::Bookmark(9)],
    ] {
        assert_eq!(check_watch(&good, &history, 4), Vec::<String>::new(), "{good:?}");
    }
    for (fault, outputs) in [
        ("an event is left out", vec![state(5), state(9)]),
        ("an event comes twice", vec![state(5), state(6), state(6), state(9)]),
        ("events change places", vec![state(6), state(5), state(9)]),
        ("an event comes after its bookmark", vec![state(5), WatchOutput::Bookmark(6), state(6), state(9)]),
        ("a bookmark goes back", vec![state(5), state(6), state(9), WatchOutput::Bookmark(8)]),
        (
            "another value is told",
            vec![state(5), WatchOutput::State { key: 0, version: 6, value: 1 }, state(9)],
        ),
        (
            "an event after a new beginning is lost",
            vec![WatchOutput::Begun, state(6), WatchOutput::Bookmark(7)],
        ),
    ] {
        assert!(!check_watch(&outputs, &history, 4).is_empty(), "{fault}");
    }
}

/// Watches the registers, at one server after the other, until the task is aborted.
async fn follow(first: usize, clients: Arc<Mutex<Vec<Client>>>, watcher: Arc<Mutex<Watcher>>) {
    let mut attempt = first;
    loop {
        let client = {
            let clients = clients.lock();
            clients[attempt % clients.len()].another()
        };
        attempt += 1;
        let at = watcher.lock().at;
        let from = match at {
            0 => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
            at => format!("resourceVersion={at}"),
        };
        let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true&{from}");
        let opened = tokio::time::timeout(PATIENCE, client.try_open("GET", &path, &[], b"")).await;
        let opened = opened.ok().and_then(Result::ok);
        if opened.as_ref().is_some_and(|response| response.status() == 410) {
            let mut watcher = watcher.lock();
            watcher.at = 0;
            watcher.begun_again += 1;
        } else if let Some(response) = opened.filter(|response| response.status() == 200) {
            if at == 0 {
                watcher.lock().outputs.push(WatchOutput::Begun);
            }
            let mut watch = Watch::new(response);
            while let Some(event) = watch.next().await {
                if !note(&mut watcher.lock(), &event) {
                    break;
                }
            }
            watcher.lock().resumed += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Records an event. Returns false if the stream cannot continue.
fn note(watcher: &mut Watcher, event: &Value) -> bool {
    let object = &event["object"];
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let Some(key) = name.strip_prefix('r').and_then(|key| key.parse().ok()) else { return true };
            let begins =
                watcher.outputs.iter().rev().find(|output| !matches!(output, WatchOutput::State { .. }));
            let begins = begins == Some(&WatchOutput::Begun) && watcher.at == 0;
            let version = version(object);
            watcher.outputs.push(WatchOutput::State { key, version, value: number(object) });
            if !begins {
                watcher.at = version;
            }
            true
        }
        Some("BOOKMARK") => {
            watcher.at = version(object);
            watcher.outputs.push(WatchOutput::Bookmark(watcher.at));
            true
        }
        _ => {
            let is_gone = object["code"] == 410 || event["code"] == 410;
            if is_gone {
                watcher.at = 0;
                watcher.begun_again += 1;
            }
            assert!(is_gone || object["code"].as_u64().is_some_and(|code| code >= 429), "{event}");
            false
        }
    }
}

/// Raises or disarms etcd's NOSPACE alarm through its JSON gateway.
async fn no_space(url: &str, raised: bool) {
    let host = url.trim_start_matches("http://");
    let action = if raised { "ACTIVATE" } else { "DEACTIVATE" };
    let body = format!("{{\"action\":\"{action}\",\"memberID\":\"1\",\"alarm\":\"NOSPACE\"}}");
    let request = format!(
        "POST /v3/maintenance/alarm HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(host).await.expect("the member listens");
    stream.write_all(request.as_bytes()).await.expect("the member reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the member answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Runs one round of each failure, in an order that depends on the seed. `ETCD_ROUNDS` sets another number of rounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registers_are_linearizable_under_every_failure() {
    let setting =
        |name: &str, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (rounds, seed) = (setting("ETCD_ROUNDS", FAULTS.len() as u64), setting("ETCD_SEED", 1));
    let lasting = Duration::from_millis(setting("ETCD_ROUND_MS", 1500));
    let Some(mut etcd) = Etcd::start(3).await else { return };
    let proxies = etcd.proxies().await;
    let urls: Vec<&str> = proxies.iter().map(|proxy| proxy.url.as_str()).collect();
    let flags = vec![format!("--etcd-servers={}", urls.join(",")), "--controllers=".to_owned()];
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(Options { flags: flags.clone(), ..Default::default() }).await);
    }
    for key in 0..KEYS {
        let made = servers[0].client().post(MAPS, &map(&format!("r{key}"), "0")).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let clients = Arc::new(Mutex::new(servers.iter().map(|server| server.client().another()).collect()));
    let watchers: Vec<Arc<Mutex<Watcher>>> = (0..3).map(|_| Arc::default()).collect();
    let following: Vec<_> = watchers
        .iter()
        .enumerate()
        .map(|(at, watcher)| tokio::spawn(follow(at, clients.clone(), watcher.clone())))
        .collect();
    let mut newest = settled(&servers).await;
    reach(&watchers, newest).await;
    watchers.iter().for_each(|watcher| watcher.lock().outputs.clear());
    let (mut random, mut operations) = (Random(seed), 0);
    for round in 0..rounds {
        let fault = FAULTS[(round % FAULTS.len() as u64) as usize];
        let history = Arc::new(Mutex::new(History::default()));
        let until = Instant::now() + lasting;
        let exercises: Vec<_> = (0..CLIENTS)
            .map(|writer| {
                let client = servers[writer % servers.len()].client().another();
                tokio::spawn(exercise(client, round * 100 + writer as u64 + 1, until, history.clone()))
            })
            .collect();
        tokio::time::sleep(lasting / 8 + Duration::from_millis(random.below(200))).await;
        let victim = random.below(3) as usize;
        let lasts = Duration::from_millis(100 + random.below(lasting.as_millis() as u64));
        match fault {
            Fault::Nothing => {}
            Fault::KillServer => {
                servers[victim].kill();
                servers[victim].restart().await;
                clients.lock()[victim] = servers[victim].client().another();
            }
            Fault::StopServer => {
                pause(servers[victim].pid(), true);
                tokio::time::sleep(lasts).await;
                pause(servers[victim].pid(), false);
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
            Fault::Compact | Fault::CompactBehind => {
                for _ in 0..5 {
                    if matches!(fault, Fault::CompactBehind) {
                        proxies.iter().for_each(super::cluster::Proxy::cut);
                    }
                    let now = etcd.put("/unrelated", Vec::new()).await;
                    etcd.client().compact(now).await.expect("etcd compacts");
                    tokio::time::sleep(lasts / 5).await;
                }
            }
            Fault::Full => {
                let url = etcd.urls().split(',').nth(victim).expect("the victim exists").to_owned();
                no_space(&url, true).await;
                tokio::time::sleep(lasts).await;
                no_space(&url, false).await;
            }
        }
        for exercise in exercises {
            exercise.await.unwrap();
        }
        etcd.answers().await;
        let from = newest;
        newest = settled(&servers).await;
        reach(&watchers, newest).await;
        let history = history.lock();
        let mut wrong = history.check();
        let (mut events, mut resumed, mut begun_again) = (0, 0, 0);
        for watcher in &watchers {
            let mut watcher = watcher.lock();
            let outputs = std::mem::take(&mut watcher.outputs);
            wrong.extend(check_watch(&outputs, &history, from));
            events += outputs.len();
            resumed += std::mem::take(&mut watcher.resumed);
            begun_again += std::mem::take(&mut watcher.begun_again);
        }
        let first = &wrong[..wrong.len().min(5)];
        assert!(wrong.is_empty(), "round {round}, {fault:?}, {} faults: {first:#?}", wrong.len());
        operations += history.operations.len();
        eprintln!(
            "round {round}: {fault:?}, {} operations, {} lists, {events} events, {resumed} resumed, {begun_again} begun again",
            history.operations.len(),
            history.lists.len()
        );
    }
    following.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(operations > 0, "the writers made no requests");
}

/// Waits until each server responds to a list, and returns the newest version of a register.
async fn settled(servers: &[Server]) -> u64 {
    let until = Instant::now() + 2 * PATIENCE;
    let mut newest = 0;
    for server in servers {
        let client = server.client().another();
        loop {
            if let Some(list) = list(&client, Instant::now()).await {
                newest = newest.max(list.newest());
                break;
            }
            assert!(Instant::now() < until, "{}", server.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    newest
}

/// Waits until each watcher has reached `version`.
async fn reach(watchers: &[Arc<Mutex<Watcher>>], version: u64) {
    let until = Instant::now() + 2 * PATIENCE;
    for watcher in watchers {
        while watcher.lock().at < version {
            assert!(Instant::now() < until, "a watch is at {}, not at {version}", watcher.lock().at);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
