//! A custom type that is derived from a Rust struct with the unmodified `kube` crate, and a controller of its
//! objects. The controller sets a finalizer, owns children, and applies a status through the subresource.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Error as FinalizerError, Event, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tests::PATIENCE;

use crate::support::{refusal, until, upstream};

const FINALIZER: &str = "e2e.example.com/released";

/// Desired state of a lease of machines.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[kube(group = "e2e.example.com", version = "v1", kind = "Lease", plural = "machineleases", namespaced)]
#[kube(shortname = "ml", status = "LeaseStatus")]
#[kube(scale(spec_replicas_path = ".spec.machines", status_replicas_path = ".status.granted"))]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    /// Number of machines of the lease.
    #[schemars(range(min = 0, max = 10))]
    machines: i32,
    /// Zone of the machines.
    #[serde(default = "everywhere")]
    zone: String,
    /// Class of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<Class>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
enum Class {
    Small,
    Large,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaseStatus {
    granted: i32,
    observed_generation: Option<i64>,
}

fn everywhere() -> String {
    "any".to_owned()
}

/// The reconciler's client and its counters.
struct Work {
    client: Client,
    cleanups: AtomicUsize,
}

/// Grants a lease: creates a config map for it, and updates the status.
async fn reconcile(lease: Arc<Lease>, work: Arc<Work>) -> Result<Action, FinalizerError<kube::Error>> {
    let leases: Api<Lease> = Api::default_namespaced(work.client.clone());
    let step = |event| async {
        match event {
            Event::Apply(lease) => grant(&work, &lease).await?,
            Event::Cleanup(_) => _ = work.cleanups.fetch_add(1, Ordering::SeqCst),
        }
        Ok::<_, kube::Error>(Action::await_change())
    };
    finalizer(&leases, FINALIZER, lease, step).await
}

async fn grant(work: &Work, lease: &Lease) -> kube::Result<()> {
    let name = lease.name_any();
    let ours = PatchParams::apply("leases").force();
    let child = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [lease.controller_owner_ref(&())]},
        "data": {"zone": lease.spec.zone, "machines": lease.spec.machines.to_string()},
    });
    let children: Api<ConfigMap> = Api::default_namespaced(work.client.clone());
    children.patch(&name, &ours, &Patch::Apply(&child)).await?;
    let status = LeaseStatus { granted: lease.spec.machines, observed_generation: lease.metadata.generation };
    let status = json!({"apiVersion": Lease::api_version(&()), "kind": Lease::kind(&()), "status": status});
    let leases: Api<Lease> = Api::default_namespaced(work.client.clone());
    leases.patch_status(&name, &ours, &Patch::Apply(&status)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_type_derived_by_kube_is_served_and_its_objects_are_reconciled() {
    let (_server, client) = upstream().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    // Controllers apply the definition at each start, so it is applied twice, the second time without a
    // change.
    let ours = PatchParams::apply("leases").force();
    for _ in 0..2 {
        definitions.patch(Lease::crd_name(), &ours, &Patch::Apply(Lease::crd())).await.unwrap();
    }
    let established =
        await_condition(definitions.clone(), Lease::crd_name(), conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, established).await.expect("the definition becomes established").unwrap();

    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let children: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let work = Arc::new(Work { client: client.clone(), cleanups: AtomicUsize::default() });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let controller = Controller::new(leases.clone(), watcher::Config::default())
        .owns(children.clone(), watcher::Config::default())
        .graceful_shutdown_on(async move {
            let _ = stopped.await;
        })
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(50)), Arc::clone(&work));
    let controller = tokio::spawn(controller.for_each(|_| async {}));
    let granted = |count: i32, generation: i64| {
        move |lease: Option<&Lease>| {
            let status = lease.and_then(|lease| lease.status.as_ref());
            status.is_some_and(|status| {
                status.granted == count && status.observed_generation == Some(generation)
            })
        }
    };

    // The derived schema is enforced, and its defaults are set.
    let many = Lease::new("many", LeaseSpec { machines: 11, ..LeaseSpec::default() });
    let refused = refusal(leases.create(&PostParams::default(), &many).await);
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert!(refused.message.contains("should be less than or equal to 10"), "{}", refused.message);
    let text = json!({
        "apiVersion": Lease::api_version(&()), "kind": Lease::kind(&()),
        "metadata": {"name": "web"}, "spec": {"machines": 2, "class": "Large"},
    });
    let applied = leases.patch("web", &PatchParams::apply("test"), &Patch::Apply(&text)).await.unwrap();
    assert_eq!((applied.spec.zone.as_str(), applied.metadata.generation), ("any", Some(1)));

    let lease = until(&leases, "web", granted(2, 1)).await.unwrap();
    assert_eq!(lease.finalizers(), [FINALIZER]);
    let child = children.get("web").await.unwrap();
    assert_eq!(child.owner_references()[0].uid, lease.uid().unwrap());
    assert_eq!(child.data.unwrap()["zone"], "any");

    // A change through the scale subresource changes the spec. The controller then updates the status, which does not
    // increment the generation.
    let more = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let scale = leases.patch_scale("web", &PatchParams::default(), &more).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(5));
    let lease = until(&leases, "web", granted(5, 2)).await.unwrap();
    assert_eq!(lease.metadata.generation, Some(2));
    let scale = leases.get_scale("web").await.unwrap();
    assert_eq!(scale.status.unwrap().replicas, 5);

    // A deleted object waits for its cleanup, and its child is deleted with it.
    assert_eq!(work.cleanups.load(Ordering::SeqCst), 0);
    leases.delete("web", &DeleteParams::default()).await.unwrap();
    until(&leases, "web", |lease: Option<&Lease>| lease.is_none()).await;
    assert!(work.cleanups.load(Ordering::SeqCst) > 0);
    until(&children, "web", |child: Option<&ConfigMap>| child.is_none()).await;
    stop.send(()).expect("the controller runs");
    controller.await.unwrap();
}
