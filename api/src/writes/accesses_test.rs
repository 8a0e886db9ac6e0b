//! Checks which accesses to the store are counted with a duration.

use super::write::server_fixture::TestServer;

/// Returns two counts of an operation on a type: all accesses, and accesses with a duration.
async fn counted(server: &TestServer, plural: &str, operation: &str) -> (u64, u64) {
    let page = server.get("/metrics", "").await;
    let labels = format!("{{group=\"\",operation=\"{operation}\",resource=\"{plural}\"}} ");
    let number = |family: &str| {
        let found = page.lines().find_map(|line| line.strip_prefix(family)?.strip_prefix(&labels));
        found.map_or(0, |number| number.parse().unwrap())
    };
    (number("etcd_requests_total"), number("etcd_request_duration_seconds_count"))
}

#[tokio::test]
async fn store_accesses_without_a_measured_time_are_counted_without_one() {
    let server = TestServer::start();
    server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    let templates = "/api/v1/namespaces/n/podtemplates";
    let template = r#"{"metadata":{"name":"a","finalizers":["a.io/b"]},"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}"#;
    let events = "/api/v1/namespaces/n/events";
    let event = r#"{"metadata":{"name":"a"},"involvedObject":{"namespace":"n"},"source":{},"type":"Normal"}"#;
    server.send(&format!("POST {templates}"), template).await;
    server.send(&format!("POST {events}"), event).await;
    // The columns: the request, the request body, the resource and the operation that are counted, and the
    // expected counts after the request (all accesses, accesses with a duration).
    for (request, body, plural, operation, want) in [
        (format!("POST {templates}"), template, "podtemplates", "create", (2, 2)),
        (format!("GET {templates}/a"), "", "podtemplates", "get", (2, 1)),
        (format!("GET {templates}"), "", "podtemplates", "get", (3, 2)),
        (format!("DELETE {templates}/a?dryRun=All"), "", "podtemplates", "get", (5, 3)),
        (format!("GET {events}"), "", "events", "list", (1, 0)),
        (format!("GET {events}?limit=1"), "", "events", "list", (2, 1)),
        (format!("GET {events}?watch=1&timeoutSeconds=1"), "", "events", "list", (3, 1)),
        (format!("GET {events}?watch=1&timeoutSeconds=1&resourceVersion=1"), "", "events", "list", (3, 1)),
    ] {
        let (code, _, answer) = server.send(&request, body).await;
        assert!(code < 300 || code == 409, "{request}: {code} {answer:?}");
        assert_eq!(counted(&server, plural, operation).await, want, "{request}");
    }
}
