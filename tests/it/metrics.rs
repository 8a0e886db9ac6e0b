//! `/metrics` as monitoring systems read it (docs/api/operations.md#metrics).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use tests::{Client, Options, Server};

use crate::definitions::{definition, establish};

/// The families in the rules, alerts and dashboards for kube-apiserver of the public Kubernetes monitoring
/// mixin, except for the families that docs/api/operations.md#metrics lists as missing. Two families exist
/// only after their first event, and other tests check them: `apiserver_request_terminations_total` and
/// `aggregator_unavailable_apiservice_total`.
const QUERIED: &[&str] = &[
    "aggregator_unavailable_apiservice",
    "apiserver_request_total",
    "apiserver_request_duration_seconds_bucket",
    "apiserver_request_duration_seconds_count",
    "apiserver_request_duration_seconds_sum",
    "apiserver_request_sli_duration_seconds_bucket",
    "apiserver_request_sli_duration_seconds_count",
    "apiserver_current_inflight_requests",
    "apiserver_longrunning_requests",
    "apiserver_response_sizes_bucket",
    "apiserver_storage_objects",
    "apiserver_admission_controller_admission_duration_seconds_bucket",
    "apiserver_admission_step_admission_duration_seconds_bucket",
    "apiserver_client_certificate_expiration_seconds_bucket",
    "apiserver_client_certificate_expiration_seconds_count",
    "apiserver_flowcontrol_current_executing_requests",
    "apiserver_flowcontrol_current_inqueue_requests",
    "apiserver_flowcontrol_nominal_limit_seats",
    "apiserver_flowcontrol_request_wait_duration_seconds_bucket",
    "apiserver_audit_event_total",
    "apiserver_tls_handshake_errors_total",
    "go_goroutines",
    "process_network_receive_bytes_total",
    "process_network_transmit_bytes_total",
    "authentication_attempts",
    "authentication_duration_seconds_bucket",
    "authenticated_user_requests",
    "authorization_attempts_total",
    "etcd_request_duration_seconds_bucket",
    "kubernetes_build_info",
    "kubernetes_feature_enabled",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
];

/// Checks the format of a page, and returns its lines. The head lines of a family must come before its numbers.
fn lines(page: &str) -> Vec<(String, f64)> {
    let mut kind = ("", "");
    let mut seen = BTreeSet::new();
    let mut numbers = Vec::new();
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            kind = head.split_once(' ').unwrap();
            assert!(seen.insert(kind.0), "{} has two TYPE lines", kind.0);
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let suffixes: &[&str] = if kind.1 == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(
            suffixes.iter().any(|suffix| name.strip_suffix(suffix) == Some(kind.0)),
            "{line} in {kind:?}"
        );
        numbers.push((series.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}"))));
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn monitoring_tools_find_every_series_that_they_query() {
    let server = Server::start(Options {
        flags: vec!["--disabled-metrics=apiserver_watch_events_sizes".to_owned()],
        ..Options::default()
    })
    .await;
    let client = server.client();
    // No controller creates objects of this type.
    let path = "/api/v1/namespaces/default/podtemplates";
    for n in 0..3 {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        let made =
            client.post(path, &json!({"metadata": {"name": format!("t{n}")}, "template": template})).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let mut watch = client.another().watch(&format!("{path}?watch=1")).await;
    watch.expect().await;
    assert_eq!(client.get(path).await.status, 200);
    assert_eq!(client.get("/readyz").await.status, 200);

    let page = client.get("/metrics").await.text();
    let numbers = lines(&page);
    let names: BTreeSet<&str> = numbers.iter().map(|(series, _)| series.split('{').next().unwrap()).collect();
    let missing: Vec<&&str> = QUERIED.iter().filter(|name| !names.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} in\n{page}");
    assert!(!page.contains("apiserver_watch_events_sizes"));
    let value = |series_name: &str| {
        let found = numbers.iter().find(|(series, _)| series == series_name);
        found.unwrap_or_else(|| panic!("no {series_name} in\n{page}")).1
    };
    let of_type = "group=\"\",resource=\"podtemplates\"";
    let scope = "subresource=\"\"";
    for (series, expected) in [
        (
            format!(
                "apiserver_request_total{{code=\"201\",component=\"apiserver\",dry_run=\"\",{of_type},scope=\"resource\",{scope},verb=\"POST\",version=\"v1\"}}"
            ),
            3.0,
        ),
        (
            format!(
                "apiserver_longrunning_requests{{component=\"apiserver\",{of_type},scope=\"namespace\",{scope},verb=\"WATCH\",version=\"v1\"}}"
            ),
            1.0,
        ),
        (format!("apiserver_watch_events_total{{{of_type},version=\"v1\"}}"), 3.0),
        ("etcd_requests_total{group=\"\",operation=\"create\",resource=\"podtemplates\"}".to_owned(), 3.0),
        ("apiserver_resource_objects{group=\"\",resource=\"namespaces\"}".to_owned(), 4.0),
        ("disabled_metrics_total".to_owned(), 1.0),
    ] {
        assert_eq!(value(&series), expected, "{series}");
    }

    let indicators = client.get("/metrics/slis").await.text();
    assert!(indicators.contains("kubernetes_healthcheck{name=\"ping\",type=\"readyz\"} 1\n"), "{indicators}");
    let reset = client.send("DELETE", "/metrics", &[], b"").await;
    assert_eq!((reset.status, reset.text().as_str()), (200, "metrics reset\n"));
    let page = client.get("/metrics").await.text();
    let posts = lines(&page).into_iter().filter(|(series, _)| series.contains("verb=\"POST\""));
    assert_eq!(posts.count(), 0, "{page}");
}

/// For an unsupported media type, the server calls the handler of a custom type, but not the handler of a
/// built-in type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_refused_by_a_handler_are_counted() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    establish(&server, &definition("pieces", version)).await;
    let (custom, built_in) =
        ("/apis/g.example.com/v1/namespaces/default/pieces", "/api/v1/namespaces/default/podtemplates");
    let (accept, content) = (("accept", "text/none"), ("content-type", "text/none"));
    let apply = ("content-type", "application/apply-patch+yaml");
    let large = vec![b' '; 4 << 20];
    for (method, path, header, body, code, counted) in [
        ("GET", custom, accept, &b""[..], 406, Some("LIST")),
        ("GET", built_in, accept, b"", 406, None),
        ("POST", custom, content, b"{}", 415, Some("POST")),
        ("POST", built_in, content, b"{}", 415, None),
        ("PATCH", &format!("{custom}/p"), content, b"{}", 415, Some("PATCH")),
        ("PATCH", &format!("{built_in}/p"), content, b"{}", 415, None),
        ("POST", custom, ("content-type", "application/json"), &large, 413, Some("POST")),
        ("POST", built_in, ("content-type", "application/json"), &large, 413, Some("POST")),
        ("PATCH", &format!("{built_in}/p"), apply, &large, 413, Some("APPLY")),
    ] {
        let reply = client.send(method, path, &[header], body).await;
        assert_eq!(reply.status, code, "{method} {path}: {}", reply.text());
        let page = client.get("/metrics").await.text();
        let resource = if path.starts_with(custom) { "pieces" } else { "podtemplates" };
        let of_it = lines(&page).into_iter().filter(|(series, _)| {
            ["apiserver_request_total{", &format!("code=\"{code}\""), &format!("resource=\"{resource}\"")]
                .iter()
                .all(|part| series.contains(part))
        });
        let verbs: Vec<String> = of_it
            .filter_map(|(series, _)| Some(series.split_once("verb=\"")?.1.split_once('"')?.0.to_owned()))
            .collect();
        let is_counted = counted.is_some_and(|verb| verbs.iter().any(|counted| counted == verb));
        assert!(is_counted || counted.is_none() && verbs.is_empty(), "{method} {path} {code}: {verbs:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deprecated_metric_families_are_hidden_unless_a_flag_shows_them() {
    const HIDDEN: [&str; 5] = [
        "apiserver_flowcontrol_request_concurrency_in_use",
        "apiserver_flowcontrol_request_concurrency_limit",
        "apiserver_request_slo_duration_seconds",
        "apiserver_storage_db_total_size_in_bytes",
        "etcd_bookmark_counts",
    ];
    for shows in [false, true] {
        let flags = shows.then(|| "--show-hidden-metrics-for-version=1.35".to_owned()).into_iter().collect();
        let server = Server::start(Options { flags, ..Options::default() }).await;
        let client = server.client();
        let path = "/api/v1/namespaces/default/configmaps";
        let mut watch = client.watch(&format!("{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")).await;
        watch.next().await.expect("the list ends with a bookmark");
        assert_eq!(client.get(path).await.status, 200);
        let page = client.get("/metrics").await.text();
        let shown = families(&page);
        let numbers = lines(&page);
        for name in HIDDEN {
            assert_eq!(shown.contains_key(name), shows, "{name} in {page}");
        }
        let value = |series_name: &str| {
            numbers.iter().find(|(series, _)| series == series_name).map(|(_, value)| *value)
        };
        assert_eq!(value("hidden_metrics_total"), Some(if shows { 0.0 } else { HIDDEN.len() as f64 }));
        for (version, stability, count) in [
            ("1.27.0", "ALPHA", 1.0),
            ("1.28.0", "ALPHA", 1.0),
            ("1.30.0", "ALPHA", 1.0),
            ("1.31.0", "ALPHA", 1.0),
            ("1.36.0", "ALPHA", 1.0),
            ("1.34.0", "STABLE", 1.0),
        ] {
            let series = format!(
                "registered_metrics_total{{deprecated_version=\"{version}\",stability_level=\"{stability}\"}}"
            );
            let want = (shows || stability == "STABLE").then_some(count);
            assert_eq!(value(&series), want, "{series}");
        }
        if !shows {
            continue;
        }
        // The metric with the older name has the same values as the metric with the newer name.
        let of = |name: &str| -> Vec<(String, f64)> {
            let begin = format!("{name}{{");
            let of_it = numbers.iter().filter(|(series, _)| series.starts_with(&begin));
            of_it.map(|(series, value)| (series[name.len()..].to_owned(), *value)).collect()
        };
        for (older, newer) in [
            (
                "apiserver_request_slo_duration_seconds_bucket",
                "apiserver_request_sli_duration_seconds_bucket",
            ),
            ("apiserver_flowcontrol_request_concurrency_limit", "apiserver_flowcontrol_nominal_limit_seats"),
            (
                "apiserver_flowcontrol_request_concurrency_in_use",
                "apiserver_flowcontrol_current_executing_seats",
            ),
            ("etcd_bookmark_counts", "etcd_bookmark_total"),
        ] {
            assert_eq!(of(older), of(newer), "{older}");
            assert!(!of(older).is_empty(), "{older}");
        }
        assert!(page.contains("# HELP etcd_bookmark_counts [ALPHA] (Deprecated since 1.36.0) Bookmarks"));
    }
}

/// Returns the names of the labels of a series, without the bound of a bucket.
fn labels(series: &str) -> BTreeSet<&str> {
    let inner = series.split_once('{').map_or("", |(_, inner)| inner.trim_end_matches('}'));
    let names = inner.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(name, _)| name);
    names.filter(|name| *name != "le").collect()
}

/// The properties of a family on a page: kind, stability, labels and bounds.
type Family<'p> = (&'p str, &'p str, BTreeSet<&'p str>, Vec<&'p str>);

/// Returns the properties of the families on a page.
fn families(page: &str) -> BTreeMap<&str, Family<'_>> {
    let mut found: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    let (mut stability, mut name) = ("-", "");
    for line in page.lines() {
        if let Some((_, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            stability =
                help.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or("-", |(text, _)| text);
        } else if let Some((family, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            name = family;
            found.insert(name, (kind, stability, BTreeSet::new(), Vec::new()));
        } else if let Some((series, _)) = line.rsplit_once(' ') {
            let (_, _, known, bounds) = found.get_mut(name).expect("a family begins with its head");
            known.extend(labels(series));
            let bound = series.split_once("le=\"").map(|(_, rest)| rest.trim_end_matches("\"}"));
            bounds.extend(bound.filter(|bound| !bounds.contains(bound)));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metric_families_have_the_kind_labels_and_buckets_that_dashboards_expect() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(client.post(path, &json!({"metadata": {"name": "a"}})).await.status, 201);
    let patched = client.patch(&format!("{path}/a"), "merge", &json!({"data": {"k": "v"}})).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let mut watch = client.watch(&format!("{path}?watch=1")).await;
    watch.expect().await;
    assert_eq!(client.get(path).await.status, 200);
    let page = client.get("/metrics").await.text();
    let (shown, mut wrong, mut compared) = (families(&page), Vec::new(), 0);
    for line in include_str!("../fixtures/families.txt").lines().filter(|line| !line.starts_with('#')) {
        let [name, kind, stability, known, bounds] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let Some((got_kind, got_stability, got_labels, got_bounds)) = shown.get(name) else { continue };
        compared += 1;
        let list = |text: &'static str| if text == "-" { "" } else { text };
        let known: BTreeSet<&str> = list(known).split(',').filter(|label| !label.is_empty()).collect();
        let bounds: Vec<&str> = list(bounds).split(',').filter(|bound| !bound.is_empty()).collect();
        let fits = kind == *got_kind
            && stability == *got_stability
            && (got_labels.is_empty() || known == *got_labels)
            && (got_bounds.is_empty() || bounds == *got_bounds);
        if !fits {
            wrong.push(format!("{line}\n  is {:?}", shown[name]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 50, "{compared} families are compared");
}

/// Families whose series exist only after their first event. The tests that cause these events check them.
const WITH_FIRST_NUMBER: &[&str] = &[
    "aggregator_unavailable_apiservice_total",
    "apiserver_admission_webhook_",
    "apiserver_audit_",
    "apiserver_flowcontrol_",
    "apiserver_impersonation_attempts_",
    "apiserver_init_events_total",
    "apiserver_request_terminations_total",
    "apiserver_requested_deprecated_apis",
    "apiserver_watch_list_duration_seconds",
    "etcd_bookmark_total",
    "etcd_request_errors_total",
    "pod_security_",
    "rest_client_request",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_metric_family_of_the_reference_is_served_or_has_a_documented_replacement() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(client.post(path, &json!({"metadata": {"name": "a"}})).await.status, 201);
    assert_eq!(client.get(path).await.status, 200);
    let mut watch = client.watch(&format!("{path}?watch=1")).await;
    watch.expect().await;
    assert_eq!(client.post(path, &json!({"metadata": {"name": "b"}})).await.status, 201);
    watch.expect().await;
    let mut page = client.get("/metrics").await.text();
    // The counter of a store follower changes shortly after the write.
    for _ in 0..100 {
        if page.contains("apiserver_storage_events_received_total{") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        page = client.get("/metrics").await.text();
    }
    let shown = families(&page);
    let docs = include_str!("../../docs/api/operations.md");
    let table = docs.split("| missing families | what stands in |").nth(1).expect("the page has the table");
    let missing: Vec<&str> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .collect();
    let is_missing = |name: &str| {
        missing
            .iter()
            .any(|known| known.strip_suffix('*').map_or(*known == name, |begin| name.starts_with(begin)))
    };
    let reference = include_str!("../fixtures/families.txt").lines().filter(|line| !line.starts_with('#'));
    for name in reference.map(|line| line.split(' ').next().unwrap()) {
        let comes_later = WITH_FIRST_NUMBER.iter().any(|begin| name.starts_with(begin));
        assert!(
            shown.contains_key(name) || comes_later || is_missing(name),
            "{name} is neither a metric of the server nor documented as missing"
        );
    }
}

/// Returns the number of store accesses for a type by operation, and the number of list requests.
async fn accesses(client: &Client, plural: &str) -> BTreeMap<String, f64> {
    let page = client.get("/metrics").await.text();
    let of_type = format!("resource=\"{plural}\"");
    let of_it = lines(&page).into_iter().filter(|(series, _)| series.contains(&of_type));
    of_it
        .filter_map(|(series, value)| {
            let name = match series.split_once("operation=\"") {
                _ if series.starts_with("apiserver_storage_list_total{") => "lists",
                Some((family, rest)) if family.starts_with("etcd_requests_total{") => {
                    rest.split('"').next()?
                }
                _ => return None,
            };
            Some((name.to_owned(), value))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_access_metrics_are_those_of_a_server_with_a_watch_cache() {
    let server = Server::start(Options::default()).await;
    let client = server.client();
    // No controller creates objects of this type.
    let path = "/api/v1/namespaces/default/podtemplates";
    let object = |name: &str, label: &str| {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name},
               "template": {"metadata": {"labels": {"l": label}}, "spec": spec}})
    };
    let holds = |finalizers: &[&str]| json!({"metadata": {"finalizers": finalizers}});
    let (json, merge) = ("application/json", "application/merge-patch+json");
    for (method, rest, kind, body, status, want) in [
        ("POST", "", json, object("a", ""), 201, "create 1"),
        ("POST", "", json, object("a", ""), 409, "create 1, get 1"),
        ("POST", "?dryRun=All", json, object("d", ""), 201, "get 1"),
        ("GET", "/a", json, json!(null), 200, "get 1"),
        ("GET", "/a?resourceVersion=0", json, json!(null), 200, ""),
        ("GET", "", json, json!(null), 200, "get 1, lists 1"),
        ("GET", "?resourceVersion=0", json, json!(null), 200, ""),
        ("PUT", "/a", json, object("a", ""), 200, "get 1"),
        ("PUT", "/a", json, object("a", "1"), 200, "update 1"),
        ("PUT", "/a?dryRun=All", json, object("a", "2"), 200, "get 1"),
        ("PUT", "/x", json, object("x", ""), 404, "get 1"),
        ("DELETE", "/a?dryRun=All", json, json!(null), 200, "get 1"),
        ("PATCH", "/a", merge, holds(&["a.io/b"]), 200, "update 1"),
        ("PATCH", "/a", merge, holds(&["a.io/b"]), 200, "get 1"),
        (
            "PATCH",
            "/b?fieldManager=m",
            "application/apply-patch+yaml",
            object("b", ""),
            201,
            "get 1, update 1",
        ),
        ("DELETE", "/a?dryRun=All", json, json!(null), 200, "get 2"),
        ("DELETE", "/a", json, json!({}), 200, "get 1, update 1"),
        ("PATCH", "/a", merge, holds(&[]), 200, "delete 1, get 1"),
        ("DELETE", "/a", json, json!({}), 404, "get 1"),
        ("DELETE", "", json, json!({}), 200, "delete 1, get 2, lists 1"),
    ] {
        let before = accesses(client, "podtemplates").await;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let path = format!("{path}{rest}");
        let reply = client.send(method, &path, &[("content-type", kind)], body.as_bytes()).await;
        assert_eq!(reply.status, status, "{method} {rest}: {}", reply.text());
        let after = accesses(client, "podtemplates").await;
        let more = after.iter().map(|(name, value)| (name, value - before.get(name).unwrap_or(&0.0)));
        let more: Vec<String> =
            more.filter(|(_, more)| *more > 0.0).map(|(name, more)| format!("{name} {more}")).collect();
        assert_eq!(more.join(", "), want, "{method} {rest}");
    }
}
