//! Tests of kubectl commands that read, and of their output.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tests::{PATIENCE, Server};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{Kubectl, MANY, cells};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_get_shows_the_columns_of_each_kind() {
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

    for (arguments, expected) in [
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
        assert_eq!(cells(&kubectl.ok(arguments).await), expected, "kubectl {arguments}");
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
    for (what, expected) in [
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
        for line in expected {
            let is_there = described.iter().any(|described| described.starts_with(line));
            assert!(is_there, "describe {what} lacks {line:?}: {described:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_get_watch_shows_live_changes() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let mut watching =
        kubectl.command("get pods -w --output-watch-events").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    // The command prints nothing before the first pod, so pods are created until it prints one.
    let mut first = None;
    for i in 0..2000 {
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
    for expected in
        ["ADDED live 0/1 Pending 0 *", "MODIFIED live 1/1 Running 0 *", "DELETED live 1/1 Terminating 0 *"]
    {
        let line = loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a change is printed");
            let line = line.unwrap().expect("kubectl prints another line");
            if !line.contains("early-") {
                break line;
            }
        };
        assert_eq!(cells(&line), [expected]);
    }
    watching.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_explain_and_api_resources_describe_the_api() {
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
    let expected = "cronjobs.batch daemonsets.apps deployments.apps horizontalpodautoscalers.autoscaling jobs.batch pods \
        replicasets.apps replicationcontrollers services statefulsets.apps";
    assert_eq!(all, expected.split_whitespace().collect());
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
async fn kubectl_waits_for_objects_and_prints_them_in_every_format() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(client.post(pods, &pod).await.status, 201);

    // These waits end because of a change, because of the current state, and because of a deletion.
    let condition = "wait pod/p --for=condition=Ready --timeout=120s";
    let waiting = kubectl.ok(condition);
    let change = async {
        let ready =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        client.patch(&format!("{pods}/p/status"), "merge", &ready).await
    };
    let (waited, changed) = futures_util::join!(waiting, change);
    assert_eq!((waited.as_str(), changed.status), ("pod/p condition met\n", 200));
    let phase = kubectl.ok("wait pod/p '--for=jsonpath={.status.phase}=Running' --timeout=120s").await;
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

    // `delete` waits until the object is removed. A finalizer delays the removal.
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
