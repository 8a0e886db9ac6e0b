//! Writes of the `kube` crate: patches, applies, subresources, entries, finalizers and deletes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use serde_json::{Value, json};

use crate::kube_client::{deployment, object, pod};
use crate::support::{refusal, upstream};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_merge_and_strategic_patches_follow_their_formats() {
    let (_server, client) = upstream().await;
    let api: Api<Deployment> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &object(deployment("d"))).await.unwrap();
    let params = PatchParams::default();
    let containers = |d: &Deployment| -> Vec<(String, String)> {
        let spec = d.spec.clone().unwrap().template.spec.unwrap();
        spec.containers.into_iter().map(|c| (c.name, c.image.unwrap())).collect()
    };
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(name, image)| (name.to_string(), image.to_string())).collect()
    };

    // A strategic merge patch merges lists by their key.
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "log", "image": "log:2"}]}}}});
    let patched = api.patch("d", &params, &Patch::Strategic(&patch)).await.unwrap();
    let mut sorted = containers(&patched);
    sorted.sort();
    assert_eq!(sorted, pairs(&[("log", "log:2"), ("web", "web:1")]));
    assert_eq!(patched.metadata.generation, Some(2));

    // A merge patch replaces lists, and null removes members.
    let patch = json!({
        "metadata": {"labels": {"app": null, "tier": "front"}},
        "spec": {"template": {"spec": {"containers": [{"name": "log", "image": "log:3"}]}}}
    });
    let patched = api.patch("d", &params, &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(containers(&patched), pairs(&[("log", "log:3")]));
    assert_eq!(patched.labels(), &BTreeMap::from([("tier".to_owned(), "front".to_owned())]));

    // A JSON Patch addresses elements by position, and is applied completely or not at all.
    let path = "/spec/template/spec/containers/0/image";
    let swap = |from: &str, to: &str| {
        let list = json!([{"op": "test", "path": path, "value": from}, {"op": "replace", "path": path, "value": to}]);
        Patch::<()>::Json(serde_json::from_value(list).unwrap())
    };
    let patched = api.patch("d", &params, &swap("log:3", "log:4")).await.unwrap();
    assert_eq!(containers(&patched), pairs(&[("log", "log:4")]));
    let refused = refusal(api.patch("d", &params, &swap("log:3", "log:5")).await);
    assert!(refused.is_invalid(), "{refused:?}");

    // A patch with a version is conditional; a patch without a version is retried until it
    // succeeds.
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}});
    assert!(refusal(api.patch("d", &params, &Patch::Merge(&stale)).await).is_conflict());
    let racing = (0..32).map(|i| {
        let (api, params) = (api.clone(), params.clone());
        async move {
            let patch = json!({"metadata": {"annotations": {format!("n{i}"): "x"}}});
            api.patch("d", &params, &Patch::Merge(&patch)).await
        }
    });
    stream::iter(racing).buffer_unordered(32).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(api.get("d").await.unwrap().annotations().len(), 32);

    // A no-op patch is not stored.
    let before = api.get("d").await.unwrap();
    let same = json!({"metadata": {"annotations": {"n0": "x"}}});
    assert_eq!(api.patch("d", &params, &Patch::Merge(&same)).await.unwrap(), before);
    let dry = json!({"spec": {"replicas": 9}});
    let imagined = api.patch("d", &PatchParams::default().dry_run(), &Patch::Merge(&dry)).await.unwrap();
    assert_eq!(imagined.spec.unwrap().replicas, Some(9));
    assert_eq!(api.get("d").await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_patches_and_creates_refuse_unknown_fields() {
    let (_server, client) = upstream().await;
    let api: Api<Deployment> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &object(deployment("d"))).await.unwrap();
    let patch = json!({"spec": {"replicaz": 3}});
    let strict = api.patch("d", &PatchParams::default().validation_strict(), &Patch::Merge(&patch)).await;
    let refused = refusal(strict);
    assert_eq!(refused.code, 422);
    assert!(refused.message.contains(r#"unknown field "spec.replicaz""#), "{}", refused.message);
    let ignored =
        api.patch("d", &PatchParams::default().validation_ignore(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(ignored.spec.unwrap().replicas, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_scale_are_written_through_their_subresources() {
    let (_server, client) = upstream().await;
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let mut new: Deployment = object(deployment("d"));
    new.status = Some(object(json!({"replicas": 7})));
    let created = api.create(&PostParams::default(), &new).await.unwrap();
    assert_eq!(created.status.as_ref().and_then(|status| status.replicas), None);

    let patch = json!({"spec": {"replicas": 9}, "status": {"replicas": 2, "readyReplicas": 1}});
    let patched = api.patch_status("d", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.spec.as_ref().unwrap().replicas, Some(2));
    assert_eq!(patched.status.as_ref().unwrap().ready_replicas, Some(1));
    assert_eq!(patched.metadata.generation, Some(1));

    let mut desired = patched.clone();
    desired.spec.as_mut().unwrap().replicas = Some(11);
    desired.status.as_mut().unwrap().ready_replicas = Some(2);
    let replaced = api.replace_status("d", &PostParams::default(), &desired).await.unwrap();
    assert_eq!(replaced.spec.as_ref().unwrap().replicas, Some(2));
    assert_eq!(replaced.status.as_ref().unwrap().ready_replicas, Some(2));
    assert!(refusal(api.replace_status("d", &PostParams::default(), &desired).await).is_conflict());
    assert_eq!(api.get_status("d").await.unwrap(), replaced);

    let scale = api.get_scale("d").await.unwrap();
    assert_eq!(scale.spec.as_ref().unwrap().replicas, Some(2));
    assert_eq!(scale.status.as_ref().unwrap().replicas, 2);
    assert_eq!(scale.status.as_ref().unwrap().selector.as_deref(), Some("app=d"));
    let mut up = scale.clone();
    up.spec.as_mut().unwrap().replicas = Some(5);
    assert_eq!(
        api.replace_scale("d", &PostParams::default(), &up).await.unwrap().spec.unwrap().replicas,
        Some(5)
    );
    assert!(refusal(api.replace_scale("d", &PostParams::default(), &up).await).is_conflict());
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let scaled = api.patch_scale("d", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(3));
    let now = api.get("d").await.unwrap();
    assert_eq!((now.spec.unwrap().replicas, now.metadata.generation), (Some(3), Some(3)));
    assert_eq!(now.status, replaced.status);

    // The status of a pod, and the subresources that change running pods.
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &object(pod("p"))).await.unwrap();
    let running = Patch::Strategic(json!({"status": {"phase": "Running", "podIP": "10.0.0.1"}}));
    let running = pods.patch_status("p", &PatchParams::default(), &running).await.unwrap();
    assert_eq!(running.status.unwrap().phase.as_deref(), Some("Running"));
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "sh"}]}});
    let patched = pods
        .patch_ephemeral_containers("p", &PatchParams::default(), &Patch::Strategic(debug))
        .await
        .unwrap();
    assert_eq!(patched.spec.unwrap().ephemeral_containers.unwrap()[0].name, "debug");
    // The log of a pod without a node is empty.
    assert_eq!(pods.logs("p", &kube::api::LogParams::default()).await.unwrap(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_is_deleted_by_selector() {
    let (_server, client) = upstream().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for i in 0..20 {
        let map = json!({"metadata": {"name": format!("m{i}"), "labels": {"half": if i % 2 == 0 { "even" } else { "odd" }}}});
        api.create(&PostParams::default(), &object(map)).await.unwrap();
    }
    let before = api.list(&ListParams::default()).await.unwrap().items.len();
    let odd = ListParams::default().labels("half=odd");
    let deleted =
        api.delete_collection(&DeleteParams::default(), &odd).await.unwrap().left().expect("a deleted list");
    assert_eq!(deleted.items.len(), 10);
    let left = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.len(), before - 10);
    assert!(left.items.iter().all(|map| map.labels().get("half").is_none_or(|half| half == "even")));
    let dry =
        api.delete_collection(&DeleteParams::default().dry_run(), &ListParams::default()).await.unwrap();
    assert_eq!(dry.left().unwrap().items.len(), before - 10);
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), before - 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_entry_api_creates_or_modifies_an_object() {
    let (_server, client) = upstream().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let set = |map: &mut ConfigMap, key: &str| {
        map.data.get_or_insert_with(BTreeMap::new).insert(key.to_owned(), "x".to_owned());
    };
    for round in ["first", "second"] {
        let entry = api.entry("e").await.unwrap().or_insert(ConfigMap::default);
        let mut entry = entry.and_modify(|map| set(map, round));
        entry.commit(&PostParams::default()).await.unwrap();
    }
    let data = api.get("e").await.unwrap().data.unwrap();
    assert_eq!(data.into_keys().collect::<Vec<_>>(), ["first", "second"]);

    // A stale writer gets a conflict.
    let mut slow =
        api.entry("e").await.unwrap().or_insert(ConfigMap::default).and_modify(|map| set(map, "slow"));
    let mut fast =
        api.entry("e").await.unwrap().or_insert(ConfigMap::default).and_modify(|map| set(map, "fast"));
    fast.commit(&PostParams::default()).await.unwrap();
    let refused = slow.commit(&PostParams::default()).await.unwrap_err();
    let kube::api::entry::CommitError::Save(kube::Error::Api(status)) = refused else { panic!("{refused}") };
    assert!(status.is_conflict());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finalizer_keeps_the_object_until_it_is_removed() {
    const NAME: &str = "example.com/cleanup";
    let (_server, client) = upstream().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &object(json!({"metadata": {"name": "f"}}))).await.unwrap();
    let reconcile = async || {
        let current = Arc::new(api.get("f").await.unwrap());
        let seen = std::cell::Cell::new("nothing");
        let step = |event: Event<ConfigMap>| {
            seen.set(if matches!(event, Event::Apply(_)) { "apply" } else { "cleanup" });
            async { Ok::<_, std::io::Error>(Action::await_change()) }
        };
        finalizer(&api, NAME, current, step).await.unwrap();
        seen.get()
    };
    assert_eq!(reconcile().await, "nothing"); // the reconciler only adds its finalizer
    assert_eq!(api.get("f").await.unwrap().finalizers(), [NAME]);
    assert_eq!(reconcile().await, "apply");

    let kept =
        api.delete("f", &DeleteParams::default()).await.unwrap().left().expect("the finalizer keeps the map");
    assert!(kept.metadata.deletion_timestamp.is_some());
    let added = Patch::<()>::Json(
        serde_json::from_value(
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/late"}]),
        )
        .unwrap(),
    );
    let refused = refusal(api.patch("f", &PatchParams::default(), &added).await);
    assert!(
        refused.is_invalid() || refused.is_forbidden(),
        "a finalizer cannot be added to an object that is being deleted: {refused:?}"
    );
    assert_eq!(reconcile().await, "cleanup");
    assert!(api.get_opt("f").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_propagation_policy_of_a_delete_is_applied() {
    let (_server, client) = upstream().await;
    let api: Api<Deployment> = Api::default_namespaced(client);
    for (name, policy) in [
        ("b", PropagationPolicy::Background),
        ("o", PropagationPolicy::Orphan),
        ("f", PropagationPolicy::Foreground),
    ] {
        api.create(&PostParams::default(), &object(deployment(name))).await.unwrap();
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let outcome = api.delete(name, &params).await.unwrap();
        // Without dependents the deletion completes, whether or not a collector runs.
        assert!(outcome.is_left() || outcome.right().is_some_and(|status| status.is_success()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_states_the_whole_intent_of_one_manager() {
    let (_server, client) = upstream().await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let intent = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let apply = async |manager: &str, data: Value| {
        maps.patch("a", &PatchParams::apply(manager), &Patch::Apply(intent(data))).await
    };
    let created = apply("one", json!({"a": "1", "b": "1"})).await.unwrap();
    assert_eq!(created.data, Some(BTreeMap::from([("a".into(), "1".into()), ("b".into(), "1".into())])));
    let again = apply("one", json!({"a": "1", "b": "1"})).await.unwrap();
    assert_eq!(again.resource_version(), created.resource_version());
    let status = refusal(apply("two", json!({"a": "2"})).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let causes = status.details.unwrap().causes;
    assert_eq!((causes[0].reason.as_str(), causes[0].field.as_str()), ("FieldManagerConflict", ".data.a"));
    let forced = PatchParams::apply("two").force();
    maps.patch("a", &forced, &Patch::Apply(intent(json!({"a": "2"})))).await.unwrap();
    let left = apply("one", json!({"b": "1"})).await.unwrap();
    assert_eq!(left.data, Some(BTreeMap::from([("a".into(), "2".into()), ("b".into(), "1".into())])));
    let managers: Vec<_> = left.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
    assert_eq!(managers, ["one", "two"]);
}
