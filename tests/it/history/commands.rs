//! The commands `history log|show|diff|restore|who`, the plugin of kubectl, and kubeconfigs of an earlier point.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tests::server::binary;
use tests::{Client, Server};

use super::log::server;
use crate::backups::flag;
use crate::kubectl::Kubectl;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Runs a command with the administrator's kubeconfig, outside of the runtime of the test.
pub async fn run(server: &Server, line: &str) -> Output {
    let kubeconfig = flag("kubeconfig", &server.kubeconfig());
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    words.push(kubeconfig);
    let run = move || Command::new(binary()).args(words).output().expect("the binary runs");
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Returns the output of a command that succeeds.
pub async fn ok(server: &Server, line: &str) -> String {
    let output = run(server, line).await;
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the report of a command that succeeds.
pub async fn json_of(server: &Server, line: &str) -> Value {
    serde_json::from_str(&ok(server, &format!("{line} -o json")).await).unwrap()
}

/// Returns the error of a command that fails.
async fn refused(server: &Server, line: &str) -> String {
    let output = run(server, line).await;
    assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn deployment(image: &str, replicas: u32) -> Value {
    let labels = json!({"app": "web"});
    let template = json!({
        "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]},
    });
    json!({
        "metadata": {"name": "web", "annotations": {"a.b/c": image}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    })
}

/// Creates a deployment, sets a wrong image as another user, and scales the deployment. Returns the three revisions.
async fn broken(client: &Client) -> [String; 3] {
    let bob = client.with_token("bob-token");
    let path = format!("{DEPLOYMENTS}/web");
    let revision = |object: Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let first = client.post(DEPLOYMENTS, &deployment("web:1", 2)).await.json();
    let broken = json!({"spec": deployment("web:broken", 2)["spec"]});
    let headers = [("content-type", "application/merge-patch+json"), ("user-agent", "tool/1.0")];
    let manager = format!("{path}?fieldManager=editor");
    let second = bob.send("PATCH", &manager, &headers, broken.to_string().as_bytes()).await.json();
    let scale = json!({"spec": {"replicas": 5}});
    assert_eq!(client.patch(&format!("{path}/scale"), "merge", &scale).await.status, 200);
    let third = client.get(&path).await.json();
    [first, second, third].map(revision)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_commands_read_the_history_of_an_object() {
    let server = server(&[]).await;
    let [first, second, third] = broken(server.client()).await;

    let table = ok(&server, "history log deployments/web").await;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["REVISION", "AGE", "OPERATION", "AUTHOR", "FIELDS"]);
    assert_eq!([lines[1][0], lines[2][0], lines[3][0]], [&*third, &*second, &*first], "{table}");
    assert!(table.contains("Update scale") && table.contains("bob (editor)"), "{table}");
    assert!(table.contains("spec.template.spec.containers[0].image"), "{table}");
    assert!(!table.contains('\x1b'), "there are no colours without a terminal");
    for name in
        ["deploy/web", "Deployment/web", "deployment web", "deployments.apps/web", "deployments.v1.apps/web"]
    {
        let log = json_of(&server, &format!("history log {name} --limit=2")).await;
        assert_eq!(log["items"].as_array().unwrap().len(), 2, "{name}");
    }
    let log = json_of(&server, &format!("history log deploy/web --since={second}")).await;
    assert_eq!(log["items"][0]["revision"], *third);
    assert_eq!(log["items"].as_array().unwrap().len(), 1);

    let then = json_of(&server, &format!("history show deploy/web --at={first}")).await;
    assert_eq!(then["spec"]["template"]["spec"]["containers"][0]["image"], "web:1");
    let yaml = ok(&server, &format!("history show deploy/web --at {second}")).await;
    assert!(yaml.contains("image: web:broken"), "{yaml}");

    let diff = ok(&server, "history diff deploy/web").await;
    assert!(diff.contains("\n-  replicas: 2\n+  replicas: 5\n"), "{diff}");
    let diff = ok(&server, &format!("history diff deploy/web --from={first} --to={second}")).await;
    assert!(diff.contains("-      - image: web:1\n+      - image: web:broken\n"), "{diff}");
    assert!(!diff.contains("managedFields") && !diff.contains("resourceVersion"), "{diff}");
    assert_eq!(ok(&server, &format!("history diff deploy/web --from={third}")).await, "");

    let image = "history who deploy/web --field=spec.template.spec.containers[0].image";
    let who = json_of(&server, image).await;
    assert_eq!(
        (&who["author"]["user"], &who["from"], &who["to"]),
        (&json!("bob"), &json!("web:1"), &json!("web:broken"))
    );
    let text = ok(&server, image).await;
    assert!(
        text.contains("\"web:1\" -> \"web:broken\"") && text.contains("Update by bob (editor)"),
        "{text}"
    );
    let who = json_of(&server, "history who deploy/web --field=.spec.replicas").await;
    assert_eq!((&who["subresource"], &who["from"]), (&json!("scale"), &json!(2)));
    let created = ok(&server, "history who deploy/web --field=metadata.annotations[\"a.b/c\"]").await;
    assert!(created.contains("(absent) -> \"web:1\"\nCreate by "), "{created}");

    for (line, want) in [
        ("history log web", "does not name an object: write TYPE/NAME or TYPE NAME"),
        ("history log deploy/web/x", "does not name an object"),
        ("history log nothings/web", "the server has no resource type \"nothings\""),
        ("history log deploy/other", "no version of deployments.apps default/other is retained"),
        ("history show deploy/web --at=now", "must be a revision (184467), a time"),
        ("history show deploy/web --at=1", "did not exist at 1"),
        ("history show deploy/web --at=99999999", "is in the future"),
        ("history who deploy/web --field=a..b", "must be a field path"),
        ("history who deploy/web --field=spec.paused", "no retained version of"),
    ] {
        let message = refused(&server, line).await;
        assert!(message.starts_with("error: ") && message.contains(want), "{line}: {message}");
        assert_eq!(message.lines().count(), 1, "{line}: {message}");
    }
    let unconfirmed = refused(&server, &format!("history undo deploy --since={first}")).await;
    assert!(unconfirmed.contains("there is no terminal: run the command with --yes"), "{unconfirmed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_command_restores_an_object_also_as_a_kubectl_plugin() {
    let server = server(&[]).await;
    let [first, _, third] = broken(server.client()).await;
    let path = format!("{DEPLOYMENTS}/web");
    let restore = format!("history restore deploy/web --to={first}");
    let dry = ok(&server, &format!("{restore} --dry-run=server")).await;
    assert!(dry.contains("-  replicas: 5\n+  replicas: 2\n"), "{dry}");
    assert!(dry.ends_with("deployments.apps default/web restored (server dry run)\n"), "{dry}");
    assert_eq!(server.client().get(&path).await.json()["metadata"]["resourceVersion"], *third);
    let done = ok(&server, &restore).await;
    assert!(done.ends_with("deployments.apps default/web restored\n"), "{done}");
    assert_eq!(server.client().get(&path).await.json()["spec"]["replicas"], 2);
    let again = ok(&server, &restore).await;
    assert!(again.ends_with("deployments.apps default/web unchanged\n"), "{again}");
    assert_eq!(server.client().delete(&path).await.status, 200);
    let created = json_of(&server, &restore).await;
    assert_eq!(created["object"]["spec"]["template"]["spec"]["containers"][0]["image"], "web:1");

    // The executable is a plugin if it has the plugin's name.
    let plugin = server.data_dir().join("kubectl-history");
    symlink(binary(), &plugin).unwrap();
    let kubeconfig = flag("kubeconfig", &server.kubeconfig());
    let output = Command::new(plugin).args(["log", "deploy/web", "-o=json", &kubeconfig]).output().unwrap();
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(log.contains("Delete"), "{output:?}");

    // kubectl finds the plugin through PATH.
    let mut directories = vec![server.data_dir().to_owned()];
    directories.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(directories).unwrap();
    for kubectl in Kubectl::spread_releases(&server, 3).await {
        let mut command = kubectl.command("history log deploy/web -o=json");
        let output = command.env("PATH", &path).output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, log, "{} {output:?}", kubectl.program().display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_of_an_earlier_point_reads_that_point() {
    let server = server(&[]).await;
    let [first, ..] = broken(server.client()).await;
    let (data_dir, into) = (flag("data-dir", server.data_dir()), server.data_dir().join("own"));
    let merge = |point: &str| {
        let words = ["kubeconfig", "merge", &data_dir, &flag("into", &into), point].map(str::to_owned);
        let output = Command::new(binary()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    };
    merge("--switch");
    merge(&format!("--as-of={first}"));
    let text = std::fs::read_to_string(&into).unwrap();
    assert!(text.contains(&format!("/as-of/{first}\n")), "{text}");
    let output = server.data_dir().join("then");
    let (user, as_of) = ("--user=admin", format!("--as-of={first}"));
    let words =
        ["kubeconfig", "create", user, "-g=system:masters", &as_of, &data_dir, &flag("output", &output)];
    let created = Command::new(binary()).args(words).output().unwrap();
    assert_eq!(created.status.code(), Some(0), "{created:?}");
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let kubectl = kubectl.with_kubeconfig(output);
    let image = "-o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl.ok(&format!("get deployment web {image}")).await, "web:1");
    assert!(kubectl.run("delete deployment web", "").await.err.contains("the past is read-only"));
}
