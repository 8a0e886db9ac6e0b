//! Namespace deletion (docs/api/delete.md#namespace-lifecycle, docs/api/controllers.md#namespace-controller).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Client, PATIENCE, Server};
use tokio::time::timeout;

/// Creates a namespace and returns its path.
async fn make(client: &Client, name: &str) -> String {
    let created = client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    assert_eq!(created.status, 201, "{}", created.text());
    format!("/api/v1/namespaces/{name}")
}

async fn put_in(client: &Client, path: &str, object: Value) {
    let created = client.post(path, &object).await;
    assert_eq!(created.status, 201, "{path}: {}", created.text());
}

/// Waits until the namespace satisfies `condition`; `None` means absent. Watches from the newest state on.
async fn until(client: &Client, name: &str, condition: impl Fn(Option<&Value>) -> bool) {
    let watched = timeout(PATIENCE, async {
        let path = format!("/api/v1/namespaces?watch=1&fieldSelector=metadata.name={name}");
        let now = client.get(&format!("/api/v1/namespaces/{name}")).await;
        if now.status == 404 {
            assert!(condition(None), "{name} is gone");
            return;
        }
        if condition(Some(&now.json())) {
            return;
        }
        let version = now.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let mut events = client.watch(&format!("{path}&resourceVersion={version}")).await;
        loop {
            let event = events.next().await.expect("the watch continues");
            let object = (event["type"] != "DELETED").then_some(&event["object"]);
            if condition(object) {
                return;
            }
            assert!(object.is_some(), "{name} is gone");
        }
    });
    if watched.await.is_err() {
        panic!("{}", client.get(&format!("/api/v1/namespaces/{name}")).await.text());
    }
}

async fn until_gone(client: &Client, name: &str) {
    until(client, name, |namespace| namespace.is_none()).await;
}

/// Returns the conditions as `type=status message`, except those in their normal state.
fn troubles(namespace: &Value) -> Vec<String> {
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let troubled = conditions.iter().filter(|condition| condition["status"] == "True");
    troubled
        .map(|condition| format!("{}: {}", text(&condition["reason"]), text(&condition["message"])))
        .collect()
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_namespace_deletes_everything_in_it_and_nothing_else() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let kinds = [
        ("/api/v1", "pods", pod("x")),
        ("/api/v1", "secrets", json!({"metadata": {"name": "x"}})),
        ("/api/v1", "services", json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}})),
        (
            "/apis/apps/v1",
            "deployments",
            json!({"metadata": {"name": "x"}, "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]},
            }}),
        ),
        ("/apis/coordination.k8s.io/v1", "leases", json!({"metadata": {"name": "x"}})),
        ("/apis/rbac.authorization.k8s.io/v1", "roles", json!({"metadata": {"name": "x"}, "rules": []})),
        (
            "/apis/autoscaling/v2",
            "horizontalpodautoscalers",
            json!({"metadata": {"name": "x"}, "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}, "maxReplicas": 2,
            }}),
        ),
    ];
    // The second name begins with the first name, so the objects of both namespaces are neighbours in the store.
    for name in ["going", "going-not"] {
        make(client, name).await;
        for (group, resource, object) in &kinds {
            put_in(client, &format!("{group}/namespaces/{name}/{resource}"), object.clone()).await;
        }
    }
    let deleted = client.delete("/api/v1/namespaces/going").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(deleted.json()["status"]["phase"], "Terminating");
    until_gone(client, "going").await;
    for (group, resource, _) in &kinds {
        for (name, count) in [("going", 0), ("going-not", 1)] {
            let list = client.get(&format!("{group}/namespaces/{name}/{resource}")).await.json();
            assert_eq!(list["items"].as_array().unwrap().len(), count, "{resource} in {name}");
        }
    }
    // A new namespace with the same name is another object, and is deleted like the first namespace.
    let path = make(client, "going").await;
    client.delete(&path).await;
    until_gone(client, "going").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_list_the_remaining_content_of_a_terminating_namespace() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let path = make(client, "held").await;
    let maps = format!("{path}/configmaps");
    for (name, finalizers) in [
        ("free", json!([])),
        ("one", json!(["example.com/a"])),
        ("two", json!(["example.com/b", "example.com/a"])),
    ] {
        put_in(client, &maps, json!({"metadata": {"name": name, "finalizers": finalizers}})).await;
    }
    assert_eq!(client.delete(&path).await.status, 200);
    until(client, "held", |namespace| {
        troubles(namespace.unwrap())
            == [
                "SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances",
                "SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/a in 2 \
                 resource instances, example.com/b in 1 resource instances",
            ]
    })
    .await;
    let conditions = client.get(&path).await.json()["status"]["conditions"].clone();
    let kinds: Vec<_> = conditions.as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "NamespaceDeletionDiscoveryFailure",
            "NamespaceDeletionGroupVersionParsingFailure",
            "NamespaceDeletionContentFailure",
            "NamespaceContentRemaining",
            "NamespaceFinalizersRemaining",
        ]
    );
    let refused = client.post(&maps, &json!({"metadata": {"name": "late"}})).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(client.delete(&path).await.status, 200, "deleting it again changes nothing");

    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(client.patch(&format!("{maps}/two"), "merge", &release).await.status, 200);
    until(client, "held", |namespace| {
        troubles(namespace.unwrap())
            == [
                "SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances",
                "SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/a in 1 \
                 resource instances",
            ]
    })
    .await;
    client.patch(&format!("{maps}/one"), "merge", &release).await;
    until_gone(client, "held").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_namespace_are_deleted_first_and_their_grace_period_is_respected() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let path = make(client, "graceful").await;
    let mut running = pod("running");
    running["spec"]["nodeName"] = "n".into();
    running["spec"]["terminationGracePeriodSeconds"] = 30.into();
    put_in(client, &format!("{path}/pods"), running).await;
    put_in(client, &format!("{path}/pods"), pod("waiting")).await;
    put_in(client, &format!("{path}/secrets"), json!({"metadata": {"name": "used"}})).await;
    client.delete(&path).await;
    until(client, "graceful", |namespace| {
        let want = "SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances";
        troubles(namespace.unwrap()) == [want]
    })
    .await;
    assert_eq!(client.get(&format!("{path}/secrets/used")).await.status, 200);
    // The node agent sends this request when the containers have stopped.
    client.delete(&format!("{path}/pods/running?gracePeriodSeconds=0")).await;
    until_gone(client, "graceful").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_finalizers_of_a_namespace_remain_after_that_of_the_system() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let own = json!({"metadata": {"name": "mine", "finalizers": ["example.com/last"]}});
    put_in(client, "/api/v1/namespaces", own).await;
    client.delete("/api/v1/namespaces/mine").await;
    until(client, "mine", |namespace| {
        namespace.unwrap()["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
    let left = client.get("/api/v1/namespaces/mine/configmaps").await.json();
    assert_eq!(left["items"], json!([]));
    client.patch("/api/v1/namespaces/mine", "merge", &json!({"metadata": {"finalizers": null}})).await;
    until_gone(client, "mine").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_deletion_continues_after_a_restart() {
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    let held = make(&client, "held").await;
    let object = json!({"metadata": {"name": "x", "finalizers": ["example.com/a"]}});
    put_in(&client, &format!("{held}/configmaps"), object).await;
    let full = make(&client, "full").await;
    fill(&client, &full, 500).await;
    client.delete(&held).await;
    client.delete(&full).await;
    server.kill();
    server.restart().await;
    let client = server.client();
    until_gone(client, "full").await;
    until(client, "held", |namespace| troubles(namespace.unwrap()).len() == 2).await;
    let release = json!({"metadata": {"finalizers": null}});
    client.patch(&format!("{held}/configmaps/x"), "merge", &release).await;
    until_gone(client, "held").await;
    assert_eq!(server.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_namespace_deletes_two_thousand_objects() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let path = make(client, "full").await;
    fill(client, &path, 2000).await;
    client.delete(&path).await;
    until_gone(client, "full").await;
    assert_eq!(client.get(&format!("{path}/configmaps")).await.json()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_object_created_during_a_deletion_outlives_its_namespace() {
    let server = Server::start_upstream().await;
    let client = server.client();
    for round in 0..5 {
        let name = format!("race-{round}");
        let path = make(client, &name).await;
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (client, maps) = (client.another(), format!("{path}/configmaps"));
                tokio::spawn(async move {
                    let mut made = 0;
                    loop {
                        let object = json!({"metadata": {"name": format!("m-{writer}-{made}")}});
                        match client.post(&maps, &object).await.status {
                            201 => made += 1,
                            403 | 404 => return made,
                            other => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(30)).await;
        client.delete(&path).await;
        let mut made = 0;
        for writer in writers {
            made += writer.await.unwrap();
        }
        until_gone(client, &name).await;
        let left = client.get(&format!("{path}/configmaps")).await.json();
        assert_eq!(left["items"], json!([]), "some of {made} objects remain");
    }
}

/// Creates config maps, several at a time.
async fn fill(client: &Client, path: &str, count: usize) {
    const WRITERS: usize = 16;
    let writers = (0..WRITERS).map(|writer| {
        let (client, maps) = (client.another(), format!("{path}/configmaps"));
        tokio::spawn(async move {
            for at in (writer..count).step_by(WRITERS) {
                put_in(&client, &maps, json!({"metadata": {"name": format!("m-{at}")}})).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_namespace_with_five_thousand_objects_continues_after_a_kill() {
    const EACH: usize = 1250;
    const WRITERS: usize = 16;
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    let path = make(&client, "full").await;
    let uid = client.get(&path).await.json()["metadata"]["uid"].clone();
    let lists = [
        format!("{path}/configmaps"),
        format!("{path}/secrets"),
        format!("{path}/services"),
        "/apis/coordination.k8s.io/v1/namespaces/full/leases".to_owned(),
    ];
    // Some objects are owned by the namespace, some by each other; the collector and the namespace controller
    // may delete them in any order.
    let writers = (0..WRITERS).map(|writer| {
        let (client, lists, uid) = (client.another(), lists.clone(), uid.clone());
        tokio::spawn(async move {
            for at in (writer..EACH).step_by(WRITERS) {
                for list in &lists {
                    let mut object = json!({"metadata": {"name": format!("o-{at}")}});
                    if list.ends_with("services") {
                        object["spec"] = json!({"clusterIP": "None", "selector": {"a": "b"}});
                    }
                    if at % 3 == 0 {
                        object["metadata"]["ownerReferences"] =
                            json!([{"apiVersion": "v1", "kind": "Namespace", "name": "full", "uid": uid}]);
                    }
                    put_in(&client, list, object).await;
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(client.delete(&path).await.status, 200);
    let begun = Instant::now();
    let late = client.post(&lists[0], &json!({"metadata": {"name": "late"}})).await;
    assert!(matches!(late.status, 403 | 404), "{}", late.text());
    // A missing object shows that the deletion is in progress, or complete on a fast machine.
    while client.get(&format!("{}/o-0", lists[0])).await.status == 200 && begun.elapsed() < PATIENCE {
        tokio::task::yield_now().await;
    }
    server.kill();
    server.restart().await;
    let client = server.client();
    until_gone(client, "full").await;
    for list in &lists {
        assert_eq!(client.get(list).await.json()["items"], json!([]), "{list}");
    }
}
