//! The stage table: every kind of request to the write path, and the stages that the request passes.

use engine::Revision;
use std::fmt::Write as _;

use super::server_fixture::TestServer;
use crate::writes::bootstrap::{ObjectStore, ObjectTarget};
use crate::writes::loopback::Loopback;
use crate::writes::stage::trace;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::options::DeleteOptions;
use types::schema::registry::Resource;
use values::json::{Object, Value, parse};
use values::testing::object;

/// The stages that each kind of request passes. A dot marks a stage that the request skips.
///
/// If a request makes several writes, its row combines them: an eviction first sets a condition of the pod
/// with the identity of the server, and then deletes the pod. A command (a binding, an eviction, a request
/// for a token) passes both points of admission; the resulting write does not pass them again.
const TABLE: &str = r"
                           decode default mutate escalate compare own allocate prepare validate confirm admit encode commit
POST                       x      x       x      x        .       x   x        x       x        x       x     x      x
POST, generated name       x      x       x      x        .       x   x        x       x        x       x     x      x
POST, dry run              x      x       x      x        .       x   x        x       x        x       x     x      .
PUT                        x      x       x      x        x       x   x        x       x        x       x     x      x
PUT, no change             x      x       x      x        x       x   x        x       x        x       x     x      .
PUT, creating              x      x       x      x        .       x   x        x       x        x       x     x      x
JSON patch                 x      x       x      x        x       x   x        x       x        x       x     x      x
merge patch                x      x       x      x        x       x   x        x       x        x       x     x      x
strategic merge patch      x      x       x      x        x       x   x        x       x        x       x     x      x
apply, creating            x      x       x      x        .       .   x        x       x        x       x     x      x
apply                      x      x       x      x        x       .   x        x       x        x       x     x      x
review                     .      .       x      .        .       .   .        .       .        .       x     .      .
PUT status                 x      x       x      x        x       x   .        x       x        .       x     x      x
PATCH status               x      x       x      x        x       x   .        x       x        .       x     x      x
apply status               x      x       x      x        x       .   .        x       x        .       x     x      x
PUT scale                  x      .       x      x        x       .   .        x       x        .       x     x      x
PATCH scale                x      .       x      x        x       .   .        x       x        .       x     x      x
apply scale                x      .       x      x        x       .   .        x       x        .       x     x      x
binding                    x      .       x      x        x       .   .        x       .        .       x     x      x
resize                     x      x       x      x        x       x   .        x       x        .       x     x      x
ephemeralcontainers        x      x       x      x        x       x   .        x       x        .       x     x      x
connect                    .      .       x      .        .       .   .        .       .        .       x     .      .
eviction                   x      x       x      .        .       x   .        x       x        .       x     x      x
token                      .      .       x      .        .       .   .        .       .        .       x     .      .
finalize                   x      x       x      x        x       x   .        x       x        .       x     x      x
approval                   x      x       x      x        x       x   .        x       x        .       x     x      x
DELETE                     x      .       x      .        .       .   .        .       .        .       x     x      x
DELETE, first phase        x      .       x      .        .       .   .        .       .        .       x     x      x
PATCH, last finalizer      x      x       x      x        x       x   x        x       x        x       x     x      x
DELETE of a collection     x      .       x      .        .       .   .        .       .        .       x     x      x
bootstrap                  x      x       .      .        .       x   x        x       x        .       .     x      x
server: create             x      x       x      .        .       x   x        x       x        .       x     x      x
server: update             x      x       x      .        .       x   x        x       x        .       x     x      x
server: apply              x      x       x      .        .       .   x        x       x        .       x     x      x
controller: change         x      x       x      .        .       x   x        x       x        .       x     x      x
controller: change status  x      x       x      .        .       x   .        x       x        .       x     x      x
backfill, no change        x      x       .      .        .       .   .        .       .        .       .     x      .
controller: delete         x      .       x      .        .       .   .        .       .        .       x     x      x
";

/// Returns the stages that have a column in the table.
fn columns() -> impl Iterator<Item = &'static str> {
    TABLE.lines().nth(1).unwrap_or_default().split_whitespace()
}

/// The rows that are already tested.
struct Table {
    server: TestServer,
    text: String,
}

impl Table {
    /// Adds a row for all writes since the previous row.
    fn row(&mut self, name: &str) {
        let passed = trace::take().into_iter().map(|stage| format!("{stage:?}").to_lowercase());
        let passed: Vec<String> = passed.collect();
        for stage in &passed {
            assert!(columns().any(|column| column == stage), "{stage} has no column");
        }
        let mut line = format!("{name:<26}");
        for column in columns() {
            let mark = if passed.iter().any(|stage| stage == column) { "x" } else { "." };
            let _ = write!(line, " {mark:<0$}", column.len());
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Creates an object that a later row needs. This creation gets no row.
    async fn create_without_row(&self, path: &str, body: &str) {
        let (code, _, answer) = self.server.send(&format!("POST {path}"), body).await;
        assert_eq!(code, 201, "{path}: {answer:?}");
        trace::take();
    }

    /// Sends a request, which must succeed, and adds its row.
    async fn request(&mut self, name: &str, request: &str, body: &str) {
        let (code, _, answer) = self.server.send(request, body).await;
        assert!((200..300).contains(&code), "{request}: {code} {answer:?}");
        self.row(name);
    }
}

const POD: &str = r#"{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}}"#;

const DEPLOYMENT: &str = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":
    {"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;

const SIGNING_REQUEST: &str = r#"{"metadata":{"name":"s"},"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIRk1HNENBUUF3RERFS01BZ0dBMVVFQXd3QllUQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCRUw3UzQwRnlQT2pXYkREdldXNGRBbzVwVVdWZnN1Z2ZWb1FoZjZQbGZEWkQ2eWZHdndxZUxXa3A2TWlhOFl6Clh0YzdjVXQzS3pXZnVVWVRiWjFodnUrZ0FEQUtCZ2dxaGtqT1BRUURBZ05IQURCRUFpQXJDN29TQ0lCN2FtYkIKZzBDRTQzSTVOT09JaU5QYU1WOVIveWovZkZEOVVBSWdiNHNPTXU4QzllMlkyQ1FadWtjQk91ZjB2dHJTSlozcgpwck15T1JZSzV3ST0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==","signerName":"example.com/s","usages":["client auth"]}}"#;

#[tokio::test]
async fn every_kind_of_write_passes_the_expected_stages() {
    let mut table = Table { server: TestServer::start(), text: String::new() };
    requests(&mut table).await;
    subresources(&mut table).await;
    deletions(&mut table).await;
    by_the_server(&mut table).await;
    let header: Vec<&str> = columns().collect();
    let text = format!("\n{:<26} {}\n{}", "", header.join(" "), table.text);
    assert_eq!(text, TABLE, "{text}");
}

async fn requests(table: &mut Table) {
    table.create_without_row("/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let map = r#"{"metadata":{"name":"m"}}"#;
    table.request("POST", &format!("POST {maps}"), map).await;
    table
        .request("POST, generated name", &format!("POST {maps}"), r#"{"metadata":{"generateName":"m-"}}"#)
        .await;
    let dry = format!("POST {maps}?dryRun=All");
    table.request("POST, dry run", &dry, r#"{"metadata":{"name":"dry"}}"#).await;
    let changed = r#"{"metadata":{"name":"m"},"data":{"a":"b"}}"#;
    table.request("PUT", &format!("PUT {maps}/m"), changed).await;
    table.request("PUT, no change", &format!("PUT {maps}/m"), changed).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles";
    table.request("PUT, creating", &format!("PUT {roles}/r"), r#"{"metadata":{"name":"r"}}"#).await;
    let add = r#"[{"op":"add","path":"/data/c","value":"d"}]"#;
    table.request("JSON patch", &format!("JSON {maps}/m"), add).await;
    table.request("merge patch", &format!("MERGE {maps}/m"), r#"{"data":{"c":"e"}}"#).await;
    table.request("strategic merge patch", &format!("STRATEGIC {maps}/m"), r#"{"data":{"c":"f"}}"#).await;
    let config = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}"#;
    table.request("apply, creating", &format!("APPLY {maps}/applied?fieldManager=t"), config).await;
    let config = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":{"a":"b"}}"#;
    table.request("apply", &format!("APPLY {maps}/applied?fieldManager=t"), config).await;
    let review = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    table.request("review", review, r#"{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}"#).await;
}

async fn subresources(table: &mut Table) {
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    table.create_without_row(deployments, DEPLOYMENT).await;
    let body = DEPLOYMENT.replacen("}}}}", "}}},\"status\":{\"replicas\":1}}", 1);
    table.request("PUT status", &format!("PUT {deployments}/d/status"), &body).await;
    let body = r#"{"status":{"replicas":2}}"#;
    table.request("PATCH status", &format!("MERGE {deployments}/d/status"), body).await;
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"status":{"readyReplicas":1}}"#;
    table.request("apply status", &format!("APPLY {deployments}/d/status?fieldManager=t"), body).await;
    let body = r#"{"metadata":{"name":"d"},"spec":{"replicas":2}}"#;
    table.request("PUT scale", &format!("PUT {deployments}/d/scale"), body).await;
    table.request("PATCH scale", &format!("MERGE {deployments}/d/scale"), r#"{"spec":{"replicas":3}}"#).await;
    let body =
        r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":3}}"#;
    table.request("apply scale", &format!("APPLY {deployments}/d/scale?fieldManager=t"), body).await;

    let pods = "/api/v1/namespaces/n/pods";
    table.create_without_row(pods, &POD.replace("NAME", "p")).await;
    // A resize reads the resources of the node.
    let node = r#"{"metadata":{"name":"node","labels":{"kubernetes.io/os":"linux"}},"status":{"allocatable":{"cpu":"8","memory":"8Gi"}}}"#;
    table.create_without_row("/api/v1/nodes", node).await;
    let body = r#"{"metadata":{"name":"p"},"target":{"name":"node"}}"#;
    table.request("binding", &format!("POST {pods}/p/binding"), body).await;
    let body = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}"#;
    table.request("resize", &format!("STRATEGIC {pods}/p/resize"), body).await;
    let body = r#"{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}"#;
    table.request("ephemeralcontainers", &format!("STRATEGIC {pods}/p/ephemeralcontainers"), body).await;
    // The request fails after admission, because there is no node to connect to.
    table.server.send(&format!("POST {pods}/p/exec?command=ls"), "").await;
    table.row("connect");
    table.create_without_row(pods, &POD.replace("NAME", "q")).await;
    table.request("eviction", &format!("POST {pods}/q/eviction"), r#"{"metadata":{"name":"q"}}"#).await;

    table.create_without_row("/api/v1/namespaces/n/serviceaccounts", r#"{"metadata":{"name":"a"}}"#).await;
    table.request("token", "POST /api/v1/namespaces/n/serviceaccounts/a/token", r#"{"spec":{}}"#).await;
    let body = r#"{"metadata":{"name":"n"},"spec":{"finalizers":["kubernetes","x.io/y"]}}"#;
    table.request("finalize", "PUT /api/v1/namespaces/n/finalize", body).await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    table.create_without_row(requests, SIGNING_REQUEST).await;
    let body =
        r#"{"status":{"conditions":[{"type":"Approved","status":"True","reason":"r","message":"m"}]}}"#;
    table.request("approval", &format!("MERGE {requests}/s/approval"), body).await;
}

async fn deletions(table: &mut Table) {
    let maps = "/api/v1/namespaces/n/configmaps";
    table.create_without_row(maps, r#"{"metadata":{"name":"held","finalizers":["x.io/y"]}}"#).await;
    table.request("DELETE", &format!("DELETE {maps}/m"), "").await;
    table.request("DELETE, first phase", &format!("DELETE {maps}/held"), "").await;
    let release = r#"{"metadata":{"finalizers":null}}"#;
    table.request("PATCH, last finalizer", &format!("MERGE {maps}/held"), release).await;
    table.request("DELETE of a collection", &format!("DELETE {maps}"), "").await;
}

async fn by_the_server(table: &mut Table) {
    crate::system::startup::prepare(&table.server).await.unwrap();
    table.row("bootstrap");
    let Table { server, .. } = &*table;
    let loopback = Loopback::new(server);
    let target = ObjectTarget {
        group: "",
        version: "v1",
        resource: "configmaps",
        namespace: "n".to_owned(),
        name: "own".to_owned(),
    };
    let map = |text: &str| {
        let text = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"own","namespace":"n"}}{text}}}"#
        );
        parse(text.as_bytes()).unwrap()
    };
    let mut rows = Vec::new();
    let mut row = |name: &'static str| rows.push((name, trace::take()));
    loopback.create(&target, map("")).await.unwrap();
    row("server: create");
    let mut changed = loopback.get(&target).unwrap().unwrap();
    changed.as_object_mut().unwrap().insert("data", Value::Object(object(r#"{"a":"b"}"#)));
    loopback.update(&target, changed).await.unwrap();
    row("server: update");
    let resource = loopback.resource(&target).unwrap();
    let at = ObjectName { namespace: "n", name: "own" };
    let seen = revision(&loopback, resource, at);
    let config = map(r#","data":{"c":"d"}"#).as_object().unwrap().clone();
    loopback.apply(resource, at, Revision::new(seen), Endpoint::Main, "t", &config).await.unwrap();
    row("server: apply");
    let data = |old: &Object| {
        let mut new = old.clone();
        new.insert("data", Value::Object(object(r#"{"e":"f"}"#)));
        Some(new)
    };
    loopback.change(resource, at, Endpoint::Main, data).await.unwrap();
    row("controller: change");
    let namespaces = &server.types.namespaces;
    let conditions = |old: &Object| {
        let mut new = old.clone();
        let condition = object(r#"{"type":"NamespaceContentRemaining","status":"False"}"#);
        new.object_entry("status").insert("conditions", Value::Array(vec![condition.into()]));
        Some(new)
    };
    loopback.change(namespaces, ObjectName::cluster_scoped("n"), Endpoint::Status, conditions).await.unwrap();
    row("controller: change status");
    assert!(
        !loopback.backfill(resource, at, Revision::new(revision(&loopback, resource, at))).await.unwrap()
    );
    row("backfill, no change");
    loopback.delete_object(resource, at, &DeleteOptions::default()).await.unwrap();
    row("controller: delete");
    for (name, passed) in rows {
        passed.into_iter().for_each(trace::note);
        table.row(name);
    }
}

fn revision(
    loopback: &Loopback<'_>,
    resource: &Resource,
    ObjectName { namespace, name }: ObjectName<'_>,
) -> u64 {
    (loopback.store().get(&store::key(resource, namespace, name)).unwrap().unwrap().entry.revision()).get()
}
