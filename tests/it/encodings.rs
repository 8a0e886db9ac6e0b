//! Every encoding and representation of get, list and watch: the supported combinations, and their agreement
//! (docs/api/watches.md#watch-transport, docs/api/encodings.md#accept, #tables, #cbor, #protobuf).

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};
use values::naming::KUBERNETES;
use values::yaml;

use crate::fixture::{report, version};
use crate::{cbor, protobuf};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CBOR: &str = "application/cbor";

/// The representations of an object.
const PLAIN: &str = "";
const TABLE: &str = ";as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Decodes a document to JSON.
fn document(media_type: &str, bytes: &[u8]) -> Value {
    match media_type {
        JSON => serde_json::from_slice(bytes).unwrap(),
        YAML => {
            let mut text = Vec::new();
            values::json::write(&yaml::parse(bytes).unwrap().value, &mut text);
            serde_json::from_slice(&text).unwrap()
        }
        CBOR => cbor::read(bytes),
        PROTOBUF => {
            let kind = objects::codec::protobuf::envelope::Unknown::read(bytes).unwrap().kind.to_owned();
            let package = match kind.as_str() {
                "Secret" | "SecretList" => "api.core.v1",
                _ => "apimachinery.pkg.apis.meta.v1",
            };
            protobuf::read(&KUBERNETES, &format!("{package}.{kind}"), bytes)
        }
        other => panic!("{other}"),
    }
}

/// Returns the first `count` events of a stream, or all of them if the stream ends before.
async fn events(media_type: &str, mut body: hyper::body::Incoming, count: usize) -> Vec<Value> {
    let mut bytes = Vec::new();
    loop {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
        let frame = frame.unwrap_or_else(|_| panic!("no more events than {:?}", split(media_type, &bytes)));
        match frame {
            Some(frame) => bytes.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default()),
            None => return split(media_type, &bytes),
        }
        let seen = split(media_type, &bytes);
        if seen.len() >= count {
            return seen;
        }
    }
}

/// Returns the complete events at the beginning of a stream.
fn split(media_type: &str, bytes: &[u8]) -> Vec<Value> {
    let mut events = Vec::new();
    match media_type {
        JSON => {
            for line in bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
                events.push(serde_json::from_slice(line).unwrap());
            }
        }
        "application/cbor-seq" => {
            let prefix = objects::codec::cbor::SELF_DESCRIBED;
            let starts: Vec<usize> =
                (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&prefix)).collect();
            for (at, start) in starts.iter().enumerate() {
                let end = starts.get(at + 1).copied().unwrap_or(bytes.len());
                // The last event may be incomplete.
                if objects::codec::cbor::parse(&bytes[*start..end]).is_ok() {
                    events.push(cbor::read(&bytes[*start..end]));
                }
            }
        }
        _ => {
            let mut rest = bytes;
            while let Some((head, tail)) = rest.split_first_chunk::<4>() {
                let Some(event) = tail.get(..u32::from_be_bytes(*head) as usize) else { break };
                assert_eq!(event[0], 0x0a, "protobuf: the event has no envelope");
                let kind = std::str::from_utf8(&event[2..2 + usize::from(event[1])]).unwrap();
                let object = event
                    .windows(4)
                    .position(|window| window == b"k8s\0")
                    .expect("protobuf: the object is enveloped");
                events.push(json!({"type": kind, "object": document(PROTOBUF, &event[object..])}));
                rest = &tail[event.len()..];
            }
        }
    }
    events
}

/// Removes the ages from tables, because they change between two requests.
fn ageless(mut answer: Value) -> Value {
    let table = if answer["object"].is_object() { &mut answer["object"] } else { &mut answer };
    for row in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        row["cells"].as_array_mut().unwrap().pop();
    }
    answer
}

/// Removes the collection's version, because other writers may change it between two requests.
fn timeless(mut event: Value) -> Value {
    fn mask(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(mask),
            Value::Object(members) => {
                for (name, value) in members {
                    if name == "resourceVersion" { *value = Value::Null } else { mask(value) }
                }
            }
            _ => {}
        }
    }
    match event["type"].as_str() {
        Some("BOOKMARK") => mask(&mut event["object"]),
        Some("ERROR") => {
            assert_eq!(
                (&event["object"]["kind"], &event["object"]["code"]),
                (&json!("Status"), &json!(504)),
                "watch-transport"
            );
            event["object"]["message"] = Value::Null;
        }
        _ => {}
    }
    event
}

/// Keeps the properties that all encodings can express.
fn comparable(mut answer: Value) -> Value {
    // In protobuf, items of a list of metadata have no names, because items of a list have no envelopes
    // (docs/api/encodings.md#protobuf).
    for item in answer.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        let item = item.as_object_mut().unwrap();
        item.retain(|name, _| !matches!(name.as_str(), "kind" | "apiVersion"));
    }
    ageless(answer)
}

/// Returns the 406 response for an encoding that the route supports, but not for this representation.
fn refused(encodings: &[&str]) -> String {
    format!("406 only the following media types are accepted: {}", encodings.join(", "))
}

/// Returns the 406 response for an unknown encoding.
fn unknown(encodings: &[&str], is_list: bool) -> String {
    let mut known = encodings.join(", ");
    if is_list {
        known = format!("{known}, {}", streams(encodings).join(", "));
    }
    format!("406 406: Not Acceptable\n\nAvailable representations: {known}")
}

fn streams(encodings: &[&str]) -> Vec<String> {
    encodings.iter().filter(|name| **name != YAML).map(|name| format!("{name};stream=watch")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_encoding_has_each_representation_or_a_406_with_the_alternatives() {
    for gate in [false, true] {
        let flags = gate.then(|| "--feature-gates=CBORServingAndStorage=true".to_owned());
        let server =
            Server::start(Options { flags: flags.into_iter().collect(), ..Options::default() }).await;
        let client = server.client();
        for name in ["a", "b"] {
            let secret = json!({"metadata": {"name": name, "labels": {"n": name}}, "data": {"k": "AP8="}});
            assert_eq!(client.post(SECRETS, &secret).await.status, 201);
        }
        let one = format!("{SECRETS}/a");
        let at = version(&client.get(SECRETS).await.json());
        let all = format!("{SECRETS}?resourceVersion={at}&resourceVersionMatch=Exact");
        let mut known = vec![JSON, YAML, PROTOBUF];
        known.extend(gate.then_some(CBOR));
        let stream_names = streams(&known);
        let streams: Vec<&str> = stream_names.iter().map(String::as_str).collect();

        // Responses of get and list in each representation; watches are tested below.
        let no_cbor = |is_list| if gate { "200".to_owned() } else { unknown(&known, is_list) };
        let no_table = refused(&known);
        let table_in_cbor = |is_list| if gate { refused(&known) } else { unknown(&known, is_list) };
        let cells: Vec<(&str, &str, &str, [String; 2])> = vec![
            ("accept", JSON, PLAIN, ["200".into(), "200".into()]),
            ("tables", JSON, TABLE, ["200".into(), "200".into()]),
            ("accept", JSON, METADATA, ["200".into(), "200".into()]),
            ("json-and-yaml-output", YAML, PLAIN, ["200".into(), "200".into()]),
            ("tables", YAML, TABLE, ["200".into(), "200".into()]),
            ("accept", YAML, METADATA, ["200".into(), "200".into()]),
            ("18", PROTOBUF, PLAIN, ["200".into(), "200".into()]),
            ("accept", PROTOBUF, TABLE, [no_table.clone(), no_table]),
            ("accept", PROTOBUF, METADATA, ["200".into(), "200".into()]),
            ("cbor", CBOR, PLAIN, [no_cbor(false), no_cbor(true)]),
            ("accept", CBOR, TABLE, [table_in_cbor(false), table_in_cbor(true)]),
            ("cbor", CBOR, METADATA, [no_cbor(false), no_cbor(true)]),
        ];
        let mut wrong = Vec::new();
        for (section, media_type, form, wants) in cells {
            for (path, want) in [&one, &all].into_iter().zip(wants) {
                let form = if form == METADATA && path == &all { METADATA_LIST } else { form };
                let reply =
                    client.send("GET", path, &[("accept", &format!("{media_type}{form}"))], b"").await;
                let got = match reply.status {
                    200 => "200".to_owned(),
                    code => format!("{code} {}", reply.json()["message"].as_str().unwrap()),
                };
                if got != want {
                    wrong.push(format!("{section} {path} {media_type}{form}\n  want {want}\n  got  {got}"));
                } else if reply.status == 200 {
                    assert_eq!(reply.header_all("content-type"), [media_type], "accept: no parameters");
                    let as_json =
                        client.send("GET", path, &[("accept", &format!("{JSON}{form}"))], b"").await;
                    assert_eq!(
                        comparable(document(media_type, &reply.body)),
                        comparable(as_json.json()),
                        "{section} {path} {media_type}{form}"
                    );
                }
            }
        }
        report(&wrong);

        let yaml_stream = refused(&streams);
        let cells: Vec<(&str, &str, &str, String)> = vec![
            ("watch-transport", JSON, PLAIN, JSON.into()),
            ("watch-transport", JSON, TABLE, JSON.into()),
            ("watch-transport", JSON, METADATA, JSON.into()),
            ("watch-transport", YAML, PLAIN, yaml_stream.clone()),
            ("watch-transport", YAML, TABLE, yaml_stream.clone()),
            ("watch-transport", YAML, METADATA, yaml_stream),
            ("watch-transport", PROTOBUF, PLAIN, format!("{PROTOBUF};stream=watch")),
            ("accept", PROTOBUF, TABLE, refused(&known)),
            ("watch-transport", PROTOBUF, METADATA, format!("{PROTOBUF};stream=watch")),
            (
                "watch-transport",
                CBOR,
                PLAIN,
                if gate { "application/cbor-seq".into() } else { unknown(&known, true) },
            ),
            ("accept", CBOR, TABLE, table_in_cbor(true)),
            (
                "watch-transport",
                CBOR,
                METADATA,
                if gate { "application/cbor-seq".into() } else { unknown(&known, true) },
            ),
        ];
        watches(client, &cells).await;
    }
}

/// Checks watches in each encoding and representation: the life of two objects, and an error.
async fn watches(client: &Client, cells: &[(&str, &str, &str, String)]) {
    let start = version(&client.get(SECRETS).await.json());
    assert_eq!(
        client.patch(&format!("{SECRETS}/a"), "merge", &json!({"data": {"k": "AQI="}})).await.status,
        200
    );
    let unlabelled = json!({"metadata": {"labels": {"n": "other"}}});
    assert_eq!(client.patch(&format!("{SECRETS}/b"), "merge", &unlabelled).await.status, 200);
    assert_eq!(client.delete(&format!("{SECRETS}/a")).await.status, 200);
    let stream = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
    let future = start + 1_000_000;
    // Each row has the request and the events: changes, one of which leaves the selection; initial events; an
    // error.
    let queries = [
        (format!("resourceVersion={start}&labelSelector=n+in+(a,b)"), "MODIFIED, DELETED, DELETED"),
        (format!("{stream}&allowWatchBookmarks=true&timeoutSeconds=-1"), "ADDED, BOOKMARK"),
        (format!("{stream}&resourceVersion={future}"), "ERROR"),
    ];
    let open = async |query: &str, accept: &str| {
        client.another().open("GET", &format!("{SECRETS}?watch=1&{query}"), &[("accept", accept)], b"").await
    };
    let receive = async |query: &str, accept: &str, count: usize| {
        let response = open(query, accept).await;
        let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        let events = events(&media_type, response.into_body(), count).await;
        events.into_iter().map(|event| timeless(ageless(event))).collect::<Vec<Value>>()
    };
    let cell = async |(section, media_type, form, want): &(&str, &str, &str, String)| {
        let accept = format!("{media_type}{form}");
        let response = open("timeoutSeconds=-1", &accept).await;
        if response.status() != 200 {
            let code = response.status().as_u16();
            let written = response.headers()["content-type"].to_str().unwrap().to_owned();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let status = document(&written, &body);
            assert_eq!(
                &format!("{code} {}", status["message"].as_str().unwrap()),
                want,
                "{section} {accept}"
            );
            return;
        }
        assert_eq!(response.headers()["content-type"], want.as_str(), "{section} {accept}");
        for (query, kinds) in &queries {
            let count = kinds.split(", ").count();
            let got = receive(query, &accept, count).await;
            let received: Vec<&str> = got.iter().map(|event| event["type"].as_str().unwrap()).collect();
            assert_eq!(received.join(", "), *kinds, "{section} {accept} {query}");
            let as_json = receive(query, &format!("{JSON}{form}"), count).await;
            assert_eq!(got, as_json, "{section} {accept} {query}");
            let described =
                as_json.iter().filter(|event| event["object"]["columnDefinitions"].is_array()).count();
            assert_eq!(
                described,
                usize::from(*form == TABLE && *kinds != "ERROR"),
                "watch-transport: columns are sent once"
            );
        }
    };
    futures_util::future::join_all(cells.iter().map(cell)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_answers_are_compressed_in_every_encoding_and_form() {
    use std::io::Read;
    let flags = vec!["--feature-gates=CBORServingAndStorage=true".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let client = server.client();
    // The objects have long metadata and a long value, so that every representation is long.
    let filler = "0123456789 abcdef: ".repeat(500);
    for n in 0..40 {
        let object = json!({"metadata": {"name": format!("m{n:02}"), "annotations": {"long": filler}}});
        assert_eq!(client.post(SECRETS, &object).await.status, 201);
    }
    let long = json!({"metadata": {"name": "long", "annotations": {"long": "0123456789".repeat(20_000)}}});
    assert_eq!(client.post(SECRETS, &long).await.status, 201);
    let short = format!("{SECRETS}/m00");
    let long = format!("{SECRETS}/long");
    let at = version(&client.get(SECRETS).await.json());
    let all = format!("{SECRETS}?resourceVersion={at}&resourceVersionMatch=Exact");
    for (media_type, form) in [
        (JSON, PLAIN),
        (JSON, TABLE),
        (JSON, METADATA),
        (YAML, PLAIN),
        (YAML, TABLE),
        (YAML, METADATA),
        (PROTOBUF, PLAIN),
        (PROTOBUF, METADATA),
        (CBOR, PLAIN),
        (CBOR, METADATA),
    ] {
        for (path, is_compressed) in [(&all, true), (&long, true), (&short, false)] {
            let form = if form == METADATA && path == &all { METADATA_LIST } else { form };
            let accept = format!("{media_type}{form}");
            let plain = client.send("GET", path, &[("accept", &accept)], b"").await;
            let gzip = [("accept", accept.as_str()), ("accept-encoding", "gzip")];
            let packed = client.send("GET", path, &gzip, b"").await;
            assert_eq!((plain.status, packed.status), (200, 200), "json-and-yaml-output {path} {accept}");
            assert_eq!(
                packed.header_all("content-type"),
                [media_type],
                "json-and-yaml-output {path} {accept}"
            );
            let encoding = packed.header_all("content-encoding");
            assert_eq!(encoding == ["gzip"], is_compressed, "json-and-yaml-output {path} {accept}");
            assert_eq!(
                packed.header_all("vary") == ["Accept-Encoding"],
                is_compressed,
                "json-and-yaml-output {path} {accept}"
            );
            // The response is streamed, so its length is not known in advance.
            assert_eq!(
                packed.header_all("content-length").is_empty(),
                is_compressed,
                "json-and-yaml-output {path} {accept}"
            );
            let mut body = Vec::new();
            if is_compressed {
                assert!(packed.body.len() < plain.body.len() / 4, "json-and-yaml-output {path} {accept}");
                flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut body).unwrap();
            } else {
                body.extend_from_slice(&packed.body);
            }
            let (got, want) = (document(media_type, &body), document(media_type, &plain.body));
            assert_eq!(ageless(got), ageless(want), "json-and-yaml-output {path} {accept}");
        }
    }
    // The server does not compress watches and errors.
    for query in ["?watch=1&timeoutSeconds=-1", "/none"] {
        let reply =
            client.send("GET", &format!("{SECRETS}{query}"), &[("accept-encoding", "gzip")], b"").await;
        assert!(
            reply.header_all("content-encoding").is_empty(),
            "watch-transport, json-and-yaml-output {query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_operations_have_a_metadata_form_but_no_table() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    let review = json!({"spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    for (path, body) in [
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", review.clone()),
        ("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": "t"}})),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})),
        ("/api/v1/namespaces/default/serviceaccounts/default/token", json!({"spec": {}})),
    ] {
        let body = body.to_string();
        let ask = async |form: &str| {
            let accept = format!("{JSON}{form}");
            client.send("POST", path, &[("accept", &accept), ("content-type", JSON)], body.as_bytes()).await
        };
        assert_eq!(ask(TABLE).await.status, 406, "{path}");
        let partial = ask(METADATA).await;
        assert_eq!(partial.status, 201, "{path}: {}", partial.text());
        let partial = partial.json();
        assert_eq!(partial["kind"], "PartialObjectMetadata", "{path}");
        assert_eq!(partial.as_object().unwrap().len(), 3, "{path}: {partial}");
    }
    let status = format!("{JSON}{METADATA}");
    let one = client.send("GET", "/api/v1/componentstatuses/etcd-0", &[("accept", &status)], b"").await;
    assert_eq!(one.json()["kind"], "PartialObjectMetadata", "{}", one.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_is_served_in_the_encodings_of_objects() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    let aggregated = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for (path, form, kind) in [
        ("/api", PLAIN, "APIVersions"),
        ("/apis", PLAIN, "APIGroupList"),
        ("/apis/apps", PLAIN, "APIGroup"),
        ("/api/v1", PLAIN, "APIResourceList"),
        ("/apis/apps/v1", PLAIN, "APIResourceList"),
        ("/apis", aggregated, "APIGroupDiscoveryList"),
    ] {
        for media_type in [JSON, YAML, PROTOBUF] {
            let accept = format!("{media_type}{form}");
            let reply = client.send("GET", path, &[("accept", &accept)], b"").await;
            assert_eq!((reply.status, reply.header_all("content-type")), (200, vec![accept]), "{path}");
            let found = match media_type {
                PROTOBUF => {
                    objects::codec::protobuf::envelope::Unknown::read(&reply.body).unwrap().kind.to_owned()
                }
                _ => document(media_type, &reply.body)["kind"].as_str().unwrap().to_owned(),
            };
            assert_eq!(found, kind, "{path} {media_type}");
        }
        let other = client.send("GET", path, &[("accept", "text/html")], b"").await;
        let known = format!("{JSON}, {YAML}, {PROTOBUF}");
        assert!(other.status == 406 && other.text().contains(&known), "{path}: {}", other.text());
    }
}
