//! Tests with the unmodified `kube` crate: typed and dynamic objects, chunks, watches, and the errors
//! that programs match on.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use kube::api::{
    Api, DeleteParams, DynamicObject, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
    VersionMatch, WatchEvent, WatchParams,
};
use kube::core::{GroupVersion, GroupVersionKind, NamespaceResourceScope};
use kube::discovery::{self, Discovery, Scope, verbs};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::support::{kube_client, kube_config, refusal, upstream};

/// Returns a typed object from JSON.
pub fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the test's object fits its type")
}

pub fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

pub fn deployment(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}]}
            }
        }
    })
}

/// Creates, reads, lists, replaces, replaces with a stale version, and deletes an object.
async fn live_through<K>(api: &Api<K>, new: K)
where
    K: Resource + Clone + Debug + PartialEq + serde::Serialize + serde::de::DeserializeOwned,
{
    let name = new.name_any();
    let created = api.create(&PostParams::default(), &new).await.unwrap();
    assert!(created.uid().is_some() && created.creation_timestamp().is_some(), "{created:?}");
    assert_eq!(api.get(&name).await.unwrap(), created);
    let listed = api.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await.unwrap();
    assert_eq!(listed.items, std::slice::from_ref(&created));

    let mut desired = created.clone();
    desired.labels_mut().insert("changed".into(), "yes".into());
    let replaced = api.replace(&name, &PostParams::default(), &desired).await.unwrap();
    assert_eq!(replaced.labels()["changed"], "yes");
    assert_eq!(replaced.uid(), created.uid());
    assert_ne!(replaced.resource_version(), created.resource_version());

    let stale = refusal(api.replace(&name, &PostParams::default(), &desired).await);
    assert_eq!((stale.code, stale.reason.as_str()), (409, "Conflict"));
    let again = refusal(api.create(&PostParams::default(), &new).await);
    assert_eq!((again.code, again.reason.as_str()), (409, "AlreadyExists"));

    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut imagined = replaced.clone();
    imagined.labels_mut().insert("imagined".into(), "yes".into());
    assert_eq!(api.replace(&name, &dry, &imagined).await.unwrap().labels()["imagined"], "yes");
    assert_eq!(api.get(&name).await.unwrap(), replaced);

    let other = Preconditions { uid: Some("another".into()), resource_version: None };
    let refused = api.delete(&name, &DeleteParams::default().preconditions(other)).await.map(|_| ());
    assert!(refusal(refused).is_conflict());
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt(&name).await.unwrap().is_none());
    let gone = refusal(api.delete(&name, &DeleteParams::default()).await.map(|_| ()));
    assert_eq!((gone.code, gone.reason.as_str()), (404, "NotFound"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typed_objects_can_be_created_read_changed_and_deleted() {
    let (_server, client) = upstream().await;
    async fn run<K>(client: &kube::Client, value: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + PartialEq,
        K: serde::Serialize + serde::de::DeserializeOwned,
    {
        live_through::<K>(&Api::default_namespaced(client.clone()), object(value)).await;
    }
    run::<ConfigMap>(
        &client,
        json!({"metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"b": "AAH/"}}),
    )
    .await;
    run::<Secret>(&client, json!({"metadata": {"name": "a"}, "type": "Opaque", "data": {"k": "dg=="}})).await;
    run::<Pod>(&client, pod("a")).await;
    run::<Deployment>(&client, deployment("a")).await;
    run::<Service>(
        &client,
        json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "clusterIP": "None"}}),
    )
    .await;

    // After the delete a namespace waits for its content and accepts no new objects.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "n"}}))).await.unwrap();
    let inside: Api<ConfigMap> = Api::namespaced(client, "n");
    let kept = json!({"metadata": {"name": "kept", "finalizers": ["example.com/keep"]}});
    inside.create(&PostParams::default(), &object(kept)).await.unwrap();
    let terminating =
        namespaces.delete("n", &DeleteParams::default()).await.unwrap().left().expect("it still exists");
    assert_eq!(terminating.status.unwrap().phase.as_deref(), Some("Terminating"));
    let refused =
        refusal(inside.create(&PostParams::default(), &object(json!({"metadata": {"name": "a"}}))).await);
    assert!(refused.is_forbidden(), "{refused:?}");
    assert_eq!(refused.details.unwrap().causes[0].reason, "NamespaceTerminating");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_finds_every_resource_and_each_can_be_listed() {
    let (_server, client) = upstream().await;
    let classic = Discovery::new(client.clone()).run().await.unwrap();
    let aggregated = Discovery::new(client.clone()).run_aggregated().await.unwrap();
    let describe = |found: &Discovery| -> BTreeSet<String> {
        let groups = found.groups().flat_map(|group| group.recommended_resources());
        let lines = groups.map(|(resource, can)| {
            // The client sets the group of a subresource's kind in two ways, so only names and verbs are compared.
            let parts =
                can.subresources.iter().map(|(part, can)| format!("{}{:?}", part.plural, can.operations));
            format!("{resource:?} {:?} {:?} {:?}", can.scope, can.operations, parts.collect::<BTreeSet<_>>())
        });
        lines.collect()
    };
    assert_eq!(describe(&classic), describe(&aggregated));
    for group in ["", "apps", "batch", "policy", "autoscaling", "rbac.authorization.k8s.io", "events.k8s.io"]
    {
        assert!(classic.has_group(group), "{group}");
    }

    let mut listed = 0;
    for (resource, can) in classic.groups().flat_map(|group| group.recommended_resources()) {
        if !can.supports_operation(verbs::LIST) {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let list =
            api.list(&ListParams::default()).await.unwrap_or_else(|error| panic!("{resource:?}: {error}"));
        assert_eq!(list.types.kind, format!("{}List", resource.kind));
        assert_eq!(list.types.api_version, resource.api_version);
        listed += 1;
    }
    assert!(listed >= 40, "only {listed} kinds can be listed");

    let apps = discovery::pinned_group(&client, &GroupVersion::gv("apps", "v1")).await.unwrap();
    assert_eq!(apps.preferred_version(), Some("v1"));
    let absent = discovery::group(&client, "no.such.group").await.map(|_| ());
    assert!(matches!(absent, Err(kube::Error::Discovery(_))), "{absent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamic_objects_of_discovered_types_can_be_created_and_deleted() {
    let (_server, client) = upstream().await;
    for (group, version, kind, body) in [
        ("", "v1", "ConfigMap", json!({"data": {"k": "v"}})),
        ("apps", "v1", "Deployment", json!({"spec": deployment("a")["spec"]})),
        (
            "batch",
            "v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
        ),
        (
            "coordination.k8s.io",
            "v1",
            "Lease",
            json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}),
        ),
        (
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRole",
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        ("scheduling.k8s.io", "v1", "PriorityClass", json!({"value": 1000})),
        ("storage.k8s.io", "v1", "StorageClass", json!({"provisioner": "example.com/p"})),
        (
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Ingress"]}}),
        ),
    ] {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let (resource, can) = discovery::pinned_kind(&client, &gvk).await.unwrap();
        let api = Api::<DynamicObject>::dynamic(client.clone(), &resource, &can.scope);
        let api = if can.scope == Scope::Namespaced { api.constrain_default() } else { api };
        let mut new = DynamicObject::new("a", &resource);
        new.data = body;
        let created =
            api.create(&PostParams::default(), &new).await.unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert_eq!(created.types, new.types);
        assert_eq!(api.get("a").await.unwrap(), created);

        let mut desired = created.clone();
        desired.annotations_mut().insert("example.com/a".into(), "b".into());
        let replaced = api.replace("a", &PostParams::default(), &desired).await.unwrap();
        assert_eq!(replaced.data, created.data, "{kind}");
        assert!(refusal(api.replace("a", &PostParams::default(), &desired).await).is_conflict());
        let version = replaced.resource_version().unwrap();
        let seen = Preconditions { resource_version: Some(version), uid: replaced.uid() };
        api.delete("a", &DeleteParams::background().preconditions(seen)).await.unwrap();
        assert!(api.get_opt("a").await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_in_chunks_shows_one_point_in_time() {
    const OBJECTS: usize = 2500;
    const CHUNK: u32 = 100;
    let (server, client) = upstream().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    // Wait until the controllers have created their object in the new namespace. Then only this test writes there.
    while api.get_opt("kube-root-ca.crt").await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before: BTreeSet<String> =
        api.list(&ListParams::default()).await.unwrap().into_iter().map(|map| map.name_any()).collect();
    // Eight connections write, so that writes share syncs.
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Api::<ConfigMap>::namespaced(kube_client(&server).await, "kube-public"));
    }
    let creations = (0..OBJECTS).map(|i| {
        let api = clients[i % clients.len()].clone();
        async move {
            let half = if i % 2 == 0 { "even" } else { "odd" };
            let map = json!({"metadata": {"name": format!("m{i:05}"), "labels": {"half": half}}, "data": {"i": i.to_string()}});
            api.create(&PostParams::default(), &object(map)).await
        }
    });
    stream::iter(creations).buffer_unordered(32).try_collect::<Vec<_>>().await.unwrap();

    let mut names = BTreeSet::new();
    let (mut params, mut version) = (ListParams::default().limit(CHUNK), None);
    loop {
        let page = api.list(&params).await.unwrap();
        let metadata = page.metadata.clone();
        version = version.or(metadata.resource_version.clone());
        assert_eq!(metadata.resource_version, version, "every page has the same revision");
        let count = page.items.len();
        for map in page {
            assert!(
                map.resource_version().unwrap().parse::<u64>().unwrap()
                    <= version.as_ref().unwrap().parse().unwrap()
            );
            assert!(names.insert(map.name_any()), "{} came twice", map.name_any());
        }
        let left = OBJECTS + before.len() - names.len();
        assert_eq!(metadata.remaining_item_count.unwrap_or(0), left as i64);
        // Meanwhile the collection changes before and after the position of the token.
        let last = names.last().unwrap().clone();
        api.delete(&last, &DeleteParams::default()).await.unwrap();
        let new = json!({"metadata": {"name": format!("{last}-late")}});
        api.create(&PostParams::default(), &object(new)).await.unwrap();
        let end = format!("zz-{left:05}");
        api.create(&PostParams::default(), &object(json!({"metadata": {"name": end}}))).await.unwrap();
        match metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => {
                assert_eq!(count, CHUNK as usize);
                params = ListParams::default().limit(CHUNK).continue_token(&token);
            }
            None => break,
        }
    }
    let mut expected: BTreeSet<String> = (0..OBJECTS).map(|i| format!("m{i:05}")).collect();
    expected.extend(before);
    assert_eq!(names, expected);

    // With a selector, chunks are still full, but the response has no remaining count.
    let labels = ListParams::default().labels("half=odd").limit(700);
    let page = api.list(&labels).await.unwrap();
    assert_eq!((page.items.len(), page.metadata.remaining_item_count), (700, None));
    let token = page.metadata.continue_.clone().unwrap();
    let rest = api.list(&labels.clone().limit(5000).continue_token(&token)).await.unwrap();
    let both: BTreeSet<String> = page.items.iter().chain(&rest.items).map(|map| map.name_any()).collect();
    assert_eq!(both.len(), page.items.len() + rest.items.len());
    let whole = api.list(&ListParams::default().labels("half=odd")).await.unwrap();
    assert_eq!(whole.into_iter().map(|map| map.name_any()).collect::<BTreeSet<_>>(), both);

    // The first chunk's version can still be read as a whole.
    let then = ListParams::default().at(&version.unwrap()).matching(VersionMatch::Exact);
    let then: BTreeSet<String> =
        api.list(&then).await.unwrap().into_iter().map(|map| map.name_any()).collect();
    assert_eq!(then, names);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_requests_return_api_errors_with_reason_and_code() {
    let (server, _) = upstream().await;
    // A retrying client would wait for the future version.
    let mut config = kube_config(&server).await;
    config.default_retry = false;
    let client = kube::Client::try_from(config.clone()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let create = async |value: Value| maps.create(&PostParams::default(), &object(value)).await;
    create(json!({"metadata": {"name": "a"}})).await.unwrap();
    let list = async |params: ListParams| maps.list(&params).await;
    let immutable = json!({"metadata": {"name": "fixed"}, "immutable": true, "data": {"a": "b"}});
    let mut fixed = create(immutable).await.unwrap();
    fixed.data = None;

    let mut stranger = config;
    stranger.auth_info = kube::config::AuthInfo::default();
    let mut impostor = stranger.clone();
    impostor.auth_info.token = Some("not-a-token".to_owned().into());
    let as_other = |config| Api::<ConfigMap>::default_namespaced(kube::Client::try_from(config).unwrap());

    for (what, got, code, reason, message) in [
        ("absent", maps.get("nope").await, 404, "NotFound", r#"configmaps "nope" not found"#),
        (
            "twice",
            create(json!({"metadata": {"name": "a"}})).await,
            409,
            "AlreadyExists",
            r#"configmaps "a" already exists"#,
        ),
        (
            "bad name",
            create(json!({"metadata": {"name": "A_B"}})).await,
            422,
            "Invalid",
            "ConfigMap \"A_B\" is invalid: ",
        ),
        (
            "no name",
            create(json!({"metadata": {}})).await,
            422,
            "Invalid",
            "name or generateName is required",
        ),
        (
            "immutable",
            maps.replace("fixed", &PostParams::default(), &fixed).await,
            422,
            "Invalid",
            "field is immutable when `immutable` is set",
        ),
        (
            "other namespace",
            create(json!({"metadata": {"name": "b", "namespace": "other"}})).await,
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "future",
            maps.get_with("a", &GetParams::at("999999999")).await,
            504,
            "Timeout",
            "Too large resource version: 999999999",
        ),
        (
            "anonymous",
            as_other(stranger).get("a").await,
            403,
            "Forbidden",
            r#"User "system:anonymous" cannot get"#,
        ),
        ("bad token", as_other(impostor).get("a").await, 401, "Unauthorized", "Unauthorized"),
    ] {
        let status = refusal(got);
        assert_eq!((status.code, status.reason.as_str()), (code, reason), "{what}: {status:?}");
        assert!(status.message.contains(message), "{what}: {}", status.message);
    }
    for (what, got, code, reason, message) in [
        (
            "bad token",
            list(ListParams::default().continue_token("x")).await,
            400,
            "BadRequest",
            "continue key is not valid",
        ),
        (
            "bad field",
            list(ListParams::default().fields("data=x")).await,
            400,
            "BadRequest",
            "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            "bad label",
            list(ListParams::default().labels("a in (")).await,
            400,
            "BadRequest",
            "unable to parse requirement",
        ),
        (
            "future",
            list(ListParams::default().at("999999999")).await,
            504,
            "Timeout",
            "Too large resource version",
        ),
    ] {
        let status = refusal(got);
        assert_eq!((status.code, status.reason.as_str()), (code, reason), "{what}: {status:?}");
        assert!(status.message.contains(message), "{what}: {}", status.message);
    }
    // The resource does not exist.
    let unknown = kube::api::ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Nonsense"));
    let unknown: Api<DynamicObject> = Api::default_namespaced_with(client, &unknown);
    let status = refusal(unknown.get("x").await);
    assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raw_watch_receives_additions_changes_and_deletions() {
    let (_server, client) = upstream().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let params = WatchParams::default().labels("watched=yes").timeout(290);
    let mut events = api.watch(&params, &start).await.unwrap().boxed();
    let map = |labels: Value| object::<ConfigMap>(json!({"metadata": {"name": "w", "labels": labels}}));
    api.create(&PostParams::default(), &map(json!({}))).await.unwrap();
    for labels in
        [json!({"watched": "yes"}), json!({"watched": "yes", "x": "y"}), json!({}), json!({"watched": "yes"})]
    {
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": labels}]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch).unwrap());
        api.patch("w", &PatchParams::default(), &patch).await.unwrap();
    }
    api.delete("w", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    let mut versions = Vec::new();
    while seen.len() < 5 {
        let (kind, object) = match events.try_next().await.unwrap().expect("the watch continues") {
            WatchEvent::Added(object) => ("added", object),
            WatchEvent::Modified(object) => ("modified", object),
            WatchEvent::Deleted(object) => ("deleted", object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("{status:?}"),
        };
        seen.push(kind);
        versions.push(object.resource_version().unwrap().parse::<u64>().unwrap());
    }
    assert_eq!(seen, ["added", "modified", "deleted", "added", "deleted"]);
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");

    // A watch from a future revision waits, and sends nothing for now.
    let mut old = api.watch(&WatchParams::default(), "999999999999").await.unwrap().boxed();
    let silent = tokio::time::timeout(std::time::Duration::from_millis(300), old.next()).await;
    assert!(silent.is_err(), "a watch from a future revision waits: {silent:?}");
}
