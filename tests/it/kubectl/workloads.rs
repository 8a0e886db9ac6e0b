//! Tests of kubectl commands that change workloads of published manifests: client-side and server-side apply, edit,
//! patch, scale, rollback, replace, and delete with dependents.
//!
//! The server has no workload controllers, so scenarios write what a controller would have written (replica
//! sets, revisions, a status). Without kubectl or the manifests the tests print `skipped: …` and pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tests::{Client, Server};

use super::{Kubectl, Ran, finish};
use crate::support::reference;

/// Returns a server, its kubectl and the manifests; `None` if one of them is missing.
async fn fixture() -> Option<(Server, Kubectl, PathBuf)> {
    let server = Server::start_upstream().await;
    let kubectl = Kubectl::find(&server).await?;
    Some((server, kubectl, reference("manifests/workloads")?))
}

/// Returns the text of a manifest.
fn text(manifests: &Path, name: &str) -> String {
    let path = manifests.join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs `kubectl edit` with a `sed` script as the editor.
async fn edit(kubectl: &Kubectl, arguments: &str, script: &str) -> Ran {
    let mut command = kubectl.command(&format!("edit {arguments}"));
    command.env("EDITOR", format!("sed -i '{script}'"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command, "").await.expect("kubectl edit ends")
}

async fn object(kubectl: &Kubectl, what: &str) -> Value {
    serde_json::from_str(&kubectl.ok(&format!("get {what} -o json --show-managed-fields")).await).unwrap()
}

fn containers(workload: &Value) -> BTreeMap<&str, &Value> {
    let list = workload["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
    list.iter()
        .map(|container| (container["name"].as_str().expect("the container has a name"), container))
        .collect()
}

/// Returns `-f` for each manifest below a directory.
fn files(directory: &Path) -> String {
    let mut arguments = String::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("the manifests can be listed");
            pending.extend(entries.map(|entry| entry.expect("the manifests can be listed").path()));
            pending.sort();
        } else if !path.ends_with("nfs.yaml") {
            // This manifest has a volume with the same name as a volume of another manifest.
            arguments.push_str(&format!(" -f {}", path.display()));
        }
    }
    arguments
}

/// Each directory of manifests is one application; some names occur in several applications.
const APPLICATIONS: &[&str] = &[
    "guestbook",
    "statefulset/cassandra",
    "statefulset/cockroachdb",
    "statefulset/etcd",
    "statefulset/mysql-galera",
    "statefulset/mysql-upgrade",
    "statefulset/zookeeper",
    "user-guide",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_side_apply_of_every_published_manifest_writes_nothing_the_second_time() {
    let Some((_server, kubectl, manifests)) = fixture().await else { return };
    let mut count = 0;
    for (at, application) in APPLICATIONS.iter().enumerate() {
        let files = format!("-n app-{at}{}", files(&manifests.join(application)));
        kubectl.ok(&format!("create namespace app-{at}")).await;
        let versions = async || {
            let template =
                r#"{range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion}{"\n"}{end}"#;
            kubectl.ok(&format!("get {files} -o 'jsonpath={template}'")).await
        };
        let first = kubectl.ok(&format!("apply --server-side {files}")).await;
        assert!(first.lines().all(|line| line.ends_with(" serverside-applied")), "{first}");
        let created = versions().await;
        let second = kubectl.ok(&format!("apply --server-side {files}")).await;
        assert_eq!(second, first, "{application}");
        // The first write after the creation of a claim stores the status that decoding had completed.
        let before = versions().await;
        let claims = |line: &&str| !line.starts_with("PersistentVolumeClaim/");
        let others = |versions: &str| versions.lines().filter(claims).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(others(&before), others(&created), "{application}: applied twice, written once");
        // The output of a read can be written back without a change.
        let read = kubectl.ok(&format!("get {files} -o json")).await;
        let replaced = kubectl.ok_with("replace -f -", &read).await;
        assert!(replaced.lines().all(|line| line.ends_with(" replaced")), "{replaced}");
        assert_eq!(versions().await, before, "{application}: a replace without a change writes nothing");
        let same = kubectl.run(&format!("diff --server-side {files}"), "").await;
        assert_eq!((same.code, same.out.as_str()), (Some(0), ""), "{application}: {}", same.err);
        let template = r#"{range .items[*]}{.metadata.managedFields[*].manager}{" "}{.metadata.managedFields[*].operation}{"\n"}{end}"#;
        let owners = kubectl.ok(&format!("get {files} --show-managed-fields -o 'jsonpath={template}'")).await;
        assert!(owners.lines().all(|line| line == "kubectl Apply"), "{application}: {owners}");
        count += first.lines().count();
    }
    assert!(count > 50, "{count} objects");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_apply_merges_three_ways() {
    let Some((_server, kubectl, manifests)) = fixture().await else { return };
    let first = text(&manifests, "guestbook/frontend-deployment.yaml");
    let said = kubectl.ok_with("apply -f -", &first).await;
    assert_eq!(said, "deployment.apps/frontend created\n");

    // Other clients change fields outside the manifest, and fields in it.
    let sidecar = r#"{"spec":{"template":{"spec":{"containers":[{"name":"log","image":"log:1"}]}}}}"#;
    let variable =
        r#"[{"op":"add","path":"/spec/template/spec/containers/0/env","value":[{"name":"A","value":"b"}]}]"#;
    kubectl
        .says(&[
            (&format!("patch deploy frontend -p '{sidecar}'"), "deployment.apps/frontend patched"),
            ("annotate deploy frontend note=kept", "deployment.apps/frontend annotated"),
            ("scale deploy frontend --replicas=7", "deployment.apps/frontend scaled"),
        ])
        .await;
    let patched = object(&kubectl, "deploy frontend").await;
    let list = patched["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let at = list.iter().position(|container| container["name"] == "guestbook-frontend").unwrap();
    let variable = variable.replace("/0/", &format!("/{at}/"));
    kubectl.ok(&format!("patch deploy frontend --type=json -p '{variable}'")).await;

    // The next version adds a field, removes two and changes one.
    let second = first
        .replace("agnhost:2.53", "agnhost:2.54")
        .replace("            memory: 100Mi\n", "")
        .replace("  replicas: 3\n", "")
        .replace("        - containerPort: 80", "        - containerPort: 80\n        - containerPort: 8443");
    assert_eq!(kubectl.ok_with("apply -f -", &second).await, "deployment.apps/frontend configured\n");
    let now = object(&kubectl, "deploy frontend").await;
    assert_eq!(now["spec"]["replicas"], 1, "an omitted field gets its default");
    assert_eq!(now["metadata"]["annotations"]["note"], "kept");
    let containers = containers(&now);
    let web = containers["guestbook-frontend"];
    assert_eq!(web["image"], "registry.k8s.io/e2e-test-images/agnhost:2.54");
    assert_eq!(web["resources"], json!({"requests": {"cpu": "100m"}}));
    assert_eq!(
        web["ports"],
        json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 8443, "protocol": "TCP"}])
    );
    assert_eq!(web["env"], json!([{"name": "A", "value": "b"}]), "fields of other managers remain");
    assert_eq!(containers["log"]["image"], "log:1", "elements of other managers remain");
    let last = now["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str();
    assert!(last.unwrap().contains("agnhost:2.54") && !last.unwrap().contains("memory"), "{last:?}");

    // kubectl sends the order of the containers, because the object has a container that is not in its
    // manifest.
    assert_eq!(kubectl.ok_with("apply -f -", &second).await, "deployment.apps/frontend configured\n");
    let after = object(&kubectl, "deploy frontend").await;
    assert_eq!(after["metadata"]["resourceVersion"], now["metadata"]["resourceVersion"]);

    // `diff` shows the next change and writes nothing.
    let third = second.replace("agnhost:2.54", "agnhost:2.55");
    let diff = kubectl.run("diff -f -", &third).await;
    let changed: Vec<&str> = diff
        .out
        .lines()
        .filter(|line| line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---"))
        .map(str::trim_end)
        .collect();
    assert_eq!(diff.code, Some(1), "{}", diff.err);
    assert_eq!(
        changed,
        [
            "-  generation: 6",
            "+  generation: 7",
            "-        image: registry.k8s.io/e2e-test-images/agnhost:2.54",
            "+        image: registry.k8s.io/e2e-test-images/agnhost:2.55",
        ],
        "{}",
        diff.out
    );
    let after = object(&kubectl, "deploy frontend").await;
    assert_eq!(after["metadata"]["resourceVersion"], now["metadata"]["resourceVersion"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_edit_changes_objects_and_explains_refused_edits() {
    let Some((_server, kubectl, manifests)) = fixture().await else { return };
    for name in ["statefulset/etcd", "guestbook", "statefulset/mysql-upgrade/configmap.yaml"] {
        kubectl.ok(&format!("apply -f {}/{name}", manifests.display())).await;
    }
    for (arguments, script, expected, path, value) in [
        ("sts etcd", "s/replicas: 3/replicas: 5/", "statefulset.apps/etcd edited\n", "{.spec.replicas}", "5"),
        (
            "svc frontend",
            "s/sessionAffinity: None/sessionAffinity: ClientIP/",
            "service/frontend edited\n",
            "{.spec.sessionAffinityConfig.clientIP.timeoutSeconds}",
            "10800",
        ),
        (
            "cm mysql",
            "s/super-read-only/read-only/",
            "configmap/mysql edited\n",
            "{.data.slave\\.cnf}",
            "[mysqld]\nread-only\n",
        ),
        (
            "deploy frontend --subresource=status",
            "s/^status: {}/status: {replicas: 3}/",
            "deployment.apps/frontend edited\n",
            "{.status.replicas}",
            "3",
        ),
        (
            "deploy frontend --windows-line-endings=false",
            "s/^  replicas: 3/  replicas: 4/",
            "deployment.apps/frontend edited\n",
            "{.spec.replicas}",
            "4",
        ),
        (
            "pdb etcd-pdb",
            "s/nothing/of this/",
            "Edit cancelled, no changes made.\n",
            "{.spec.minAvailable}",
            "2",
        ),
    ] {
        let ran = edit(&kubectl, arguments, script).await;
        assert_eq!(
            (ran.code, format!("{}{}", ran.out, ran.err).as_str()),
            (Some(0), expected),
            "{arguments}"
        );
        let what = arguments.split(" -").next().unwrap();
        assert_eq!(kubectl.ok(&format!("get {what} -o 'jsonpath={path}'")).await, value, "{arguments}");
    }
    // The editor is opened again with the server's error; the script then changes nothing.
    for (arguments, script, refusal) in [
        (
            "sts etcd",
            "s/serviceName: etcd/serviceName: other/",
            "error: statefulsets.apps \"etcd\" is invalid\n",
        ),
        (
            "deploy frontend",
            "s/replicas: 4/replicas: -4/",
            "error: deployments.apps \"frontend\" is invalid\n",
        ),
        (
            "deploy frontend",
            "s/replicas: 4/replicas: 4\\n  colour: red/",
            "error: deployments.apps \"frontend\" is invalid\n",
        ),
    ] {
        let ran = edit(&kubectl, arguments, script).await;
        assert!(ran.err.starts_with(refusal), "{arguments} {script}: {}{}", ran.out, ran.err);
        assert!(ran.err.ends_with("error: Edit cancelled, no valid changes were saved.\n"), "{}", ran.err);
        assert_eq!(ran.code, Some(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_patch_supports_three_patch_types() {
    let Some((_server, kubectl, manifests)) = fixture().await else { return };
    kubectl.ok(&format!("apply -R -f {0}/statefulset/etcd -f {0}/guestbook", manifests.display())).await;
    let template = |spec: &str| format!(r#"{{"spec":{{"template":{{"spec":{spec}}}}}}}"#);
    // Columns: kind of patch, object, patch, path, value afterwards.
    let ports = "{.spec.template.spec.containers[0].ports[*].containerPort}";
    for (kind, what, patch, path, expected) in [
        ("strategic", "sts etcd", template(r#"{"containers":[{"name":"etcd","env":[{"name":"SET_NAME","value":"other"}]}]}"#), "{.spec.template.spec.containers[0].env[*].value}", "3 other"),
        ("strategic", "sts etcd", template(r#"{"containers":[{"name":"etcd","ports":[{"containerPort":2380,"$patch":"delete"}]}]}"#), ports, "2379"),
        ("strategic", "sts etcd", template(r#"{"containers":[{"name":"etcd","ports":[{"containerPort":1,"name":"one"}]}],"$setElementOrder/containers":[{"name":"etcd"}]}"#), ports, "1 2379"),
        ("strategic", "sts etcd", r#"{"spec":{"updateStrategy":{"$patch":"replace","type":"OnDelete"}}}"#.to_owned(), "{.spec.updateStrategy}", r#"{"type":"OnDelete"}"#),
        ("strategic", "deploy frontend", r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#.to_owned(), "{.spec.strategy}", r#"{"type":"Recreate"}"#),
        ("strategic", "svc frontend", r#"{"spec":{"ports":[{"port":80,"name":"a"},{"port":443,"name":"b"}]}}"#.to_owned(), "{.spec.ports[*].targetPort}", "80 443"),
        ("merge", "svc frontend", r#"{"spec":{"ports":[{"port":8080}],"selector":{"tier":null}}}"#.to_owned(), "{.spec.ports[*].port} {.spec.selector}", r#"8080 {"app":"guestbook"}"#),
        ("merge", "deploy frontend", r#"{"metadata":{"labels":{"a":"b"}},"spec":{"minReadySeconds":5}}"#.to_owned(), "{.metadata.labels.a} {.spec.minReadySeconds}", "b 5"),
        ("json", "deploy frontend", r#"[{"op":"test","path":"/spec/minReadySeconds","value":5},{"op":"remove","path":"/spec/minReadySeconds"},{"op":"move","from":"/metadata/labels/a","path":"/metadata/labels/c"}]"#.to_owned(), "{.metadata.labels} {.spec.minReadySeconds}", r#"{"c":"b"} "#),
        ("json", "rc redis-slave", r#"[{"op":"copy","from":"/spec/template/spec/containers/0/image","path":"/metadata/annotations/image"}]"#.to_owned(), "{.metadata.annotations.image}", "registry.k8s.io/e2e-test-images/redis:5.0.5-alpine"),
    ] {
        let said = kubectl.ok(&format!("patch {what} --type={kind} -p '{patch}'")).await;
        assert!(said.ends_with(" patched\n"), "{patch}: {said}");
        assert_eq!(kubectl.ok(&format!("get {what} -o 'jsonpath={path}'")).await, expected, "{kind} {patch}");
    }
    let version = kubectl.ok("get deploy frontend -o 'jsonpath={.metadata.resourceVersion}'").await;
    for (arguments, expected) in [
        (
            r#"patch deploy frontend --type=json -p '[{"op":"test","path":"/spec/replicas","value":9}]'"#.to_owned(),
            "The request is invalid: the server rejected our request due to an error in our request".to_owned(),
        ),
        (
            r#"patch deploy frontend --type=merge -p '{"spec":{"selector":{"matchLabels":{"x":"y"}}}}'"#.to_owned(),
            "The Deployment \"frontend\" is invalid: \n* spec.template.metadata.labels: Invalid value: \
             {\"app\":\"guestbook\",\"tier\":\"frontend\"}: `selector` does not match template `labels`\n* spec.selector: \
             Invalid value: {\"matchLabels\":{\"app\":\"guestbook\",\"tier\":\"frontend\",\"x\":\"y\"}}: field is immutable"
                .to_owned(),
        ),
        (
            r#"patch deploy frontend --type=merge -p '{"metadata":{"resourceVersion":"1"}}'"#.to_owned(),
            "Error from server (Conflict): Operation cannot be fulfilled on deployments.apps \"frontend\": the object \
             has been modified; please apply your changes to the latest version and try again"
                .to_owned(),
        ),
        (
            r#"patch deploy frontend --type=merge -p '{"metadata":{"name":"other"}}'"#.to_owned(),
            "Error from server (BadRequest): the name of the object (other) does not match the name on the URL (frontend)"
                .to_owned(),
        ),
        (
            r#"patch deploy frontend -p '{"spec":{"$patch":"explode"}}'"#.to_owned(),
            "Error from server: unknown patch type: explode in map: map[$patch:explode]".to_owned(),
        ),
        (
            r#"patch deploy frontend --dry-run=server -p '{"spec":{"replicas":9}}'"#.to_owned(),
            "deployment.apps/frontend patched".to_owned(),
        ),
    ] {
        kubectl.says(&[(&arguments, &expected)]).await;
    }
    let after = kubectl.ok("get deploy frontend -o 'jsonpath={.metadata.resourceVersion}'").await;
    assert_eq!(after, version, "a refused patch and a dry run write nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_scales_every_kind_with_a_scale() {
    let Some((_server, kubectl, manifests)) = fixture().await else { return };
    for name in [
        "guestbook/frontend-deployment.yaml",
        "guestbook/legacy/redis-slave-controller.yaml",
        "statefulset/etcd/statefulset.yaml",
        "user-guide/replicaset/redis-slave.yaml",
    ] {
        kubectl.ok(&format!("apply -f {}/{name}", manifests.display())).await;
    }
    for (what, shown, before) in [
        ("deploy/frontend", "deployment.apps/frontend", 3),
        ("rc/redis-slave", "replicationcontroller/redis-slave", 2),
        ("sts/etcd", "statefulset.apps/etcd", 3),
        ("rs/redis-slave", "replicaset.apps/redis-slave", 2),
    ] {
        let replicas = format!("get {what} -o 'jsonpath={{.spec.replicas}} {{.metadata.generation}}'");
        let dry = format!("scale {what} --replicas=9 --dry-run=server");
        let guarded = format!("scale {what} --current-replicas={before} --replicas=6");
        let missed = format!("scale {what} --current-replicas={before} --replicas=7");
        kubectl
            .says(&[
                (&replicas, &format!("{before} 1")),
                (&dry, &format!("{shown} scaled (server dry run)")),
                (&replicas, &format!("{before} 1")),
                (&guarded, &format!("{shown} scaled")),
                (&missed, &format!("error: Expected replicas to be {before}, was 6")),
                (&format!("scale {what} --replicas=1"), &format!("{shown} scaled")),
                (&replicas, "1 3"),
            ])
            .await;
        let scale = object(&kubectl, &format!("{what} --subresource=scale")).await;
        assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
        let now = object(&kubectl, what).await;
        let owner = now["metadata"]["managedFields"].as_array().unwrap();
        let owner = owner.iter().find(|entry| entry["subresource"] == "scale").unwrap();
        assert_eq!(owner["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}), "{what}");
    }
    let file = manifests.join("guestbook/frontend-deployment.yaml");
    let said = kubectl.ok(&format!("scale -f {} --replicas=2", file.display())).await;
    assert_eq!(said, "deployment.apps/frontend scaled\n");
}

/// Returns a replica set like the replica sets that the deployment controller creates.
fn replica_set(deployment: &Value, revision: u32, cause: &str, image: &str) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"]["pod-template-hash"] = json!(format!("h{revision}"));
    template["spec"]["containers"][0]["image"] = json!(image);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"]["pod-template-hash"] = json!(format!("h{revision}"));
    json!({
        "metadata": {
            "name": format!("{}-{revision}", deployment["metadata"]["name"].as_str().unwrap()),
            "labels": template["metadata"]["labels"],
            "annotations": {
                "deployment.kubernetes.io/revision": revision.to_string(),
                "kubernetes.io/change-cause": cause,
            },
            "ownerReferences": [controller_of("apps/v1", "Deployment", deployment)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    })
}

fn controller_of(api_version: &str, kind: &str, owner: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true})
}

async fn make(client: &Client, collection: &str, object: &Value) -> Value {
    let made = client.post(collection, object).await;
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()
}

const APPS: &str = "/apis/apps/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces/default";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_rollout_shows_the_history_and_undoes_a_revision() {
    let Some((server, kubectl, manifests)) = fixture().await else { return };
    let client = server.client();
    kubectl.ok(&format!("apply -R -f {0}/guestbook -f {0}/statefulset/etcd", manifests.display())).await;

    let deployment = object(&kubectl, "deploy frontend").await;
    for (revision, cause, image) in [(1, "first", "web:1"), (2, "second", "web:2")] {
        make(client, &format!("{APPS}/replicasets"), &replica_set(&deployment, revision, cause, image)).await;
    }
    kubectl.ok("set image deploy/frontend guestbook-frontend=web:2").await;
    let set = object(&kubectl, "sts etcd").await;
    for (revision, image) in [(1, "etcd:1"), (2, "etcd:2")] {
        let mut template = set["spec"]["template"].clone();
        template["spec"]["containers"][0]["image"] = json!(image);
        template["$patch"] = json!("replace");
        let kept = json!({
            "metadata": {
                "name": format!("etcd-{revision}"),
                "labels": {"app": "etcd"},
                "ownerReferences": [controller_of("apps/v1", "StatefulSet", &set)],
            },
            "revision": revision,
            "data": {"spec": {"template": template}},
        });
        make(client, &format!("{APPS}/controllerrevisions"), &kept).await;
    }
    kubectl
        .says(&[
            (
                "rollout history deploy frontend",
                "deployment.apps/frontend \nREVISION  CHANGE-CAUSE\n1         first\n2         second",
            ),
            (
                "rollout history sts etcd",
                "statefulset.apps/etcd \nREVISION  CHANGE-CAUSE\n1         <none>\n2         <none>",
            ),
            (
                "rollout undo deploy frontend --to-revision=2",
                "deployment.apps/frontend skipped rollback (current template already matches revision 2)",
            ),
            ("rollout undo deploy frontend --to-revision=1", "deployment.apps/frontend rolled back"),
            (
                "rollout undo deploy frontend --to-revision=7",
                "error: unable to find specified revision 7 in history",
            ),
            ("rollout undo sts etcd --to-revision=1", "statefulset.apps/etcd rolled back"),
            ("get deploy frontend -o 'jsonpath={.spec.template.spec.containers[0].image}'", "web:1"),
            ("get sts etcd -o 'jsonpath={.spec.template.spec.containers[0].image}'", "etcd:1"),
        ])
        .await;
    let detail = kubectl.ok("rollout history deploy frontend --revision=2").await;
    assert!(detail.starts_with("deployment.apps/frontend with revision #2\nPod Template:\n"), "{detail}");
    assert!(detail.contains("Image:\tweb:2") || detail.contains("web:2"), "{detail}");

    // kubectl derives the rollout status from the status of the deployment.
    let generation = object(&kubectl, "deploy frontend").await["metadata"]["generation"].clone();
    let status = json!({"status": {"observedGeneration": generation, "replicas": 3, "updatedReplicas": 3,
        "readyReplicas": 3, "availableReplicas": 3}});
    let path = format!("{APPS}/deployments/frontend/status");
    assert_eq!(client.patch(&path, "merge", &status).await.status, 200);
    kubectl
        .says(&[("rollout status deploy frontend", "deployment \"frontend\" successfully rolled out")])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_replace_overwrites_objects_and_dry_runs_validate_strictly() {
    let Some((_server, kubectl, manifests)) = fixture().await else { return };
    let deployment = text(&manifests, "guestbook/frontend-deployment.yaml");
    let service = text(&manifests, "guestbook/frontend-service.yaml");
    let both = format!("{deployment}\n---\n{service}");
    let strict = "create --dry-run=server --validate=strict -f -";
    let made = kubectl.ok_with(strict, &both).await;
    assert_eq!(
        made,
        "deployment.apps/frontend created (server dry run)\nservice/frontend created (server dry run)\n"
    );
    let none = kubectl.ok("get deploy,svc frontend --ignore-not-found -o name").await;
    assert_eq!(none, "", "a dry run leaves nothing behind");

    let misspelt = deployment.replace("  replicas: 3\n", "  replica: 3\n  paused: false\n");
    let refused = kubectl.run(strict, &misspelt).await;
    assert_eq!(
        (refused.code, refused.err.as_str()),
        (
            Some(1),
            "Error from server (BadRequest): error when creating \"STDIN\": Deployment in version \"v1\" cannot be \
             handled as a Deployment: strict decoding error: unknown field \"spec.replica\"\n"
        )
    );
    let warned = kubectl.run("create --dry-run=server --validate=warn -f -", &misspelt).await;
    assert_eq!(
        (warned.code, warned.err.as_str()),
        (Some(0), "Warning: unknown field \"spec.replica\"\n"),
        "{}",
        warned.out
    );
    let ignored = kubectl.run("create --dry-run=server --validate=ignore -f -", &misspelt).await;
    assert_eq!((ignored.code, ignored.err.as_str()), (Some(0), ""));

    kubectl.ok_with("create --validate=strict -f -", &both).await;
    let created = object(&kubectl, "deploy frontend").await;
    let address = kubectl.ok("get svc frontend -o 'jsonpath={.spec.clusterIP}'").await;
    let next = both.replace("agnhost:2.53", "agnhost:3").replace("- port: 80", "- port: 8080");
    let replaced = kubectl.ok_with("replace -f -", &next).await;
    assert_eq!(replaced, "deployment.apps/frontend replaced\nservice/frontend replaced\n");
    let now = object(&kubectl, "deploy frontend").await;
    assert_eq!(now["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(containers(&now)["guestbook-frontend"]["image"], "registry.k8s.io/e2e-test-images/agnhost:3");
    assert_eq!(
        kubectl.ok("get svc frontend -o 'jsonpath={.spec.clusterIP} {.spec.ports[*].targetPort}'").await,
        format!("{address} 8080"),
        "the address remains although the file has none"
    );
    let dry = kubectl.ok_with("replace --dry-run=server -f -", &both).await;
    assert!(dry.lines().all(|line| line.ends_with(" replaced (server dry run)")), "{dry}");
    let missing = kubectl.run("replace -f -", &deployment.replace("name: frontend", "name: other")).await;
    assert_eq!(
        missing.err,
        "Error from server (NotFound): error when replacing \"STDIN\": deployments.apps \"other\" not found\n"
    );
    // A change of an immutable field requires a new object.
    let moved = deployment.replace("tier: frontend", "tier: front");
    let refused = kubectl.run("replace -f -", &moved).await;
    assert!(
        refused.err.contains("spec.selector: Invalid value") && refused.err.contains("field is immutable"),
        "{}",
        refused.err
    );
    let forced = kubectl.ok_with("replace --force -f -", &moved).await;
    assert_eq!(forced, "deployment.apps \"frontend\" deleted\ndeployment.apps/frontend replaced\n");
    assert_ne!(object(&kubectl, "deploy frontend").await["metadata"]["uid"], created["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_delete_keeps_or_deletes_the_dependents_of_a_workload() {
    let Some((server, kubectl, manifests)) = fixture().await else { return };
    let client = server.client();
    let file = manifests.join("guestbook/frontend-deployment.yaml");
    let file = file.display();
    for (cascade, rest_stays) in [("background", false), ("foreground", false), ("orphan", true)] {
        kubectl.ok(&format!("apply -f {file}")).await;
        let deployment = object(&kubectl, "deploy frontend").await;
        let set = replica_set(&deployment, 1, "", "web:1");
        let set = make(client, &format!("{APPS}/replicasets"), &set).await;
        for at in 0..3 {
            let pod = json!({
                "metadata": {
                    "name": format!("frontend-1-{at}"),
                    "labels": set["spec"]["template"]["metadata"]["labels"],
                    "ownerReferences": [controller_of("apps/v1", "ReplicaSet", &set)],
                },
                "spec": set["spec"]["template"]["spec"],
            });
            make(client, &format!("{CORE}/pods"), &pod).await;
        }
        let dry = kubectl.ok(&format!("delete --dry-run=server --cascade={cascade} -f {file}")).await;
        assert_eq!(dry, "deployment.apps \"frontend\" deleted (server dry run)\n");
        assert_eq!(object(&kubectl, "deploy frontend").await, deployment, "{cascade}");

        let said = kubectl.ok(&format!("delete --cascade={cascade} -f {file}")).await;
        assert_eq!(said.lines().next(), Some("deployment.apps \"frontend\" deleted"), "{cascade}");
        assert_eq!(client.get(&format!("{APPS}/deployments/frontend")).await.status, 404, "{cascade}");
        let rest = "get rs,pods -o name";
        match cascade {
            "foreground" => assert_eq!(kubectl.ok(rest).await, "", "dependents are deleted first"),
            "background" => {
                kubectl.ok("wait --for=delete rs/frontend-1 pod/frontend-1-0 pod/frontend-1-1 pod/frontend-1-2 --timeout=120s").await;
            }
            _ => {}
        }
        let left = kubectl.ok(rest).await;
        assert_eq!(left.lines().count(), if rest_stays { 4 } else { 0 }, "{cascade}: {left}");
        if rest_stays {
            let set = object(&kubectl, "rs frontend-1").await;
            assert_eq!(set["metadata"].get("ownerReferences"), None, "orphans have no owner");
            let pod = object(&kubectl, "pod frontend-1-0").await;
            assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
        }
    }
}
