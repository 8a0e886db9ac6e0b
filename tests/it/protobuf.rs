//! Protobuf in requests and responses (docs/api/encodings.md#accept, #content-type, #protobuf), over the
//! network.

use objects::codec::protobuf::envelope::{self, Unknown};
use objects::codec::protobuf::{decode, encode};
use serde_json::{Value, json};
use tests::server::Options;
use tests::{Client, Reply, Server};
use types::schema::builtin;
use types::schema::registry::Registry;
use types::schema::table::Message;
use values::json::{Object, Value as Tree};
use values::naming::{CLUSTER, KUBERNETES, Naming};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn message(name: &str) -> &Message {
    builtin::message(&KUBERNETES, name).unwrap_or_else(|| panic!("no type {name}"))
}

/// Returns the enveloped protobuf form of a JSON object.
fn protobuf(name: &str, object: &Value) -> Vec<u8> {
    let text = object.to_string();
    let tree = types::schema::decode::decode(message(name), text.as_bytes()).unwrap().object;
    let mut out = Vec::new();
    let word = |name: &str| object[name].as_str().unwrap_or_default();
    envelope::wrap(word("apiVersion"), word("kind"), &mut out, |out| encode(message(name), &tree, out))
        .unwrap();
    out
}

/// Returns the JSON form of an enveloped message.
pub fn read(naming: &'static Naming, name: &str, body: &[u8]) -> Value {
    let unknown = Unknown::read(body).unwrap_or_else(|error| panic!("{error}: {body:?}"));
    let message = builtin::message(naming, name).unwrap_or_else(|| panic!("no type {name}"));
    let mut object: Object = decode(&Registry::new(naming), message, unknown.raw).unwrap();
    unknown.name(&mut object);
    let mut text = Vec::new();
    types::schema::encode::encode(message, &object, &mut text);
    serde_json::from_slice(&text).unwrap()
}

async fn send(client: &Client, method: &str, path: &str, body: &[u8]) -> Reply {
    client.send(method, path, &[("content-type", PROTOBUF)], body).await
}

async fn get(client: &Client, path: &str, accept: &str) -> Reply {
    client.send("GET", path, &[("accept", accept)], b"").await
}

fn media_type(reply: &Reply) -> String {
    reply.header_all("content-type").join(",")
}

/// Removes the members in which two creations of the same object differ.
fn comparable(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "name"] {
        metadata.remove(name);
    }
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_written_as_protobuf_equal_objects_written_as_json() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let deployment = |name: &str| {
        json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": name, "labels": {"b": "2", "a": "1"}},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}],
                        "env": [{"name": "E", "value": ""}],
                        "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}},
                        "livenessProbe": {"httpGet": {"port": "web"}}}],
                    "volumes": [{"name": "v", "emptyDir": {}}]}}}})
    };
    let map = |name: &str| {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "annotations": {"k": "<&>"}},
            "data": {"z": "1", "a": ""}, "binaryData": {"b": "AP8="}})
    };
    type Case<'c> = (&'c str, &'c str, &'c dyn Fn(&str) -> Value);
    let cases: [Case<'_>; 2] = [
        ("api.core.v1.ConfigMap", MAPS, &map),
        ("api.apps.v1.Deployment", "/apis/apps/v1/namespaces/default/deployments", &deployment),
    ];
    for (name, path, object) in cases {
        let by_json = client.post(path, &object("json")).await;
        assert_eq!(by_json.status, 201, "{}", by_json.text());
        let by_protobuf = send(client, "POST", path, &protobuf(name, &object("protobuf"))).await;
        assert_eq!(by_protobuf.status, 201, "{}", by_protobuf.text());
        assert_eq!(media_type(&by_protobuf), "application/json", "the response has the accepted type");
        let stored = client.get(&format!("{path}/protobuf")).await.json();
        assert_eq!(comparable(stored.clone()), comparable(by_json.json()));

        // The object is read as protobuf, changed, and written back.
        let reply = get(client, &format!("{path}/protobuf"), PROTOBUF).await;
        assert_eq!((reply.status, media_type(&reply)), (200, PROTOBUF.to_owned()));
        let mut object = read(&KUBERNETES, name, &reply.body);
        assert_eq!(object, stored);
        object["metadata"]["labels"] = json!({"new": "label"});
        let headers = [("content-type", PROTOBUF), ("accept", PROTOBUF)];
        let path = format!("{path}/protobuf");
        let updated = client.send("PUT", &path, &headers, &protobuf(name, &object)).await;
        assert_eq!(updated.status, 200, "{}", updated.text());
        assert_eq!(read(&KUBERNETES, name, &updated.body)["metadata"]["labels"], json!({"new": "label"}));

        // The object is deleted with options as protobuf.
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
        let options = protobuf("apimachinery.pkg.apis.meta.v1.DeleteOptions", &options);
        let refused = client.send("DELETE", &path, &headers, &options).await;
        let status = read(&KUBERNETES, "apimachinery.pkg.apis.meta.v1.Status", &refused.body);
        assert_eq!((refused.status, &status["reason"]), (409, &json!("Conflict")), "{status}");
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        let options = protobuf("apimachinery.pkg.apis.meta.v1.DeleteOptions", &options);
        let deleted = client.send("DELETE", &path, &headers, &options).await;
        let status = read(&KUBERNETES, "apimachinery.pkg.apis.meta.v1.Status", &deleted.body);
        assert_eq!((deleted.status, &status["status"]), (200, &json!("Success")), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresources_and_reviews_accept_and_return_protobuf() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let headers = [("content-type", PROTOBUF), ("accept", PROTOBUF)];
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}});
    let name = "api.authorization.v1.SelfSubjectAccessReview";
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let reply = client.send("POST", path, &headers, &protobuf(name, &review)).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(read(&KUBERNETES, name, &reply.body)["status"]["allowed"], json!(true));

    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(client.post(path, &deployment).await.status, 201);
    let scale = get(client, &format!("{path}/d/scale"), PROTOBUF).await;
    let mut object = read(&KUBERNETES, "api.autoscaling.v1.Scale", &scale.body);
    assert_eq!((&object["kind"], &object["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    object["spec"]["replicas"] = json!(3);
    let body = protobuf("api.autoscaling.v1.Scale", &object);
    let reply = client.send("PUT", &format!("{path}/d/scale"), &headers, &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(client.get(&format!("{path}/d")).await.json()["spec"]["replicas"], json!(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_any_length_have_a_correct_protobuf_length() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let big = "x".repeat(3000);
    for at in 0..200 {
        let object = json!({"metadata": {"name": format!("m{at:03}"), "labels": {"n": format!("{}", at % 2)}},
            "data": {"k": big}});
        assert_eq!(client.post(MAPS, &object).await.status, 201);
    }
    for query in [
        "",
        "?labelSelector=n%3D1",
        "?limit=7",
        "?fieldSelector=metadata.name%3Dm003",
        "?labelSelector=n%3D9",
    ] {
        let path = format!("{MAPS}{query}");
        let reply = get(client, &path, PROTOBUF).await;
        assert_eq!((reply.status, media_type(&reply)), (200, PROTOBUF.to_owned()), "{query}");
        let list = read(&KUBERNETES, "api.core.v1.ConfigMapList", &reply.body);
        let mut want = client.get(&path).await.json();
        if want["items"] == json!([]) {
            want["items"] = Value::Null; // protobuf does not distinguish null and an empty list
        }
        assert_eq!(list, want, "{query}");
    }
    let partial = format!("{PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let reply = get(client, MAPS, &partial).await;
    assert_eq!(media_type(&reply), PROTOBUF);
    let list = read(&KUBERNETES, "apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList", &reply.body);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
    );
    let items = list["items"].as_array().unwrap();
    // The list also contains the config map with root certificates that every namespace has.
    let own: Vec<_> = items
        .iter()
        .map(|item| &item["metadata"]["name"])
        .filter(|name| *name != "kube-root-ca.crt")
        .collect();
    assert_eq!((own.len(), own[3]), (200, &json!("m003")));
    assert!(reply.body.len() < 200 * 1000, "the response does not contain the data");

    let partial = format!("{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
    let reply = get(client, &format!("{MAPS}/m003"), &partial).await;
    let object = read(&KUBERNETES, "apimachinery.pkg.apis.meta.v1.PartialObjectMetadata", &reply.body);
    assert_eq!(
        (&object["kind"], &object["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("m003"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_streams_of_protobuf_frames() {
    use http_body_util::BodyExt;
    let server = Server::start_upstream().await;
    let client = server.client();
    assert_eq!(client.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.status, 201);
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
         &fieldSelector=metadata.name%3Da"
    );
    let accept = format!("{PROTOBUF};stream=watch,application/json");
    let response = client.another().open("GET", &path, &[("accept", &accept)], b"").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], format!("{PROTOBUF};stream=watch"));
    let mut body = response.into_body();
    let mut buffer: Vec<u8> = Vec::new();
    let mut events = Vec::new();
    let mut changed = false;
    while events.len() < 4 {
        let data = body.frame().await.expect("the response has another frame").unwrap().into_data().unwrap();
        buffer.extend_from_slice(&data);
        while buffer.len() >= 4 {
            let len = u32::from_be_bytes(buffer[..4].try_into().unwrap()) as usize;
            if buffer.len() < 4 + len {
                break;
            }
            let frame: Vec<u8> = buffer.drain(..4 + len).skip(4).collect();
            let registry = Registry::new(&KUBERNETES);
            let event = decode(&registry, builtin::WATCH_EVENT, &frame).unwrap();
            let mut text = Vec::new();
            values::json::write(&Tree::Object(event), &mut text);
            let event: Value = serde_json::from_slice(&text).unwrap();
            events.push(event);
        }
        if events.len() == 2 && !changed {
            changed = true;
            let patched = client.patch(&format!("{MAPS}/a"), "merge", &json!({"data": {"k": "w"}})).await;
            assert_eq!(patched.status, 200);
            assert_eq!(client.delete(&format!("{MAPS}/a")).await.status, 200);
        }
    }
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ADDED", "BOOKMARK", "MODIFIED", "DELETED"]);
    assert_eq!(events[0]["object"]["kind"], json!("ConfigMap"));
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], json!("true"));
    assert_eq!(events[2]["object"]["data"], json!({"k": "w"}));

    // An error is sent as a Status in a frame.
    let path = format!(
        "{MAPS}?watch=1&resourceVersion=99999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    );
    let reply = client.another().send("GET", &path, &[("accept", &accept)], b"").await;
    let len = u32::from_be_bytes(reply.body[..4].try_into().unwrap()) as usize;
    assert_eq!(reply.body.len(), 4 + len);
    let registry = Registry::new(&KUBERNETES);
    let raw = &reply.body[4..];
    assert!(raw.windows(4).any(|window| window == envelope::PREFIX), "the Status is enveloped");
    assert!(raw.windows(7).any(|window| window == b"Failure"));
    // A Status is not a resource, so the test opens its envelope itself.
    assert!(decode(&registry, builtin::WATCH_EVENT, raw).unwrap_err().message.contains("no kind \"Status\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_accept_header_selects_the_encoding_of_errors_too() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let table = "as=Table;v=v1;g=meta.k8s.io";
    let path = format!("{MAPS}/absent");
    for (accept, want) in [
        (PROTOBUF.to_owned(), PROTOBUF),
        (format!("{PROTOBUF},application/json"), PROTOBUF),
        (format!("application/json,{PROTOBUF}"), "application/json"),
        (format!("{PROTOBUF};{table},application/json"), "application/json"),
        ("text/html".to_owned(), "application/json"),
    ] {
        let reply = get(client, &path, &accept).await;
        assert_eq!(media_type(&reply), want, "{accept}");
        if want == PROTOBUF {
            let status = read(&KUBERNETES, "apimachinery.pkg.apis.meta.v1.Status", &reply.body);
            assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")));
            assert_eq!((&status["code"], &status["details"]["name"]), (&json!(404), &json!("absent")));
        }
    }
    let refused = get(client, MAPS, &format!("{PROTOBUF};{table}")).await;
    assert_eq!((refused.status, &refused.json()["reason"]), (406, &json!("NotAcceptable")));
    let fallback = get(client, MAPS, &format!("{PROTOBUF};{table},application/json;{table}")).await;
    assert_eq!(fallback.json()["kind"], json!("Table"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_not_protobuf_are_refused_with_a_precise_error() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}});
    let good = protobuf("api.core.v1.ConfigMap", &map);
    let named = |kind: &str, api_version: &str, raw: &[u8]| {
        let mut out = Vec::new();
        envelope::wrap(api_version, kind, &mut out, |out| {
            out.extend_from_slice(raw);
            Ok::<_, ()>(())
        })
        .unwrap();
        out
    };
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): ";
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    let cases = [
        (b"".to_vec(), format!("{unrecognized}empty data (<empty>)")),
        (b"{}".to_vec(), format!("{unrecognized}{prefix} ({{}})")),
        (envelope::PREFIX.to_vec(), format!("{unrecognized}empty body (6b387300)")),
        (good[..good.len() - 1].to_vec(), format!("{unrecognized}unexpected EOF ({} ...)", hex(&good[..30]))),
        (
            named("ConfigMap", "v1", b"\x08\x01"),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: \
             proto: wrong wireType = 0 for field ObjectMeta"
                .to_owned(),
        ),
        (
            named("Pod", "v1", b""),
            "Pod in version \"v1\" cannot be handled as a ConfigMap: \
             converting (v1.Pod) to (core.ConfigMap): unknown conversion"
                .to_owned(),
        ),
        (
            named("ConfigMap", "v9", b""),
            "ConfigMap in version \"v9\" cannot be handled as a ConfigMap: \
             no kind \"ConfigMap\" is registered for version \"v9\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
                .to_owned(),
        ),
    ];
    for (body, want) in cases {
        let reply = send(client, "POST", MAPS, &body).await;
        assert_eq!((reply.status, reply.json()["message"].as_str().unwrap()), (400, want.as_str()));
    }
    // A message with a length of a gigabyte, and two million messages of a few bytes, are refused, and the server keeps
    // running.
    let mut promise = envelope::PREFIX.to_vec();
    promise.extend_from_slice(b"\x12\x80\x80\x80\x80\x04x");
    assert_eq!(send(client, "POST", MAPS, &promise).await.status, 400);
    let spec = [&[0x12][..], &varint(2_000_000), &[0x12, 0].repeat(1_000_000)].concat();
    let bomb = named("Pod", "v1", &spec);
    let reply = send(client, "POST", "/api/v1/namespaces/default/pods", &bomb).await;
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.text().contains("object has more than"), "{}", reply.text());
    // Kind and version may be omitted.
    let raw = Unknown::read(&good).unwrap().raw.to_vec();
    assert_eq!(send(client, "POST", MAPS, &named("", "", &raw)).await.status, 201);
    // A 415 response lists the supported media types.
    let reply = client.send("POST", MAPS, &[("content-type", "text/plain")], b"x").await;
    let message = reply.json()["message"].as_str().unwrap().to_owned();
    assert!(
        reply.status == 415 && message.ends_with(&format!("application/json, application/yaml, {PROTOBUF}")),
        "{message}"
    );
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_profile_has_its_own_protobuf_media_type_and_accepts_upstreams() {
    let server = Server::start(Options { naming: "cluster", ..Options::default() }).await;
    let client = server.client();
    let own = CLUSTER.protobuf_media_type;
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let body = protobuf("api.core.v1.ConfigMap", &map);
    let created = client.send("POST", MAPS, &[("content-type", own), ("accept", own)], &body).await;
    assert_eq!((created.status, media_type(&created)), (201, own.to_owned()), "{}", created.text());
    assert_eq!(read(&CLUSTER, "api.core.v1.ConfigMap", &created.body)["data"], json!({"k": "v"}));
    let taken = send(client, "POST", MAPS, &body).await;
    assert_eq!(
        (taken.status, taken.json()["reason"].as_str()),
        (409, Some("AlreadyExists")),
        "{}",
        taken.text()
    );
    let list = get(client, MAPS, PROTOBUF).await;
    assert_eq!((list.status, media_type(&list)), (200, PROTOBUF.to_owned()));
    let other = "application/vnd.other.protobuf";
    let refused = client.send("POST", MAPS, &[("content-type", other)], &body).await;
    assert_eq!(refused.status, 415, "{}", refused.text());
    assert_eq!(get(client, MAPS, other).await.status, 406);
}
