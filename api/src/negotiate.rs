//! Content negotiation: `Accept` to an output form, `Content-Type` to an input form (semantics §9.1, §9.2).
//!
//! Clauses are tried by weight, then specific before wildcard, then in the order of the header. A weight of
//! zero does not exclude, as the reference server does not let it.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use crate::naming::{CLUSTER, Naming};
use crate::query::Query;
use crate::status::Status;
use crate::table::MetaVersion;

/// Media type of JSON.
pub const JSON: &str = "application/json";

/// Media type of YAML.
pub const YAML: &str = "application/yaml";

/// What the response body shows of an object.
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

/// In which encoding a response is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Encoding {
    /// JSON text.
    #[default]
    Json,
    /// Enveloped protobuf messages.
    Protobuf,
}

/// How the response is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Output {
    /// In which encoding.
    pub encoding: Encoding,
    /// The encoding's media type.
    pub media_type: &'static str,
    /// What is shown.
    pub transform: Transform,
    /// Version of the meta group in which tables and metadata-only objects are answered.
    pub meta_version: MetaVersion,
    /// The vocabulary in which those were asked for, and whose meta group they are answered in.
    pub words: &'static Naming,
    /// Indented.
    pub pretty: bool,
}

impl Output {
    /// What errors are written as when nothing that the client accepts can be served (semantics §1.5).
    pub const FALLBACK: Output = Output { pretty: true, ..Output::JSON };

    /// Plain JSON.
    pub const JSON: Output = Output {
        encoding: Encoding::Json,
        media_type: JSON,
        transform: Transform::None,
        meta_version: MetaVersion::V1,
        words: &CLUSTER, // of no use to what is not transformed
        pretty: false,
    };
}

/// What an endpoint can answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Offer {
    /// An object or a list of a resource, in every transform.
    Resource,
    /// A Status or another plain document.
    Plain,
}

/// One clause of an `Accept` header.
#[derive(Debug)]
struct Clause<'h> {
    kind: &'h str,
    sub: &'h str,
    weight: f32,
    parameters: Vec<(&'h str, &'h str)>,
}

/// Picks the output form, or 406 (semantics §9.1).
pub fn output(
    headers: &HeaderMap,
    query: &Query,
    naming: &'static Naming,
    offer: Offer,
) -> Result<Output, Status> {
    let pretty_by_agent = || {
        let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
    };
    let pretty_by_query = query.pretty();
    let mut header = String::new();
    for value in headers.get_all(ACCEPT) {
        if !header.is_empty() {
            header.push(',');
        }
        header.push_str(value.to_str().unwrap_or_default());
    }
    if header.trim().is_empty() {
        header.push_str("*/*");
    }
    for clause in clauses(&header) {
        let Some((encoding, media_type)) = clause.encoding(naming) else { continue };
        let Some((transform, words)) = clause.transform(naming, offer) else { continue };
        // Tables have no protobuf form (semantics §18).
        if encoding == Encoding::Json || transform != Transform::Table {
            let pretty_by_clause = clause.parameter("pretty") == Some("1");
            let pretty = pretty_by_query.unwrap_or_else(|| pretty_by_clause || pretty_by_agent());
            let meta_version = clause.parameter("v").and_then(MetaVersion::by_name).unwrap_or_default();
            let pretty = pretty || pretty_by_clause;
            return Ok(Output { encoding, media_type, transform, meta_version, words, pretty });
        }
    }
    Err(Status::not_acceptable(&[JSON, naming.protobuf_media_type]))
}

impl<'h> Clause<'h> {
    fn parameter(&self, name: &str) -> Option<&'h str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The first encoding that the media type or range covers, with its own media type.
    fn encoding(&self, naming: &'static Naming) -> Option<(Encoding, &'static str)> {
        match (self.kind, self.sub) {
            ("application", "json" | "*") | ("*", "*") => Some((Encoding::Json, JSON)),
            given => {
                let mut types = naming.understood().map(|words| words.protobuf_media_type);
                let asked = types.find(|protobuf| protobuf.split_once('/') == Some(given))?;
                Some((Encoding::Protobuf, asked))
            }
        }
    }

    /// The transform asked for and in whose words, or `None` when the clause asks for something this endpoint
    /// has not.
    fn transform(&self, naming: &'static Naming, offer: Offer) -> Option<(Transform, &'static Naming)> {
        if self.parameter("stream").is_some_and(|stream| stream != "watch") {
            return None;
        }
        let Some(target) = self.parameter("as") else { return Some((Transform::None, naming)) };
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

/// The clauses in the order in which they are tried.
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

/// How a request body is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Input {
    /// JSON text.
    Json,
    /// YAML text.
    Yaml,
    /// An enveloped protobuf message.
    Protobuf,
}

/// The form of a request body; a missing `Content-Type` means JSON (semantics §9.2).
pub fn input(headers: &HeaderMap, naming: &'static Naming) -> Result<Input, Status> {
    let is_protobuf =
        |given: &str| naming.understood().any(|words| given.eq_ignore_ascii_case(words.protobuf_media_type));
    match content_type(headers) {
        Some("" | JSON) | None => Ok(Input::Json),
        Some(given) if is_protobuf(given) => Ok(Input::Protobuf),
        Some(given) if given.eq_ignore_ascii_case(JSON) => Ok(Input::Json),
        Some(given) if given.eq_ignore_ascii_case(YAML) => Ok(Input::Yaml),
        Some(_) => Err(Status::unsupported_media_type(&[JSON, YAML, naming.protobuf_media_type])),
    }
}

/// The media type of the request body without parameters.
pub fn content_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().unwrap_or("invalid");
    Some(value.split(';').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::KUBERNETES;

    fn pick(accept: &str) -> Result<Output, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        output(&headers, &Query::parse(""), &KUBERNETES, Offer::Resource)
    }

    #[test]
    fn accept_is_read_as_semantics_9_1_says() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, transform) in [
            ("", Transform::None),
            ("*/*", Transform::None),
            ("*", Transform::None),
            ("application/*", Transform::None),
            ("application/json; charset=utf-8", Transform::None),
            (table, Transform::Table),
            (&format!("{table},application/json"), Transform::Table),
            (&format!("application/json,{table}"), Transform::None),
            (&format!("application/json;q=0.5,{table}"), Transform::Table),
            ("application/json;as=Table;v=v1;g=other,application/json", Transform::None),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Transform::None),
            ("application/vnd.kubernetes.protobuf,application/json", Transform::None),
            ("*/*;q=0", Transform::None),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                Transform::PartialObjectList,
            ),
            ("application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io", Transform::PartialObject),
        ] {
            assert_eq!(pick(accept).unwrap().transform, transform, "{accept}");
        }
        for accept in [
            "text/html",
            "application/vnd.cluster.protobuf",
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=X;v=v1;g=meta.k8s.io",
        ] {
            let refused = pick(accept).unwrap_err();
            assert_eq!(refused.code.as_u16(), 406, "{accept}");
            assert!(refused.message.ends_with("application/json, application/vnd.kubernetes.protobuf"));
        }
    }

    #[test]
    fn encodings_are_picked_by_clause() {
        use Encoding::{Json, Protobuf};
        let protobuf = "application/vnd.kubernetes.protobuf";
        let partial = "as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        for (accept, encoding, transform) in [
            (protobuf, Protobuf, Transform::None),
            (&format!("{protobuf},application/json"), Protobuf, Transform::None),
            (&format!("application/json,{protobuf}"), Json, Transform::None),
            (&format!("application/json;q=0.1,{protobuf};q=0.2"), Protobuf, Transform::None),
            (&format!("*/*,{protobuf};q=0.9"), Json, Transform::None),
            (&format!("*/*,{protobuf}"), Protobuf, Transform::None), // specific before wildcard
            (&format!("{protobuf};stream=watch"), Protobuf, Transform::None),
            (&format!("{protobuf};stream=other,application/json"), Json, Transform::None),
            (&format!("{protobuf};{partial}"), Protobuf, Transform::PartialObject),
            (&format!("{protobuf};as=Table;v=v1;g=meta.k8s.io,application/json"), Json, Transform::None),
            ("application/*", Json, Transform::None),
        ] {
            let output = pick(accept).unwrap();
            assert_eq!((output.encoding, output.transform), (encoding, transform), "{accept}");
            let media_type = if encoding == Json { JSON } else { protobuf };
            assert_eq!(output.media_type, media_type, "{accept}");
        }
    }

    #[test]
    fn the_default_vocabulary_understands_upstreams_words_and_answers_in_them() {
        let ask = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            output(&headers, &Query::parse(""), &CLUSTER, Offer::Resource).unwrap()
        };
        for words in [&CLUSTER, &KUBERNETES] {
            let table = ask(&format!("application/json;as=Table;v=v1;g={}", words.meta_group()));
            assert_eq!((table.transform, table.words), (Transform::Table, words));
            let plain = ask(words.protobuf_media_type);
            assert_eq!((plain.encoding, plain.media_type), (Encoding::Protobuf, words.protobuf_media_type));
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, words.protobuf_media_type.parse().unwrap());
            assert_eq!(input(&headers, &CLUSTER).unwrap(), Input::Protobuf);
        }
    }

    #[test]
    fn pretty_is_asked_for_in_three_ways() {
        for (accept, agent, query, want) in [
            ("*/*", "curl/8", "", true),
            ("*/*", "curl/8", "pretty=0", false),
            ("*/*", "client", "pretty=true", true),
            ("*/*", "client", "", false),
            ("application/json;pretty=1", "client", "", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            headers.insert(USER_AGENT, agent.parse().unwrap());
            let got = output(&headers, &Query::parse(query), &KUBERNETES, Offer::Resource).unwrap();
            assert_eq!(got.pretty, want, "{accept} {agent} {query}");
        }
    }

    #[test]
    fn bodies_are_json_yaml_or_protobuf_or_415() {
        for (given, want) in [
            ("application/json", Some(Input::Json)),
            ("application/json;charset=utf-8", Some(Input::Json)),
            ("Application/JSON", Some(Input::Json)),
            ("application/yaml", Some(Input::Yaml)),
            ("application/yaml; charset=utf-8", Some(Input::Yaml)),
            ("application/x-yaml", None),
            ("application/vnd.kubernetes.protobuf", Some(Input::Protobuf)),
            ("application/vnd.kubernetes.protobuf;stream=watch", Some(Input::Protobuf)),
            ("application/vnd.cluster.protobuf", None), // the other vocabulary's
            ("text/plain", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, given.parse().unwrap());
            match (input(&headers, &KUBERNETES), want) {
                (got, Some(want)) => assert_eq!(got.unwrap(), want, "{given}"),
                (got, None) => assert!(
                    got.unwrap_err()
                        .message
                        .ends_with("application/json, application/yaml, application/vnd.kubernetes.protobuf"),
                    "{given}"
                ),
            }
        }
        assert_eq!(input(&HeaderMap::new(), &KUBERNETES).unwrap(), Input::Json);
    }
}
