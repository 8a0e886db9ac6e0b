//! Content negotiation: `Accept` to a representation, `Content-Type` to a decoder (docs/api/encodings.md#accept,
//! #content-type).
//!
//! ```text
//! Accept ──route: does any clause match, parameters aside?──► clauses by weight ──► first that can be served
//!                 └─ no: 406 with the route's types                     └─ none: 406 with the server's types
//! ```
//!
//! Clauses are tried by weight, then specific before wildcard, then in the order of the header. As in the reference
//! server, a weight of zero does not exclude, and only the first of several headers counts.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::parameters;
use types::table::MetaVersion;
use values::naming::{CLUSTER, Naming};
use values::query::Query;
use values::status::Status;

/// Media type of JSON.
pub const JSON: &str = "application/json";

/// Media type of YAML.
pub const YAML: &str = "application/yaml";

/// Media type of CBOR.
pub const CBOR: &str = "application/cbor";

/// Media type of a watch in CBOR: a sequence of items.
pub const CBOR_SEQUENCE: &str = "application/cbor-seq";

/// The part of an object in the response body.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transform {
    /// The object itself.
    #[default]
    None,
    /// Rows and cells.
    Table,
    /// Metadata of one object.
    PartialObject,
    /// Metadata of every item of a list.
    PartialObjectList,
}

/// The encoding of a response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Encoding {
    /// JSON text.
    #[default]
    Json,
    /// YAML text; not available for watches.
    Yaml,
    /// Enveloped protobuf messages.
    Protobuf,
    /// CBOR items.
    Cbor,
}

impl Encoding {
    /// Media type of documents.
    pub fn media_type(self, naming: &Naming) -> &'static str {
        match self {
            Encoding::Json => JSON,
            Encoding::Yaml => YAML,
            Encoding::Protobuf => naming.protobuf_media_type,
            Encoding::Cbor => CBOR,
        }
    }
}

/// The representation of a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Output {
    /// The encoding.
    pub encoding: Encoding,
    /// The encoding's media type.
    pub media_type: &'static str,
    /// The part of the object.
    pub transform: Transform,
    /// Version of the meta group of tables and metadata-only objects.
    pub meta_version: MetaVersion,
    /// The naming profile of the request's transform; the response uses its meta group.
    pub words: &'static Naming,
    /// Indented.
    pub pretty: bool,
}

impl Output {
    /// The representation of errors if no representation in `Accept` can be served
    /// (docs/api/errors.md#encoding-of-errors).
    pub const FALLBACK: Output = Output { pretty: true, ..Output::JSON };

    /// Plain JSON.
    pub const JSON: Output = Output {
        encoding: Encoding::Json,
        media_type: JSON,
        transform: Transform::None,
        meta_version: MetaVersion::V1,
        words: &CLUSTER, // unused without a transform
        pretty: false,
    };
}

/// The version of generic output that clients may insist on.
const META_VERSION: &str = "v1";

/// The kinds of responses an endpoint has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Offer {
    /// An object of a resource, in every transform.
    Object,
    /// A list, from a route that also has the watch.
    List,
    /// A watch.
    Watch,
    /// A Status or another plain document.
    Plain,
}

/// The encodings of a server.
#[derive(Clone, Copy, Debug)]
pub struct Formats {
    /// The naming profile.
    pub naming: &'static Naming,
    /// Whether CBOR is enabled; it is behind a feature gate.
    pub cbor: bool,
    /// What is served.
    pub objects: Objects,
}

/// What the objects of an endpoint are, as far as their encodings go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Objects {
    /// Of types that have every encoding.
    #[default]
    Typed,
    /// Of custom types, which have no protobuf form; their metadata alone has one.
    Custom,
    /// Bodies of operations (a review, an eviction), of which there are no tables.
    Operation,
}

/// One clause of an `Accept` header.
#[derive(Debug)]
struct Clause<'h> {
    kind: &'h str,
    sub: &'h str,
    weight: f32,
    parameters: Vec<(&'h str, &'h str)>,
}

impl Formats {
    /// The formats of an endpoint with such objects.
    #[must_use]
    pub fn of(self, objects: Objects) -> Self {
        Formats { objects, ..self }
    }

    fn encodings(self) -> impl Iterator<Item = Encoding> {
        let cbor = self.cbor.then_some(Encoding::Cbor);
        [Encoding::Json, Encoding::Yaml, Encoding::Protobuf].into_iter().chain(cbor)
    }

    /// The media types of documents, in the order in which errors list them.
    fn media_types(self) -> Vec<&'static str> {
        self.encodings().map(|encoding| encoding.media_type(self.naming)).collect()
    }

    /// The media types of watches, in the same order.
    fn stream_types(self) -> Vec<String> {
        let streaming = self.encodings().filter(|encoding| *encoding != Encoding::Yaml);
        streaming.map(|encoding| format!("{};stream=watch", encoding.media_type(self.naming))).collect()
    }

    /// Chooses the representation, or 406 (docs/api/encodings.md#accept).
    pub fn output(self, headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Output, Status> {
        let header =
            headers.get(ACCEPT).map_or(Cow::Borrowed(""), |value| String::from_utf8_lossy(value.as_bytes()));
        let header = if header.trim().is_empty() { "*/*" } else { &*header };
        self.check_route(header, offer)?;
        for clause in clauses(header) {
            let Some((encoding, media_type)) = self.encoding(&clause, offer) else { continue };
            // YAML has no streams.
            if encoding == Encoding::Yaml
                && clause.parameter("stream").is_some_and(|stream| !stream.is_empty())
            {
                continue;
            }
            let Some((transform, words)) = clause.transform(self.naming, offer) else { continue };
            // Tables are text (docs/api/encodings.md#accept).
            let has_form = match (encoding, transform) {
                (_, Transform::Table) if self.objects == Objects::Operation => false,
                (Encoding::Json | Encoding::Yaml, _) => true,
                (_, Transform::Table) => false,
                (Encoding::Protobuf, Transform::None) => self.objects != Objects::Custom,
                _ => true,
            };
            if !has_form {
                continue;
            }
            if offer == Offer::Watch && encoding == Encoding::Yaml {
                // The clause is served, but not as a stream; the reference server stops here.
                return Err(Status::not_acceptable(&self.stream_types()));
            }
            let meta_version = clause.parameter("v").and_then(MetaVersion::by_name).unwrap_or_default();
            let pretty = is_pretty(headers, query, &clause);
            return Ok(Output { encoding, media_type, transform, meta_version, words, pretty });
        }
        Err(Status::not_acceptable(&self.media_types()))
    }

    /// The router's check of the header: exact media types or `*/*`, whatever their parameters
    /// (docs/api/encodings.md#accept).
    fn check_route(self, header: &str, offer: Offer) -> Result<(), Status> {
        // Custom types are behind one route that takes any header.
        if offer == Offer::Plain || self.objects == Objects::Custom {
            return Ok(());
        }
        let names_one = header.split(',').any(|clause| {
            let media = clause.split(';').next().unwrap_or_default().trim();
            let understood = || self.naming.understood().any(|words| words.protobuf_media_type == media);
            match media {
                "*/*" | JSON | YAML => true,
                CBOR => self.cbor,
                CBOR_SEQUENCE => self.cbor && offer == Offer::Watch,
                _ => understood(),
            }
        });
        if names_one {
            return Ok(());
        }
        let mut list = self.media_types().join(", ");
        if offer != Offer::Object {
            list = [list, self.stream_types().join(", ")].join(", ");
        }
        Err(Status::no_such_representation(&list))
    }

    /// The first encoding that the clause's media type or range covers, with its own media type.
    fn encoding(self, clause: &Clause<'_>, offer: Offer) -> Option<(Encoding, &'static str)> {
        match (clause.kind, clause.sub) {
            ("application", "json" | "*") | ("*", "*") => Some((Encoding::Json, JSON)),
            ("application", "yaml") => Some((Encoding::Yaml, YAML)),
            ("application", "cbor") if self.cbor => Some((Encoding::Cbor, CBOR)),
            ("application", "cbor-seq") if self.cbor && offer == Offer::Watch => Some((Encoding::Cbor, CBOR)),
            given => {
                let mut types = self.naming.understood().map(|words| words.protobuf_media_type);
                let asked = types.find(|protobuf| protobuf.split_once('/') == Some(given))?;
                Some((Encoding::Protobuf, asked))
            }
        }
    }

    /// The form of a request body; a missing `Content-Type` means JSON (docs/api/encodings.md#content-type).
    pub fn input(self, headers: &HeaderMap) -> Result<Input, Status> {
        let given = match content_type(headers) {
            None => return Ok(Input::Json),
            // Parameters without a media type are none, an empty header is a missing one.
            Some("")
                if headers
                    .get(CONTENT_TYPE)
                    .is_some_and(|value| value.as_bytes().trim_ascii().is_empty()) =>
            {
                return Ok(Input::Json);
            }
            Some(given) => given,
        };
        let header = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let has_parameters = parameters::are_valid(header);
        let is = |media_type: &str| has_parameters && given.eq_ignore_ascii_case(media_type);
        if is(JSON) {
            Ok(Input::Json)
        } else if is(YAML) {
            Ok(Input::Yaml)
        } else if self.objects != Objects::Custom
            && self.naming.understood().any(|words| is(words.protobuf_media_type))
        {
            Ok(Input::Protobuf)
        } else if self.cbor && is(CBOR) {
            Ok(Input::Cbor)
        } else {
            let mut accepted = self.media_types();
            if self.objects == Objects::Custom {
                accepted.retain(|media_type| *media_type != self.naming.protobuf_media_type);
            }
            Err(Status::unsupported_media_type(&accepted))
        }
    }
}

/// Whether the response is indented: by the query, by the clause, or by the user agent of an interactive tool.
fn is_pretty(headers: &HeaderMap, query: &Query, clause: &Clause<'_>) -> bool {
    let by_agent = || {
        let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
    };
    clause.parameter("pretty") == Some("1") || query.pretty().unwrap_or_else(by_agent)
}

impl<'h> Clause<'h> {
    fn parameter(&self, name: &str) -> Option<&'h str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The requested transform and its naming profile, or `None` if this endpoint cannot serve the clause.
    fn transform(&self, naming: &'static Naming, offer: Offer) -> Option<(Transform, &'static Naming)> {
        let given = |name: &str| self.parameter(name).filter(|value| !value.is_empty());
        if given("stream").is_some_and(|stream| stream != "watch") {
            return None;
        }
        if given("sv").is_some_and(|version| offer == Offer::Plain || version != META_VERSION) {
            return None;
        }
        let Some(target) = self.parameter("as") else {
            // A group or a version alone asks for a transform to nothing.
            let is_plain = self.parameter("g").or(self.parameter("v")).is_none();
            return is_plain.then_some((Transform::None, naming));
        };
        let group = self.parameter("g")?;
        let words = naming.understood().find(|words| words.meta_group() == group)?;
        let known_version = self.parameter("v").and_then(MetaVersion::by_name).is_some();
        if offer == Offer::Plain || !known_version {
            return None;
        }
        let transform = match target {
            "Table" => Transform::Table,
            "PartialObjectMetadata" => Transform::PartialObject,
            "PartialObjectMetadataList" => Transform::PartialObjectList,
            _ => return None,
        };
        Some((transform, words))
    }
}

/// The clauses in order of preference.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause> = header
        .split(',')
        .filter_map(|text| {
            let mut parts = text.split(';').map(str::trim);
            let media = parts.next()?;
            let (kind, sub) = if media == "*" { ("*", "*") } else { media.split_once('/')? };
            let parameters: Vec<(&str, &str)> = parts
                .map(|part| part.split_once('=').unwrap_or((part, "")))
                .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
                .collect();
            let weight = parameters.iter().find(|(name, _)| *name == "q");
            let weight = weight.map_or(1.0, |(_, text)| text.parse().unwrap_or(0.0));
            Some(Clause { kind, sub, weight, parameters })
        })
        .collect();
    let wildcards = |clause: &Clause| usize::from(clause.kind == "*") + usize::from(clause.sub == "*");
    clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(wildcards(a).cmp(&wildcards(b))));
    clauses
}

/// The encoding of a request body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Input {
    /// JSON text.
    Json,
    /// YAML text.
    Yaml,
    /// An enveloped protobuf message.
    Protobuf,
    /// A CBOR item.
    Cbor,
}

/// The media type of the request body without parameters.
pub fn content_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().unwrap_or("invalid");
    Some(value.split(';').next().unwrap_or_default().trim())
}

#[cfg(test)]
#[path = "negotiate_test.rs"]
mod tests;
