//! The garbage collector and propagation policies of deletions (docs/api/delete.md,
//! docs/api/controllers.md#garbage-collector).

use serde_json::{Value, json};
use tests::{Client, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates a config map with owners and returns its uid. An owner is the name of a config map; `name!` sets
/// `blockOwnerDeletion`. The uid of an owner that does not exist is `gone`.
async fn make(client: &Client, name: &str, owners: &[&str]) -> String {
    make_in(client, MAPS, name, owners).await
}

async fn make_in(client: &Client, maps: &str, name: &str, owners: &[&str]) -> String {
    let mut references = Vec::new();
    for owner in owners {
        let owner_name = owner.trim_end_matches('!');
        let found = client.get(&format!("{maps}/{owner_name}")).await.json();
        let uid = found["metadata"]["uid"].as_str().unwrap_or("gone").to_owned();
        references.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner_name, "uid": uid,
            "blockOwnerDeletion": owner.ends_with('!'),
        }));
    }
    let created =
        client.post(maps, &json!({"metadata": {"name": name, "ownerReferences": references}})).await;
    assert_eq!(created.status, 201, "{}", created.text());
    created.json()["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn until_gone(client: &Client, name: &str) {
    client.until_gone(&format!("{MAPS}/{name}")).await;
}

fn owners(object: &Value) -> Vec<String> {
    let references = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    references.iter().map(|owner| owner["name"].as_str().unwrap().to_owned()).collect()
}

async fn delete(client: &Client, name: &str, policy: &str) -> Value {
    let deleted = client.delete(&format!("{MAPS}/{name}?propagationPolicy={policy}")).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    deleted.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_are_deleted_after_their_last_owner() {
    let server = Server::start_upstream().await;
    let client = server.client();
    make(client, "owner", &[]).await;
    make(client, "other", &[]).await;
    make(client, "child", &["owner"]).await;
    make(client, "grandchild", &["child"]).await;
    make(client, "shared", &["owner", "other"]).await;
    make(client, "free", &[]).await;
    // With background deletion, the owner is removed at once and its dependents follow.
    let answer = delete(client, "owner", "Background").await;
    assert_eq!(answer["status"], "Success");
    until_gone(client, "child").await;
    until_gone(client, "grandchild").await;
    client.until(&format!("{MAPS}/shared"), |object| owners(object.unwrap()) == ["other"]).await;
    assert_eq!(client.delete(&format!("{MAPS}/other")).await.status, 200);
    until_gone(client, "shared").await;
    assert_eq!(client.get(&format!("{MAPS}/free")).await.status, 200);
    // An object is also deleted if it is created with an absent owner, or with the wrong uid of its owner.
    make(client, "late", &["owner"]).await;
    until_gone(client, "late").await;
    let first = make(client, "owner", &[]).await;
    client.delete(&format!("{MAPS}/owner")).await;
    let second = make(client, "owner", &[]).await;
    assert_ne!(first, second);
    let child = json!({"metadata": {"name": "of-first", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": first}
    ]}});
    assert_eq!(client.post(MAPS, &child).await.status, 201);
    until_gone(client, "of-first").await;
    assert_eq!(client.get(&format!("{MAPS}/owner")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreground_deletion_deletes_the_owner_last() {
    let server = Server::start_upstream().await;
    let client = server.client();
    make(client, "owner", &[]).await;
    make(client, "child", &["owner!"]).await;
    make(client, "grandchild", &["child!"]).await;
    make(client, "loose", &["owner"]).await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    for name in ["grandchild", "loose"] {
        client.patch(&format!("{MAPS}/{name}"), "merge", &hold).await;
    }
    let answer = delete(client, "owner", "Foreground").await;
    assert_eq!(answer["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(answer["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(answer["metadata"]["deletionGracePeriodSeconds"], 0);
    // All dependents are deleted, each after its own dependents; a dependent without blockOwnerDeletion does
    // not delay the owner.
    for name in ["child", "grandchild", "loose"] {
        client
            .until(&format!("{MAPS}/{name}"), |object| {
                object.unwrap()["metadata"]["deletionTimestamp"].is_string()
            })
            .await;
    }
    let child = client.get(&format!("{MAPS}/child")).await.json();
    assert_eq!(child["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(client.get(&format!("{MAPS}/owner")).await.status, 200);
    let release = json!({"metadata": {"finalizers": null}});
    client.patch(&format!("{MAPS}/grandchild"), "merge", &release).await;
    for name in ["grandchild", "child", "owner"] {
        until_gone(client, name).await;
    }
    client.patch(&format!("{MAPS}/loose"), "merge", &release).await;
    until_gone(client, "loose").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_lose_their_owner_reference_and_remain() {
    let server = Server::start_upstream().await;
    let client = server.client();
    make(client, "owner", &[]).await;
    make(client, "other", &[]).await;
    make(client, "child", &["owner!"]).await;
    make(client, "shared", &["owner", "other"]).await;
    let answer = delete(client, "owner", "Orphan").await;
    assert_eq!(answer["metadata"]["finalizers"], json!(["orphan"]));
    until_gone(client, "owner").await;
    for (name, left) in [("child", vec![]), ("shared", vec!["other"])] {
        assert_eq!(owners(&client.get(&format!("{MAPS}/{name}")).await.json()), left, "{name}");
    }
    // Without options, the object's own finalizers decide (docs/api/delete.md#finalizers-of-a-deletion).
    let mut own = json!({"metadata": {"name": "owner", "finalizers": ["orphan"]}});
    client.post(MAPS, &own).await;
    make(client, "child-2", &["owner"]).await;
    client.delete(&format!("{MAPS}/owner")).await;
    until_gone(client, "owner").await;
    assert!(owners(&client.get(&format!("{MAPS}/child-2")).await.json()).is_empty());
    // Options take precedence over these finalizers.
    own["metadata"]["finalizers"] = json!(["orphan", "foregroundDeletion"]);
    let refused = client.post(MAPS, &own).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    own["metadata"]["finalizers"] = json!(["orphan"]);
    client.post(MAPS, &own).await;
    make(client, "child-3", &["owner"]).await;
    delete(client, "owner", "Background").await;
    until_gone(client, "child-3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_objects_that_own_each_other_are_deleted() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let a = make(client, "a", &[]).await;
    make(client, "b", &["a!"]).await;
    let b = client.get(&format!("{MAPS}/b")).await.json()["metadata"]["uid"].clone();
    let reference = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": b, "blockOwnerDeletion": true}
    ]}});
    assert_eq!(client.patch(&format!("{MAPS}/a"), "merge", &reference).await.status, 200, "{a}");
    delete(client, "a", "Foreground").await;
    until_gone(client, "a").await;
    until_gone(client, "b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_looked_up_only_in_the_namespace_of_the_dependent_or_cluster_wide() {
    let server = Server::start_upstream().await;
    let client = server.client();
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).await;
    let uid = make_in(client, "/api/v1/namespaces/other/configmaps", "owner", &[]).await;
    let reference = |kind: &str, version: &str| json!([{"apiVersion": version, "kind": kind, "name": "owner", "uid": uid}]);
    // A namespaced owner in another namespace counts as absent, and is reported.
    let stray = json!({"metadata": {"name": "stray", "ownerReferences": reference("ConfigMap", "v1")}});
    assert_eq!(client.post(MAPS, &stray).await.status, 201);
    until_gone(client, "stray").await;
    let is_reported = |list: Option<&Value>| list.is_some_and(|list| !list["items"][0].is_null());
    let events = client.until("/api/v1/namespaces/default/events", is_reported).await.unwrap();
    let said: Vec<_> = events["items"].as_array().unwrap().iter().collect();
    let [event] = said[..] else { panic!("{events}") };
    assert_eq!(event["reason"], "OwnerRefInvalidNamespace");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["involvedObject"]["name"], "stray");
    let message = format!(
        "ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {uid}] does not exist in namespace \"default\""
    );
    assert_eq!(event["message"], message);
    // The collector deletes neither a cluster-scoped object with a namespaced owner nor an object whose owner has an
    // unknown kind, because it cannot look up these owners.
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"metadata": {"name": "kept", "ownerReferences": reference("ConfigMap", "v1")}});
    assert_eq!(client.post(roles, &role).await.status, 201);
    let unknown =
        json!({"metadata": {"name": "kept", "ownerReferences": reference("Widget", "example.com/v1")}});
    assert_eq!(client.post(MAPS, &unknown).await.status, 201);
    // A single task processes the events in order. When a later dependent is gone, the events of the objects above were
    // processed.
    make(client, "later", &["absent"]).await;
    until_gone(client, "later").await;
    assert_eq!(client.get(&format!("{roles}/kept")).await.status, 200);
    assert_eq!(client.get(&format!("{MAPS}/kept")).await.status, 200);
    // Dependents in every namespace can have the same cluster-scoped owner.
    let role_uid = client.get(&format!("{roles}/kept")).await.json()["metadata"]["uid"].clone();
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": [{
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "kept", "uid": role_uid,
    }]}});
    assert_eq!(client.post(MAPS, &owned).await.status, 201);
    client.delete(&format!("{roles}/kept")).await;
    until_gone(client, "owned").await;
}

/// Creates `count` dependents of `owner`, several at a time.
async fn make_many(client: &Client, owner: &str, uid: &str, count: usize) {
    const WRITERS: usize = 32;
    let writers = (0..WRITERS).map(|writer| {
        let (client, owner, uid) = (client.another(), owner.to_owned(), uid.to_owned());
        tokio::spawn(async move {
            for at in (writer..count).step_by(WRITERS) {
                let object = json!({"metadata": {"name": format!("{owner}-{at}"), "labels": {"of": owner},
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": true}
                    ]}});
                assert_eq!(client.post(MAPS, &object).await.status, 201);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

async fn until_none_left(client: &Client, owner: &str) {
    let list = format!("{MAPS}?labelSelector=of%3D{owner}&limit=1");
    client.until(&list, |list| list.unwrap()["items"].as_array().unwrap().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_dependents_are_deleted_even_if_the_server_is_killed_meanwhile() {
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    let uid = make(&client, "big", &[]).await;
    make_many(&client, "big", &uid, 10_000).await;
    let begun = std::time::Instant::now();
    delete(&client, "big", "Background").await;
    until_none_left(&client, "big").await;
    eprintln!("10000 dependents went in {:?}", begun.elapsed());

    let uid = make(&client, "cut", &[]).await;
    make_many(&client, "cut", &uid, 2000).await;
    delete(&client, "cut", "Foreground").await;
    // A missing dependent shows that the collector has started.
    let list = format!("{MAPS}?labelSelector=of%3Dcut&limit=1");
    client
        .until(&list, |list| {
            let left = list.unwrap()["metadata"]["remainingItemCount"].as_u64();
            left.is_none_or(|left| left < 1999)
        })
        .await;
    server.kill();
    server.restart().await;
    let client = server.client();
    until_gone(client, "cut").await;
    until_none_left(client, "cut").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grace_period_of_a_running_pod_can_only_be_shortened() {
    // See docs/api/delete.md#grace-periods and docs/api/validation.md#pods.
    let server = Server::start_upstream().await;
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: &str| {
        json!({"metadata": {"name": name}, "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "c", "image": "i"}]}})
    };
    assert_eq!(client.post(pods, &pod("running", "n")).await.status, 201);
    let delete = async |query: &str| {
        let reply = client.delete(&format!("{pods}/running{query}")).await;
        assert_eq!(reply.status, 200, "{query}: {}", reply.text());
        reply.json()
    };
    let first = delete("").await;
    assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(first["metadata"]["generation"], 2);
    // While a deletion is pending, a longer period or another policy has no effect.
    for query in ["", "?gracePeriodSeconds=60", "?gracePeriodSeconds=30", "?propagationPolicy=Foreground"] {
        assert_eq!(delete(query).await, first, "{query}");
    }
    let shorter = delete("?gracePeriodSeconds=10").await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 10);
    assert_eq!(shorter["metadata"]["generation"], 2);
    assert!(
        shorter["metadata"]["deletionTimestamp"].as_str() < first["metadata"]["deletionTimestamp"].as_str(),
        "{shorter}"
    );
    delete("?gracePeriodSeconds=0").await;
    assert_eq!(client.get(&format!("{pods}/running")).await.status, 404);
    // Without a node the pod is removed at once, and its last event has a deletion time.
    assert_eq!(client.post(pods, &pod("waiting", "")).await.status, 201);
    let gone = client.delete(&format!("{pods}/waiting")).await.json();
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(gone["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(client.get(&format!("{pods}/waiting")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_orphan_their_pods_by_default_with_a_warning() {
    // See docs/api/delete.md#finalizers-of-a-deletion.
    let server = Server::start_upstream().await;
    let client = server.client();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let warning = "299 - \"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
        remove them or set propagationPolicy=Orphan to suppress this warning\"";
    for (query, warned, stays) in [
        ("", true, true),
        ("?propagationPolicy=Orphan", false, true),
        ("?propagationPolicy=Background", false, false),
        ("?orphanDependents=true", false, true),
    ] {
        let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        let made = client.post(jobs, &job).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let reference = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j",
            "uid": made.json()["metadata"]["uid"]}]);
        let child = json!({"metadata": {"name": "child", "ownerReferences": reference}});
        assert_eq!(client.post(MAPS, &child).await.status, 201);
        let deleted = client.delete(&format!("{jobs}/j{query}")).await;
        assert_eq!(deleted.status, 200, "{query}: {}", deleted.text());
        assert_eq!(deleted.header_all("warning") == [warning], warned, "{query}");
        client.until(&format!("{jobs}/j"), |job| job.is_none()).await;
        if stays {
            assert_eq!(client.get(&format!("{MAPS}/child")).await.status, 200, "{query}");
        } else {
            until_gone(client, "child").await;
        }
        client.delete(&format!("{MAPS}/child")).await;
    }
    // A deletion of a collection also causes the warning, even if the collection is empty.
    for (query, warned) in [("", true), ("?propagationPolicy=Background", false)] {
        let deleted = client.delete(&format!("{jobs}{query}")).await;
        assert_eq!(deleted.status, 200, "{query}: {}", deleted.text());
        assert_eq!(deleted.header_all("warning") == [warning], warned, "{query}");
    }
}
