//! Watches: their start, events and end (docs/api/lists.md#list-options, docs/api/watches.md#watch-start,
//! #watch-events, #watch-transport).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::Watch;
use tests::{Options, PATIENCE, Server};

use crate::fixture::{Fixture, outcome, version};
use crate::support::metric;

const END: &str = "k8s.io/initial-events-end";

/// Returns `TYPE name` of each of the next `count` events.
async fn events(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..count {
        let next = tokio::time::timeout(PATIENCE, watch.expect());
        let (kind, name, _) = next.await.unwrap_or_else(|_| panic!("no event after {seen:?}"));
        seen.push(format!("{kind} {name}"));
    }
    seen
}

/// Returns the events up to the end of the watch.
async fn rest(watch: &mut Watch) -> Vec<Value> {
    let mut seen = Vec::new();
    while let Some(event) = tokio::time::timeout(PATIENCE, watch.next()).await.expect("the watch ends") {
        seen.push(event);
    }
    seen
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn labelled(color: &str) -> Value {
    json!({"metadata": {"labels": {"color": color}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_apply_to_initial_events() {
    let fixture = Fixture::new("start").await;
    fixture.make("$core/secrets", &[map("a"), map("b")]).await;
    let marked = "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    for (section, query, want) in [
        ("watch-events", format!("{marked}&labelSelector=none"), "BOOKMARK "),
        ("watch-events", format!("{marked}&fieldSelector=metadata.name%3Db"), "ADDED b, BOOKMARK "),
        ("watch-start", "fieldSelector=metadata.name%3Da".to_owned(), "ADDED a"),
        ("watch-start", "fieldSelector=metadata.name%3Dc".to_owned(), "ADDED c"),
    ] {
        let mut watch = fixture.client.watch(&fixture.full(&format!("$core/secrets?watch=1&{query}"))).await;
        fixture.make("$core/secrets", &[map("c")]).await;
        assert_eq!(events(&mut watch, want.split(", ").count()).await.join(", "), want, "{section} {query}");
        assert_eq!(fixture.send("DELETE $core/secrets/c", "").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookmark_marks_the_end_of_the_initial_events() {
    let fixture = Fixture::new("marker").await;
    fixture.make("$core/secrets", &[map("a")]).await;
    let at_least = version(&fixture.get("$core/secrets").await);
    let path = fixture.full(
        "$core/secrets?watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
    );
    let mut watch = fixture.client.watch(&path).await;
    assert_eq!(events(&mut watch, 1).await, ["ADDED a"]);
    let marker = watch.next().await.unwrap();
    assert_eq!(marker["type"], "BOOKMARK", "watch-start");
    let object = &marker["object"];
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("Secret"), &json!("v1")), "watch-events");
    assert_eq!(object["metadata"]["annotations"], json!({END: "true"}), "watch-start");
    assert!(version(object) >= at_least, "watch-start");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_turn_changes_into_added_and_deleted_events() {
    let fixture = Fixture::new("transitions").await;
    fixture
        .make(
            "$core/secrets",
            &[json!({"metadata": {"name": "a", "labels": {"color": "red"}}, "data": {"k": "1111"}})],
        )
        .await;
    let start = version(&fixture.get("$core/secrets").await);
    let mut watch = fixture
        .client
        .watch(
            &fixture
                .full(&format!("$core/secrets?watch=1&resourceVersion={start}&labelSelector=color%3Dblue")),
        )
        .await;
    // Columns: request, body, events of the watcher of blue objects, and the data in them.
    for (request, body, want, data) in [
        ("PATCH $core/secrets/a", json!({"data": {"k": "2222"}}), None, ""),
        ("PATCH $core/secrets/a", labelled("blue"), Some("ADDED"), "2222"),
        ("PATCH $core/secrets/a", json!({"data": {"k": "3333"}}), Some("MODIFIED"), "3333"),
        (
            "PATCH $core/secrets/a",
            json!({"metadata": {"labels": {"color": "red"}}, "data": {"k": "4444"}}),
            Some("DELETED"),
            "3333",
        ),
        ("PATCH $core/secrets/a", json!({"data": {"k": "5555"}}), None, ""),
        ("PATCH $core/secrets/a", labelled("blue"), Some("ADDED"), "5555"),
        ("DELETE $core/secrets/a", Value::Null, Some("DELETED"), "5555"),
        ("POST $core/secrets", map("a"), None, ""),
        ("DELETE $core/secrets/a", Value::Null, None, ""),
        (
            "POST $core/secrets",
            json!({"metadata": {"name": "a", "labels": {"color": "blue"}}, "data": {"k": "6666"}}),
            Some("ADDED"),
            "6666",
        ),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = fixture.send(request, &body).await;
        assert!(reply.status < 300, "{request}: {}", reply.text());
        let Some(kind) = want else { continue };
        let event = watch.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["data"]["k"]),
            (&json!(kind), &json!(data)),
            "watch-events {request} {body}"
        );
        if request.starts_with("PATCH") {
            assert_eq!(version(&event["object"]), version(&reply.json()), "watch-events {request} {body}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_selectors_apply_to_changes() {
    let fixture = Fixture::new("fieldwatch").await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut watch =
        fixture.client.watch(&fixture.full("$core/pods?watch=1&fieldSelector=spec.nodeName%3Dn1")).await;
    let mut pending =
        fixture.client.watch(&fixture.full("$core/pods?watch=1&fieldSelector=status.phase%3DPending")).await;
    fixture.make("$core/pods", &[pod]).await;
    fixture.send("POST $core/pods/p/binding", r#"{"metadata":{"name":"p"},"target":{"name":"n1"}}"#).await;
    fixture.send("PATCH $core/pods/p/status", r#"{"status":{"phase":"Running"}}"#).await;
    fixture.send("DELETE $core/pods/p?gracePeriodSeconds=0", "").await;
    // The deletion first sets the deletion timestamp.
    let all = ["ADDED p", "MODIFIED p", "MODIFIED p", "DELETED p"];
    assert_eq!(events(&mut watch, 4).await, all, "watch-events");
    assert_eq!(events(&mut pending, 3).await, ["ADDED p", "MODIFIED p", "DELETED p"], "watch-events");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_event_has_the_last_state_and_its_own_version() {
    let fixture = Fixture::new("deletions").await;
    fixture.make("$core/secrets", &[json!({"metadata": {"name": "a"}, "data": {"k": "vvvv"}})]).await;
    let before = fixture.get("$core/secrets/a").await;
    let path = fixture.full(&format!("$core/secrets?watch=1&resourceVersion={}", version(&before)));
    let mut watch = fixture.client.watch(&path).await;
    fixture.send("DELETE $core/secrets/a", "").await;
    let event = watch.next().await.unwrap();
    let mut want = before.clone();
    want["metadata"]["resourceVersion"] = event["object"]["metadata"]["resourceVersion"].clone();
    assert_eq!((&event["type"], &event["object"]), (&json!("DELETED"), &want), "watch-events");
    assert!(version(&event["object"]) > version(&before), "watch-events");
    // A later watcher, and a list at that version, return the same object.
    let mut late = fixture.client.watch(&path).await;
    assert_eq!(late.next().await.unwrap(), event, "watch-events");
    let gone = version(&event["object"]);
    for (at, items) in [(gone - 1, 1), (gone, 0)] {
        let list =
            fixture.get(&format!("$core/secrets?resourceVersion={at}&resourceVersionMatch=Exact")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), items, "read-consistency {at}");
    }
}

/// If a deletion waited for finalizers, the DELETED event has the object as it was before the last finalizer was
/// removed, as in a store whose delete events contain the previous value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_event_has_the_finalizers_that_delayed_the_deletion() {
    let fixture = Fixture::new("waited").await;
    let mut watch = fixture.client.watch(&fixture.full("$core/secrets?watch=1")).await;
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/a", "example.com/b"]}, "stringData": {"k": "1"}});
    fixture.make("$core/secrets", &[held]).await;
    assert_eq!(fixture.send("DELETE $core/secrets/a", "").await.status, 200);
    for left in [r#"["example.com/b"]"#, "null"] {
        let patch = format!(r#"{{"metadata":{{"finalizers":{left}}}}}"#);
        let reply = fixture.send("PATCH $core/secrets/a", &patch).await;
        let shown = &reply.json()["metadata"]["finalizers"];
        assert_eq!((reply.status, shown.is_null()), (200, left == "null"), "the response has the finalizers");
    }
    let mut seen = Vec::new();
    for _ in 0..4 {
        let event = watch.next().await.unwrap();
        seen.push((event["type"].clone(), event["object"]["metadata"]["finalizers"].clone()));
    }
    let both = json!(["example.com/a", "example.com/b"]);
    let one = json!(["example.com/b"]);
    let want = [("ADDED", &both), ("MODIFIED", &both), ("MODIFIED", &one), ("DELETED", &one)];
    assert_eq!(seen, want.map(|(kind, finalizers)| (json!(kind), finalizers.clone())));
    assert_eq!(fixture.send("GET $core/secrets/a", "").await.status, 404);
}

/// A MODIFIED event tells the agent of a node to stop a pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bound_pod_gets_a_modified_event_before_an_immediate_deletion() {
    let fixture = Fixture::new("marked").await;
    let pod = |name: &str, node: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    for (name, node, want) in [
        ("bound", "n", &["ADDED bound", "MODIFIED bound", "DELETED bound"][..]),
        ("free", "", &["ADDED free", "DELETED free"]),
    ] {
        let mut watch = fixture
            .client
            .watch(&fixture.full(&format!("$core/pods?watch=1&fieldSelector=spec.nodeName%3D{node}")))
            .await;
        fixture.make("$core/pods", &[pod(name, node)]).await;
        let reply = fixture.send(&format!("DELETE $core/pods/{name}?gracePeriodSeconds=0"), "").await;
        assert_eq!((reply.status, &reply.json()["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(0)));
        assert_eq!(events(&mut watch, want.len()).await, want, "{name}");
        assert_eq!(fixture.send(&format!("GET $core/pods/{name}"), "").await.status, 404, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_end_cleanly_at_their_timeout() {
    let fixture = Fixture::new("ends").await;
    fixture.make("$core/secrets", &[map("a")]).await;
    for (query, least, events) in [
        ("timeoutSeconds=1", 900, vec!["ADDED"]),
        ("timeoutSeconds=-1", 0, vec!["ADDED"]),
        ("timeoutSeconds=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", 900, vec![]),
    ] {
        let start = Instant::now();
        let mut watch = fixture.client.watch(&fixture.full(&format!("$core/secrets?watch=1&{query}"))).await;
        let types: Vec<String> =
            rest(&mut watch).await.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
        let elapsed = start.elapsed().as_millis();
        assert!(elapsed >= least, "watch-transport {query}: {elapsed} ms");
        assert_eq!(types, events, "watch-transport {query}");
    }
    // A watch sends a bookmark two seconds before it ends. On a slow machine the write may come after the bookmark, so
    // try a longer watch then.
    let mut timeout = 3;
    let (seen, seen_events) = loop {
        let path = fixture.full(&format!("$core/secrets?watch=1&timeoutSeconds={timeout}&allowWatchBookmarks=1&sendInitialEvents=0&resourceVersionMatch=NotOlderThan"));
        let start = Instant::now();
        let mut watch = fixture.client.watch(&path).await;
        fixture.make("$core/configmaps", &[map(&format!("elsewhere-{timeout}"))]).await;
        let seen = fixture.version(&format!("$core/configmaps/elsewhere-{timeout}")).await;
        let is_in_time = start.elapsed() < Duration::from_secs(timeout - 2);
        let seen_events = rest(&mut watch).await;
        if is_in_time {
            break (seen, seen_events);
        }
        timeout *= 2;
    };
    assert_eq!(
        (seen_events.len(), &seen_events[0]["type"]),
        (1, &json!("BOOKMARK")),
        "watch-events {seen_events:?}"
    );
    assert!(
        version(&seen_events[0]["object"]) >= seen
            && seen_events[0]["object"]["metadata"]["annotations"].is_null(),
        "watch-events"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_before_the_start_of_a_watch_are_plain_responses() {
    let fixture = Fixture::new("refused").await;
    let options = |text: &str| format!("422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: {text}");
    let rows = [
        (
            "list-options",
            "&sendInitialEvents=true",
            options(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
        ),
        (
            "list-options",
            "&resourceVersionMatch=NotOlderThan",
            options(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
        ),
        (
            "list-options",
            "&sendInitialEvents=1&resourceVersionMatch=Exact",
            options(
                "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]",
            ),
        ),
        (
            "list-options",
            "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&continue=x",
            options(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
            ),
        ),
        (
            "list-options",
            "&resourceVersion=x",
            r#"500 -: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#
                .to_owned(),
        ),
        ("selectors", "&labelSelector=%21%21", "400 BadRequest: …".to_owned()),
        ("selectors", "&fieldSelector=data.k%3Dv", "400 BadRequest: …".to_owned()),
        (
            "query-parameters",
            "&timeoutSeconds=soon",
            "400 BadRequest: strconv.ParseInt: parsing \"soon\": invalid syntax".to_owned(),
        ),
        ("accept", " | Accept: text/html", "406 NotAcceptable: …".to_owned()),
    ];
    let rows: Vec<(&str, String, String)> = rows
        .into_iter()
        .map(|(section, query, want)| (section, format!("GET $core/secrets?watch=1{query}"), want))
        .collect();
    let rows: Vec<_> =
        rows.iter().map(|(section, request, want)| (*section, request.as_str(), "", want.as_str())).collect();
    fixture.check(&rows).await;
    // Every value of `watch` except 0 and false means true. If the parameter is repeated, the first value counts.
    for (query, stream) in [
        ("watch", true),
        ("watch=", true),
        ("watch=yes", true),
        ("watch=0", false),
        ("watch=False", false),
        ("watch=false&watch=true", false),
    ] {
        let reply = fixture.send(&format!("GET $core/secrets?{query}&timeoutSeconds=-1"), "").await;
        let want = if stream { "200" } else { "200 SecretList" };
        assert_eq!(outcome(&reply), want, "query-parameters {query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_watch_paths_equal_the_watch_parameter() {
    let fixture = Fixture::new("legacy").await;
    fixture.make("$core/secrets", &[map("a"), map("b")]).await;
    for (path, want) in [
        ("/api/v1/watch/namespaces/$ns/secrets", vec!["ADDED a", "ADDED b"]),
        ("/api/v1/watch/namespaces/$ns/secrets/a", vec!["ADDED a"]),
        ("/api/v1/watch/namespaces/$ns/secrets?fieldSelector=metadata.name%3Db", vec!["ADDED b"]),
        ("/api/v1/watch/namespaces/$ns/secrets/a?fieldSelector=metadata.name%3Da", vec!["ADDED a"]),
        ("/api/v1/watch/namespaces/$ns/secrets?labelSelector=none", vec![]),
    ] {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut watch =
            fixture.client.watch(&fixture.full(&format!("{path}{separator}timeoutSeconds=-1"))).await;
        let seen_events: Vec<String> = rest(&mut watch)
            .await
            .iter()
            .map(|event| {
                format!(
                    "{} {}",
                    event["type"].as_str().unwrap(),
                    event["object"]["metadata"]["name"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(seen_events, want, "request-info {path}");
    }
    let mut watch = fixture.client.watch(&fixture.full("/api/v1/watch/namespaces/$ns")).await;
    assert_eq!(events(&mut watch, 1).await, [format!("ADDED {}", fixture.ns)], "request-info");
    fixture
        .check(&[(
            "selectors",
            "GET /api/v1/watch/namespaces/$ns/secrets/a?fieldSelector=metadata.name%3Db",
            "",
            "400 BadRequest: fieldSelector metadata.name doesn't match requested name",
        )])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_stream_is_chunked_json_and_starts_immediately() {
    let fixture = Fixture::new("stream").await;
    let path = fixture.full("$core/secrets?watch=1");
    let response = tokio::time::timeout(PATIENCE, fixture.client.another().open("GET", &path, &[], b""))
        .await
        .expect("the response begins before the first event");
    assert_eq!(response.headers()["content-type"], "application/json", "watch-transport");
    assert_eq!(response.headers()["transfer-encoding"], "chunked", "watch-transport");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watcher_sees_every_event_once_and_in_order() {
    let fixture = Fixture::new("every-watch").await;
    let start = version(&fixture.get("$core/secrets").await);
    let path = fixture.full(&format!("$core/secrets?watch=1&resourceVersion={start}"));
    let mut watches = Vec::new();
    for _ in 0..5 {
        watches.push(fixture.client.watch(&path).await);
    }
    let writers = (0..4).map(|writer| {
        let (client, path) = (fixture.client.another(), fixture.full("$core/secrets"));
        async move {
            for n in 0..10 {
                let name = format!("w{writer}-{n}");
                client.post(&path, &map(&name)).await;
                client.patch(&format!("{path}/{name}"), "merge", &json!({"data": {"k": "vvvv"}})).await;
                client.delete(&format!("{path}/{name}")).await;
            }
        }
    });
    futures_util::future::join_all(writers).await;
    let mut seen_events = Vec::new();
    for watch in &mut watches {
        let mut seen = Vec::new();
        for _ in 0..120 {
            let (kind, name, version) = watch.expect().await;
            seen.push((version.parse::<u64>().unwrap(), kind, name));
        }
        assert!(seen.is_sorted_by(|(a, ..), (b, ..)| a < b), "watch-events: versions strictly increase");
        seen_events.push(seen);
    }
    assert!(
        seen_events.windows(2).all(|pair| pair[0] == pair[1]),
        "watch-events: every watcher receives the same events"
    );
    let mut late = fixture.client.watch(&path).await;
    for (version, kind, name) in &seen_events[0] {
        assert_eq!(
            late.expect().await,
            (kind.clone(), name.clone(), version.to_string()),
            "watch-start: history equals the live events"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_pauses_reading_loses_no_event() {
    let fixture = Fixture::new("slow").await;
    let start = version(&fixture.get("$core/secrets").await);
    let mut slow =
        fixture.client.watch(&fixture.full(&format!("$core/secrets?watch=1&resourceVersion={start}"))).await;
    // The data exceeds what sockets and connections buffer.
    let filler = "x".repeat(100_000);
    fixture.make("$core/secrets", &[map("a")]).await;
    for n in 0..150 {
        let reply = fixture
            .send(
                "PATCH $core/secrets/a",
                &json!({"data": {"n": format!("{n:04}"), "filler": filler}}).to_string(),
            )
            .await;
        assert_eq!(reply.status, 200);
    }
    assert_eq!(events(&mut slow, 1).await, ["ADDED a"]);
    for n in 0..150 {
        let event = slow.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["data"]["n"]),
            (&json!("MODIFIED"), &json!(format!("{n:04}"))),
            "watch-events"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_can_resume_after_the_server_was_killed() {
    let mut server = Server::start(Options::default()).await;
    let maps = "/api/v1/namespaces/default/secrets";
    let mut seen = Vec::new();
    let mut version = "1".to_owned();
    for round in 0..3 {
        let client = server.client().another();
        let mut watch = client.watch(&format!("{maps}?watch=1&resourceVersion={version}")).await;
        for n in 0..3 {
            let name = format!("m{round}-{n}");
            assert_eq!(client.post(maps, &map(&name)).await.status, 201);
        }
        // Only some of the events are read before the process is killed.
        for _ in 0..2 {
            let (kind, name, at) = watch.expect().await;
            seen.push(format!("{kind} {name}"));
            version = at;
        }
        server.kill();
        while watch.next().await.is_some() {}
        server.restart().await;
    }
    let mut watch = server.client().watch(&format!("{maps}?watch=1&resourceVersion={version}")).await;
    for _ in 0..3 {
        let (kind, name, _) = watch.expect().await;
        seen.push(format!("{kind} {name}"));
    }
    let want: Vec<String> = (0..9).map(|n| format!("ADDED m{}-{}", n / 3, n % 3)).collect();
    assert_eq!(seen, want, "watch-start: each event once, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_watch_describes_its_columns_once() {
    let fixture = Fixture::new("tables").await;
    fixture.make("$core/secrets", &[map("a")]).await;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let path = fixture.full("$core/secrets?watch=1");
    let response = fixture.client.another().open("GET", &path, &[("accept", table)], b"").await;
    let mut watch = Watch::new(response);
    fixture.send("PATCH $core/secrets/a", r#"{"data":{"k":"vvvv"}}"#).await;
    for (kind, columns) in [("ADDED", true), ("MODIFIED", false)] {
        let event = watch.next().await.unwrap();
        let object = &event["object"];
        assert_eq!((&event["type"], &object["kind"]), (&json!(kind), &json!("Table")), "watch-transport");
        assert_eq!(object["columnDefinitions"].is_array(), columns, "watch-transport {event}");
        assert_eq!(object["rows"].as_array().unwrap().len(), 1, "watch-transport");
        assert_eq!(object["rows"][0]["cells"][0], "a", "watch-transport");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_encoded_once_for_watchers_with_the_same_representation() {
    const WATCHERS: u64 = 20;
    const WRITES: u64 = 30;
    let server = Server::start(Options::default()).await;
    let path = "/api/v1/namespaces/default/secrets";
    let start = version(&server.client().get(path).await.json());
    let watch = format!("{path}?watch=1&resourceVersion={start}");
    let forms = [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ];
    let mut streams = Vec::new();
    for accept in forms {
        for _ in 0..WATCHERS {
            let client = server.client().another();
            let response = client.open("GET", &watch, &[("accept", accept)], b"").await;
            streams.push((accept, response.into_body()));
        }
    }
    let rendered = metric(&server, "apiserver_watch_events_rendered_total").await;
    let sent = metric(&server, "apiserver_watch_events_sent_total").await;
    for n in 0..WRITES {
        assert_eq!(server.client().post(path, &map(&format!("m{n}"))).await.status, 201);
    }
    // All watchers of one encoding get the same bytes, up to the last object.
    let last = format!("m{}", WRITES - 1);
    let mut first_of: std::collections::HashMap<&str, Vec<u8>> = std::collections::HashMap::new();
    for (accept, mut body) in streams {
        let mut all = Vec::new();
        while !all.windows(last.len()).any(|window| window == last.as_bytes()) {
            let frame =
                tokio::time::timeout(Duration::from_secs(60), http_body_util::BodyExt::frame(&mut body));
            let frame =
                frame.await.expect("the watch sends events").expect("the watch does not end").unwrap();
            all.extend_from_slice(&frame.into_data().unwrap());
        }
        let first = first_of.entry(accept).or_insert_with(|| all.clone());
        let common = first.len().min(all.len());
        assert_eq!(first[..common], all[..common], "watch-events: every watcher receives the same events");
    }
    let rendered = metric(&server, "apiserver_watch_events_rendered_total").await - rendered;
    let sent = metric(&server, "apiserver_watch_events_sent_total").await - sent;
    assert_eq!(sent, WATCHERS * forms.len() as u64 * WRITES);
    assert_eq!(rendered, forms.len() as u64 * WRITES, "each event is rendered once per form");
}

/// Reads the next frame of a WebSocket: its first byte and its payload.
async fn frame(socket: &mut (impl tokio::io::AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    use tokio::io::AsyncReadExt;
    let first = socket.read_u8().await.unwrap();
    let len = match socket.read_u8().await.unwrap() {
        126 => u64::from(socket.read_u16().await.unwrap()),
        127 => socket.read_u64().await.unwrap(),
        len => u64::from(len),
    };
    let mut payload = vec![0; usize::try_from(len).unwrap()];
    socket.read_exact(&mut payload).await.unwrap();
    (first, payload)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_can_use_a_websocket() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let fixture = Fixture::new("websocket").await;
    fixture.make("$core/secrets", &[map("a")]).await;
    let token = "base64url.bearer.authorization.k8s.io.dG9rZW4, base64.binary.k8s.io";
    for (accept, first_byte, offered, chosen) in [
        ("application/json", 0x81, "", ""),
        ("application/json", 0x81, "base64.binary.k8s.io", "base64.binary.k8s.io"),
        ("application/json", 0x81, token, "base64.binary.k8s.io"),
        ("application/vnd.kubernetes.protobuf", 0x82, "a, b", "a"),
    ] {
        let mut socket = fixture.client.connect().await.unwrap();
        let path = fixture.full("$core/secrets?watch=1");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n",
            if offered.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {offered}\r\n") }
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "watch-transport {head}");
        assert!(
            head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"),
            "watch-transport {head}"
        );

        let agreed = head.lines().find_map(|line| line.strip_prefix("sec-websocket-protocol: "));
        assert_eq!(agreed.unwrap_or_default(), chosen, "watch-transport {head}");

        let name = format!("new-{first_byte:x}-{}", offered.len());
        fixture.make("$core/secrets", &[map(&name)]).await;
        let mut seen: Vec<Vec<u8>> = Vec::new();
        while !String::from_utf8_lossy(seen.last().unwrap_or(&Vec::new())).contains(&name) {
            let (first, payload) = frame(&mut socket).await;
            assert_eq!(
                first, first_byte,
                "watch-transport: frames are text for JSON and binary for protobuf"
            );
            seen.push(payload);
        }
        // Each frame has one event. In protobuf, a frame begins with the event, without a length.
        for event in &seen {
            match first_byte {
                0x81 => assert_eq!(
                    serde_json::from_slice::<Value>(event).unwrap()["type"],
                    "ADDED",
                    "watch-transport"
                ),
                _ => assert_eq!(&event[..7], b"\x0a\x05ADDED", "watch-transport"),
            }
        }
        // The client closes, and the server responds with a close frame.
        socket.write_all(&[0x88, 0x80, 1, 2, 3, 4]).await.unwrap();
        assert_eq!(frame(&mut socket).await, (0x88, 1000_u16.to_be_bytes().to_vec()), "watch-transport");
    }
    // A request with an incomplete upgrade gets a plain watch.
    let plain = fixture
        .send(
            "GET $core/secrets?watch=1&timeoutSeconds=-1 | Upgrade: websocket | Sec-WebSocket-Version: 13",
            "",
        )
        .await;
    assert_eq!(plain.status, 200, "watch-transport");
}
