//! Tests writes of scales that are refused, and tables of scales.

use std::sync::Arc;
use std::time::Duration;

use crate::system::controllers;
use crate::writes::write::server_fixture::TestServer;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/n/deployments";

const DEPLOYMENT: &str = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;

#[tokio::test]
async fn a_scale_is_validated_and_describes_its_object() {
    let server = TestServer::start();
    server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    let (code, _, made) = server.send(&format!("POST {DEPLOYMENTS}"), DEPLOYMENT).await;
    assert_eq!(code, 201);
    let uid = made.str_at(&["metadata", "uid"]);
    let key = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
               alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
               '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let replicas = "spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    for (body, want) in [
        (r#"{"spec":{"replicas":2}}"#.to_owned(), (200, String::new())),
        (format!(r#"{{"metadata":{{"uid":"{uid}"}}}}"#), (200, String::new())),
        (
            r#"{"metadata":{"uid":"other"},"spec":{"replicas":-1}}"#.to_owned(),
            (422, format!(r#"Scale.autoscaling "d" is invalid: {replicas}"#)),
        ),
        (
            r#"{"metadata":{"labels":{"a b":""}}}"#.to_owned(),
            (
                422,
                format!(r#"Scale.autoscaling "d" is invalid: metadata.labels: Invalid value: "a b": {key}"#),
            ),
        ),
        (
            r#"{"metadata":{"uid":"other"}}"#.to_owned(),
            (
                409,
                format!(
                    "Operation cannot be fulfilled on deployments/scale.apps \"d\": Precondition failed: UID in \
                     precondition: other, UID in object meta: {uid}"
                ),
            ),
        ),
    ] {
        let (code, _, answer) = server.send(&format!("MERGE {DEPLOYMENTS}/d/scale"), &body).await;
        assert_eq!((code, answer.str_at(&["message"]).to_owned()), want, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_a_custom_scale_has_the_columns_of_its_type() {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let server = Arc::new(TestServer::start());
    let controllers = controllers::start(server.itself(), &controllers::Selection::default());
    let definition = r#"{"metadata":{"name":"things.g.example"},"spec":{"group":"g.example","scope":"Cluster",
        "names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
            "subresources":{"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size"}},
            "additionalPrinterColumns":[{"name":"Wanted","type":"integer","jsonPath":".spec.replicas"},
                {"name":"Size","type":"integer","jsonPath":".spec.size"}],
            "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",
                "x-kubernetes-preserve-unknown-fields":true}}}}}]}}"#;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.send(&format!("POST {definitions}"), definition).await.0, 201);
    let things = "/apis/g.example/v1/things";
    let thing = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"size":4}}"#;
    while server.send(&format!("POST {things}"), thing).await.0 == 404 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let table = server.get(&format!("{things}/a"), TABLE).await;
    assert!(table.contains(r#""cells":["a",null,4]"#), "{table}");
    let table = server.get(&format!("{things}/a/scale"), TABLE).await;
    assert!(table.contains(r#""name":"Wanted""#) && table.contains(r#""cells":["a",4,null]"#), "{table}");
    controllers.stop().await;
}
