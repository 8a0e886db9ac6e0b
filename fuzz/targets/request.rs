//! URLs: query strings and paths.

use http::Method;
use objects::request::{RequestInfo, Verb, is_path_segment};
use types::attributes::Selection;
use types::options::{DeleteOptions, ListOptions, version_number};
use types::selector::{FieldTerms, LabelSelector};
use values::naming::CLUSTER;
use values::query::{Query, WriteOptions};

use super::check_refusal;

const VERBS: &[&str] = &[
    "",
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "trace",
    "connect",
    "deletecollection",
    "proxy",
    "head",
    "post",
    "put",
    "options",
];

const METHODS: &[Method] = &[
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
    Method::TRACE,
];

/// Reads a query string as the options of every verb. Also builds a query string from the bytes, which must
/// be read back.
pub fn query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let query = Query::parse(text);
    let meta_group = CLUSTER.meta_group();
    for name in ["watch", "pretty", "limit", "dryRun", "labelSelector"] {
        assert_eq!(query.first(name), query.all(name).next());
        assert_eq!(query.optional_flag(name).is_some(), query.first(name).is_some());
    }
    for kind in ["CreateOptions", "UpdateOptions", "PatchOptions"] {
        match WriteOptions::from_query(&query, kind, &meta_group) {
            Ok(options) => assert!(options.field_manager.len() <= 128),
            Err(status) => check_refusal(&status, &[422]),
        }
    }
    for watch in [false, true] {
        if let Err(status) = ListOptions::from_query(&query, Selection::everything(), watch, &meta_group) {
            // A version of a watch that is not a number gives a 500, as in the reference server.
            check_refusal(&status, if watch { &[400, 422, 500] } else { &[400, 422] });
        }
    }
    let of_query = DeleteOptions::from_query(&query, &meta_group);
    let of_body = values::json::parse(data).ok().map(|value| DeleteOptions::from_value(&value, &meta_group));
    for read in [Some(of_query), of_body].into_iter().flatten() {
        match read {
            Ok(options) => assert!(options.grace_period_seconds.is_none_or(|seconds| seconds >= 0)),
            Err(status) => check_refusal(&status, &[400, 422]),
        }
    }
    for name in ["labelSelector", "fieldSelector"] {
        let text = query.first(name).unwrap_or_default();
        let _ = (LabelSelector::parse(text), FieldTerms::parse(text));
    }
    match version_number(text) {
        Ok(_) => assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "{text}"),
        Err(status) => check_refusal(&status, &[500]),
    }
    // Escaped text must be read back.
    let escaped: String = data.iter().map(|byte| format!("%{byte:02X}")).collect();
    let query = Query::parse(&format!("x=1&{escaped}={escaped}&{escaped}"));
    let own = if text == "x" { "1" } else { text };
    assert_eq!(query.first(text), Some(own));
}

/// Requests a path, with an optional query after `?`, with every method.
pub fn request_path(data: &[u8]) {
    let Ok(url) = std::str::from_utf8(data) else { return };
    let (path, raw_query) = url.split_once('?').unwrap_or((url, ""));
    let query = Query::parse(raw_query);
    for method in METHODS {
        let Ok(info) = RequestInfo::parse(method, path, &query) else { continue };
        assert!(VERBS.contains(&info.verb.as_str()), "{:?}", info.verb);
        assert!(!has_broken_escape(path), "a broken escape was let through");
        assert!(!info.name_in_path || !info.name.is_empty());
        if !info.is_resource {
            let parts =
                [&info.group, &info.version, &info.resource, &info.name, &info.namespace, &info.subresource];
            assert!(parts.iter().all(|part| part.is_empty()) && !info.is_long_running());
            continue;
        }
        // If a selector narrows a collection to a name, the name must be valid.
        if !info.name.is_empty() && !info.name_in_path {
            assert!(is_path_segment(&info.name), "{}", info.name);
        }
        assert!(info.legacy_watch || info.verb != Verb::Watch || query.flag("watch"));
        // A writing method never counts as a read, and a reading method never counts as a write, except
        // because of the path.
        let reads = matches!(info.verb, Verb::Get | Verb::List | Verb::Watch);
        let by_path = info.legacy_watch || info.verb == Verb::Proxy;
        assert!(
            by_path || reads == matches!(*method, Method::GET | Method::HEAD),
            "{method} is {:?}",
            info.verb
        );
    }
}

fn has_broken_escape(path: &str) -> bool {
    path.split('%').skip(1).any(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_none_or(|digits| !digits.iter().all(u8::is_ascii_hexdigit))
    })
}
