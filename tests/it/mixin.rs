//! Tests of the rules, alerts and dashboards for kube-apiserver in the public Kubernetes monitoring mixin: a server in
//! use has the series that they select by labels and bounds (docs/api/operations.md#metrics).
//!
//! `metrics.rs` tests only the names. A selector with a label that no series has selects nothing, and an alert
//! with this selector never fires, so the test checks each matcher. Labels that the scrape adds (`job`, `instance`,
//! `cluster`) are omitted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::{Client, PATIENCE, Server};

/// A condition of a rule on a label.
#[derive(Clone, Copy, Debug)]
enum Matcher {
    /// The label has one of these values; an absent label is empty.
    Is(&'static [&'static str]),
    /// The label has none of these values.
    IsNot(&'static [&'static str]),
    /// The label begins with this text.
    Begins(&'static str),
    /// The label exists; the rule sums the series by this label.
    IsThere,
}

use Matcher::{Begins, Is, IsNot, IsThere};

/// A selector: the rules it is in, the name of the series, and the matchers.
type Selector = (&'static str, &'static str, &'static [(&'static str, Matcher)]);

const READ: (&str, Matcher) = ("verb", Is(&["LIST", "GET"]));
const WRITE: (&str, Matcher) = ("verb", Is(&["POST", "PUT", "PATCH", "DELETE"]));
const NO_STREAM: (&str, Matcher) = ("subresource", IsNot(&["proxy", "attach", "log", "exec", "portforward"]));
const COUNT: &str = "apiserver_request_sli_duration_seconds_count";
const BUCKET: &str = "apiserver_request_sli_duration_seconds_bucket";
const TOTAL: &str = "apiserver_request_total";

const SELECTORS: &[Selector] = &[
    ("burn rate, read, all", COUNT, &[READ, NO_STREAM]),
    (
        "burn rate, read, one object",
        BUCKET,
        &[READ, NO_STREAM, ("scope", Is(&["resource", ""])), ("le", Is(&["1", "1.0"]))],
    ),
    (
        "burn rate, read, a namespace",
        BUCKET,
        &[READ, NO_STREAM, ("scope", Is(&["namespace"])), ("le", Is(&["5", "5.0"]))],
    ),
    (
        "burn rate, read, the cluster",
        BUCKET,
        &[READ, NO_STREAM, ("scope", Is(&["cluster"])), ("le", Is(&["30", "30.0"]))],
    ),
    ("burn rate, read, of", TOTAL, &[READ]),
    ("burn rate, write, all", COUNT, &[WRITE, NO_STREAM]),
    ("burn rate, write, fast", BUCKET, &[WRITE, NO_STREAM, ("le", Is(&["1", "1.0"]))]),
    ("burn rate, write, errors", TOTAL, &[WRITE, ("code", Begins("5"))]),
    ("availability, slow", BUCKET, &[WRITE, ("scope", IsThere), ("le", Is(&["+Inf"]))]),
    (
        "availability, 2xx",
        TOTAL,
        &[("verb", Is(&["LIST", "GET", "POST", "PUT", "PATCH", "DELETE"])), ("code", Begins("2"))],
    ),
    ("availability, 4xx", TOTAL, &[READ, ("code", Begins("4"))]),
    ("availability, 5xx", TOTAL, &[WRITE, ("code", Begins("5"))]),
    (
        "code_resource:apiserver_request_total:rate5m, read",
        TOTAL,
        &[READ, ("code", IsThere), ("resource", IsThere)],
    ),
    (
        "code_resource:apiserver_request_total:rate5m, write",
        TOTAL,
        &[WRITE, ("code", IsThere), ("resource", IsThere)],
    ),
    ("cluster_quantile, read", BUCKET, &[READ, NO_STREAM, ("resource", IsThere), ("le", IsThere)]),
    ("cluster_quantile, write", BUCKET, &[WRITE, NO_STREAM, ("resource", IsThere), ("le", IsThere)]),
    ("KubeAPITerminatedRequests", "apiserver_request_terminations_total", &[]),
    (
        "KubeAggregatedAPIErrors",
        "aggregator_unavailable_apiservice_total",
        &[("name", IsThere), ("reason", IsThere)],
    ),
    ("KubeAggregatedAPIDown", "aggregator_unavailable_apiservice", &[("name", IsThere)]),
    ("KubeClientCertificateExpiration", "apiserver_client_certificate_expiration_seconds_count", &[]),
    // Alerts that compare a quantile with a week or a day need buckets with these bounds.
    (
        "KubeClientCertificateExpiration, a week",
        "apiserver_client_certificate_expiration_seconds_bucket",
        &[("le", Is(&["604800"]))],
    ),
    (
        "KubeClientCertificateExpiration, a day",
        "apiserver_client_certificate_expiration_seconds_bucket",
        &[("le", Is(&["86400"]))],
    ),
    ("KubeVersionMismatch", "kubernetes_build_info", &[("git_version", Begins("v1."))]),
    (
        "KubeClientErrors",
        "rest_client_requests_total",
        &[("code", IsThere), ("host", IsThere), ("method", IsThere)],
    ),
    ("dashboard: requests that fail", TOTAL, &[("code", Begins("5"))]),
    (
        "dashboard: duration",
        "apiserver_request_duration_seconds_bucket",
        &[("verb", IsNot(&["WATCH"])), ("le", IsThere)],
    ),
    ("dashboard: memory", "process_resident_memory_bytes", &[]),
    ("dashboard: processor", "process_cpu_seconds_total", &[]),
    ("dashboard: tasks", "go_goroutines", &[]),
];

/// Series of the dashboard that this server lacks, which the page of metrics lists.
const WITHOUT: &[&str] =
    &["workqueue_adds_total", "workqueue_depth", "workqueue_queue_duration_seconds_bucket"];

type Labels = BTreeMap<String, String>;

/// Returns the series of a page: names and labels.
fn series(page: &str) -> Vec<(String, Labels)> {
    let numbers = page.lines().filter(|line| !line.starts_with('#'));
    numbers
        .map(|line| {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, inner) = series.split_once('{').unwrap_or((series, "}"));
            let pairs = inner.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\""));
            let labels = pairs.map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()));
            (name.to_owned(), labels.collect())
        })
        .collect()
}

fn holds(labels: &Labels, (label, matcher): &(&str, Matcher)) -> bool {
    let value = labels.get(*label).map_or("", String::as_str);
    match matcher {
        Is(values) => values.contains(&value),
        IsNot(values) => !values.contains(&value),
        Begins(begin) => value.starts_with(begin),
        IsThere => labels.contains_key(*label),
    }
}

/// Sends requests as clients do: with every verb and scope, and with several failures.
async fn use_it(client: &Client) {
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(client.post(maps, &json!({"metadata": {"name": "a"}})).await.status, 201);
    let one = format!("{maps}/a");
    let object = client.get(&one).await.json();
    assert_eq!(client.put(&one, &object).await.status, 200);
    assert_eq!(client.patch(&one, "merge", &json!({"data": {"k": "v"}})).await.status, 200);
    for path in [maps, "/api/v1/configmaps", "/api/v1/namespaces", "/version"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    assert_eq!(client.get(&format!("{maps}/none")).await.status, 404);
    assert_eq!(client.delete(&one).await.status, 200);
    // The extension server does not exist.
    let service = json!({
        "metadata": {"name": "v1.gone.example.com"},
        "spec": {"group": "gone.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "none"}},
    });
    let made = client.post("/apis/apiregistration.k8s.io/v1/apiservices", &service).await;
    assert_eq!(made.status, 201, "{}", made.text());
    // The webhook does not exist, and the writes need it.
    let hook = json!({
        "metadata": {"name": "gone"},
        "webhooks": [{
            "name": "gone.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Fail",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}],
        }],
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(client.post(hooks, &hook).await.status, 201);
    let secret = json!({"metadata": {"name": "s"}});
    let begun = Instant::now();
    while client.post("/api/v1/namespaces/default/secrets?dryRun=All", &secret).await.status != 500 {
        assert!(begun.elapsed() < PATIENCE, "the webhook is not called");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(client.post("/api/v1/namespaces/default/secrets", &secret).await.status, 500);
}

/// Sends a write that exceeds its time limit: the webhook that it waits for accepts connections and never
/// responds.
async fn outlast(client: &Client) {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = json!({
        "metadata": {"name": "silent"},
        "webhooks": [{
            "name": "silent.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30, "failurePolicy": "Ignore",
            "clientConfig": {"url": format!("https://{}/", silent.local_addr().unwrap())},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["podtemplates"]}],
        }],
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(client.post(hooks, &hook).await.status, 201);
    let template = json!({
        "metadata": {"generateName": "t-"},
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    // The server begins to call the webhook shortly after the creation of its configuration.
    let begun = Instant::now();
    let path = "/api/v1/namespaces/default/podtemplates?timeout=1s";
    while client.another().post(path, &template).await.status != 504 {
        assert!(begun.elapsed() < PATIENCE, "no write exceeds its time limit");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_rule_of_the_monitoring_mixin_selects_series_of_a_server_in_use() {
    let server = Server::start_upstream().await;
    use_it(server.client()).await;
    outlast(server.client()).await;
    let mut missing = Vec::new();
    let mut page = String::new();
    // The extension server is checked in the background.
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        page = server.client().get("/metrics").await.text();
        let shown = series(&page);
        let selects = |(_, name, matchers): &&Selector| {
            shown
                .iter()
                .any(|(known, labels)| known == name && matchers.iter().all(|matcher| holds(labels, matcher)))
        };
        missing = SELECTORS.iter().filter(|selector| !selects(selector)).collect();
        if missing.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(missing.is_empty(), "{missing:#?} in\n{page}");

    // Buckets and counts have the same labels except for the bound, because rules subtract them from each
    // other.
    let shown = series(&page);
    let without_bound = |name: &str| {
        let of_it = shown.iter().filter(|(known, _)| known == name);
        let mut found: Vec<Labels> = of_it.map(|(_, labels)| labels.clone()).collect();
        found.iter_mut().for_each(|labels| drop(labels.remove("le")));
        found.sort();
        found.dedup();
        found
    };
    assert_eq!(without_bound(BUCKET), without_bound(COUNT));

    let docs = include_str!("../../docs/api/operations.md");
    for name in WITHOUT {
        assert!(!page.contains(&format!("\n{name}")), "{name} exists: move it from WITHOUT to the selectors");
    }
    assert!(docs.contains("| `workqueue_*` |"));
}
