//! Admission webhooks over real TLS (docs/api/webhooks.md), the verification of servers without a CA bundle, and the
//! effect of a slow webhook on waiting clients (docs/api/fairness.md).

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};
use tokio::sync::Notify;

use crate::etcd::cluster::Etcd;
use crate::fixture::Fixture;
use crate::hook::Hook;

/// Returns the response of an admission webhook.
fn admitted(review: &Value, members: Value) -> Value {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    response.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// Returns a configuration for creations of ConfigMaps in one namespace.
fn configuration(kind: &str, name: &str, hook: &Hook, ns: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [{
            "name": "hook.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
            "clientConfig": {"url": hook.url("/review"), "caBundle": hook.ca_bundle()},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
        }],
    })
}

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_webhooks_can_change_and_refuse_writes() {
    let fixture = Fixture::new("hooks").await;
    let patch = STANDARD.encode(r#"[{"op":"add","path":"/data/added","value":"by the hook"}]"#);
    let answer = move |review: Value| {
        let members = if review["request"]["object"]["data"].get("bad").is_some() {
            json!({"allowed": false, "status": {"message": "no bad ones", "code": 418}})
        } else {
            json!({"patchType": "JSONPatch", "patch": patch, "warnings": ["changed"]})
        };
        ready(admitted(&review, members))
    };
    let hook = Hook::start(answer).await;
    let config = configuration("MutatingWebhookConfiguration", &fixture.ns, &hook, &fixture.ns);
    assert_eq!(fixture.client.post(MUTATING, &config).await.status, 201);

    let maps = format!("/api/v1/namespaces/{}/configmaps", fixture.ns);
    let made = fixture.client.post(&maps, &json!({"metadata": {"name": "a"}, "data": {"given": "1"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["data"]["added"], "by the hook");
    assert_eq!(made.header_all("warning"), ["299 - \"changed\""]);
    let stored = fixture.client.get(&format!("{maps}/a")).await.json();
    assert_eq!(stored["data"]["added"], "by the hook");

    let refused = fixture.client.post(&maps, &json!({"metadata": {"name": "b"}, "data": {"bad": "1"}})).await;
    assert_eq!(refused.status, 418, "{}", refused.text());
    let message = r#"admission webhook "hook.example.com" denied the request: no bad ones"#;
    assert_eq!(refused.json()["message"], message);
    let reviews = hook.received();
    assert_eq!(reviews.len(), 2);
    assert_eq!(reviews[0]["request"]["userInfo"]["username"], "cluster-admin");
    assert_eq!(reviews[0]["request"]["operation"], "CREATE");

    // After the server of the webhook has ended, the requests that it should review are refused.
    hook.end().await;
    let failed = fixture.client.post(&maps, &json!({"metadata": {"name": "c"}})).await;
    assert_eq!(failed.status, 500, "{}", failed.text());
    assert!(failed.text().contains(r#"failed calling webhook \"hook.example.com\""#), "{}", failed.text());
    fixture.client.delete(&format!("{MUTATING}/{}", fixture.ns)).await;
    assert_eq!(fixture.client.post(&maps, &json!({"metadata": {"name": "c"}})).await.status, 201);
}

/// Returns a webhook for creations and updates.
fn webhook(name: &str, hook: &Hook, path: &str, more: Value) -> Value {
    let mut webhook = configuration("", "", hook, "")["webhooks"][0].clone();
    let members = webhook.as_object_mut().unwrap();
    members.insert("name".to_owned(), name.into());
    members.insert("clientConfig".to_owned(), json!({"url": hook.url(path), "caBundle": hook.ca_bundle()}));
    members["rules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
    members.remove("namespaceSelector");
    members.extend(more.as_object().unwrap().clone());
    webhook
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_not_reinvoked_after_a_patch_that_changes_nothing() {
    let fixture = Fixture::new("reinvoked").await;
    let patched = |review: &Value, patch: Value| {
        let patch = STANDARD.encode(patch.to_string());
        admitted(review, json!({"patchType": "JSONPatch", "patch": patch}))
    };
    // The first patch of a write is always a change. The last webhook sets a member to its present value, or
    // to another value.
    let changing = Hook::start(move |review: Value| {
        ready(patched(&review, json!([{"op": "add", "path": "/data/added", "value": "1"}])))
    });
    let changing = changing.await;
    let first = Hook::start(|review: Value| ready(admitted(&review, json!({})))).await;
    let last = Hook::start(move |review: Value| {
        let wish = &review["request"]["object"]["data"]["wish"];
        let value = if wish == "same" { "same" } else { "another" };
        ready(patched(&review, json!([{"op": "replace", "path": "/data/wish", "value": value}])))
    });
    let last = last.await;
    let selector = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": fixture.ns}}});
    let mut again = selector.clone();
    again["reinvocationPolicy"] = "IfNeeded".into();
    let config = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": fixture.ns},
        "webhooks": [
            webhook("changing.example.com", &changing, "/changing", selector.clone()),
            webhook("first.example.com", &first, "/first", again),
            webhook("last.example.com", &last, "/last", selector),
        ],
    });
    let made = fixture.client.post(MUTATING, &config).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let maps = format!("/api/v1/namespaces/{}/configmaps", fixture.ns);
    let mut before = [0; 3];
    for (wish, calls) in [("same", [1, 1, 1]), ("other", [1, 2, 1])] {
        let map = json!({"metadata": {"name": wish}, "data": {"wish": wish}});
        assert_eq!(fixture.client.post(&maps, &map).await.status, 201, "{wish}");
        let now = [&changing, &first, &last].map(|hook| hook.received().len());
        assert_eq!([0, 1, 2].map(|at| now[at] - before[at]), calls, "{wish}");
        before = now;
    }

    // For a PUT without a resource version, mutating webhooks get the object that the client sent.
    let maps_a = format!("{maps}/same");
    let body = json!({"metadata": {"name": "same"}, "data": {"wish": "same", "more": "1"}});
    assert_eq!(
        fixture
            .client
            .send("PUT", &maps_a, &[("content-type", "application/json")], body.to_string().as_bytes())
            .await
            .status,
        200
    );
    let seen = changing.received().pop().unwrap();
    assert_eq!(seen["request"]["operation"], "UPDATE");
    assert!(seen["request"]["object"]["metadata"].get("resourceVersion").is_none(), "{seen}");
    assert!(seen["request"]["oldObject"]["metadata"]["resourceVersion"].is_string(), "{seen}");
    fixture.client.delete(&format!("{MUTATING}/{}", fixture.ns)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_called_once_even_if_other_servers_write_meanwhile() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let (server, other) = (etcd.server(&[]).await, Arc::new(etcd.server(&[]).await));
    let client = server.client();
    let namespace = json!({"metadata": {"name": "asked"}});
    assert_eq!(client.post("/api/v1/namespaces", &namespace).await.status, 201);
    // A controller writes this object, and the webhook would review the write.
    client.until("/api/v1/namespaces/asked/configmaps/kube-root-ca.crt", |found| found.is_some()).await;
    // The webhook causes another write before it responds, so the server lags behind etcd when it gets the
    // response.
    let answer = move |review: Value| {
        let other = other.clone();
        async move {
            let map = json!({"metadata": {"generateName": "meanwhile-"}});
            let written = other.client().another().post("/api/v1/namespaces/default/configmaps", &map).await;
            assert_eq!(written.status, 201, "{}", written.text());
            let data = &review["request"]["object"]["data"];
            let patch = STANDARD.encode(r#"[{"op":"add","path":"/data/not a key","value":"1"}]"#);
            let members = match data.get("odd") {
                Some(_) => json!({"patchType": "JSONPatch", "patch": patch}),
                None => json!({"allowed": data.get("bad").is_none()}),
            };
            admitted(&review, members)
        }
    };
    let hook = Hook::start(answer).await;
    let mut config = configuration("ValidatingWebhookConfiguration", "asked", &hook, "asked");
    config["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
    assert_eq!(client.post(VALIDATING, &config).await.status, 201);
    let maps = "/api/v1/namespaces/asked/configmaps";
    let map = |name: &str, member: &str| json!({"metadata": {"name": name}, "data": {member: "1"}});
    assert_eq!(client.post(maps, &map("good", "a")).await.status, 201);
    assert_eq!(client.post(maps, &map("refused", "bad")).await.status, 400);
    assert_eq!(client.put(&format!("{maps}/good"), &map("good", "bad")).await.status, 400);
    // The store also decides whether a write is a no-op.
    assert_eq!(client.put(&format!("{maps}/good"), &map("good", "a")).await.status, 200);
    assert_eq!(hook.received().len(), 4);
    // If the patch of a webhook makes the object invalid, the server refuses it without calling the webhook again.
    assert_eq!(client.delete(&format!("{VALIDATING}/asked")).await.status, 200);
    let config = configuration("MutatingWebhookConfiguration", "asked", &hook, "asked");
    assert_eq!(client.post(MUTATING, &config).await.status, 201);
    let refused = client.post(maps, &map("odd", "odd")).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(hook.received().len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_webhook_share_a_connection() {
    let fixture = Fixture::new("shared").await;
    let hook = Hook::start(|review: Value| ready(admitted(&review, json!({})))).await;
    let config = configuration("ValidatingWebhookConfiguration", &fixture.ns, &hook, &fixture.ns);
    assert_eq!(fixture.client.post(VALIDATING, &config).await.status, 201);
    let maps = format!("/api/v1/namespaces/{}/configmaps", fixture.ns);
    let (client, maps) = (&fixture.client, &maps);
    let make = |name: String| async move {
        let made = client.post(maps, &json!({"metadata": {"name": name}})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    };
    make("first".to_owned()).await;
    assert_eq!(hook.connections(), 1);
    futures_util::future::join_all((0..50).map(|at| make(format!("c{at}")))).await;
    assert_eq!((hook.received().len(), hook.connections()), (51, 1), "the calls share a connection");
    fixture.client.delete(&format!("{VALIDATING}/{}", fixture.ns)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delete_of_an_object_with_finalizers_is_admitted() {
    let fixture = Fixture::new("deleted").await;
    let hook = Hook::start(|review: Value| ready(admitted(&review, json!({})))).await;
    let mut config = configuration("ValidatingWebhookConfiguration", &fixture.ns, &hook, &fixture.ns);
    config["webhooks"][0]["rules"][0]["operations"] = json!(["DELETE"]);
    assert_eq!(fixture.client.post(VALIDATING, &config).await.status, 201);
    let maps = format!("/api/v1/namespaces/{}/configmaps", fixture.ns);
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    assert_eq!(fixture.client.post(&maps, &held).await.status, 201);
    let mut versions = Vec::new();
    for _ in 0..2 {
        let deleted = fixture.client.delete(&format!("{maps}/held")).await.json();
        assert!(deleted["metadata"]["deletionTimestamp"].is_string(), "{deleted}");
        versions.push(deleted["metadata"]["resourceVersion"].clone());
    }
    assert_eq!(versions[0], versions[1], "the second delete writes nothing");
    let operations: Vec<Value> =
        hook.received().iter().map(|review| review["request"]["operation"].clone()).collect();
    assert_eq!(operations, ["DELETE", "DELETE"]);
    fixture.client.delete(&format!("{VALIDATING}/{}", fixture.ns)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_without_a_free_seat_in_their_level_are_refused() {
    let server = Server::start(Options {
        flags: vec![
            "--token-auth-file=$dir/tokens.csv".to_owned(),
            "--authorization-mode=AlwaysAllow".to_owned(),
        ],
        files: vec![("tokens.csv", "alice-token,alice,1\n".to_owned())],
        ..Options::default()
    })
    .await;
    let ns = "default";
    let may_answer = Arc::new(Notify::new());
    let hook = Hook::start({
        let may_answer = may_answer.clone();
        move |review: Value| {
            let may_answer = may_answer.clone();
            async move {
                may_answer.notified().await;
                admitted(&review, json!({}))
            }
        }
    })
    .await;
    let flow_control = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "narrow"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
        }},
    });
    let made = server.client().post(&format!("{flow_control}/prioritylevelconfigurations"), &level).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "alice"},
        "spec": {
            "priorityLevelConfiguration": {"name": "narrow"},
            "matchingPrecedence": 50,
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "alice"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}],
            }],
        },
    });
    let made = server.client().post(&format!("{flow_control}/flowschemas"), &schema).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let is_found = |object: Option<&Value>| {
        object.is_some_and(|object| object["status"]["conditions"][0]["status"] == "False")
    };
    let path = format!("{flow_control}/flowschemas/alice");
    let found = server.client().until(&path, is_found).await.expect("the condition is written");
    assert_eq!(found["status"]["conditions"][0]["reason"], "Found");
    let config = configuration("ValidatingWebhookConfiguration", "slow", &hook, ns);
    assert_eq!(server.client().post(VALIDATING, &config).await.status, 201);

    let maps = format!("/api/v1/namespaces/{ns}/configmaps");
    let alice = server.client().with_token("alice-token");
    let slow = tokio::spawn({
        let (alice, maps) = (alice.another(), maps.clone());
        async move { alice.post(&maps, &json!({"metadata": {"name": "slow"}})).await.status }
    });
    let began = Instant::now();
    loop {
        let table = server.client().get("/debug/api_priority_and_fairness/dump_priority_levels").await.text();
        let row = table.lines().find(|line| line.starts_with("narrow,")).unwrap_or_default();
        if row.split_whitespace().nth(5) == Some("1,") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the slow request is not seen in {table}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = alice.another().get(&maps).await;
    assert_eq!(
        (refused.status, refused.text().as_str()),
        (429, "Too many requests, please try again later.\n")
    );
    assert_eq!(refused.header_all("retry-after"), ["1"]);
    assert_eq!(
        refused.header_all("x-kubernetes-pf-flowschema-uid"),
        [found["metadata"]["uid"].as_str().unwrap()]
    );
    // Requests of other users are not delayed, and alice may continue once her request has ended.
    assert_eq!(server.client().get(&maps).await.status, 200);
    may_answer.notify_one();
    assert_eq!(slow.await.unwrap(), 201);
    assert_eq!(alice.another().get(&maps).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_without_a_ca_bundle_are_verified_against_the_system_authorities() {
    let group = "trusted.example.com";
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"), "resources": [
        {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list"]},
    ]});
    let extension = Hook::named("ext.default.svc", move |_| ready(list.clone())).await;
    let hook = Hook::start(|review: Value| {
        let request = &review["request"];
        let converted = |object: &Value| {
            let mut object = object.clone();
            object["apiVersion"] = request["desiredAPIVersion"].clone();
            object
        };
        ready(match request["objects"].as_array() {
            Some(objects) => {
                json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
                    "uid": request["uid"], "result": {"status": "Success"},
                    "convertedObjects": objects.iter().map(converted).collect::<Vec<_>>(),
                }})
            }
            None => admitted(&review, json!({})),
        })
    })
    .await;
    for (file, is_believed) in [("$dir/authorities.pem", true), ("$dir/none.pem", false)] {
        let server = Server::start(Options {
            files: vec![("authorities.pem", format!("{}{}", hook.certificate, extension.certificate))],
            environment: vec![("SSL_CERT_FILE", file.to_owned())],
            ..Options::default()
        })
        .await;
        let client = server.client();
        let make = async |path: &str, object: Value| {
            let made = client.post(path, &object).await;
            assert_eq!(made.status, 201, "{}", made.text());
        };
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": open}});
        let definition = json!({
            "metadata": {"name": "texts.converted.example.com"},
            "spec": {
                "group": "converted.example.com",
                "scope": "Namespaced",
                "names": {"plural": "texts", "kind": "Text"},
                "versions": [version("v1"), version("v2")],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {"url": hook.url("/convert")},
                }},
            },
        });
        make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
        let texts = |version: &str| format!("/apis/converted.example.com/{version}/namespaces/default/texts");
        assert!(client.until(&texts("v2"), |list| list.is_some()).await.is_some(), "the type is not served");
        let text =
            json!({"apiVersion": "converted.example.com/v1", "kind": "Text", "metadata": {"name": "t"}});
        make(&texts("v1"), text).await;
        let found = client.get(&format!("{}/t", texts("v2"))).await;
        assert_eq!(found.status, if is_believed { 200 } else { 500 }, "{}", found.text());

        let service = json!({"metadata": {"name": "ext"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
        make("/api/v1/namespaces/default/services", service).await;
        let api_service = json!({
            "metadata": {"name": format!("v1.{group}")},
            "spec": {
                "group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
                "service": {"namespace": "default", "name": "ext", "port": extension.port()},
            },
        });
        make("/apis/apiregistration.k8s.io/v1/apiservices", api_service).await;
        let reason = if is_believed { "Passed" } else { "FailedDiscoveryCheck" };
        let has = |object: Option<&Value>| {
            object.is_some_and(|object| object["status"]["conditions"][0]["reason"] == reason)
        };
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/v1.{group}");
        assert!(client.until(&path, has).await.is_some(), "no condition with the reason {reason}");

        let mut config = configuration("ValidatingWebhookConfiguration", "trusted", &hook, "default");
        config["webhooks"][0]["clientConfig"].as_object_mut().unwrap().remove("caBundle");
        make(VALIDATING, config).await;
        let map =
            client.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "m"}})).await;
        assert_eq!(map.status, if is_believed { 201 } else { 500 }, "{}", map.text());
    }
}

/// Creates a config map whose name is also the audit id of the request, and returns the status code.
async fn create_audited(client: &Client, name: &str) -> u16 {
    let headers = [("audit-id", name), ("content-type", "application/json")];
    let map = json!({"metadata": {"name": name}}).to_string();
    client.send("POST", "/api/v1/namespaces/default/configmaps", &headers, map.as_bytes()).await.status
}

/// Creates config maps until the server refuses one in less time than slow requests take, and returns its name.
async fn fast_denied(client: &Client) -> String {
    let began = Instant::now();
    for n in 0_u32.. {
        let (name, sent) = (format!("denied-{n}"), Instant::now());
        assert_eq!(create_audited(client, &name).await, 418);
        if sent.elapsed() < Duration::from_millis(500) {
            return name;
        }
        assert!(began.elapsed() < PATIENCE, "each request is slow");
    }
    unreachable!("the numbers do not end before the time")
}

/// Waits until the audit log has the event of a request, which follows the response, and returns all events.
async fn events_until(server: &Server, id: &str) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(server.data_dir().join("audit.log")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let events: Vec<Value> = lines.collect();
        if events.iter().any(|event| event["auditID"] == *id) {
            return events;
        }
        assert!(began.elapsed() < PATIENCE, "no event of {id} in {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_failures_and_latency_of_webhooks_are_logged_and_audited() {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
                  rules: [{level: Metadata, resources: [{group: '', resources: [configmaps]}]}]\n";
    let server = Server::start(Options {
        files: vec![("policy", policy.to_owned())],
        flags: ["--audit-policy-file=$dir/policy", "--audit-log-path=$dir/audit.log", "--controllers="]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    })
    .await;
    let hook = Hook::start(|review: Value| async move {
        match review["request"]["name"].as_str().unwrap_or_default() {
            name if name.starts_with("denied") => admitted(
                &review,
                json!({"allowed": false, "status": {"message": "not this one", "code": 418}}),
            ),
            "slow" => {
                tokio::time::sleep(Duration::from_millis(600)).await;
                admitted(&review, json!({}))
            }
            _ => json!({"nonsense": true}),
        }
    })
    .await;
    for (path, kind, policy) in [
        (VALIDATING, "ValidatingWebhookConfiguration", "Fail"),
        (MUTATING, "MutatingWebhookConfiguration", "Ignore"),
    ] {
        let mut config = configuration(kind, "told", &hook, "default");
        config["webhooks"][0]["failurePolicy"] = policy.into();
        config["webhooks"][0]["name"] = format!("{}.example.com", policy.to_lowercase()).into();
        assert_eq!(server.client().post(path, &config).await.status, 201);
    }
    let post = |name: &'static str| create_audited(server.client(), name);
    assert_eq!((post("denied").await, post("broken").await, post("slow").await), (418, 500, 201));
    let began = Instant::now();
    let fast = fast_denied(server.client()).await;
    let expected: [(&str, &str, &[&str]); 5] = [
        (
            "denied",
            "webhook denied the request",
            &[
                "webhook=\"ignore.example.com\"",
                "not this one",
                "latency_ms=",
                "code=418",
                "operation=\"CREATE\"",
            ],
        ),
        ("broken", "failing open", &["webhook=\"ignore.example.com\"", "reason=", "latency_ms="]),
        (
            "broken",
            "failing closed",
            &["webhook=\"fail.example.com\"", "resource=\"configmaps\"", "name=\"broken\""],
        ),
        (
            "slow",
            "slow request",
            &["fail.example.com ", "ignore.example.com ", "validating webhooks ", "layers="],
        ),
        ("slow", "slow request", &["status=201"]),
    ];
    for (id, text, parts) in expected {
        let is_it = |line: &&str| {
            (line.contains(&format!("audit_id=\"{id}\"")) || line.contains(&format!("audit_id={id} ")))
                && line.contains(text)
        };
        let line = loop {
            let log = server.log();
            if let Some(line) = log.lines().find(is_it) {
                break line.to_owned();
            }
            assert!(began.elapsed() < PATIENCE, "{id}: {text}: {log}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        for part in parts {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
    let events = events_until(&server, &fast).await;
    let event = |id: &str| events.iter().find(|event| event["auditID"] == id).unwrap();
    let annotations = event("slow")["annotations"].as_object().unwrap();
    for layer in [
        "total",
        "etcd",
        "mutating-webhook",
        "validating-webhook",
        "response-write",
        "authentication",
        "authorization",
    ] {
        let took = annotations.get(&format!("apiserver.latency.k8s.io/{layer}")).and_then(Value::as_str);
        assert!(took.is_some_and(|took| took.ends_with('s')), "{layer}: {annotations:?}");
    }
    let is_latency = |key: &String| key.starts_with("apiserver.latency.k8s.io/");
    assert!(!event(&fast)["annotations"].as_object().unwrap().keys().any(is_latency));
}
