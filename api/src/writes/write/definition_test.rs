//! Tests writes of definitions of custom types: the effect of a write on the status, and the warnings for the
//! writer.

use super::server_fixture::TestServer;
use values::json::{Value, parse};

const LIST: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ONE: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";

fn definition(versions: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"things.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
            "names":{{"plural":"things","kind":"Thing"}},"versions":[{versions}]}},"status":{{"storedVersions":["v0"]}}}}"#
    )
}

fn version(name: &str, storage: bool, format: &str) -> String {
    format!(
        r#"{{"name":"{name}","served":true,"storage":{storage},"schema":{{"openAPIV3Schema":{{"type":"object",
            "properties":{{"a":{{"type":"string","format":"{format}"}}}}}}}}}}"#
    )
}

fn value(text: &str) -> Value {
    parse(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn the_server_maintains_status_and_stored_versions_of_a_definition() {
    let server = TestServer::start();
    let (code, warnings, created) =
        server.send(&format!("POST {LIST}"), &definition(&version("v1", true, "odd"))).await;
    assert_eq!(
        (code, warnings),
        (201, vec![r#"299 - "unrecognized format \"odd\"""#.to_owned()]),
        "{created:?}"
    );
    let status = r#"{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":["v1"]}"#;
    assert_eq!(created.get("status"), Some(&value(status)));
    assert_eq!(created.at(&["spec", "conversion"]), Some(&value(r#"{"strategy":"None"}"#)));
    assert_eq!(created.str_at(&["spec", "names", "listKind"]), "ThingList");
    assert_eq!(created.at(&["metadata", "generation"]), Some(&Value::Int(1)));

    // A new storage version is added to the versions in which objects may be stored.
    let versions = format!("{},{}", version("v1", false, "odd"), version("v2", true, "odd"));
    let patch = format!(r#"{{"spec":{{"versions":[{versions}]}},"status":{{"storedVersions":["v7"]}}}}"#);
    let (code, warnings, updated) = server.send(&format!("MERGE {ONE}"), &patch).await;
    assert_eq!((code, warnings), (200, vec![]), "{updated:?}");
    assert_eq!(updated.at(&["status", "storedVersions"]), Some(&value(r#"["v1","v2"]"#)));
    assert_eq!(updated.at(&["metadata", "generation"]), Some(&Value::Int(2)));

    // The old version stays in `storedVersions` until a client removes it. The removal means that no objects are stored
    // in that version.
    let drop_first = format!(r#"{{"spec":{{"versions":[{}]}}}}"#, version("v2", true, "odd"));
    let (code, _, refused) = server.send(&format!("MERGE {ONE}"), &drop_first).await;
    assert_eq!((code, refused.at(&["details", "causes"]).unwrap().as_array().unwrap().len()), (422, 1));
    let (code, _, body) =
        server.send(&format!("MERGE {ONE}/status"), r#"{"status":{"storedVersions":["v2"]}}"#).await;
    assert_eq!(code, 200, "{body:?}");
    let (code, _, body) = server.send(&format!("MERGE {ONE}"), &drop_first).await;
    assert_eq!(code, 200, "{body:?}");

    // If a client sets `storedVersions` to an empty list, the server sets the storage version.
    let (code, _, body) =
        server.send(&format!("MERGE {ONE}/status"), r#"{"status":{"storedVersions":[]}}"#).await;
    assert_eq!((code, body.at(&["status", "storedVersions"])), (200, Some(&value(r#"["v2"]"#))));
}
