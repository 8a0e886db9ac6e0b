//! Content negotiation: chooses a representation from `Accept` and a decoder from `Content-Type`
//! (docs/api/encodings.md#accept, #content-type).
//!
//! ```text
//! Accept ──route: does any clause match, parameters aside?──► clauses by weight ──► first that can be served
//!                 └─ no: 406 with the route's types                     └─ none: 406 with the server's types
//! ```
//!
//! Clauses are tried by weight. Among clauses of equal weight, specific clauses come before wildcards; the
//! order of the header decides last. As in the reference server, a weight of zero does not exclude a clause,
//! and only the first of several headers is used.

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

/// Media type of a watch in CBOR, which is a sequence of items.
pub const CBOR_SEQUENCE: &str = "application/cbor-seq";

/// The part or view of an object that a response contains.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transform {
    /// The whole object, unchanged.
    #[default]
    None,
    /// A table of rows and cells.
    Table,
    /// Only the metadata of one object.
    PartialObject,
    /// Only the metadata of every item of a list.
    PartialObjectList,
}

/// The encoding of a response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Encoding {
    /// JSON text, the default.
    #[default]
    Json,
    /// YAML text; not available for watches.
    Yaml,
    /// Protobuf messages in an envelope.
    Protobuf,
    /// CBOR items (RFC 8949).
    Cbor,
}

impl Encoding {
    /// Returns the media type of documents in this encoding.
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
    /// Encoding of the response body.
    pub encoding: Encoding,
    /// Media type of the response body.
    pub media_type: &'static str,
    /// Part of the object that the response contains.
    pub transform: Transform,
    /// Version of the meta group for tables and metadata-only objects.
    pub meta_version: MetaVersion,
    /// Naming profile that the requested transform uses; the response uses the meta group of this profile.
    pub words: &'static Naming,
    /// Whether the text is indented.
    pub pretty: bool,
}

impl Output {
    /// The representation of an error if `Accept` contains no representation that the server can produce
    /// (docs/api/errors.md#encoding-of-errors).
    pub const FALLBACK: Output = Output { pretty: true, ..Output::JSON };

    /// JSON without a transform or indentation.
    pub const JSON: Output = Output {
        encoding: Encoding::Json,
        media_type: JSON,
        transform: Transform::None,
        meta_version: MetaVersion::V1,
        words: &CLUSTER, // unused without a transform
        pretty: false,
    };
}

/// The only version of the meta group that clients can request.
const META_VERSION: &str = "v1";

/// The kind of response that an endpoint offers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Offer {
    /// An object of a resource; all transforms are available.
    Object,
    /// A list, from a route that also serves watches.
    List,
    /// A watch of a collection or object.
    Watch,
    /// A Status or another document that has no transforms.
    Plain,
}

/// The encodings that an endpoint supports.
#[derive(Clone, Copy, Debug)]
pub struct Formats {
    /// Naming profile of the server.
    pub naming: &'static Naming,
    /// Whether CBOR is enabled, which depends on a feature gate.
    pub cbor: bool,
    /// Class of the endpoint's objects.
    pub objects: Objects,
}

/// The class of an endpoint's objects, which determines their encodings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Objects {
    /// Objects of built-in types, which have every encoding.
    #[default]
    Typed,
    /// Objects of custom types. Only their metadata has a protobuf form.
    Custom,
    /// Bodies of operations (a review, an eviction), which cannot be shown as a table.
    Operation,
}

/// A clause of an `Accept` header.
#[derive(Debug)]
struct Clause<'h> {
    kind: &'h str,
    sub: &'h str,
    weight: f32,
    parameters: Vec<(&'h str, &'h str)>,
}

impl Formats {
    /// Returns the formats of an endpoint whose objects are of class `objects`.
    #[must_use]
    pub fn with_objects(self, objects: Objects) -> Self {
        Formats { objects, ..self }
    }

    fn encodings(self) -> impl Iterator<Item = Encoding> {
        let cbor = self.cbor.then_some(Encoding::Cbor);
        [Encoding::Json, Encoding::Yaml, Encoding::Protobuf].into_iter().chain(cbor)
    }

    /// Returns the media types of documents, in the order in which error messages list them.
    fn media_types(self) -> Vec<&'static str> {
        self.encodings().map(|encoding| encoding.media_type(self.naming)).collect()
    }

    /// Returns the media types of watches, in the order of `media_types`.
    fn stream_types(self) -> Vec<String> {
        let streaming = self.encodings().filter(|encoding| *encoding != Encoding::Yaml);
        streaming.map(|encoding| format!("{};stream=watch", encoding.media_type(self.naming))).collect()
    }

    /// Chooses the representation. Returns a 406 if there is no acceptable representation
    /// (docs/api/encodings.md#accept).
    pub fn output(self, headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Output, Status> {
        let header =
            headers.get(ACCEPT).map_or(Cow::Borrowed(""), |value| String::from_utf8_lossy(value.as_bytes()));
        let header = if header.trim().is_empty() { "*/*" } else { &*header };
        self.check_route(header, offer)?;
        for clause in clauses(header) {
            let Some((encoding, media_type)) = self.encoding(&clause, offer) else { continue };
            // YAML is not available for streams.
            if encoding == Encoding::Yaml
                && clause.parameter("stream").is_some_and(|stream| !stream.is_empty())
            {
                continue;
            }
            let Some((transform, words)) = clause.transform(self.naming, offer) else { continue };
            // Tables exist only in JSON and YAML (docs/api/encodings.md#accept).
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
                // The clause is acceptable, but not for a stream. The reference server stops here.
                return Err(Status::not_acceptable(&self.stream_types()));
            }
            let meta_version = clause.parameter("v").and_then(MetaVersion::by_name).unwrap_or_default();
            let pretty = is_pretty(headers, query, &clause);
            return Ok(Output { encoding, media_type, transform, meta_version, words, pretty });
        }
        Err(Status::not_acceptable(&self.media_types()))
    }

    /// Checks the header like the router of the reference server. An exact media type or `*/*` matches;
    /// parameters are ignored (docs/api/encodings.md#accept).
    fn check_route(self, header: &str, offer: Offer) -> Result<(), Status> {
        // All custom types have one route, which accepts any header.
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

    /// Returns the first encoding that matches the media type or range of the clause, with the media type of
    /// that encoding.
    fn encoding(self, clause: &Clause<'_>, offer: Offer) -> Option<(Encoding, &'static str)> {
        match (clause.kind, clause.sub) {
            ("application", "json" | "*") | ("*", "*") => Some((Encoding::Json, JSON)),
            ("application", "yaml") => Some((Encoding::Yaml, YAML)),
            ("application", "cbor") if self.cbor => Some((Encoding::Cbor, CBOR)),
            ("application", "cbor-seq") if self.cbor && offer == Offer::Watch => Some((Encoding::Cbor, CBOR)),
            given => {
                let mut types = self.naming.understood().map(|words| words.protobuf_media_type);
                let media_type = types.find(|protobuf| protobuf.split_once('/') == Some(given))?;
                Some((Encoding::Protobuf, media_type))
            }
        }
    }

    /// Returns the encoding of the request body. A missing `Content-Type` means JSON
    /// (docs/api/encodings.md#content-type).
    pub fn input(self, headers: &HeaderMap) -> Result<Input, Status> {
        let given = match content_type(headers) {
            None => return Ok(Input::Json),
            // A header with parameters but without a media type is invalid. An empty header counts as a
            // missing header.
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

/// Returns whether the response is indented. The query, the clause, or the user agent of an interactive tool
/// requests the indentation.
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

    /// Returns the requested transform and its naming profile; `None` if this endpoint cannot produce the
    /// transform.
    fn transform(&self, naming: &'static Naming, offer: Offer) -> Option<(Transform, &'static Naming)> {
        let given = |name: &str| self.parameter(name).filter(|value| !value.is_empty());
        if given("stream").is_some_and(|stream| stream != "watch") {
            return None;
        }
        if given("sv").is_some_and(|version| offer == Offer::Plain || version != META_VERSION) {
            return None;
        }
        let Some(target) = self.parameter("as") else {
            // A clause with a group or a version but without a kind requests an unknown transform.
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

/// Returns the clauses of a header in order of preference.
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
    /// JSON text, the default.
    Json,
    /// YAML text, converted to JSON.
    Yaml,
    /// A protobuf message in an envelope.
    Protobuf,
    /// A CBOR item (RFC 8949).
    Cbor,
}

/// Returns the media type of the request body without parameters.
pub fn content_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().unwrap_or("invalid");
    Some(value.split(';').next().unwrap_or_default().trim())
}

#[cfg(test)]
#[path = "negotiate_test.rs"]
mod tests;
