//! A server that restarts under load (docs/api/operations.md#shutdown): acknowledged writes are preserved, accepted
//! requests are answered, and watches resume.
//!
//! `SHUTDOWN_CLIENTS` is the number of clients of the `kube` crate; several kubectl processes run at the same
//! time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tests::server::free_port;
use tests::{Options, PATIENCE, Server};

use crate::kubectl::Kubectl;
use crate::support::{from_environment, kube_client};

/// The namespace of the objects. Only this test writes there.
const NAMESPACE: &str = "kube-node-lease";

/// Each client whose number is a multiple of this number also watches.
const WATCHES: usize = 5;

/// Number of tasks. Each task runs kubectl repeatedly, one process at a time.
const KUBECTLS: usize = 2;

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// Names of the acknowledged objects, and failures of accepted requests.
type CreateOutcome = (Vec<String>, Vec<String>);

/// Creates objects until `is_over`, and counts them in `made`. A failed connection does not count as a request.
async fn create(
    api: Api<ConfigMap>,
    client: usize,
    made: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
) -> CreateOutcome {
    let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("c{client}-{n}");
        match api.create(&PostParams::default(), &map(&name)).await {
            Ok(_) => {
                acknowledged.push(name);
                made.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if format!("{error:?}").contains("Connect") => {}
            Err(error) => failed.push(format!("{name}: {error:?}")),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (acknowledged, failed)
}

/// Creates objects like [`create`], with a kubectl process for each object, one at a time.
async fn create_by_kubectl(kubectl: Kubectl, place: usize, is_over: Arc<AtomicBool>) -> CreateOutcome {
    let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("k{place}-{n}");
        let ran = kubectl.run(&format!("create configmap {name} -n {NAMESPACE}"), "").await;
        let is_refused = ["connection refused", "was refused", "connection reset by peer"];
        match ran.code {
            Some(0) => acknowledged.push(name),
            // kubectl sends discovery requests first, and does not report which of its requests failed.
            _ if is_refused.iter().any(|why| ran.err.contains(why)) => {}
            _ => failed.push(format!("{name}: {ran:?}")),
        }
    }
    (acknowledged, failed)
}

/// Watches until every name of `end` was seen.
async fn watch(api: Api<ConfigMap>, end: &'static str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let changes = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        // An error ends a stream. The watcher then starts another stream.
        let Ok(object) = change else { continue };
        let name = object.name_any();
        let is_end = name == end;
        seen.insert(name);
        if is_end {
            break;
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_lose_nothing_when_the_server_restarts() {
    const END: &str = "zz-end";
    let clients = from_environment("SHUTDOWN_CLIENTS", 40);
    // The port stays the same after the restart, like the port of a service.
    let port = free_port();
    let flags = vec![format!("--secure-port={port}"), "--shutdown-delay-duration=300ms".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let (made, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let (mut writers, mut watchers) = (Vec::new(), Vec::new());
    for n in 0..clients {
        let client = kube_client(&server).await;
        let api = Api::namespaced(client, NAMESPACE);
        if n % WATCHES == 0 {
            watchers.push(tokio::spawn(watch(api.clone(), END)));
        }
        writers.push(tokio::spawn(create(api, n, made.clone(), is_over.clone())));
    }
    for place in 0..KUBECTLS {
        if let Some(kubectl) = Kubectl::find(&server).await {
            writers.push(tokio::spawn(create_by_kubectl(kubectl, place, is_over.clone())));
        }
    }
    let mut server = server;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (code, back) = tokio::task::spawn_blocking(move || (server.terminate(), server)).await.unwrap();
        server = back;
        assert_eq!(code, Some(0), "{}", server.log());
        server.restart().await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    while made.load(Ordering::Relaxed) <= clients {
        assert!(begun.elapsed() < PATIENCE, "{made:?} requests");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let (mut acknowledged, mut failed) = (BTreeSet::new(), Vec::new());
    for outcome in join_all(writers).await {
        let (names, failures) = outcome.unwrap();
        acknowledged.extend(names);
        failed.extend(failures);
    }
    assert!(
        failed.is_empty(),
        "{} accepted requests failed: {:#?}",
        failed.len(),
        &failed[..failed.len().min(5)]
    );
    assert!(acknowledged.len() > clients, "{} requests", acknowledged.len());
    assert_eq!(server.log().matches("connections_cut=0").count(), 2, "{}", server.log());
    let last = Api::namespaced(kube_client(&server).await, NAMESPACE);
    last.create(&PostParams::default(), &map(END)).await.unwrap();
    for watcher in watchers {
        let seen = tokio::time::timeout(PATIENCE, watcher).await.expect("the watcher ends").unwrap();
        let missing: Vec<_> = acknowledged.difference(&seen).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    eprintln!("{} acknowledged requests of {clients} clients over 2 restarts", acknowledged.len());
}
