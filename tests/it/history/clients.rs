//! Unmodified clients read an earlier point, because they keep the path of the server's URL in a kubeconfig.

use std::process::Stdio;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client as KubeClient, ResourceExt};
use serde_json::json;
use tests::{PATIENCE, Server};
use tokio::process::Command;

use crate::python;
use crate::support::{kube_config, refusal};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A Python program that lists with a selector and in chunks, gets an object, and watches like an informer.
const READER: &str = "\
import sys
from kubernetes import client, config, watch
config.load_kube_config(config_file=sys.argv[1])
configuration = client.Configuration.get_default_copy()
configuration.host += '/as-of/' + sys.argv[2]
api = client.CoreV1Api(client.ApiClient(configuration))
print('GOT', api.read_namespaced_config_map('m1', 'default').data['a'])
names, token = [], None
while token != '':
    page = api.list_namespaced_config_map('default', limit=2, label_selector='l=x', _continue=token)
    names += [item.metadata.name for item in page.items]
    token = page.metadata._continue or ''
print('LISTED', *names)
stream = watch.Watch()
for event in stream.stream(api.list_namespaced_config_map, 'default', timeout_seconds=1,
                           resource_version=page.metadata.resource_version):
    print(event['type'], event['object'].metadata.name)
try:
    api.delete_namespaced_config_map('m1', 'default')
except client.ApiException as error:
    print('REFUSED', error.status)
";

/// The same program for Node.js, which watches with the informer of the client.
const NODE_READER: &str = "\
const k8s = require('@kubernetes/client-node');
const [path, revision] = process.argv.slice(1);
const config = new k8s.KubeConfig();
config.loadFromFile(path);
config.clusters = config.clusters.map((one) => ({...one, server: `${one.server}/as-of/${revision}`}));
const api = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'default';
(async () => {
  const map = await api.readNamespacedConfigMap({name: 'm1', namespace});
  console.log('GOT', map.data.a);
  let names = [], token;
  do {
    const page = await api.listNamespacedConfigMap({namespace, limit: 2, labelSelector: 'l=x', _continue: token});
    names = names.concat(page.items.map((item) => item.metadata.name));
    token = page.metadata._continue;
  } while (token);
  console.log('LISTED', ...names);
  const list = () => api.listNamespacedConfigMap({namespace, labelSelector: 'l=x'});
  const informer =
    k8s.makeInformer(config, '/api/v1/namespaces/default/configmaps', list, 'l=x');
  let ends = false;
  for (const event of ['update', 'delete', 'error'])
    informer.on(event, (value) => ends || console.log(event, value));
  const added = new Promise((resolve) => {
    const seen = new Set();
    informer.on('add', ({metadata}) => seen.add(metadata.name).size === 5 && resolve([...seen].sort()));
  });
  await informer.start();
  console.log('ADDED', ...await added);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  ends = true;
  await informer.stop();
  await api.deleteNamespacedConfigMap({name: 'm1', namespace}).catch((error) => console.log('REFUSED', error.code));
})();
";

/// Returns the directory of the packages of Node.js that are installed for all projects, if the client of Kubernetes is
/// one of them.
async fn node_packages() -> Option<String> {
    let root = Command::new("npm").args(["root", "--global"]).output().await;
    let root = root.ok().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let mut import = Command::new("node");
    import.args(["-e", "require('@kubernetes/client-node')"]).stderr(Stdio::null());
    let found = match &root {
        Some(root) => import.env("NODE_PATH", root).status().await.is_ok_and(|status| status.success()),
        None => false,
    };
    if !found {
        testkit::skip("node has no package @kubernetes/client-node");
        return None;
    }
    root
}

/// Creates five ConfigMaps, returns the revision, and changes and deletes them.
async fn filled(server: &Server) -> String {
    let client = server.client();
    for n in 0..5 {
        let map = json!({"metadata": {"name": format!("m{n}"), "labels": {"l": "x"}}, "data": {"a": "then"}});
        assert_eq!(client.post(MAPS, &map).await.status, 201);
    }
    let list = client.get(MAPS).await.json();
    for n in 0..5 {
        let path = format!("{MAPS}/m{n}");
        assert_eq!(client.patch(&path, "merge", &json!({"data": {"a": "now"}})).await.status, 200);
        assert_eq!(client.delete(&path).await.status, 200);
    }
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_reads_an_earlier_point() {
    if !python::has("kubernetes").await {
        return;
    }
    let server = Server::start_upstream().await;
    let revision = filled(&server).await;
    let mut command = Command::new("python3");
    command.args(["-c", READER]).arg(server.kubeconfig()).arg(&revision).stderr(Stdio::inherit());
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("the reader ends").unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "GOT then\nLISTED m0 m1 m2 m3 m4\nREFUSED 405\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_client_reads_an_earlier_point() {
    let Some(packages) = node_packages().await else { return };
    let server = Server::start_upstream().await;
    let revision = filled(&server).await;
    let mut command = Command::new("node");
    command.env("NODE_PATH", packages).args(["-e", NODE_READER]);
    command.arg(server.kubeconfig()).arg(&revision).stderr(Stdio::inherit());
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("the reader ends").unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "GOT then\nLISTED m0 m1 m2 m3 m4\nADDED m0 m1 m2 m3 m4\nREFUSED 405\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kube_crate_reads_an_earlier_point() {
    let server = Server::start_upstream().await;
    let revision = filled(&server).await;
    let mut config = kube_config(&server).await;
    config.cluster_url = format!("{}as-of/{revision}", config.cluster_url).parse().unwrap();
    let client = KubeClient::try_from(config).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = maps.get("m1").await.unwrap();
    assert_eq!(map.data.unwrap()["a"], "then");
    let page = maps.list(&ListParams::default().labels("l=x").limit(2)).await.unwrap();
    assert_eq!(page.items.len(), 2);
    let next = ListParams::default().labels("l=x").limit(9).continue_token(&page.metadata.continue_.unwrap());
    assert_eq!(maps.list(&next).await.unwrap().items.len(), 3);
    assert_eq!(refusal(maps.delete("m1", &DeleteParams::default()).await).code, 405);

    // An informer synchronizes with a list or with a streamed list, and then receives no events.
    for configuration in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let events = watcher(maps.clone(), configuration.labels("l=x").timeout(2)).applied_objects();
        let mut events = std::pin::pin!(events);
        let mut names = Vec::new();
        while names.len() < 5 {
            let event =
                tokio::time::timeout(PATIENCE, events.try_next()).await.expect("an event arrives").unwrap();
            names.push(event.expect("the watcher does not end").name_any());
        }
        names.sort();
        assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);
        let quiet = tokio::time::timeout(std::time::Duration::from_secs(3), events.try_next()).await;
        assert!(quiet.is_err(), "an informer of a past state receives no events: {quiet:?}");
    }
}
