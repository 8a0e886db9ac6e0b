//! Reads at an earlier point. The test records answers while a state is the newest state, changes everything, and
//! compares the recorded answers with those at the recorded revision.

use std::time::Duration;

use serde_json::{Value, json};
use tests::client::Watch;
use tests::{Client, Options, PATIENCE, Server};

use crate::definitions::{DEFINITIONS, establish};
use crate::kubectl::Kubectl;
use crate::support::Random;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const GEARS: &str = "/apis/g.example.com/v1/namespaces/default/gears";
const LEVERS: &str = "/apis/g.example.com/v1/namespaces/default/levers";

const JSON: &str = "application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const YAML: &str = "application/yaml";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Requests whose answers must not change: path and media type.
fn requests() -> Vec<(String, &'static str)> {
    let mut all = Vec::new();
    for collection in [MAPS, PODS, DEPLOYMENTS, SECRETS, GEARS, LEVERS, "/api/v1/namespaces", DEFINITIONS] {
        for media_type in [JSON, YAML, PARTIAL] {
            all.push((collection.to_owned(), media_type));
        }
        all.push((format!("{collection}?limit=1"), JSON));
        all.push((format!("{collection}?labelSelector=app%3Dweb"), JSON));
    }
    for collection in [MAPS, PODS, DEPLOYMENTS, SECRETS] {
        all.push((collection.to_owned(), PROTOBUF));
    }
    for object in [
        format!("{MAPS}/settings"),
        format!("{PODS}/web-0"),
        format!("{PODS}/web-0/status"),
        format!("{DEPLOYMENTS}/web"),
        format!("{DEPLOYMENTS}/web/scale"),
        format!("{SECRETS}/password"),
        format!("{GEARS}/first"),
        format!("{LEVERS}/first"),
        format!("{MAPS}/later"),
        format!("{DEFINITIONS}/gears.g.example.com"),
        "/api/v1/configmaps?fieldSelector=metadata.name%3Dsettings".to_owned(),
        "/apis".to_owned(),
        "/apis/g.example.com".to_owned(),
        "/apis/g.example.com/v1".to_owned(),
        "/apis/g.example.com/v2".to_owned(),
        "/openapi/v3/apis/g.example.com/v1".to_owned(),
        "/openapi/v3/apis/apps/v1".to_owned(),
        "/version".to_owned(),
    ] {
        all.push((object, JSON));
    }
    all.push(("/apis".to_owned(), AGGREGATED));
    all
}

/// Returns status and body of each request.
async fn answers(client: &Client, prefix: &str) -> Vec<(u16, Vec<u8>)> {
    let mut answers = Vec::new();
    for (path, media_type) in requests() {
        let reply = client.send("GET", &format!("{prefix}{path}"), &[("accept", media_type)], b"").await;
        answers.push((reply.status, reply.body.to_vec()));
    }
    answers
}

/// Returns the newest revision.
async fn revision(client: &Client) -> String {
    let list = client.get(&format!("{MAPS}?limit=1")).await.json();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Records all answers at one revision, and the table of pods.
async fn recorded(client: &Client) -> (String, Vec<(u16, Vec<u8>)>) {
    loop {
        let before = revision(client).await;
        let answers = answers(client, "").await;
        if revision(client).await == before {
            return (before, answers);
        }
    }
}

async fn created(client: &Client, path: &str, object: Value) {
    let reply = client.post(path, &object).await;
    assert_eq!(reply.status, 201, "{path}: {}", reply.text());
}

async fn patched(client: &Client, path: &str, patch: Value) {
    let reply = client.patch(path, "merge", &patch).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
}

async fn deleted(client: &Client, path: &str) {
    let reply = client.delete(path).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
}

fn definition(plural: &str, versions: Value) -> Value {
    crate::definitions::definition(plural, versions)
}

fn version(name: &str, storage: bool, properties: Value) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
            "type": "object", "properties": properties,
        }}}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    })
}

/// Creates objects of several built-in kinds and of two custom kinds.
async fn prepare(server: &Server) {
    let client = server.client();
    for plural in ["gears", "levers"] {
        let properties = json!({"size": {"type": "integer"}, "old": {"type": "string"}});
        establish(server, &definition(plural, json!([version("v1", true, properties)]))).await;
    }
    let labels = json!({"app": "web"});
    created(client, MAPS, json!({"metadata": {"name": "settings", "labels": labels}, "data": {"a": "1"}}))
        .await;
    created(client, MAPS, json!({"metadata": {"name": "stays"}, "data": {"a": "1"}})).await;
    let secret = json!({"metadata": {"name": "password"}, "stringData": {"p": "old"}});
    created(client, SECRETS, secret).await;
    let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
    created(client, PODS, json!({"metadata": {"name": "web-0", "labels": labels}, "spec": spec})).await;
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    created(client, DEPLOYMENTS, json!({"metadata": {"name": "web", "labels": labels}, "spec": spec})).await;
    for (path, kind) in [(GEARS, "Gear"), (LEVERS, "Lever")] {
        let object = json!({
            "apiVersion": "g.example.com/v1", "kind": kind, "metadata": {"name": "first", "labels": labels},
            "spec": {"size": 3, "old": "value"},
        });
        created(client, path, object).await;
    }
}

/// Changes or deletes everything that [`prepare`] made.
async fn change_all(client: &Client) {
    patched(client, &format!("{MAPS}/settings"), json!({"data": {"a": "2"}, "metadata": {"labels": null}}))
        .await;
    created(client, MAPS, json!({"metadata": {"name": "later"}})).await;
    deleted(client, &format!("{MAPS}/stays")).await;
    patched(client, &format!("{SECRETS}/password"), json!({"data": {"p": "bmV3"}})).await;
    deleted(client, &format!("{PODS}/web-0?gracePeriodSeconds=0")).await;
    patched(client, &format!("{DEPLOYMENTS}/web"), json!({"spec": {"replicas": 5}})).await;
    // The definition of gears gets another schema and version, and the definition of levers is deleted.
    let gears = format!("{DEFINITIONS}/gears.g.example.com");
    let versions = json!([
        version("v1", false, json!({"size": {"type": "integer"}})),
        version("v2", true, json!({"size": {"type": "integer"}, "new": {"type": "string"}})),
    ]);
    patched(client, &gears, json!({"spec": {"versions": versions}})).await;
    let has_v2 = |found: Option<&Value>| found.is_some_and(|list| list["kind"] == "APIResourceList");
    client.until("/apis/g.example.com/v2", has_v2).await;
    patched(client, &format!("{GEARS}/first"), json!({"spec": {"size": 4}})).await;
    deleted(client, &format!("{DEFINITIONS}/levers.g.example.com")).await;
    client.until_gone(&format!("{DEFINITIONS}/levers.g.example.com")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_at_an_earlier_point_equal_the_answers_sent_then() {
    let mut server = Server::start_upstream().await;
    prepare(&server).await;
    let client = server.client().clone();
    let (revision, then) = recorded(&client).await;
    let time = values::clock::ago(Duration::ZERO);
    change_all(&client).await;
    let compare = async |client: &Client, point: &str| {
        let now = answers(client, &format!("/as-of/{point}")).await;
        for (((path, media_type), then), now) in requests().into_iter().zip(&then).zip(&now) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(then.0, now.0, "{path} as {media_type} at {point}: {}", text(&now.1));
            assert!(
                then.1 == now.1,
                "{path} as {media_type} at {point}:\n{}\nnot\n{}",
                text(&now.1),
                text(&then.1)
            );
        }
    };
    compare(&client, &revision).await;
    // Nothing was written between the recording and the time.
    compare(&client, &time).await;
    // The current types are different. After a restart, the recorded point still has the types of that time.
    assert_ne!(answers(&client, "").await, then);
    server.kill();
    server.restart().await;
    compare(server.client(), &revision).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_tables_and_watches_at_an_earlier_point_show_its_state() {
    let server = Server::start_upstream().await;
    let client = server.client();
    for n in 0..5 {
        created(client, MAPS, json!({"metadata": {"name": format!("m{n}")}, "data": {"n": "then"}})).await;
    }
    let revision = revision(client).await;
    let prefix = format!("/as-of/{revision}");
    for n in 0..5 {
        deleted(client, &format!("{MAPS}/m{n}")).await;
        created(client, MAPS, json!({"metadata": {"name": format!("n{n}")}})).await;
    }
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{prefix}{MAPS}?limit=2&continue={token}")).await.json();
        assert_eq!(page["metadata"]["resourceVersion"], *revision);
        let items = page["items"].as_array().unwrap().iter();
        names.extend(items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
    }
    names.retain(|name| name != "kube-root-ca.crt");
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);

    let path = format!("{prefix}{MAPS}?fieldSelector=metadata.name%3Dm0");
    let table = client.send("GET", &path, &[("accept", TABLE)], b"").await.json();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..2], [json!("m0"), json!(1)], "{table}");

    let selector = "fieldSelector=metadata.name%3Dm1";
    let options = "allowWatchBookmarks=true&timeoutSeconds=4";
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut watch = client.watch(&format!("{prefix}{MAPS}?watch=true&{selector}&{initial}&{options}")).await;
    assert_eq!((watch.expect().await.0, watch.expect().await.2), ("ADDED".to_owned(), revision.clone()));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["metadata"]["resourceVersion"]),
        (&json!("BOOKMARK"), &json!(revision))
    );
    assert!(watch.next().await.is_none(), "the watch ends after timeoutSeconds");

    let quiet = format!("{prefix}{MAPS}?watch=true&resourceVersion={revision}&timeoutSeconds=1");
    let mut watch: Watch = client.watch(&quiet).await;
    created(client, MAPS, json!({"metadata": {"name": "unseen"}})).await;
    assert!(watch.next().await.is_none(), "a watch of a past state sends no later events");
    // A revision after the point does not exist yet.
    let newest = revision_after(client, &revision).await;
    let reply = client.get(&format!("{prefix}{MAPS}?resourceVersion={newest}")).await;
    assert_eq!((reply.status, &reply.json()["reason"]), (504, &json!("Timeout")), "{}", reply.text());
    assert_eq!(client.get(&format!("{prefix}{MAPS}?resourceVersion=1")).await.status, 200);
}

async fn revision_after(client: &Client, before: &str) -> String {
    let newest = revision(client).await;
    assert_ne!(newest, before);
    newest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_future_expired_or_written_point_is_refused() {
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    created(&client, MAPS, json!({"metadata": {"name": "a"}})).await;
    let old = revision(&client).await;
    for (method, path, status) in [
        ("GET", format!("/as-of/now{MAPS}"), 400),
        ("GET", format!("/as-of/{MAPS}"), 400),
        ("GET", format!("/as-of/10m{MAPS}"), 400),
        ("GET", format!("/as-of/0{MAPS}"), 400),
        ("GET", format!("/as-of/999999999{MAPS}"), 400),
        ("GET", format!("/as-of/2999-01-01T00:00:00Z{MAPS}"), 400),
        ("GET", format!("/as-of/2001-01-01T00:00:00Z{MAPS}"), 410),
        ("GET", format!("/as-of/-87600h{MAPS}"), 410),
        ("GET", format!("/as-of/-0s{MAPS}"), 200),
        ("POST", format!("/as-of/{old}{MAPS}"), 405),
        ("PUT", format!("/as-of/{old}{MAPS}/a"), 405),
        ("PATCH", format!("/as-of/{old}{MAPS}/a"), 405),
        ("DELETE", format!("/as-of/{old}{MAPS}/a"), 405),
        ("DELETE", format!("/as-of/{old}{MAPS}"), 405),
        ("GET", format!("/as-of/{old}{PODS}/a/log"), 405),
        ("GET", format!("/as-of/{old}{PODS}/a/exec?command=sh"), 405),
        ("GET", format!("/as-of/{old}/api/v1/componentstatuses"), 405),
        ("POST", format!("/as-of/{old}/apis"), 405),
        ("GET", format!("/as-of/{old}/healthz"), 404),
        ("GET", format!("/as-of/{old}/as-of/{old}{MAPS}"), 404),
        ("GET", format!("/as-of/{old}/apis/none.example.com/v1/things"), 404),
    ] {
        let reply = client.send(method, &path, &[], b"").await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
        if status != 404 && status != 200 {
            assert_eq!(reply.json()["kind"], "Status", "{method} {path}");
        }
    }
    let message = client.delete(&format!("/as-of/{old}{MAPS}/a")).await.json()["message"].clone();
    let expected =
        format!("the past is read-only: delete is not possible as of {old}, only get, list and watch are");
    assert_eq!(message, expected);
    assert_eq!(client.get(&format!("{MAPS}/a")).await.status, 200);

    server.restart_with(&["--history-retention=0"]).await;
    let client = server.client();
    created(client, MAPS, json!({"metadata": {"name": "b"}})).await;
    let path = format!("/as-of/{old}{MAPS}");
    let begun = std::time::Instant::now();
    let reply = loop {
        let reply = client.get(&path).await;
        if reply.status == 410 {
            break reply.json();
        }
        assert!(begun.elapsed() < PATIENCE, "{}", reply.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(reply["reason"], "Expired");
    let causes = reply["details"]["causes"].as_array().unwrap();
    let cause = |name: &str| {
        let found = causes.iter().find(|cause| cause["reason"] == name);
        found.map(|cause| cause["message"].as_str().unwrap().to_owned())
    };
    let oldest = cause("OldestRevision").unwrap();
    let message = reply["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("the oldest point that can be read is revision {oldest}")),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn earlier_points_are_read_with_the_current_permissions() {
    let flags = [
        "--token-auth-file=$dir/tokens.csv",
        "--audit-policy-file=$dir/policy",
        "--audit-log-path=$dir/audit.log",
    ];
    let files = vec![
        ("tokens.csv", "alice-token,alice,alice\n".to_owned()),
        ("policy", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n".to_owned()),
    ];
    let flags = flags.map(str::to_owned).to_vec();
    let server = Server::start(Options { flags, files, ..Options::default() }).await;
    let client = server.client();
    created(client, SECRETS, json!({"metadata": {"name": "s"}, "stringData": {"p": "old"}})).await;
    let old = revision(client).await;
    deleted(client, &format!("{SECRETS}/s")).await;
    let alice = client.with_token("alice-token");
    let path = format!("/as-of/{old}{SECRETS}/s");
    assert_eq!(alice.get(&path).await.status, 403);
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    created(client, &format!("{rbac}/roles"), json!({"metadata": {"name": "r"}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    created(client, &format!("{rbac}/rolebindings"), binding).await;
    let begun = std::time::Instant::now();
    let reply = loop {
        let reply = alice.get(&path).await;
        if reply.status == 200 {
            break reply.json();
        }
        assert!(begun.elapsed() < PATIENCE, "{}", reply.text());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(reply["data"]["p"], "b2xk");
    assert_eq!(alice.get(&format!("/as-of/{old}{SECRETS}")).await.status, 403);
    assert_eq!(client.anonymous().get(&path).await.status, 403);

    let event = loop {
        let log = std::fs::read_to_string(server.data_dir().join("audit.log")).unwrap_or_default();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut events =
            events.filter(|event| event["requestURI"] == path && event["responseStatus"]["code"] == 200);
        if let Some(event) = events.next() {
            break event;
        }
        assert!(begun.elapsed() < PATIENCE, "{log}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(event["annotations"]["k8s.io/as-of-revision"], *old);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_reads_an_earlier_point_through_the_path_of_its_server_url() {
    let server = Server::start_upstream().await;
    let releases = Kubectl::spread_releases(&server, 3).await;
    prepare(&server).await;
    let (revision, _) = recorded(server.client()).await;
    let commands = [
        "get configmaps,secrets,deployments,pods -o yaml",
        "get gears.g.example.com first -o yaml",
        "get levers -o jsonpath={.items[*].spec}",
        "get all -o name",
        "get pods -l app=web -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[0].image",
        "api-resources --api-group=g.example.com -o name",
    ];
    let mut then = Vec::new();
    for kubectl in &releases {
        for command in commands {
            then.push((kubectl, command, kubectl.ok(command).await));
        }
    }
    change_all(server.client()).await;
    let address = &server.client().identity().address;
    let at = format!("--server=https://{address}/as-of/{revision}");
    for (kubectl, command, then) in then {
        let now = kubectl.ok(&format!("{at} {command}")).await;
        assert_eq!(now, then, "{} {command}", kubectl.program().display());
    }
    for kubectl in &releases {
        assert!(kubectl.ok(&format!("{at} get levers")).await.contains("SIZE"));
        let ran = kubectl.run(&format!("{at} delete configmap settings"), "").await;
        assert!(ran.err.contains("the past is read-only"), "{}", ran.err);
        assert_eq!(ran.code, Some(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_state_of_a_random_history_is_read_back_unchanged() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let mut random = Random(7);
    let mut states: Vec<(String, Vec<u8>)> = Vec::new();
    for step in 0..200 {
        let path = format!("{MAPS}/m{}", random.below(6));
        let object = json!({"metadata": {"name": path.rsplit('/').next()}, "data": {"n": step.to_string()}});
        match random.below(4) {
            0 => client.delete(&path).await,
            1 => client.post(MAPS, &object).await,
            _ => client.put(&path, &object).await,
        };
        let list = client.get(MAPS).await;
        let revision = list.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        states.push((revision, list.body.to_vec()));
    }
    for (revision, then) in states {
        let now = client.get(&format!("/as-of/{revision}{MAPS}")).await;
        assert!(now.body == then, "at {revision}: {} not {}", now.text(), String::from_utf8_lossy(&then));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_at_an_earlier_point_are_charged_like_other_watches() {
    let server = Server::start_upstream().await;
    let client = server.client();
    for n in 0..50 {
        let map = json!({"metadata": {"name": format!("m{n}")}, "data": {"a": "x".repeat(10_000)}});
        created(client, MAPS, map).await;
    }
    let revision = revision(client).await;
    for n in 0..50 {
        deleted(client, &format!("{MAPS}/m{n}")).await;
    }
    let before = crate::support::anonymous_bytes(server.pid());
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = format!("/as-of/{revision}{MAPS}?watch=true&timeoutSeconds=60&{initial}");
    let mut watches = Vec::new();
    for _ in 0..1_000 {
        // The events wait in the connection, because no client reads them.
        watches.push(client.watch(&path).await);
    }
    let grown = crate::support::anonymous_bytes(server.pid()).saturating_sub(before);
    // Each connection has its buffers and a chunk of events. The 500 KB of the state are not kept for each connection.
    assert!(grown < 400 << 20, "{} KiB for each watch", (grown >> 10) / 1_000);
    assert_eq!(client.get(&format!("{MAPS}?limit=1")).await.status, 200);
    let mut names = Vec::new();
    while names.len() < 50 {
        let (kind, name, _) = watches[999].expect().await;
        if kind == "ADDED" && name != "kube-root-ca.crt" {
            names.push(name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_explains_the_types_of_an_earlier_point() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let client = server.client();
    let properties = json!({"size": {"type": "integer", "description": "Size is the number of teeth."}});
    establish(&server, &definition("gears", json!([version("v1", true, properties)]))).await;
    let revision = revision(client).await;
    deleted(client, &format!("{DEFINITIONS}/gears.g.example.com")).await;
    client.until_gone(&format!("{DEFINITIONS}/gears.g.example.com")).await;
    let at = format!("--server=https://{}/as-of/{revision}", client.identity().address);
    let text = kubectl.ok(&format!("{at} explain gears.spec.size")).await;
    assert!(text.contains("Size is the number of teeth."), "{text}");
    assert!(kubectl.ok(&format!("{at} explain deployments.spec")).await.contains("replicas"));
    assert_eq!(kubectl.run("explain gears.spec.size", "").await.code, Some(1));
}

/// Returns the collections of all resources that can be listed, and whether they have a protobuf form.
async fn collections(client: &Client) -> Vec<(String, bool)> {
    let groups = client.get("/apis").await.json();
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| {
        let versions = group["versions"].as_array().unwrap().iter();
        versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()))
    });
    let mut all = Vec::new();
    for root in ["/api/v1".to_owned()].into_iter().chain(versions) {
        let document = client.get(&root).await.json();
        for resource in document["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let verbs = resource["verbs"].as_array().unwrap();
            // Resources that are not stored have no history, and leases change continuously.
            if verbs.contains(&json!("list")) && !matches!(name, "componentstatuses" | "leases") {
                all.push((format!("{root}/{name}"), !root.contains("example.com")));
            }
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_read_at_an_earlier_point_as_it_was_then() {
    let server = Server::start_upstream().await;
    let client = server.client();
    super::undo::define(&server).await;
    super::undo::fill(client, "shop", 1).await;
    let collections = collections(client).await;
    let answers = async |prefix: &str| {
        let mut answers = Vec::new();
        for (path, has_protobuf) in &collections {
            for media_type in [JSON, PARTIAL, YAML, PROTOBUF] {
                if media_type == PROTOBUF && !has_protobuf {
                    continue;
                }
                let headers = [("accept", media_type)];
                let reply = client.send("GET", &format!("{prefix}{path}"), &headers, b"").await;
                answers.push((format!("{path} as {media_type}"), reply.status, reply.body.to_vec()));
            }
        }
        answers
    };
    let begun = std::time::Instant::now();
    let (revision, then) = loop {
        let before = revision(client).await;
        let then = answers("").await;
        if revision(client).await == before {
            break (before, then);
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "the server does not stop writing");
    };
    for path in ["/api/v1/namespaces/shop", &format!("{DEFINITIONS}/levers.g.example.com")] {
        deleted(client, path).await;
        client.until_gone(path).await;
    }
    let now = answers(&format!("/as-of/{revision}")).await;
    let names: Vec<&String> = then.iter().map(|(name, ..)| name).collect();
    for kind in super::undo::kinds() {
        assert!(names.iter().any(|name| name.starts_with(&format!("{}/{} ", kind.0, kind.1))), "{}", kind.1);
    }
    for (then, now) in then.iter().zip(&now) {
        assert!(
            then.1 == 200 && then == now,
            "{} at {revision}: {}",
            then.0,
            String::from_utf8_lossy(&now.2)
        );
    }
}
