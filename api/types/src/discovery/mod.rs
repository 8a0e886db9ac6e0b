//! Discovery: the lists of groups, versions and resources (docs/api/discovery.md#discovery-documents,
//! #aggregated-discovery).
//!
//! ```text
//! registry ─► /  /api  /apis  /apis/<group>  /api/v1  /apis/<group>/<version>
//!         └─► the aggregated forms of /api and /apis, with an ETag
//! ```
//!
//! Plain documents are small and rarely read, so each request builds its own document. Aggregated documents
//! are built at the first request and cached. Constructing a `Discovery` is cheap. This module does not check
//! authorization. The input of this module is only the path and the headers of a request.

pub mod accept;
mod documents;
mod foreign;
mod peers;
pub mod resource_lists;
mod swagger;

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use sha2::{Digest, Sha512};

pub use self::accept::DiscoveryEncoding;
use self::accept::DiscoveryForm;
pub use self::foreign::Foreign;
pub use self::swagger::{Merge, Swagger};
use crate::schema::registry::{Group, Registry};
use values::json::{self, Value};
use values::status::Status;

/// The discovery documents of one registry.
#[derive(Debug)]
pub struct Discovery {
    registry: Arc<Registry>,
    /// Versions that extension servers serve.
    foreign: Arc<[Foreign]>,
    /// Groups of each peer, from its aggregated document.
    peers: Arc<[Vec<Value>]>,
    server_address: String,
    other_paths: Vec<String>,
    core: OnceLock<Aggregated>,
    named: OnceLock<Aggregated>,
    /// Aggregated document of the named groups of this server and of its peers.
    merged: OnceLock<Aggregated>,
}

/// A response with a JSON document, and the encoding into which the caller must convert it.
#[derive(Debug)]
pub struct Answer {
    /// Response whose `Content-Type` already names `encoding`.
    pub response: Response<Bytes>,
    /// Encoding to which the caller converts the body.
    pub encoding: DiscoveryEncoding,
    /// Whether all responses share the bytes of the body.
    pub is_shared: bool,
}

impl Answer {
    fn json(response: Response<Bytes>) -> Self {
        Answer { response, encoding: DiscoveryEncoding::Json, is_shared: false }
    }
}

/// Returns the name of the message for discovery documents of `kind`.
pub fn message_of(kind: &str) -> String {
    let package =
        if kind == accept::AGGREGATED_KIND { "api.apidiscovery.v2" } else { "apimachinery.pkg.apis.meta.v1" };
    format!("{package}.{kind}")
}

/// An aggregated document, ready to send.
#[derive(Debug)]
struct Aggregated {
    body: Bytes,
    etag: HeaderValue,
}

impl Discovery {
    /// Creates the discovery of `registry`. `server_address` (`host:port`) is the address that `/api` gives
    /// to clients; `other_paths` are paths outside the resource API (`/healthz`, `/version` …) that `/` lists
    /// too.
    pub fn new(registry: Arc<Registry>, server_address: String, other_paths: Vec<String>) -> Self {
        let (core, named, merged) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (foreign, peers) = (Arc::new([]), Arc::new([]));
        Discovery { registry, foreign, peers, server_address, other_paths, core, named, merged }
    }

    /// Returns the same discovery for another registry.
    pub fn with(&self, registry: Arc<Registry>) -> Self {
        let discovery = Self::new(registry, self.server_address.clone(), self.other_paths.clone());
        Discovery { foreign: self.foreign.clone(), peers: self.peers.clone(), ..discovery }
    }

    /// Returns the same discovery, with the groups of these peers in the aggregated document.
    pub fn with_peers(&self, peers: Arc<[Vec<Value>]>) -> Self {
        Discovery { peers, ..self.with(self.registry.clone()) }
    }

    /// Returns the same discovery, with the versions of these extension servers.
    pub fn with_foreign(&self, foreign: Arc<[Foreign]>) -> Self {
        Discovery { foreign, ..self.with(self.registry.clone()) }
    }

    /// Responds to a GET of `path`. Returns `None` if `path` is not a discovery path, or names a group or
    /// version that is not served.
    ///
    /// A trailing slash is accepted. `pretty` requests indented JSON. A 406 is returned as a Status.
    pub fn respond(&self, path: &str, headers: &HeaderMap, pretty: bool) -> Option<Answer> {
        let mut parts = path.strip_prefix('/')?.trim_end_matches('/').split('/');
        let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
        // The list of paths is the only document that ignores `Accept` and is always indented.
        if let [Some(""), None, None, None] = parts {
            let paths = documents::root_paths(self.paths());
            return Some(Answer::json(json_response(StatusCode::OK, &paths, true)));
        }
        let cache = match parts {
            [Some("api"), None, None, None] => Some(&self.core),
            [Some("apis"), None, None, None] => Some(&self.named),
            _ => None,
        };
        let naming = self.registry.naming();
        let is_refused = self.is_routed(parts) && !accept::names_one(headers, naming);
        let form = if is_refused { None } else { accept::form(headers, naming, cache.is_some()) };
        let Some((form, encoding)) = form else {
            self.plain(parts)?;
            let others = [DiscoveryEncoding::Yaml.media_type(), naming.protobuf_media_type];
            let status = if is_refused {
                not_acceptable(&others)
            } else {
                Status::not_acceptable(&[&[DiscoveryEncoding::Json.media_type()], &others[..]].concat())
            };
            return Some(Answer::json(json_response(status.code, &status.to_value(), true)));
        };
        let pretty = pretty && encoding == DiscoveryEncoding::Json;
        let is_cached = cache.is_some() && matches!(form, DiscoveryForm::Aggregated | DiscoveryForm::Local);
        let response = match (cache, form) {
            (Some(cache), DiscoveryForm::Aggregated | DiscoveryForm::Local) => {
                let is_core = parts[0] == Some("api");
                let is_merged = !is_core && form == DiscoveryForm::Aggregated && !self.peers.is_empty();
                let cache = if is_merged { &self.merged } else { cache };
                let response = self.aggregated(cache, is_core, is_merged, headers, encoding);
                if pretty { response.map(indented) } else { response }
            }
            _ => {
                let mut response = json_response(StatusCode::OK, &self.plain(parts)?, pretty);
                let media_type = HeaderValue::from_static(encoding.media_type());
                response.headers_mut().insert(CONTENT_TYPE, media_type);
                response
            }
        };
        Some(Answer {
            response,
            encoding,
            is_shared: is_cached && !pretty && encoding == DiscoveryEncoding::Json,
        })
    }

    /// Returns whether the router checks `Accept` before the document is selected. The router has no routes
    /// for the list of groups, for groups, and for versions with custom types only, so the router does not check
    /// `Accept` for these documents.
    fn is_routed(&self, parts: [Option<&str>; 4]) -> bool {
        match parts {
            [Some("apis"), Some(group), Some(version), None] => {
                let known = self.registry.version(group, version);
                known.is_some_and(|it| it.resources.iter().any(|resource| !resource.is_custom()))
            }
            [Some("apis"), ..] => false,
            _ => true,
        }
    }

    fn plain(&self, parts: [Option<&str>; 4]) -> Option<Value> {
        Some(match parts {
            [Some("api"), None, None, None] => {
                documents::api_versions(self.registry.group("").map(|group| &**group), &self.server_address)
            }
            [Some("apis"), None, None, None] => foreign::group_list(
                documents::group_list(self.groups(false)),
                self.groups(false),
                &self.foreign,
            ),
            [Some("apis"), Some(group), None, None] if !group.is_empty() => {
                foreign::group(self.registry.group(group).map(|group| &**group), group, &self.foreign)?
            }
            [Some("api"), Some(version), None, None] => {
                documents::resource_list(self.registry.version("", version)?)
            }
            [Some("apis"), Some(group), Some(version), None] if !group.is_empty() => {
                documents::resource_list(self.registry.version(group, version)?)
            }
            _ => return None,
        })
    }

    fn aggregated(
        &self,
        cache: &OnceLock<Aggregated>,
        core: bool,
        merged: bool,
        headers: &HeaderMap,
        encoding: DiscoveryEncoding,
    ) -> Response<Bytes> {
        let document = cache.get_or_init(|| {
            let document = documents::aggregated(self.groups(core), self.registry.naming());
            let is_shown = |one: &&Foreign| !core && !one.is_unserved;
            let foreign: Vec<Foreign> = self.foreign.iter().filter(is_shown).cloned().collect();
            let mut document = foreign::aggregated(document, self.groups(core), &foreign);
            if merged && let Some(items) = foreign::list_at(&mut document, "items") {
                *items = peers::merged(std::mem::take(items), &self.peers);
            }
            let body = body(&document, false);
            Aggregated { etag: quoted(&sha512_hex(&body)), body }
        });
        let unchanged = headers.get(IF_NONE_MATCH) == Some(&document.etag);
        let mut response = Response::new(if unchanged { Bytes::new() } else { document.body.clone() });
        if unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            let group = self.registry.naming().group(accept::AGGREGATED_GROUP, true);
            let (version, kind) = (accept::AGGREGATED_VERSION, accept::AGGREGATED_KIND);
            let content_type = format!("{};g={group};v={version};as={kind}", encoding.media_type());
            if let Ok(content_type) = HeaderValue::from_str(&content_type) {
                response.headers_mut().insert(CONTENT_TYPE, content_type);
            }
        }
        response.headers_mut().insert(ETAG, document.etag.clone());
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        response
    }

    /// Returns the core group, or all other groups, in discovery order.
    fn groups(&self, core: bool) -> impl Iterator<Item = &Arc<Group>> {
        self.registry.groups().iter().filter(move |group| group.name.is_empty() == core)
    }

    fn paths(&self) -> Vec<String> {
        let mut paths = self.other_paths.clone();
        paths.extend(["/api", "/apis", "/apis/"].map(str::to_owned));
        for group in self.registry.groups() {
            if !group.name.is_empty() {
                paths.push(format!("/apis/{}", group.name));
            }
            paths.extend(group.versions.iter().map(|version| format!("/{}", version.path())));
        }
        for Foreign { group, version, .. } in &*self.foreign {
            paths.extend([format!("/apis/{group}"), format!("/apis/{group}/{version}")]);
        }
        paths
    }
}

/// Returns the 406 error for a document that exists in JSON and in the media types `others`.
pub fn not_acceptable(others: &[&str]) -> Status {
    Status::no_such_representation(&[&["application/json"], others].concat().join(", "))
}

/// Returns `value` as a JSON response. Compact bodies end with a newline, and indented bodies do not
/// (docs/api/encodings.md#json-and-yaml-output).
pub(crate) fn json_response(code: StatusCode, value: &Value, pretty: bool) -> Response<Bytes> {
    let mut response = Response::new(body(value, pretty));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Indents a compact document; a body that is not JSON stays unchanged.
fn indented(document: Bytes) -> Bytes {
    match json::parse(&document) {
        Ok(value) => body(&value, true),
        Err(_) => document,
    }
}

fn body(value: &Value, pretty: bool) -> Bytes {
    let mut out = Vec::new();
    if pretty {
        json::write_pretty(value, &mut out);
    } else {
        json::write(value, &mut out);
        out.push(b'\n');
    }
    out.into()
}

/// Returns SHA-512 of `bytes` as 128 upper-case hexadecimal digits, for ETags and hashes of published
/// documents.
pub(crate) fn sha512_hex(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().fold(String::with_capacity(128), |mut hex, byte| {
        let _ = write!(hex, "{byte:02X}");
        hex
    })
}

/// Returns `text` in quotes, as in ETags. `text` must be plain ASCII.
pub fn quoted(text: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{text}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::make::{ResourceMaker, Struct, plain, table};
    use crate::schema::registry::{self, Priorities, Resource, Storage};
    use crate::schema::table::{Ref, ResourceTable, Scope, SubresourceTable};
    use http::header::ACCEPT;
    use values::naming::CLUSTER;

    fn aggregated() -> String {
        let group = CLUSTER.group(accept::AGGREGATED_GROUP, true);
        format!("application/json;g={group};v=v2;as=APIGroupDiscoveryList")
    }

    /// Returns pods as a built-in type.
    fn pods() -> Arc<Resource> {
        let message = || Ref::new(plain("Pod", Vec::new()));
        let eviction = SubresourceTable {
            name: "eviction",
            group: "policy".into(),
            group_suffixed: false,
            version: "v1".into(),
            kind: "Eviction".into(),
            verbs: &["create"],
            message: message(),
            connect: false,
            update_rule: 0,
            scale: None,
        };
        let table = Ref::new(ResourceTable {
            verbs: &["create", "get"],
            short_names: vec!["po".into()].into(),
            categories: vec!["all".into()].into(),
            ..table("pods".into(), message().name.clone(), message())
        });
        let storage = Storage {
            group: String::new(),
            api_version: "v1".to_owned(),
            kind: "Pod".into(),
            message: message(),
            table: table.clone(),
            key_prefix: "/core/pods/".to_owned(),
            ttl: None,
        };
        Arc::new(Resource {
            table,
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".to_owned(),
            storage: Some(storage),
            subresources: vec![registry::subresource(&CLUSTER, &eviction)],
            published: None,
            fault: None,
            versions: None,
            unserved: Vec::new(),
            ending: false.into(),
        })
    }

    /// Returns the discovery of a core group with pods and a custom group with widgets.
    fn discovery() -> Discovery {
        let widgets =
            ResourceMaker::new("example.com", "v2", "widgets", Scope::Cluster, Struct::new("Widget"));
        let widgets = widgets.unwrap().verbs(&["get"]).make(&CLUSTER);
        let registry = Registry::empty(&CLUSTER)
            .with(pods(), Priorities { group: 18_000, version: 15 })
            .with(widgets, Priorities::CUSTOM);
        let paths = vec!["/version".to_owned(), "/healthz".to_owned()];
        Discovery::new(Arc::new(registry), "10.0.0.1:6443".to_owned(), paths)
    }

    fn get(path: &str, accept: &str) -> Option<Response<Bytes>> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
        discovery().respond(path, &headers, false).map(|answer| answer.response)
    }

    fn text(response: &Response<Bytes>) -> &str {
        std::str::from_utf8(response.body()).unwrap().trim_end_matches('\n')
    }

    #[test]
    fn unaggregated_discovery_lists_groups_versions_and_resources() {
        for (path, want) in [
            (
                "/api",
                r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"10.0.0.1:6443"}]}"#,
            ),
            (
                "/apis/",
                r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"example.com","versions":[{"groupVersion":"example.com/v2","version":"v2"}],"preferredVersion":{"groupVersion":"example.com/v2","version":"v2"}}]}"#,
            ),
            (
                "/apis/example.com",
                r#"{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"groupVersion":"example.com/v2","version":"v2"}],"preferredVersion":{"groupVersion":"example.com/v2","version":"v2"}}"#,
            ),
            (
                "/api/v1/",
                r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["create","get"],"shortNames":["po"],"categories":["all"],"storageVersionHash":"xPOwRZ+Yhw8="},{"name":"pods/eviction","singularName":"","namespaced":true,"group":"policy","version":"v1","kind":"Eviction","verbs":["create"]}]}"#,
            ),
            (
                "/apis/example.com/v2",
                r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v2","resources":[{"name":"widgets","singularName":"widget","namespaced":false,"kind":"Widget","verbs":["get"],"storageVersionHash":"zRcoV5EeA3s="}]}"#,
            ),
        ] {
            let response = get(path, "application/json").unwrap();
            assert_eq!(text(&response), want, "{path}");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        }
        for (path, accept) in [("/apis", "application/json".to_owned()), ("/apis", aggregated())] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(&accept).unwrap());
            let pretty = discovery().respond(path, &headers, true).unwrap().response;
            assert!(text(&pretty).starts_with("{\n  \"kind\": \""), "{path} {accept}");
            let compact = get(path, &accept).unwrap();
            let value = |response: &Response<Bytes>| json::parse(response.body()).unwrap();
            assert_eq!(value(&pretty), value(&compact), "{path} {accept}");
        }
        let root = get("/", "text/html").unwrap();
        let want = "{\n  \"paths\": [\n    \"/api\",\n    \"/api/v1\",\n    \"/apis\",\n    \"/apis/\",\n    \"/apis/example.com\",\n    \"/apis/example.com/v2\",\n    \"/healthz\",\n    \"/version\"\n  ]\n}";
        assert_eq!(text(&root), want);
    }

    #[test]
    fn versions_of_extension_servers_are_listed_once() {
        let other = Foreign {
            group: "example.com".to_owned(),
            version: "v2".to_owned(),
            group_priority: 1,
            version_priority: 1,
            is_unserved: false,
            resources: None,
            openapi: None,
            swagger: None,
        };
        let unserved = Foreign {
            group: "none.example.com".to_owned(),
            version: "v1".to_owned(),
            is_unserved: true,
            ..other.clone()
        };
        let (own, discovery) = (discovery(), discovery().with_foreign(Arc::new([other, unserved])));
        let get = |discovery: &Discovery, path: &str, accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
            text(&discovery.respond(path, &headers, false).unwrap().response).to_owned()
        };
        assert_eq!(get(&discovery, "/apis/example.com", "*/*"), get(&own, "/apis/example.com", "*/*"));
        let list = get(&discovery, "/apis", "*/*");
        assert_eq!(list.matches(r#""groupVersion":"example.com/v2""#).count(), 2, "{list}"); // once as the preferred version
        // A version without a server is listed too.
        let version = r#"{"groupVersion":"none.example.com/v1","version":"v1"}"#;
        let group =
            format!(r#""name":"none.example.com","versions":[{version}],"preferredVersion":{version}}}"#);
        assert!(list.contains(&group), "{list}");
        assert!(get(&discovery, "/apis/none.example.com", "*/*").ends_with(&group));
        assert!(discovery.respond("/apis/none.example.com/v1", &HeaderMap::new(), false).is_none());
        let document = get(&discovery, "/apis", &aggregated());
        let want = r#""metadata":{"name":"example.com"},"versions":[{"version":"v2","freshness":"Stale"}]"#;
        assert!(document.contains(want) && !document.contains("none.example.com"), "{document}");
    }

    #[test]
    fn discovery_does_not_answer_paths_of_unknown_groups_and_versions() {
        for path in [
            "/api/v2",
            "/apis/none",
            "/apis/example.com/v1",
            "/apis//v1",
            "/api/v1/pods",
            "/version",
            "api",
            "/apis/example.com/v2/widgets/x",
        ] {
            assert!(get(path, "*/*").is_none(), "{path}");
            assert!(get(path, "text/html").is_none(), "{path}");
        }
    }

    #[test]
    fn aggregated_documents_list_all_groups_at_once() {
        let core = get("/api", &aggregated()).unwrap();
        assert_eq!(
            text(&core),
            CLUSTER.fill(r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery{suffix}/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"pods","responseKind":{"group":"","version":"","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":["create","get"],"shortNames":["po"],"categories":["all"],"subresources":[{"subresource":"eviction","responseKind":{"group":"policy","version":"v1","kind":"Eviction"},"verbs":["create"]}]}],"freshness":"Current"}]}]}"#)
        );
        let named = get("/apis", &aggregated()).unwrap();
        assert_eq!(
            text(&named),
            CLUSTER.fill(r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery{suffix}/v2","metadata":{},"items":[{"metadata":{"name":"example.com"},"versions":[{"version":"v2","resources":[{"resource":"widgets","responseKind":{"group":"example.com","version":"v2","kind":"Widget"},"scope":"Cluster","singularResource":"widget","verbs":["get"]}],"freshness":"Current"}]}]}"#)
        );
        let headers = core.headers();
        assert_eq!(headers[CONTENT_TYPE], aggregated());
        assert_eq!(headers[VARY], "Accept");
        assert_eq!(headers[CACHE_CONTROL], "public");
        let etag = headers[ETAG].to_str().unwrap().trim_matches('"');
        assert_eq!(etag.len(), 128);
        assert!(etag.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)));
    }

    #[test]
    fn discovery_answers_304_only_for_an_exactly_equal_etag() {
        let discovery = discovery();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(&aggregated()).unwrap());
        let etag = discovery.respond("/api", &headers, false).unwrap().response.headers()[ETAG].clone();
        let weak = HeaderValue::from_str(&format!("W/{}", etag.to_str().unwrap())).unwrap();
        for (none_match, code) in [(etag, StatusCode::NOT_MODIFIED), (weak, StatusCode::OK)] {
            headers.insert(IF_NONE_MATCH, none_match);
            let response = discovery.respond("/api", &headers, false).unwrap().response;
            assert_eq!(response.status(), code);
            assert_eq!(response.body().is_empty(), code == StatusCode::NOT_MODIFIED);
            assert!(response.headers().contains_key(ETAG));
        }
    }

    #[test]
    fn an_unsupported_discovery_format_is_refused_with_406() {
        let routed = r#""message": "406: Not Acceptable\n\nAvailable representations: application/json, "#;
        let negotiated = r#""message": "only the following media types are accepted: application/json, "#;
        for (path, accept, want) in [
            ("/api", "text/html", routed),
            ("/api/v1", "application/*", routed),
            ("/api/v1", &*aggregated(), negotiated),
            ("/api", "application/json;as=Table;g=meta.k8s.io;v=v1", negotiated),
            ("/apis", "text/html", negotiated),
            ("/apis/example.com", "text/html", negotiated),
            ("/apis/example.com/v2", "text/html", negotiated),
        ] {
            let response = get(path, accept).unwrap();
            assert_eq!(response.status(), StatusCode::NOT_ACCEPTABLE, "{path} {accept}");
            assert!(text(&response).contains(want), "{path} {accept}");
            assert_eq!(text(&response).contains("details"), want == routed, "{path} {accept}");
        }
        assert_eq!(get("/apis", "application/*").unwrap().status(), StatusCode::OK);
    }
}
