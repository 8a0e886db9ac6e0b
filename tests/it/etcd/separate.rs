//! Resources that are stored in a separate etcd: `--etcd-servers-overrides`
//! (docs/api/etcd.md#resources-kept-apart).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Client, PATIENCE, Server};

use super::cluster::Etcd;
use super::{MAPS, map, version};

const NAMESPACES: &str = "/api/v1/namespaces";

fn event(ns: &str, name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": ns, "name": "p"},
        "reason": "Tested", "message": "m", "type": "Normal",
    })
}

fn events(ns: &str) -> String {
    format!("{NAMESPACES}/{ns}/events")
}

fn leases(ns: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases")
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let answer = client.post(path, object).await;
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    answer.json()
}

/// Waits until a health check has this status, because each check follows its etcd at its own time.
async fn until_status(client: &Client, path: &str, status: u16) {
    let until = Instant::now() + PATIENCE;
    loop {
        let reply = client.get(path).await;
        if reply.status == status {
            return;
        }
        assert!(Instant::now() < until, "{path}: {}", reply.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the servers have this many leases for their controllers and identities.
async fn until_leases(client: &Client, count: usize) {
    let is_complete = |list: Option<&Value>| {
        list.is_some_and(|list| list["items"].as_array().is_some_and(|leases| leases.len() >= count))
    };
    assert!(client.until(&leases("kube-system"), is_complete).await.is_some(), "the list cannot be read");
}

/// Starts a server that stores events and leases in another etcd.
async fn server(main: &Etcd, other: &Etcd) -> Server {
    let (events, leases) = (other.urls(), other.urls());
    let overrides = format!("--etcd-servers-overrides=/events#{events},coordination.k8s.io/leases#{leases}");
    main.server(&[&overrides]).await
}

#[tokio::test]
async fn events_and_leases_can_be_stored_in_a_separate_etcd() {
    let Some(main) = Etcd::start(1).await else { return };
    let Some(mut other) = Etcd::start(1).await else { return };
    let (mut one, two) = (server(&main, &other).await, server(&main, &other).await);
    create(one.client(), NAMESPACES, &json!({"metadata": {"name": "goes"}})).await;

    // Each object is stored under the usual key in the etcd of its resource, and has a revision of that etcd.
    let owner = create(one.client(), MAPS, &map("owner", "0")).await;
    let created = create(one.client(), &events("default"), &event("default", "told")).await;
    for (etcd, elsewhere, key, object) in [
        (&main, &other, "/registry/configmaps/default/owner", &owner),
        (&other, &main, "/registry/events/default/told", &created),
    ] {
        let kept = etcd.get(key).await.unwrap_or_else(|| panic!("no {key}"));
        assert_eq!(u64::try_from(kept.mod_revision).unwrap(), version(object), "{key}");
        assert!(elsewhere.get(key).await.is_none(), "{key}");
    }
    // Both servers run. Leases in the other etcd elect one server.
    until_leases(two.client(), 3).await;

    // The other server has the objects immediately, in both groups. Lists, watches and conflicts use the same
    // revisions.
    let path = format!("{}/told", events("default"));
    assert_eq!(two.client().get(&path).await.json(), created);
    let list = two.client().get(&events("default")).await.json();
    assert!(version(&list) >= version(&created), "{list}");
    let from = version(&list);
    let mut watch =
        two.client().watch(&format!("{}?watch=true&resourceVersion={from}", events("default"))).await;
    let again = create(one.client(), &events("default"), &event("default", "again")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "again");
    let mut stale = created.clone();
    stale["message"] = "first".into();
    assert_eq!(two.client().put(&path, &stale).await.status, 200);
    stale["message"] = "second".into();
    assert_eq!(one.client().put(&path, &stale).await.status, 409);
    let at = format!("{}?resourceVersion={}&resourceVersionMatch=Exact", events("default"), version(&again));
    assert_eq!(one.client().get(&at).await.json()["items"].as_array().unwrap().len(), 2);
    let newer = one.client().get("/apis/events.k8s.io/v1/namespaces/default/events/told").await.json();
    assert_eq!(newer["note"], "first");

    // The garbage collector and the deletion of a namespace also delete these objects.
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": [reference]}, "spec": {}});
    create(two.client(), &leases("default"), &owned).await;
    create(one.client(), &events("goes"), &event("goes", "left")).await;
    create(one.client(), &leases("goes"), &json!({"metadata": {"name": "left"}, "spec": {}})).await;
    assert_eq!(two.client().delete(&format!("{MAPS}/owner")).await.status, 200);
    assert_eq!(two.client().delete(&format!("{NAMESPACES}/goes")).await.status, 200);
    for path in [format!("{}/owned", leases("default")), format!("{NAMESPACES}/goes")] {
        one.client().until_gone(&path).await;
    }
    for key in ["/registry/leases/goes/left", "/registry/events/goes/left", "/registry/leases/default/owned"]
    {
        assert!(other.get(key).await.is_none(), "{key}");
    }

    // A restart continues with both copies.
    one.terminate();
    one.restart().await;
    assert_eq!(one.client().get(&path).await.json()["message"], "first");
    let log = one.until_logged("local copy of etcd filled", 2).await;
    assert!(log.matches("local copy of etcd filled").count() == 2, "{log}");

    // While the other etcd is down, all other resources are served, and health checks report the failure.
    other.kill(0);
    assert_eq!(one.client().put(&format!("{MAPS}/kept"), &map("kept", "1")).await.status, 404);
    create(one.client(), MAPS, &map("kept", "0")).await;
    let refused = one.client().post(&events("default"), &event("default", "lost")).await;
    assert!(matches!(refused.status, 503 | 504), "{}", refused.text());
    for (path, status) in [
        ("/readyz/etcd-override-0", 500),
        ("/readyz/etcd", 200),
        ("/readyz/etcd-override-readiness-0", 500),
        ("/readyz/etcd-override-1", 404),
        ("/livez", 500),
        ("/livez?exclude=etcd", 200),
    ] {
        until_status(one.client(), path, status).await;
    }
}
