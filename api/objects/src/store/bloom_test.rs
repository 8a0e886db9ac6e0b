//! Tests that a list with Bloom filters returns the same objects as a list that reads every object.

use std::time::Duration;

use bytes::Bytes;
use engine::{
    BloomFilter, BloomScheme, Change, Engine, Expected, KeyRange, Options, Payload, Revision, Snapshot, Write,
};

use crate::store;
use testkit::Random;
use types::attributes;
use types::attributes::{Attributes, Selection};
use types::bloom::*;
use types::schema::registry::{Registry, Resource};
use values::json::Object;
use values::naming::KUBERNETES;
use values::testing::object;

const KEYS: [&str; 5] = ["app", "tier", "example.com/role", "slot", "x"];
const VALUES: [&str; 6] = ["web", "db", "", "1", "22", "a-longer-value.of_some-kind"];

fn pod(random: &mut Random, namespace: &str, name: &str) -> Object {
    let keys = KEYS.iter().filter(|_| random.one_in(2)).copied().collect::<Vec<_>>();
    let labels: Vec<_> =
        keys.into_iter().map(|key| format!(r#""{key}":"{}""#, random.pick(&VALUES))).collect();
    let (node, phase) = (random.pick(&["n1", "n2", "n3", ""]), random.pick(&["Running", "Pending"]));
    let policy = random.pick(&["Always", "Never"]);
    object(&format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"{namespace}","labels":{{{}}}}},"spec":{{"nodeName":"{node}","restartPolicy":"{policy}"}},"status":{{"phase":"{phase}"}}}}"#,
        labels.join(",")
    ))
}

fn selectors(random: &mut Random) -> (String, String) {
    let mut requirement = || {
        let (key, value, other) = (random.pick(&KEYS), random.pick(&VALUES), random.pick(&VALUES));
        match random.index(9) {
            0 => key.to_owned(),
            1 => format!("!{key}"),
            2 => format!("{key}!={value}"),
            3 => format!("{key} in ({value},{other})"),
            4 => format!("{key} notin ({value},{other})"),
            5 => format!("{key}>3"),
            6 => {
                let many: Vec<String> = (0..VALUES_MAX + 1).map(|n| n.to_string()).collect();
                format!("{key} in ({})", many.join(","))
            }
            _ => format!("{key}={value}"),
        }
    };
    let labels = [requirement(), requirement(), requirement()];
    let label = labels[random.index(4).min(2)..].join(",");
    let fields = [
        "spec.nodeName=n2",
        "spec.nodeName=",
        "spec.nodeName!=n1",
        "status.phase=Running",
        "status.phase=Running,spec.nodeName=n3",
        "metadata.name=pod-7",
        "metadata.namespace=b,spec.restartPolicy=Never",
    ];
    let field = if random.one_in(2) { random.pick(&fields) } else { "" };
    (if random.one_in(4) { String::new() } else { label }, field.to_owned())
}

/// A store of pods that is opened with different filter schemes.
struct Cluster {
    directory: std::path::PathBuf,
    registry: Registry,
    random: Random,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let directory = std::env::temp_dir().join(format!("filter-{}", values::names::uid()));
        Cluster { directory, registry: Registry::new(&KUBERNETES), random: Random(seed) }
    }

    fn pods(&self) -> &Resource {
        self.registry.resource("", "v1", "pods").unwrap()
    }

    fn open(&self, scheme: BloomScheme, history_retention: Duration) -> Engine {
        let options = Options {
            bloom_scheme: scheme,
            history_retention,
            segment_bytes: engine::SEGMENT_BYTES_MIN,
            durability: engine::Durability::Relaxed,
            ..Options::new(&self.directory)
        };
        Engine::open(options).unwrap()
    }

    async fn write(&mut self, engine: &Engine, count: usize) {
        let configs = self.registry.resource("", "v1", "configmaps").unwrap().clone();
        for _ in 0..count {
            let random = &mut self.random;
            let (namespace, name) = (random.pick(&["a", "b", "c"]), format!("pod-{}", random.index(70)));
            let pod = pod(random, namespace, &name);
            let how = random.index(12);
            let key = store::key(self.pods(), namespace, &name);
            let payload = store::payload(self.pods(), &pod);
            let change = match how {
                0 | 1 => Change::Delete(None),
                // Selector attributes of a release with other selectable fields, and of a release without
                // selector attributes.
                2 => {
                    let attributes = attributes::encode(&configs.stored().table, &pod).into();
                    Change::Put(Payload { attributes, ..payload })
                }
                3 => Change::Put(Payload { attributes: Bytes::new(), ..payload }),
                _ => Change::Put(payload),
            };
            // The engine refuses a delete of an absent key, which the test accepts.
            let _ = engine.commit(Write { key, expected: Expected::Any, change }).await;
        }
    }

    /// Compares the lists. Returns the number of objects that were read, and the number of all objects.
    fn check(&mut self, snapshot: &Snapshot, when: &str) -> (usize, usize) {
        let (mut looked_at, mut all) = (0, 0);
        for _ in 0..60 {
            let (label, field) = selectors(&mut self.random);
            let pods = self.pods();
            let table = &pods.stored().table;
            let selection = Selection::parse(&label, &field, &pods.table, table).unwrap();
            let namespace = ["", "a"][usize::from(label.len() % 2 == 0)];
            let range = KeyRange::prefix(&store::collection(pods, namespace));
            let scan = snapshot.range(range.clone()).filtered(query(&selection)).flatten();
            let listed: Vec<_> = scan
                .inspect(|_| looked_at += 1)
                .filter(|entry| store::selects(pods, &selection, entry).unwrap())
                .map(|entry| (entry.key().clone(), entry.revision()))
                .collect();
            let by_body: Vec<_> = snapshot
                .range(range)
                .inspect(|_| all += 1)
                .filter(|entry| {
                    let object = store::read(entry.clone()).unwrap().object(pods).unwrap();
                    let store::ObjectName { namespace, name } = store::object_name(pods, entry.key());
                    selection.matches_object(name, namespace, table, &object)
                })
                .map(|entry| (entry.key().clone(), entry.revision()))
                .collect();
            assert_eq!(listed, by_body, "{when}: labels {label:?}, fields {field:?}");
        }
        (looked_at, all)
    }
}

#[tokio::test]
async fn a_filtered_list_equals_the_list_that_reads_every_object() {
    let other = BloomScheme { kind: KIND + 1, filter: |_| BloomFilter::NONE };
    // The rounds use the current filters, a store without filters in its checkpoint, and a store with the
    // filters of another release.
    for (round, before) in [SCHEME, BloomScheme::default(), other].into_iter().enumerate() {
        for retention in [Duration::MAX, Duration::ZERO] {
            let mut cluster = Cluster::new(round as u64);
            let engine = cluster.open(before, retention);
            cluster.write(&engine, 1_500).await;
            engine.checkpoint().await;
            // Recovery computes filters for the records after the checkpoint.
            cluster.write(&engine, 100).await;
            engine.close().await;
            drop(engine);

            let when = format!("round {round}, {retention:?}");
            let engine = cluster.open(SCHEME, retention);
            let (looked_at, all) = cluster.check(&engine.snapshot(), &format!("{when}, opened"));
            assert!(looked_at < all * 3 / 4, "{when}: {looked_at} of {all} objects were read");
            cluster.write(&engine, 300).await;
            cluster.check(&engine.snapshot(), &format!("{when}, written to"));
            let earlier = engine.stats().oldest.max(Revision::new(engine.revision().get() - 200));
            if let Ok(snapshot) = engine.snapshot_at(earlier) {
                cluster.check(&snapshot, &format!("{when}, at {earlier}"));
            }
            engine.compact(engine.revision()).await.unwrap();
            engine.settled().await;
            assert!(engine.stats().rewritten_bytes > 0, "{when}: nothing was reclaimed");
            cluster.check(&engine.snapshot(), &format!("{when}, compacted"));
            engine.checkpoint().await;
            engine.close().await;
            drop(engine);
            let engine = cluster.open(SCHEME, retention);
            cluster.check(&engine.snapshot(), &format!("{when}, opened once more"));
            engine.close().await;
        }
    }
}

#[test]
fn a_filtered_list_reads_few_objects_that_do_not_match() {
    let registry = Registry::new(&KUBERNETES);
    let pods = registry.resource("", "v1", "pods").unwrap();
    let table = &pods.stored().table;
    let filters: Vec<BloomFilter> = (0..10_000)
        .map(|n| {
            let pod = object(&format!(
                r#"{{"metadata":{{"labels":{{"app":"web","component":"frontend","pod-template-hash":"6d4cf56db6","slot":"{}","n":"{n}"}}}},"spec":{{"nodeName":"node-{}","restartPolicy":"Always","schedulerName":"default-scheduler","serviceAccountName":"default"}},"status":{{"phase":"Running","podIP":"10.0.{}.{}"}}}}"#,
                n % 100,
                n % 500,
                n / 250,
                n % 250
            ));
            filter(&attributes::encode(table, &pod))
        })
        .collect();
    for (label, field, expected) in [
        ("slot=7", "", 100),
        ("slot=7,app=web", "", 100),
        ("slot in (7,8)", "", 200),
        ("other", "", 0),
        ("", "spec.nodeName=node-3", 20),
        ("n=77", "spec.nodeName=node-77", 1),
    ] {
        let query = query(&Selection::parse(label, field, &pods.table, table).unwrap());
        let through = filters.iter().filter(|filter| query.matches(**filter)).count();
        assert!((expected..expected + 1_500).contains(&through), "{label} {field}: {through}");
    }
    for (label, field) in
        [("app!=web", ""), ("!x,app notin (web)", ""), ("", "spec.nodeName!=node-3"), ("", "spec.nodeName=")]
    {
        let query = query(&Selection::parse(label, field, &pods.table, table).unwrap());
        assert!(query.is_open(), "{label} {field}");
    }
}

#[test]
fn every_object_that_matches_passes_the_filter() {
    let registry = Registry::new(&KUBERNETES);
    let pods = registry.resource("", "v1", "pods").unwrap();
    let table = &pods.stored().table;
    let mut random = Random(9);
    for _ in 0..300 {
        let (label, field) = selectors(&mut random);
        let selection = Selection::parse(&label, &field, &pods.table, table).unwrap();
        let query = query(&selection);
        for _ in 0..100 {
            let mut bytes = attributes::encode(table, &pod(&mut random, "a", "pod-7"));
            for _ in 0..random.index(3) {
                let at = random.index(bytes.len());
                bytes[at] = random.index(256) as u8;
            }
            if random.one_in(4) {
                bytes.truncate(random.index(bytes.len() + 1));
            }
            let view = Attributes::new(&bytes);
            let by_fields = selection.is_outdated(&view) || selection.matches("pod-7", "a", &view);
            let by_labels = selection.label().matches(|key| view.label(key));
            if view.layout().is_none() || by_labels && by_fields {
                assert!(query.matches(filter(&bytes)), "{label} {field}: {bytes:?}");
            }
        }
    }
}
