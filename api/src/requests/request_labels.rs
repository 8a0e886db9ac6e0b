//! The metric labels of requests (docs/api/operations.md#metrics).
//!
//! The scope label of a request for a built-in type depends on the path of the request. The scope label of a
//! request for a custom type, or of a request that ends early, depends on the target of the request: a list
//! whose field selector names one object counts as a GET of that object.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};

use objects::request::{RequestInfo, Verb};
use types::schema::registry::Resource;
use values::query::Query;
use wire::metrics::Metrics;
use wire::metrics::requests::Labels;

/// Media type of applied configurations. The reference server distinguishes an apply from other patches by this type.
const APPLIED: &str = "application/apply-patch+yaml";

/// Returns the labels of a request for a resource.
pub fn labels<'l>(resource: &'l Resource, info: &'l RequestInfo, query: &Query, applies: bool) -> Labels<'l> {
    let connects = matches!(info.subresource.as_str(), "attach" | "exec" | "portforward" | "proxy");
    let is_named = if resource.table.message.custom { !info.name.is_empty() } else { info.name_in_path };
    let verb = match info.verb {
        _ if connects => "CONNECT",
        Verb::List if is_named => "GET",
        Verb::DeleteCollection => "DELETECOLLECTION",
        Verb::Patch if applies => "APPLY",
        verb => method(verb),
    };
    Labels {
        verb,
        scope: scope(info, is_named),
        dry_run: dry_run(query),
        group: &resource.group,
        version: &info.version,
        resource: &resource.table.plural,
        subresource: &info.subresource,
    }
}

/// Returns the labels of a request that ends before its verb runs.
pub fn ended<'l>(info: &'l RequestInfo, headers: &HeaderMap, query: &Query) -> Labels<'l> {
    let is_named = !info.name.is_empty();
    let is_applied = || headers.get(CONTENT_TYPE).is_some_and(|kind| kind == APPLIED);
    let verb = match info.verb {
        Verb::List | Verb::Watch if is_named => "GET",
        Verb::Patch if is_applied() => "APPLY",
        verb => method(verb),
    };
    Labels {
        verb,
        scope: if info.is_resource { scope(info, is_named) } else { "" },
        dry_run: dry_run(query),
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: &info.subresource,
    }
}

/// Counts a request that ends before its verb runs. A request that is not for a resource is counted under its
/// path.
pub fn count_end(metrics: &Metrics, code: StatusCode, component: &str, labels: Labels<'_>, path: &str) {
    let Labels { verb, scope, group, version, resource, subresource, .. } = labels;
    let subresource = if resource.is_empty() { path } else { subresource };
    let labels = [code.as_str(), component, group, resource, scope, subresource, verb, version];
    metrics.terminations.count(&labels);
}

/// Returns the verb under which the size of a request body is counted.
pub fn body_verb(verb: Verb) -> &'static str {
    match verb {
        Verb::DeleteCollection => "delete_collection",
        verb => verb.as_str(),
    }
}

fn scope(info: &RequestInfo, is_named: bool) -> &'static str {
    if is_named || info.verb == Verb::Create {
        "resource"
    } else if !info.namespace.is_empty() {
        "namespace"
    } else {
        "cluster"
    }
}

/// Returns the HTTP method of a verb. Reads of collections have the names `LIST` and `WATCH` instead.
fn method(verb: Verb) -> &'static str {
    match verb {
        Verb::Get | Verb::Other("get" | "head") => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create | Verb::Other("post") => "POST",
        Verb::Update | Verb::Other("put") => "PUT",
        Verb::Patch | Verb::Other("patch") => "PATCH",
        Verb::Delete | Verb::DeleteCollection | Verb::Other("delete") => "DELETE",
        Verb::Proxy | Verb::Other(_) => "other",
    }
}

/// Returns `All` for a dry run, `invalid` for an unknown dry run option, and otherwise the empty string.
fn dry_run(query: &Query) -> &'static str {
    let mut label = "";
    for stages in query.all("dryRun") {
        if stages != "All" {
            return "invalid";
        }
        label = "All";
    }
    label
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};

    use super::*;
    use types::schema::registry::Registry;
    use values::naming::KUBERNETES;

    fn parsed(method: &str, url: &str) -> (RequestInfo, Query) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let query = Query::parse(query);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        (RequestInfo::parse(&method, path, &query).unwrap(), query)
    }

    #[test]
    fn request_metrics_of_built_in_types_have_the_scope_of_their_path() {
        let registry = Registry::new(&KUBERNETES);
        let pods = registry.resource("", "v1", "pods").unwrap();
        for (method, path, want) in [
            ("GET", "namespaces/a/pods/b", ["GET", "resource", ""]),
            ("GET", "namespaces/a/pods", ["LIST", "namespace", ""]),
            ("GET", "pods?dryRun=All", ["LIST", "cluster", "All"]),
            ("GET", "namespaces/a/pods?fieldSelector=metadata.name%3Db", ["LIST", "namespace", ""]),
            ("GET", "namespaces/a/pods?watch=1", ["WATCH", "namespace", ""]),
            ("POST", "namespaces/a/pods?dryRun=All", ["POST", "resource", "All"]),
            ("POST", "namespaces/a/pods?dryRun=", ["POST", "resource", "invalid"]),
            ("POST", "namespaces/a/pods?dryRun=All&dryRun=Some", ["POST", "resource", "invalid"]),
            ("PATCH", "namespaces/a/pods/b/status", ["PATCH", "resource", ""]),
            ("DELETE", "namespaces/a/pods", ["DELETECOLLECTION", "namespace", ""]),
            ("GET", "namespaces/a/pods/b/exec", ["CONNECT", "resource", ""]),
        ] {
            let (info, query) = parsed(method, &format!("/api/v1/{path}"));
            let Labels { verb, scope, dry_run, .. } = labels(pods, &info, &query, false);
            assert_eq!([verb, scope, dry_run], want, "{method} {path}");
        }
    }

    #[test]
    fn request_metrics_of_early_failures_have_the_scope_of_their_resource() {
        let plain = HeaderMap::new();
        let applied = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(APPLIED))]);
        let things = "/apis/g.io/v1/namespaces/a/things";
        for (method, url, headers, want) in [
            ("GET", things.to_owned(), &plain, ["g.io", "things", "namespace", "", "LIST", "v1"]),
            (
                "GET",
                format!("{things}?watch=1&fieldSelector=metadata.name%3Db"),
                &plain,
                ["g.io", "things", "resource", "", "GET", "v1"],
            ),
            ("DELETE", things.to_owned(), &plain, ["g.io", "things", "namespace", "", "DELETE", "v1"]),
            ("PATCH", format!("{things}/b"), &applied, ["g.io", "things", "resource", "", "APPLY", "v1"]),
            ("POST", format!("{things}/b/x"), &plain, ["g.io", "things", "resource", "x", "POST", "v1"]),
            ("GET", "/version".to_owned(), &plain, ["", "", "", "", "GET", ""]),
        ] {
            let (info, query) = parsed(method, &url);
            let Labels { verb, scope, group, version, resource, subresource, .. } =
                ended(&info, headers, &query);
            let labels = [group, resource, scope, subresource, verb, version];
            assert_eq!(labels, want, "{method} {url}");
        }
    }
}
