//! Fault rules: the requests that a rule matches, and the effect on these requests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{CONFIG_MAPS, config_map, control, server};

#[tokio::test]
async fn matching_requests_get_the_error_of_their_fault_rule() {
    let server = server(&[]).await;
    let client = server.client();
    client.post(CONFIG_MAPS, &config_map("a", "1")).await;
    let path = format!("{CONFIG_MAPS}/a");
    for (error, reason) in [
        (json!({"code": 409}), "Conflict"),
        (json!({"code": 410}), "Expired"),
        (json!({"code": 422}), "Invalid"),
        (json!({"code": 429, "retryAfterSeconds": 7}), "TooManyRequests"),
        (json!({"code": 500}), "InternalError"),
        (json!({"code": 503}), "ServiceUnavailable"),
        (json!({"code": 418, "reason": "Teapot", "message": "short and stout"}), "Teapot"),
    ] {
        let rule =
            json!({"match": {"verbs": ["get"], "resources": ["configmaps"], "names": ["a"]}, "error": error});
        let made = control(client, "POST", "/faults", rule).await;
        let reply = client.get(&path).await;
        let status = reply.json();
        assert_eq!((&status["code"], &status["reason"]), (&error["code"], &json!(reason)), "{status}");
        assert_eq!(Value::from(reply.status), error["code"]);
        let after: Vec<_> = reply.header_all("retry-after");
        assert_eq!(
            after.concat(),
            error["retryAfterSeconds"].as_u64().map_or(String::new(), |s| s.to_string())
        );
        assert_eq!(status["details"]["retryAfterSeconds"], error["retryAfterSeconds"]);
        // Requests with other verbs and names are served.
        assert_eq!(client.get(CONFIG_MAPS).await.status, 200);
        assert_eq!(client.get(&format!("{CONFIG_MAPS}/b")).await.status, 404);
        let id = &made["id"];
        let seen = control(client, "GET", &format!("/faults/{id}"), Value::Null).await;
        assert_eq!(
            (&seen["matched"], &seen["applied"], &seen["rule"]["error"]),
            (&json!(1), &json!(1), &error)
        );
        control(client, "DELETE", &format!("/faults/{id}"), Value::Null).await;
        assert_eq!(client.get(&path).await.status, 200);
    }
}

#[tokio::test]
async fn a_fault_rule_applies_to_the_requested_occurrences() {
    let server = server(&[]).await;
    let client = server.client();
    client.post(CONFIG_MAPS, &config_map("a", "1")).await;
    let rule = json!({"match": {"verbs": ["get"]}, "skip": 1, "count": 2, "error": {"code": 503}});
    control(client, "POST", "/faults", rule).await;
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(client.get(&format!("{CONFIG_MAPS}/a")).await.status);
    }
    assert_eq!(codes, [200, 503, 503, 200, 200]);
    assert_eq!(control(client, "DELETE", "/faults", Value::Null).await, json!({"removed": 1}));
}

#[tokio::test]
async fn fault_rules_can_delay_requests_and_break_connections() {
    let server = server(&[]).await;
    let client = server.client();
    let slow = json!({"match": {"verbs": ["create"], "users": ["*"]}, "count": 1, "delay": "300ms"});
    control(client, "POST", "/faults", slow).await;
    let began = Instant::now();
    assert_eq!(client.post(CONFIG_MAPS, &config_map("slow", "1")).await.status, 201);
    assert!(began.elapsed() >= Duration::from_millis(300));

    for (close, name, exists) in [("before", "unserved", 404), ("after", "served", 200)] {
        let rule = json!({"match": {"verbs": ["create"]}, "count": 1, "close": close});
        control(client, "POST", "/faults", rule).await;
        let headers = [("content-type", "application/json")];
        let body = config_map(name, "1").to_string();
        let reply = client.another().try_send("POST", CONFIG_MAPS, &headers, body.as_bytes()).await;
        assert!(reply.is_none(), "{close}: {reply:?}");
        assert_eq!(client.get(&format!("{CONFIG_MAPS}/{name}")).await.status, exists, "{close}");
    }
}

#[tokio::test]
async fn a_fault_rule_can_make_reads_stale() {
    let server = server(&[]).await;
    let client = server.client();
    let made = client.post(CONFIG_MAPS, &config_map("a", "old")).await.json();
    client.put(&format!("{CONFIG_MAPS}/a"), &config_map("a", "new")).await;
    let at = &made["metadata"]["resourceVersion"];
    let rule = json!({"match": {"resources": ["configmaps"]}, "staleAt": at, "count": 2});
    control(client, "POST", "/faults", rule).await;
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.json()["data"]["value"], "old");
    let list = client.get(CONFIG_MAPS).await.json();
    assert_eq!(&list["metadata"]["resourceVersion"], at);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.json()["data"]["value"], "new");
    // A rule about stale reads does not count writes.
    assert_eq!(client.put(&format!("{CONFIG_MAPS}/a"), &config_map("a", "newest")).await.status, 200);
}

#[tokio::test]
async fn watches_can_be_broken_ended_expired_and_stalled() {
    let server = server(&[]).await;
    let client = server.client();
    let path = format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name=a");
    let touch = async |value: &str| {
        client.put(&format!("{CONFIG_MAPS}/a"), &config_map("a", value)).await;
    };
    client.post(CONFIG_MAPS, &config_map("a", "0")).await;
    let version = async || {
        let object = client.get(&format!("{CONFIG_MAPS}/a")).await.json();
        object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    for effect in ["break", "close", "expire"] {
        let rule = json!({"match": {"verbs": ["watch"]}, "count": 1, "watch": {"effect": effect, "afterChanges": 2}});
        control(client, "POST", "/faults", rule).await;
        let mut watch = client.watch(&format!("{path}&resourceVersion={}", version().await)).await;
        for value in ["1", "2", "3"] {
            touch(value).await;
        }
        let mut kinds = Vec::new();
        while let Some(event) = watch.next().await {
            kinds.push((event["type"].as_str().unwrap().to_owned(), event["object"]["code"].clone()));
        }
        let mut expected = vec![("MODIFIED".to_owned(), Value::Null); 2];
        if effect == "expire" {
            expected.push(("ERROR".to_owned(), json!(410)));
        }
        assert_eq!(kinds, expected, "{effect}");
    }

    let mut watch = client.watch(&format!("{path}&resourceVersion={}", version().await)).await;
    touch("4").await;
    assert_eq!(watch.expect().await.0, "MODIFIED");
    let of_config_maps = json!({"resources": ["configmaps"]});
    let order = |effect: &str| json!({"match": of_config_maps, "effect": effect});
    assert_eq!(control(client, "POST", "/watches", order("stall")).await, json!({"disturbed": 1}));
    touch("5").await;
    let quiet = tokio::time::timeout(Duration::from_millis(300), watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    let open = control(client, "GET", "/watches", Value::Null).await;
    let stalled: Vec<_> =
        open["items"].as_array().unwrap().iter().filter(|watch| watch["stalled"] == true).collect();
    assert!(stalled.len() == 1 && stalled[0]["resource"] == "configmaps", "{open}");
    control(client, "POST", "/watches", order("resume")).await;
    assert_eq!(watch.expect().await.0, "MODIFIED");
    control(client, "POST", "/watches", order("expire")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    assert!(watch.next().await.is_none());
}
