//! Conversion webhooks over real TLS (docs/api/custom-resources.md#conversion-reviews): webhooks that do not
//! respond, respond with errors or convert only some objects, long lists of objects that were stored in
//! different versions, and watches.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::{Client, PATIENCE, Server};

use crate::definitions::{DEFINITIONS, establish};
use crate::fixture::{Fixture, report};
use crate::hook::Hook;

/// Number of objects in a long list, half of them stored in each version.
const OBJECTS: usize = 10_000;

/// Number of concurrent requests that create the objects.
const WRITERS: usize = 16;

/// Maximum number of objects in a review.
const REVIEW_MAX: usize = 500;

/// Behaviours of a webhook.
#[derive(Clone, Copy, Debug)]
enum WebhookBehaviour {
    /// Converts correctly, but slowly.
    Slow,
    /// Never responds.
    Hangs,
    /// Responds with the uid of another review.
    OtherUid,
    /// Reports success, but returns the objects unchanged.
    Unconverted,
    /// Returns the last object unchanged.
    Half,
    /// Leaves the last object out.
    Fewer,
    /// Returns the last object twice.
    More,
    /// Returns `null` as the last object.
    Null,
    /// Returns no list of objects.
    Nothing,
    /// Returns the objects in another order.
    Exchanged,
    /// Returns another value of a member of `metadata`, or another kind.
    Changed(&'static str, &'static str),
    /// Reports that the conversion is not possible.
    Refuses,
    /// Returns no result.
    Silent,
    /// Returns an unrelated document.
    Other,
    /// The webhook's server is stopped.
    Dead,
}

/// The behaviours, and the message that the client gets for each; `HOOK` stands for the usual beginning, and
/// an empty text means success.
const BEHAVIOURS: &[(WebhookBehaviour, &str)] = &[
    (WebhookBehaviour::Slow, ""),
    (WebhookBehaviour::Hangs, "HOOK failed: Post \"…context deadline exceeded…"),
    (WebhookBehaviour::OtherUid, "HOOK failed: expected response.uid=\"…\", got \"other\""),
    (
        WebhookBehaviour::Unconverted,
        "HOOK returned invalid object at index 0: invalid groupVersion (expected GROUP/v2, received GROUP/v1)",
    ),
    (
        WebhookBehaviour::Half,
        "HOOK returned invalid object at index 1: invalid groupVersion (expected GROUP/v2, received GROUP/v1)",
    ),
    (WebhookBehaviour::Fewer, "HOOK returned 1 objects, expected 2"),
    (WebhookBehaviour::More, "HOOK returned 3 objects, expected 2"),
    (WebhookBehaviour::Null, "unexpected end of JSON input"),
    (WebhookBehaviour::Nothing, "HOOK returned 0 objects, expected 2"),
    (WebhookBehaviour::Exchanged, "HOOK returned invalid object: must have the same name: a != b"),
    (WebhookBehaviour::Changed("name", "c"), "HOOK returned invalid object: must have the same name: a != c"),
    (WebhookBehaviour::Changed("uid", "c"), "HOOK returned invalid object: must have the same UID: … != c"),
    (
        WebhookBehaviour::Changed("namespace", "c"),
        "HOOK returned invalid object: must have the same namespace: default != c",
    ),
    (
        WebhookBehaviour::Changed("kind", "C"),
        "HOOK returned invalid object at index 0: invalid kind (expected Text, received C)",
    ),
    (
        WebhookBehaviour::Changed("labels", "c"),
        "HOOK returned invalid metadata: invalid metadata.labels of type string in converted object",
    ),
    (WebhookBehaviour::Changed("generation", "9"), ""),
    (WebhookBehaviour::Refuses, "HOOK failed: the words are too long"),
    (WebhookBehaviour::Silent, "HOOK failed: response.result.status was '', not 'Success'"),
    (WebhookBehaviour::Other, "HOOK failed: …"),
    (WebhookBehaviour::Dead, "HOOK failed: Post \"…connect: connection refused"),
];

/// Returns an object in another version: v1 has the words in a list, v2 in a text.
fn converted(object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = to.into();
    object["words"] = match &object["words"] {
        Value::Array(words) => {
            words.iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" ").into()
        }
        Value::String(text) => text.split(' ').map(Value::from).collect(),
        other => other.clone(),
    };
    object
}

/// Returns a successful response to a review.
fn answer(review: &Value, objects: Vec<Value>) -> Value {
    json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
        "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects,
    }})
}

/// Returns the objects of a review and the version to convert them to.
fn requested_conversion(review: &Value) -> (&[Value], &str) {
    let request = &review["request"];
    (request["objects"].as_array().unwrap(), request["desiredAPIVersion"].as_str().unwrap())
}

fn convert(review: &Value) -> Value {
    let (objects, to) = requested_conversion(review);
    answer(review, objects.iter().map(|object| converted(object, to)).collect())
}

/// Returns the response of a webhook with this behaviour.
async fn misconvert(behaviour: WebhookBehaviour, review: Value) -> Value {
    let mut right = convert(&review);
    let (sent, _) = requested_conversion(&review);
    let (response, last) = (&mut right["response"], sent.len() - 1);
    let objects = response["convertedObjects"].as_array_mut().unwrap();
    match behaviour {
        WebhookBehaviour::Slow => tokio::time::sleep(Duration::from_secs(1)).await,
        WebhookBehaviour::Hangs => tokio::time::sleep(PATIENCE).await,
        WebhookBehaviour::OtherUid => response["uid"] = "other".into(),
        WebhookBehaviour::Unconverted => objects.clone_from_slice(sent),
        WebhookBehaviour::Half => objects[last] = sent[last].clone(),
        WebhookBehaviour::Fewer => objects.truncate(last),
        WebhookBehaviour::More => objects.push(objects[last].clone()),
        WebhookBehaviour::Null => objects[last] = Value::Null,
        WebhookBehaviour::Nothing => response["convertedObjects"] = Value::Null,
        WebhookBehaviour::Exchanged => objects.rotate_left(1),
        WebhookBehaviour::Changed("kind", value) => {
            objects.iter_mut().for_each(|object| object["kind"] = value.into())
        }
        WebhookBehaviour::Changed(member, value) => {
            objects.iter_mut().for_each(|object| object["metadata"][member] = value.into());
        }
        WebhookBehaviour::Refuses => {
            response["result"] = json!({"status": "Failure", "message": "the words are too long"})
        }
        WebhookBehaviour::Silent => response["result"] = json!({}),
        WebhookBehaviour::Other => return json!({"kind": "Elephant"}),
        WebhookBehaviour::Dead => {}
    }
    right
}

/// Returns a definition of `texts` in a group that this webhook converts.
fn definition(group: &str, hook: &Hook, stored: &str) -> Value {
    let version = |name: &str, words: Value| {
        json!({"name": name, "served": true, "storage": name == stored, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"words": words},
        }}})
    };
    json!({
        "metadata": {"name": format!("texts.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "texts", "kind": "Text"},
            "versions": [
                version("v1", json!({"type": "array", "items": {"type": "string"}})),
                version("v2", json!({"type": "string"})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": hook.url("/convert"), "caBundle": hook.ca_bundle()},
            }},
        },
    })
}

fn texts(group: &str, version: &str) -> String {
    format!("/apis/{group}/{version}/namespaces/default/texts")
}

fn text(group: &str, version: &str, name: &str, words: Value) -> Value {
    json!({"apiVersion": format!("{group}/{version}"), "kind": "Text", "metadata": {"name": name}, "words": words})
}

/// Returns whether a text matches `want`, in which each `…` matches any text.
fn fits(got: &str, want: &str) -> bool {
    let mut rest = Some(got);
    for (at, part) in want.split('…').enumerate() {
        rest = rest.and_then(|rest| match at {
            0 => rest.strip_prefix(part),
            _ => rest.find(part).map(|found| &rest[found + part.len()..]),
        });
    }
    rest.is_some_and(|rest| rest.is_empty() || want.ends_with('…'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_conversion_webhook_affects_only_reads_of_other_versions() {
    let server = Server::start_upstream().await;
    let works = Arc::new(AtomicBool::new(false));
    let mut hooks = Vec::new();
    for (at, (behaviour, want)) in BEHAVIOURS.iter().enumerate() {
        let works = works.clone();
        let respond = move |review: Value| {
            let works = works.load(Ordering::Relaxed);
            async move { if works { convert(&review) } else { misconvert(*behaviour, review).await } }
        };
        hooks.push((format!("w{at}.example.com"), *behaviour, *want, Hook::start(respond).await));
    }
    let mut closed = Vec::new();
    for (group, behaviour, _, hook) in &mut hooks {
        establish(&server, &definition(group, hook, "v1")).await;
        for name in ["a", "b"] {
            let reply =
                server.client().post(&texts(group, "v1"), &text(group, "v1", name, json!([name, "x"]))).await;
            assert_eq!(reply.status, 201, "{behaviour:?}: {}", reply.text());
        }
        if matches!(behaviour, WebhookBehaviour::Dead) {
            // The webhook's server ends, and its port refuses connections.
            let dead = std::mem::replace(hook, Hook::start(std::future::ready).await);
            closed.push(dead.close().await);
        }
    }
    let checks = hooks.iter().map(|(group, behaviour, want, _)| {
        let client = server.client().another();
        async move {
            let reply = client.get(&texts(group, "v2")).await;
            let wrong = format!("{behaviour:?}: {} {}", reply.status, reply.text());
            let is_right = if want.is_empty() {
                let items = &reply.json()["items"];
                reply.status == 200 && items[0]["words"] == "a x" && items[1]["metadata"]["generation"] == 1
            } else {
                let want = want
                    .replace("HOOK", "conversion webhook for GROUP/v1, Kind=Text")
                    .replace("GROUP", group);
                reply.status == 500 && fits(reply.json()["message"].as_str().unwrap_or_default(), &want)
            };
            // A write in that version is refused as well, without effect; a single object fails like the
            // list.
            let served = want.is_empty();
            (!is_right).then_some(wrong).or(unchanged(&client, (group, *behaviour), served).await)
        }
    });
    let wrong: Vec<String> = join_all(checks).await.into_iter().flatten().collect();
    report(&wrong);

    // As soon as the webhooks behave correctly, the server uses their responses.
    works.store(true, Ordering::Relaxed);
    let mut wrong = Vec::new();
    for (group, behaviour, ..) in
        hooks.iter().filter(|(_, behaviour, ..)| !matches!(behaviour, WebhookBehaviour::Dead))
    {
        let reply = server.client().get(&texts(group, "v2")).await;
        let items = reply.json()["items"].clone();
        if (reply.status, &items[0]["words"], &items[1]["words"]) != (200, &"a x".into(), &"b x".into()) {
            wrong.push(format!("{behaviour:?}: {}", reply.text()));
        }
    }
    report(&wrong);
    let log = server.log();
    assert!(!log.contains("panic"), "{log}");
}

/// Checks that the objects can be read and written in their stored version, and are unchanged.
async fn unchanged(
    client: &Client,
    (group, behaviour): (&str, WebhookBehaviour),
    served: bool,
) -> Option<String> {
    let before = client.get(&format!("{}/a", texts(group, "v1"))).await.json();
    // To save time, a hanging webhook is not called again. A webhook that exchanges objects converts a single object
    // correctly.
    if !served && !matches!(behaviour, WebhookBehaviour::Hangs | WebhookBehaviour::Exchanged) {
        let refused = client.post(&texts(group, "v2"), &text(group, "v2", "new", json!("c"))).await;
        if refused.status != 500 {
            return Some(format!("{behaviour:?}: a write is not refused: {}", refused.text()));
        }
    }
    let list = client.get(&texts(group, "v1")).await.json();
    let found = &list["items"][0];
    let is_as_before = found["words"] == json!(["a", "x"]) && found["metadata"] == before["metadata"];
    (!is_as_before || list["items"].as_array().map(Vec::len) != Some(2))
        .then(|| format!("{behaviour:?}: stored objects are not as they were: {list}"))
}

/// Creates the objects `o<at>` of a range, several at once.
async fn make(server: &Server, group: &'static str, version: &'static str, range: std::ops::Range<usize>) {
    let writers = (0..WRITERS).map(|writer| {
        let (client, range) = (server.client().another(), range.clone());
        tokio::spawn(async move {
            for at in range.skip(writer).step_by(WRITERS) {
                let words =
                    if version == "v1" { json!(["n", at.to_string()]) } else { format!("n {at}").into() };
                let object = text(group, version, &format!("o{at:05}"), words);
                let reply = client.post(&texts(group, version), &object).await;
                assert_eq!(reply.status, 201, "{}", reply.text());
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_of_mixed_versions_is_converted_in_batches() {
    let server = Server::start_upstream().await;
    let group = "mixed.example.com";
    let hook = Hook::start(|review| std::future::ready(convert(&review))).await;
    establish(&server, &definition(group, &hook, "v1")).await;
    make(&server, group, "v1", 0..OBJECTS / 2).await;
    let path = format!("{DEFINITIONS}/texts.{group}");
    let mut stored = server.client().get(&path).await.json();
    stored["spec"] = definition(group, &hook, "v2")["spec"].clone();
    let reply = server.client().put(&path, &stored).await;
    assert_eq!(reply.json()["status"]["storedVersions"], json!(["v1", "v2"]), "{}", reply.text());
    // Objects created in v2 are stored in v2 once the server has the new definition.
    let begun = hook.received().len();
    let probe = async |name: &str| {
        let object = text(group, "v2", name, json!("p"));
        let reply = server.client().post(&texts(group, "v2"), &object).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        server.client().delete(&format!("{}/{name}", texts(group, "v2"))).await;
        hook.received().len()
    };
    let mut probed_before = begun;
    for at in 0.. {
        let probed = probe(&format!("probe{at}")).await;
        if probed == probed_before {
            break;
        }
        probed_before = probed;
    }
    make(&server, group, "v2", OBJECTS / 2..OBJECTS).await;
    assert_eq!(hook.received().len(), probed_before, "writes in the stored version are not converted");

    for (version, word) in [("v1", json!(["n", "7"])), ("v2", json!("n 7"))] {
        for (query, pages) in [("", 1), ("?limit=3000", OBJECTS.div_ceil(3000))] {
            let before = hook.received().len();
            let (mut items, mut token, mut asked_pages) = (Vec::new(), String::new(), 0);
            loop {
                let more = if token.is_empty() { String::new() } else { format!("&continue={token}") };
                let list =
                    server.client().get(&format!("{}{query}{more}", texts(group, version))).await.json();
                items.extend(list["items"].as_array().unwrap().iter().cloned());
                asked_pages += 1;
                token = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
                if token.is_empty() {
                    break;
                }
            }
            assert_eq!((asked_pages, items.len()), (pages, OBJECTS), "{version}{query}");
            for (at, item) in items.iter().enumerate() {
                let words =
                    if version == "v1" { json!(["n", at.to_string()]) } else { format!("n {at}").into() };
                assert_eq!(
                    (&item["metadata"]["name"], &item["apiVersion"], &item["words"]),
                    (&format!("o{at:05}").into(), &format!("{group}/{version}").into(), &words)
                );
            }
            assert_eq!(items[7]["words"], word);
            let reviews = hook.received();
            let sizes: Vec<usize> =
                reviews[before..].iter().map(|review| requested_conversion(review).0.len()).collect();
            assert_eq!(sizes.iter().sum::<usize>(), OBJECTS / 2, "each is converted once: {sizes:?}");
            assert!(sizes.iter().all(|size| *size <= REVIEW_MAX), "{sizes:?}");
            // All reviews are full except those at the border of the versions and at the end of a page.
            assert!(sizes.len() <= OBJECTS / 2 / REVIEW_MAX + 2 * pages, "{sizes:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_receive_every_change_in_their_own_version() {
    let server = Server::start_upstream().await;
    let group = "watched.example.com";
    let lies = Arc::new(AtomicBool::new(false));
    let is_lying = lies.clone();
    let hook = Hook::start(move |review: Value| {
        let lies = is_lying.load(Ordering::Relaxed);
        std::future::ready(if lies { answer(&review, Vec::new()) } else { convert(&review) })
    })
    .await;
    let client = server.client();
    establish(&server, &definition(group, &hook, "v1")).await;
    let start = client.get(&texts(group, "v1")).await.json()["metadata"]["resourceVersion"].clone();
    let query = format!("?watch=true&resourceVersion={}", start.as_str().unwrap());
    let path = |version: &str| format!("{}{query}", texts(group, version));
    let mut first = client.watch(&path("v1")).await;
    let mut second = client.watch(&path("v2")).await;

    // The objects change in both versions, and each watch sees all changes.
    let object = |version: &str, words: Value| text(group, version, "a", words);
    assert_eq!(client.post(&texts(group, "v1"), &object("v1", json!(["one"]))).await.status, 201);
    let one = |version: &str| format!("{}/a", texts(group, version));
    let patched = client.patch(&one("v2"), "merge", &json!({"words": "one two"})).await;
    assert_eq!(patched.json()["words"], "one two", "{}", patched.text());
    let patched = client.patch(&one("v1"), "merge", &json!({"words": ["three"]})).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(client.delete(&one("v2")).await.status, 200);
    let expected = [
        ("ADDED", json!(["one"]), "one"),
        ("MODIFIED", json!(["one", "two"]), "one two"),
        ("MODIFIED", json!(["three"]), "three"),
        ("DELETED", json!(["three"]), "three"),
    ];
    // A watch that starts later at the same revision sees the same events.
    let mut late = client.watch(&path("v2")).await;
    let mut revisions = BTreeMap::new();
    for (at, (kind, list, words)) in expected.iter().enumerate() {
        for (which, watch, version) in
            [("v1", &mut first, "v1"), ("v2", &mut second, "v2"), ("late", &mut late, "v2")]
        {
            let event = watch.next().await.expect("the watch sends another event");
            let object = &event["object"];
            let words = if version == "v1" { list.clone() } else { json!(words) };
            assert_eq!(
                (&event["type"], &object["apiVersion"], &object["words"]),
                (&json!(kind), &format!("{group}/{version}").into(), &words),
                "{which}: {event}"
            );
            let revision = object["metadata"]["resourceVersion"].clone();
            assert_eq!(revisions.entry(at).or_insert_with(|| revision.clone()), &revision, "{which}");
        }
    }

    // If an object cannot be converted, the watches that need this conversion end with an error; other
    // watches continue.
    lies.store(true, Ordering::Relaxed);
    assert_eq!(client.post(&texts(group, "v1"), &object("v1", json!(["four"]))).await.status, 201);
    let event = first.next().await.expect("the watch sends another event");
    assert_eq!((&event["type"], &event["object"]["words"]), (&json!("ADDED"), &json!(["four"])));
    let event = second.next().await.expect("the watch sends another event");
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(500)), "{event}");
    let message = event["object"]["message"].as_str().unwrap();
    assert!(message.contains("returned 0 objects, expected 1"), "{message}");
    assert_eq!(second.next().await, None);

    // Once the webhook works again, the watch is resumed where it ended.
    lies.store(false, Ordering::Relaxed);
    let last = revisions[&3].as_str().unwrap();
    let mut again = client.watch(&format!("{}?watch=true&resourceVersion={last}", texts(group, "v2"))).await;
    let event = again.next().await.expect("the watch sends another event");
    assert_eq!((&event["type"], &event["object"]["words"]), (&json!("ADDED"), &json!("four")), "{event}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_versions_are_converted_by_a_webhook() {
    let fixture = Fixture::new("converted").await;
    // Version v1 has the words in a list, v2 in a text.
    let answer = |review: Value| {
        let target_version = review["request"]["desiredAPIVersion"].as_str().unwrap();
        let objects = review["request"]["objects"].as_array().unwrap();
        let converted = objects.iter().map(|object| {
            let mut object = object.clone();
            object["apiVersion"] = target_version.into();
            object["words"] = match &object["words"] {
                Value::Array(words) => {
                    words.iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" ").into()
                }
                Value::String(text) => text.split(' ').map(Value::from).collect::<Vec<_>>().into(),
                other => other.clone(),
            };
            object
        });
        ready(json!({
            "apiVersion": review["apiVersion"],
            "kind": "ConversionReview",
            "response": {
                "uid": review["request"]["uid"],
                "result": {"status": "Success"},
                "convertedObjects": converted.collect::<Vec<_>>(),
            },
        }))
    };
    let hook = Hook::start(answer).await;
    let group = format!("{}.example.com", fixture.ns);
    let version = |name: &str, storage: bool, words: Value| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"words": words},
        }}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("texts.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "texts", "kind": "Text"},
            "versions": [
                version("v1", true, json!({"type": "array", "items": {"type": "string"}})),
                version("v2", false, json!({"type": "string"})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": hook.url("/convert"), "caBundle": hook.ca_bundle()},
            }},
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = fixture.client.post(definitions, &definition).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let texts = |version: &str| format!("/apis/{group}/{version}/namespaces/{}/texts", fixture.ns);
    let listed = fixture.client.until(&texts("v2"), |list| list.is_some()).await;
    assert!(listed.is_some(), "the type is not served");

    let object = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Text", "metadata": {"name": "t"}, "words": ["one", "two"],
    });
    let made = fixture.client.post(&texts("v1"), &object).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(fixture.client.get(&format!("{}/t", texts("v2"))).await.json()["words"], "one two");
    let patch = json!({"words": "three four five"});
    let patched = fixture.client.patch(&format!("{}/t", texts("v2")), "merge", &patch).await;
    assert_eq!(patched.json()["words"], "three four five", "{}", patched.text());
    let stored = fixture.client.get(&format!("{}/t", texts("v1"))).await.json();
    assert_eq!(stored["words"], json!(["three", "four", "five"]));
    assert_eq!(fixture.client.get(&texts("v2")).await.json()["items"][0]["words"], "three four five");

    // Without the webhook's server, other versions cannot be read, but the stored version can.
    hook.end().await;
    let failed = fixture.client.get(&format!("{}/t", texts("v2"))).await;
    assert_eq!(failed.status, 500, "{}", failed.text());
    assert!(
        failed.json()["message"].as_str().unwrap().contains("conversion webhook for"),
        "{}",
        failed.text()
    );
    assert_eq!(fixture.client.get(&format!("{}/t", texts("v1"))).await.status, 200);
}
