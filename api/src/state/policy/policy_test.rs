//! Tests of authorization over a real engine: every acknowledged write of a role or binding takes effect at
//! once.

use std::sync::Arc;
use std::time::Instant;

use auth::attributes::Attributes;
use auth::authn::service_account::AccountSource;
use auth::authz::{Authorizer, Module, NodePolicy};
use auth::{Decision, User};
use engine::{Change, Durability, Expected, Options, Payload, Write};

use super::*;
use testkit::TempDir;

/// Opens an engine in a test directory, without waiting for syncs.
fn engine(directory: &TempDir) -> Engine {
    Engine::open(Options { durability: Durability::Relaxed, ..Options::new(directory.path()) }).unwrap()
}

async fn write(engine: &Engine, key: &str, value: Option<&str>) {
    let change = match value {
        Some(text) => {
            let value = Bytes::from(text.replace('\'', "\""));
            Change::Put(Payload { value, ..Payload::default() })
        }
        None => Change::Delete(None),
    };
    let key = Bytes::from(key.to_owned());
    engine.commit(Write { key, expected: Expected::Any, change }).await.unwrap();
}

fn authorizer(engine: &Engine) -> Authorizer {
    let policy = EnginePolicy::new(engine.clone()).unwrap();
    Authorizer::new(vec![Module::Rbac], Arc::new(policy), "rbac")
}

fn decide(authorizer: &Authorizer, verb: &str, namespace: &str) -> Decision {
    let jane = User::new("jane", ["dev"]);
    let nothing = Attributes::path(&jane, verb, "");
    let attributes = Attributes { resource_request: true, resource: "pods", namespace, ..nothing };
    authorizer.decide_now(&attributes).unwrap().decision
}

fn role(verb: &str) -> String {
    format!("{{'rules':[{{'verbs':['{verb}'],'apiGroups':[''],'resources':['pods']}}]}}")
}

const BIND_LOCAL: &str =
    "{'roleRef':{'kind':'Role','name':'r'},'subjects':[{'kind':'User','name':'jane'},{'kind':'Robot'}]}";
const BIND_CLUSTER: &str =
    "{'roleRef':{'kind':'ClusterRole','name':'c'},'subjects':[{'kind':'Group','name':'dev'}]}";

#[tokio::test]
async fn a_decision_includes_every_write_acknowledged_before_it() {
    let temp = TempDir::new();
    let engine = engine(&temp);
    write(&engine, "/rbac.authorization/roles/ns/r", Some(&role("get"))).await;
    let authorizer = authorizer(&engine);
    let may = |verb: &str, namespace: &str| decide(&authorizer, verb, namespace).is_allowed();
    assert!(!may("get", "ns"));
    write(&engine, "/rbac.authorization/rolebindings/ns/b", Some(BIND_LOCAL)).await;
    assert!(may("get", "ns") && !may("get", "other") && !may("put", "ns"));
    write(&engine, "/core/configmaps/ns/x", Some("{}")).await;
    assert!(may("get", "ns"));
    write(&engine, "/rbac.authorization/roles/ns/r", Some(&role("put"))).await;
    assert!(!may("get", "ns") && may("put", "ns"));
    write(&engine, "/rbac.authorization/clusterrolebindings/b", Some(BIND_CLUSTER)).await;
    assert_eq!(
        decide(&authorizer, "get", "x").reason().to_string(),
        r#"RBAC: clusterrole.rbac "c" not found"#
    );
    write(&engine, "/rbac.authorization/clusterroles/c", Some(&role("get"))).await;
    assert!(may("get", "x") && may("get", ""));
    write(&engine, "/rbac.authorization/clusterrolebindings/b", None).await;
    assert!(!may("get", "x") && may("put", "ns"));
    write(&engine, "/rbac.authorization/rolebindings/ns/b", None).await;
    assert!(!may("put", "ns"));
    // Objects of other kinds, and roles and bindings that cannot be read, are ignored.
    write(&engine, "/rbac.authorization/things/x", Some("{}")).await;
    write(&engine, "/rbac.authorization/roles/x", Some("{}")).await;
    write(&engine, "/rbac.authorization/clusterrolebindings/b", Some("{not json")).await;
    write(&engine, "/rbac.authorization/clusterrolebindings/c", Some("[1]")).await;
    assert!(!may("get", "x"));
    // A second authorizer, which starts later, reads the same state.
    write(&engine, "/rbac.authorization/clusterrolebindings/b", Some(BIND_CLUSTER)).await;
    assert!(may("get", "x") && decide(&self::authorizer(&engine), "get", "x").is_allowed());
    engine.close().await;
    assert!(may("get", "x"), "what is in memory outlives the engine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_never_miss_a_revocation_while_others_write() {
    let temp = TempDir::new();
    let engine = engine(&temp);
    write(&engine, "/rbac.authorization/clusterroles/c", Some(&role("get"))).await;
    let authorizer = Arc::new(authorizer(&engine));
    let noise = {
        let engine = engine.clone();
        tokio::spawn(async move {
            for n in 0..300 {
                write(&engine, &format!("/rbac.authorization/rolebindings/ns/b{n}"), Some(BIND_LOCAL)).await;
            }
        })
    };
    for _ in 0..150 {
        write(&engine, "/rbac.authorization/clusterrolebindings/b", Some(BIND_CLUSTER)).await;
        assert!(decide(&authorizer, "get", "x").is_allowed());
        write(&engine, "/rbac.authorization/clusterrolebindings/b", None).await;
        assert!(!decide(&authorizer, "get", "x").is_allowed());
    }
    noise.await.unwrap();
}

#[tokio::test]
async fn the_cost_of_an_authorization_check_does_not_grow_with_the_number_of_bindings() {
    let temp = TempDir::new();
    let engine = engine(&temp);
    write(&engine, "/rbac.authorization/clusterroles/c", Some(&role("get"))).await;
    write(&engine, "/rbac.authorization/clusterrolebindings/b", Some(BIND_CLUSTER)).await;
    let others =
        (0..3_000).map(|n| {
            let other = BIND_CLUSTER.replace("dev", &format!("group-{n}"));
            let engine = &engine;
            async move {
                write(engine, &format!("/rbac.authorization/clusterrolebindings/b{n}"), Some(&other)).await
            }
        });
    futures_util::future::join_all(others).await;
    let authorizer = authorizer(&engine);
    let rounds = (0..100).map(|_| {
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(decide(&authorizer, "get", "x").is_allowed());
        }
        begun.elapsed() / 20
    });
    // A decision takes about a microsecond; a scan of three thousand bindings would take a hundred. Most
    // rounds may be interrupted.
    let fastest = rounds.min().unwrap();
    assert!(fastest.as_micros() < 50, "{fastest:?} for a check");
}

#[tokio::test]
async fn accounts_and_pods_are_looked_up_with_uid_and_deletion_time() {
    let temp = TempDir::new();
    let engine = engine(&temp);
    write(
        &engine,
        "/core/serviceaccounts/ns/robot",
        Some("{'metadata':{'name':'robot','uid':'u1'},'x':[1]}"),
    )
    .await;
    write(
        &engine,
        "/core/pods/ns/p",
        Some("{'metadata':{'uid':'u2','deletionTimestamp':'2026-01-01T00:00:00Z'}}"),
    )
    .await;
    write(&engine, "/core/nodes/n", Some("{'metadata':{'uid':'u3'}}")).await;
    write(&engine, "/core/secrets/ns/s", Some("{damaged")).await;
    let accounts = EngineAccounts::new(engine, &values::naming::KUBERNETES);
    let uid = |found: Option<auth::authn::service_account::Incarnation>| found.map(|life| life.uid);
    assert_eq!(uid(accounts.service_account("ns", "robot")).as_deref(), Some("u1"));
    assert_eq!(uid(accounts.service_account("ns", "other")), None);
    assert_eq!(uid(accounts.node("n")).as_deref(), Some("u3"));
    assert_eq!(uid(accounts.secret("ns", "s")), None);
    let pod = accounts.pod("ns", "p").unwrap();
    let since_epoch = pod.deleted.unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!((pod.uid.as_str(), since_epoch.as_secs()), ("u2", 1_767_225_600));
}

#[tokio::test]
async fn the_node_authorizer_explains_its_refusals() {
    // See docs/api/authorization.md#node-authorizer.
    const UNRELATED: &str = "no relationship found between node 'n' and this object";
    const ONE_BY_ONE: &str = "can only get individual resources of this type";
    let dir = TempDir::new();
    let nodes = NodeAuthorizer::new(engine(&dir), &values::naming::KUBERNETES);
    let agent = User::new("system:node:n", ["system:nodes"]);
    for (request, want) in [
        ("get - secrets status ns s", "cannot read subresource"),
        ("patch - secrets - ns s", "can only read resources of this type"),
        ("list - configmaps - - -", "can only read namespaced object of this type"),
        ("list - configmaps - ns -", "No Object name found"),
        ("get storage.k8s.io volumeattachments status - a", "cannot get subresource"),
        ("patch storage.k8s.io volumeattachments status - a", ONE_BY_ONE),
        ("get resource.k8s.io resourceclaims status ns c", "cannot get subresource"),
        ("get - persistentvolumes status - v", "cannot get subresource"),
        ("get - persistentvolumeclaims status ns c", "can only get/update/patch this type"),
        ("patch - persistentvolumeclaims status ns c", UNRELATED),
        ("list - persistentvolumeclaims - ns -", ONE_BY_ONE),
        ("get - serviceaccounts - ns a", UNRELATED),
        ("list - serviceaccounts - ns -", "can only create tokens for individual service accounts"),
        ("delete - serviceaccounts - ns a", "can only create tokens for individual service accounts"),
        ("create - serviceaccounts x ns a", "can only create token subresource of serviceaccount"),
        ("create - serviceaccounts token ns a", UNRELATED),
        ("list - pods - ns p", UNRELATED),
        ("list - pods - ns -", "can only list/watch pods with spec.nodeName field selector"),
        ("create - pods - ns -", "yes"),
        ("create - pods eviction ns p", "yes"),
        ("create - pods binding ns p", ""),
        ("get - nodes - - n", "yes"),
        ("get - nodes status - n", ""),
        ("patch - nodes status - n", "yes"),
        ("delete - nodes - - n", ""),
        ("get storage.k8s.io csinodes status - n", "cannot authorize CSINode subresources"),
        ("get resource.k8s.io resourceslices status - s", "cannot authorize ResourceSlice subresources"),
        ("get resource.k8s.io resourceslices - - s", UNRELATED),
        (
            "list resource.k8s.io resourceslices - - -",
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        (
            "bind resource.k8s.io resourceslices - - -",
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, \
             deletecollection",
        ),
        // These groups are not built in: only the beginnings of the group names equal the names of built-in groups.
        ("create resource.example.com resourceslices - - -", ""),
        ("get resource resourceclaims - ns c", ""),
        ("get storage.example.com csinodes - - n", ""),
    ] {
        let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let [verb, group, resource, subresource, namespace, name] = words[..] else { panic!("{request}") };
        let nothing = Attributes::path(&agent, verb, "");
        let attributes =
            Attributes { resource_request: true, group, resource, subresource, namespace, name, ..nothing };
        let got = match nodes.decide(&attributes) {
            Decision::Allow { .. } => "yes".to_owned(),
            decision => decision.reason().to_string(),
        };
        assert_eq!(got, want, "{request}");
    }
}

#[tokio::test]
async fn a_node_agent_reads_the_objects_that_pods_of_its_node_refer_to() {
    // See docs/api/authorization.md#node-authorizer.
    let mirror = "'annotations':{'kubernetes.io/config.mirror':'x'}";
    let named = "'resourceClaims':[{'name':'a','resourceClaimName':'c'}]";
    let made = "'resourceClaimStatuses':[{'name':'a','resourceClaimName':'c'}]";
    let extended = "'extendedResourceClaimStatus':{'requestMappings':[],'resourceClaimName':'c'}";
    let secret = "'imagePullSecrets':[{'name':'c'}]";
    let [claims, secrets] = [("resource.k8s.io", "resourceclaims"), ("", "secrets")];
    let dir = TempDir::new();
    let engine = engine(&dir);
    let nodes = NodeAuthorizer::new(engine.clone(), &values::naming::KUBERNETES);
    let agent = User::new("system:node:n", ["system:nodes"]);
    for ((group, resource), node, metadata, spec, status, is_allowed) in [
        (claims, "n", "", named, "", true),
        (claims, "m", "", named, "", false),
        (claims, "n", "", "", made, true),
        (claims, "n", "", "", extended, true),
        (claims, "m", "", "", extended, false),
        (claims, "n", mirror, named, "", false),
        (claims, "n", mirror, "", extended, false),
        (claims, "n", "", secret, "", false),
        (secrets, "n", "", secret, "", true),
        (secrets, "n", mirror, secret, "", false),
        (secrets, "n", "", secret, "'phase':'Failed'", true),
        (secrets, "n", "", named, extended, false),
    ] {
        let spec = if spec.is_empty() { String::new() } else { format!("{spec},") };
        let pod = format!(
            "{{'metadata':{{{metadata}}},'spec':{{{spec}'nodeName':'{node}'}},'status':{{{status}}}}}"
        );
        write(&engine, "/core/pods/ns/p", Some(&pod)).await;
        let nothing = Attributes::path(&agent, "get", "");
        let attributes =
            Attributes { resource_request: true, group, resource, namespace: "ns", name: "c", ..nothing };
        assert_eq!(nodes.decide(&attributes).is_allowed(), is_allowed, "{resource} {pod}");
    }
}

#[tokio::test]
async fn a_node_agent_reads_volumes_bound_to_a_claim_of_its_pods() {
    // Each row: spec of the volume, claim of the pod, readable volume, readable secret
    // (docs/api/authorization.md#node-authorizer).
    let bound = "'claimRef':{'namespace':'ns','name':'c'}";
    let csi = |member: &str| format!("{bound},'csi':{{'{member}':{{'namespace':'ns','name':'s'}}}}");
    let dir = TempDir::new();
    let engine = engine(&dir);
    let nodes = NodeAuthorizer::new(engine.clone(), &values::naming::KUBERNETES);
    let agent = User::new("system:node:n", ["system:nodes"]);
    let may_get = |resource: &str, namespace: &str, name: &str| {
        let nothing = Attributes::path(&agent, "get", "");
        nodes
            .decide(&Attributes { resource_request: true, resource, namespace, name, ..nothing })
            .is_allowed()
    };
    for (volume, claim, is_volume_allowed, is_secret_allowed) in [
        (bound.to_owned(), "c", true, false),
        (bound.to_owned(), "d", false, false),
        ("'csi':{'nodePublishSecretRef':{'namespace':'ns','name':'s'}}".to_owned(), "c", false, false),
        (csi("nodePublishSecretRef"), "c", true, true),
        (csi("nodePublishSecretRef"), "d", false, false),
        (csi("nodeStageSecretRef"), "c", true, true),
        (csi("nodeExpandSecretRef"), "c", true, true),
        (csi("controllerExpandSecretRef"), "c", true, false),
        (csi("controllerPublishSecretRef"), "c", true, false),
        (format!("{bound},'rbd':{{'secretRef':{{'name':'s'}}}}"), "c", true, true),
        (format!("{bound},'rbd':{{'secretRef':{{'namespace':'x','name':'s'}}}}"), "c", true, false),
        (format!("{bound},'azureFile':{{'secretName':'s'}}"), "c", true, true),
        (format!("{bound},'azureFile':{{'secretName':'s','secretNamespace':'x'}}"), "c", true, false),
    ] {
        write(&engine, "/core/persistentvolumes/v", Some(&format!("{{'spec':{{{volume}}}}}"))).await;
        let pod = format!(
            "{{'spec':{{'nodeName':'n','volumes':[{{'name':'v','persistentVolumeClaim':{{'claimName':'{claim}'}}}}]}}}}"
        );
        write(&engine, "/core/pods/ns/p", Some(&pod)).await;
        assert_eq!(may_get("persistentvolumes", "", "v"), is_volume_allowed, "{volume} {claim}");
        assert_eq!(may_get("secrets", "ns", "s"), is_secret_allowed, "{volume} {claim}");
    }
}

#[test]
fn a_chain_of_aggregated_roles_is_resolved_in_one_pass() {
    // The role admin includes edit, which includes view, by labels (docs/api/authorization.md#rbac,
    // docs/api/controllers.md#role-aggregation).
    let parse = |text: &str| json::parse(text.replace('\'', "\"").as_bytes()).unwrap();
    let selector = |to: &str| {
        format!("'aggregationRule':{{'clusterRoleSelectors':[{{'matchLabels':{{'to':'{to}'}}}}]}}")
    };
    let mut roles = vec![
        parse(&format!("{{'metadata':{{'name':'admin'}},{},'rules':null}}", selector("admin"))),
        parse(&format!("{{'metadata':{{'name':'edit','labels':{{'to':'admin'}}}},{}}}", selector("edit"))),
        parse("{'metadata':{'name':'a','labels':{'to':'edit'}},'rules':[{'verbs':['x'],'resources':['r']}]}"),
        parse(
            "{'metadata':{'name':'b','labels':{'to':'admin'}},'rules':[{'verbs':['y'],'nonResourceURLs':['/']}]}",
        ),
    ];
    for (at, rules) in aggregated(&roles) {
        roles[at].as_object_mut().unwrap().insert("rules", rules);
    }
    assert_eq!(aggregated(&roles), []);
    let verbs = |name: &str| -> Vec<String> {
        let role = roles.iter().find(|role| role.str_at(&["metadata", "name"]) == name).unwrap();
        rules::read_rules(role.get("rules")).into_iter().flat_map(|rule| rule.verbs).collect()
    };
    assert_eq!(verbs("edit"), ["x"]);
    assert_eq!(verbs("admin"), ["y", "x"]);
}
