//! Checks that nothing is deleted because a record cannot be read. The records of a store with owners,
//! namespaces, definitions and protected objects are damaged one after the other, the controllers run, and
//! all other objects must still exist.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::offline::{LogItem, Store};
use engine::{LEDGER_KEY, Losses, Revision};

use super::{Controllers, Selection, start};
use crate::writes::write::server_fixture::TestServer;
use testkit::Random;

const MAPS: &str = "/api/v1/namespaces/here/configmaps";
const CLAIMS: &str = "/api/v1/namespaces/here/persistentvolumeclaims";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/g.example/v1/namespaces/here/things";

/// Number of bytes of a record before its key (docs/format.md).
const HEAD_BYTES: u64 = 72;

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts all controllers.
fn controllers(server: &TestServer) -> Controllers {
    start(
        server.itself(),
        &Selection::parse("*,tokencleaner,bootstrapsigner,storage-version-migrator-controller").unwrap(),
    )
}

async fn create(server: &TestServer, path: &str, object: &str) -> String {
    let (code, _, body) = server.send(&format!("POST {path}"), object).await;
    assert_eq!(code, 201, "{path}: {body:?}");
    body.str_at(&["metadata", "uid"]).to_owned()
}

async fn until(server: &TestServer, request: &str, code: u16) {
    let began = Instant::now();
    while server.send(request, "").await.0 != code {
        assert!(began.elapsed() < PATIENCE, "{request} is not {code}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The record that is the newest state of a key.
#[derive(Clone, Debug)]
struct RecordLocation {
    offset: u64,
    len: u64,
    key: Vec<u8>,
    revision: Revision,
}

/// A closed store in a directory: the only segment of the store, and the newest states in the segment.
struct Rested {
    segment: Vec<u8>,
    size: u64,
    states: Vec<RecordLocation>,
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("0000000001.segment")
}

/// Creates two namespaces, owners and their dependents, a definition with an object, and a claim that is being
/// deleted while a pod uses it.
async fn rested() -> Rested {
    let directory = std::env::temp_dir().join(format!("losses-{}", values::names::uid()));
    let server = TestServer::in_directory(&directory);
    let running = controllers(&server);
    create(&server, "/api/v1/namespaces", r#"{"metadata":{"name":"here"}}"#).await;
    create(&server, "/api/v1/namespaces", r#"{"metadata":{"name":"there"}}"#).await;
    until(&server, "GET /api/v1/namespaces/there/serviceaccounts/default", 200).await;
    let owner = create(&server, MAPS, r#"{"metadata":{"name":"owner"}}"#).await;
    let dependent = |name: &str, kind: &str, version: &str, uid: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","ownerReferences":[{{"apiVersion":"{version}","kind":"{kind}","name":"owner","uid":"{uid}"}}]}}}}"#
        )
    };
    for name in ["one", "two"] {
        create(&server, MAPS, &dependent(name, "ConfigMap", "v1", &owner)).await;
    }
    let definition = r#"{"metadata":{"name":"things.g.example"},"spec":{"group":"g.example","scope":"Namespaced",
        "names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    create(&server, DEFINITIONS, definition).await;
    until(&server, &format!("GET {THINGS}"), 200).await;
    until(&server, "GET /apis/apiregistration.k8s.io/v1/apiservices/v1.g.example", 200).await;
    let thing = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"owner"}}"#;
    let thing = create(&server, THINGS, thing).await;
    create(&server, MAPS, &dependent("of-thing", "Thing", "g.example/v1", &thing)).await;
    let claim = r#"{"metadata":{"name":"used"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#;
    create(&server, CLAIMS, claim).await;
    let pod = r#"{"metadata":{"name":"user"},"spec":{"nodeName":"node","containers":[{"name":"c","image":"i"}],
        "volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"used"}}]}}"#;
    create(&server, "/api/v1/namespaces/here/pods", pod).await;
    assert_eq!(server.send(&format!("DELETE {CLAIMS}/used"), "").await.0, 200);
    running.stop().await;
    at_rest(&server, &directory).await
}

/// Closes the store of a server, and reads its segment and its newest states.
async fn at_rest(server: &TestServer, directory: &Path) -> Rested {
    server.store.engine().close().await;
    let states = states(directory);
    let file = std::fs::File::open(segment(directory)).unwrap();
    let end = states.iter().map(|place| place.offset + place.len).max().unwrap();
    let mut bytes = vec![0; end as usize + 4096];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Rested { segment: bytes, size: file.metadata().unwrap().len(), states }
}

/// Returns the newest state of each existing key.
fn states(dir: &Path) -> Vec<RecordLocation> {
    let store = Store::open(dir).unwrap();
    let mut states = std::collections::BTreeMap::new();
    for found in store.records() {
        let LogItem::Record(record) = found else { continue };
        let key = record.key().to_vec();
        match record.kind() {
            engine::offline::RecordKind::Put => {
                let (offset, len) = (record.offset(), record.stored_len() as u64);
                states.insert(key.clone(), RecordLocation { offset, len, key, revision: record.revision() });
            }
            _ => drop(states.remove(&key)),
        }
    }
    states.into_values().collect()
}

/// Starts a server on a copy of the store in which a bit at `hit` is flipped.
fn damaged(rested: &Rested, hit: Option<(u64, u32)>) -> TestServer {
    let directory = std::env::temp_dir().join(format!("losses-{}", values::names::uid()));
    std::fs::create_dir(&directory).unwrap();
    let file = std::fs::File::create(segment(&directory)).unwrap();
    let mut bytes = rested.segment.clone();
    if let Some((offset, bit)) = hit {
        bytes[offset as usize] ^= 1 << bit;
    }
    file.write_all_at(&bytes, 0).unwrap();
    file.set_len(rested.size).unwrap();
    TestServer::in_directory(&directory)
}

/// Lets the controllers run until a controller that may run in a damaged store has created an object.
async fn settled(server: &TestServer) {
    create(server, "/api/v1/namespaces", r#"{"metadata":{"name":"canary"}}"#).await;
    until(server, "GET /api/v1/namespaces/canary/serviceaccounts/default", 200).await;
    // The garbage collector has already read all objects. The pause gives the collector time to act on these
    // objects.
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_delete_no_object_while_any_record_is_damaged() {
    let rested = rested().await;
    let mut random = Random(1);
    assert!(rested.states.len() > 12, "{:?}", rested.states);
    for place in &rested.states {
        let body = HEAD_BYTES + place.key.len() as u64;
        // Flip a bit in the head, then in the key, and then in the attributes or the value.
        for (from, to) in [(0, HEAD_BYTES), (HEAD_BYTES, body), (body, place.len - 8)] {
            if from >= to {
                continue;
            }
            let byte = from + random.index((to - from) as usize) as u64;
            let bit = random.index(8) as u32;
            let server = damaged(&rested, Some((place.offset + byte, bit)));
            let what = format!("{:?}, byte {byte}, bit {bit}", String::from_utf8_lossy(&place.key));
            assert!(!server.store.backends.is_whole(), "{what}");
            crate::system::startup::load_types(&server).unwrap();
            let running = controllers(&server);
            settled(&server).await;
            let snapshot = server.store.engine().snapshot();
            for state in &rested.states {
                let there = snapshot.get(&state.key);
                let is_lost = state.key == place.key && byte < body;
                let is_whole = there.as_ref().is_some_and(|entry| entry.created() <= state.revision);
                assert!(is_lost || is_whole, "{what}: {:?}", String::from_utf8_lossy(&state.key));
            }
            drop(snapshot);
            running.stop().await;
            server.store.engine().close().await;
        }
    }
}

/// The opposite case: after the loss is accepted, the controllers run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_of_a_lost_owner_are_deleted_after_the_loss_is_accepted() {
    let rested = rested().await;
    let owner = rested.states.iter().find(|place| place.key.ends_with(b"configmaps/here/owner")).unwrap();
    let server = damaged(&rested, Some((owner.offset + 9, 0)));
    let running = controllers(&server);
    settled(&server).await;
    until(&server, &format!("GET {MAPS}/one"), 200).await;
    assert_eq!(server.send(&format!("DELETE {MAPS}/two"), "").await.0, 200, "what is asked for is done");
    assert_eq!(server.send(&format!("GET {MAPS}/owner"), "").await.0, 404);
    assert!(server.store.engine().accept_losses(&Losses::default()).await.unwrap());
    until(&server, &format!("GET {MAPS}/one"), 404).await;
    until(&server, &format!("GET {MAPS}/of-thing"), 200).await;
    assert!(server.store.engine().snapshot().get(LEDGER_KEY).is_some());
    running.stop().await;
    // All controllers run if the store has no damage.
    let server = damaged(&rested, None);
    assert!(server.store.backends.is_whole());
}

/// A start creates the bootstrap objects, reads all bootstrap objects, and succeeds no matter which record of a
/// bootstrap object is damaged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_with_any_of_its_own_objects_damaged() {
    let directory = std::env::temp_dir().join(format!("losses-{}", values::names::uid()));
    let server = TestServer::in_directory(&directory);
    crate::system::startup::prepare(&server).await.unwrap();
    let rested = at_rest(&server, &directory).await;
    drop(server);
    let mut random = Random(2);
    assert!(rested.states.len() > 100, "{}", rested.states.len());
    for place in &rested.states {
        let body = HEAD_BYTES + place.key.len() as u64;
        let (from, to) = if random.one_in(3) { (0, body) } else { (body, place.len - 8) };
        let byte = from + random.index((to - from) as usize) as u64;
        let server = damaged(&rested, Some((place.offset + byte, random.index(8) as u32)));
        let what = format!("{:?}, byte {byte}", String::from_utf8_lossy(&place.key));
        crate::system::startup::load_types(&server).unwrap();
        let started = crate::system::startup::prepare(&server).await;
        assert!(started.is_ok(), "{what}: {started:?}");
        let snapshot = server.store.engine().snapshot();
        for state in &rested.states {
            let there = snapshot.get(&state.key);
            let is_whole = there.as_ref().is_some_and(|entry| entry.created() <= state.revision);
            let is_lost = state.key == place.key && byte < body;
            assert!(is_lost || is_whole, "{what}: {:?}", String::from_utf8_lossy(&state.key));
        }
        drop(snapshot);
        server.store.engine().close().await;
    }
}
