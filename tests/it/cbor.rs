//! CBOR, which a feature gate enables (docs/api/encodings.md#cbor): request bodies, responses, lists and
//! watches.

use http_body_util::BodyExt;
use objects::codec::cbor;
use serde_json::{Value, json};
use tests::{Options, Reply, Server};
use values::json::{self, Value as Tree};

use crate::fixture::Fixture;

const CBOR: &str = "application/cbor";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Encodes an object as a CBOR item.
pub fn item(object: &Value) -> Vec<u8> {
    let tree: Tree = json::parse(object.to_string().as_bytes()).unwrap();
    let mut out = cbor::SELF_DESCRIBED.to_vec();
    cbor::write(&tree, &mut out);
    out
}

pub fn read(bytes: &[u8]) -> Value {
    assert_eq!(bytes[..3], cbor::SELF_DESCRIBED, "cbor: self-described");
    let tree = cbor::parse(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
    let mut text = Vec::new();
    json::write(&tree, &mut text);
    serde_json::from_slice(&text).unwrap()
}

fn answer(reply: &Reply) -> Value {
    assert_eq!(reply.header_all("content-type"), [CBOR], "{}", reply.text());
    read(&reply.body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_feature_gate_every_body_may_be_cbor() {
    let flags = vec!["--feature-gates=CBORServingAndStorage=true".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let client = server.client();
    let both = [("content-type", CBOR), ("accept", CBOR)];
    let accept = [("accept", CBOR)];
    for name in ["a", "b"] {
        let secret =
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "AP8="}});
        let created = client.send("POST", SECRETS, &both, &item(&secret)).await;
        assert_eq!((created.status, &answer(&created)["data"]), (201, &json!({"k": "AP8="})));
        // Byte fields are byte strings, which JSON represents as base64.
        let bytes = [0xd6, 0x42, 0x00, 0xff];
        assert!(created.body.windows(bytes.len()).any(|window| window == bytes), "cbor");
    }
    for path in [
        format!("{SECRETS}/a"),
        SECRETS.to_owned(),
        format!("{SECRETS}?limit=1"),
        format!("{SECRETS}?fieldSelector=metadata.name%21%3Da"),
        format!("{SECRETS}?labelSelector=none"),
        format!("{SECRETS}/none"),
        "/api/v1/namespaces".to_owned(),
    ] {
        let (got, want) = (client.send("GET", &path, &accept, b"").await, client.get(&path).await);
        // The collection's version may change between the two requests.
        let undated = |mut answer: Value| {
            if answer["items"].is_array() {
                answer["metadata"] = Value::Null;
            }
            answer
        };
        let (got, want) = ((got.status, undated(answer(&got))), (want.status, undated(want.json())));
        assert_eq!(got, want, "cbor {path}");
    }
    let metadata = format!("{CBOR};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let list = answer(&client.send("GET", SECRETS, &[("accept", &metadata)], b"").await);
    assert_eq!(
        (&list["kind"], &list["items"][0]["data"]),
        (&json!("PartialObjectMetadataList"), &Value::Null)
    );
    let table = format!("{CBOR};as=Table;g=meta.k8s.io;v=v1");
    assert_eq!(client.send("GET", SECRETS, &[("accept", &table)], b"").await.status, 406, "accept");

    // A watch is a sequence of CBOR items.
    let response = client.another().open("GET", &format!("{SECRETS}?watch=1"), &accept, b"").await;
    assert_eq!(response.headers()["content-type"], "application/cbor-seq", "watch-transport");
    let (mut body, mut all) = (response.into_body(), Vec::new());
    let events = loop {
        all.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
        let starts: Vec<usize> =
            (0..all.len()).filter(|at| all[*at..].starts_with(&cbor::SELF_DESCRIBED)).collect();
        if starts.len() == 2 {
            break [read(&all[..starts[1]]), read(&all[starts[1]..])];
        }
    };
    let events_seen =
        events.map(|event| (event["type"].clone(), event["object"]["metadata"]["name"].clone()));
    assert_eq!(events_seen, [(json!("ADDED"), json!("a")), (json!("ADDED"), json!("b"))], "watch-transport");

    for (section, method, path, body, want) in [
        (
            "cbor",
            "POST",
            SECRETS.to_owned(),
            item(&json!({"metadata": {"name": "c"}, "more": 1})),
            "400 strict decoding error: unknown field \"more\"",
        ),
        (
            "cbor",
            "POST",
            SECRETS.to_owned(),
            vec![0xa2, 0x41, b'a', 1, 0x61, b'a', 2],
            "400 cbor: found duplicate map key \"a\"",
        ),
        (
            "cbor",
            "POST",
            SECRETS.to_owned(),
            item(&json!({"kind": "Pod", "apiVersion": "v1"})),
            "400 Pod in version \"v1\" cannot be handled as a Secret",
        ),
        (
            "options",
            "DELETE",
            format!("{SECRETS}/a"),
            item(&json!({"preconditions": {"uid": "other"}})),
            "409 ",
        ),
        (
            "options",
            "DELETE",
            format!("{SECRETS}/a"),
            item(&json!({"kind": "DeleteOptions", "apiVersion": "v1"})),
            "200 ",
        ),
    ] {
        let separator = if method == "POST" { "?fieldValidation=Strict" } else { "" };
        let reply = client.send(method, &format!("{path}{separator}"), &both, &body).await;
        let (code, message) = want.split_once(' ').unwrap();
        let said = answer(&reply);
        let given = said["message"].as_str().unwrap_or_default();
        assert!(
            reply.status.to_string() == code && given.contains(message),
            "{section} {method} {path}: {said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_may_be_applied_in_cbor() {
    let flags = vec!["--feature-gates=CBORServingAndStorage=true".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let client = server.client();
    let apply = async |path: &str, body: &[u8]| {
        let headers = [("content-type", "application/apply-patch+cbor"), ("accept", CBOR)];
        client.send("PATCH", path, &headers, body).await
    };
    let secret =
        |data: Value| json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}, "data": data});
    let path = format!("{SECRETS}/a?fieldManager=me");
    let created = apply(&path, &item(&secret(json!({"k": "AP8=", "l": "AAAA"})))).await;
    assert_eq!((created.status, &answer(&created)["data"]["k"]), (201, &json!("AP8=")), "apply");
    // Bytes are byte strings in CBOR, and base64 text in the tree.
    let mut whole = item(&json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}));
    assert_eq!(whole[3], 0xa3);
    whole[3] = 0xa4;
    whole.extend_from_slice(b"\x44data\xa1\x41k\xd6\x42\x01\x02");
    let updated = apply(&path, &whole).await;
    let object = answer(&updated);
    assert_eq!(
        (updated.status, &object["data"]),
        (200, &json!({"k": "AQI="})),
        "apply: an omitted field is removed"
    );
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("me"), &json!("Apply")), "managed-fields");
    // Writing the same object again is a no-op, in either encoding.
    let version = &object["metadata"]["resourceVersion"];
    assert_eq!(
        &answer(&apply(&path, &whole).await)["metadata"]["resourceVersion"],
        version,
        "writes-without-effect"
    );
    let yaml = [("content-type", "application/apply-patch+yaml")];
    let again = client.send("PATCH", &path, &yaml, secret(json!({"k": "AQI="})).to_string().as_bytes()).await;
    assert_eq!(
        &again.json()["metadata"]["resourceVersion"],
        version,
        "writes-without-effect {}",
        again.text()
    );

    let scaled = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(client.post(deployments, &scaled).await.status, 201);
    let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d"}, "spec": {"replicas": 4}});
    let path = format!("{deployments}/d/scale?fieldManager=me&force=true");
    assert_eq!(answer(&apply(&path, &item(&scale)).await)["spec"]["replicas"], 4, "subresources");

    for (section, content_type, query, body, want) in [
        ("apply", "apply-patch+cbor", "", item(&secret(json!({}))), "422 PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch".to_owned()),
        ("apply", "apply-patch+cbor", "?fieldManager=me", vec![0xa1], "400 error decoding patch: unexpected EOF".to_owned()),
        ("apply", "apply-patch+cbor", "?fieldManager=me", vec![0xa2, 0x61, b'a', 1, 0x61, b'a', 2], "400 error decoding patch: cbor: found duplicate map key \"a\"".to_owned()),
        ("apply", "apply-patch+cbor", "?fieldManager=me", vec![0x80], "400 error decoding patch: cbor: cannot unmarshal array into Go value of type map[string]interface {}".to_owned()),
        ("apply", "apply-patch+cbor", "?fieldManager=me", item(&json!({"kind": "Pod", "apiVersion": "v1"})), "400 invalid object type: /v1, Kind=Pod".to_owned()),
        ("apply", "apply-patch+cbor", "?fieldManager=me", item(&secret(json!({"k": 5}))), "500 failed to create typed patch object".to_owned()),
        ("patch-requests", "cbor", "", item(&secret(json!({}))), "415 415: Unsupported Media Type".to_owned()),
        ("patch-requests", "merge-patch+cbor", "", item(&secret(json!({}))), "415 415: Unsupported Media Type".to_owned()),
    ] {
        let content_type = format!("application/{content_type}");
        let headers = [("content-type", content_type.as_str()), ("accept", CBOR)];
        let reply = client.send("PATCH", &format!("{SECRETS}/a{query}"), &headers, &body).await;
        let said = answer(&reply);
        let got = format!("{} {}", reply.status, said["message"].as_str().unwrap_or_default());
        assert!(got.starts_with(&want), "{section} {content_type} {body:x?}\n  want {want}\n  got  {got}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_feature_gate_cbor_is_refused() {
    let fixture = Fixture::new("nocbor").await;
    fixture
        .check(&[
            (
                "cbor",
                "GET $core/secrets | Accept: application/cbor",
                "",
                "406 NotAcceptable: 406: Not Acceptable…",
            ),
            (
                "cbor",
                "GET $core/secrets?watch=1 | Accept: application/cbor-seq",
                "",
                "406 NotAcceptable: 406: …",
            ),
            (
                "cbor",
                "GET $core/secrets | Accept: application/cbor, application/json;q=0.1",
                "",
                "200 SecretList",
            ),
            (
                "cbor",
                "POST $core/secrets | Content-Type: application/cbor",
                "x",
                "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ),
            (
                "patch-requests",
                "PATCH $core/secrets/a?fieldManager=me | Content-Type: application/apply-patch+cbor",
                "x",
                "415 UnsupportedMediaType: 415: Unsupported Media Type",
            ),
        ])
        .await;
}
