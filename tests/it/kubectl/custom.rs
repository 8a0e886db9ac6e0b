//! Tests of all kubectl commands for custom types, with definitions that users install.

use std::process::Stdio;

use serde_json::{Map, Value, json};
use tests::Server;

use super::{Kubectl, cells, finish};
use crate::support::reference;

/// Depth of a schema below which the generator produces no values.
const DEPTH_MAX: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_definitions_are_applied_and_their_objects_used() {
    let server = Server::start_upstream().await;
    let (Some(kubectl), Some(manifests)) = (Kubectl::find(&server).await, reference("manifests/crds")) else {
        return;
    };
    let manifests = manifests.display();
    for flags in ["", "", "--server-side --force-conflicts", "--server-side"] {
        let applied = kubectl.run(&format!("apply {flags} -f {manifests}"), "").await;
        assert_eq!(applied.code, Some(0), "{flags}: {}", applied.err);
    }
    kubectl.ok("wait --for=condition=Established --timeout=120s crd --all").await;

    let definitions: Value = serde_json::from_str(&kubectl.ok("get crd -o json").await).unwrap();
    let definitions = definitions["items"].as_array().unwrap();
    assert!(definitions.len() >= 7, "{}", definitions.len());
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let spec = &definition["spec"];
        let mut versions = spec["versions"].as_array().unwrap().iter();
        let version = versions.find(|version| version["storage"] == true).unwrap();
        let mut object = sample(&version["schema"]["openAPIV3Schema"], 0);
        object["apiVersion"] =
            format!("{}/{}", spec["group"].as_str().unwrap(), version["name"].as_str().unwrap()).into();
        object["kind"] = spec["names"]["kind"].clone();
        object["metadata"] = json!({"name": "sample", "labels": {"from": "test"}});
        for flags in ["", "", "--server-side --force-conflicts"] {
            let applied = kubectl.run(&format!("apply {flags} -f -"), &object.to_string()).await;
            assert_eq!(applied.code, Some(0), "{name}: {}{object}", applied.err);
        }
        let listed = cells(&kubectl.ok(&format!("get {name} -l from=test")).await);
        assert!(listed.len() == 2 && listed[0].starts_with("NAME "), "{name}: {listed:?}");
        assert!(listed[1].starts_with("sample "), "{name}: {listed:?}");
        let explained = kubectl.ok(&format!("explain {name} --recursive")).await;
        assert!(explained.contains("\nFIELDS:\n") && explained.contains("  spec\t<"), "{name}: {explained}");
        let patch = r#"'{"metadata":{"annotations":{"seen":"yes"}}}'"#;
        kubectl.ok(&format!("patch {name} sample --type=merge -p {patch}")).await;
        let seen = kubectl.ok(&format!("get {name} sample -o jsonpath={{.metadata.annotations.seen}}")).await;
        assert_eq!(seen, "yes", "{name}");
        kubectl.ok(&format!("delete {name} sample")).await;
    }
    kubectl.ok(&format!("delete -f {manifests}")).await;
    assert_eq!(kubectl.ok("get crd -o name").await, "");
}

/// Returns a value that a schema accepts, with all required members.
fn sample(schema: &Value, depth: usize) -> Value {
    if let Some(value) = schema.get("default") {
        return value.clone();
    }
    if let Some(value) = schema["enum"].get(0) {
        return value.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let mut object = Map::new();
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for name in required.chain(["spec"]).filter(|_| depth < DEPTH_MAX) {
                if let Some(property) = schema["properties"].get(name) {
                    object.insert(name.to_owned(), sample(property, depth + 1));
                }
            }
            object.into()
        }
        Some("array") => {
            let count = usize::from(schema["minItems"].as_u64().is_some_and(|least| least > 0));
            vec![sample(&schema["items"], depth + 1); count].into()
        }
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| 1.into()),
        Some("boolean") => true.into(),
        _ => match schema["format"].as_str() {
            Some("date-time") => "2024-01-01T00:00:00Z".into(),
            Some("byte") => "YQ==".into(),
            _ => "sample".into(),
        },
    }
}

const SCALED: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.e2e.example.com}
spec:
  group: e2e.example.com
  scope: Namespaced
  names: {plural: fleets, kind: Fleet, shortNames: [fl], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer, minimum: 0}, image: {type: string}}}
          status: {type: object, properties: {replicas: {type: integer}, phase: {type: string}}}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Wanted, type: integer, jsonPath: .spec.replicas}
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Image, type: string, jsonPath: .spec.image, priority: 1}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_scales_and_waits_for_custom_objects() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    kubectl.ok_with("apply -f -", SCALED).await;
    kubectl.ok("wait --for=condition=Established --timeout=120s crd/fleets.e2e.example.com").await;
    let fleet = r#"{"apiVersion":"e2e.example.com/v1","kind":"Fleet","metadata":{"name":"f"},"spec":{"replicas":2,"image":"i"}}"#;
    kubectl.ok_with("apply -f -", fleet).await;
    assert_eq!(cells(&kubectl.ok("get fl").await), ["NAME WANTED PHASE", "f 2"]);
    assert_eq!(cells(&kubectl.ok("get fl -o wide").await), ["NAME WANTED PHASE IMAGE", "f 2 i"]);
    assert_eq!(kubectl.ok("scale fleet/f --replicas=5").await, "fleet.e2e.example.com/f scaled\n");
    let waiting = kubectl.ok("wait fleet/f --for=jsonpath={.status.phase}=Ready --timeout=120s");
    let reporting = async {
        let patch = r#"'{"status":{"phase":"Ready","replicas":5}}'"#;
        kubectl.ok(&format!("patch fleet f --subresource=status --type=merge -p {patch}")).await
    };
    let (waited, _) = tokio::join!(waiting, reporting);
    assert_eq!(waited, "fleet.e2e.example.com/f condition met\n");
    assert_eq!(cells(&kubectl.ok("get all").await).last().unwrap(), "fleet.e2e.example.com/f 5 Ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_objects_are_pruned_by_label_and_by_set() {
    let server = Server::start_upstream().await;
    let Some(kubectl) = Kubectl::find(&server).await else { return };
    // Objects of the type may also be parents of an apply set.
    let parent =
        "metadata: {name: fleets.e2e.example.com, labels: {applyset.kubernetes.io/is-parent-type: 'true'}}";
    let definition = SCALED.replace("metadata: {name: fleets.e2e.example.com}", parent);
    kubectl.ok_with("apply -f -", &definition).await;
    kubectl.ok("wait --for=condition=Established --timeout=120s crd/fleets.e2e.example.com").await;
    let fleets = |names: &[&str]| {
        let fleet = |name: &&str| {
            format!(
                "apiVersion: e2e.example.com/v1\nkind: Fleet\nmetadata: {{name: {name}, labels: {{app: x}}}}\nspec: {{replicas: 1}}\n"
            )
        };
        names.iter().map(fleet).collect::<Vec<_>>().join("---\n")
    };
    let names = async || {
        let listed = kubectl.ok("get fleets -o name --sort-by=.metadata.name").await;
        listed.lines().map(|line| line.rsplit('/').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let prune = "apply --prune -l app=x --prune-allowlist=e2e.example.com/v1/Fleet -f -";
    kubectl.ok_with(prune, &fleets(&["a", "b"])).await;
    assert_eq!(names().await, ["a", "b"]);
    let said = kubectl.ok_with(prune, &fleets(&["b", "c"])).await;
    assert!(said.contains("fleet.e2e.example.com/a pruned"), "{said}");
    assert_eq!(names().await, ["b", "c"]);
    kubectl.ok("delete fleets --all").await;

    for parent in ["configmap/set", "secret/set"] {
        let apply = async |names: &[&str]| {
            let apply = format!("apply -n default --server-side --prune --applyset={parent} -f -");
            let mut command = kubectl.command(&apply);
            command.env("KUBECTL_APPLYSET", "true");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let ran = finish(command, &fleets(names)).await.expect("kubectl ends");
            assert_eq!(ran.code, Some(0), "{parent}: {}{}", ran.out, ran.err);
            ran.out
        };
        apply(&["d", "e"]).await;
        let said = apply(&["e", "f"]).await;
        assert!(said.contains("fleet.e2e.example.com/d pruned"), "{parent}: {said}");
        assert_eq!(names().await, ["e", "f"], "{parent}");
        kubectl.ok("delete fleets e f").await;
    }
}
