//! Content negotiation of discovery documents, including the aggregated form
//! (docs/api/discovery.md#aggregated-discovery, docs/api/encodings.md#accept).
//!
//! Clauses are tried in the order of descending `q`. Clauses with equal `q` are tried with exact media types
//! before wildcards, and otherwise in header order. `q=0` does not exclude a media type. A clause requests
//! the aggregated form by three parameters in any order. For most requests, the router checks the header
//! first; it accepts only exact media types and `*/*`. The negotiation after the router also accepts
//! `application/*` and `*`.

use http::HeaderMap;
use http::header::ACCEPT;

use values::naming::Naming;

/// Group stem of the aggregated form.
pub(super) const AGGREGATED_GROUP: &str = "apidiscovery";
/// Version of the aggregated form.
pub(super) const AGGREGATED_VERSION: &str = "v2";
/// Kind of the aggregated form.
pub(super) const AGGREGATED_KIND: &str = "APIGroupDiscoveryList";

/// Profile by which a client requests only the types of this server, if the server also has the types of its
/// peers.
const LOCAL_PROFILE: &str = "nopeer";

/// The encoding of a document.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiscoveryEncoding {
    /// JSON, the default encoding of documents.
    Json,
    /// YAML, made from the JSON document.
    Yaml,
    /// Protobuf in its envelope, under this media type.
    Protobuf(&'static str),
}

impl DiscoveryEncoding {
    /// Returns the media type of the encoding.
    pub fn media_type(self) -> &'static str {
        match self {
            DiscoveryEncoding::Json => "application/json",
            DiscoveryEncoding::Yaml => "application/yaml",
            DiscoveryEncoding::Protobuf(media_type) => media_type,
        }
    }
}

/// The form of a document that the client requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum DiscoveryForm {
    /// The plain document.
    Plain,
    /// The aggregated document of all groups, versions and resources, including the groups of peers.
    Aggregated,
    /// The aggregated document of this server alone.
    Local,
}

/// Maximum number of clauses that are evaluated. No real client sends more clauses, and sorting clauses costs time.
const CLAUSES_MAX: usize = 64;

/// A clause of an `Accept` header.
pub struct Clause<'a> {
    /// `type/subtype` as written in the header.
    pub media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f64,
}

/// Returns the form and encoding that `headers` request; `None` if the server has none of the accepted forms
/// (406). A clause for the aggregated form matches nothing if the document has no such form.
pub(super) fn form(
    headers: &HeaderMap,
    naming: &'static Naming,
    has_aggregated: bool,
) -> Option<(DiscoveryForm, DiscoveryEncoding)> {
    let clauses = Clause::sorted(headers);
    if clauses.is_empty() {
        return Some((DiscoveryForm::Plain, DiscoveryEncoding::Json));
    }
    clauses
        .iter()
        .filter_map(|clause| clause.form(naming))
        .find(|(form, _)| has_aggregated || *form == DiscoveryForm::Plain)
}

/// Returns whether the header contains a media type that the document has, regardless of the parameters of
/// the media type. The router uses this check.
pub(super) fn names_one(headers: &HeaderMap, naming: &'static Naming) -> bool {
    let clauses = Clause::sorted(headers);
    clauses.is_empty()
        || clauses.iter().any(|clause| clause.media_type == "*/*" || clause.exact(naming).is_some())
}

impl<'a> Clause<'a> {
    /// Returns the clauses of all `Accept` headers in the order in which they are tried.
    pub fn sorted(headers: &'a HeaderMap) -> Vec<Self> {
        let mut clauses = Vec::new();
        for value in headers.get_all(ACCEPT) {
            let text = value.to_str().unwrap_or("");
            clauses.extend(text.split(',').filter_map(Clause::parse).take(CLAUSES_MAX - clauses.len()));
        }
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(a.wildcards().cmp(&b.wildcards())));
        clauses
    }

    fn parse(text: &'a str) -> Option<Clause<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().filter(|media_type| !media_type.is_empty())?;
        let parameters: Vec<(&str, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        // A malformed quality counts as 0. NaN also counts as 0, because NaN cannot be sorted.
        let quality = quality.map_or(1.0, |(_, q)| q.parse().unwrap_or(0.0));
        let quality = if f64::is_nan(quality) { 0.0 } else { quality };
        Some(Clause { media_type, parameters, quality })
    }

    fn wildcards(&self) -> u8 {
        match self.media_type {
            "*/*" | "*" => 2,
            "application/*" => 1,
            _ => 0,
        }
    }

    fn parameter(&self, name: &str) -> &'a str {
        self.parameters.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Returns the encoding whose media type the clause names exactly.
    fn exact(&self, naming: &'static Naming) -> Option<DiscoveryEncoding> {
        match self.media_type {
            "application/json" => Some(DiscoveryEncoding::Json),
            "application/yaml" => Some(DiscoveryEncoding::Yaml),
            other => {
                let mut types = naming.understood().map(|words| words.protobuf_media_type);
                types.find(|media_type| *media_type == other).map(DiscoveryEncoding::Protobuf)
            }
        }
    }

    fn form(&self, naming: &'static Naming) -> Option<(DiscoveryForm, DiscoveryEncoding)> {
        let encoding = match self.media_type {
            "*/*" | "*" | "application/*" => DiscoveryEncoding::Json,
            _ => self.exact(naming)?,
        };
        let form = match (self.parameter("g"), self.parameter("v"), self.parameter("as")) {
            ("", "", "") => Some(DiscoveryForm::Plain),
            (group, AGGREGATED_VERSION, AGGREGATED_KIND)
                if group.strip_suffix(naming.group_suffix) == Some(AGGREGATED_GROUP) =>
            {
                let is_local = self.parameter("profile") == LOCAL_PROFILE;
                Some(if is_local { DiscoveryForm::Local } else { DiscoveryForm::Aggregated })
            }
            _ => None,
        };
        form.map(|form| (form, encoding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use values::naming::{CLUSTER, KUBERNETES};

    #[test]
    fn the_accept_header_selects_the_discovery_format() {
        let aggregated = |naming: &Naming, version| {
            let group = naming.group(AGGREGATED_GROUP, true);
            format!("application/json;g={group};v={version};as=APIGroupDiscoveryList")
        };
        let only_old = &*aggregated(&KUBERNETES, "v2beta1");
        let old = &*format!("{only_old},application/json");
        let kubectl = &*format!("{},{old}", aggregated(&KUBERNETES, "v2"));
        let spaced = aggregated(&CLUSTER, "v2").replace(';', "; ");
        let other = CLUSTER.protobuf_media_type;
        for (accept, naming, want) in [
            ("", &KUBERNETES, Some(DiscoveryForm::Plain)),
            ("*/*", &KUBERNETES, Some(DiscoveryForm::Plain)),
            ("application/json", &KUBERNETES, Some(DiscoveryForm::Plain)),
            (kubectl, &KUBERNETES, Some(DiscoveryForm::Aggregated)),
            (kubectl, &CLUSTER, Some(DiscoveryForm::Plain)),
            (old, &KUBERNETES, Some(DiscoveryForm::Plain)),
            (only_old, &KUBERNETES, None),
            (&format!("{spaced};profile=nopeer"), &CLUSTER, Some(DiscoveryForm::Local)),
            ("text/html", &CLUSTER, None),
            ("application/yaml, text/html", &CLUSTER, Some(DiscoveryForm::Plain)),
            ("application/*", &CLUSTER, Some(DiscoveryForm::Plain)),
            ("text/*", &CLUSTER, None),
            ("Application/JSON", &CLUSTER, None),
            (&format!("text/html, {other};q=0.9, */*;q=0.1"), &CLUSTER, Some(DiscoveryForm::Plain)),
            ("application/json;q=oops", &CLUSTER, Some(DiscoveryForm::Plain)),
            (
                &format!("{};q=0.5,application/json", aggregated(&CLUSTER, "v2")),
                &CLUSTER,
                Some(DiscoveryForm::Plain),
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
            assert_eq!(form(&headers, naming, true).map(|(form, _)| form), want, "{accept}");
        }
    }

    #[test]
    fn the_discovery_router_accepts_exact_media_types_only() {
        for (accept, want) in [
            ("", true),
            ("*/*", true),
            ("application/json;as=Table", true),
            ("text/html, application/yaml;q=0", true),
            ("*", false),
            ("application/*", false),
            ("text/html", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(accept).unwrap());
            assert_eq!(names_one(&headers, &KUBERNETES), want, "{accept}");
        }
    }
}
