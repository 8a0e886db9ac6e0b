//! Watchers of the `kube` crate receive every change once and in order in every start mode, even if the stream ends
//! often. At the end, their state equals the state of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tests::PATIENCE;
use tokio::sync::{Barrier, oneshot};

use crate::support::{Random, kube_client, upstream};

/// The namespace of the changes. Only this test writes there.
const NAMESPACE: &str = "kube-node-lease";

/// The end marker: the last object that is written.
const END: &str = "zz-end";

/// A change of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Change {
    /// The object had this content at this version.
    Is { version: u64, content: String },
    /// The object was deleted.
    Gone,
}

/// The changes of each object, by uid, in order.
type Histories = BTreeMap<String, Vec<Change>>;

fn map(name: &str, content: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"watched": "yes"}}, "data": {"content": content}}),
    )
    .unwrap()
}

fn version_of<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_ref().unwrap().parse().unwrap()
}

fn state_of(object: &ConfigMap) -> Change {
    let content = object.data.as_ref().and_then(|data| data.get("content")).cloned().unwrap_or_default();
    Change::Is { version: version_of(object), content }
}

/// Positions at which writers wait for each other and for the test.
struct Halts<'h> {
    /// Number of the change before which each writer waits.
    before: [usize; 2],
    barrier: &'h Barrier,
}

/// Makes `changes` random changes to the writer's own objects and records the replies.
async fn write(
    api: Api<ConfigMap>,
    writer: u64,
    changes: usize,
    mut random: Random,
    halts: Option<Halts<'_>>,
) -> Histories {
    const OBJECTS: u64 = 12;
    let mut histories = Histories::new();
    let mut current: BTreeMap<u64, ConfigMap> = BTreeMap::new();
    for step in 0..changes {
        if let Some(halts) = halts.as_ref().filter(|halts| halts.before.contains(&step)) {
            halts.barrier.wait().await;
        }
        let slot = random.below(OBJECTS);
        let name = format!("w{writer}-{slot}");
        let content = format!("{writer}/{step}");
        let Some(object) = current.get(&slot) else {
            let created = api.create(&PostParams::default(), &map(&name, &content)).await.unwrap();
            histories.entry(created.uid().unwrap()).or_default().push(state_of(&created));
            current.insert(slot, created);
            continue;
        };
        let uid = object.uid().unwrap();
        match random.below(4) {
            0 => {
                let status = api
                    .delete(&name, &DeleteParams::default())
                    .await
                    .unwrap()
                    .right()
                    .expect("removed immediately");
                assert_eq!(status.details.unwrap().uid, uid);
                histories.get_mut(&uid).unwrap().push(Change::Gone);
                current.remove(&slot);
            }
            1 => {
                let patch = Patch::Merge(json!({"data": {"content": content}}));
                let patched = api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
                histories.get_mut(&uid).unwrap().push(state_of(&patched));
                current.insert(slot, patched);
            }
            _ => {
                let mut desired = object.clone();
                desired.data = map(&name, &content).data;
                let replaced = api.replace(&name, &PostParams::default(), &desired).await.unwrap();
                histories.get_mut(&uid).unwrap().push(state_of(&replaced));
                current.insert(slot, replaced);
            }
        }
    }
    histories
}

/// The events of a watcher, up to the end marker.
#[derive(Debug, Default)]
struct Seen {
    /// Objects of the initial list, by uid.
    initial: BTreeMap<String, Change>,
    /// Changes after the initial list, by uid.
    changes: Histories,
    /// Number of changes after the initial list.
    count: usize,
    /// Number of times that the watcher listed the objects.
    inits: usize,
}

/// Follows a watcher until the end marker, and reports when its list is complete; versions must ascend.
async fn follow(
    mut events: BoxStream<'static, watcher::Result<watcher::Event<ConfigMap>>>,
    listed: oneshot::Sender<()>,
) -> Seen {
    let (mut seen, mut newest, mut listed) = (Seen::default(), 0, Some(listed));
    loop {
        let event = tokio::time::timeout(PATIENCE, events.try_next()).await.expect("the watcher continues");
        let event = event.unwrap().expect("watchers never end");
        match event {
            watcher::Event::Init => seen.inits += 1,
            watcher::Event::InitApply(object) => {
                seen.initial.insert(object.uid().unwrap(), state_of(&object));
                newest = newest.max(version_of(&object));
            }
            watcher::Event::InitDone => drop(listed.take()),
            watcher::Event::Apply(object) if object.name_any() == END => return seen,
            watcher::Event::Apply(object) => {
                assert!(version_of(&object) > newest, "version {} came after {newest}", version_of(&object));
                newest = version_of(&object);
                seen.changes.entry(object.uid().unwrap()).or_default().push(state_of(&object));
                seen.count += 1;
            }
            watcher::Event::Delete(object) => {
                assert!(version_of(&object) > newest, "deletion {} came after {newest}", version_of(&object));
                newest = version_of(&object);
                let history = seen.changes.entry(object.uid().unwrap()).or_default();
                if let Some(Change::Is { content, .. }) = history.last() {
                    let last = state_of(&object);
                    assert!(
                        matches!(&last, Change::Is { content: c, .. } if c == content),
                        "the event of the deletion has the last state"
                    );
                }
                history.push(Change::Gone);
                seen.count += 1;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_receives_ten_thousand_changes_once_and_in_order() {
    const WRITERS: usize = 16;
    const CHANGES: usize = 10_000;
    const SEED: u64 = 0x5eed;
    let (server, client) = upstream().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let config = || watcher::Config::default().labels("watched=yes");
    let start = |config| {
        let (sender, listed) = oneshot::channel();
        (tokio::spawn(follow(watcher(api.clone(), config).boxed(), sender)), listed)
    };

    let (listing, listed) = start(config());
    // The watcher's stream ends every second and is resumed.
    let (restarting, listed_too) = start(config().timeout(1));
    let (streaming, listed_as_well) = start(config().streaming_lists());
    for listed in [listed, listed_too, listed_as_well] {
        // The sender is dropped when the list is complete.
        assert!(listed.await.is_err());
    }
    let mut random = Random(SEED);
    let mut writers = Vec::new();
    // The writers and this test wait at the barrier.
    let barrier = Arc::new(Barrier::new(WRITERS + 1));
    for writer in 0..WRITERS {
        let api = Api::namespaced(kube_client(&server).await, NAMESPACE);
        let (random, barrier) = (random.fork(), Arc::clone(&barrier));
        writers.push(tokio::spawn(async move {
            let halts =
                Halts { before: [CHANGES / WRITERS / 2, CHANGES / WRITERS * 3 / 4], barrier: &barrier };
            write(api, writer as u64, CHANGES / WRITERS, random, Some(halts)).await
        }));
    }
    // Late watchers start after half of the writes, list during the third quarter, and watch the last
    // quarter.
    barrier.wait().await;
    let (late_list, late_listed) = start(config().page_size(7));
    let (late_stream, late_listed_too) = start(config().streaming_lists());
    for listed in [late_listed, late_listed_too] {
        assert!(listed.await.is_err());
    }
    barrier.wait().await;

    let mut written = Histories::new();
    for writer in writers {
        written.extend(writer.await.unwrap());
    }
    let end = api.create(&PostParams::default(), &map(END, "")).await.unwrap();
    let total: usize = written.values().map(Vec::len).sum();
    assert_eq!(total, CHANGES);

    for (name, watcher) in [("listing", listing), ("restarting", restarting), ("streaming", streaming)] {
        let seen = watcher.await.unwrap();
        assert_eq!((seen.inits, seen.initial.len()), (1, 0), "{name} did not list exactly once");
        assert_suffix(name, &written, &seen);
        assert_eq!(seen.count, CHANGES, "{name}");
    }
    for (name, watcher) in [("late list", late_list), ("late stream", late_stream)] {
        let seen = watcher.await.unwrap();
        assert_eq!(seen.inits, 1, "{name} did not list exactly once");
        assert!(!seen.initial.is_empty() && seen.count > 0, "{name} did not begin during the writes");
        assert_suffix(name, &written, &seen);
    }
    let left = api.list(&ListParams::default().labels("watched=yes")).await.unwrap();
    let alive = written.values().filter(|history| history.last() != Some(&Change::Gone)).count();
    assert_eq!(left.items.len(), alive + 1);
    assert!(left.metadata.resource_version.unwrap().parse::<u64>().unwrap() >= version_of(&end));
}

/// Checks that the watcher's events of each object equal its writer's record, from the initial state on.
fn assert_suffix(watcher: &str, written: &Histories, seen: &Seen) {
    for (uid, changes) in &seen.changes {
        let history = written.get(uid).unwrap_or_else(|| panic!("{watcher} saw {uid}, which is unknown"));
        assert!(history.ends_with(changes), "{watcher}, {uid}: saw {changes:?} of {history:?}");
    }
    for (uid, history) in written {
        let changes = seen.changes.get(uid).map_or(0, Vec::len);
        let before = &history[..history.len() - changes];
        // A change without an event is part of the list: the state at that time, or no object if it was
        // deleted.
        let state = before.last().filter(|change| **change != Change::Gone);
        assert_eq!(seen.initial.get(uid), state, "{watcher}, {uid}: {history:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflector_stores_become_equal_to_the_list_of_the_server() {
    let (_server, client) = upstream().await;
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    for i in 0..50 {
        api.create(&PostParams::default(), &map(&format!("early-{i}"), "")).await.unwrap();
    }
    let mut stores = Vec::new();
    for config in [
        watcher::Config::default(),
        watcher::Config::default().page_size(9),
        watcher::Config::default().any_semantic(),
        watcher::Config::default().streaming_lists(),
        watcher::Config::default().streaming_lists().timeout(1),
        watcher::Config::default().disable_bookmarks().timeout(1),
    ] {
        let (store, writer) = reflector::store::<ConfigMap>();
        let mut events = watcher(api.clone(), config).reflect(writer).applied_objects().boxed();
        let pump = tokio::spawn(async move {
            while let Some(object) = events.try_next().await.unwrap() {
                if object.name_any() == END {
                    break;
                }
            }
        });
        store.wait_until_ready().await.unwrap();
        assert_eq!(store.state().iter().filter(|map| map.name_any().starts_with("early-")).count(), 50);
        stores.push((store, pump));
    }
    write(api.clone(), 0, 400, Random(7), None).await;
    api.delete_collection(&DeleteParams::default(), &ListParams::default().fields("metadata.name=early-7"))
        .await
        .unwrap();
    // Streams that end every second must be resumed meanwhile.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    write(api.clone(), 1, 200, Random(8), None).await;
    api.create(&PostParams::default(), &map(END, "")).await.unwrap();

    let listed = api.list(&ListParams::default()).await.unwrap();
    let sorted = |objects: Vec<Arc<ConfigMap>>| -> BTreeMap<String, Change> {
        objects.iter().map(|object| (object.name_any(), state_of(object))).collect()
    };
    let expected = sorted(listed.into_iter().map(Arc::new).collect());
    for (i, (store, pump)) in stores.into_iter().enumerate() {
        tokio::time::timeout(PATIENCE, pump).await.expect("the watcher receives the last object").unwrap();
        assert_eq!(sorted(store.state()), expected, "store {i}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_only_requests_can_read_list_patch_and_watch() {
    let (_server, client) = upstream().await;
    let api: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let created = api.create(&PostParams::default(), &map("m", "large")).await.unwrap();
    let read = api.get_metadata("m").await.unwrap();
    assert_eq!(
        (&read.metadata, read.types.as_ref().unwrap().kind.as_str()),
        (&created.metadata, "PartialObjectMetadata")
    );
    assert!(api.get_metadata_opt("absent").await.unwrap().is_none());
    let list = api.list_metadata(&ListParams::default().labels("watched=yes").limit(1)).await.unwrap();
    assert_eq!((list.types.kind.as_str(), list.items.len()), ("PartialObjectMetadataList", 1));
    assert_eq!(list.items[0].metadata, created.metadata);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let patched = api.patch_metadata("m", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.annotations()["a"], "b");
    assert_eq!(api.get("m").await.unwrap().metadata, patched.metadata);

    let partial: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(api.into_client(), NAMESPACE);
    let mut names = BTreeSet::new();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = watcher(partial.clone(), config).applied_objects().boxed();
        loop {
            let next =
                tokio::time::timeout(PATIENCE, events.try_next()).await.expect("the watcher continues");
            let object = next.unwrap().unwrap();
            names.insert(object.name_any());
            if object.name_any() == "m" {
                assert_eq!(object.metadata, patched.metadata);
                break;
            }
        }
    }
    assert!(names.contains("m"));
}
