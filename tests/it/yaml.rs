//! YAML in requests and responses (semantics §9.1–9.3, §9.5), over the wire.

use serde_json::json;

use crate::place::Place;

/// A body of many of YAML's forms: anchors, merges, block scalars, words that YAML 1.1 makes booleans.
const MAP: &str = "\
# comment
apiVersion: v1
kind: ConfigMap
metadata:
  name: forms
  labels: &labels {app: web, \"on\": \"yes\"}
  annotations:
    <<: *labels
    folded: >-
      one
      two
data:
  literal: |
    a
    b
  quoted: '1_000'
binaryData:
  b: AP8=
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_may_be_yaml() {
    let place = Place::new("yaml").await;
    let yaml = "Content-Type: application/yaml";
    let created = place.ask(&format!("POST $core/configmaps | {yaml}"), MAP).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let object = created.json();
    assert_eq!(object["data"], json!({"literal": "a\nb\n", "quoted": "1_000"}));
    assert_eq!(object["binaryData"], json!({"b": "AP8="}));
    assert_eq!(object["metadata"]["labels"], json!({"app": "web", "on": "yes"}));
    assert_eq!(object["metadata"]["annotations"], json!({"app": "web", "on": "yes", "folded": "one two"}));

    place
        .check(&[
            (
                "9.2",
                "PUT $core/configmaps/forms | Content-Type: application/yaml; charset=utf-8",
                "metadata: {name: forms}\ndata: {a: b}",
                "200 ConfigMap",
            ),
            ("9.2", &format!("POST $core/configmaps | {yaml}"), r#"{"metadata": {"name": "json"}}"#, "201 ConfigMap"),
            (
                "9.5",
                &format!("POST $core/configmaps?fieldValidation=Strict | {yaml}"),
                "metadata:\n  name: strict\n  name: twice\ndata: {a: b}\nmore: 1\n",
                "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  line 3: key \"name\" already set in map, unknown field \"more\"",
            ),
            (
                "9.5",
                &format!("POST $core/configmaps?fieldValidation=Ignore | {yaml}"),
                "metadata:\n  name: once\n  name: twice\nmore: 1\n",
                "201 ConfigMap",
            ),
            (
                "5.1",
                &format!("POST $core/configmaps | {yaml}"),
                "a: b: c",
                "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): yaml: line 1: …",
            ),
            (
                "5.1",
                &format!("POST $core/configmaps | {yaml}"),
                "kind: Pod\napiVersion: v1",
                "400 BadRequest: Pod in version \"v1\" cannot be handled as a ConfigMap: …",
            ),
            (
                "5.1",
                &format!("POST $core/configmaps | {yaml}"),
                "kind: ConfigMap\napiVersion: v1\ndata: [1]",
                "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "9.2",
                &format!("POST $core/configmaps | {yaml}"),
                "a: &a [x]\nb: [*a, *a]\nmetadata: {name: two}\n---\nmetadata: {name: documents}",
                "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): yaml: expected a single document (613a…",
            ),
            (
                "4.2",
                &format!("DELETE $core/configmaps/forms | {yaml}"),
                "preconditions: {uid: other}",
                "409 Conflict: …",
            ),
            (
                "4.2",
                &format!("DELETE $core/configmaps/forms | {yaml}"),
                "kind: DeleteOptions\napiVersion: v1\ndryRun: [Some]",
                "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
            ),
            ("4.2", &format!("DELETE $core/configmaps/forms | {yaml}"), "propagationPolicy: Background", "200 Success"),
            (
                "9.2",
                "PATCH $core/configmaps/json | Content-Type: application/yaml",
                "data: {}",
                "415 UnsupportedMediaType: …",
            ),
            (
                "9.2",
                "POST $core/configmaps | Content-Type: application/x-yaml",
                "{}",
                "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ),
        ])
        .await;

    let warned = place
        .ask(
            &format!("POST $core/configmaps | {yaml}"),
            "metadata:\n  name: warned\ndata: {a: 1, a: b}\ndata:\n  a: c\nmore: 1",
        )
        .await;
    assert_eq!(warned.status, 201, "{}", warned.text());
    assert_eq!(
        warned.header_all("warning"),
        [
            "299 - \"line 3: key \\\"a\\\" already set in map\"",
            "299 - \"line 5: key \\\"data\\\" already set in map\"",
            "299 - \"unknown field \\\"more\\\"\"",
        ]
    );
}
