//! A random sequence of changes on a server, compared with a model of the history. The model consists of the events of
//! watches, and of lists that were recorded while they were current. A read at a retained point must return exactly the
//! recorded state; a read at any other point must return 410.
//!
//! `HISTORY_STEPS=1000000` runs more steps, and `HISTORY_SEED` selects another sequence.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::Watch;
use tests::{Client, Options, PATIENCE, Reply, Server, TempDir};

use crate::backups::{flag, report, version};
use crate::definitions::{DEFINITIONS, establish};
use crate::support::{Random, from_environment};

/// Default number of steps; `HISTORY_STEPS` sets another number.
const STEPS: usize = 2_500;
const NAMES: u64 = 12;
const NAMESPACES: [&str; 3] = ["default", "one", "two"];
/// Maximum number of recorded lists; the oldest lists are dropped first.
const RECORDED_MAX: usize = 40;

const GEARS: &str = "/apis/m.example.com/v1/namespaces/default/gears";
const GEAR_DEFINITION: &str = "gears.m.example.com";
/// Requests whose answers are recorded while they are current.
const RECORDED: [&str; 5] = [
    GEARS,
    "/apis/m.example.com/v2/gears",
    "/apis/m.example.com",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gears.m.example.com",
    "/api/v1/configmaps?limit=3",
];

/// A collection whose history a watch reports.
struct Collection {
    /// Path of the collection in all namespaces.
    path: &'static str,
    watch: Option<Watch>,
    /// The first revision that the model contains.
    known_from: u64,
    /// The last revision that the model contains.
    known_to: u64,
    /// Versions of each object by path: revision, and the object unless it was deleted.
    objects: BTreeMap<String, Vec<(u64, Option<Value>)>>,
}

impl Collection {
    fn new(path: &'static str) -> Collection {
        Collection { path, watch: None, known_from: 0, known_to: 0, objects: BTreeMap::new() }
    }

    /// Returns the path of an object of this collection.
    fn path_of(&self, object: &Value) -> String {
        let (root, plural) = self.path.rsplit_once('/').unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
            None => format!("{root}/{plural}/{name}"),
        }
    }

    /// Begins a watch after the last revision in the model, or with a list of the newest state.
    async fn open(&mut self, client: &Client) {
        if self.known_to > 0 {
            let path = format!("{}?watch=1&resourceVersion={}", self.path, self.known_to);
            self.watch = Some(client.watch(&path).await);
            return;
        }
        let list = client.get(self.path).await.json();
        let kind = list["kind"].as_str().unwrap().trim_end_matches("List").to_owned();
        let revision = version(&list);
        (self.known_from, self.known_to) = (revision, revision);
        self.objects.clear();
        for mut item in list["items"].as_array().unwrap().iter().cloned() {
            (item["kind"], item["apiVersion"]) = (json!(kind), list["apiVersion"].clone());
            self.objects.insert(self.path_of(&item), vec![(version(&item), Some(item))]);
        }
        let path = format!("{}?watch=1&resourceVersion={revision}", self.path);
        self.watch = Some(client.watch(&path).await);
    }

    /// Reads events until the model contains `revision`.
    async fn follow(&mut self, client: &Client, revision: u64) {
        while self.known_to < revision {
            if self.watch.is_none() {
                self.open(client).await;
                continue;
            }
            let next = self.watch.as_mut().unwrap().next();
            let event = tokio::time::timeout(PATIENCE, next).await.expect("a write has an event");
            let (is_deleted, object) = match event {
                Some(mut event) if event["type"] != "ERROR" => {
                    (event["type"] == "DELETED", event["object"].take())
                }
                Some(event) => {
                    // The history that the watch needs is compacted, so the model begins again.
                    assert_eq!(event["object"]["code"], 410, "{event}");
                    (self.watch, self.known_to) = (None, 0);
                    continue;
                }
                None => {
                    self.watch = None;
                    continue;
                }
            };
            self.known_to = version(&object);
            let state = (!is_deleted).then(|| object.clone());
            self.objects.entry(self.path_of(&object)).or_default().push((self.known_to, state));
        }
    }

    fn at(&self, revision: u64) -> impl Iterator<Item = (&str, &Value)> {
        self.objects.iter().filter_map(move |(path, versions)| {
            let before = versions.partition_point(|(at, _)| *at <= revision);
            Some((path.as_str(), versions[before.checked_sub(1)?].1.as_ref()?))
        })
    }

    /// Drops versions that no readable revision shows.
    fn forget(&mut self, oldest: u64) {
        self.known_from = self.known_from.max(oldest);
        for versions in self.objects.values_mut() {
            let first = versions.partition_point(|(at, _)| *at <= oldest).saturating_sub(1);
            versions.drain(..first);
        }
        self.objects
            .retain(|_, versions| versions.len() > 1 || versions[0].1.is_some() || versions[0].0 >= oldest);
    }
}

/// Sends a server-side apply.
async fn applied(client: &Client, path: &str, object: &Value) -> Reply {
    let path = format!("{path}?fieldManager=model&force=true");
    let headers = [("content-type", "application/apply-patch+yaml")];
    client.send("PATCH", &path, &headers, object.to_string().as_bytes()).await
}

/// Answers that were recorded at a revision.
struct Recorded {
    revision: u64,
    answers: Vec<(u16, String)>,
}

struct Life {
    server: Server,
    random: Random,
    collections: Vec<Collection>,
    recorded: Vec<Recorded>,
    /// The oldest point that an answer named.
    oldest: u64,
    has_definition: bool,
    counts: BTreeMap<&'static str, u64>,
}

const MAPS: usize = 0;
const PODS: usize = 1;
const EVENTS: usize = 2;
const NAMESPACED: [&str; 3] = ["configmaps", "pods", "events"];

impl Life {
    async fn begin(seed: u64) -> Life {
        let flags =
            ["--history-bytes-max=400Ki", "--event-ttl=2s", "--disable-admission-plugins=ServiceAccount"];
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let server = Server::start(Options { flags, ..Options::default() }).await;
        let mut collections: Vec<Collection> =
            ["/api/v1/configmaps", "/api/v1/pods", "/api/v1/events", "/api/v1/namespaces"]
                .into_iter()
                .map(Collection::new)
                .collect();
        for collection in &mut collections {
            collection.open(server.client()).await;
        }
        let (random, counts) = (Random(seed), BTreeMap::new());
        Life { server, random, collections, recorded: Vec::new(), oldest: 0, has_definition: false, counts }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn client(&self) -> Client {
        self.server.client().clone()
    }

    fn path(&mut self, kind: usize) -> (String, String) {
        let namespace = NAMESPACES[self.random.below(3) as usize];
        let collection = format!("/api/v1/namespaces/{namespace}/{}", NAMESPACED[kind]);
        let name = format!("m{:02}", self.random.below(NAMES));
        (collection, name)
    }

    /// Writes an object, and compares the answer with the event.
    async fn write(&mut self) {
        let client = self.client();
        let kind = match self.random.below(10) {
            0..7 => MAPS,
            7..9 => PODS,
            _ => EVENTS,
        };
        let (collection, name) = self.path(kind);
        let path = format!("{collection}/{name}");
        let fill = "x".repeat(self.random.below(600) as usize);
        let number = self.random.below(1 << 30).to_string();
        let labels = json!({"group": (self.random.below(3)).to_string()});
        let metadata = json!({"name": name, "labels": labels});
        let reply = match (kind, self.random.below(8)) {
            (MAPS, 0..3) => {
                let map = json!({"metadata": metadata, "data": {"n": number, "fill": fill}});
                client.put(&path, &map).await
            }
            (MAPS, 3..5) => client.patch(&path, "merge", &json!({"data": {"n": number}})).await,
            (MAPS, 5) => {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"applied": number},
                });
                applied(&client, &path, &map).await
            }
            (MAPS, 6) => {
                client.post(&collection, &json!({"metadata": metadata, "data": {"n": number}})).await
            }
            (PODS, 0..4) => {
                let status = json!({"status": {"message": number, "phase": "Running"}});
                client.patch(&format!("{path}/status"), "merge", &status).await
            }
            (PODS, 4..7) => {
                let spec = json!({"containers": [{"name": "c", "image": format!("i:{number}")}]});
                client.post(&collection, &json!({"metadata": metadata, "spec": spec})).await
            }
            (EVENTS, 0..7) => {
                let namespace = collection.split('/').nth(4).unwrap();
                let about = json!({"kind": "Pod", "name": "m01", "namespace": namespace});
                let event = json!({
                    "metadata": {"generateName": "m"}, "involvedObject": about, "reason": "Model", "message": number,
                    "type": "Normal",
                });
                client.post(&collection, &event).await
            }
            _ => client.delete(&format!("{path}?gracePeriodSeconds=0")).await,
        };
        assert!(matches!(reply.status, 200 | 201 | 403 | 404 | 409), "{path}: {}", reply.text());
        let object = reply.json();
        // The answer of a delete has the version of the deletion or the version of the state before
        // the deletion.
        let has_version = object["metadata"]["resourceVersion"].is_string();
        if reply.status < 300 && has_version {
            self.collections[kind].follow(&client, version(&object)).await;
            self.count("write");
        }
    }

    /// Creates or deletes a namespace; its content follows in the background.
    async fn change_namespace(&mut self) {
        let (client, name) = (self.client(), NAMESPACES[1 + self.random.below(2) as usize]);
        if self.random.below(2) == 0 {
            client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        } else if client.delete(&format!("/api/v1/namespaces/{name}")).await.status == 200 {
            client.until_gone(&format!("/api/v1/namespaces/{name}")).await;
            self.count("namespace deletion");
        }
    }

    /// Changes the custom type or its objects.
    async fn change_custom(&mut self) {
        let client = self.client();
        let definition = format!("{DEFINITIONS}/{GEAR_DEFINITION}");
        if !self.has_definition {
            let schema =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            let version =
                |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": schema});
            let object = crate::definitions::definition("gears", json!([version("v1"), version("v2")]));
            let mut object = object;
            object["metadata"]["name"] = GEAR_DEFINITION.into();
            object["spec"]["group"] = "m.example.com".into();
            establish(&self.server, &object).await;
            self.has_definition = true;
            return self.count("definition");
        }
        match self.random.below(12) {
            0 => {
                assert_eq!(client.delete(&definition).await.status, 200);
                client.until_gone(&definition).await;
                self.has_definition = false;
            }
            1 => {
                let served = self.random.below(2) == 0;
                let patch = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": served}]);
                assert_eq!(client.patch(&definition, "json", &patch).await.status, 200);
                self.count("definition change");
            }
            _ => {
                let name = format!("g{}", self.random.below(4));
                let gear = json!({
                    "apiVersion": "m.example.com/v1", "kind": "Gear", "metadata": {"name": name},
                    "spec": {"size": self.random.below(1_000)},
                });
                let reply = applied(&client, &format!("{GEARS}/{name}"), &gear).await;
                assert!(matches!(reply.status, 200 | 201 | 404), "{}", reply.text());
            }
        }
    }

    /// Returns the newest revision.
    async fn revision(&self) -> u64 {
        version(&self.server.client().get("/api/v1/namespaces/default/configmaps?limit=1").await.json())
    }

    /// Records answers, all of which show the newest revision.
    async fn record(&mut self) {
        let (client, revision) = (self.client(), self.revision().await);
        let mut answers = Vec::new();
        for path in RECORDED {
            let reply = client.get(path).await;
            answers.push((reply.status, reply.text()));
        }
        if self.revision().await == revision {
            self.recorded.push(Recorded { revision, answers });
            self.count("record");
        }
        if self.recorded.len() > RECORDED_MAX {
            self.recorded.remove(0);
        }
    }

    /// Notes the oldest point that an answer for `revision` names. Returns whether the answer is a refusal.
    fn is_refused(&mut self, revision: u64, status: u16, body: &Value) -> bool {
        if status != 410 {
            assert!(revision >= self.oldest, "{revision} is readable, but {} was the oldest", self.oldest);
            return false;
        }
        let causes = body["details"]["causes"].as_array().unwrap();
        let oldest = causes.iter().find(|cause| cause["reason"] == "OldestRevision").unwrap();
        let oldest: u64 = oldest["message"].as_str().unwrap().parse().unwrap();
        assert!(revision < oldest, "{revision} was refused, but {oldest} is readable");
        assert!(oldest >= self.oldest, "the oldest revision does not decrease");
        self.oldest = oldest;
        self.collections.iter_mut().for_each(|collection| collection.forget(oldest));
        self.count("refused point");
        true
    }

    async fn read_recorded(&mut self) {
        if self.recorded.is_empty() {
            return;
        }
        let client = self.client();
        let at = self.random.below(self.recorded.len() as u64) as usize;
        let request = self.random.below(RECORDED.len() as u64) as usize;
        let Recorded { revision, ref answers } = self.recorded[at];
        let (status, text) = answers[request].clone();
        let reply = client.get(&format!("/as-of/{revision}{}", RECORDED[request])).await;
        if self.is_refused(revision, reply.status, &serde_json::from_str(&reply.text()).unwrap_or_default()) {
            self.recorded.remove(at);
            return;
        }
        assert_eq!((reply.status, reply.text()), (status, text), "{} at {revision}", RECORDED[request]);
        self.count("recorded answer");
    }

    /// Reads a collection, an object, or the history of an object, at a revision that the model contains.
    async fn read(&mut self) {
        let client = self.client();
        let at = self.random.below(self.collections.len() as u64) as usize;
        let (from, to) = (self.collections[at].known_from, self.collections[at].known_to);
        // The store has forgotten everything that the model knows of a collection without recent events.
        if from > to {
            return;
        }
        let revision = from + self.random.below(to + 1 - from);
        let expected: Vec<(String, Value)> = self.collections[at]
            .at(revision)
            .map(|(path, object)| (path.to_owned(), object.clone()))
            .collect();
        if self.random.below(2) == 0 {
            let Some((path, object)) = expected.get(self.random.below(expected.len().max(1) as u64) as usize)
            else {
                return;
            };
            let reply = client.get(&format!("/as-of/{revision}{path}")).await;
            if !self.is_refused(revision, reply.status, &reply.json()) {
                assert_eq!(&reply.json(), object, "{path} at {revision}");
                self.count("object");
            }
            return;
        }
        let limit = if self.random.below(2) == 0 {
            format!("?limit={}", 1 + self.random.below(9))
        } else {
            String::new()
        };
        let mut found = Vec::new();
        let mut page = limit.clone();
        loop {
            let reply = client.get(&format!("/as-of/{revision}{}{page}", self.collections[at].path)).await;
            if reply.status == 410 && !found.is_empty() {
                // The point was compacted between two chunks.
                return self.count("refused chunk");
            }
            let list = reply.json();
            if self.is_refused(revision, reply.status, &list) {
                return;
            }
            assert_eq!((reply.status, version(&list)), (200, revision), "{list}");
            found.extend(list["items"].as_array().unwrap().iter().cloned());
            match list["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => page = format!("{limit}&continue={token}"),
                _ => break,
            }
        }
        let expected: Vec<Value> = expected
            .into_iter()
            .map(|(_, mut object)| {
                let members = object.as_object_mut().unwrap();
                members.remove("kind");
                members.remove("apiVersion");
                object
            })
            .collect();
        assert_eq!(found, expected, "{} at {revision}", self.collections[at].path);
        self.count("list");
    }

    /// Compares the history of an object with the events about it.
    async fn read_history(&mut self) {
        let (client, at) = (self.client(), self.random.below(3) as usize);
        let collection = &self.collections[at];
        let objects: Vec<&String> = collection.objects.keys().collect();
        if objects.is_empty() {
            return;
        }
        let path = objects[self.random.below(objects.len() as u64) as usize].clone();
        let reply = client.get(&format!("/history{path}?include=object&limit=500")).await;
        if reply.status == 404 {
            // All versions are compacted by now.
            return self.count("history that is gone");
        }
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let log = reply.json();
        let seen_to = version(&log);
        let collection = &self.collections[at];
        let items = log["items"].as_array().unwrap();
        let number = |item: &Value| item["revision"].as_str().unwrap().parse::<u64>().unwrap();
        let known = &collection.objects[&path];
        let mut matched = 0;
        let is_known = |revision: u64| {
            revision <= collection.known_to
                && (revision >= collection.known_from || known.iter().any(|(at, _)| *at == revision))
        };
        for item in items.iter().filter(|item| is_known(number(item))) {
            let (_, state) = known
                .iter()
                .find(|(revision, _)| *revision == number(item))
                .unwrap_or_else(|| panic!("{path} has no revision {} in the model: {known:?}", number(item)));
            let operation = item["operation"].as_str().unwrap();
            assert_eq!(state.is_none(), matches!(operation, "Delete" | "Expire"), "{path}: {item}");
            if let Some(state) = state {
                assert_eq!(&item["object"], state, "{path}");
            }
            matched += 1;
        }
        // The answer must have all versions after its oldest point.
        let oldest = items.last().map_or(u64::MAX, number);
        let expected = known.iter().filter(|(revision, _)| (oldest..=seen_to).contains(revision)).count();
        assert!(matched >= expected.min(500), "{path}: the answer has {matched} of {expected} versions");
        self.count("history");
    }

    async fn restart(&mut self) {
        if self.random.below(2) == 0 {
            self.server.kill();
            // The note of the last compaction may be missing.
            self.oldest = 0;
            self.count("kill");
        } else {
            assert_eq!(self.server.terminate(), Some(0));
            self.count("clean end");
        }
        self.server.restart().await;
        self.collections.iter_mut().for_each(|collection| collection.watch = None);
    }

    /// Takes a backup, restores it, and continues with the restored store, in which earlier states cannot be read.
    async fn restore(&mut self) {
        let temp = TempDir::new();
        let (backup, restored) = (temp.path().join("backup"), temp.path().join("restored"));
        let before = self.revision().await;
        report(&["backup", &flag("data-dir", self.server.data_dir()), &flag("to", &backup)]);
        report(&["restore", &flag("from", &backup), &flag("data-dir", &restored)]);
        self.server.terminate();
        let log = self.server.data_dir().join("log");
        std::fs::remove_dir_all(&log).unwrap();
        std::fs::rename(restored.join("log"), &log).unwrap();
        self.server.restart().await;
        let client = self.client();
        let path = format!("/as-of/{before}/api/v1/configmaps");
        let reply = client.get(&path).await;
        assert!(
            self.is_refused(before, reply.status, &reply.json()),
            "a restored store begins a new history"
        );
        self.recorded.clear();
        for collection in &mut self.collections {
            (collection.watch, collection.known_to) = (None, 0);
            collection.open(&client).await;
        }
        self.count("restore");
    }

    async fn step(&mut self) {
        match self.random.below(1_000) {
            0..560 => self.write().await,
            560..740 => self.read().await,
            740..840 => self.read_history().await,
            840..900 => self.read_recorded().await,
            900..930 => self.record().await,
            930..985 => self.change_custom().await,
            985..996 => self.change_namespace().await,
            996..999 => self.restart().await,
            _ if self.random.below(4) == 0 => self.restore().await,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_retained_point_of_a_random_history_is_read_back_exactly() {
    let (steps, seed) = (from_environment("HISTORY_STEPS", STEPS), from_environment("HISTORY_SEED", 1));
    let mut life = Life::begin(seed as u64).await;
    let begun = Instant::now();
    let mut next_report = begun + Duration::from_secs(60);
    for step in 0..steps {
        life.step().await;
        if Instant::now() >= next_report {
            next_report += Duration::from_secs(60);
            eprintln!("{step} steps after {:?}: {:?}", begun.elapsed(), life.counts);
        }
    }
    life.restart().await;
    life.restore().await;
    for _ in 0..50 {
        life.write().await;
        life.read().await;
    }
    eprintln!("{steps} steps in {:?}: {:?}", begun.elapsed(), life.counts);
    for what in [
        "clean end",
        "history",
        "kill",
        "list",
        "namespace deletion",
        "object",
        "recorded answer",
        "refused point",
    ] {
        assert!(life.counts.contains_key(what) || steps < STEPS, "no {what} was tested: {:?}", life.counts);
    }
}
