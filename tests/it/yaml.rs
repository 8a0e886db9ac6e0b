//! YAML in requests and responses (docs/api/encodings.md#accept, #content-type, #json-and-yaml-output,
//! #strict-decoding), over the network.

use serde_json::{Value, json};
use tests::Reply;

use crate::fixture::Fixture;

/// A body with many features of YAML: anchors, merges, block scalars, words that are booleans in YAML 1.1.
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
async fn request_bodies_may_be_yaml() {
    let fixture = Fixture::new("yaml").await;
    let yaml = "Content-Type: application/yaml";
    let created = fixture.send(&format!("POST $core/configmaps | {yaml}"), MAP).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let object = created.json();
    assert_eq!(object["data"], json!({"literal": "a\nb\n", "quoted": "1_000"}));
    assert_eq!(object["binaryData"], json!({"b": "AP8="}));
    assert_eq!(object["metadata"]["labels"], json!({"app": "web", "on": "yes"}));
    assert_eq!(object["metadata"]["annotations"], json!({"app": "web", "on": "yes", "folded": "one two"}));

    fixture
        .check(&[
            (
                "content-type",
                "PUT $core/configmaps/forms | Content-Type: application/yaml; charset=utf-8",
                "metadata: {name: forms}\ndata: {a: b}",
                "200 ConfigMap",
            ),
            ("content-type", &format!("POST $core/configmaps | {yaml}"), r#"{"metadata": {"name": "json"}}"#, "201 ConfigMap"),
            (
                "strict-decoding",
                &format!("POST $core/configmaps?fieldValidation=Strict | {yaml}"),
                "metadata:\n  name: strict\n  name: twice\ndata: {a: b}\nmore: 1\n",
                "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  line 3: key \"name\" already set in map, unknown field \"more\"",
            ),
            (
                "strict-decoding",
                &format!("POST $core/configmaps?fieldValidation=Strict | {yaml}"),
                "metadata: {name: strict, bogus: 1}\ndata:\n  k: a\n  k: b\nextra: 1\n",
                "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  line 4: key \"k\" already set in map, unknown field \"extra\", unknown field \"metadata.bogus\"",
            ),
            (
                "create",
                &format!("POST $core/configmaps | {yaml}"),
                "metadata: {name: 3}\ndata: {k: 1}",
                "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (
                "strict-decoding",
                &format!("POST $core/configmaps?fieldValidation=Ignore | {yaml}"),
                "metadata:\n  name: once\n  name: twice\nmore: 1\n",
                "201 ConfigMap",
            ),
            (
                "create",
                &format!("POST $core/configmaps | {yaml}"),
                "a: b: c",
                "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): yaml: mapping values are not allowed in this context (613a20623a2063)",
            ),
            (
                "create",
                &format!("POST $core/configmaps | {yaml}"),
                "kind: Pod\napiVersion: v1",
                "400 BadRequest: Pod in version \"v1\" cannot be handled as a ConfigMap: …",
            ),
            (
                "create",
                &format!("POST $core/configmaps | {yaml}"),
                "kind: ConfigMap\napiVersion: v1\ndata: [1]",
                "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "content-type",
                &format!("POST $core/configmaps | {yaml}"),
                "a: &a [x]\nb: [*a, *a]\nmetadata: {name: two}\n---\nmetadata: {name: documents}",
                "201 ConfigMap",
            ),
            (
                "options",
                &format!("DELETE $core/configmaps/forms | {yaml}"),
                "preconditions: {uid: other}",
                "409 Conflict: …",
            ),
            (
                "options",
                &format!("DELETE $core/configmaps/forms | {yaml}"),
                "kind: DeleteOptions\napiVersion: v1\ndryRun: [Some]",
                "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
            ),
            ("options", &format!("DELETE $core/configmaps/forms | {yaml}"), "propagationPolicy: Background", "200 Success"),
            (
                "content-type",
                "PATCH $core/configmaps/json | Content-Type: application/yaml",
                "data: {}",
                "415 UnsupportedMediaType: …",
            ),
            (
                "content-type",
                "POST $core/configmaps | Content-Type: application/x-yaml",
                "{}",
                "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            ),
        ])
        .await;

    let warned = fixture
        .send(
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

/// Converts a YAML response to JSON.
fn read(reply: &Reply) -> Value {
    assert_eq!(reply.header_all("content-type"), ["application/yaml"], "{}", reply.text());
    let document =
        values::yaml::parse(&reply.body).unwrap_or_else(|error| panic!("{error}: {}", reply.text()));
    assert_eq!(document.duplicates, [""; 0]);
    let mut text = Vec::new();
    values::json::write(&document.value, &mut text);
    serde_json::from_slice(&text).unwrap()
}

/// Returns a response in JSON and in YAML at the same version of the store, to which other tests write
/// meanwhile.
async fn both(fixture: &Fixture, request: &str, parameters: &str) -> (Reply, Reply) {
    let version = |reply: &Reply| reply.json()["metadata"]["resourceVersion"].clone();
    let json = format!("{request} | Accept: application/json{parameters}");
    for _ in 0..100 {
        let want = fixture.send(&json, "").await;
        let got = fixture.send(&format!("{request} | Accept: application/yaml{parameters}"), "").await;
        if version(&fixture.send(&json, "").await) == version(&want) {
            return (want, got);
        }
    }
    panic!("{request}: the store is never the same for three requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_except_a_watch_may_be_yaml() {
    let fixture = Fixture::new("yaml").await;
    // The object is longer than one chunk of a stream, and has texts that need quotes or block style.
    let texts = ["yes", "a: b", "line\nline\n", "\u{2028}", "1_000", "", "ü", "#", " x "];
    for (at, text) in texts.into_iter().enumerate() {
        let long = "0123456789".repeat(1500);
        let map = json!({"metadata": {"name": format!("m{at}")}, "data": {"text": text, "long": long}});
        fixture.make("$core/configmaps", &[map]).await;
    }
    let meta = "v=v1;g=meta.k8s.io";
    for (section, request) in [
        ("json-and-yaml-output", "GET $core/configmaps"),
        ("json-and-yaml-output", "GET $core/configmaps/m1"),
        ("json-and-yaml-output", "GET $core/configmaps?fieldSelector=metadata.name%3Dnone"),
        ("continue-tokens", "GET $core/configmaps?limit=3"),
        ("encoding-of-errors", "GET $core/configmaps/none"),
        ("encoding-of-errors", "GET $core/configmaps?limit=x"),
    ] {
        let (want, got) = both(&fixture, request, "").await;
        assert_eq!(got.status, want.status, "{section} {request}");
        assert_eq!(read(&got), want.json(), "{section} {request}");
    }
    for (section, request, parameters) in [
        ("tables", "GET $core/configmaps", format!(";as=Table;{meta}")),
        ("tables", "GET $core/configmaps?includeObject=None", format!(";as=Table;{meta}")),
        ("tables", "GET $core/configmaps/m1?includeObject=Object", format!(";as=Table;{meta}")),
        ("tables", "GET $core/secrets", format!(";as=Table;{meta}")),
        ("accept", "GET $core/configmaps", format!(";as=PartialObjectMetadataList;{meta}")),
        ("accept", "GET $core/configmaps/m1", format!(";as=PartialObjectMetadata;{meta}")),
    ] {
        // Ages change between two requests.
        let ageless = |mut answer: Value| {
            for row in answer["rows"].as_array_mut().into_iter().flatten() {
                row["cells"].as_array_mut().unwrap().pop();
            }
            answer
        };
        let (want, got) = both(&fixture, request, &parameters).await;
        assert_eq!(got.status, 200, "{section} {request}");
        assert_eq!(ageless(read(&got)), ageless(want.json()), "{section} {request}");
    }

    let text = fixture
        .send("GET $core/configmaps?fieldSelector=metadata.name%3Dm0 | Accept: application/yaml", "")
        .await
        .text();
    let (head, rest) = text.split_once("    long: ").unwrap();
    assert_eq!(
        head, "apiVersion: v1\nitems:\n- data:\n",
        "json-and-yaml-output: members are sorted, and lists are not indented"
    );
    assert!(
        rest.contains("    text: \"yes\"\n")
            && rest.contains("\nkind: ConfigMapList\nmetadata:\n  resourceVersion: ")
    );
    let empty = fixture.send("GET $core/pods | Accept: application/yaml", "").await.text();
    assert!(
        empty.starts_with("apiVersion: v1\nitems: []\nkind: PodList\nmetadata:\n  resourceVersion: \""),
        "{empty}"
    );

    // Responses to writes have the same encoding, gzip applies, and a watch is refused before it begins
    // (docs/api/watches.md#watch-transport).
    let created = fixture
        .send("POST $core/configmaps | Accept: application/yaml", r#"{"metadata":{"name":"new"}}"#)
        .await;
    assert_eq!((created.status, &read(&created)["kind"]), (201, &json!("ConfigMap")));
    let scale = json!({"metadata": {"name": "rs"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    fixture.make("$apps/replicasets", &[scale]).await;
    let scale = fixture.send("GET $apps/replicasets/rs/scale | Accept: application/yaml", "").await;
    assert_eq!(read(&scale)["spec"], json!({"replicas": 1}));
    let gzip =
        fixture.send("GET $core/configmaps | Accept: application/yaml | Accept-Encoding: gzip", "").await;
    assert_eq!(gzip.header_all("content-encoding"), ["gzip"]);
    let streams = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    for request in ["GET $core/configmaps?watch=true", "GET /api/v1/watch/namespaces/$ns/configmaps"] {
        let refused = fixture.send(&format!("{request} | Accept: application/yaml"), "").await;
        let status = read(&refused);
        assert_eq!((refused.status, &status["message"]), (406, &json!(streams)), "{request}");
    }
}
