//! Objects with damaged bytes, and their deletion (docs/api/delete.md#unreadable-objects,
//! docs/api/operations.md#flags-and-features).

use std::fs;
use std::path::Path;

use serde_json::json;
use tests::Server;
use tests::server::Options;

use crate::support::metric;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential=true";

/// Flips a bit of `marker` at each position in a segment.
fn damage(data_dir: &Path, marker: &[u8]) {
    let mut found = 0;
    for entry in fs::read_dir(data_dir.join("log")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let positions: Vec<usize> = (0..bytes.len().saturating_sub(marker.len()))
            .filter(|&at| bytes[at] == marker[0] && bytes[at..].starts_with(marker))
            .collect();
        for at in &positions {
            bytes[*at] ^= 1;
        }
        if !positions.is_empty() {
            fs::write(&path, &bytes).unwrap();
            found += positions.len();
        }
    }
    assert!(found > 0, "the marker is in the log");
}

async fn with_damage(gate: bool) -> Server {
    let mut options = Options::default();
    if gate {
        options.flags.push("--feature-gates=AllowUnsafeMalformedObjectDeletion=true".to_owned());
    }
    options.flags.push("--token-auth-file=$dir/tokens.csv".to_owned());
    options.files.push(("tokens.csv", "deleter-token,deleter,1\n".to_owned()));
    let mut server = Server::start(options).await;
    let client = server.client();
    let broken = json!({"metadata": {"name": "broken", "finalizers": ["example.com/hold"]},
        "data": {"marker": "MARKER-OF-THE-BROKEN-ONE"}});
    assert_eq!(client.post(MAPS, &broken).await.status, 201);
    assert_eq!(client.post(MAPS, &json!({"metadata": {"name": "whole"}})).await.status, 201);
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "deleter"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]}]});
    assert_eq!(client.post(&format!("{roles}/clusterroles"), &role).await.status, 201);
    let binding = json!({"metadata": {"name": "deleter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "deleter"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "deleter"}]});
    assert_eq!(client.post(&format!("{roles}/clusterrolebindings"), &binding).await.status, 201);
    server.kill();
    damage(server.data_dir(), b"MARKER-OF-THE-BROKEN-ONE");
    server.restart().await;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_unreadable_objects_can_be_force_deleted_and_only_with_permission() {
    let server = with_damage(true).await;
    let client = server.client();
    let broken = format!("{MAPS}/broken");
    let read = client.get(&broken).await;
    assert_eq!(
        (read.status, read.json()["reason"].as_str()),
        (500, Some("StorageReadError")),
        "{}",
        read.text()
    );
    let ordinary = client.delete(&broken).await;
    assert_eq!((ordinary.status, ordinary.json()["reason"].as_str()), (500, Some("StorageReadError")));
    // A damaged object matches no selector and no rule.
    for (option, named) in [
        ("dryRun=All", ".dryRun"),
        ("gracePeriodSeconds=0", ".gracePeriodSeconds"),
        ("propagationPolicy=Background", ".propagationPolicy"),
        ("orphanDependents=true", ".orphanDependents"),
        ("uid=x", ".preconditions"),
        ("resourceVersion=1", ".preconditions"),
    ] {
        let reply = client.delete(&format!("{broken}?{OPTION}&{option}")).await;
        let want = format!(
            "DeleteOptions.meta.k8s.io \"\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: \
             true: cannot be set together with {named}"
        );
        assert_eq!((reply.status, reply.json()["message"].as_str()), (422, Some(want.as_str())));
    }
    // Both permissions are needed.
    let deleter = client.with_token("deleter-token");
    let denied = deleter.delete(&format!("{broken}?{OPTION}")).await;
    assert_eq!(denied.status, 403, "{}", denied.text());
    let text = denied.json()["message"].as_str().unwrap().to_owned();
    assert!(text.contains("not permitted to do \"unsafe-delete-ignore-read-errors\""), "{text}");
    // Readable and absent objects are refused.
    for name in ["whole", "absent"] {
        let reply = client.delete(&format!("{MAPS}/{name}?{OPTION}")).await;
        let want = format!(
            "configmaps \"{name}\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: is \
             exclusively used to delete corrupt object(s), try again by removing this option"
        );
        assert_eq!((reply.status, reply.json()["message"].as_str()), (422, Some(want.as_str())));
    }
    assert_eq!(client.delete(&format!("{MAPS}?{OPTION}")).await.status, 422);
    assert_eq!(client.get(&format!("{MAPS}/whole")).await.status, 200);
    let version = client.get(&format!("{MAPS}/whole")).await.json()["metadata"]["resourceVersion"].clone();
    let mut watch =
        client.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version.as_str().unwrap())).await;
    let body = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true}).to_string();
    let json_type = [("content-type", "application/json")];
    let removed = client.send("DELETE", &broken, &json_type, body.as_bytes()).await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(
        removed.json(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "broken", "kind": "ConfigMap"}, "code": 200})
    );
    assert_eq!(client.get(&broken).await.status, 404);
    let event = watch.next().await.unwrap();
    assert_eq!(
        (event["type"].as_str(), event["object"]["metadata"]["name"].as_str()),
        (Some("DELETED"), Some("broken"))
    );
    // The name is free again.
    assert_eq!(client.post(MAPS, &json!({"metadata": {"name": "broken"}})).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_feature_gate_the_force_delete_option_is_ignored() {
    let server = with_damage(false).await;
    let client = server.client();
    let reply = client.delete(&format!("{MAPS}/broken?{OPTION}")).await;
    assert_eq!((reply.status, reply.json()["reason"].as_str()), (500, Some("StorageReadError")));
    assert_eq!(client.delete(&format!("{MAPS}/whole?{OPTION}")).await.status, 200);
}

/// An access to an unreadable page of a mapped file raises a signal. The page may be a bad sector, or may lie beyond
/// the end of a truncated file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_disk_pages_affect_only_their_objects() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    let create = async |name: &str| {
        let body = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(100_000)}});
        assert_eq!(client.post(MAPS, &body).await.status, 201);
    };
    create("sound").await;
    let segment = server.data_dir().join("log/0000000001.segment");
    let sound_end = fs::read(&segment).unwrap().iter().rposition(|&byte| byte != 0).unwrap() as u64 + 1;
    for name in ["first", "second"] {
        create(name).await;
    }
    let file = fs::File::options().write(true).open(&segment).unwrap();
    let mut tries = 0;
    // A write of the server would extend the file again, and the gap would then contain readable zeros.
    while metric(&server, "apiserver_store_unreadable_pages").await == 0 {
        assert!(tries < 1000, "no page became unreadable");
        tries += 1;
        file.set_len(sound_end + 50_000).unwrap();
        assert_eq!(client.get(&format!("{MAPS}/second")).await.status, 500);
    }
    for _ in 0..2 {
        for (name, status, reason) in [
            ("sound", 200, None),
            ("first", 500, Some("StorageReadError")),
            ("second", 500, Some("StorageReadError")),
        ] {
            let read = client.get(&format!("{MAPS}/{name}")).await;
            assert_eq!(
                (read.status, read.json()["reason"].as_str()),
                (status, reason),
                "{name}: {}",
                read.text()
            );
        }
    }
    assert_eq!(client.get("/readyz").await.text(), "ok");
    let metadata = client.get(&format!("{MAPS}/sound")).await.json()["metadata"].clone();
    assert_eq!(metadata["name"], "sound");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_bootstrap_objects_are_recreated_after_their_loss_is_accepted() {
    let mut server = Server::start(Options::default()).await;
    server.kill();
    // Each step of the start reads objects of one of these types: roles, flow control, API services, namespaces.
    let marks = [
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user", "selfsubjectaccessreviews"),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/probes", "/readyz"),
        ("/apis/apiregistration.k8s.io/v1/apiservices/v1.batch", "\"v1.batch\""),
        ("/api/v1/namespaces/kube-node-lease", "\"kube-node-lease\""),
    ];
    for (_, mark) in marks {
        damage(server.data_dir(), mark.as_bytes());
    }
    // The server starts, and does not replace objects that a client may have written.
    server.restart().await;
    for (path, _) in marks {
        let found = server.client().get(path).await;
        assert_eq!(found.status, 500, "{path}: {}", found.text());
    }
    server.kill();
    crate::backups::report(&["accept-loss", &crate::backups::flag("data-dir", server.data_dir())]);
    server.restart().await;
    let client = server.client();
    for (path, _) in marks {
        let found = client.get(path).await;
        assert_eq!(found.status, 200, "{path}: {}", found.text());
    }
}
