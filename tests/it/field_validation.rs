//! Field validation: unknown and repeated fields are ignored, warned about or refused, in every encoding and patch
//! (docs/api/encodings.md#strict-decoding, docs/api/paths-and-verbs.md#options, docs/api/patches.md,
//! docs/api/apply.md#apply).

use tests::{Options, Reply, Server};

use crate::cbor;
use crate::fixture::{Fixture, outcome, report};

/// A request body with unknown or repeated fields, and the expected reports at each level.
struct Case {
    section: &'static str,
    /// Request as `METHOD path`.
    request: &'static str,
    media_type: &'static str,
    body: Vec<u8>,
    /// The expected warnings, in order.
    warned: &'static [&'static str],
    /// The expected outcome under `Strict`. If an expected message begins with `{patch}`, the test compares
    /// only the end of the message.
    refused: &'static str,
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const CBOR: &str = "application/cbor";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn case(
    section: &'static str,
    request: &'static str,
    media_type: &'static str,
    body: impl Into<Vec<u8>>,
    warned: &'static [&'static str],
    refused: &'static str,
) -> Case {
    Case { section, request, media_type, body: body.into(), warned, refused }
}

async fn fixture(topic: &str) -> (Fixture, std::sync::Arc<Server>) {
    let gate = "--feature-gates=CBORServingAndStorage=true".to_owned();
    let server =
        std::sync::Arc::new(Server::start(Options { flags: vec![gate], ..Options::default() }).await);
    let fixture = Fixture::on(server.clone(), topic).await;
    for (collection, body) in [
        ("$core/configmaps", r#"{"metadata":{"name":"m"},"data":{"k":"v"}}"#),
        (
            "$apps/deployments",
            r#"{"metadata":{"name":"d"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},
                "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
        ),
    ] {
        let made = fixture.send(&format!("POST {collection}"), body).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    (fixture, server)
}

/// Sends the body of a case as a dry run at a level; an empty level is not sent.
async fn send(fixture: &Fixture, case: &Case, level: &str) -> Reply {
    let (method, path) = case.request.split_once(' ').expect("a request is METHOD path");
    let separator = if path.contains('?') { '&' } else { '?' };
    let level = if level.is_empty() { String::new() } else { format!("&fieldValidation={level}") };
    let path = fixture.full(&format!("{path}{separator}dryRun=All{level}"));
    let headers = [("content-type", case.media_type), ("accept", JSON)];
    fixture.client.send(method, &path, &headers, &case.body).await
}

fn warnings(reply: &Reply) -> Vec<String> {
    let text = |header: String| {
        let quoted = header.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"'));
        quoted.expect("a warning is `299 - \"text\"`").replace("\\\"", "\"").replace("\\\\", "\\")
    };
    reply.header_all("warning").into_iter().map(text).collect()
}

/// Returns a ConfigMap `p` with an unknown field.
fn protobuf() -> Vec<u8> {
    let metadata = [0x0a, 0x03, 0x0a, 0x01, b'p'];
    let unknown = [0xa0, 0x06, 0x01];
    let raw = [&metadata[..], &unknown].concat();
    let types = [&[0x0a, 2][..], b"v1", &[0x12, 9], b"ConfigMap"].concat();
    [b"k8s\0".as_slice(), &[0x0a, types.len() as u8], &types, &[0x12, raw.len() as u8], &raw].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_and_repeated_fields_are_ignored_warned_about_or_refused() {
    let (fixture, _server) = fixture("strict").await;
    let create = "POST $core/configmaps";
    let update = "PUT $core/configmaps/m";
    let patch = "PATCH $core/configmaps/m";
    let cannot = "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: ";
    let cases = [
        case(
            "strict-decoding",
            create,
            JSON,
            r#"{"metadata":{"name":"a","colour":"red"},"data":{"k":"v"},"data":{"k":"w","k":"x"},"extra":1}"#,
            &[
                r#"unknown field "metadata.colour""#,
                r#"duplicate field "data""#,
                r#"duplicate field "data.k""#,
                r#"unknown field "extra""#,
            ],
            r#"{cannot}unknown field "metadata.colour", duplicate field "data", duplicate field "data.k", unknown field "extra""#,
        ),
        case(
            "strict-decoding",
            update,
            JSON,
            r#"{"metadata":{"name":"m","name":"m"},"Data":{"k":"v"}}"#,
            &[r#"duplicate field "metadata.name""#, r#"unknown field "Data""#],
            r#"{cannot}duplicate field "metadata.name", unknown field "Data""#,
        ),
        case(
            "strict-decoding",
            "PUT $apps/deployments/d",
            JSON,
            r#"{"metadata":{"name":"d"},"spec":{"replica":1,"selector":{"matchLabels":{"a":"b"}},
                "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","image":"j","ports":[{"port":1,"containerPort":1}]}]}}}}"#,
            &[
                r#"unknown field "spec.replica""#,
                r#"duplicate field "spec.template.spec.containers[0].image""#,
                r#"unknown field "spec.template.spec.containers[0].ports[0].port""#,
            ],
            r#"400 BadRequest: Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.replica", duplicate field "spec.template.spec.containers[0].image", unknown field "spec.template.spec.containers[0].ports[0].port""#,
        ),
        case(
            "strict-decoding",
            create,
            YAML,
            "metadata:\n  name: a\n  colour: red\ndata:\n  k: v\n  k: w\ndata:\n  k: x\nextra: 1\n",
            &[
                r#"line 6: key "k" already set in map"#,
                r#"line 8: key "data" already set in map"#,
                r#"unknown field "extra""#,
                r#"unknown field "metadata.colour""#,
            ],
            "{cannot}yaml: unmarshal errors:\n  line 6: key \"k\" already set in map\n  line 8: key \"data\" already set in map, unknown field \"extra\", unknown field \"metadata.colour\"",
        ),
        case(
            "cbor",
            create,
            CBOR,
            cbor::item(&serde_json::json!({"metadata": {"name": "a", "colour": "red"}, "extra": 1})),
            &[r#"unknown field "extra""#, r#"unknown field "metadata.colour""#],
            r#"{cannot}unknown field "extra", unknown field "metadata.colour""#,
        ),
        // Unknown fields in protobuf are not reported.
        case("18", create, PROTOBUF, protobuf(), &[], "201 ConfigMap"),
        case(
            "json-patch",
            patch,
            JSON_PATCH,
            r#"[{"op":"add","path":"/data/n","value":"1","foo":1},{"op":"add","op":"add","path":"/extra","value":1}]"#,
            &[
                r#"json patch unknown field "[0].foo""#,
                r#"json patch duplicate field "[1].op""#,
                r#"unknown field "extra""#,
            ],
            r#"{patch}strict decoding error: json patch unknown field "[0].foo", json patch duplicate field "[1].op", unknown field "extra""#,
        ),
        case(
            "patch-requests",
            patch,
            MERGE,
            r#"{"data":{"n":"1","n":"2"},"extra":1}"#,
            &[r#"duplicate field "data.n""#, r#"unknown field "extra""#],
            r#"{patch}strict decoding error: duplicate field "data.n", unknown field "extra""#,
        ),
        case(
            "strategic-merge-patch",
            patch,
            STRATEGIC,
            r#"{"data":{"n":"1","n":"2"},"extra":1}"#,
            &[r#"duplicate field "data.n""#, r#"unknown field "extra""#],
            r#"422 Invalid:  "" is invalid: patch: Invalid value: "map[data:map[n:2] extra:1]": strict decoding error: duplicate field "data.n", unknown field "extra""#,
        ),
        case(
            "apply",
            "PATCH $core/configmaps/m?fieldManager=t&force=true",
            APPLY,
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  z: a\n  z: b\n",
            &[r#"line 6: key "z" already set in map"#],
            "400 BadRequest: error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"z\" already set in map",
        ),
        case(
            "apply",
            "PATCH $core/configmaps/new?fieldManager=t",
            APPLY,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"},"data":{"n":"a"},"data":{"n":"b"}}"#,
            &[r#"line 1: key "data" already set in map"#],
            "400 BadRequest: error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 1: key \"data\" already set in map",
        ),
        // In rows of subresources, the body is an object of the kind of the parent or of the subresource.
        case(
            "strict-decoding",
            "PUT $apps/deployments/d/status",
            JSON,
            r#"{"metadata":{"name":"d"},"status":{"replicaz":1}}"#,
            &[r#"unknown field "status.replicaz""#],
            r#"400 BadRequest: Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "status.replicaz""#,
        ),
        case(
            "strict-decoding",
            "PUT $apps/deployments/d/scale",
            JSON,
            r#"{"metadata":{"name":"d"},"spec":{"replicas":2,"replicaz":3}}"#,
            &[r#"unknown field "spec.replicaz""#],
            r#"400 BadRequest: Scale in version "v1" cannot be handled as a Scale: strict decoding error: unknown field "spec.replicaz""#,
        ),
        case(
            "patch-requests",
            "PATCH $apps/deployments/d/scale",
            MERGE,
            r#"{"spec":{"replicas":2,"replicaz":3}}"#,
            &[r#"unknown field "spec.replicaz""#],
            r#"{patch}strict decoding error: unknown field "spec.replicaz""#,
        ),
    ];
    let mut wrong = Vec::new();
    for case in &cases {
        let Case { section, request, media_type, .. } = case;
        for (level, expected) in [("Ignore", &[][..]), ("Warn", case.warned), ("", case.warned)] {
            let reply = send(&fixture, case, level).await;
            if !matches!(reply.status, 200 | 201) || warnings(&reply) != expected {
                wrong.push(format!(
                    "{section} {request} {media_type} {level:?}\n  want {expected:?}\n  got  {:?} {}",
                    warnings(&reply),
                    outcome(&reply)
                ));
            } else if ["colour", "extra", "replicaz", "Data\""].iter().any(|name| reply.text().contains(name))
            {
                wrong.push(format!("{section} {request} {media_type} {level:?} keeps it: {}", reply.text()));
            }
        }
        let reply = send(&fixture, case, "Strict").await;
        let got = outcome(&reply);
        let expected = case.refused.replace("{cannot}", cannot);
        // The message of a refused patch quotes the whole patched object, so compare only its beginning and end.
        let fits = match expected.strip_prefix("{patch}") {
            Some(end) => {
                got.starts_with("422 Invalid:  \"\" is invalid: patch: Invalid value: \"{")
                    && got.ends_with(&format!(": {end}"))
            }
            None => got == expected,
        };
        if !fits || !warnings(&reply).is_empty() {
            wrong.push(format!(
                "{section} {request} {media_type} Strict\n  want {expected}\n  got  {got} {:?}",
                warnings(&reply)
            ));
        }
    }
    report(&wrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_first_fatal_error_is_reported_at_every_validation_level() {
    let (fixture, _server) = fixture("fatal").await;
    // Bodies that are invalid and also have unknown fields.
    let rows = [
        (
            "POST $core/configmaps",
            JSON,
            r#"{"metadata":{"name":"a"},"extra":1,"data":{"k":1},"data":{}}"#,
            "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "POST $core/configmaps",
            YAML,
            "metadata: {name: a}\nextra: 1\nextra: 2\ndata: {k: 1}\n",
            "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "POST $core/configmaps",
            YAML,
            "metadata: {name: a}\nextra: 1\nextra: 2\ndata: [\n",
            "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): …",
        ),
        (
            "POST $core/configmaps",
            JSON,
            r#"{"extra":1,"kind":"Secret","apiVersion":"v1"}"#,
            "400 BadRequest: Secret in version \"v1\" cannot be handled as a ConfigMap: …",
        ),
        (
            "PATCH $core/configmaps/m",
            MERGE,
            r#"{"data":{"k":1},"extra":1,"extra":2}"#,
            "422 Invalid:  \"\" is invalid: patch: Invalid value: …",
        ),
        ("PATCH $core/configmaps/m", MERGE, r#"{"extra":1,"extra":2,"#, "400 BadRequest: …"),
        (
            "PATCH $core/configmaps/m",
            STRATEGIC,
            r#"{"data":{"k":1},"extra":1,"extra":2}"#,
            "422 Invalid:  \"\" is invalid: patch: Invalid value: \"map[data:map[k:1] extra:2]\": …",
        ),
        (
            "PATCH $core/configmaps/m",
            JSON_PATCH,
            r#"[{"op":"test","path":"/data/k","value":"other","foo":1}]"#,
            "422 Invalid: the server rejected our request due to an error in our request",
        ),
        // An apply reports an unknown field before a repeated one.
        (
            "PATCH $core/configmaps/m?fieldManager=t",
            APPLY,
            r#"{"apiVersion":"v1","kind":"ConfigMap","extra":1,"data":{"n":"a"},"data":{"n":"b"}}"#,
            "500 -: failed to create typed patch object (/; /v1, Kind=ConfigMap): .extra: field not declared in schema",
        ),
        (
            "PATCH $core/configmaps/m?fieldManager=t",
            APPLY,
            r#"{"apiVersion":"v1","kind":"Secret","data":{"n":"a"},"data":{"n":"b"}}"#,
            "400 BadRequest: invalid object type: /v1, Kind=Secret",
        ),
        (
            "PATCH $core/configmaps/m?fieldManager=t",
            APPLY,
            "[1]",
            "400 BadRequest: error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ];
    let mut wrong = Vec::new();
    for (request, media_type, body, expected) in rows {
        for level in ["Ignore", "Warn", "Strict", ""] {
            let reply =
                send(&fixture, &case("strict-decoding", request, media_type, body, &[], ""), level).await;
            let got = outcome(&reply);
            if !crate::fixture::agrees(&got, expected)
                || !warnings(&reply).is_empty()
                || got.contains("strict decoding")
            {
                wrong.push(format!(
                    "{request} {level:?} {body}\n  want {expected}\n  got  {got} {:?}",
                    warnings(&reply)
                ));
            }
        }
    }
    // Validation errors are returned together with the warnings.
    let nameless = case(
        "strict-decoding",
        "POST $core/configmaps",
        JSON,
        r#"{"metadata":{"name":"-"},"extra":1}"#,
        &[],
        "",
    );
    for (level, warned) in [("Ignore", vec![]), ("Warn", vec![r#"unknown field "extra""#])] {
        let reply = send(&fixture, &nameless, level).await;
        assert_eq!(
            (reply.status, warnings(&reply)),
            (422, warned.into_iter().map(str::to_owned).collect()),
            "{level}"
        );
    }
    for (query, expected) in [
        (
            "fieldValidation=strict",
            "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        ),
        ("fieldValidation=", "201 ConfigMap"),
    ] {
        let request = format!("POST $core/configmaps?dryRun=All&{query}");
        let got = outcome(&fixture.send(&request, r#"{"metadata":{"name":"n"}}"#).await);
        if got != expected {
            wrong.push(format!("options {query}: {got}"));
        }
    }
    report(&wrong);
}
