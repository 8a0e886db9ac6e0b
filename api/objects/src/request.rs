//! The meaning of a method and a URL: the attributes that authorization, routing and handlers use.
//!
//! docs/api/paths-and-verbs.md#request-info describes the rules, including two unusual rules. A request
//! for a namespace object counts as a request in that namespace. A field selector on `metadata.name` sets the
//! name of a list. This module does not check whether the resource exists.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use types::schema::registry::Resource;
use types::selector::field::FieldTerms;
use types::selector::requirements::Requirements;
use values::query::{Query, escapes_are_whole};

/// The parsed method and URL of a request. All fields are decoded. A field that does not apply is empty.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RequestInfo {
    /// Whether the path addresses a resource. All other requests are authorized by path.
    pub is_resource: bool,
    /// Path after decoding of `%` escapes, without the prefix `/as-of/<point>`.
    pub path: String,
    /// Earlier point at which the path is read, from the prefix `/as-of/<point>`; `None` for the present.
    pub as_of: Option<String>,
    /// Operation on the history of the object at the path, for a path below `/history`.
    pub history: Option<HistoryVerb>,
    /// Verb of the request, derived from method and path.
    pub verb: Verb,
    /// Method in lower case, for a method that HTTP does not define in a request without a resource; empty
    /// otherwise.
    pub other_method: String,
    /// API group in the path; empty for the core group.
    pub group: String,
    /// API version in the path.
    pub version: String,
    /// Namespace in the path. A request for a namespace object has the name of that namespace in this field.
    pub namespace: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Name of the object, from the path or from a field selector on the name.
    pub name: String,
    /// Subresource name; empty if the path has none.
    pub subresource: String,
    /// Path segments after the subresource (`proxy/…`).
    pub subpath: Vec<String>,
    /// Whether the path contains the name. The alternative source of the name is a field selector.
    pub name_in_path: bool,
    /// Whether the path has the legacy `/watch/` segment.
    pub legacy_watch: bool,
    /// Requirements of the selectors, for authorization; empty for requests with the legacy `/watch/`
    /// segment.
    pub requirements: Requirements,
}

/// An operation on the history of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HistoryVerb {
    /// Reads the history. The verb is the same as for a read of the object.
    Log,
    /// Writes an earlier version of the object again. The verb is `update`.
    Restore,
}

/// The action that a request performs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verb {
    /// Reads a single object.
    Get,
    /// Reads a collection of objects.
    List,
    /// Follows an object or a collection.
    Watch,
    /// Creates an object, or runs the operation of a subresource.
    Create,
    /// Replaces an existing object.
    Update,
    /// Changes parts of an object.
    Patch,
    /// Deletes a single object.
    Delete,
    /// Deletes the objects of a collection.
    DeleteCollection,
    /// A request with a legacy path that contains `/proxy/`.
    Proxy,
    /// A method in lower case: for a request outside the resource API. Empty for a method that HTTP does not
    /// define, and for a method that has no meaning for a resource.
    Other(&'static str),
}

impl Default for Verb {
    fn default() -> Self {
        Verb::Other("")
    }
}

impl Verb {
    /// Returns the verb as discovery spells it. [`RequestInfo::verb_name`] also returns methods that HTTP
    /// does not define.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Proxy => "proxy",
            Verb::Other(method) => method,
        }
    }
}

/// Reason why a URL cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// A `%` escape is broken or does not decode to UTF-8.
    #[error("invalid URL escape in path")]
    Escape,
    /// Nothing follows `/watch/` or `/proxy/`.
    #[error("unable to determine kind and namespace from url")]
    Incomplete,
}

impl RequestInfo {
    /// Parses method, path and query (docs/api/paths-and-verbs.md#request-info).
    pub fn parse(method: &Method, raw_path: &str, query: &Query) -> Result<Self, RequestError> {
        let (history, method, raw_path) = split_history(method, raw_path);
        let (as_of, raw_path) = split_point(raw_path);
        let as_of = as_of.map(decoded).transpose()?.map(Cow::into_owned);
        let path = decoded(raw_path)?;
        let mut info = RequestInfo { verb: Verb::Other(lower(method)), as_of, history, ..Self::default() };
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let is_resource = match parts.first() {
            Some(&"api") => parts.len() >= 3,
            Some(&"apis") => parts.len() >= 4,
            _ => false,
        };
        if !is_resource {
            info.path = path.into_owned();
            if info.verb == Verb::Other("") {
                info.other_method = method.as_str().to_ascii_lowercase();
            }
            return Ok(info);
        }
        info.is_resource = true;
        if parts[0] == "apis" {
            info.group = parts[1].to_owned();
            parts.remove(1);
        }
        info.version = parts[1].to_owned();
        let mut rest = &parts[2..];
        info.verb = match *method {
            Method::POST => Verb::Create,
            Method::GET | Method::HEAD => Verb::Get,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ => Verb::Other(""),
        };
        if rest[0] == "watch" || rest[0] == "proxy" {
            if rest.len() < 2 {
                return Err(RequestError::Incomplete);
            }
            info.legacy_watch = rest[0] == "watch";
            info.verb = if info.legacy_watch { Verb::Watch } else { Verb::Proxy };
            rest = &rest[1..];
        }
        if rest[0] == "namespaces" && rest.len() > 1 {
            info.namespace = rest[1].to_owned();
            if rest.len() > 2 && rest[2] != "status" && rest[2] != "finalize" {
                rest = &rest[2..];
            }
        }
        info.resource = rest[0].to_owned();
        info.name = rest.get(1).copied().unwrap_or_default().to_owned();
        info.name_in_path = !info.name.is_empty();
        if info.verb != Verb::Proxy {
            info.subresource = rest.get(2).copied().unwrap_or_default().to_owned();
            info.subpath = rest.iter().skip(3).map(|&part| part.to_owned()).collect();
        }
        info.classify_collection(query);
        info.path = path.into_owned();
        Ok(info)
    }

    /// Returns the verb as authorization rules and audit events spell it.
    pub fn verb_name(&self) -> &str {
        if self.other_method.is_empty() { self.verb.as_str() } else { &self.other_method }
    }

    /// Performs steps 5 and 6: a get or delete without a name becomes a request for the collection.
    fn classify_collection(&mut self, query: &Query) {
        if self.name.is_empty() {
            match self.verb {
                Verb::Get if query.flag("watch") => self.verb = Verb::Watch,
                Verb::Get => self.verb = Verb::List,
                Verb::Delete => self.verb = Verb::DeleteCollection,
                _ => {}
            }
            if matches!(self.verb, Verb::List | Verb::Watch) && !self.legacy_watch {
                let selector = query.first("fieldSelector").and_then(|text| FieldTerms::parse(text).ok());
                if let Some(name) = selector.as_ref().and_then(|terms| terms.exact("metadata.name"))
                    && is_path_segment(name)
                {
                    self.name = name.to_owned();
                }
            }
        }
        let is_collection = matches!(self.verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        if is_collection && !self.legacy_watch {
            self.requirements =
                Requirements::of_query(query.first("fieldSelector"), query.first("labelSelector"));
        }
    }

    /// Returns the namespace in the key of the object; empty for cluster-scoped resources.
    pub fn namespace_of(&self, resource: &Resource) -> &str {
        if resource.namespaced() { &self.namespace } else { "" }
    }

    /// Returns whether the request has no time limit (docs/api/paths-and-verbs.md#timeouts-and-limits).
    pub fn is_long_running(&self) -> bool {
        self.is_resource
            && (matches!(self.verb, Verb::Watch | Verb::Proxy)
                || matches!(self.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward"))
    }
}

/// Prefix of paths that are read at an earlier point. The segment after the prefix is the point.
const AS_OF: &str = "/as-of/";

/// Splits a path into the earlier point, if there is one, and the path to read.
fn split_point(raw_path: &str) -> (Option<&str>, &str) {
    let Some(rest) = raw_path.strip_prefix(AS_OF) else { return (None, raw_path) };
    let at = rest.find('/').unwrap_or(rest.len());
    let (point, path) = rest.split_at(at);
    (Some(point), if path.is_empty() { "/" } else { path })
}

/// Prefix of paths about the history of an object.
const HISTORY: &str = "/history";
/// Last segment of paths that restore a version.
const RESTORE: &str = "/restore";

/// Splits a path into an operation on the history of an object, if there is one, and the path of the object.
/// The returned method requires the same permission on the path of the object as the operation.
fn split_history<'r>(method: &'r Method, raw_path: &'r str) -> (Option<HistoryVerb>, &'r Method, &'r str) {
    let of_object = raw_path.strip_prefix(HISTORY).filter(|path| path.starts_with("/api"));
    let Some(path) = of_object else { return (None, method, raw_path) };
    match path.strip_suffix(RESTORE) {
        Some(path) if *method == Method::POST => (Some(HistoryVerb::Restore), &Method::PUT, path),
        _ => (Some(HistoryVerb::Log), method, path),
    }
}

/// Decodes the `%` escapes of a path.
fn decoded(raw: &str) -> Result<Cow<'_, str>, RequestError> {
    if !raw.contains('%') {
        return Ok(Cow::Borrowed(raw));
    }
    if !escapes_are_whole(raw) {
        return Err(RequestError::Escape);
    }
    percent_decode_str(raw).decode_utf8().map_err(|_| RequestError::Escape)
}

/// Returns whether `name` can be one segment of a path.
pub fn is_path_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '%'])
}

fn lower(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        Method::TRACE => "trace",
        Method::CONNECT => "connect",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: Method, url: &str) -> RequestInfo {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        RequestInfo::parse(&method, path, &Query::parse(query)).unwrap()
    }

    #[test]
    fn request_urls_are_parsed_as_documented() {
        // Columns: method, URL, verb, group/version, namespace, resource, name, subresource.
        for (method, url, want) in [
            (Method::GET, "/api/v1/pods", "list /v1 ns= res=pods name= sub="),
            (Method::GET, "/api/v1/namespaces/a/pods/x", "get /v1 ns=a res=pods name=x sub="),
            (Method::GET, "/api/v1/namespaces/a/pods/x/", "get /v1 ns=a res=pods name=x sub="),
            (Method::GET, "/api/v1/namespaces/x", "get /v1 ns=x res=namespaces name=x sub="),
            (Method::PUT, "/api/v1/namespaces/x/status", "update /v1 ns=x res=namespaces name=x sub=status"),
            (
                Method::PUT,
                "/api/v1/namespaces/x/finalize",
                "update /v1 ns=x res=namespaces name=x sub=finalize",
            ),
            (
                Method::POST,
                "/apis/apps/v1/namespaces/a/deployments",
                "create apps/v1 ns=a res=deployments name= sub=",
            ),
            (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection /v1 ns=a res=pods name= sub="),
            (Method::GET, "/api/v1/pods?watch", "watch /v1 ns= res=pods name= sub="),
            (Method::GET, "/api/v1/pods?watch=false", "list /v1 ns= res=pods name= sub="),
            (Method::GET, "/api/v1/namespaces/a/pods/x?watch=1", "get /v1 ns=a res=pods name=x sub="),
            (Method::GET, "/api/v1/watch/namespaces/a/pods/x", "watch /v1 ns=a res=pods name=x sub="),
            (
                Method::GET,
                "/api/v1/pods?fieldSelector=metadata.name%3Dx",
                "list /v1 ns= res=pods name=x sub=",
            ),
            (Method::GET, "/api/v1/namespaces/a/pods/x%20y", "get /v1 ns=a res=pods name=x y sub="),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "patch apps/v1 ns=a res=deployments name=d sub=scale",
            ),
            (Method::OPTIONS, "/api/v1/namespaces/a/pods/x", " /v1 ns=a res=pods name=x sub="),
            (
                Method::from_bytes(b"PROPFIND").unwrap(),
                "/api/v1/namespaces/a/pods/x",
                " /v1 ns=a res=pods name=x sub=",
            ),
        ] {
            let info = parse(method, url);
            assert!(info.is_resource, "{url}");
            let got = format!(
                "{} {}/{} ns={} res={} name={} sub={}",
                info.verb_name(),
                info.group,
                info.version,
                info.namespace,
                info.resource,
                info.name,
                info.subresource
            );
            assert_eq!(got, want, "{url}");
        }
    }

    #[test]
    fn the_as_of_prefix_is_not_a_component_of_the_path() {
        for (url, as_of, path, name) in [
            ("/as-of/12/api/v1/namespaces/n/pods/p", Some("12"), "/api/v1/namespaces/n/pods/p", "p"),
            ("/as-of/-10m/apis", Some("-10m"), "/apis", ""),
            ("/as-of/2026-01-01T00%3A00:00Z/", Some("2026-01-01T00:00:00Z"), "/", ""),
            ("/as-of/12", Some("12"), "/", ""),
            ("/as-of/", Some(""), "/", ""),
            ("/as-of/1/as-of/2/api", Some("1"), "/as-of/2/api", ""),
            ("/as-of", None, "/as-of", ""),
            ("/api/v1/namespaces/n/pods/as-of", None, "/api/v1/namespaces/n/pods/as-of", "as-of"),
        ] {
            let info = parse(Method::GET, url);
            let got = (info.as_of.as_deref(), &*info.path, &*info.name);
            assert_eq!(got, (as_of, path, name), "{url}");
        }
        assert!(RequestInfo::parse(&Method::GET, "/as-of/%zz/api", &Query::parse("")).is_err());
    }

    #[test]
    fn a_history_request_has_the_request_attributes_of_its_object() {
        let object = "/apis/apps/v1/namespaces/n/deployments/web";
        for (method, url, history, path, verb) in [
            (Method::GET, format!("/history{object}"), Some(HistoryVerb::Log), object, "get"),
            (Method::POST, format!("/history{object}/restore"), Some(HistoryVerb::Restore), object, "update"),
            (Method::POST, format!("/history{object}"), Some(HistoryVerb::Log), object, "create"),
            (Method::GET, object.to_owned(), None, object, "get"),
            (Method::GET, "/history".to_owned(), None, "/history", "get"),
            (Method::GET, "/history/other".to_owned(), None, "/history/other", "get"),
        ] {
            let info = parse(method, &url);
            assert_eq!((info.history, &*info.path, info.verb_name()), (history, path, verb), "{url}");
        }
    }

    #[test]
    fn every_other_url_is_a_non_resource_path() {
        for (method, url, verb) in [
            (Method::GET, "/", "get"),
            (Method::GET, "/api", "get"),
            (Method::GET, "/api/v1", "get"),
            (Method::GET, "/apis/apps/v1", "get"),
            (Method::POST, "/version", "post"),
            (Method::TRACE, "/version", "trace"),
            (Method::from_bytes(b"PropFind").unwrap(), "/version", "propfind"),
            (Method::GET, "/foo/bar/baz/qux", "get"),
        ] {
            let info = parse(method, url);
            assert!(!info.is_resource, "{url}");
            assert_eq!((info.verb_name(), info.path.as_str()), (verb, url));
        }
        for path in ["/api/v1/watch", "/api/v1/watch/"] {
            let query = Query::parse("");
            assert!(RequestInfo::parse(&Method::GET, path, &query).is_err(), "{path}");
        }
        for path in ["/api/v1/pods/%ff", "/api/v1/pods/%zz", "/api/v1/pods/%2", "/healthz/%"] {
            assert!(RequestInfo::parse(&Method::GET, path, &Query::parse("")).is_err(), "{path}");
        }
    }
}
