//! Fifty crashes with one data directory: the test kills the process at a random moment under the load of 64
//! writers, restarts the process, and checks every reply of the server.
//!
//! After a restart, each object must have its last acknowledged write or a later one. A write without a complete
//! reply must be stored completely or not at all. At the end the test reads the log through two watches: one begins
//! at an early revision, and one was resumed after each crash. Both watches must contain every change once and in
//! order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};
use tokio::sync::Barrier;

use crate::support::Random;

/// Number of crashes.
const ROUNDS: usize = 50;

/// Parallel writers, each with its own connection and objects.
const WRITERS: usize = 64;

/// Number of objects that each writer owns.
const OWN: u64 = 4;

/// Number of objects that all writers increment. Each increment is based on the version that the writer has read.
const SHARED: u64 = 4;

/// The final watch starts from a revision of this round.
const EARLY_ROUND: usize = 3;

/// Number of rounds between two resumptions of the long-lived watch.
const RESUME_EVERY: usize = 7;

/// Maximum size of a content, in bytes.
const FILL_BYTES_MAX: u64 = 12_000;

/// The collection that an object belongs to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    Map,
    Pod,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Map, Kind::Pod];

    fn path(self) -> &'static str {
        match self {
            Kind::Map => "/api/v1/namespaces/default/configmaps",
            Kind::Pod => "/api/v1/namespaces/default/pods",
        }
    }

    /// Returns the member of an object that holds its tag and the content derived from it.
    fn content(self, object: &Value) -> &Value {
        match self {
            Kind::Map => &object["data"],
            Kind::Pod => &object["metadata"]["annotations"],
        }
    }

    fn object(self, name: &str, tag: &str) -> Value {
        let content = content(tag);
        match self {
            Kind::Map => json!({"metadata": {"name": name}, "data": content}),
            Kind::Pod => json!({
                "metadata": {"name": name, "annotations": content},
                "spec": {"containers": [{"name": "c", "image": "i"}]}
            }),
        }
    }

    fn patch(self, tag: &str) -> Value {
        match self {
            Kind::Map => json!({"data": content(tag)}),
            Kind::Pod => json!({"metadata": {"annotations": content(tag)}}),
        }
    }
}

/// Derives the content from the tag, so that a partial write is detected.
fn content(tag: &str) -> Value {
    let mut random = Random(tag.bytes().fold(0, |hash: u64, byte| hash.wrapping_mul(131) ^ u64::from(byte)));
    let length = random.below(FILL_BYTES_MAX) as usize;
    let fill: String = (0..length.div_ceil(16)).map(|_| format!("{:016x}", random.next())).collect();
    json!({"tag": tag, "fill": fill[..length]})
}

/// Name of an object within its collection.
type Key = (Kind, String);

/// A known version of an object.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    version: u64,
    uid: String,
    tag: String,
}

impl Known {
    /// Reads an object and checks that it is complete.
    fn from_object(kind: Kind, object: &Value) -> Known {
        let text =
            |value: &Value| value.as_str().unwrap_or_else(|| panic!("incomplete object {object}")).to_owned();
        let metadata = &object["metadata"];
        let tag = text(&kind.content(object)["tag"]);
        assert_eq!(kind.content(object), &content(&tag), "the content of {tag} is not whole");
        Known {
            version: text(&metadata["resourceVersion"]).parse().unwrap(),
            uid: text(&metadata["uid"]),
            tag,
        }
    }
}

/// A write whose outcome is unknown.
#[derive(Clone, Debug)]
enum Unknown {
    Put(String),
    Delete,
}

/// An object under test: its last acknowledged version, and the later writes of unknown outcome.
#[derive(Clone, Debug, Default)]
struct Slot {
    acknowledged: Option<Known>,
    unknown: Vec<Unknown>,
}

/// Every reply of the server, over all rounds.
#[derive(Debug, Default)]
struct Acknowledged {
    /// Acknowledged puts by version.
    puts: BTreeMap<u64, (Key, String)>,
    /// Acknowledged deletions: uid, and the version if the reply contains it.
    deletes: BTreeMap<String, Option<u64>>,
    /// Tags of puts without a reply.
    unknown_puts: BTreeSet<String>,
    /// Objects whose deletion got no reply.
    unknown_deletes: BTreeSet<String>,
    /// Versions of shared objects that an acknowledged write was based on.
    bases: BTreeSet<u64>,
}

impl Acknowledged {
    fn newest(&self) -> u64 {
        let deletes = self.deletes.values().filter_map(|version| *version).max().unwrap_or(0);
        self.puts.last_key_value().map_or(0, |(version, _)| *version).max(deletes)
    }

    fn merge(&mut self, other: Acknowledged) {
        for (version, put) in other.puts {
            assert!(self.puts.insert(version, put).is_none(), "two writes were given version {version}");
        }
        for base in other.bases {
            assert!(self.bases.insert(base), "two writers replaced version {base}");
        }
        self.deletes.extend(other.deletes);
        self.unknown_puts.extend(other.unknown_puts);
        self.unknown_deletes.extend(other.unknown_deletes);
    }
}

/// A writer with its objects and the replies it got in this round.
struct Writer {
    number: usize,
    random: Random,
    slots: BTreeMap<Key, Slot>,
    writes: u64,
    acknowledged: Acknowledged,
}

impl Writer {
    fn new(number: usize, random: Random) -> Self {
        let slot = |i| {
            let kind = if i % OWN == OWN - 1 { Kind::Pod } else { Kind::Map };
            ((kind, format!("w{number:02}-{i}")), Slot::default())
        };
        Writer {
            number,
            random,
            slots: (0..OWN).map(slot).collect(),
            writes: 0,
            acknowledged: Acknowledged::default(),
        }
    }

    /// Writes until the connection breaks.
    async fn run(mut self, client: Client, connected: Arc<Barrier>) -> Self {
        client.get("/livez").await;
        connected.wait().await;
        loop {
            self.writes += 1;
            let goes_on = match self.random.below(8) {
                0 => self.count_up(&client).await,
                _ => self.write_own(&client).await,
            };
            if goes_on.is_none() {
                return self;
            }
        }
    }

    fn tag(&self) -> String {
        format!("{}.{}", self.number, self.writes)
    }

    /// Sends a write to an object of this writer; `None` if the connection broke.
    async fn write_own(&mut self, client: &Client) -> Option<()> {
        let key = self.slots.keys().nth(self.random.below(OWN) as usize).unwrap().clone();
        let (kind, name) = key.clone();
        let path = format!("{}/{name}", kind.path());
        let tag = self.tag();
        let known = self.slots[&key].acknowledged.clone();
        let json = [("content-type", "application/json")];
        let (reply, is_delete) = match &known {
            None => {
                let body = kind.object(&name, &tag).to_string();
                (client.try_send("POST", kind.path(), &json, body.as_bytes()).await, false)
            }
            Some(known) => match self.random.below(5) {
                0 => {
                    let options = json!({"preconditions": {"uid": known.uid}}).to_string();
                    (client.try_send("DELETE", &path, &json, options.as_bytes()).await, true)
                }
                1 => (client.try_send("DELETE", &path, &[], b"").await, true),
                2 => {
                    let merge = [("content-type", "application/merge-patch+json")];
                    (
                        client
                            .try_send("PATCH", &path, &merge, kind.patch(&tag).to_string().as_bytes())
                            .await,
                        false,
                    )
                }
                3 => {
                    let body = kind.object(&name, &tag).to_string();
                    (client.try_send("PUT", &path, &json, body.as_bytes()).await, false)
                }
                _ => {
                    let mut body = kind.object(&name, &tag);
                    body["metadata"]["resourceVersion"] = known.version.to_string().into();
                    (client.try_send("PUT", &path, &json, body.to_string().as_bytes()).await, false)
                }
            },
        };
        let slot = self.slots.get_mut(&key).unwrap();
        let Some(reply) = reply else {
            if is_delete {
                slot.unknown.push(Unknown::Delete);
                self.acknowledged.unknown_deletes.insert(known.unwrap().uid);
            } else {
                slot.unknown.push(Unknown::Put(tag.clone()));
                self.acknowledged.unknown_puts.insert(tag);
            }
            return None;
        };
        assert!(matches!(reply.status, 200 | 201), "{key:?}, known as {known:?}: {}", reply.text());
        let object = reply.json();
        if is_delete {
            let version =
                object["metadata"]["resourceVersion"].as_str().map(|version| version.parse().unwrap());
            self.acknowledged.deletes.insert(known.unwrap().uid, version);
            slot.acknowledged = None;
        } else {
            let now = Known::from_object(kind, &object);
            assert_eq!(now.tag, tag);
            assert!(known.is_none_or(|known| known.version < now.version && known.uid == now.uid));
            assert!(self.acknowledged.puts.insert(now.version, (key, tag)).is_none());
            slot.acknowledged = Some(now);
        }
        Some(())
    }

    /// Reads a shared object and increments it on the version that was read.
    async fn count_up(&mut self, client: &Client) -> Option<()> {
        let name = format!("shared-{}", self.random.below(SHARED));
        let path = format!("{}/{name}", Kind::Map.path());
        let read = client.try_send("GET", &path, &[], b"").await?;
        assert_eq!(read.status, 200, "{}", read.text());
        let mut object = read.json();
        let base = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let tag = format!("{}+{}", count_of(&Known::from_object(Kind::Map, &object).tag) + 1, self.tag());
        object["data"] = content(&tag);
        let headers = [("content-type", "application/json")];
        let Some(reply) = client.try_send("PUT", &path, &headers, object.to_string().as_bytes()).await else {
            self.acknowledged.unknown_puts.insert(tag);
            return None;
        };
        if reply.status == 409 {
            return Some(());
        }
        assert_eq!(reply.status, 200, "{}", reply.text());
        let now = Known::from_object(Kind::Map, &reply.json());
        assert_eq!(now.tag, tag);
        assert!(self.acknowledged.bases.insert(base));
        self.acknowledged.puts.insert(now.version, ((Kind::Map, name), tag));
        Some(())
    }

    /// Compares the stored objects with the acknowledged writes, and uses them as the known versions from
    /// here on.
    fn settle(&mut self, found: &BTreeMap<Key, Known>) {
        for (key, slot) in &mut self.slots {
            let is = found.get(key);
            let kept = is == slot.acknowledged.as_ref();
            let moved_on = slot.unknown.iter().any(|unknown| match (unknown, is) {
                (Unknown::Delete, is) => is.is_none(),
                (Unknown::Put(_), None) => false,
                (Unknown::Put(tag), Some(is)) => {
                    let before = slot.acknowledged.as_ref();
                    *tag == is.tag
                        && before.is_none_or(|known| known.version < is.version && known.uid == is.uid)
                }
            });
            assert!(kept || moved_on, "{key:?} is {is:?} after {slot:?}");
            *slot = Slot { acknowledged: is.cloned(), unknown: Vec::new() };
        }
    }
}

fn count_of(tag: &str) -> u64 {
    tag.split('+').next().unwrap().parse().unwrap()
}

/// Returns all stored objects, by name.
async fn list(client: &Client) -> (BTreeMap<Key, Known>, u64) {
    let (mut found, mut newest) = (BTreeMap::new(), 0);
    for kind in Kind::ALL {
        let reply = client.get(kind.path()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let list = reply.json();
        for object in list["items"].as_array().unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let is_ours = name.starts_with('w') || name.starts_with("shared-") || name == MARKER;
            if is_ours {
                let known = Known::from_object(kind, object);
                newest = newest.max(known.version);
                assert!(found.insert((kind, name), known).is_none());
            }
        }
        newest = newest.max(list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap());
    }
    (found, newest)
}

/// The object that is written after each restart.
const MARKER: &str = "marker";

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    kind: String,
    name: String,
    known: Known,
}

/// Reads a collection's events after `version` up to the event of version `last`.
async fn replay(client: &Client, kind: Kind, version: u64, last: u64) -> Vec<Event> {
    let mut watch = client.watch(&format!("{}?watch=1&resourceVersion={version}", kind.path())).await;
    let mut events = Vec::new();
    let mut newest = version;
    while newest < last {
        let next = tokio::time::timeout(PATIENCE, watch.next()).await;
        let event =
            next.unwrap_or_else(|_| panic!("the watch from {version} stopped at {newest}, before {last}"));
        let event =
            event.unwrap_or_else(|| panic!("the watch from {version} ended at {newest}, before {last}"));
        assert_ne!(event["type"], "ERROR", "{event}");
        let object = &event["object"];
        let known = Known::from_object(kind, object);
        assert!(known.version > newest, "version {} came after {newest}", known.version);
        newest = known.version;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events.push(Event { kind: text(&event["type"]), name: text(&object["metadata"]["name"]), known });
    }
    assert_eq!(newest, last);
    events
}

/// Checks that the events after `from` contain the acknowledged writes after `from`, in order, and that every other
/// event was requested.
fn check_history(
    kind: Kind,
    from: u64,
    start: &BTreeMap<Key, Known>,
    events: &[Event],
    acknowledged: &Acknowledged,
) {
    let mut state: BTreeMap<&str, Known> = BTreeMap::new();
    for ((of, name), known) in start {
        if *of == kind && name != MARKER {
            state.insert(name, known.clone());
        }
    }
    let (mut seen_tags, mut seen_deletes) = (BTreeSet::new(), BTreeSet::new());
    let mut kept = 0;
    for event in events.iter().filter(|event| event.name != MARKER) {
        let Event { kind: what, name, known } = event;
        let before = state.get(name.as_str());
        match what.as_str() {
            "ADDED" => assert_eq!(before, None, "{event:?}"),
            "MODIFIED" => assert_eq!(before.map(|before| &before.uid), Some(&known.uid), "{event:?}"),
            "DELETED" => {
                let last = before.unwrap_or_else(|| panic!("{name} was deleted, but did not exist"));
                assert_eq!((&last.uid, &last.tag), (&known.uid, &known.tag), "{event:?}");
            }
            other => panic!("{other}: {event:?}"),
        }
        if what == "DELETED" {
            state.remove(name.as_str());
            assert!(seen_deletes.insert(&known.uid), "{event:?} came twice");
            match acknowledged.deletes.get(&known.uid) {
                Some(Some(version)) => assert_eq!(*version, known.version, "{event:?}"),
                Some(None) => {}
                None => {
                    assert!(acknowledged.unknown_deletes.contains(&known.uid), "not requested: {event:?}")
                }
            }
            continue;
        }
        if name.starts_with("shared-") {
            let last = before.unwrap_or_else(|| panic!("{name} is not created before the first crash"));
            assert_eq!(
                count_of(&known.tag),
                count_of(&last.tag) + 1,
                "an update of {name} was lost: {event:?}"
            );
        }
        assert!(seen_tags.insert(&known.tag), "{event:?} came twice");
        match acknowledged.puts.get(&known.version) {
            Some(((of, key), tag)) => {
                assert_eq!((*of, key, tag), (kind, name, &known.tag));
                kept += 1;
            }
            None => assert!(acknowledged.unknown_puts.contains(&known.tag), "not requested: {event:?}"),
        }
        state.insert(name, known.clone());
    }
    let expected = acknowledged.puts.range(from + 1..).filter(|(_, ((of, _), _))| *of == kind).count();
    assert_eq!(kept, expected, "some acknowledged puts are missing from the history of {kind:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_crashes_lose_no_acknowledged_write() {
    let seed = std::env::var("CRASH_SEED").ok().map(|text| text.parse().expect("CRASH_SEED is a number"));
    let seed = seed.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_nanos() as u64 & 0xffff_ffff
    });
    eprintln!("to choose the same way again: CRASH_SEED={seed}");
    let mut random = Random(seed);
    let mut server = Server::start(Options::default()).await;
    for i in 0..SHARED {
        let created =
            server.client().post(Kind::Map.path(), &Kind::Map.object(&format!("shared-{i}"), "0+")).await;
        assert_eq!(created.status, 201, "{}", created.text());
    }
    let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(number, random.fork())).collect();
    let mut acknowledged = Acknowledged::default();
    let mut early = None;
    let mut resumed: Vec<Event> = Vec::new();

    for round in 0..ROUNDS {
        let connected = Arc::new(Barrier::new(WRITERS + 1));
        let running: Vec<_> = writers
            .drain(..)
            .map(|writer| tokio::spawn(writer.run(server.client().another(), connected.clone())))
            .collect();
        connected.wait().await;
        tokio::time::sleep(Duration::from_millis(50 + random.below(250))).await;
        server.kill();
        for writer in running {
            writers.push(writer.await.unwrap());
        }
        if round % 10 == 9 {
            // The next start is killed as well, during its recovery.
            server.start_and_kill(Duration::from_millis(random.below(60)));
        }
        server.restart().await;

        let (found, newest) = list(server.client()).await;
        for writer in &mut writers {
            acknowledged.merge(std::mem::take(&mut writer.acknowledged));
            writer.settle(&found);
        }
        check_shared(&found, &acknowledged);
        let alive: usize =
            writers.iter().map(|w| w.slots.values().filter(|s| s.acknowledged.is_some()).count()).sum();
        let markers = found.keys().filter(|(_, name)| name == MARKER).count();
        assert_eq!(found.len(), alive + SHARED as usize + markers, "an object exists that no writer created");

        // Revisions continue above every revision ever returned.
        let marker = mark(server.client(), Kind::Map, round).await;
        assert!(marker > newest.max(acknowledged.newest()), "round {round}: {marker} after {newest}");
        if round == EARLY_ROUND {
            early = Some((marker, list(server.client()).await.0));
        } else if round > EARLY_ROUND && round % RESUME_EVERY == 0 {
            let (from, _) = early.as_ref().unwrap();
            let from = resumed.last().map_or(*from, |event| event.known.version);
            resumed.extend(replay(server.client(), Kind::Map, from, marker).await);
        }
    }

    let (from, start) = early.unwrap();
    let client = server.client();
    let ends = [mark(client, Kind::Map, ROUNDS).await, mark(client, Kind::Pod, ROUNDS).await];
    for (kind, end) in Kind::ALL.into_iter().zip(ends) {
        let events = replay(client, kind, from, end).await;
        check_history(kind, from, &start, &events, &acknowledged);
        if kind == Kind::Map {
            let since = resumed.last().unwrap().known.version;
            resumed.extend(replay(client, kind, since, end).await);
            assert_eq!(resumed, events, "a resumed watch received different events");
        }
    }
    assert!(
        acknowledged.puts.len() > 1000
            && acknowledged.deletes.len() > 100
            && !acknowledged.unknown_puts.is_empty(),
        "the test made too few requests"
    );
    eprintln!(
        "{} puts and {} deletions were acknowledged",
        acknowledged.puts.len(),
        acknowledged.deletes.len()
    );
    assert_eq!(server.terminate(), Some(0));
}

/// Writes the marker and returns its version.
async fn mark(client: &Client, kind: Kind, round: usize) -> u64 {
    let object = kind.object(MARKER, &format!("round-{round}"));
    let mut reply = client.put(&format!("{}/{MARKER}", kind.path()), &object).await;
    if reply.status == 404 {
        reply = client.post(kind.path(), &object).await;
    }
    assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    Known::from_object(kind, &reply.json()).version
}

/// Checks that shared objects are at the newest acknowledged version, or at a later one that was requested.
fn check_shared(found: &BTreeMap<Key, Known>, acknowledged: &Acknowledged) {
    for i in 0..SHARED {
        let key = (Kind::Map, format!("shared-{i}"));
        let is = found.get(&key).unwrap_or_else(|| panic!("{key:?} is gone"));
        let Some((version, (_, tag))) = acknowledged.puts.iter().rev().find(|(_, (of, _))| *of == key) else {
            continue;
        };
        if is.version == *version {
            assert_eq!(&is.tag, tag);
        } else {
            assert!(
                is.version > *version && acknowledged.unknown_puts.contains(&is.tag),
                "{is:?} after {version}, {tag}"
            );
        }
    }
}
