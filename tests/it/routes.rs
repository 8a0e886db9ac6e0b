//! Which paths and methods exist, and what the others hear (semantics §1.3, §3.1, §3.2).

use serde_json::json;

use crate::place::{Place, agrees, outcome, report};

const NO_SUCH_ROUTE: &str = "404 NotFound: the server could not find the requested resource";
const NO_SUCH_METHOD: &str =
    "405 MethodNotAllowed: the server does not allow this method on the requested resource";
const PAGE: &str = "404 text: 404 page not found\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_path_is_a_resource_a_document_or_nothing() {
    let place = Place::new("routes").await;
    place.make("$core/configmaps", &[json!({"metadata": {"name": "a"}})]).await;
    place
        .check(&[
            // Outside every registered prefix there is only a page of text.
            ("1.3", "GET /nothing", "", PAGE),
            ("1.3", "POST /nothing/at/all", "{}", PAGE),
            ("1.3", "GET /apis/nothing.example.com/v1/things", "", PAGE),
            ("1.3", "GET /apis/nothing.example.com/v1/namespaces/$ns/things/x", "", PAGE),
            ("1.3", "GET /apis/apps/v99/deployments", "", PAGE),
            ("1.3", "GET /api/v2/pods", "", PAGE),
            // Inside one there are objects that say so.
            ("1.3", "GET /api/v1/nothing", "", NO_SUCH_ROUTE),
            ("1.3", "GET $core/nothing/x", "", NO_SUCH_ROUTE),
            ("1.3", "GET /apis/apps/v1/pods", "", NO_SUCH_ROUTE),
            ("1.3", "POST $core/nothing", "{}", NO_SUCH_ROUTE),
            ("1.3", "GET $core/configmaps/a/status", "", NO_SUCH_ROUTE),
            ("1.3", "GET $core/configmaps/a/nothing", "", NO_SUCH_ROUTE),
            ("1.3", "GET $core/pods/a/status/more", "", NO_SUCH_ROUTE),
            ("1.3", "GET $core/nodes", "", NO_SUCH_ROUTE),
            ("1.3", "GET $core/nodes/x", "", NO_SUCH_ROUTE),
            ("1.3", "POST $core/nodes", "{}", NO_SUCH_ROUTE),
            // A namespaced item has no path without its namespace.
            ("1.3", "GET /api/v1/configmaps/a", "", NO_SUCH_ROUTE),
            ("1.3", "PUT /api/v1/configmaps/a", "{}", NO_SUCH_ROUTE),
            // Of a path that exists, other methods are refused.
            ("1.3", "POST $core/configmaps/a", "{}", NO_SUCH_METHOD),
            ("1.3", "PUT $core/configmaps", "{}", NO_SUCH_METHOD),
            ("1.3", "PATCH $core/configmaps", "{}", NO_SUCH_METHOD),
            ("1.3", "OPTIONS $core/configmaps/a", "", NO_SUCH_METHOD),
            ("1.3", "POST /api/v1/configmaps", "{}", NO_SUCH_METHOD),
            ("1.3", "DELETE /api/v1/configmaps", "", NO_SUCH_METHOD),
            ("2.5", "DELETE /api/v1/namespaces", "", NO_SUCH_METHOD),
            ("2.5", "GET $core/bindings", "", NO_SUCH_METHOD),
            ("2.5", "GET /apis/authorization.k8s.io/v1/subjectaccessreviews", "", NO_SUCH_METHOD),
            ("2.5", "DELETE $core/pods/a/status", "", NO_SUCH_METHOD),
            ("2.5", "GET $core/pods/a/binding", "", NO_SUCH_METHOD),
            ("2.5", "POST /version", "{}", NO_SUCH_METHOD),
            // Legacy watches are read-only, and the old proxy paths are gone.
            ("3.2", "POST /api/v1/watch/namespaces/$ns/configmaps", "{}", NO_SUCH_METHOD),
            ("3.2", "DELETE /api/v1/watch/namespaces/$ns/configmaps/a", "", NO_SUCH_METHOD),
            ("3.2", "GET /api/v1/watch/nothing", "", NO_SUCH_ROUTE),
            ("3.2", "GET /api/v1/proxy/namespaces/$ns/pods/a", "", NO_SUCH_ROUTE),
            (
                "3.1",
                "GET /api/v1/watch",
                "",
                "500 text: Internal Server Error: \"/api/v1/watch\": failed to create RequestInfo: …",
            ),
            // A slash at the end makes no difference.
            ("2.1", "GET $core/configmaps/", "", "200 ConfigMapList"),
            ("2.1", "GET $core/configmaps/a/", "", "200 ConfigMap"),
            ("2.1", "GET /api/", "", "200 APIVersions"),
            ("2.1", "GET /api/v1/", "", "200 APIResourceList"),
            ("2.1", "GET /apis/", "", "200 APIGroupList"),
            ("2.1", "GET /apis/apps/", "", "200 APIGroup"),
            ("2.1", "GET /apis/apps/v1/", "", "200 APIResourceList"),
            // `watch` on an item is ignored; so are parameters that nobody knows.
            ("8.7", "GET $core/configmaps/a?watch=true", "", "200 ConfigMap"),
            ("4.1", "GET $core/configmaps?color=blue&Limit=x&watch=false", "", "200 ConfigMapList"),
            // Names are decoded, and odd ones are just names that nobody has.
            ("3.2", "GET $core/configmaps/%61", "", "200 ConfigMap"),
            ("1.3", "GET $core/configmaps/x%20y", "", "404 NotFound: configmaps \"x y\" not found"),
            ("2.5", "GET /api/v1/componentstatuses", "", "200 ComponentStatusList"),
            (
                "2.5",
                "GET /api/v1/componentstatuses/nobody",
                "",
                "404 NotFound: componentstatuses \"nobody\" not found",
            ),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_errors_carry_empty_details_and_pages_are_plain_text() {
    let place = Place::new("routes").await;
    for path in ["/api/v1/nothing", "$core/configmaps"] {
        let request = if path == "$core/configmaps" { format!("PUT {path}") } else { format!("GET {path}") };
        let body = place.ask(&request, "").await.json();
        assert_eq!((&body["metadata"], &body["details"]), (&json!({}), &json!({})), "§1.3 {path}");
    }
    let page = place.client.get("/nothing").await;
    for (name, want) in [("content-type", "text/plain; charset=utf-8"), ("x-content-type-options", "nosniff")]
    {
        assert_eq!(page.header_all(name), [want], "§1.3");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_the_common_headers() {
    let place = Place::new("routes").await;
    for path in ["$core/configmaps", "$core/configmaps/none", "/nothing", "/healthz", "/api/v1"] {
        let reply = place.ask(&format!("GET {path} | Audit-ID: 12345"), "").await;
        assert_eq!(reply.header_all("audit-id"), ["12345"], "§3.1 {path}");
        assert_eq!(reply.header_all("cache-control"), ["no-cache, private"], "§3.1 {path}");
        let own = place.ask(&format!("GET {path}"), "").await.header_all("audit-id");
        assert!(own.len() == 1 && own[0].len() == 36, "§3.1 {path}: {own:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_is_a_get_without_its_body() {
    let place = Place::new("routes").await;
    place.make("$core/configmaps", &[json!({"metadata": {"name": "a"}})]).await;
    for path in [
        "$core/configmaps/a",
        "$core/configmaps",
        "$core/configmaps/none",
        "/version",
        "/healthz",
        "/api/v1",
        "/nothing",
    ] {
        let get = place.ask(&format!("GET {path}"), "").await;
        let head = place.ask(&format!("HEAD {path}"), "").await;
        assert_eq!(head.status, get.status, "{path}");
        assert!(head.body.is_empty(), "{path}");
        assert_eq!(head.header_all("content-type"), get.header_all("content-type"), "{path}");
        assert_eq!(head.header_all("content-length"), [get.body.len().to_string()], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deprecated_kinds_say_so() {
    let place = Place::new("routes").await;
    for (path, want) in [
        ("/api/v1/componentstatuses", "299 - \"v1 ComponentStatus is deprecated in v1.19+\""),
        (
            "$core/endpoints",
            "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"",
        ),
    ] {
        let reply = place.ask(&format!("GET {path}"), "").await;
        assert_eq!(reply.header_all("warning"), [want], "§3.4 {path}");
    }
    assert!(place.ask("GET $core/configmaps", "").await.header_all("warning").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_accepted_and_sent_is_negotiated() {
    let place = Place::new("routes").await;
    place.make("$core/configmaps", &[json!({"metadata": {"name": "a"}})]).await;
    let unknown = "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types include: application/json";
    let mut wrong = Vec::new();
    for (section, request, body, want) in [
        (
            "9.1",
            "GET $core/configmaps/a | Accept: text/html",
            "",
            "406 NotAcceptable: 406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        ),
        ("9.1", "GET $core/configmaps/a | Accept: text/html, */*;q=0.1", "", "200 ConfigMap"),
        ("9.1", "GET $core/configmaps/a | Accept: */*;q=0", "", "200 ConfigMap"),
        (
            "9.1",
            "GET $core/configmaps/a | Accept: application/json;as=Nothing;g=meta.k8s.io;v=v1",
            "",
            "406 NotAcceptable: …",
        ),
        (
            "9.1",
            "GET $core/configmaps | Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "",
            "406 NotAcceptable: you requested PartialObjectMetadata, but the requested object is a list (*v1.ConfigMapList)",
        ),
        (
            "9.1",
            "GET $core/configmaps/a | Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "",
            "406 NotAcceptable: you requested PartialObjectMetadataList, but the requested object is not a list (*v1.ConfigMap)",
        ),
        ("9.2", "POST $core/configmaps | Content-Type: text/plain", "{}", &format!("{unknown}…")),
        (
            "9.2",
            "POST $core/configmaps | Content-Type: application/json; charset=utf-8",
            r#"{"metadata":{"name":"b"}}"#,
            "201 ConfigMap",
        ),
        ("9.2", "PUT $core/configmaps/a | Content-Type: nonsense", "{}", &format!("{unknown}…")),
        ("9.2", "DELETE $core/configmaps/a | Content-Type: text/plain", "{}", &format!("{unknown}…")),
        (
            "6.1",
            "PATCH $core/configmaps/a | Content-Type: application/json",
            "{}",
            "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json…",
        ),
        ("6.1", "PATCH $core/configmaps/a | Content-Type: ", "{}", "415 UnsupportedMediaType: …"),
        // An error is sent in the form asked for where that is possible, and as JSON otherwise.
        (
            "1.5",
            "GET $core/configmaps/none | Accept: application/json;as=Table;g=meta.k8s.io;v=v1, application/json",
            "",
            "404 NotFound: configmaps \"none\" not found",
        ),
        ("1.5", "POST $core/configmaps | Accept: text/html", "{", "406 NotAcceptable: …"),
    ] {
        let got = outcome(&place.ask(request, body).await);
        if !agrees(&got, want) {
            wrong.push(format!("§{section} {request}\n  want {want}\n  got  {got}"));
        }
    }
    report(&wrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indented_answers_are_for_people_and_compact_ones_end_their_line() {
    let place = Place::new("routes").await;
    place.make("$core/configmaps", &[json!({"metadata": {"name": "a"}})]).await;
    for (request, pretty) in [
        ("GET $core/configmaps/a", false),
        ("GET $core/configmaps/a?pretty=true", true),
        ("GET $core/configmaps/a?pretty=yes", false),
        ("GET $core/configmaps/a | User-Agent: curl/8.0", true),
        ("GET $core/configmaps/a?pretty=0 | User-Agent: curl/8.0", false),
        ("GET $core/configmaps?pretty=1", true),
        ("GET $core/configmaps/none?pretty=1", true),
        ("GET $core/configmaps", false),
        ("GET $core/configmaps/none", false),
    ] {
        let text = place.ask(request, "").await.text();
        assert_eq!(text.starts_with("{\n  \"kind\""), pretty, "§9.3 {request}: {text}");
        assert_eq!(text.ends_with('\n'), !pretty, "§9.3 {request}: {text:?}");
    }
}
