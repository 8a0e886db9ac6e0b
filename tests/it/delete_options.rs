//! Tests of the effect of every delete option on an object, and of dry runs, which have no effect (docs/api/delete.md,
//! #two-phases, #deletion-answers, docs/api/paths-and-verbs.md#options).

use serde_json::{Value, json};

use crate::fixture::{Fixture, outcome, report};

/// A row: collection, finalizers before, query, body, code, finalizers after.
type Policy<'r> = (&'r str, &'r [&'r str], &'r str, &'r str, u16, &'r [&'r str]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_options_in_query_and_body_select_the_same_finalizers() {
    let fixture = Fixture::new("policy").await;
    let maps = "$core/configmaps";
    let controllers = "$core/replicationcontrollers";
    let jobs = "$batch/jobs";
    let rows: &[Policy] = &[
        (maps, &[], "", "", 200, &[]),
        (maps, &[], "propagationPolicy=Background", "", 200, &[]),
        (maps, &[], "propagationPolicy=Orphan", "", 200, &["orphan"]),
        (maps, &[], "propagationPolicy=Foreground", "", 200, &["foregroundDeletion"]),
        (maps, &[], "orphanDependents=true", "", 200, &["orphan"]),
        // Here the option `false` has no effect: the object is removed.
        (maps, &[], "orphanDependents=false", "", 200, &[]),
        (maps, &["example.com/a", "orphan"], "", "", 200, &["example.com/a", "orphan"]),
        (maps, &["orphan", "example.com/a"], "propagationPolicy=Background", "", 200, &["example.com/a"]),
        (
            maps,
            &["orphan", "example.com/a"],
            "propagationPolicy=Foreground",
            "",
            200,
            &["example.com/a", "foregroundDeletion"],
        ),
        (
            maps,
            &["foregroundDeletion", "example.com/a"],
            "orphanDependents=true",
            "",
            200,
            &["example.com/a", "orphan"],
        ),
        (maps, &["example.com/a", "orphan"], "orphanDependents=false", "", 202, &["example.com/a"]),
        (
            maps,
            &["example.com/a"],
            "",
            r#"{"propagationPolicy":"Foreground"}"#,
            200,
            &["example.com/a", "foregroundDeletion"],
        ),
        (maps, &["example.com/a"], "", r#"{"orphanDependents":true}"#, 200, &["example.com/a", "orphan"]),
        (maps, &["example.com/a"], "", r#"{"orphanDependents":false}"#, 202, &["example.com/a"]),
        // If the request has a body, even an empty object, the server ignores the options in the query.
        (maps, &["example.com/a"], "propagationPolicy=Orphan", "{}", 200, &["example.com/a"]),
        // For two kinds the default propagation policy is Orphan.
        (controllers, &["example.com/a"], "", "", 200, &["example.com/a", "orphan"]),
        (controllers, &["example.com/a"], "propagationPolicy=Background", "", 200, &["example.com/a"]),
        (controllers, &["example.com/a"], "orphanDependents=false", "", 202, &["example.com/a"]),
        (jobs, &["example.com/a"], "", "{}", 200, &["example.com/a", "orphan"]),
        (
            jobs,
            &["example.com/a"],
            "",
            r#"{"propagationPolicy":"Foreground"}"#,
            200,
            &["example.com/a", "foregroundDeletion"],
        ),
    ];
    let mut wrong = Vec::new();
    for (at, (collection, before, query, body, code, after)) in rows.iter().enumerate() {
        let mut object = json!({"metadata": {"name": format!("o-{at}"), "finalizers": before}});
        let template = |policy: &str| {
            json!({"metadata": {"labels": {"a": "b"}},
                "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}})
        };
        match *collection {
            c if c == controllers => object["spec"] = json!({"template": template("Always")}),
            c if c == jobs => object["spec"] = json!({"template": template("Never")}),
            _ => {}
        }
        fixture.make(collection, &[object]).await;
        let reply = fixture.send(&format!("DELETE {collection}/o-{at}?{query}"), body).await;
        let left = reply.json()["metadata"]["finalizers"].clone();
        let left = if left.is_null() { json!([]) } else { left };
        let is_status = reply.json()["kind"] == "Status";
        if reply.status != *code || left != json!(after) || is_status != after.is_empty() {
            wrong.push(format!(
                "{collection} {before:?} ?{query} {body}\n  want {code} {after:?}\n  got  {} {left}",
                outcome(&reply)
            ));
        }
        // A repeated delete has no effect.
        if !after.is_empty() {
            let path = format!("{collection}/o-{at}");
            fixture.send(&format!("PATCH {path}"), r#"{"metadata":{"finalizers":null}}"#).await;
        }
    }
    report(&wrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_collection_applies_the_same_options_to_each_object() {
    let fixture = Fixture::new("many").await;
    let held = |name: &str| json!({"metadata": {"name": name, "labels": {"a": "b"}, "finalizers": ["example.com/hold"]}});
    fixture.make("$core/secrets", &[held("a"), held("b"), held("c")]).await;
    let uid = fixture.get("$core/secrets/a").await["metadata"]["uid"].as_str().unwrap().to_owned();
    // The precondition holds only for the first object, so the request ends at the second object.
    let options = format!(r#"{{"preconditions":{{"uid":"{uid}"}},"propagationPolicy":"Foreground"}}"#);
    let reply = fixture.send("DELETE $core/secrets?labelSelector=a%3Db", &options).await;
    assert_eq!(reply.status, 409, "{}", outcome(&reply));
    let marked = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    assert!(marked(&fixture.get("$core/secrets/a").await));
    assert!(!marked(&fixture.get("$core/secrets/b").await));
    // The collection is deleted in chunks: each request deletes one chunk and returns a continue token.
    let first = fixture
        .send("DELETE $core/secrets?labelSelector=a%3Db&limit=2", r#"{"orphanDependents":false}"#)
        .await
        .json();
    assert_eq!(crate::fixture::names(&first), ["a", "b"]);
    let token = crate::fixture::escape(first["metadata"]["continue"].as_str().expect("another page exists"));
    let rest = fixture
        .send(&format!("DELETE $core/secrets?labelSelector=a%3Db&limit=2&continue={token}"), "")
        .await
        .json();
    assert_eq!(crate::fixture::names(&rest), ["c"]);
    for name in ["a", "b", "c"] {
        let path = format!("$core/secrets/{name}");
        assert!(marked(&fixture.get(&path).await), "{name}");
        let last = fixture.send(&format!("PATCH {path}"), r#"{"metadata":{"finalizers":null}}"#).await;
        assert_eq!(last.status, 200, "{}", last.text());
    }
    assert_eq!(fixture.get("$core/secrets").await["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_of_any_write_stores_nothing() {
    let fixture = Fixture::new("dry").await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    fixture.make("$apps/deployments", &[json!({"metadata": {"name": "d"}, "spec": spec})]).await;
    fixture.make("$core/pods", &[json!({"metadata": {"name": "p"}, "spec": template["spec"]})]).await;
    fixture.make("$core/serviceaccounts", &[json!({"metadata": {"name": "s"}})]).await;
    fixture
        .make("$core/services", &[json!({"metadata": {"name": "v"}, "spec": {"ports": [{"port": 80}]}})])
        .await;
    let watched = [
        "$apps/deployments/d",
        "$core/pods/p",
        "$core/serviceaccounts/s",
        "$core/services/v",
        "/api/v1/namespaces/$ns",
    ];
    let state = async || {
        let mut objects = Vec::new();
        for path in watched {
            objects.push(fixture.get(path).await);
        }
        objects
    };
    let before = state().await;
    let json_patch = "Content-Type: application/json-patch+json";
    let strategic = "Content-Type: application/strategic-merge-patch+json";
    let apply = "Content-Type: application/apply-patch+yaml";
    let deployment = json!({"metadata": {"name": "d"}, "spec": spec})
        .to_string()
        .replace("\"replicas\":1", "\"replicas\":4");
    let rows: &[(&str, &str, &str, &str)] = &[
        ("POST $apps/deployments?", "", &deployment.replace("\"d\"", "\"e\""), "201 Deployment"),
        (
            "POST $core/services?",
            "",
            r#"{"metadata":{"name":"w"},"spec":{"type":"NodePort","ports":[{"port":80}]}}"#,
            "201 Service",
        ),
        ("PUT $apps/deployments/d?", "", &deployment, "200 Deployment"),
        ("PATCH $apps/deployments/d?", "", r#"{"spec":{"replicas":4}}"#, "200 Deployment"),
        (
            "PATCH $apps/deployments/d?",
            json_patch,
            r#"[{"op":"replace","path":"/spec/replicas","value":4}]"#,
            "200 Deployment",
        ),
        ("PATCH $apps/deployments/d?", strategic, r#"{"spec":{"replicas":4}}"#, "200 Deployment"),
        (
            "PATCH $apps/deployments/d?fieldManager=m&force=true&",
            apply,
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":4}}"#,
            "200 Deployment",
        ),
        (
            "PATCH $core/configmaps/new?fieldManager=m&",
            apply,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}"#,
            "201 ConfigMap",
        ),
        (
            "PUT $apps/deployments/d/status?",
            "",
            r#"{"metadata":{"name":"d"},"status":{"replicas":1}}"#,
            "200 Deployment",
        ),
        ("PATCH $apps/deployments/d/status?", "", r#"{"status":{"replicas":1}}"#, "200 Deployment"),
        (
            "PATCH $apps/deployments/d/status?fieldManager=m&",
            apply,
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"status":{"replicas":1}}"#,
            "200 Deployment",
        ),
        (
            "PUT $apps/deployments/d/scale?",
            "",
            r#"{"metadata":{"name":"d"},"spec":{"replicas":4}}"#,
            "200 Scale",
        ),
        ("PATCH $apps/deployments/d/scale?", "", r#"{"spec":{"replicas":4}}"#, "200 Scale"),
        (
            "PATCH $core/pods/p/ephemeralcontainers?",
            "",
            r#"{"spec":{"ephemeralContainers":[{"name":"d","image":"e"}]}}"#,
            "200 Pod",
        ),
        ("PATCH $core/pods/p/status?", "", r#"{"status":{"phase":"Running"}}"#, "200 Pod"),
        (
            "POST $core/pods/p/binding?",
            "",
            r#"{"metadata":{"name":"p"},"target":{"name":"n"}}"#,
            "201 Success",
        ),
        (
            "POST $core/pods/p/eviction?",
            "",
            r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}"#,
            "201 Success",
        ),
        (
            "PUT /api/v1/namespaces/$ns/finalize?",
            "",
            r#"{"metadata":{"name":"$ns"},"spec":{"finalizers":["example.com/x"]}}"#,
            "200 Namespace",
        ),
        ("DELETE $core/serviceaccounts/s?", "", "", "200 ServiceAccount"),
        ("DELETE $core/services/v?", "", "", "200 Service"),
        ("DELETE $apps/deployments/d?propagationPolicy=Foreground&", "", "", "200 Deployment"),
        ("DELETE $core/pods/p?", "", "", "200 Pod"),
        ("DELETE $core/pods?", "", "", "200 PodList"),
        ("DELETE $apps/deployments?labelSelector=!x&", "", "", "200 DeploymentList"),
        ("DELETE /api/v1/namespaces/$ns?", "", "", "200 Namespace"),
    ];
    let mut wrong = Vec::new();
    for (request, header, body, expected) in rows {
        let header = if header.is_empty() { String::new() } else { format!(" | {header}") };
        let request = format!("{request}dryRun=All{header}");
        let got = outcome(&fixture.send(&request, body).await);
        if got != *expected {
            wrong.push(format!("{request} {body}\n  want {expected}\n  got  {got}"));
        }
        if state().await != before {
            wrong.push(format!("{request} {body} changed something"));
        }
    }
    for path in ["$apps/deployments/e", "$core/services/w", "$core/configmaps/new"] {
        let got = fixture.send(&format!("GET {path}"), "").await.status;
        if got != 404 {
            wrong.push(format!("{path} is there"));
        }
    }
    report(&wrong);
}
