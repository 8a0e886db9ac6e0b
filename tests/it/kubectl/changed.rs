//! Tests of kubectl commands that write, and of their output.

use std::process::Stdio;

use serde_json::json;
use tests::Server;

use super::{Kubectl, MANY, finish};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_commands_that_modify_objects_work() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    kubectl.ok_with("apply -f -", MANY).await;
    kubectl
        .says(&[
            ("label pod new tier=web", "pod/new labeled"),
            ("label pod new tier=api", "error: 'tier' already has a value (web), and --overwrite is false"),
            ("label pod new tier=api --overwrite", "pod/new labeled"),
            ("label pod new tier-", "pod/new unlabeled"),
            ("label pod new 'tier=not valid'", "error: invalid label value: \"tier=not valid\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"),
            ("annotate deploy web note=hello", "deployment.apps/web annotated"),
            ("scale deploy web --replicas=5", "deployment.apps/web scaled"),
            ("scale deploy web --replicas=2 --current-replicas=9", "error: Expected replicas to be 9, was 5"),
            (r#"patch deploy web -p '{"spec":{"replicas":4}}'"#, "deployment.apps/web patched"),
            (r#"patch deploy web -p '{"spec":{"replicas":4}}'"#, "deployment.apps/web patched (no change)"),
            (r#"patch deploy web --type=merge -p '{"spec":{"paused":true}}'"#, "deployment.apps/web patched"),
            (
                r#"patch deploy web --type=json -p '[{"op":"replace","path":"/spec/replicas","value":1}]'"#,
                "deployment.apps/web patched",
            ),
            (
                r#"patch deploy web --type=json -p '[{"op":"remove","path":"/spec/nonsense"}]'"#,
                "The request is invalid: the server rejected our request due to an error in our request",
            ),
            (r#"patch deploy web --subresource=status --type=merge -p '{"status":{"replicas":1}}'"#, "deployment.apps/web patched"),
            ("set image deploy/web web=web:2", "deployment.apps/web image updated"),
            ("set env deploy/web A=b", "deployment.apps/web env updated"),
            ("set resources deploy/web --limits=cpu=200m", "deployment.apps/web resource requirements updated"),
            ("rollout history deploy web", "deployment.apps/web \nNo rollout history found."),
            ("rollout pause deploy web", "error: deployments.apps \"web\" is already paused"),
            ("rollout resume deploy web", "deployment.apps/web resumed"),
            ("rollout restart deploy web", "deployment.apps/web restarted"),
            ("wait '--for=jsonpath={.spec.replicas}=1' deploy/web --timeout=120s", "deployment.apps/web condition met"),
            ("cordon node-1", "node/node-1 cordoned"),
            ("uncordon node-1", "node/node-1 uncordoned"),
            ("taint node node-1 a=b:NoSchedule", "node/node-1 tainted"),
            ("run more --image=i", "pod/more created"),
            ("delete pod more", r#"pod "more" deleted"#),
            ("logs new", ""),
            ("exec new -- true", "Error from server (BadRequest): pod new does not have a host assigned"),
        ])
        .await;
    let now = kubectl.ok("get deploy web -o json").await;
    let now: serde_json::Value = serde_json::from_str(&now).unwrap();
    let container = &now["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&now["spec"]["replicas"], &container["image"]), (&json!(1), &json!("web:2")));
    assert_eq!(container["env"], json!([{"name": "A", "value": "b"}]));
    assert_eq!(container["resources"]["limits"], json!({"cpu": "200m"}));
    assert_eq!(now["metadata"]["annotations"]["note"], "hello");

    // The output of a read can be written back.
    let yaml = kubectl.ok("get deploy web -o yaml").await;
    assert!(yaml.starts_with("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n"), "{yaml}");
    assert_eq!(kubectl.ok_with("replace -f -", &yaml).await, "deployment.apps/web replaced\n");
    kubectl.ok("annotate deploy web note=bye --overwrite").await;
    let stale = kubectl.run("replace -f -", &yaml).await;
    let conflict = "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on \
        deployments.apps \"web\": the object has been modified; please apply your changes to the latest version and try again\n";
    assert_eq!((stale.code, stale.err.as_str()), (Some(1), conflict));

    // A script replaces the editor.
    for (script, expected) in [
        ("s/replicas: 1/replicas: 6/", "deployment.apps/web edited\n"),
        ("s/nothing/of this/", "Edit cancelled, no changes made.\n"),
    ] {
        let mut command = kubectl.command("edit deploy web");
        command.env("EDITOR", format!("sed -i '{script}'"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ran = finish(command, "").await.expect("kubectl edit ends");
        assert_eq!((ran.code, format!("{}{}", ran.out, ran.err).as_str()), (Some(0), expected));
    }
    assert_eq!(kubectl.ok("get deploy web -o 'jsonpath={.spec.replicas}'").await, "6");

    // Validation errors are printed with the server's messages.
    let pod =
        |spec: &str| format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"x"}},"spec":{spec}}}"#);
    for (arguments, object, expected) in [
        (
            "create -f -",
            pod(r#"{"containers":[]}"#),
            "The Pod \"x\" is invalid: spec.containers: Required value\n",
        ),
        (
            "create -f -",
            pod(r#"{"containers":[{"name":"a","image":"b","imagez":"c"}]}"#),
            "Error from server (BadRequest): error when creating \"STDIN\": Pod in version \"v1\" cannot be handled as a \
             Pod: strict decoding error: unknown field \"spec.containers[0].imagez\"\n",
        ),
        (
            "create --validate=warn -f -",
            pod(r#"{"containers":[{"name":"a","image":"b","imagez":"c"}]}"#),
            "Warning: unknown field \"spec.containers[0].imagez\"\npod/x created\n",
        ),
        (
            "create -f -",
            pod(r#"{"containers":[{"name":"a","image":"b"}]}"#),
            "Error from server (AlreadyExists): error when creating \"STDIN\": pods \"x\" already exists\n",
        ),
    ] {
        let ran = kubectl.run(arguments, &object).await;
        assert_eq!(format!("{}{}", ran.err, ran.out), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_delete_cascades_by_propagation_policy() {
    // See docs/api/delete.md and docs/api/controllers.md#garbage-collector.
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";
    for (cascade, child_stays) in [("foreground", false), ("background", false), ("orphan", true)] {
        let owner = client.post(maps, &json!({"metadata": {"name": "owner"}})).await.json();
        let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
        let child = json!({"metadata": {"name": "child", "ownerReferences": reference}});
        assert_eq!(client.post(maps, &child).await.status, 201);
        // The command waits until the owner is removed.
        let said = kubectl.ok(&format!("delete configmap owner --cascade={cascade}")).await;
        assert!(said.starts_with("configmap \"owner\" deleted"), "{said}");
        assert_eq!(client.get(&format!("{maps}/owner")).await.status, 404, "{cascade}");
        match cascade {
            "foreground" => assert_eq!(client.get(&format!("{maps}/child")).await.status, 404),
            "background" => drop(kubectl.ok("wait --for=delete configmap/child --timeout=120s").await),
            _ => {}
        }
        let child = client.get(&format!("{maps}/child")).await;
        assert_eq!(child.status == 200, child_stays, "{cascade}");
        if child_stays {
            assert!(child.json()["metadata"].get("ownerReferences").is_none());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_server_side_apply_tracks_owners_and_repeats_without_changes() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    const SERVER_SIDE: &str = "apply --server-side -f -";
    let web = |replicas: u32, image: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, labels: {{app: web}}}}\nspec:\n  \
             replicas: {replicas}\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    \
             metadata: {{labels: {{app: web}}}}\n    spec: {{containers: [{{name: web, image: {image}}}]}}\n"
        )
    };
    let version = "get deployment web -o jsonpath={.metadata.resourceVersion}";
    let first = kubectl.ok_with(SERVER_SIDE, &web(1, "a:1")).await;
    assert_eq!(first.trim(), "deployment.apps/web serverside-applied");
    let before = kubectl.ok(version).await;
    let second = kubectl.ok_with(SERVER_SIDE, &web(1, "a:1")).await;
    assert_eq!(second.trim(), "deployment.apps/web serverside-applied");
    assert_eq!(kubectl.ok(version).await, before, "applied twice, written once");

    let managers =
        "get deployment web --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}";
    assert_eq!(kubectl.ok(managers).await, "kubectl");
    let hidden = kubectl.ok("get deployment web -o yaml").await;
    assert!(!hidden.contains("managedFields") && hidden.contains("image: a:1"), "{hidden}");

    // Another client scales; kubectl's next apply reports the owner of the replica count, and takes it over
    // with force.
    kubectl.ok("scale deployment web --replicas=5").await;
    let refused = kubectl.run(SERVER_SIDE, &web(1, "a:1")).await;
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("Apply failed with 1 conflict"), "{}", refused.err);
    assert!(refused.err.contains(".spec.replicas"), "{}", refused.err);
    kubectl.ok_with("apply --server-side --force-conflicts -f -", &web(1, "a:1")).await;
    assert_eq!(kubectl.ok("get deployment web -o jsonpath={.spec.replicas}").await, "1");

    // Objects of client-side apply move to server-side apply without a conflict.
    let map = |value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: old}}\ndata: {{k: {value}}}\n")
    };
    kubectl.ok_with("apply -f -", &map("one")).await;
    kubectl.ok_with(SERVER_SIDE, &map("two")).await;
    assert_eq!(kubectl.ok("get configmap old -o jsonpath={.data.k}").await, "two");
    let dry = kubectl.ok_with("apply --server-side --dry-run=server -f -", &map("three")).await;
    assert_eq!(dry.trim(), "configmap/old serverside-applied (server dry run)");
    assert_eq!(kubectl.ok("get configmap old -o jsonpath={.data.k}").await, "two");
}
