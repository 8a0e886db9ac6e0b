//! Tests of controllers and informers that use the test features. The controllers are written with the unmodified
//! `kube` crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tests::PATIENCE;

use super::{CONFIG_MAPS, config_map, control, server};
use crate::support::{kube_client, until};

/// Applies `effect` to the watch of config maps in the default namespace, as soon as exactly one such watch is open. An
/// informer opens its watch after its list.
async fn disturb(client: &tests::Client, effect: &str) {
    let order = json!({
        "match": {"resources": ["configmaps"], "namespaces": ["default"]},
        "effect": effect
    });
    let began = Instant::now();
    while control(client, "POST", "/watches", order.clone()).await["disturbed"] != 1 {
        assert!(began.elapsed() < PATIENCE, "no watch to {effect}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until `condition` holds.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the test's object fits its type")
}

/// Starts an informer of the config maps in the default namespace. Returns its store, and the number of its list
/// requests.
fn informer(client: &Client) -> (reflector::Store<ConfigMap>, Arc<AtomicUsize>) {
    let (reader, writer) = reflector::store();
    let lists = Arc::new(AtomicUsize::new(0));
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let counted = lists.clone();
    let stream = watcher(api, watcher::Config::default()).inspect(move |event| {
        if matches!(event, Ok(watcher::Event::Init)) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let stream = stream.default_backoff().reflect(writer);
    tokio::spawn(async move { stream.for_each(|_| async {}).await });
    (reader, lists)
}

fn has(store: &reflector::Store<ConfigMap>, name: &str, value: &str) -> bool {
    let found = store.state().into_iter().find(|object| object.name_any() == name);
    found.and_then(|object| object.data.clone()).is_some_and(|data| data["value"] == value)
}

/// The reconciler of the next test: copies the value of each object into a label, by a conditional update.
async fn reconcile(parent: Arc<ConfigMap>, work: Arc<(Client, AtomicUsize)>) -> Result<Action, kube::Error> {
    let api: Api<ConfigMap> = Api::default_namespaced(work.0.clone());
    let value = parent.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default();
    if parent.labels().get("value") != Some(&value) {
        work.1.fetch_add(1, Ordering::SeqCst);
        let mut changed = (*parent).clone();
        changed.labels_mut().insert("value".to_owned(), value);
        api.replace(&parent.name_any(), &PostParams::default(), &changed).await?;
    }
    Ok(Action::await_change())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_retries_after_injected_conflicts() {
    let server = server(&[]).await;
    let (own, client) = (server.client(), kube_client(&server).await);
    let rule = json!({"match": {"verbs": ["update"], "names": ["web"]}, "count": 3, "error": {"code": 409}});
    let rule = control(own, "POST", "/faults", rule).await;
    let mark = control(own, "GET", "/requests", Value::Null).await;
    let work = Arc::new((client.clone(), AtomicUsize::new(0)));
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let controller = Controller::new(api.clone(), watcher::Config::default()).run(
        reconcile,
        |_, _, _| Action::requeue(Duration::from_millis(20)),
        work.clone(),
    );
    let controller = tokio::spawn(controller.for_each(|_| async {}));

    api.create(&PostParams::default(), &object(config_map("web", "7"))).await.unwrap();
    let labelled = |map: Option<&ConfigMap>| map.is_some_and(|map| map.labels().get("value").is_some());
    until(&api, "web", labelled).await;
    assert!(work.1.load(Ordering::SeqCst) >= 4, "the controller has three conflicts and a success");
    let quiet = control(own, "POST", "/quiescence", json!({"for": "50ms"})).await;
    assert!(quiet["resourceVersion"].is_string());

    // The recording contains the requests of the controller.
    let record =
        control(own, "GET", &format!("/requests?since={}&bodies=true", mark["mark"]), Value::Null).await;
    let updates = record["items"].as_array().unwrap().iter();
    let updates: Vec<_> = updates.filter(|item| item["verb"] == "update" && item["name"] == "web").collect();
    let codes: Vec<_> = updates.iter().map(|item| item["code"].as_u64().unwrap()).collect();
    assert_eq!(codes, [409, 409, 409, 200], "{record}");
    assert!(updates.iter().take(3).all(|item| item["fault"] == rule["id"]));
    assert_eq!(updates[3]["body"]["metadata"]["labels"]["value"], "7");
    controller.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_survives_a_stalled_watch_and_an_expired_revision() {
    let server = server(&[]).await;
    let (own, client) = (server.client(), kube_client(&server).await);
    own.post(CONFIG_MAPS, &config_map("a", "1")).await;
    let (store, lists) = informer(&client);
    eventually("the informer has the object", || has(&store, "a", "1")).await;
    disturb(own, "stall").await;
    own.put(&format!("{CONFIG_MAPS}/a"), &config_map("a", "2")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(has(&store, "a", "1"), "a stalled watch delivers nothing");
    disturb(own, "resume").await;
    eventually("the informer catches up", || has(&store, "a", "2")).await;
    let before = lists.load(Ordering::SeqCst);
    disturb(own, "expire").await;
    eventually("the informer lists again", || lists.load(Ordering::SeqCst) > before).await;
    own.put(&format!("{CONFIG_MAPS}/a"), &config_map("a", "3")).await;
    eventually("the informer receives later changes", || has(&store, "a", "3")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_follows_a_restored_snapshot() {
    let server = server(&[]).await;
    let (own, client) = (server.client(), kube_client(&server).await);
    own.post(CONFIG_MAPS, &config_map("a", "1")).await;
    control(own, "PUT", "/snapshots/clean", Value::Null).await;
    let (store, _) = informer(&client);
    for n in 0..20 {
        own.put(&format!("{CONFIG_MAPS}/a"), &config_map("a", "dirty")).await;
        own.post(CONFIG_MAPS, &config_map(&format!("b{n}"), "1")).await;
        eventually("the informer has the change", || has(&store, &format!("b{n}"), "1")).await;
        control(own, "POST", "/snapshots/clean/restore", Value::Null).await;
        eventually("the informer has the saved state", || {
            has(&store, "a", "1") && !store.state().iter().any(|map| map.name_any().starts_with('b'))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_sees_events_expire_by_the_test_clock() {
    let server = server(&[]).await;
    let (own, client) = (server.client(), kube_client(&server).await);
    let api: Api<Event> = Api::default_namespaced(client);
    let (store, writer) = reflector::store();
    let stream = watcher(api.clone(), watcher::Config::default()).default_backoff().reflect(writer);
    tokio::spawn(async move { stream.for_each(|_| async {}).await });
    let event =
        json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "reason": "Tested"});
    api.create(&PostParams::default(), &object(event)).await.unwrap();
    let there = || store.state().iter().any(|event| event.name_any() == "e");
    eventually("the informer has the event", there).await;
    control(own, "PUT", "/clock", json!({"advance": "61m"})).await;
    eventually("the event expires", || !there()).await;
}
