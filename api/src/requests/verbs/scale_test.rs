//! Writes of scales that are refused.

use crate::writes::write::server_fixture::Server;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/n/deployments";

const DEPLOYMENT: &str = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;

#[tokio::test]
async fn a_scale_is_valid_and_that_of_the_object() {
    let server = Server::start();
    server.ask("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    let (code, _, made) = server.ask(&format!("POST {DEPLOYMENTS}"), DEPLOYMENT).await;
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
        let (code, _, answer) = server.ask(&format!("MERGE {DEPLOYMENTS}/d/scale"), &body).await;
        assert_eq!((code, answer.str_at(&["message"]).to_owned()), want, "{body}");
    }
}
