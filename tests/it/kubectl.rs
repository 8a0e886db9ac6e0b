//! kubectl, as it is installed, against the server: what people type and what they are shown.
//!
//! Expected texts are what kubectl prints against the upstream server; ages are masked. Without kubectl, and without
//! the manifests that one test reads, the tests say `skipped: …` and pass.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tests::server::TempDir;
use tests::{Options, Server};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::support::reference;

/// Longest any command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// kubectl with a home of its own, so that nothing it caches is another server's.
pub struct Kubectl {
    kubeconfig: PathBuf,
    home: TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Kubectl {
    /// kubectl for `server`, or `None` and a line that says so.
    pub async fn find(server: &Server) -> Option<Kubectl> {
        let version = Command::new("kubectl").args(["version", "--client"]).output().await;
        if !version.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: kubectl not found");
            return None;
        }
        Some(Kubectl { kubeconfig: server.kubeconfig(), home: TempDir::new() })
    }

    /// A command that is not started yet.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.args(words(arguments)).env("KUBECONFIG", &self.kubeconfig).env("HOME", self.home.path());
        command
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .env_remove("KUBE_EDITOR")
            .kill_on_drop(true);
        command
    }

    /// Runs a command with that standard input.
    pub async fn run(&self, arguments: &str, stdin: &str) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command, stdin).await.unwrap_or_else(|| panic!("kubectl {arguments} does not end"))
    }

    /// Standard output of a command that succeeds.
    pub async fn ok(&self, arguments: &str) -> String {
        self.ok_with(arguments, "").await
    }

    /// The same for one that reads.
    pub async fn ok_with(&self, arguments: &str, stdin: &str) -> String {
        let ran = self.run(arguments, stdin).await;
        assert_eq!(ran.code, Some(0), "kubectl {arguments}: {}{}", ran.out, ran.err);
        ran.out
    }

    /// Runs commands that each print exactly this, whether they succeed or not.
    pub async fn says(&self, cases: &[(&str, &str)]) {
        for (arguments, wanted) in cases {
            let ran = self.run(arguments, "").await;
            let said = format!("{}{}", ran.out, ran.err);
            assert_eq!(said.trim_end(), *wanted, "kubectl {arguments} ended with {:?}", ran.code);
        }
    }
}

/// Starts a command with piped input and output and waits for its end; `None` if it does not come.
pub async fn finish(mut command: Command, stdin: &str) -> Option<Ran> {
    let mut child = command.spawn().expect("kubectl runs");
    let mut input = child.stdin.take().expect("it is piped");
    let stdin = stdin.to_owned();
    let feed = tokio::spawn(async move {
        // A command that does not read its input closes it.
        let _ = input.write_all(stdin.as_bytes()).await;
    });
    let output =
        tokio::time::timeout(PATIENCE, child.wait_with_output()).await.ok()?.expect("it can be waited for");
    let _ = feed.await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("kubectl prints text");
    Some(Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) })
}

/// Splits at blanks; single quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The cells of each line, joined by single blanks; ages become `*`.
fn cells(text: &str) -> Vec<String> {
    let is_age = |cell: &str| {
        cell.len() > 1
            && cell.starts_with(|c: char| c.is_ascii_digit())
            && cell.ends_with(['s', 'm', 'h', 'd'])
            && cell.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
    };
    let line = |line: &str| {
        let cells = line.split_whitespace().map(|cell| if is_age(cell) { "*" } else { cell });
        cells.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).filter(|line| !line.is_empty()).collect()
}

/// Objects of many kinds, one of each.
const MANY: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {node-role.kubernetes.io/control-plane: ""}}
---
apiVersion: v1
kind: Pod
metadata: {name: busy, labels: {app: busy}}
spec: {nodeName: node-1, containers: [{name: c, image: i}, {name: d, image: j}]}
---
apiVersion: v1
kind: Pod
metadata: {name: new}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: b, c: d}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: x}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "web:1"}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: db, image: "db:1"}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: "agent:1"}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: door}
spec:
  rules:
  - host: a.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: example.com/disk
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: lead}
spec: {holderIdentity: me, leaseDurationSeconds: 15}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_shows_the_columns_of_each_kind() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let applied = kubectl.ok_with("apply -f -", MANY).await;
    assert_eq!(applied.lines().count(), MANY.matches("\n---\n").count() + 1, "{applied}");
    assert!(applied.lines().all(|line| line.ends_with(" created")), "{applied}");
    let status = json!({"status": {
        "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "containerStatuses": [
            {"name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 2, "state": {"running": {}}},
            {"name": "d", "image": "j", "imageID": "j", "ready": false, "restartCount": 5,
             "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        ]
    }});
    kubectl.ok(&format!("patch pod busy --subresource=status --type=merge -p '{status}'")).await;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.35.0"}}});
    kubectl.ok(&format!("patch node node-1 --subresource=status -p '{status}'")).await;

    for (arguments, wanted) in [
        (
            "get pods",
            &["NAME READY STATUS RESTARTS AGE", "busy 1/2 CrashLoopBackOff 7 *", "new 0/1 Pending 0 *"][..],
        ),
        (
            "get pods busy -o wide",
            &[
                "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
                "busy 1/2 CrashLoopBackOff 7 * 10.0.0.1 node-1 <none> <none>",
            ],
        ),
        (
            "get pods --show-labels -l app",
            &["NAME READY STATUS RESTARTS AGE LABELS", "busy 1/2 CrashLoopBackOff 7 * app=busy"],
        ),
        (
            "get pods -L app",
            &[
                "NAME READY STATUS RESTARTS AGE APP",
                "busy 1/2 CrashLoopBackOff 7 * busy",
                "new 0/1 Pending 0 *",
            ],
        ),
        ("get pods -n default --field-selector spec.nodeName=node-1 -o name", &["pod/busy"]),
        ("get nodes", &["NAME STATUS ROLES AGE VERSION", "node-1 Ready control-plane * v1.35.0"]),
        ("get cm conf", &["NAME DATA AGE", "conf 2 *"]),
        ("get secrets", &["NAME TYPE DATA AGE", "hidden Opaque 1 *"]),
        (
            "get pvc",
            &[
                "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE",
                "claim Pending <unset> *",
            ],
        ),
        ("get deploy", &["NAME READY UP-TO-DATE AVAILABLE AGE", "web 0/3 0 0 *"]),
        (
            "get deploy -o wide",
            &[
                "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR",
                "web 0/3 0 0 * web web:1 app=web",
            ],
        ),
        ("get sts", &["NAME READY AGE", "db 0/1 *"]),
        (
            "get ds",
            &[
                "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE",
                "agent 0 0 0 0 0 <none> *",
            ],
        ),
        (
            "get cronjob",
            &[
                "NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST SCHEDULE AGE",
                "nightly 0 3 * * * <none> False 0 <none> *",
            ],
        ),
        ("get job", &["NAME STATUS COMPLETIONS DURATION AGE", "once Running 0/1 *"]),
        (
            "get hpa",
            &[
                "NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE",
                "web Deployment/web cpu: <unknown>/80% 1 3 0 *",
            ],
        ),
        ("get ing", &["NAME CLASS HOSTS ADDRESS PORTS AGE", "door <none> a.example.com 80 *"]),
        ("get pdb", &["NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE", "web 1 N/A 0 *"]),
        (
            "get sc",
            &[
                "NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE",
                "fast example.com/disk Delete Immediate false *",
            ],
        ),
        ("get lease", &["NAME HOLDER AGE", "lead me *"]),
        ("get ns default", &["NAME STATUS AGE", "default Active *"]),
        ("get pods -l app=nothing", &[]),
        (
            "get deploy,sts",
            &[
                "NAME READY UP-TO-DATE AVAILABLE AGE",
                "deployment.apps/web 0/3 0 0 *",
                "NAME READY AGE",
                "statefulset.apps/db 0/1 *",
            ],
        ),
    ] {
        assert_eq!(cells(&kubectl.ok(arguments).await), wanted, "kubectl {arguments}");
    }
    kubectl
        .says(&[
            ("get pods -l app=nothing", "No resources found in default namespace."),
            ("get pods absent", r#"Error from server (NotFound): pods "absent" not found"#),
            ("get nonsense", r#"error: the server doesn't have a resource type "nonsense""#),
            (
                "get deploy web -o 'jsonpath={.spec.replicas} {.spec.template.spec.containers[*].image}'",
                "3 web:1",
            ),
            ("get deploy web -o 'go-template={{.metadata.name}}'", "web"),
            (
                "get pods -o 'custom-columns=N:.metadata.name,I:.spec.containers[0].image'",
                "N      I\nbusy   i\nnew    i",
            ),
            ("get --raw /readyz", "ok"),
            ("delete pod busy --wait=false", r#"pod "busy" deleted"#),
        ])
        .await;
    assert_eq!(cells(&kubectl.ok("get pod busy").await)[1], "busy 1/2 Terminating 7 *");
    for (what, wanted) in [
        (
            "deploy web",
            &[
                "Replicas: 3 desired | 0 updated | 0 total | 0 available | 0 unavailable",
                "StrategyType: RollingUpdate",
                "RollingUpdateStrategy: 25% max unavailable, 25% max surge",
            ][..],
        ),
        ("pod new", &["Status: Pending", "QoS Class: BestEffort", "Node: <none>"]),
        ("cm conf", &["Data", "a:", "b"]),
        ("secret hidden", &["Type: Opaque", "password: 1 bytes"]),
        ("node node-1", &["Roles: control-plane", "Ready True"]),
        (
            "job once",
            &[
                "Parallelism: 1",
                "Completion Mode: NonIndexed",
                "Pods Statuses: 0 Active / 0 Succeeded / 0 Failed",
            ],
        ),
        ("ns default", &["Status: Active", "No resource quota.", "No LimitRange resource."]),
        ("pdb web", &["Min available: 1", "Selector: app=web"]),
    ] {
        let described = cells(&kubectl.ok(&format!("describe {what}")).await);
        for line in wanted {
            let is_there = described.iter().any(|described| described.starts_with(line));
            assert!(is_there, "describe {what} lacks {line:?}: {described:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_changed_in_every_way_there_is() {
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
            ("wait '--for=jsonpath={.spec.replicas}=1' deploy/web --timeout=10s", "deployment.apps/web condition met"),
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

    // What is read can be written back.
    let yaml = kubectl.ok("get deploy web -o yaml").await;
    assert!(yaml.starts_with("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n"), "{yaml}");
    assert_eq!(kubectl.ok_with("replace -f -", &yaml).await, "deployment.apps/web replaced\n");
    kubectl.ok("annotate deploy web note=bye --overwrite").await;
    let stale = kubectl.run("replace -f -", &yaml).await;
    let conflict = "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on \
        deployments.apps \"web\": the object has been modified; please apply your changes to the latest version and try again\n";
    assert_eq!((stale.code, stale.err.as_str()), (Some(1), conflict));

    // The editor is a script.
    for (script, wanted) in [
        ("s/replicas: 1/replicas: 6/", "deployment.apps/web edited\n"),
        ("s/nothing/of this/", "Edit cancelled, no changes made.\n"),
    ] {
        let mut command = kubectl.command("edit deploy web");
        command.env("EDITOR", format!("sed -i '{script}'"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ran = finish(command, "").await.expect("the editor ends");
        assert_eq!((ran.code, format!("{}{}", ran.out, ran.err).as_str()), (Some(0), wanted));
    }
    assert_eq!(kubectl.ok("get deploy web -o 'jsonpath={.spec.replicas}'").await, "6");

    // What is wrong with an object is said in the server's words.
    let pod =
        |spec: &str| format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"x"}},"spec":{spec}}}"#);
    for (arguments, object, wanted) in [
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
        assert_eq!(format!("{}{}", ran.err, ran.out), wanted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_watch_sees_live_changes() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let mut watching =
        kubectl.command("get pods -w --output-watch-events").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    // It says nothing before the first pod, so pods come until it listens.
    let mut first = None;
    for i in 0..200 {
        let pod = json!({"metadata": {"name": format!("early-{i}")}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(client.post(pods, &pod).await.status, 201);
        if let Ok(line) = tokio::time::timeout(Duration::from_millis(100), lines.next_line()).await {
            first = line.unwrap();
            break;
        }
    }
    assert_eq!(cells(&first.expect("kubectl watches")), ["EVENT NAME READY STATUS RESTARTS AGE"]);
    let pod = json!({"metadata": {"name": "live"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    client.post(pods, &pod).await;
    let running = json!({"status": {"phase": "Running", "containerStatuses": [
        {"name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "state": {"running": {}}}]}});
    client.patch(&format!("{pods}/live/status"), "merge", &running).await;
    client.delete(&format!("{pods}/live")).await;
    for wanted in
        ["ADDED live 0/1 Pending 0 *", "MODIFIED live 1/1 Running 0 *", "DELETED live 1/1 Terminating 0 *"]
    {
        let line = loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("the change is shown");
            let line = line.unwrap().expect("kubectl goes on");
            if !line.contains("early-") {
                break line;
            }
        };
        assert_eq!(cells(&line), [wanted]);
    }
    watching.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_explains_itself() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let resources = cells(&kubectl.ok("api-resources").await);
    assert_eq!(resources[0], "NAME SHORTNAMES APIVERSION NAMESPACED KIND");
    for row in [
        "configmaps cm v1 true ConfigMap",
        "pods po v1 true Pod",
        "nodes no v1 false Node",
        "deployments deploy apps/v1 true Deployment",
        "horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler",
        "clusterroles rbac.authorization.k8s.io/v1 false ClusterRole",
        "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition",
    ] {
        assert!(resources.iter().any(|line| line == row), "{row} is not in {resources:#?}");
    }
    let namespaced = kubectl.ok("api-resources --namespaced=true --verbs=list -o name").await;
    assert!(
        namespaced.lines().any(|line| line == "deployments.apps") && !namespaced.contains("nodes"),
        "{namespaced}"
    );
    let categories = kubectl.ok("api-resources --categories=all -o name").await;
    let all: BTreeSet<&str> = categories.lines().collect();
    let wanted = "cronjobs.batch daemonsets.apps deployments.apps horizontalpodautoscalers.autoscaling jobs.batch pods \
        replicasets.apps replicationcontrollers services statefulsets.apps";
    assert_eq!(all, wanted.split_whitespace().collect());
    let versions = kubectl.ok("api-versions").await;
    for version in
        ["v1", "apps/v1", "batch/v1", "autoscaling/v1", "autoscaling/v2", "policy/v1", "storage.k8s.io/v1"]
    {
        assert!(versions.lines().any(|line| line == version), "{version} is not in {versions}");
    }

    let explained = kubectl.ok("explain pod.spec.containers").await;
    assert!(
        explained.starts_with("KIND:       Pod\nVERSION:    v1\n\nFIELD: containers <[]Container>\n"),
        "{explained}"
    );
    for field in [
        "  image\t<string>",
        "  name\t<string> -required-",
        "  ports\t<[]ContainerPort>",
        "  resources\t<ResourceRequirements>",
    ] {
        assert!(explained.contains(field), "{field} is not in {explained}");
    }
    let explained = kubectl.ok("explain deploy.spec.replicas").await;
    assert!(explained.starts_with(
        "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n\nFIELD: replicas <integer>\n"
    ));
    let tree = kubectl.ok("explain cronjob --recursive").await;
    assert!(tree.contains("jobTemplate\t<JobTemplateSpec> -required-"), "{tree}");
    let absent = kubectl.run("explain pod.nonsense", "").await;
    assert_eq!((absent.code, absent.err.as_str()), (Some(1), "error: field \"nonsense\" does not exist\n"));
    let version = kubectl.ok("version").await;
    assert!(version.contains("Server Version: v1."), "{version}");
    let info = kubectl.ok("cluster-info").await;
    let address = &server.client().identity().address;
    assert!(info.contains(" control plane is running at ") && info.contains(address.as_str()), "{info}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_manifests_are_applied_shown_and_deleted() {
    let server = Server::start_upstream().await;
    let (Some(kubectl), Some(manifests)) = (Kubectl::find(&server).await, reference("manifests/workloads"))
    else {
        return;
    };
    let manifests = manifests.display();

    // Two of the manifests rename nothing but mean another object of the same name; those changes are refused.
    let applied = kubectl.run(&format!("apply -R -f {manifests}"), "").await;
    let refused: BTreeSet<&str> =
        applied.err.lines().filter_map(|line| line.split(" is invalid: ").nth(1)).collect();
    let subjects: Vec<&str> = applied.err.lines().filter(|line| line.contains(" is invalid: ")).collect();
    assert!(
        applied
            .err
            .lines()
            .filter(|line| line.starts_with("Error from server"))
            .all(|line| line.contains("(Invalid)")),
        "{}",
        applied.err
    );
    assert_eq!(subjects.len(), 2, "{}", applied.err);
    assert!(
        subjects[0].contains("StatefulSet.apps \"mysql\"")
            && subjects[1].contains("PersistentVolume \"pv0003\"")
    );
    let sets = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
        'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    assert!(refused.contains(sets), "{refused:?}");
    let mut outcomes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in applied.out.lines() {
        let (object, outcome) = line.rsplit_once(' ').unwrap();
        outcomes.entry(object).or_default().push(outcome);
    }
    assert!(outcomes.len() > 40, "{}", applied.out);
    assert!(outcomes.values().all(|outcomes| outcomes[0] == "created"), "{outcomes:?}");

    // A second time nothing is written. Where kubectl cannot know what the
    // server would make of a field it sends a patch and says `configured`: selectors of budgets (which are
    // replaced), claim templates (which have defaults) and quantities that are not in canonical form.
    let versions = async || {
        let template = r#"{range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion}{"\n"}{end}"#;
        kubectl.ok(&format!("get -R -f {manifests} -o 'jsonpath={template}'")).await
    };
    let before = versions().await;
    let again = kubectl.run(&format!("apply -R -f {manifests}"), "").await;
    for line in again.out.lines() {
        let (object, outcome) = line.rsplit_once(' ').unwrap();
        let may_patch = object.starts_with("statefulset.apps/")
            || object.starts_with("poddisruptionbudget.policy/")
            || ["replicationcontroller/cassandra", "pod/redis-master"].contains(&object);
        assert!(outcome == "unchanged" || may_patch && outcome == "configured", "{line}");
    }
    let after = versions().await;
    let changed = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
    let changed: BTreeSet<&str> = changed.map(|(before, _)| before.split('=').next().unwrap()).collect();
    assert!(changed.is_empty(), "written although nothing changed: {changed:?}");

    let all = kubectl.ok("get all -A").await;
    for header in [
        "NAMESPACE NAME READY STATUS RESTARTS AGE",
        "NAMESPACE NAME DESIRED CURRENT READY AGE",
        "NAMESPACE NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE",
        "NAMESPACE NAME READY UP-TO-DATE AVAILABLE AGE",
        "NAMESPACE NAME READY AGE",
        "NAMESPACE NAME STATUS COMPLETIONS DURATION AGE",
    ] {
        assert!(cells(&all).iter().any(|line| line == header), "{header} is not in {all}");
    }
    for row in [
        "default deployment.apps/frontend 0/3 0 0 *",
        "default pod/valid-pod 0/1 Pending 0 *",
        "default replicationcontroller/nginx 3 0 0 *",
        "default statefulset.apps/etcd 0/3 *",
        "default job.batch/pi Running 0/1 *",
    ] {
        assert!(cells(&all).iter().any(|line| line == row), "{row} is not in {all}");
    }
    let described = kubectl.ok("describe deploy,pod,svc,sts,rc,job,cm,pvc,pdb").await;
    assert!(
        described.contains("Name:                   frontend") && described.contains("Pod Template:"),
        "{described}"
    );
    let same = kubectl.run(&format!("diff -R -f {manifests}/guestbook"), "").await;
    assert_eq!((same.code, same.out.as_str()), (Some(0), ""), "{}", same.err);

    // Claims and volumes wait for controllers that do not run here.
    let deleted = kubectl.ok(&format!("delete -R --ignore-not-found --wait=false -f {manifests}")).await;
    assert!(deleted.lines().all(|line| line.contains("\" deleted")), "{deleted}");
    let left = kubectl.ok(&format!("get -R --ignore-not-found -o name -f {manifests}")).await;
    assert_eq!(left.lines().find(|line| !line.starts_with("persistentvolume")), None, "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_the_default_vocabulary_groups_without_a_suffix_work_all_the_same() {
    let server = Server::start(Options { naming: "cluster", ..Options::default() }).await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let plain = MANY
        .split("---\n")
        .filter(|object| !object.contains(".k8s.io/v1"))
        .map(|object| object.replace("node-role.kubernetes.io", "example.com"));
    let plain = plain.collect::<Vec<_>>().join("---\n");
    let count = plain.matches("---\n").count() + 1;
    let created = kubectl.ok_with("apply -f -", &plain).await;
    assert_eq!(created.lines().filter(|line| line.ends_with(" created")).count(), count, "{created}");
    let again = kubectl.ok_with("apply -f -", &plain).await;
    let configured: Vec<&str> = again.lines().filter(|line| !line.ends_with(" unchanged")).collect();
    assert_eq!(
        configured,
        ["secret/hidden configured", "poddisruptionbudget.policy/web configured"],
        "{again}"
    );
    kubectl
        .says(&[
            ("create configmap typed --from-literal=a=b", "configmap/typed created"),
            ("create deployment typed --image=i", "deployment.apps/typed created"),
            ("delete deployment typed", "deployment.apps \"typed\" deleted"),
            ("create job typed --image=i", "job.batch/typed created"),
            ("label deploy web a=b", "deployment.apps/web labeled"),
            ("annotate job once a=b", "job.batch/once annotated"),
            ("scale deploy web --replicas=9", "deployment.apps/web scaled"),
            ("scale sts db --replicas=2", "statefulset.apps/db scaled"),
            (r#"patch deploy web -p '{"spec":{"paused":true}}'"#, "deployment.apps/web patched"),
            (r#"patch cm conf --type=merge -p '{"data":{"a":"z"}}'"#, "configmap/conf patched"),
            (r#"patch cm conf --type=json -p '[{"op":"remove","path":"/data/c"}]'"#, "configmap/conf patched"),
            ("get cm conf -o 'jsonpath={.data}'", r#"{"a":"z"}"#),
            ("get deploy web -o 'jsonpath={.spec.replicas} {.spec.paused}'", "9 true"),
            ("set image deploy/web web=web:2", "deployment.apps/web image updated"),
            ("rollout resume deploy web", "deployment.apps/web resumed"),
            ("run more --image=i", "pod/more created"),
            ("wait '--for=jsonpath={.status.phase}=Pending' pod/more --timeout=10s", "pod/more condition met"),
            ("delete pod more", r#"pod "more" deleted"#),
            ("get pod more", r#"Error from server (NotFound): pods "more" not found"#),
            ("delete deploy,sts,ds,cronjob,hpa,pdb --all -o name", "deployment.apps/web\nstatefulset.apps/db\ndaemonset.apps/agent\ncronjob.batch/nightly\nhorizontalpodautoscaler.autoscaling/web\npoddisruptionbudget.policy/web"),
        ])
        .await;
    for (arguments, wanted) in [
        (
            "get pods new -o wide",
            [
                "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
                "new 0/1 Pending 0 * <none> <none> <none> <none>",
            ],
        ),
        ("get nodes", ["NAME STATUS ROLES AGE VERSION", "node-1 Unknown <none> *"]),
        ("get cm typed", ["NAME DATA AGE", "typed 1 *"]),
        ("get job typed", ["NAME STATUS COMPLETIONS DURATION AGE", "typed Running 0/1 *"]),
    ] {
        assert_eq!(cells(&kubectl.ok(arguments).await), wanted, "kubectl {arguments}");
    }
    let versions = kubectl.ok("api-versions").await;
    assert!(versions.contains("rbac.authorization.cluster.io/v1"), "{versions}");
    let described = kubectl.ok("describe job once").await;
    assert!(described.contains("Completion Mode:"), "{described}");
    let explained = kubectl.ok("explain pod.spec.nodeName").await;
    assert!(explained.contains("FIELD: nodeName <string>"), "{explained}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_cascades_as_it_is_told() {
    // Semantics §5.3, §17 "Garbage collector".
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
        // The command waits until the owner is gone.
        let said = kubectl.ok(&format!("delete configmap owner --cascade={cascade}")).await;
        assert!(said.starts_with("configmap \"owner\" deleted"), "{said}");
        assert_eq!(client.get(&format!("{maps}/owner")).await.status, 404, "{cascade}");
        match cascade {
            "foreground" => assert_eq!(client.get(&format!("{maps}/child")).await.status, 404),
            "background" => drop(kubectl.ok("wait --for=delete configmap/child --timeout=20s").await),
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
async fn objects_are_waited_for_and_shown_in_every_form() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(client.post(pods, &pod).await.status, 201);

    // Waits that are satisfied by a change, by what is there already, and by a deletion.
    let condition = "wait pod/p --for=condition=Ready --timeout=60s";
    let waiting = kubectl.ok(condition);
    let change = async {
        let ready =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        client.patch(&format!("{pods}/p/status"), "merge", &ready).await
    };
    let (waited, changed) = futures_util::join!(waiting, change);
    assert_eq!((waited.as_str(), changed.status), ("pod/p condition met\n", 200));
    let phase = kubectl.ok("wait pod/p '--for=jsonpath={.status.phase}=Running' --timeout=60s").await;
    assert_eq!(phase, "pod/p condition met\n");

    let yaml = kubectl.ok("get pod p -o yaml").await;
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n"), "{yaml}");
    assert!(!yaml.contains("managedFields"), "{yaml}");
    let managed: Value =
        serde_json::from_str(&kubectl.ok("get pod p -o json --show-managed-fields").await).unwrap();
    let stored = client.get(&format!("{pods}/p")).await.json();
    assert_eq!(managed["metadata"]["managedFields"], stored["metadata"]["managedFields"]);
    let wide = cells(&kubectl.ok("get pods -o wide").await);
    assert_eq!(wide[0], "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES");
    let columns = kubectl.ok("get pods -o 'custom-columns=NAME:.metadata.name,NODE:.spec.nodeName'").await;
    assert_eq!(cells(&columns), ["NAME NODE", "p n"]);

    // A delete waits for the object to go, which a finalizer holds up.
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(client.post(maps, &held).await.status, 201);
    let path = format!("{maps}/held");
    let release = async {
        let deleting =
            async |path: &str| !client.get(path).await.json()["metadata"]["deletionTimestamp"].is_null();
        while !deleting(&path).await {
            tokio::task::yield_now().await;
        }
        client.patch(&path, "merge", &json!({"metadata": {"finalizers": null}})).await
    };
    let (said, released) = futures_util::join!(kubectl.ok("delete configmap held"), release);
    assert_eq!(
        (said.lines().next().unwrap_or_default(), released.status),
        ("configmap \"held\" deleted", 200)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_on_the_server_knows_owners_and_changes_nothing_twice() {
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

    // Somebody scales; kubectl's next apply says whose the count is, and takes it when told to.
    kubectl.ok("scale deployment web --replicas=5").await;
    let refused = kubectl.run(SERVER_SIDE, &web(1, "a:1")).await;
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("Apply failed with 1 conflict"), "{}", refused.err);
    assert!(refused.err.contains(".spec.replicas"), "{}", refused.err);
    kubectl.ok_with("apply --server-side --force-conflicts -f -", &web(1, "a:1")).await;
    assert_eq!(kubectl.ok("get deployment web -o jsonpath={.spec.replicas}").await, "1");

    // What was applied on the client's side moves over without a conflict.
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
