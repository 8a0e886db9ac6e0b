//! `history undo`: the tests undo edits of a deployment, the changes of one user, and the deletion of a namespace.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tests::server::binary;
use tests::{Client, Options, PATIENCE, Server};

use super::commands::{json_of, ok, run};
use super::log::{server, until_status};
use crate::backups::flag;
use crate::definitions::{DEFINITIONS, establish};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAMESPACES: &str = "/api/v1/namespaces";

/// Number of objects of each kind in the namespace that is deleted; with 23 kinds there are more than 1 000.
const EACH: usize = 44;

async fn revision(client: &Client) -> u64 {
    let list = client.get(&format!("{NAMESPACES}?limit=1")).await.json();
    list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn created(client: &Client, path: &str, object: &Value) -> Value {
    let reply = client.post(path, object).await;
    assert_eq!(reply.status, 201, "{path}: {}", reply.text());
    reply.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_reverts_edits_creations_and_deletions_and_its_dry_run_changes_nothing() {
    let server = server(&[]).await;
    let client = server.client();
    for name in ["changed", "deleted", "same", "status"] {
        created(
            client,
            MAPS,
            &json!({"metadata": {"name": name, "labels": {"l": "x"}}, "data": {"a": "old"}}),
        )
        .await;
    }
    let since = revision(client).await;
    let patch = json!({"data": {"a": "new"}, "metadata": {"labels": {"l": null}}});
    assert_eq!(client.patch(&format!("{MAPS}/changed"), "merge", &patch).await.status, 200);
    assert_eq!(client.delete(&format!("{MAPS}/deleted")).await.status, 200);
    created(client, MAPS, &json!({"metadata": {"name": "created"}})).await;
    // A change that was already reverted is not a difference.
    for value in ["new", "old"] {
        let patch = json!({"data": {"a": value}});
        assert_eq!(client.patch(&format!("{MAPS}/same"), "merge", &patch).await.status, 200);
    }
    let before = client.get(MAPS).await.text();
    let undo = format!("history undo cm --since={since} -n default");
    let plan = json_of(&server, &format!("{undo} --dry-run")).await;
    let steps = |plan: &Value| {
        let steps = plan["steps"].as_array().unwrap().iter();
        steps
            .map(|step| format!("{} {}", step["action"].as_str().unwrap(), step["name"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(steps(&plan), ["restore changed", "create deleted", "delete created"]);
    assert_eq!(client.get(MAPS).await.text(), before, "a dry run changes nothing");
    // With a selector, the undo includes objects that match now or matched at the point.
    let selected = json_of(&server, &format!("{undo} --dry-run -l l=x")).await;
    assert_eq!(steps(&selected), ["restore changed", "create deleted"]);
    let nothing = json_of(&server, &format!("history undo secrets --since={since} --dry-run")).await;
    assert_eq!(steps(&nothing), [""; 0]);

    let text = ok(&server, &format!("{undo} --yes")).await;
    assert!(text.contains("ACTION") && text.ends_with("3 changes undone\n"), "{text}");
    let list = client.get(MAPS).await.json();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["data"]["a"] == "old" && item["metadata"]["labels"]["l"] == "x")
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["changed", "deleted", "same", "status"]);
    assert_eq!(client.get(&format!("{MAPS}/created")).await.status, 404);
    assert_eq!(ok(&server, &format!("{undo} --yes")).await, "nothing to undo\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_can_revert_the_changes_of_one_user() {
    let server = server(&[]).await;
    let client = server.client();
    let [alice, bob] = ["alice-token", "bob-token"].map(|token| client.with_token(token));
    until_status(&alice, "GET", &format!("{MAPS}/m000"), 404).await;
    for n in 0..600 {
        created(client, MAPS, &json!({"metadata": {"name": format!("m{n:03}")}, "data": {"a": "old"}})).await;
    }
    let since = revision(client).await;
    for n in 0..600 {
        let user = if n < 500 { &bob } else { &alice };
        let patch = json!({"data": {"a": format!("new {n}")}});
        assert_eq!(user.patch(&format!("{MAPS}/m{n:03}"), "merge", &patch).await.status, 200);
    }
    // A change that was made before the user's change stays.
    assert_eq!(
        alice.patch(&format!("{MAPS}/m550"), "merge", &json!({"data": {"b": "alice"}})).await.status,
        200
    );
    assert_eq!(bob.patch(&format!("{MAPS}/m550"), "merge", &json!({"data": {"b": "bob"}})).await.status, 200);

    let undo = format!("history undo configmaps --since={since} --by=bob");
    let report = json_of(&server, &format!("{undo} --yes")).await;
    assert_eq!((&report["done"], &report["stopped"]), (&json!(501), &json!(null)));
    let list = client.get(MAPS).await.json();
    let items = list["items"].as_array().unwrap().iter();
    let data: BTreeMap<&str, &Value> =
        items.map(|item| (item["metadata"]["name"].as_str().unwrap(), &item["data"])).collect();
    for n in 0..600 {
        let want = match n {
            550 => json!({"a": "new 550", "b": "alice"}),
            500.. => json!({"a": format!("new {n}")}),
            _ => json!({"a": "old"}),
        };
        assert_eq!(data[&*format!("m{n:03}")], &want, "m{n:03}");
    }
}

/// Kinds of the namespace: path below the namespace, and the specification of an object.
pub fn kinds() -> Vec<(&'static str, &'static str, Value)> {
    let labels = json!({"app": "a"});
    let selector = json!({"matchLabels": labels});
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    let job = json!({"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let scaled = json!({"spec": {"replicas": 1, "selector": selector, "template": template}});
    let g = "/apis/g.example.com/v1";
    vec![
        ("/apis/apps/v1", "deployments", scaled.clone()),
        ("/apis/apps/v1", "replicasets", scaled.clone()),
        ("/api/v1", "pods", json!({"metadata": {"labels": labels}, "spec": {"containers": containers}})),
        ("/api/v1", "configmaps", json!({"data": {"a": "1"}})),
        ("/api/v1", "secrets", json!({"stringData": {"a": "1"}})),
        ("/api/v1", "serviceaccounts", json!({})),
        ("/api/v1", "services", json!({"spec": {"ports": [{"port": 80}], "selector": labels}})),
        (
            "/api/v1",
            "replicationcontrollers",
            json!({"spec": {"replicas": 1, "selector": labels, "template": template}}),
        ),
        ("/api/v1", "resourcequotas", json!({"spec": {"hard": {"count/widgets.example.com": "5"}}})),
        ("/api/v1", "persistentvolumeclaims", json!({"spec": claim})),
        ("/api/v1", "podtemplates", json!({"template": template})),
        (
            "/apis/apps/v1",
            "statefulsets",
            json!({"spec": {"serviceName": "s", "selector": selector, "template": template}}),
        ),
        ("/apis/apps/v1", "daemonsets", json!({"spec": {"selector": selector, "template": template}})),
        ("/apis/batch/v1", "jobs", json!({"spec": job})),
        (
            "/apis/batch/v1",
            "cronjobs",
            json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}}),
        ),
        ("/apis/networking.k8s.io/v1", "ingresses", json!({"spec": {"defaultBackend": backend}})),
        ("/apis/networking.k8s.io/v1", "networkpolicies", json!({"spec": {"podSelector": {}}})),
        ("/apis/rbac.authorization.k8s.io/v1", "roles", json!({"rules": []})),
        ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", json!({"roleRef": role})),
        (
            "/apis/policy/v1",
            "poddisruptionbudgets",
            json!({"spec": {"minAvailable": 1, "selector": selector}}),
        ),
        (
            "/apis/autoscaling/v2",
            "horizontalpodautoscalers",
            json!({"spec": {"scaleTargetRef": target, "maxReplicas": 2}}),
        ),
        (g, "gears", json!({"apiVersion": "g.example.com/v1", "kind": "Gear", "spec": {"size": 1}})),
        (g, "levers", json!({"apiVersion": "g.example.com/v1", "kind": "Lever", "spec": {"size": 1}})),
    ]
}

fn reference(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "controller": owner["kind"] != "Gear",
    }])
}

pub async fn define(server: &Server) {
    for plural in ["gears", "levers"] {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        establish(server, &crate::definitions::definition(plural, json!([version]))).await;
    }
}

/// Fills the namespace. Deployments own replica sets, replica sets own pods, and gears own secrets.
pub async fn fill(client: &Client, namespace: &str, each: usize) {
    created(client, NAMESPACES, &json!({"metadata": {"name": namespace}})).await;
    // Pods need the account.
    let account = format!("{NAMESPACES}/{namespace}/serviceaccounts/default");
    client.until(&account, |account| account.is_some()).await;
    let mut owners: BTreeMap<(&str, usize), Value> = BTreeMap::new();
    let mut kinds = kinds();
    // Owners are created before their dependents.
    kinds.sort_by_key(|(_, plural, _)| *plural != "gears");
    for (root, plural, object) in &kinds {
        for n in 0..each {
            let mut object = object.clone();
            object["metadata"]["name"] = format!("{plural}-{n}").into();
            let owner = match *plural {
                "replicasets" => Some("deployments"),
                "pods" => Some("replicasets"),
                "secrets" => Some("gears"),
                _ => None,
            };
            if let Some(owner) = owner {
                object["metadata"]["ownerReferences"] = reference(&owners[&(owner, n)]);
            }
            let made = created(client, &format!("{root}/namespaces/{namespace}/{plural}"), &object).await;
            owners.insert((plural, n), made);
        }
    }
}

/// Returns all objects of the namespace without the members that the server sets; each owner reference is replaced by
/// whether it refers to a present object.
async fn contents(client: &Client, namespace: &str) -> BTreeMap<String, Value> {
    let mut uids = BTreeMap::new();
    let mut contents = BTreeMap::new();
    for (root, plural, _) in kinds() {
        let list = client.get(&format!("{root}/namespaces/{namespace}/{plural}")).await.json();
        for mut item in list["items"].as_array().unwrap().iter().cloned() {
            let name = item["metadata"]["name"].as_str().unwrap().to_owned();
            uids.insert(item["metadata"]["uid"].as_str().unwrap().to_owned(), name.clone());
            let members = item.as_object_mut().unwrap();
            members.remove("status");
            let metadata = members["metadata"].as_object_mut().unwrap();
            let own = ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"];
            metadata.retain(|name, _| !own.contains(&name.as_str()));
            let text = item.to_string();
            // The server generates the selector of a job from its uid.
            if plural == "jobs" {
                assert!(text.contains("controller-uid"), "{text}");
                item["spec"]["selector"] = Value::Null;
                item["spec"]["template"]["metadata"]["labels"] = Value::Null;
            }
            contents.insert(format!("{plural}/{name}"), item);
        }
    }
    for item in contents.values_mut() {
        for owner in item["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            let uid = owner["uid"].as_str().unwrap();
            owner["uid"] = uids.get(uid).cloned().unwrap_or_else(|| format!("{uid} is gone")).into();
        }
    }
    contents
}

fn assert_same(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    for (name, object) in before {
        assert_eq!(after.get(name), Some(object), "{name}");
    }
    assert_eq!(before.len(), after.len());
}

/// Starts an undo, and kills its process when it has restored some objects of the first kinds.
async fn kill_undo(server: &Server, undo: &str) {
    let kubeconfig = flag("kubeconfig", &server.kubeconfig());
    let words = undo.split(' ').chain(["--yes", &kubeconfig]);
    let mut killed = Command::new(binary()).args(words).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while server.client().get("/api/v1/namespaces/shop/configmaps/configmaps-20").await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "the undo makes no progress");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_undo_that_was_killed_and_run_again_restores_a_deleted_namespace() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    define(&server).await;
    fill(client, "shop", EACH).await;
    let before = contents(client, "shop").await;
    assert!(before.len() > 1_000, "{}", before.len());
    let since = revision(client).await;
    let reply = client.delete(&format!("{NAMESPACES}/shop")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    client.until_gone(&format!("{NAMESPACES}/shop")).await;

    let undo = format!("history undo --since={since} -n shop");
    let plan = json_of(&server, &format!("{undo} --dry-run")).await;
    let all = plan["steps"].as_array().unwrap().len();
    assert!(all > 1_000, "{all}");
    assert_eq!((&plan["steps"][0]["resource"], &plan["done"]), (&json!("namespaces"), &json!(0)));
    assert_eq!(client.get(&format!("{NAMESPACES}/shop")).await.status, 404);

    let later = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/poddisruptionbudgets-1";
    kill_undo(&server, &undo).await;
    let begun = Instant::now();
    while client.get(later).await.status != 404 {
        // On a slow machine the kill came too late.
        assert!(begun.elapsed() < 2 * PATIENCE, "the undo is never killed in time");
        assert_eq!(client.delete(&format!("{NAMESPACES}/shop")).await.status, 200);
        client.until_gone(&format!("{NAMESPACES}/shop")).await;
        kill_undo(&server, &undo).await;
    }

    let report = json_of(&server, &format!("{undo} --yes")).await;
    assert_eq!(report["stopped"], json!(null), "{report}");
    let done = report["done"].as_u64().unwrap() as usize;
    assert!(done > 100 && done < all, "{done} of {all}");
    assert_same(&before, &contents(client, "shop").await);
    assert_eq!(ok(&server, &format!("{undo} --yes")).await, "nothing to undo\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn undo_restores_namespaces_definitions_and_objects_and_stops_at_a_refusal() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    define(&server).await;
    fill(client, "shop", 2).await;
    let before = contents(client, "shop").await;
    let since = revision(client).await;
    let levers = format!("{DEFINITIONS}/levers.g.example.com");
    for path in [format!("{NAMESPACES}/shop"), levers.clone()] {
        assert_eq!(client.delete(&path).await.status, 200);
        client.until_gone(&path).await;
    }
    created(client, NAMESPACES, &json!({"metadata": {"name": "new"}})).await;
    created(client, "/api/v1/namespaces/new/configmaps", &json!({"metadata": {"name": "new"}})).await;

    // A policy refuses one of the restores.
    let policy = json!({
        "metadata": {"name": "no-gears"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["g.example.com"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["gears"]},
            ]},
            "validations": [{"expression": "object.metadata.name != 'gears-1'", "message": "gears-1 is refused"}],
        },
    });
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let bindings = policies.replace("policies", "policybindings");
    created(client, policies, &policy).await;
    let binding = json!({"metadata": {"name": "no-gears"}, "spec": {"policyName": "no-gears", "validationActions": ["Deny"]}});
    created(client, &bindings, &binding).await;
    let gear = json!({"apiVersion": "g.example.com/v1", "kind": "Gear", "metadata": {"name": "gears-1"}});
    let begun = Instant::now();
    let probe = "/apis/g.example.com/v1/namespaces/default/gears?dryRun=All";
    while client.post(probe, &gear).await.status != 422 {
        assert!(begun.elapsed() < PATIENCE, "the policy is not in effect");
    }
    let undo = format!("history undo --since={since}");
    let stopped = run(&server, &format!("{undo} --yes")).await;
    let text = String::from_utf8_lossy(&stopped.stdout).into_owned();
    assert_eq!(stopped.status.code(), Some(1), "{text}");
    assert!(text.contains("gears-1 is refused") && text.contains("stopped after "), "{text}");
    assert!(text.contains("run the command again"), "{text}");

    for path in [format!("{bindings}/no-gears"), format!("{policies}/no-gears")] {
        assert_eq!(client.delete(&path).await.status, 200);
    }
    while client.post(probe, &gear).await.status != 201 {
        assert!(begun.elapsed() < PATIENCE, "the policy is still in effect");
    }
    let done = ok(&server, &format!("{undo} --yes")).await;
    assert!(done.contains(" undone\n"), "{done}");
    assert_same(&before, &contents(client, "shop").await);
    client.until_gone(&format!("{NAMESPACES}/new")).await;
    assert_eq!(ok(&server, &format!("{undo} --yes")).await, "nothing to undo\n");
}
