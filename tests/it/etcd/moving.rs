//! Moves of a store between the server's own log, etcd and snapshots of it (docs/api/etcd.md#moving): with
//! the command, and while it is served, with writers and watchers.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use etcd::rpc::{DeleteRangeRequest, PutRequest, Request, TxnRequest};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::{reflector, watcher};
use serde_json::{Value, json};
use tests::server::{binary, free_port};
use tests::{Client, Options, PATIENCE, Server, TempDir};
use tokio::task::JoinHandle;

use super::cluster::Etcd;
use super::{MAPS, map, version};
use crate::support::kube_client;

fn migrate(arguments: &[&str]) -> Output {
    let naming = ["migrate", "--naming=kubernetes", "--output=json"];
    Command::new(binary()).args(naming).args(arguments).output().expect("the binary runs")
}

#[track_caller]
pub(super) fn migrated(from: &str, to: &str, more: &[&str]) -> Value {
    let (from, to) = (format!("--from={from}"), format!("--to={to}"));
    let mut arguments = vec![from.as_str(), to.as_str()];
    arguments.extend(more);
    let output = migrate(&arguments);
    assert!(output.status.success(), "{from} {to}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

#[track_caller]
fn refused(from: &str, to: &str, want: &str) {
    let output = migrate(&[&format!("--from={from}"), &format!("--to={to}")]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains(want), "{from} {to}: {message}, not {want}");
}

/// Number of writes after which a writer reads its object.
const READ_EVERY: u64 = 16;

/// Path of objects that no client writes during the move.
const OTHERS: &str = "/api/v1/namespaces/kube-public/configmaps";

/// Paths of the lists that are compared.
const LISTS: [&str; 7] = [
    MAPS,
    "/api/v1/services",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/events",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/move.example.com/v1/namespaces/default/things",
];

/// Returns the objects of a server by path and name, without their versions, and with the last user that
/// wrote them.
async fn state(client: &Client) -> BTreeMap<String, Value> {
    let mut state = BTreeMap::new();
    for path in LISTS {
        let list = client.until(path, |list| list.is_some()).await.expect("the list can be read");
        for mut item in list["items"].as_array().cloned().unwrap_or_default() {
            // The server's own service has the server's port, which changes at each start, and an imported
            // store has its own CA.
            let is_own = |of: &str, name: &str| path == of && item["metadata"]["name"] == name;
            if is_own("/api/v1/services", "kubernetes") || is_own(MAPS, "kube-root-ca.crt") {
                continue;
            }
            item["metadata"]["resourceVersion"] = "".into();
            state.insert(format!("{path} {}", item["metadata"]["name"]), item);
        }
    }
    state
}

/// Creates objects of several kinds: maps, a service with a port, an event, a custom type with an object.
async fn furnish(client: &Client) {
    for at in 0..150 {
        assert_eq!(client.post(MAPS, &map(&format!("m{at}"), "x")).await.status, 201);
    }
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}});
    assert_eq!(client.post("/api/v1/namespaces/default/services", &service).await.status, 201);
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "reason": "r"});
    assert_eq!(client.post("/api/v1/namespaces/default/events", &event).await.status, 201);
    let definition = json!({
        "metadata": {"name": "things.move.example.com"},
        "spec": {
            "group": "move.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"size": {"type": "integer", "default": 3}}}}}]
        }
    });
    let made = client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    assert_eq!(made.status, 201, "{}", made.text());
    // The server serves a custom type before the status of the type reports this, and the move includes
    // the status, so wait for the status.
    let established = |definition: &Value| {
        let conditions = definition["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Established"))
    };
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.move.example.com";
    client.until(path, |definition| definition.is_some_and(established)).await;
    client.until(LISTS[6], |list| list.is_some()).await;
    let thing = json!({"apiVersion": "move.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let made = client.post(LISTS[6], &thing).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

#[tokio::test]
async fn a_store_can_be_migrated_to_etcd_back_and_from_an_etcd_snapshot() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let mut server = Server::start_upstream().await;
    furnish(server.client()).await;
    let before = state(server.client()).await;
    let newest = version(&server.client().get(MAPS).await.json());
    let dir = server.data_dir().display().to_string();
    refused(&dir, &etcd.urls(), "is in use");
    server.terminate();

    let planned = migrated(&dir, &etcd.urls(), &["--dry-run"]);
    assert_eq!(etcd.get("/registry/migration").await, None, "a dry run writes nothing");
    let moved = migrated(&dir, &etcd.urls(), &[]);
    assert_eq!(moved["resources"], planned["resources"]);
    // The objects have moved: no server may serve the old state by mistake, and no move may fill a target
    // that is in use.
    let alone = server.data_dir().join("log");
    assert!(!alone.exists() && server.data_dir().join("log.moved").exists());
    refused(&dir, &etcd.urls(), "contains no store");
    server.restart_with(&[&format!("--etcd-servers={}", etcd.urls())]).await;
    assert_eq!(state(server.client()).await, before);
    let there = server.client().get(MAPS).await.json();
    assert!(version(&there) > newest, "revisions continue to increase");
    let items = there["items"].as_array().unwrap();
    assert!(items.iter().all(|item| version(item) > newest), "every object has a revision of the new store");
    let old = server.client().get(&format!("{MAPS}?watch=true&resourceVersion={newest}")).await;
    assert!(old.text().contains("\"code\":410"), "{}", old.text());
    // The port of the existing service is still allocated.
    let service = json!({"metadata": {"name": "other"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30123}]}});
    let refusal = server.client().post("/api/v1/namespaces/default/services", &service).await;
    assert_eq!(refusal.status, 422, "{}", refusal.text());
    server.terminate();

    // Import a snapshot, before etcd changes again.
    let scratch = TempDir::new();
    let file = scratch.path().join("snapshot.db").display().to_string();
    let saved = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args([&format!("--endpoints={}", etcd.urls()), "snapshot", "save", &file])
        .output();
    let restored = TempDir::new();
    if saved.is_ok_and(|saved| saved.status.success()) {
        let to = restored.path().display().to_string();
        let imported = migrated(&file, &to, &[]);
        assert!(imported["revision"].as_u64() > imported["from_revision"].as_u64());
        refused(&file, &to, "already contains a store");
        let from_file = Server::start_in(restored, Options::default()).await;
        assert_eq!(state(from_file.client()).await, before);
        let second = Etcd::start(1).await.expect("the etcd binary exists");
        let copied = migrated(&file, &second.urls(), &[]);
        assert!(copied["resources"].as_array().is_some_and(|resources| resources.len() > 5), "{copied}");
        let key = "/registry/configmaps/default/m7";
        assert_eq!(second.get(key).await.unwrap().value, etcd.get(key).await.unwrap().value);
        refused(&file, &second.urls(), "the target is not empty");
        let mut changed = std::fs::read(&file).unwrap();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        std::fs::write(&file, changed).unwrap();
        refused(&file, &format!("{}/x", scratch.path().display()), "its digest does not match its content");
    }

    // Move the store back, at the revisions of etcd.
    let other = TempDir::new();
    let to = other.path().display().to_string();
    migrated(&etcd.urls(), &to, &["--dry-run"]);
    migrated(&etcd.urls(), &to, &[]);
    let back = Server::start_in(other, Options::default()).await;
    assert_eq!(state(back.client()).await, before);
    let kept = back.client().get(MAPS).await.json();
    let of_m0 = |list: &Value| {
        list["items"].as_array().unwrap().iter().find(|map| map["metadata"]["name"] == "m0").map(version)
    };
    assert!(of_m0(&kept).is_some() && of_m0(&kept) == of_m0(&there), "objects keep their versions");
    // A mark keeps servers from using an etcd that the store has left.
    let left = etcd.get("/registry/migration").await.expect("etcd has the mark of the migration");
    assert!(left.value.starts_with(b"left "), "{:?}", left.value);
    refused(&etcd.urls(), &format!("{}/y", scratch.path().display()), "the mark of a move");
}

/// Writes one object, on one server after the other, and checks that acknowledged writes are never lost.
/// Writes once per `pause`. Without a `pause`, the function writes continuously.
async fn count_up(
    (name, share, pause): (String, String, Option<Duration>),
    client: Client,
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
) -> u64 {
    let mut paced = pause.map(|pause| {
        let mut paced = tokio::time::interval(pause);
        paced.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        paced
    });
    let path = format!("{MAPS}/{name}");
    let json = [("content-type", "application/json")];
    let mut object = map(&name, "0");
    object["metadata"]["labels"] = json!({"share": share});
    let text = object.to_string();
    // The server may be restarting.
    while client.try_send("POST", MAPS, &json, text.as_bytes()).await.is_none_or(|made| made.status >= 500) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (mut newest, mut acknowledged, mut known) = (0_u64, 0_u64, None);
    while !stop.load(Ordering::Relaxed) {
        if let Some(paced) = &mut paced {
            paced.tick().await;
        }
        // The next write is based on the last response; after a failure, and periodically, the object is
        // read.
        let object = known.take().filter(|_| !acknowledged.is_multiple_of(READ_EVERY));
        let mut object: Value = match object {
            Some(object) => object,
            None => match client.try_get(&path).await.filter(|read| read.status == 200) {
                Some(read) => read.json(),
                None => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
        };
        let count: u64 = object["data"]["v"].as_str().unwrap().parse().unwrap();
        assert!(count >= acknowledged, "{name}: {acknowledged} was acknowledged, but {count} is stored");
        assert!(version(&object) >= newest, "{name}: the revision is smaller than before");
        newest = version(&object);
        object["data"]["v"] = (count + 1).to_string().into();
        let reply = client.try_send("PUT", &path, &json, object.to_string().as_bytes()).await;
        if let Some(reply) = reply.filter(|reply| reply.status == 200) {
            acknowledged = count + 1;
            known = Some(reply.json());
            writes.fetch_add(1, Ordering::Relaxed);
        }
    }
    acknowledged
}

fn value_of(map: &ConfigMap) -> String {
    let value = map.data.as_ref().and_then(|data| data.get("v"));
    value.cloned().unwrap_or_else(|| "0".to_owned())
}

/// An informer of the kube crate.
struct Informer {
    /// The label that the informer selects; `None` selects all objects.
    share: Option<String>,
    store: reflector::Store<ConfigMap>,
    task: JoinHandle<()>,
}

impl Informer {
    /// Starts the informer; `listed` counts its lists.
    fn begin(kube: &kube::Client, share: Option<String>, listed: &Arc<AtomicU64>) -> Informer {
        let api: Api<ConfigMap> = Api::namespaced(kube.clone(), "default");
        let (store, writer) = reflector::store();
        let listed = listed.clone();
        let mut config = watcher::Config::default();
        if let Some(share) = &share {
            config = config.labels(&format!("share={share}"));
        }
        let stream = reflector(writer, watcher(api, config)).inspect_ok(move |event| {
            if matches!(event, watcher::Event::Init) {
                listed.fetch_add(1, Ordering::Relaxed);
            }
        });
        let task = tokio::spawn(stream.for_each(async |event| {
            if event.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }));
        Informer { share, store, task }
    }

    /// Waits until the informer has the expected objects.
    async fn comes_to(self, there: &BTreeMap<String, (String, String)>) {
        let of_share =
            there.iter().filter(|(_, (of, _))| self.share.as_ref().is_none_or(|share| share == of));
        let want: BTreeMap<String, String> =
            of_share.map(|(name, (_, value))| (name.clone(), value.clone())).collect();
        let until = Instant::now() + PATIENCE;
        loop {
            let seen: BTreeMap<String, String> =
                self.store.state().iter().map(|map| (map.name_any(), value_of(map))).collect();
            if seen == want {
                break;
            }
            assert!(Instant::now() < until, "a watcher missed a change: {seen:?}, not {want:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.task.abort();
    }
}

/// Environment variables: `MOVE_WRITERS` and `MOVE_WATCHERS` set the numbers of writers and watchers.
/// `MOVE_RATE` is the number of writes per second of all writers together; 0 means as many as possible.
/// `MOVE_SHARES` is the number of shares into which the objects are divided; each watcher follows one share.
/// `MOVE_OBJECTS` is the number of additional objects. `MOVE_SECONDS` is the time for which clients write before the
/// move, and again after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_can_be_migrated_to_etcd_and_back_while_clients_use_it() {
    let number =
        |name: &str, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (writers, watchers) = (number("MOVE_WRITERS", 8_usize), number("MOVE_WATCHERS", 8_usize));
    let shares = number("MOVE_SHARES", 1);
    let share_of = |at: usize| format!("s{}", at % shares);
    let steady = Duration::from_secs(number("MOVE_SECONDS", 0) as u64);
    let pause = match number("MOVE_RATE", 0) {
        0 => None,
        rate => Some(Duration::from_secs_f64(writers as f64 / rate as f64)),
    };
    let Some(etcd) = Etcd::start(1).await else { return };
    let mut server = Server::start_upstream().await;
    furnish(server.client()).await;
    for at in 0..number("MOVE_OBJECTS", 0) {
        let made = server.client().post(OTHERS, &json!({"metadata": {"name": format!("other{at}")}})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let (urls, listed) = (format!("--etcd-servers={}", etcd.urls()), Arc::new(AtomicU64::new(0)));
    for (direction, said, lists_more) in
        [("to-etcd", "store moved to etcd", 1), ("to-log", "store moved to the server's own log", 0)]
    {
        server.terminate();
        let port = format!("--secure-port={}", free_port());
        // The server continues with its store, and moves it once its clients are connected.
        let before = match direction {
            "to-etcd" => vec![port.as_str()],
            _ => vec![port.as_str(), urls.as_str()],
        };
        server.restart_with(&before).await;
        let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let now = || (Instant::now(), writes.load(Ordering::Relaxed));
        let writing: Vec<_> = (0..writers)
            .map(|at| {
                let name = format!("{direction}-{at}");
                let client = server.client().another();
                tokio::spawn(count_up((name, share_of(at), pause), client, stop.clone(), writes.clone()))
            })
            .collect();
        let kube = kube_client(&server).await;
        listed.store(0, Ordering::Relaxed);
        let informers: Vec<Informer> = (0..watchers)
            .map(|at| Informer::begin(&kube, (shares > 1).then(|| share_of(at)), &listed))
            .collect();
        for informer in &informers {
            informer.store.wait_until_ready().await.unwrap();
        }
        let first = listed.load(Ordering::Relaxed);
        let mut phases = vec![("before", now())];
        tokio::time::sleep(steady).await;
        phases.push(("while it is started again", now()));
        // The flag requires a restart; the move itself happens within one process, which keeps its socket.
        let live = format!("--live-migration={direction}");
        server.restart_with(&[&port, &urls, &live]).await;
        phases.push(("while it moves", now()));
        let until = Instant::now() + 2 * PATIENCE;
        while !server.log().contains(said) {
            assert!(Instant::now() < until, "{}", server.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let moved = now();
        phases.push(("after", moved));
        while writes.load(Ordering::Relaxed) < moved.1 + writers as u64 {
            assert!(Instant::now() < until, "{}", server.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(steady).await;
        phases.push(("", now()));
        stop.store(true, Ordering::Relaxed);
        let mut want = BTreeMap::new();
        for (at, writer) in writing.into_iter().enumerate() {
            want.insert(format!("{direction}-{at}"), writer.await.unwrap());
        }
        let list = server.client().get(MAPS).await.json();
        let there: BTreeMap<String, (String, String)> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                let text = |value: &Value, usual: &str| value.as_str().unwrap_or(usual).to_owned();
                let (name, share) =
                    (text(&item["metadata"]["name"], ""), text(&item["metadata"]["labels"]["share"], ""));
                (name, (share, text(&item["data"]["v"], "0")))
            })
            .collect();
        for (name, acknowledged) in &want {
            let count: u64 = there[name].1.parse().unwrap();
            // A further write may have happened without a response.
            assert!(
                (*acknowledged..=acknowledged + 1).contains(&count),
                "{name}: {count}, not {acknowledged}"
            );
        }
        for informer in informers {
            informer.comes_to(&there).await;
        }
        let more = listed.load(Ordering::Relaxed) - first;
        assert!(more <= lists_more * watchers as u64, "{direction}: {more} lists of {watchers} watchers");
        let rates = phases.windows(2).map(|pair| {
            let ((phase, from), (_, to)) = (pair[0], pair[1]);
            let took = to.0 - from.0;
            format!("{:.0} {phase} ({took:.1?})", (to.1 - from.1) as f64 / took.as_secs_f64())
        });
        eprintln!(
            "{direction}: {} writes, in a second {}; {more} lists more of {watchers} watchers",
            writes.load(Ordering::Relaxed),
            rates.collect::<Vec<_>>().join(", ")
        );
    }
    assert_eq!(server.client().get(LISTS[6]).await.json()["items"][0]["size"], 3);
}

#[tokio::test]
async fn thousands_of_keys_are_deleted_in_one_revision() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let server = etcd.server(&["--controllers="]).await;
    let kept = server.client().post(MAPS, &map("kept", "1")).await.json();
    let value = etcd.get("/registry/configmaps/default/kept").await.unwrap().value;
    let count = async || {
        let list = server.client().get(MAPS).await.json();
        list["items"].as_array().map(Vec::len)
    };
    let before = count().await;
    for part in 0..50 {
        let puts = (0..100).map(|at| {
            let key = format!("/registry/configmaps/default/many-{part:02}-{at:02}");
            Request::Put(PutRequest { key: key.into(), value: value.clone(), lease: 0 }).into()
        });
        let request = TxnRequest { success: puts.collect(), ..TxnRequest::default() };
        etcd.client().txn(&request).await.expect("etcd accepts the transaction");
    }
    assert_eq!(count().await, before.map(|before| before + 5000));
    let delete = DeleteRangeRequest {
        key: "/registry/configmaps/default/many-".into(),
        range_end: "/registry/configmaps/default/many.".into(),
    };
    let request = TxnRequest { success: vec![Request::Delete(delete).into()], ..TxnRequest::default() };
    etcd.client().txn(&request).await.expect("etcd accepts the transaction");
    assert_eq!(count().await, before);
    assert_eq!(server.client().get(&format!("{MAPS}/kept")).await.json(), kept);
    assert!(!server.log().contains("is broken"), "{}", server.log());
}

#[tokio::test]
async fn a_server_that_stops_releases_its_leadership_and_each_server_has_an_identity() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let mut one = etcd.server(&[]).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lead = format!("{leases}/kube-apiserver-controllers");
    let first = one.client().until(&lead, |lease| lease.is_some()).await.unwrap();
    assert_eq!((&first["kind"], &first["apiVersion"]), (&json!("Lease"), &json!("coordination.k8s.io/v1")));
    let identities = format!("{leases}?labelSelector=apiserver.kubernetes.io/identity=kube-apiserver");
    let known = |list: Option<&Value>| {
        list.is_some_and(|list| list["items"].as_array().is_some_and(|all| !all.is_empty()))
    };
    let list = one.client().until(&identities, known).await.unwrap();
    let own = &list["items"][0];
    assert!(own["metadata"]["name"].as_str().unwrap().starts_with("apiserver-"), "{own}");
    assert_eq!(own["spec"]["leaseDurationSeconds"], 3600);
    let over = json!({
        "metadata": {"name": "apiserver-gone", "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 10, "renewTime": "2020-01-01T00:00:00.000000Z"}
    });
    assert_eq!(one.client().post(leases, &over).await.status, 201);
    let two = etcd.server(&[]).await;
    let began = Instant::now();
    one.terminate();
    assert!(one.log().contains("leadership released"), "{}", one.log());
    let holder = &first["spec"]["holderIdentity"];
    let second = two.client().until(&lead, |lease| {
        lease.is_some_and(|lease| {
            lease["spec"]["holderIdentity"] != *holder && lease["spec"]["holderIdentity"] != ""
        })
    });
    assert!(second.await.is_some());
    eprintln!("taken over after {:?}", began.elapsed());
    // The server that is elected next deletes expired objects.
    two.client().until_gone(&format!("{leases}/apiserver-gone")).await;
}
