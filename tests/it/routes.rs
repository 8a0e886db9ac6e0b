//! The existing paths and methods, and the responses to requests with other paths and methods
//! (docs/api/errors.md#routing-errors, docs/api/paths-and-verbs.md#stages, #request-info).

use serde_json::json;

use crate::fixture::{Fixture, agrees, outcome, report};

const NO_SUCH_ROUTE: &str = "404 NotFound: the server could not find the requested resource";
const NO_SUCH_METHOD: &str =
    "405 MethodNotAllowed: the server does not allow this method on the requested resource";
const NO_SEGMENT: &str = "400 BadRequest: Name parameter invalid: \"a%b\": may not contain '%'";
const NO_NAMESPACE: &str = "404 NotFound: namespaces \"namespaces\" not found";
const PAGE: &str = "404 text: 404 page not found\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_path_is_a_resource_a_document_or_404() {
    let fixture = Fixture::new("routes").await;
    fixture.make("$core/configmaps", &[json!({"metadata": {"name": "a"}})]).await;
    fixture
        .check(&[
            // Outside every registered prefix the response is plain text.
            ("routing-errors", "GET /nothing", "", PAGE),
            ("routing-errors", "POST /nothing/at/all", "{}", PAGE),
            ("routing-errors", "GET /apis/nothing.example.com/v1/things", "", PAGE),
            ("routing-errors", "GET /apis/nothing.example.com/v1/namespaces/$ns/things/x", "", PAGE),
            ("routing-errors", "GET /apis/apps/v99/deployments", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET /api/v2/pods", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET //api/v1/namespaces", "", PAGE),
            ("routing-errors", "GET /openapi/v2/", "", PAGE),
            // Inside a registered prefix the response is a Status.
            ("routing-errors", "GET /api/v2", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET /api/foo", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET /version/foo", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET /api/v1/nothing", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET $core/nothing/x", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET /apis/apps/v1/pods", "", NO_SUCH_ROUTE),
            ("routing-errors", "POST $core/nothing", "{}", NO_SUCH_ROUTE),
            ("routing-errors", "GET $core/configmaps/a/status", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET $core/configmaps/a/nothing", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET $core/pods/a/status/more", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET $core/nodes", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET $core/nodes/x", "", NO_SUCH_ROUTE),
            ("routing-errors", "POST $core/nodes", "{}", NO_SUCH_ROUTE),
            ("routing-errors", "GET $core/namespaces", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET $core/namespaces/$ns", "", NO_SUCH_ROUTE),
            ("routing-errors", "GET /api/v1/namespaces/namespaces", "", NO_NAMESPACE),
            // A namespaced item has no path without its namespace.
            ("routing-errors", "GET /api/v1/configmaps/a", "", NO_SUCH_ROUTE),
            ("routing-errors", "PUT /api/v1/configmaps/a", "{}", NO_SUCH_ROUTE),
            // Resources that cannot be listed have no path for all namespaces.
            ("routing-errors", "GET /api/v1/bindings", "", NO_SUCH_ROUTE),
            ("routing-errors", "POST /api/v1/bindings", "{}", NO_SUCH_ROUTE),
            (
                "routing-errors",
                "POST /apis/authorization.k8s.io/v1/localsubjectaccessreviews",
                "{}",
                NO_SUCH_ROUTE,
            ),
            // An existing path refuses other methods.
            ("routing-errors", "POST $core/configmaps/a", "{}", NO_SUCH_METHOD),
            ("routing-errors", "PUT $core/configmaps", "{}", NO_SUCH_METHOD),
            ("routing-errors", "PATCH $core/configmaps", "{}", NO_SUCH_METHOD),
            ("routing-errors", "OPTIONS $core/configmaps/a", "", NO_SUCH_METHOD),
            ("routing-errors", "POST /api/v1/configmaps", "{}", NO_SUCH_METHOD),
            ("routing-errors", "DELETE /api/v1/configmaps", "", NO_SUCH_METHOD),
            ("built-in-resources", "DELETE /api/v1/namespaces", "", NO_SUCH_METHOD),
            ("built-in-resources", "GET $core/bindings", "", NO_SUCH_METHOD),
            (
                "built-in-resources",
                "GET /apis/authorization.k8s.io/v1/subjectaccessreviews",
                "",
                NO_SUCH_METHOD,
            ),
            ("built-in-resources", "DELETE $core/pods/a/status", "", NO_SUCH_METHOD),
            ("built-in-resources", "GET $core/pods/a/binding", "", NO_SUCH_METHOD),
            ("built-in-resources", "POST /version", "{}", NO_SUCH_METHOD),
            ("discovery-documents", "POST /api", "{}", NO_SUCH_METHOD),
            ("discovery-documents", "PUT /apis/apps/v1", "{}", NO_SUCH_METHOD),
            ("discovery-documents", "POST /apis", "{}", "200 APIGroupList"),
            ("discovery-documents", "DELETE /apis/apps", "", "200 APIGroup"),
            // Legacy watch paths are read-only, and legacy proxy paths do not exist.
            ("request-info", "POST /api/v1/watch/namespaces/$ns/configmaps", "{}", NO_SUCH_METHOD),
            ("request-info", "DELETE /api/v1/watch/namespaces/$ns/configmaps/a", "", NO_SUCH_METHOD),
            ("request-info", "GET /api/v1/watch/nothing", "", NO_SUCH_ROUTE),
            // Only resources that can be watched have a legacy watch path.
            ("request-info", "GET /api/v1/watch/componentstatuses", "", NO_SUCH_ROUTE),
            ("request-info", "GET /api/v1/watch/namespaces/$ns/bindings", "", NO_SUCH_ROUTE),
            ("request-info", "GET /api/v1/watch/namespaces/$ns/pods/a/log", "", NO_SUCH_ROUTE),
            ("request-info", "GET /apis/authentication.k8s.io/v1/watch/tokenreviews", "", NO_SUCH_ROUTE),
            ("request-info", "GET /api/v1/proxy/namespaces/$ns/pods/a", "", NO_SUCH_ROUTE),
            (
                "stages",
                "GET /api/v1/watch",
                "",
                "500 text: Internal Server Error: \"/api/v1/watch\": failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch\n",
            ),
            (
                "stages",
                "GET /api/v1/watch?a=b&c=d",
                "",
                "500 text: Internal Server Error: \"/api/v1/watch?a=b&amp;c=d\": failed to create RequestInfo: unable to determine kind and namespace from url, /api/v1/watch?a=b&amp;c=d\n",
            ),
            // A trailing slash makes no difference.
            ("discovery-documents", "GET $core/configmaps/", "", "200 ConfigMapList"),
            ("discovery-documents", "GET $core/configmaps/a/", "", "200 ConfigMap"),
            ("discovery-documents", "GET /api/", "", "200 APIVersions"),
            ("discovery-documents", "GET /api/v1/", "", "200 APIResourceList"),
            ("discovery-documents", "GET /apis/", "", "200 APIGroupList"),
            ("discovery-documents", "GET /apis/apps/", "", "200 APIGroup"),
            ("discovery-documents", "GET /apis/apps/v1/", "", "200 APIResourceList"),
            // The server ignores `watch` on an item, and unknown parameters.
            ("watch-events", "GET $core/configmaps/a?watch=true", "", "200 ConfigMap"),
            (
                "query-parameters",
                "GET $core/configmaps?color=blue&Limit=x&watch=false",
                "",
                "200 ConfigMapList",
            ),
            // Names are decoded. The server treats unusual names as names of absent objects.
            ("request-info", "GET $core/configmaps/%61", "", "200 ConfigMap"),
            (
                "routing-errors",
                "GET $core/configmaps/x%20y",
                "",
                "404 NotFound: configmaps \"x y\" not found",
            ),
            // Names that are not valid path segments are refused before the store is read.
            ("routing-errors", "GET $core/configmaps/a%25b", "", NO_SEGMENT),
            ("routing-errors", "PUT $core/configmaps/a%25b", r#"{"metadata":{"name":"a%b"}}"#, NO_SEGMENT),
            ("routing-errors", "PATCH $core/configmaps/a%25b", "{}", NO_SEGMENT),
            ("routing-errors", "DELETE $core/configmaps/a%25b", "", NO_SEGMENT),
            ("routing-errors", "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/a%25b", "", NO_SEGMENT),
            ("built-in-resources", "GET /api/v1/componentstatuses", "", "200 ComponentStatusList"),
            (
                "built-in-resources",
                "GET /api/v1/componentstatuses/absent",
                "",
                "404 NotFound: componentstatus \"absent\" not found",
            ),
            (
                "built-in-resources",
                "GET /api/v1/componentstatuses?watch=1",
                "",
                "405 MethodNotAllowed: watch is not supported on resources of kind \"componentstatuses\"",
            ),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routing_errors_have_empty_details_and_pages_are_plain_text() {
    let fixture = Fixture::new("routes").await;
    for path in ["/api/v1/nothing", "$core/configmaps"] {
        let request = if path == "$core/configmaps" { format!("PUT {path}") } else { format!("GET {path}") };
        let body = fixture.send(&request, "").await.json();
        assert_eq!((&body["metadata"], &body["details"]), (&json!({}), &json!({})), "routing-errors {path}");
    }
    let page = fixture.client.get("/nothing").await;
    for (name, want) in [("content-type", "text/plain; charset=utf-8"), ("x-content-type-options", "nosniff")]
    {
        assert_eq!(page.header_all(name), [want], "routing-errors");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_the_common_headers() {
    let fixture = Fixture::new("routes").await;
    for path in ["$core/configmaps", "$core/configmaps/none", "/nothing", "/healthz", "/api/v1"] {
        let reply = fixture.send(&format!("GET {path} | Audit-ID: 12345"), "").await;
        assert_eq!(reply.header_all("audit-id"), ["12345"], "stages {path}");
        assert_eq!(reply.header_all("cache-control"), ["no-cache, private"], "stages {path}");
        let own = fixture.send(&format!("GET {path}"), "").await.header_all("audit-id");
        assert!(own.len() == 1 && own[0].len() == 36, "stages {path}: {own:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_is_supported_for_documents_but_not_for_objects() {
    let fixture = Fixture::new("routes").await;
    fixture.make("$core/configmaps", &[json!({"metadata": {"name": "a"}})]).await;
    for path in ["$core/configmaps/a", "$core/configmaps", "$core/configmaps/none"] {
        let head = fixture.send(&format!("HEAD {path}"), "").await;
        assert_eq!((head.status, head.body.is_empty()), (405, true), "{path}");
    }
    for path in ["/api", "/api/v1", "/apis/apps/v1", "/version"] {
        assert_eq!(fixture.send(&format!("HEAD {path}"), "").await.status, 405, "{path}");
    }
    for path in ["/apis", "/healthz", "/nothing", "/openapi/v3"] {
        let get = fixture.send(&format!("GET {path}"), "").await;
        let head = fixture.send(&format!("HEAD {path}"), "").await;
        assert_eq!(head.status, get.status, "{path}");
        assert!(head.body.is_empty(), "{path}");
        assert_eq!(head.header_all("content-type"), get.header_all("content-type"), "{path}");
        assert_eq!(head.header_all("content-length"), [get.body.len().to_string()], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openapi_v2_is_compressed_and_openapi_v3_is_not() {
    let fixture = Fixture::new("routes").await;
    for (path, accept, want) in [
        ("/openapi/v2", "gzip", Some("gzip")),
        ("/openapi/v2", "br", None),
        ("/openapi/v3/apis/apps/v1", "gzip", None),
    ] {
        let reply = fixture.client.send("GET", path, &[("accept-encoding", accept)], b"").await;
        let encoding = reply.header_all("content-encoding");
        assert_eq!((reply.status, encoding.first().map(|it| &**it)), (200, want), "{path} {accept}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deprecated_kinds_send_a_warning() {
    let fixture = Fixture::new("routes").await;
    for (path, want) in [
        ("/api/v1/componentstatuses", "299 - \"v1 ComponentStatus is deprecated in v1.19+\""),
        ("/api/v1/componentstatuses?watch=1", "299 - \"v1 ComponentStatus is deprecated in v1.19+\""),
        (
            "$core/endpoints",
            "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"",
        ),
    ] {
        let reply = fixture.send(&format!("GET {path}"), "").await;
        assert_eq!(reply.header_all("warning"), [want], "warnings {path}");
    }
    assert!(fixture.send("GET $core/configmaps", "").await.header_all("warning").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accept_and_content_type_are_negotiated() {
    let fixture = Fixture::new("routes").await;
    fixture.make("$core/configmaps", &[json!({"metadata": {"name": "a"}})]).await;
    let unknown = "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types include: application/json";
    let mut wrong = Vec::new();
    for (section, request, body, want) in [
        (
            "accept",
            "GET $core/configmaps/a | Accept: text/html",
            "",
            "406 NotAcceptable: 406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        ),
        ("accept", "GET $core/configmaps/a | Accept: text/html, */*;q=0.1", "", "200 ConfigMap"),
        ("accept", "GET $core/configmaps/a | Accept: */*;q=0", "", "200 ConfigMap"),
        (
            "accept",
            "GET $core/configmaps/a | Accept: application/json;as=Nothing;g=meta.k8s.io;v=v1",
            "",
            "406 NotAcceptable: …",
        ),
        (
            "accept",
            "GET $core/configmaps | Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "",
            "406 NotAcceptable: you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            "accept",
            "GET $core/configmaps/a | Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "",
            "406 NotAcceptable: you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
        ),
        ("content-type", "POST $core/configmaps | Content-Type: text/plain", "{}", &format!("{unknown}…")),
        (
            "content-type",
            "POST $core/configmaps | Content-Type: application/json; charset=utf-8",
            r#"{"metadata":{"name":"b"}}"#,
            "201 ConfigMap",
        ),
        ("content-type", "POST $core/configmaps | Content-Type: ;;;", "{}", &format!("{unknown}…")),
        ("content-type", "PUT $core/configmaps/a | Content-Type: nonsense", "{}", &format!("{unknown}…")),
        (
            "content-type",
            "DELETE $core/configmaps/a | Content-Type: text/plain",
            "{}",
            &format!("{unknown}…"),
        ),
        (
            "patch-requests",
            "PATCH $core/configmaps/a | Content-Type: application/json",
            "{}",
            "415 UnsupportedMediaType: 415: Unsupported Media Type",
        ),
        (
            "patch-requests",
            "PATCH $core/configmaps/a | Content-Type: ",
            "{}",
            "415 UnsupportedMediaType: 415: Unsupported Media Type",
        ),
        // An error is sent in the requested encoding if possible, otherwise as JSON.
        (
            "encoding-of-errors",
            "GET $core/configmaps/none | Accept: application/json;as=Table;g=meta.k8s.io;v=v1, application/json",
            "",
            "404 NotFound: configmaps \"none\" not found",
        ),
        ("encoding-of-errors", "POST $core/configmaps | Accept: text/html", "{", "406 NotAcceptable: …"),
    ] {
        let got = outcome(&fixture.send(request, body).await);
        if !agrees(&got, want) {
            wrong.push(format!("{section} {request}\n  want {want}\n  got  {got}"));
        }
    }
    report(&wrong);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_is_indented_for_browsers_and_compact_for_clients() {
    let fixture = Fixture::new("routes").await;
    fixture.make("$core/configmaps", &[json!({"metadata": {"name": "a"}})]).await;
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
        let text = fixture.send(request, "").await.text();
        assert_eq!(text.starts_with("{\n  \"kind\""), pretty, "json-and-yaml-output {request}: {text}");
        assert_eq!(text.ends_with('\n'), !pretty, "json-and-yaml-output {request}: {text:?}");
    }
}
