//! Starts a server and fills it with objects.

use tests::{Options, Server};

use crate::load::{self, Outcome};
use crate::{Runtime, data};

/// Number of connections that create objects outside the measurement.
const FILL_CONNECTIONS: usize = 16;

/// Path of the pods that [`fill_pods`] creates.
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// Path of the ConfigMaps in the default namespace.
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Number of values of the pod label `slot`. A selector for one value selects a hundredth of the pods.
pub const SLOTS: usize = 100;

/// Starts a server with an empty store.
pub fn start(runtime: &Runtime) -> Server {
    runtime.run(Server::start(Options::default()))
}

/// Returns requests that create `count` pods, named `<stem>-<number>`.
pub fn pod_creates(stem: &str, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|at| load::request("POST", PODS, &data::pod(&format!("{stem}-{at:06}"), at % SLOTS)))
        .collect()
}

/// Returns requests that create `count` ConfigMaps, named `<stem>-<number>`.
pub fn config_map_creates(stem: &str, count: usize) -> Vec<Vec<u8>> {
    config_map_creates_of(stem, 0..count)
}

fn config_map_creates_of(stem: &str, numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers
        .map(|at| load::request("POST", CONFIG_MAPS, &data::config_map(&format!("{stem}-{at:06}"))))
        .collect()
}

/// Creates objects over several connections.
pub async fn create(server: &Server, requests: &[Vec<u8>]) -> Outcome {
    let mut connections = load::connect(server.client(), FILL_CONNECTIONS).await;
    load::run(&mut connections, requests, 201).await
}

/// Creates `count` pods over several connections.
pub fn fill_pods(runtime: &Runtime, server: &Server, count: usize) {
    runtime.run(create(server, &pod_creates("web", count)));
}

/// Creates `count` ConfigMaps. This function keeps only a part of the requests in memory at a time.
pub fn fill_config_maps(runtime: &Runtime, server: &Server, count: usize) {
    const AT_A_TIME: usize = 50_000;
    for from in (0..count).step_by(AT_A_TIME) {
        let requests = config_map_creates_of("filled", from..count.min(from + AT_A_TIME));
        runtime.run(create(server, &requests));
    }
}
