//! OpenAPI documents of all served resources (docs/api/openapi.md#openapi-documents).
//!
//! ```text
//! registry ─► operations ─┐
//! types ─► definitions ────┴─► trees, part by part ─► JSON or protobuf ─► /openapi/v2, /openapi/v3/…
//! ```
//!
//! | path | document |
//! |---|---|
//! | `/openapi/v3` | index: one URL with a hash for each document |
//! | `/openapi/v3/api/v1`, `/openapi/v3/apis/<g>/<v>` | one group version |
//! | `/openapi/v3/api`, `/apis`, `/apis/<g>`, `/version` … | the parents of these paths; not for custom groups |
//! | `/openapi/v3/history` | the history of objects |
//! | `/openapi/v2` | all paths in one document |
//!
//! A document is built at its first request and cached in each requested encoding. The index needs the hash
//! of every document. To build the index, missing documents are built one at a time, and only the hashes of these
//! documents are kept. The input of this module is only the path, the query and the headers of a request.

mod constraints;
mod content;
mod custom;
mod definition;
mod dialect;
mod document;
mod gnostic;
mod history;
mod operation;
mod parameter;
mod render;

#[cfg(test)]
mod openapi_test;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, EXPIRES, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use jiff::Timestamp;

use self::content::DocumentContent;
use self::definition::{Definitions, Kinds};
use self::dialect::Dialect;
use self::document::OpenApiEncoding;
use self::operation::{Media, PathItem, ResponseContent, plain_path};
use crate::discovery::accept::Clause;
use crate::discovery::{Foreign, Swagger, quoted, sha512_hex};
use crate::schema::registry::{GroupVersion, Registry};
use values::json::{self, Object, Value};

const JSON: &str = "application/json";
const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const PROTOBUF_V2_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const PROTOBUF_V3_OLD: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// Seconds for which a client may cache a document that it requested by hash.
const IMMUTABLE_SECONDS: i64 = 365 * 24 * 3600;

/// The OpenAPI documents of one registry.
#[derive(Debug)]
pub struct OpenApi {
    registry: Arc<Registry>,
    /// Version that the server reports.
    git_version: Arc<str>,
    modified: HeaderValue,
    kinds: OnceLock<Kinds>,
    v2: Document,
    /// Documents by path below `/openapi/v3/`.
    v3: BTreeMap<String, Arc<Document>>,
    index: OnceLock<Bytes>,
    /// URLs of documents of extension servers, by path below `/openapi/v3/`.
    foreign: BTreeMap<String, String>,
    /// Content of the v2 documents of extension servers.
    swaggers: Vec<Arc<Swagger>>,
}

/// A document in the encodings that were requested so far.
#[derive(Debug)]
struct Document {
    subject: Subject,
    /// SHA-512 of the JSON form.
    hash: OnceLock<String>,
    json: OnceLock<Bytes>,
    protobuf: OnceLock<Bytes>,
}

/// The subject of a document.
#[derive(Clone, Debug)]
enum Subject {
    /// All resources, in v2.
    Everything,
    /// A group version.
    Version(Arc<GroupVersion>),
    /// The path `/api/`.
    Api,
    /// The path `/apis/`.
    Apis,
    /// The path `/apis/<group>/`.
    Group(String),
    /// The path `/version/`.
    Release,
    /// The paths below `/history/`.
    History,
    /// A path outside the API that returns JSON. The values are the path, the operation id, the description
    /// and the media types.
    Other(&'static str, &'static str, &'static str, Media),
}

/// Paths outside the API that get a document if the server has them.
const OTHERS: [(&str, &str, &str, Media); 2] = [
    (
        ".well-known/openid-configuration",
        "getServiceAccountIssuerOpenIDConfiguration",
        "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
        Media::Json,
    ),
    (
        "openid/v1/jwks",
        "getServiceAccountIssuerOpenIDKeyset",
        "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
        Media::KeySet,
    ),
];

impl OpenApi {
    /// Creates the documents of `registry`. `other_paths` are the paths of the server outside the resource
    /// API; some of these paths have documents. `git_version` is the version that the server reports. The
    /// call is cheap: documents are built at their first request.
    pub fn new(registry: Arc<Registry>, other_paths: &[String], git_version: Arc<str>) -> Self {
        let mut v3 = BTreeMap::new();
        let mut add = |path: String, subject: Subject| {
            v3.insert(path, Arc::new(Document::new(subject)));
        };
        for group in registry.groups() {
            for version in &group.versions {
                add(version.path(), Subject::Version(version.clone()));
            }
            let is_built_in = group.versions.iter().any(|version| operation::is_built_in(version));
            if is_built_in && !group.name.is_empty() {
                add(format!("apis/{}", group.name), Subject::Group(group.name.clone()));
            }
        }
        add("api".to_owned(), Subject::Api);
        add("apis".to_owned(), Subject::Apis);
        add("version".to_owned(), Subject::Release);
        add(history::NAME.to_owned(), Subject::History);
        for (path, id, description, media) in OTHERS {
            if other_paths.iter().any(|other| other.trim_matches('/') == path) {
                add(path.to_owned(), Subject::Other(path, id, description, media));
            }
        }
        OpenApi {
            registry,
            git_version,
            modified: http_date(Timestamp::now()),
            kinds: OnceLock::new(),
            v2: Document::new(Subject::Everything),
            v3,
            index: OnceLock::new(),
            foreign: BTreeMap::new(),
            swaggers: Vec::new(),
        }
    }

    /// Returns the same documents, extended by the documents of extension servers. The index lists the v3
    /// documents of these servers, and requests for such a document go to the extension server. The content
    /// of their v2 documents becomes part of the single v2 document.
    pub fn with_foreign(&self, foreign: &[Foreign]) -> Self {
        let urls = foreign.iter().filter_map(|Foreign { group, version, openapi, .. }| {
            Some((format!("apis/{group}/{version}"), openapi.clone()?))
        });
        let swaggers = foreign.iter().filter_map(|one| one.swagger.clone()).collect();
        OpenApi { foreign: urls.collect(), swaggers, ..self.with(self.registry.clone()) }
    }

    /// Returns the documents of another registry. The result keeps the documents that have been built for
    /// versions that are unchanged in `registry`.
    pub fn with(&self, registry: Arc<Registry>) -> Self {
        let others: Vec<String> = OTHERS
            .iter()
            .filter(|other| self.v3.contains_key(other.0))
            .map(|other| other.0.to_owned())
            .collect();
        let (foreign, swaggers) = (self.foreign.clone(), self.swaggers.clone());
        let mut next = Self { foreign, swaggers, ..Self::new(registry, &others, self.git_version.clone()) };
        for (path, document) in &mut next.v3 {
            if let Some(known) = self.v3.get(path)
                && known.subject.is_same(&document.subject)
            {
                *document = known.clone();
            }
        }
        next
    }

    /// Responds to a request for `path` with any method. Returns `None` for paths other than `/openapi/v2`,
    /// `/openapi/v3` and the paths below `/openapi/v3`. A path with a trailing slash is a different path.
    ///
    /// The first request for the index or for `/openapi/v2` may take some tens of milliseconds.
    pub fn respond(&self, path: &str, query: Option<&str>, headers: &HeaderMap) -> Option<Response<Bytes>> {
        match path.strip_prefix("/openapi/")? {
            "v2" => Some(self.respond_v2(headers)),
            "v3" => Some(self.respond_index(headers)),
            other => Some(self.respond_v3(other.strip_prefix("v3/")?, query, headers)),
        }
    }

    fn respond_v2(&self, headers: &HeaderMap) -> Response<Bytes> {
        let Some(media_type) = negotiate(headers, [JSON, PROTOBUF_V2, PROTOBUF_V2_OLD]) else {
            return empty(StatusCode::NOT_ACCEPTABLE);
        };
        let mut response = self.document(&self.v2, media_type, headers);
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response
    }

    fn respond_index(&self, headers: &HeaderMap) -> Response<Bytes> {
        let body = self.index.get_or_init(|| self.make_index());
        let content = DocumentContent {
            body: body.clone(),
            content_type: HeaderValue::from_static(JSON),
            etag: quoted(&sha512_hex(body)),
            modified: self.modified.clone(),
        };
        content::respond(content, headers)
    }

    fn respond_v3(&self, name: &str, query: Option<&str>, headers: &HeaderMap) -> Response<Bytes> {
        let Some(document) = self.v3.get(name) else { return empty(StatusCode::NOT_FOUND) };
        let Some(media_type) = negotiate(headers, [JSON, PROTOBUF_V3, PROTOBUF_V3_OLD]) else {
            return empty(StatusCode::NOT_ACCEPTABLE);
        };
        let requested_hash =
            query.unwrap_or("").split('&').find_map(|part| part.strip_prefix("hash=")).unwrap_or("");
        let mut response = if requested_hash.is_empty() {
            self.document(document, media_type, headers)
        } else if requested_hash == self.hash(document) {
            let mut response = self.document(document, media_type, headers);
            let expires = Timestamp::now().as_second().saturating_add(IMMUTABLE_SECONDS);
            let expires = Timestamp::from_second(expires).unwrap_or(Timestamp::MAX);
            let head = response.headers_mut();
            head.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            head.insert(EXPIRES, http_date(expires));
            response
        } else {
            let mut response = empty(StatusCode::MOVED_PERMANENTLY);
            if let Ok(location) = HeaderValue::from_str(&self.url(name, document)) {
                response.headers_mut().insert(LOCATION, location);
            }
            response
        };
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response
    }

    /// Responds with `document` in the encoding of `media_type`.
    fn document(
        &self,
        document: &Document,
        media_type: &'static str,
        headers: &HeaderMap,
    ) -> Response<Bytes> {
        let (body, media_type) = match media_type {
            JSON => (self.json(document), JSON),
            // The old spelling is accepted, but the response always has the new spelling.
            PROTOBUF_V2 | PROTOBUF_V2_OLD => (self.protobuf(document), PROTOBUF_V2),
            _ => (self.protobuf(document), PROTOBUF_V3),
        };
        let content = DocumentContent {
            body,
            content_type: HeaderValue::from_static(media_type),
            etag: quoted(self.hash(document)),
            modified: self.modified.clone(),
        };
        content::respond(content, headers)
    }

    fn json(&self, document: &Document) -> Bytes {
        document.json.get_or_init(|| self.make(&document.subject, OpenApiEncoding::Json).into()).clone()
    }

    fn protobuf(&self, document: &Document) -> Bytes {
        document
            .protobuf
            .get_or_init(|| self.make(&document.subject, OpenApiEncoding::Protobuf).into())
            .clone()
    }

    fn hash<'d>(&self, document: &'d Document) -> &'d str {
        document.hash.get_or_init(|| match document.json.get() {
            Some(json) => sha512_hex(json),
            // The document is built only to compute its hash, and is then dropped, because most documents are
            // never requested.
            None => sha512_hex(&self.make(&document.subject, OpenApiEncoding::Json)),
        })
    }

    fn url(&self, name: &str, document: &Document) -> String {
        format!("/openapi/v3/{name}?hash={}", self.hash(document))
    }

    fn make_index(&self) -> Bytes {
        let own = self.v3.iter().map(|(name, document)| (name.clone(), self.url(name, document)));
        let mut urls: BTreeMap<String, String> = self.foreign.clone();
        urls.extend(own);
        let entry = |(name, url): (String, String)| {
            let url = Object::from_iter([("serverRelativeURL".into(), url.into())]);
            (name.into(), Value::Object(url))
        };
        let paths: Object = urls.into_iter().map(entry).collect();
        let mut out = Vec::new();
        json::write(&Object::from_iter([("paths".into(), paths.into())]).into(), &mut out);
        out.into()
    }

    fn make(&self, subject: &Subject, encoding: OpenApiEncoding) -> Vec<u8> {
        let kinds = self.kinds.get_or_init(|| Kinds::new(&self.registry));
        let naming = self.registry.naming();
        let dialect = match subject {
            Subject::Everything => Dialect::V2,
            _ => Dialect::V3,
        };
        let mut definitions = Definitions::new(naming, dialect, kinds);
        if let Subject::Version(version) = subject {
            definitions = definitions.for_version(version);
        }
        let mut paths = Vec::new();
        self.paths(subject, &mut definitions, &mut paths);
        let swaggers = if dialect == Dialect::V2 { &self.swaggers[..] } else { &[] };
        document::assemble(naming, &self.git_version, dialect, encoding, &paths, definitions, swaggers)
    }

    /// Adds the paths of `subject`, sorted.
    fn paths<'a>(&'a self, subject: &'a Subject, definitions: &mut Definitions<'a>, to: &mut Vec<PathItem>) {
        match subject {
            Subject::Everything => {
                for document in self.v3.values() {
                    self.paths(&document.subject, definitions, to);
                }
                to.sort_by(|a, b| a.path.cmp(&b.path));
            }
            Subject::Version(version) => {
                to.extend(operation::version_paths(version, self.registry.naming(), definitions))
            }
            Subject::Api => {
                let answer = ResponseContent::Schema(definitions.meta("APIVersions"), Media::Object);
                to.push(plain_path(
                    "/api/",
                    "getCoreAPIVersions",
                    "core",
                    "get available API versions",
                    answer,
                ));
            }
            Subject::Apis => {
                let answer = ResponseContent::Schema(definitions.meta("APIGroupList"), Media::Object);
                to.push(plain_path("/apis/", "getAPIVersions", "apis", "get available API versions", answer));
            }
            Subject::Group(group) => {
                let answer = ResponseContent::Schema(definitions.meta("APIGroup"), Media::Object);
                let id = format!("get{}APIGroup", operation::group_id(group, self.registry.naming()));
                let tag = operation::group_tag(group, self.registry.naming());
                let path = format!("/apis/{group}/");
                to.push(plain_path(&path, &id, &tag, "get information of a group", answer));
            }
            Subject::Release => {
                let answer =
                    ResponseContent::Schema(definitions.named("apimachinery.pkg.version.Info"), Media::Json);
                to.push(plain_path("/version/", "getCodeVersion", "version", "get the code version", answer));
            }
            Subject::History => to.extend(history::paths(definitions)),
            Subject::Other(path, id, description, media) => {
                let tag = path.split(['/', '.']).find(|part| !part.is_empty()).unwrap_or(path);
                let answer = ResponseContent::Text(*media);
                to.push(plain_path(&format!("/{path}/"), id, tag, description, answer));
            }
        }
    }
}

impl Document {
    fn new(subject: Subject) -> Self {
        Document { subject, hash: OnceLock::new(), json: OnceLock::new(), protobuf: OnceLock::new() }
    }
}

impl Subject {
    /// Returns whether both subjects have the same content.
    fn is_same(&self, other: &Subject) -> bool {
        match (self, other) {
            (Subject::Version(a), Subject::Version(b)) => Arc::ptr_eq(a, b),
            (Subject::Group(a), Subject::Group(b)) => a == b,
            (Subject::Other(a, ..), Subject::Other(b, ..)) => a == b,
            (Subject::Everything, _) | (Subject::Version(_), _) | (Subject::Group(_), _) => false,
            (Subject::Api, other) => matches!(other, Subject::Api),
            (Subject::Apis, other) => matches!(other, Subject::Apis),
            (Subject::Release, other) => matches!(other, Subject::Release),
            (Subject::History, other) => matches!(other, Subject::History),
            (Subject::Other(..), _) => false,
        }
    }
}

/// Returns the first media type of `served` that a clause of `Accept` matches, in the order of the clauses.
fn negotiate<const N: usize>(headers: &HeaderMap, served: [&'static str; N]) -> Option<&'static str> {
    if !headers.contains_key(ACCEPT) {
        return served.first().copied();
    }
    let clauses = Clause::sorted(headers);
    if clauses.is_empty() {
        return served.first().copied();
    }
    clauses.iter().find_map(|clause| {
        served.into_iter().find(|media_type| match clause.media_type {
            "*/*" | "*" | "application/*" => true,
            requested => requested == *media_type,
        })
    })
}

fn empty(code: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = code;
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// Formats a time as in HTTP: `Sat, 21 Nov 2026 04:16:37 GMT`.
pub fn http_date(at: Timestamp) -> HeaderValue {
    let text = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}
