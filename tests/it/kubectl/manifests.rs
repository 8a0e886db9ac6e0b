//! Tests that apply, print and delete published manifests.

use std::collections::{BTreeMap, BTreeSet};

use tests::{Options, Server};

use super::{Kubectl, MANY, cells};
use crate::support::reference;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_applies_shows_and_deletes_published_manifests() {
    let server = Server::start_upstream().await;
    let (Some(kubectl), Some(manifests)) = (Kubectl::find(&server).await, reference("manifests/workloads"))
    else {
        return;
    };
    let manifests = manifests.display();

    let applied = kubectl.run(&format!("apply -R -f {manifests}"), "").await;
    assert_eq!(applied.code, Some(0), "{}", applied.err);
    let mut outcomes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in applied.out.lines() {
        let (object, outcome) = line.rsplit_once(' ').unwrap();
        outcomes.entry(object).or_default().push(outcome);
    }
    assert!(outcomes.len() > 40, "{}", applied.out);
    assert!(outcomes.values().all(|outcomes| outcomes[0] == "created"), "{outcomes:?}");

    // A second apply writes nothing. If kubectl cannot predict the stored form of a field, it sends a patch
    // and prints `configured`: selectors of budgets (which are replaced), claim templates (which have
    // defaults) and quantities that are not canonical.
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
    assert!(changed.is_empty(), "some unchanged objects were written: {changed:?}");

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

    // Claims and volumes wait for controllers that this server does not run.
    let deleted = kubectl.ok(&format!("delete -R --ignore-not-found --wait=false -f {manifests}")).await;
    assert!(deleted.lines().all(|line| line.contains("\" deleted")), "{deleted}");
    let left = kubectl.ok(&format!("get -R --ignore-not-found -o name -f {manifests}")).await;
    assert_eq!(left.lines().find(|line| !line.starts_with("persistentvolume")), None, "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_without_a_suffix_work_in_the_default_naming_profile() {
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
            ("wait '--for=jsonpath={.status.phase}=Pending' pod/more --timeout=120s", "pod/more condition met"),
            ("delete pod more", r#"pod "more" deleted"#),
            ("get pod more", r#"Error from server (NotFound): pods "more" not found"#),
            ("delete deploy,sts,ds,cronjob,hpa,pdb --all -o name", "deployment.apps/web\nstatefulset.apps/db\ndaemonset.apps/agent\ncronjob.batch/nightly\nhorizontalpodautoscaler.autoscaling/web\npoddisruptionbudget.policy/web"),
        ])
        .await;
    for (arguments, expected) in [
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
        assert_eq!(cells(&kubectl.ok(arguments).await), expected, "kubectl {arguments}");
    }
    let versions = kubectl.ok("api-versions").await;
    assert!(versions.contains("rbac.authorization.cluster.io/v1"), "{versions}");
    let described = kubectl.ok("describe job once").await;
    assert!(described.contains("Completion Mode:"), "{described}");
    let explained = kubectl.ok("explain pod.spec.nodeName").await;
    assert!(explained.contains("FIELD: nodeName <string>"), "{explained}");
}
