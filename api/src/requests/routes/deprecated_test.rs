//! Tests requests for a deprecated version of a custom type that are refused before their verb runs: the
//! warning, the metric and the audit annotation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::system::controllers;
use crate::writes::write::server_fixture::TestServer;

const DEFINITION: &str = r#"{"metadata":{"name":"olds.g.example"},"spec":{"group":"g.example","scope":"Namespaced",
    "names":{"plural":"olds","kind":"Old"},"versions":[
        {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
        {"name":"v1beta1","served":true,"storage":false,"deprecated":true,
            "schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;

#[tokio::test]
async fn a_refused_request_for_a_deprecated_version_counts_as_its_use() {
    let server = Arc::new(TestServer::start());
    let controllers = controllers::start(server.itself(), &controllers::Selection::default());
    server.send("POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION).await;
    let olds = "/apis/g.example/v1beta1/namespaces/n/olds";
    let began = Instant::now();
    while server.send(&format!("OPTIONS {olds}"), "").await.0 == 404 {
        assert!(began.elapsed() < Duration::from_secs(60), "the type is not served");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let metrics = &server.operations.metrics;
    let noted = || {
        let labels = ["g.example", "", "olds", "", "v1beta1"];
        let series = metrics.deprecated.series(&labels).unwrap();
        series.swap(0, std::sync::atomic::Ordering::Relaxed)
    };
    // Columns: the request and its body, the code of the refusal, and whether the use of the version is
    // recorded.
    for (request, body, code, is_noted) in [
        (format!("OPTIONS {olds}"), "", 405, 0),
        (format!("GET {olds}/a/none"), "", 404, 0),
        (format!("STRATEGIC {olds}/a"), "{}", 415, 1),
        (format!("PUT {olds}"), "{}", 400, 1),
        (format!("GET {olds}/a"), "", 404, 1),
    ] {
        let (got, warnings, _) = server.send(&request, body).await;
        assert_eq!((got, warnings.len(), noted()), (code, 1, is_noted), "{request}");
    }
    let refused = server.get(olds, "text/css").await;
    assert!(refused.contains("\"code\": 406"), "{refused}");
    assert_eq!(noted(), 1);
    controllers.stop().await;
}
