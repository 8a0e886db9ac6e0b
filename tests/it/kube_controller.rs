//! A controller written with the unmodified `kube` crate. Watches trigger the controller, and a finalizer protects its
//! cleanup. The controller applies children with an owner reference, and reports progress with `replace_status`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Error as FinalizerError, Event, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tests::PATIENCE;

use crate::support::{until, upstream};

const FINALIZER: &str = "example.com/mirrored";

/// The reconciler's clients and its counters.
struct Work {
    client: Client,
    rounds: AtomicUsize,
    cleanups: AtomicUsize,
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the test's object fits its type")
}

/// Copies the replica count of each deployment to a config map of the same name and to the status of the deployment.
async fn reconcile(parent: Arc<Deployment>, work: Arc<Work>) -> Result<Action, FinalizerError<kube::Error>> {
    let parents: Api<Deployment> = Api::default_namespaced(work.client.clone());
    let step = |event| async {
        match event {
            Event::Apply(parent) => mirror(&work, &parent).await?,
            Event::Cleanup(_) => _ = work.cleanups.fetch_add(1, Ordering::SeqCst),
        }
        Ok::<_, kube::Error>(Action::await_change())
    };
    let action = finalizer(&parents, FINALIZER, parent, step).await?;
    work.rounds.fetch_add(1, Ordering::SeqCst);
    Ok(action)
}

async fn mirror(work: &Work, parent: &Deployment) -> kube::Result<()> {
    let children: Api<ConfigMap> = Api::default_namespaced(work.client.clone());
    let replicas = parent.spec.as_ref().and_then(|spec| spec.replicas);
    let child = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": parent.name_any(), "ownerReferences": [parent.controller_owner_ref(&())]},
        "data": {"replicas": replicas.map(|count| count.to_string())},
    });
    let ours = PatchParams::apply("mirror").force();
    children.patch(&parent.name_any(), &ours, &Patch::Apply(&child)).await?;
    let mut seen = parent.clone();
    seen.status = Some(DeploymentStatus {
        observed_generation: parent.metadata.generation,
        replicas,
        ..DeploymentStatus::default()
    });
    let parents: Api<Deployment> = Api::default_namespaced(work.client.clone());
    parents.replace_status(&parent.name_any(), &PostParams::default(), &seen).await?;
    Ok(())
}

fn deployment(name: &str, replicas: u32) -> Deployment {
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]}
            }
        }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_keeps_children_and_status_up_to_date_and_cleans_up() {
    let (_server, client) = upstream().await;
    let parents: Api<Deployment> = Api::default_namespaced(client.clone());
    let children: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let work = Arc::new(Work {
        client: client.clone(),
        rounds: AtomicUsize::default(),
        cleanups: AtomicUsize::default(),
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let controller = Controller::new(parents.clone(), watcher::Config::default())
        .owns(children.clone(), watcher::Config::default())
        .graceful_shutdown_on(async move {
            let _ = stopped.await;
        })
        // A stale status is refused as a conflict; the next run reads the newer object.
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(50)), Arc::clone(&work));
    let controller = tokio::spawn(controller.for_each(|_| async {}));
    let says = |count: &'static str| {
        move |child: Option<&ConfigMap>| {
            child.and_then(|child| child.data.as_ref()).is_some_and(|data| data["replicas"] == count)
        }
    };
    let observed = |generation: i64| {
        move |parent: Option<&Deployment>| {
            let status = parent.and_then(|parent| parent.status.as_ref());
            status.is_some_and(|status| status.observed_generation == Some(generation))
        }
    };

    // A new object gets its finalizer, its child and its status.
    parents.create(&PostParams::default(), &deployment("web", 2)).await.unwrap();
    let first = until(&children, "web", says("2")).await.unwrap();
    let parent = until(&parents, "web", observed(1)).await.unwrap();
    assert_eq!(parent.finalizers(), [FINALIZER]);
    assert_eq!(first.owner_references()[0].uid, parent.uid().unwrap());
    let owners: Vec<_> = first
        .managed_fields()
        .iter()
        .map(|entry| (entry.manager.as_deref().unwrap(), entry.operation.as_deref().unwrap()))
        .collect();
    assert_eq!(owners, [("mirror", "Apply")]);

    // A deleted child is created again. A changed child is corrected, and fields of other managers stay.
    children.delete("web", &DeleteParams::default()).await.unwrap();
    let uid = first.uid().unwrap();
    let second = until(&children, "web", |child: Option<&ConfigMap>| {
        child.is_some_and(|child| child.uid().as_ref() != Some(&uid))
    })
    .await
    .unwrap();
    let meddled = Patch::Merge(json!({"data": {"replicas": "many", "note": "mine"}}));
    children.patch("web", &PatchParams::default(), &meddled).await.unwrap();
    let put_right = until(&children, "web", says("2")).await.unwrap();
    let both = BTreeMap::from([("note".into(), "mine".into()), ("replicas".into(), "2".into())]);
    assert_eq!((put_right.uid(), put_right.data), (second.uid(), Some(both)));

    // After a change of the spec, the controller updates the status.
    let more = Patch::Merge(json!({"spec": {"replicas": 5}}));
    parents.patch("web", &PatchParams::default(), &more).await.unwrap();
    let grown = until(&children, "web", says("5")).await.unwrap();
    let parent = until(&parents, "web", observed(2)).await.unwrap();
    assert_eq!(parent.status.unwrap().replicas, Some(5));

    // A run without a change writes neither child nor parent.
    let rounds = work.rounds.load(Ordering::SeqCst);
    let nudge = Patch::Merge(json!({"metadata": {"labels": {"nudge": "1"}}}));
    let nudged = parents.patch("web", &PatchParams::default(), &nudge).await.unwrap();
    let waiting = async {
        while work.rounds.load(Ordering::SeqCst) <= rounds {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the controller reconciles again");
    assert_eq!(children.get("web").await.unwrap().resource_version(), grown.resource_version());
    assert_eq!(parents.get("web").await.unwrap().resource_version(), nudged.resource_version());

    // A deleted object waits for the cleanup, and its child is deleted as well.
    assert_eq!(work.cleanups.load(Ordering::SeqCst), 0);
    parents.delete("web", &DeleteParams::default()).await.unwrap();
    until(&parents, "web", |parent: Option<&Deployment>| parent.is_none()).await;
    assert!(work.cleanups.load(Ordering::SeqCst) > 0);
    let gone = conditions::is_deleted(grown.metadata.uid.as_deref().unwrap());
    let gone = tokio::time::timeout(PATIENCE, await_condition(children, "web", gone));
    assert!(gone.await.expect("the child is deleted").unwrap().is_none());
    stop.send(()).expect("the controller runs");
    controller.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_are_deleted_by_propagation_policy() {
    let (_server, client) = upstream().await;
    let parents: Api<Deployment> = Api::default_namespaced(client.clone());
    let children: Api<ConfigMap> = Api::default_namespaced(client);
    for (name, how, child_stays) in [
        ("background", DeleteParams::background(), false),
        ("foreground", DeleteParams::foreground(), false),
        ("orphan", DeleteParams::orphan(), true),
    ] {
        let parent = parents.create(&PostParams::default(), &deployment(name, 1)).await.unwrap();
        let mut child: ConfigMap = object(json!({"metadata": {"name": name}}));
        child.owner_references_mut().push(parent.controller_owner_ref(&()).unwrap());
        let child = children.create(&PostParams::default(), &child).await.unwrap();
        // Only a background deletion completes immediately; the other two policies leave a finalizer for the collector.
        let outcome = parents.delete(name, &how).await.unwrap();
        assert_eq!(outcome.is_right(), name == "background", "{outcome:?}");
        until(&parents, name, |parent: Option<&Deployment>| parent.is_none()).await;
        let now = children.get_opt(name).await.unwrap();
        match name {
            "foreground" => assert_eq!(now, None, "the owner is deleted last"),
            "orphan" => assert_eq!(now.unwrap().owner_references(), [], "the orphan has no owner"),
            _ => {
                let gone = conditions::is_deleted(child.metadata.uid.as_deref().unwrap());
                let gone = tokio::time::timeout(PATIENCE, await_condition(children.clone(), name, gone));
                assert!(gone.await.expect("the child is deleted").unwrap().is_none());
            }
        }
        assert_eq!(children.get_opt(name).await.unwrap().is_some(), child_stays, "{name}");
    }
}
