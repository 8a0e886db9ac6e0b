//! Types that are created while the server runs have all the behaviour of built-in types. The tests create,
//! apply, patch, list, watch and describe objects of such types. They also replace the types under watches
//! and lists, and delete them without a leak of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};
use tests::{Client, Reply, Server};

use crate::definitions::{DEFINITIONS, definition, establish};
use crate::fixture::{outcome, report};

const GROUP: &str = "/apis/g.example.com/v1";
const SHAPES: &str = "/apis/g.example.com/v1/namespaces/default/shapes";

/// Default number of times that types are replaced (`TYPE_CYCLES`). Every tenth time the type is deleted and
/// created again.
const CYCLES: usize = 240;

/// Number of members of the replaced type. With this number, even a leak of a single type would be visible.
const MEMBERS: usize = 60;

/// Maximum growth of anonymous memory between the first third of the cycles and their end.
const ADDED_KIB_MAX: u64 = 12 * 1024;

/// Returns a definition with every kind of value; `extra` is an additional member of its spec.
fn shapes(extra: &Value) -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let pairs = json!({"type": "array", "items": {
        "type": "object",
        "properties": {"v": {"type": "string", "nullable": true}, "size": {"x-kubernetes-int-or-string": true}},
    }});
    let mut spec = json!({
        "type": "object",
        "properties": {
            "color": {"type": "string"},
            "note": {"type": "string", "nullable": true},
            "size": {"x-kubernetes-int-or-string": true},
            "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "nested": {"type": "array", "items": {"type": "object", "additionalProperties": pairs}},
            "parts": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
                "items": {
                    "type": "object", "required": ["name"],
                    "properties": {
                        "name": {"type": "string"}, "port": {"type": "integer", "default": 80},
                        "words": {"type": "object", "additionalProperties": texts},
                    },
                },
            },
        },
    });
    for (name, schema) in extra.as_object().into_iter().flatten() {
        spec["properties"][name] = schema.clone();
    }
    let status = json!({"type": "object", "properties": {"phase": {"type": "string"}}});
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "additionalPrinterColumns": [
            {"name": "Size", "type": "string", "jsonPath": ".spec.size"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        ],
    });
    definition("shapes", json!([version]))
}

fn shape(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "g.example.com/v1", "kind": "Shape", "metadata": {"name": name}, "spec": spec})
}

async fn apply(client: &Client, name: &str, query: &str, spec: Value) -> Reply {
    let media_type = [("content-type", "application/apply-patch+yaml")];
    let body = shape(name, spec).to_string();
    client.send("PATCH", &format!("{SHAPES}/{name}?{query}"), &media_type, body.as_bytes()).await
}

/// Returns the names of a list's items.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_type_passes_every_step_from_definition_to_deletion() {
    let server = Server::start_upstream().await;
    let client = server.client();
    establish(&server, &shapes(&Value::Null)).await;

    let missing = "Object 'Kind' is missing in";
    let json_type = [("content-type", "application/json")];
    for (query, body, want) in [
        (
            "",
            r#"{"metadata":{"name":"nameless-kind"}}"#,
            format!(
                "the object provided is unrecognized (must be of type Shape): {missing} \
                 '{{\"metadata\":{{\"name\":\"nameless-kind\"}}}}' ({{\"metadata\":{{\"name\":\"nameless- ...)"
            ),
        ),
        (
            "",
            "{}",
            format!("the object provided is unrecognized (must be of type Shape): {missing} '{{}}' ({{}})"),
        ),
        (
            "?fieldValidation=Ignore",
            "{}",
            format!("Shape in version \"v1\" cannot be handled as a Shape: {missing} '{{}}'"),
        ),
        (
            "",
            r#"{"kind":"Shape","metadata":{"name":"a"}}"#,
            "the API version in the data () does not match the expected API version (g.example.com/v1)"
                .to_owned(),
        ),
    ] {
        let refused = client.send("POST", &format!("{SHAPES}{query}"), &json_type, body.as_bytes()).await;
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!((refused.status, message), (400, want), "{body}");
    }

    let whole = json!({
        "color": "red", "note": null, "size": "50%",
        "anything": {"a": [1, {"b": null, "c": 1.5}], "d": {"e": "f"}},
        "nested": [{"x": [{"v": null, "size": 3}, {"v": "w", "size": "3m"}], "": []}, {}],
        "parts": [{"name": "a", "words": {"de": ["eins", "zwei"]}}, {"name": "a", "port": 81}],
    });
    let mut given = whole.clone();
    given["bogus"] = json!({"x": 1});
    given["nested"][0]["x"][0]["bogus"] = 1.into();
    let made = client.post(SHAPES, &shape("whole", given)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header_all("warning").len(), 2, "{:?}", made.header_all("warning"));
    let mut expected = whole.clone();
    expected["parts"][0]["port"] = 80.into();
    assert_eq!(client.get(&format!("{SHAPES}/whole")).await.json()["spec"], expected);

    let mut wrong = Vec::new();
    for (what, spec, want) in [
        ("text for a list", json!({"nested": "x"}), "422 Invalid"),
        ("text deep inside", json!({"nested": [{"x": ["y"]}]}), "422 Invalid"),
        ("boolean for a number or text", json!({"size": true}), "422 Invalid"),
        ("keys twice", json!({"parts": [{"name": "a"}, {"name": "a", "port": 80}]}), "422 Invalid"),
        ("no key", json!({"parts": [{"port": 80}]}), "422 Invalid"),
        ("list for an object", json!({"anything": []}), "422 Invalid"),
        ("number for a number or text", json!({"size": 7}), "201 Shape"),
    ] {
        let got = outcome(&client.post(&format!("{SHAPES}?dryRun=All"), &shape("number", spec)).await);
        if !got.starts_with(want) {
            wrong.push(format!("{what}: {got}, not {want}"));
        }
    }
    report(&wrong);
    // A null that is not allowed counts as an absent value.
    let number = client.post(SHAPES, &shape("number", json!({"color": null, "size": 7}))).await;
    assert_eq!((number.status, &number.json()["spec"]), (201, &json!({"size": 7})), "{}", number.text());

    // A merge patch leaves no null in the objects of a new list.
    let merge = async |body: &str| {
        let media_type = [("content-type", "application/merge-patch+json")];
        client.send("PATCH", &format!("{SHAPES}/whole?dryRun=All"), &media_type, body.as_bytes()).await
    };
    let pruned =
        merge(r#"{"spec":{"anything":{"a":[{"b":null,"c":{"d":null}},null],"n":[{"x":null}]}}}"#).await;
    let anything = &pruned.json()["spec"]["anything"];
    assert_eq!((&anything["a"], &anything["n"]), (&json!([{"c": {}}, null]), &json!([{}])));
    for (body, want) in [
        (
            r#"{"kind":"Foo"}"#,
            "422 Invalid: Foo.g.example.com \"whole\" is invalid: kind: Invalid value: \"Foo\": must be Shape",
        ),
        (
            r#"{"apiVersion":"g.example.com/v2"}"#,
            "422 Invalid: Shape.g.example.com \"whole\" is invalid: apiVersion: Invalid value: \"g.example.com/v2\": must be g.example.com/v1",
        ),
    ] {
        assert_eq!(outcome(&merge(body).await), want);
    }
    let untyped = outcome(&merge(r#"{"kind":null}"#).await);
    assert!(untyped.starts_with("422 Invalid:  \"\" is invalid: patch: Invalid value: "), "{untyped}");
    assert!(untyped.contains("Object 'Kind' is missing in '{\"apiVersion\":"), "{untyped}");
    let no_text = outcome(&merge(r#"{"kind":5}"#).await);
    let why = "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string";
    assert!(no_text.ends_with(why), "{no_text}");

    // Each of two managers owns only its own element of the list.
    let part =
        |name: &str, words: &[&str]| json!({"parts": [{"name": name, "port": 1, "words": {"en": words}}]});
    assert_eq!(apply(client, "shared", "fieldManager=a", part("a", &["one"])).await.status, 201);
    let both = apply(client, "shared", "fieldManager=b", part("b", &["two"])).await.json();
    assert_eq!(both["spec"]["parts"].as_array().map(Vec::len), Some(2), "{both}");
    let owned = &both["metadata"]["managedFields"][1];
    let element = &owned["fieldsV1"]["f:spec"]["f:parts"][r#"k:{"name":"b","port":1}"#];
    assert_eq!((&owned["manager"], &element["."]), (&json!("b"), &json!({})), "{owned}");
    let refused = apply(client, "shared", "fieldManager=b", part("a", &["three"])).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let forced = apply(client, "shared", "fieldManager=b&force=true", part("a", &["three"])).await.json();
    assert_eq!(forced["spec"], part("a", &["three"]), "an omitted element of b is removed");
    let left = apply(client, "shared", "fieldManager=a", json!({})).await.json();
    assert_eq!(left["spec"]["parts"][0]["words"]["en"], json!(["three"]), "{left}");

    // Patches apply to the object, and to its status separately.
    let path = format!("{SHAPES}/whole");
    let add = json!([{"op": "add", "path": "/spec/nested/0/x/-", "value": {"v": "new"}}]);
    let patched = client.patch(&path, "json", &add).await.json();
    assert_eq!(patched["spec"]["nested"][0]["x"][2], json!({"v": "new"}), "{patched}");
    let merged = client.patch(&path, "merge", &json!({"spec": {"anything": {"a": null}}})).await.json();
    assert_eq!(merged["spec"]["anything"], json!({"d": {"e": "f"}}), "{merged}");
    assert_eq!(client.patch(&path, "strategic-merge", &json!({})).await.status, 415);
    let change = json!({"spec": {"color": "blue"}, "status": {"phase": "Ready"}});
    let status = client.patch(&format!("{path}/status"), "merge", &change).await.json();
    assert_eq!((&status["spec"]["color"], &status["status"]["phase"]), (&json!("red"), &json!("Ready")));
    assert_eq!(status["metadata"]["generation"], merged["metadata"]["generation"]);
    let main = client.patch(&path, "merge", &json!({"status": {"phase": "No"}})).await.json();
    assert_eq!(main["status"]["phase"], "Ready");

    // Selectors apply to lists and watches.
    let label = json!({"metadata": {"labels": {"l": "yes"}}});
    assert_eq!(client.patch(&path, "merge", &label).await.status, 200);
    let mut wrong = Vec::new();
    for (query, want) in [
        ("", &["number", "shared", "whole"][..]),
        ("?labelSelector=l", &["whole"]),
        ("?labelSelector=!l", &["number", "shared"]),
        ("?fieldSelector=spec.color%3Dred", &["whole"]),
        ("?fieldSelector=spec.color!%3Dred", &["number", "shared"]),
        ("?fieldSelector=metadata.name%3Dshared", &["shared"]),
    ] {
        let list = client.get(&format!("{SHAPES}{query}")).await.json();
        if names(&list) != want {
            wrong.push(format!("{query}: {list}"));
        }
    }
    report(&wrong);
    let mut watch = client.watch(&format!("{SHAPES}?watch=1&fieldSelector=spec.color%3Dred")).await;
    assert_eq!(watch.expect().await.1, "whole");
    for (color, want) in [("green", "DELETED"), ("red", "ADDED")] {
        client.patch(&path, "merge", &json!({"spec": {"color": color}})).await;
        assert_eq!(watch.expect().await.0, want, "{color}");
    }

    // The server describes the type in tables and documents.
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = client.send("GET", &format!("{SHAPES}?labelSelector=l"), &table, b"").await.json();
    let columns = table["columnDefinitions"].as_array().into_iter().flatten().map(|column| &column["name"]);
    assert_eq!(columns.collect::<Vec<_>>(), ["Name", "Size", "Phase"], "{table}");
    assert_eq!(table["rows"][0]["cells"], json!(["whole", "50%", "Ready"]));
    let resources = client.get(GROUP).await.json();
    let served = resources["resources"].as_array().into_iter().flatten().map(|resource| &resource["name"]);
    assert_eq!(served.collect::<Vec<_>>(), ["shapes", "shapes/status"], "{resources}");
    let document = client.get(&format!("/openapi/v3{GROUP}")).await.json();
    let spec =
        &document["components"]["schemas"]["com.example.g.v1.Shape"]["properties"]["spec"]["properties"];
    let inner = &spec["nested"]["items"]["additionalProperties"]["items"]["properties"];
    assert_eq!(inner["size"]["x-kubernetes-int-or-string"], true, "{spec}");
    assert_eq!(spec["parts"]["x-kubernetes-list-map-keys"], json!(["name", "port"]), "{spec}");

    // The type is deleted together with its objects.
    let gone = client.delete(&format!("{DEFINITIONS}/shapes.g.example.com")).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    client.until_gone(&format!("{DEFINITIONS}/shapes.g.example.com")).await;
    for path in [SHAPES, GROUP, &format!("/openapi/v3{GROUP}")] {
        client.until_gone(path).await;
    }
}

/// Replaces the type by one whose spec has `extra` with this default, and waits until the new type is served.
async fn replace(client: &Client, extra: &str) {
    let changed = shapes(&json!({"extra": {"type": "string", "default": extra}}));
    let path = format!("{DEFINITIONS}/shapes.g.example.com");
    let versions = json!({"spec": {"versions": changed["spec"]["versions"]}});
    let replaced = client.patch(&path, "merge", &versions).await;
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    client
        .until(&format!("{SHAPES}/plain"), |found| found.is_some_and(|it| it["spec"]["extra"] == extra))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_and_lists_continue_while_their_type_is_replaced() {
    let server = Server::start_upstream().await;
    let client = server.client();
    establish(&server, &shapes(&Value::Null)).await;
    assert_eq!(client.post(SHAPES, &shape("plain", json!({}))).await.status, 201);
    let start = client.post(SHAPES, &shape("counted", json!({"size": -1}))).await.json();
    let start = start["metadata"]["resourceVersion"].as_str().unwrap().to_owned();

    let over = Arc::new(AtomicBool::new(false));
    let lists = tokio::spawn({
        let (client, over) = (client.another(), over.clone());
        async move {
            let mut count = 0;
            while !over.load(Relaxed) {
                let reply = client.get(SHAPES).await;
                assert_eq!(
                    (reply.status, names(&reply.json())),
                    (200, vec!["counted", "plain"]),
                    "{}",
                    reply.text()
                );
                count += 1;
            }
            count
        }
    });
    const WRITES: i64 = 40;
    let events = tokio::spawn({
        let client = client.another();
        async move {
            let (mut from, mut seen, mut opened) = (start, Vec::new(), 0);
            // The watch of a type that is no longer served ends, and the client resumes where it was.
            while seen.last() != Some(&(WRITES - 1)) {
                opened += 1;
                let mut watch = client.watch(&format!("{SHAPES}?watch=1&resourceVersion={from}")).await;
                while let Some(event) = watch.next().await {
                    assert_eq!(event["type"], "MODIFIED", "{event}");
                    from = event["object"]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                    seen.extend(event["object"]["spec"]["size"].as_i64());
                    if seen.last() == Some(&(WRITES - 1)) {
                        break;
                    }
                }
            }
            (seen, opened)
        }
    });
    for at in 0..WRITES {
        if at % 4 == 0 {
            replace(client, &format!("default {at}")).await;
        }
        let change = json!({"spec": {"size": at}});
        let written = client.patch(&format!("{SHAPES}/counted"), "merge", &change).await;
        assert_eq!(written.status, 200, "{}", written.text());
    }
    let (seen, opened) = events.await.unwrap();
    assert_eq!(
        seen,
        (0..WRITES).collect::<Vec<_>>(),
        "each write is seen once and in order, in {opened} watches"
    );
    over.store(true, Relaxed);
    assert!(lists.await.unwrap() > 0);
    let log = server.log();
    assert!(!log.contains("panic"), "{log}");
}

/// Returns the anonymous memory of the server, in KiB.
fn memory_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the status has RssAnon");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// With `TYPE_CYCLES`, the memory curve is printed on standard error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_and_recreating_custom_types_leaks_no_memory() {
    let configured = std::env::var("TYPE_CYCLES").ok();
    let cycles = configured.as_ref().map_or(CYCLES, |text| text.parse().expect("TYPE_CYCLES is a number"));
    let server = Server::start_upstream().await;
    let client = server.client();
    let members = |stamp: usize| -> Value {
        let mut members: serde_json::Map<String, Value> = (0..MEMBERS)
            .map(|at| {
                (
                    format!("member{at}"),
                    json!({"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}}),
                )
            })
            .collect();
        members.insert("stamp".to_owned(), json!({"type": "integer", "default": stamp}));
        Value::Object(members)
    };
    let path = format!("{DEFINITIONS}/shapes.g.example.com");
    let (mut first_third, mut answers) = (0, None);
    establish(&server, &shapes(&members(0))).await;
    for cycle in 1..=cycles {
        if cycle % 10 == 0 {
            assert_eq!(client.delete(&path).await.status, 200);
            client.until_gone(&path).await;
            establish(&server, &shapes(&members(cycle))).await;
        } else {
            let versions = json!({"spec": {"versions": shapes(&members(cycle))["spec"]["versions"]}});
            let replaced = client.patch(&path, "merge", &versions).await;
            assert_eq!(replaced.status, 200, "{}", replaced.text());
        }
        // Wait until the new version of the type is in effect. The result of a dry run then has the new default.
        let given = shape("x", json!({"anything": {"z": 1, "a": [null]}, "member7": ["b"], "size": 1}));
        let made = loop {
            let made = client.post(&format!("{SHAPES}?dryRun=All"), &given).await;
            if made.status == 201 && made.json()["spec"]["stamp"] == cycle {
                break made.json();
            }
            assert!(matches!(made.status, 201 | 404), "{}", made.text());
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        };
        // Everything except the stamp is the same each time, including the order of the members.
        let answer = made["spec"].to_string().replace(&format!("\"stamp\":{cycle}"), "\"stamp\":0");
        assert_eq!(answers.get_or_insert_with(|| answer.clone()), &answer);
        if cycle == cycles / 3 {
            first_third = memory_kib(&server);
        }
        if configured.is_some() && (cycle % (cycles / 20).max(1) == 0) {
            eprintln!("{cycle} cycles: {} KiB", memory_kib(&server));
        }
    }
    let added = memory_kib(&server).saturating_sub(first_third);
    assert!(added < ADDED_KIB_MAX, "{added} KiB more than the {first_third} KiB after {} cycles", cycles / 3);
}
