//! The recording of requests, and the wait for quiescence.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tests::{Client, PATIENCE};

use super::{CONFIG_MAPS, config_map, control, send, server};
use crate::fixture::{escape, version};

/// The pauses of a writer, as the server may see them: the time when the last write was sent, and the longest time from
/// the sending of a write to the response to the next write.
struct Pauses(Mutex<(Instant, Duration)>);

impl Pauses {
    fn begin() -> Arc<Pauses> {
        Arc::new(Pauses(Mutex::new((Instant::now(), Duration::ZERO))))
    }

    /// Records a write that was sent at this time and has a response now.
    fn note(&self, sent: Instant) {
        let mut state = self.0.lock();
        let (before, longest) = *state;
        *state = (sent, longest.max(before.elapsed()));
    }

    /// Returns the longest pause that has ended.
    fn longest(&self) -> Duration {
        self.0.lock().1
    }

    /// Returns the duration of the present pause.
    fn present(&self) -> Duration {
        self.0.lock().0.elapsed()
    }
}

/// Waits for quiescence while a client creates ten config maps whose names begin with `stem`. Returns the revision of
/// the response if it includes all these writes.
async fn quiescent_after_writes(client: &Client, stem: &str) -> Option<u64> {
    const QUIET: Duration = Duration::from_millis(200);
    let (began, pauses) = (Instant::now(), Pauses::begin());
    let writing = tokio::spawn({
        let (client, pauses, stem) = (client.another(), pauses.clone(), stem.to_owned());
        async move {
            let mut last = 0;
            for n in 0..10 {
                let sent = Instant::now();
                let made = client.post(CONFIG_MAPS, &config_map(&format!("{stem}{n}"), "1")).await;
                pauses.note(sent);
                last = version(&made.json());
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            last
        }
    });
    let quiet = control(client, "POST", "/quiescence", json!({"for": "200ms", "timeout": "30s"})).await;
    assert!(began.elapsed() >= QUIET, "{quiet}");
    let last = writing.await.unwrap();
    let reached = revision(&quiet["resourceVersion"]);
    // On a slow machine the writer may pause for so long that the wait rightly ends before the last write.
    assert!(reached >= last || pauses.longest() >= QUIET, "{quiet}, but the last write is at {last}");
    (reached >= last).then_some(reached)
}

fn revision(text: &Value) -> u64 {
    text.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text} is not a revision"))
}

#[tokio::test]
async fn requests_since_a_mark_are_recorded_with_their_bodies() {
    let server = server(&[]).await;
    let client = server.client();
    let mark = control(client, "GET", "/requests", Value::Null).await;
    assert_eq!(mark["items"], json!([]), "without a mark there are no requests");
    client.post(CONFIG_MAPS, &config_map("a", "1")).await;
    client.get(&format!("{CONFIG_MAPS}/a")).await;
    client.patch(&format!("{CONFIG_MAPS}/a"), "merge", &json!({"data": {"value": "2"}})).await;
    client.get(&format!("{CONFIG_MAPS}/b?pretty=1")).await;
    let own = escape(r#"{"resources":["configmaps"],"userAgents":[""]}"#);
    let since = |bodies: bool| format!("/requests?since={}&bodies={bodies}&match={own}", mark["mark"]);
    let record = control(client, "GET", &since(true), Value::Null).await;
    let items = record["items"].as_array().unwrap();
    let shown: Vec<_> = items.iter().map(|item| (&item["verb"], &item["name"], &item["code"])).collect();
    let expected = [("create", "", 201), ("get", "a", 200), ("patch", "a", 200), ("get", "b", 404)];
    let expected = expected.map(|(verb, name, code)| (json!(verb), json!(name), json!(code)));
    assert_eq!(shown, expected.each_ref().map(|(verb, name, code)| (verb, name, code)), "{record}");
    assert_eq!(items[0]["body"], config_map("a", "1"));
    assert_eq!(items[2]["body"], json!({"data": {"value": "2"}}));
    assert!(items[1].get("body").is_none());
    assert_eq!(items[3]["uri"], format!("{CONFIG_MAPS}/b?pretty=1"));
    assert_eq!((&items[0]["namespace"], &items[0]["version"]), (&json!("default"), &json!("v1")));
    let without = control(client, "GET", &since(false), Value::Null).await;
    assert!(without["items"][0].get("body").is_none());

    // The recording also contains responses that a fault rule caused.
    let rule = control(client, "POST", "/faults", json!({"error": {"code": 503}, "count": 1})).await;
    let mark = control(client, "GET", "/requests", Value::Null).await;
    client.get(&format!("{CONFIG_MAPS}/a")).await;
    let record = control(client, "GET", &format!("/requests?since={}", mark["mark"]), Value::Null).await;
    let hit: Vec<_> = record["items"].as_array().unwrap().iter().filter(|item| item["code"] == 503).collect();
    assert!(hit.len() == 1 && hit[0]["fault"] == rule["id"], "{record}");
    control(client, "DELETE", "/requests", Value::Null).await;
    let record = control(client, "GET", &format!("/requests?since={}", mark["mark"]), Value::Null).await;
    assert!(record["lost"].as_u64() > Some(0), "{record}");
    for query in ["since=x", "since=-1", "limit=1e3", "bodies=1", "match=x"] {
        assert_eq!(
            send(client, "GET", &format!("/requests?{query}"), &Value::Null).await.status,
            400,
            "{query}"
        );
    }
}

#[tokio::test]
async fn quiescence_waits_for_writes_and_watches() {
    let server = server(&["--controllers="]).await;
    let client = server.client();
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    let (begun, mut round) = (Instant::now(), 0);
    let reached = loop {
        if let Some(reached) = quiescent_after_writes(client, &format!("c{round}-")).await {
            break reached;
        }
        assert!(begun.elapsed() < PATIENCE, "the writer pauses each time");
        round += 1;
    };
    let open = control(client, "GET", "/watches", Value::Null).await;
    let ours: Vec<_> =
        open["items"].as_array().unwrap().iter().filter(|w| w["resource"] == "configmaps").collect();
    assert!(ours.iter().all(|watch| revision(&watch["sentRevision"]) >= reached), "{open} {reached}");
    let last = format!("c{round}-9");
    while watch.expect().await.1 != last {}

    // The wait includes a write that is in progress, even before the write changes anything.
    let slow = json!({"match": {"verbs": ["create"]}, "count": 1, "delay": "500ms"});
    let rule = control(client, "POST", "/faults", slow).await;
    let late = tokio::spawn({
        let client = client.another();
        async move { client.post(CONFIG_MAPS, &config_map("late", "1")).await.status }
    });
    let rule = format!("/testing/faults/{}", rule["id"]);
    client.until(&rule, |rule| rule.is_some_and(|rule| rule["applied"] == 1)).await;
    control(client, "POST", "/quiescence", json!({"for": "10ms"})).await;
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/late")).await.status, 200);
    assert_eq!(late.await.unwrap(), 201);

    // If writes never stop, the wait ends with an error. The wait may succeed during a pause of the writer.
    let pauses = Pauses::begin();
    let busy = tokio::spawn({
        let (client, pauses) = (client.another(), pauses.clone());
        async move {
            for n in 0_u64.. {
                let sent = Instant::now();
                client.put(&format!("{CONFIG_MAPS}/late"), &config_map("late", &n.to_string())).await;
                pauses.note(sent);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    loop {
        let reply = send(client, "POST", "/quiescence", &json!({"for": "2s", "timeout": "2500ms"})).await;
        if reply.status == 504 {
            break;
        }
        let pause = pauses.longest().max(pauses.present());
        assert!(reply.status == 200 && pause >= Duration::from_secs(2), "{pause:?}: {}", reply.text());
        assert!(begun.elapsed() < 2 * PATIENCE, "the writer pauses each time");
    }
    busy.abort();
    for body in [json!({"for": "2s", "timeout": "1s"}), json!({"timeout": "1h"}), json!({"for": "-1s"})] {
        assert_eq!(send(client, "POST", "/quiescence", &body).await.status, 400, "{body}");
    }
}
