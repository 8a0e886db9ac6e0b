//! Tests of the negotiation tables in docs/api/encodings.md#accept and #content-type.

use super::*;
use values::naming::{CLUSTER, KUBERNETES};
use values::status::StatusReason;

const FORMATS: Formats = Formats { naming: &KUBERNETES, cbor: false, objects: Objects::Typed };
const WITH_CBOR: Formats = Formats { naming: &KUBERNETES, cbor: true, objects: Objects::Typed };
const PROTOBUF: &str = KUBERNETES.protobuf_media_type;
/// A template; the test fills in the suffix of the naming profile.
const META: &str = "v=v1;g=meta{suffix}";

fn negotiate(formats: Formats, accept: &str, offer: Offer) -> Result<Output, Status> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, KUBERNETES.fill(accept).parse().unwrap());
    formats.output(&headers, &Query::parse(""), offer)
}

/// Returns the encoding and the transform, or the message of the 406.
fn outcome_text(outcome: Result<Output, Status>) -> String {
    match outcome {
        Ok(output) => {
            let transform = match output.transform {
                Transform::None => "",
                Transform::Table => " table",
                Transform::PartialObject => " metadata",
                Transform::PartialObjectList => " metadata list",
            };
            format!("{:?}{transform}", output.encoding).to_lowercase()
        }
        Err(status) => {
            assert_eq!((status.code.as_u16(), status.reason), (406, StatusReason::NotAcceptable));
            status.message.clone()
        }
    }
}

#[test]
fn accept_headers_are_negotiated_as_documented() {
    let accepted = format!(
        "only the following media types are accepted: application/json, application/yaml, {PROTOBUF}"
    );
    let streams = format!(
        "only the following media types are accepted: application/json;stream=watch, {PROTOBUF};stream=watch"
    );
    let routes = format!(
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, {PROTOBUF}"
    );
    let list_routes = format!("{routes}, application/json;stream=watch, {PROTOBUF};stream=watch");
    let (partial, partial_list) = ("as=PartialObjectMetadata", "as=PartialObjectMetadataList");
    use Offer::{List, Object, Plain, Watch};
    for (section, offer, accept, want) in [
        ("accept", Object, "", "json"),
        ("accept", Object, "*/*", "json"),
        ("accept", Object, "application/json", "json"),
        ("accept", Object, "application/json; charset=utf-8", "json"),
        ("accept", Object, "application/yaml", "yaml"),
        ("accept", Object, PROTOBUF, "protobuf"),
        ("accept order", Object, &format!("{PROTOBUF},application/json"), "protobuf"),
        ("accept order", Object, &format!("application/json,{PROTOBUF}"), "json"),
        ("accept q", Object, &format!("application/json;q=0.1,{PROTOBUF};q=0.2"), "protobuf"),
        ("accept q", Object, &format!("*/*,{PROTOBUF};q=0.9"), "json"),
        ("accept q", Object, "application/yaml;q=0.5,application/json;q=bad", "yaml"),
        ("accept q=0", Object, "*/*;q=0", "json"),
        ("accept q=0", Object, "text/html,application/yaml;q=0", "yaml"),
        ("accept specific first", Object, "*/*,application/yaml", "yaml"),
        ("accept specific first", Object, &format!("application/*,{PROTOBUF}"), "protobuf"),
        ("accept range", Object, "application/*,*/*;q=0.1", "json"),
        ("accept as", Object, &format!("application/json;as=Table;{META}"), "json table"),
        ("accept as", Object, &format!("application/yaml;as=Table;{META}"), "yaml table"),
        ("accept as", Object, "application/json;as=Table;v=v1beta1;g=meta{suffix}", "json table"),
        ("accept as", Object, &format!("application/json;{partial};{META}"), "json metadata"),
        ("accept as", Object, &format!("{PROTOBUF};{partial};{META}"), "protobuf metadata"),
        ("accept as", List, &format!("{PROTOBUF};{partial_list};{META}"), "protobuf metadata list"),
        ("accept as", List, &format!("application/yaml;{partial_list};{META}"), "yaml metadata list"),
        (
            "accept fallback",
            Object,
            &format!("application/json;as=Table;{META},application/json"),
            "json table",
        ),
        ("accept fallback", Object, "application/json;as=Table;v=v1;g=other,application/json", "json"),
        ("accept server version", Object, "application/json;sv=v1;stream=", "json"),
        ("accept server version", Object, "application/json;sv=v2,application/yaml", "yaml"),
        ("accept server version", Plain, "application/json;sv=v1,application/yaml", "yaml"),
        ("accept fallback", Object, "application/json;as=Table;v=v2;g=meta{suffix},application/json", "json"),
        ("accept fallback", Object, &format!("{PROTOBUF};as=Table;{META},application/json"), "json"),
        ("accept unknown as", Object, &format!("application/json;as=Chart;{META}"), &accepted),
        ("accept table in protobuf", Object, &format!("{PROTOBUF};as=Table;{META}"), &accepted),
        ("accept stream", Object, &format!("{PROTOBUF};stream=watch"), "protobuf"),
        ("accept stream", Object, &format!("{PROTOBUF};stream=other,application/json"), "json"),
        ("accept stream", Object, "application/json;stream=other", &accepted),
        ("accept stream", Object, "application/yaml;stream=watch", &accepted),
        ("accept stream", Object, "application/yaml;stream=", "yaml"),
        ("accept no as", Object, "application/json;v=v1", &accepted),
        ("accept no as", Object, "application/json;g=meta.k8s.io", &accepted),
        ("accept no as", Object, "application/json;v=", &accepted),
        ("accept no as", Plain, "application/json;v=v1,application/yaml", "yaml"),
        ("accept", Object, "application/*", &routes),
        ("accept", Object, "text/*", &routes),
        ("accept", Object, "text/html", &routes),
        ("accept", Object, "Application/JSON", &routes),
        ("accept", Object, "*", &routes),
        ("accept", Object, CLUSTER.protobuf_media_type, &routes), // of the other naming profile
        ("accept", List, "text/html", &list_routes),
        ("accept", Watch, "text/html", &list_routes),
        ("accept cbor off", Object, "application/cbor", &routes),
        ("accept cbor off", Object, "application/cbor,application/json", "json"),
        ("watch-transport", Watch, "application/json", "json"),
        ("watch-transport", Watch, "application/json;stream=watch", "json"),
        ("watch-transport", Watch, &format!("{PROTOBUF};stream=watch,application/json"), "protobuf"),
        ("watch-transport", Watch, &format!("application/json;as=Table;{META}"), "json table"),
        ("watch-transport", Watch, "application/yaml", &streams),
        ("watch-transport", Watch, "application/yaml,application/json", &streams),
        ("watch-transport", Watch, &format!("application/json,application/yaml;as=Table;{META}"), "json"),
        ("encoding-of-errors", Plain, "text/html,application/yaml;q=0.1", "yaml"),
        ("encoding-of-errors", Plain, &format!("application/json;as=Table;{META},application/json"), "json"),
        ("encoding-of-errors", Plain, &format!("application/json;as=Table;{META}"), &accepted),
        ("encoding-of-errors", Plain, "application/*", "json"),
    ] {
        assert_eq!(outcome_text(negotiate(FORMATS, accept, offer)), want, "{section} {offer:?} {accept}");
    }
}

#[test]
fn cbor_is_offered_only_with_its_feature_gate() {
    let accepted = format!(
        "only the following media types are accepted: application/json, application/yaml, {PROTOBUF}, application/cbor"
    );
    for (offer, accept, want) in [
        (Offer::Object, "application/cbor", "cbor"),
        (Offer::Object, "*/*", "json"),
        (Offer::Object, "application/cbor,application/json", "cbor"),
        (Offer::List, &format!("application/cbor;as=PartialObjectMetadataList;{META}"), "cbor metadata list"),
        (Offer::Object, &format!("application/cbor;as=Table;{META}"), &accepted),
        (Offer::Watch, "application/cbor-seq", "cbor"),
        (Offer::Watch, "application/cbor", "cbor"),
        (
            Offer::List,
            "application/cbor-seq",
            &format!(
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, {PROTOBUF}, application/cbor, application/json;stream=watch, {PROTOBUF};stream=watch, application/cbor;stream=watch"
            ),
        ),
    ] {
        assert_eq!(outcome_text(negotiate(WITH_CBOR, accept, offer)), want, "{offer:?} {accept}");
    }
}

#[test]
fn the_first_of_several_accept_headers_counts() {
    let mut headers = HeaderMap::new();
    headers.append(ACCEPT, "application/yaml".parse().unwrap());
    headers.append(ACCEPT, "application/json".parse().unwrap());
    let output = FORMATS.output(&headers, &Query::parse(""), Offer::Object).unwrap();
    assert_eq!((output.encoding, output.media_type), (Encoding::Yaml, YAML));
}

#[test]
fn the_cluster_profile_accepts_upstream_media_types_and_answers_with_them() {
    let formats = Formats { naming: &CLUSTER, cbor: false, objects: Objects::Typed };
    let output = |accept: &str| negotiate(formats, accept, Offer::Object).unwrap();
    for words in [&CLUSTER, &KUBERNETES] {
        let table = output(&format!("application/json;as=Table;v=v1;g={}", words.meta_group()));
        assert_eq!((table.transform, table.words), (Transform::Table, words));
        let plain = output(words.protobuf_media_type);
        assert_eq!((plain.encoding, plain.media_type), (Encoding::Protobuf, words.protobuf_media_type));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, words.protobuf_media_type.parse().unwrap());
        assert_eq!(formats.input(&headers).unwrap(), Input::Protobuf);
    }
}

#[test]
fn pretty_output_is_chosen_by_query_accept_parameter_or_user_agent() {
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
        let got = FORMATS.output(&headers, &Query::parse(query), Offer::Object).unwrap();
        assert_eq!(got.pretty, want, "{accept} {agent} {query}");
    }
}

#[test]
fn content_types_are_negotiated_as_documented() {
    use Input::{Cbor, Json, Protobuf, Yaml};
    for (formats, given, want) in [
        (FORMATS, "application/json", Some(Json)),
        (FORMATS, "application/json;charset=utf-8", Some(Json)),
        (FORMATS, "Application/JSON", Some(Json)),
        (FORMATS, "application/json;", Some(Json)),
        (FORMATS, "application/json; a*=b", Some(Json)),
        (FORMATS, "application/json;;", None),
        (FORMATS, "application/json; charset", None),
        (FORMATS, "application/json; a=b; a=c", None),
        (FORMATS, "", Some(Json)),
        (FORMATS, "application/yaml", Some(Yaml)),
        (FORMATS, "application/yaml; charset=utf-8", Some(Yaml)),
        (FORMATS, "application/x-yaml", None),
        (FORMATS, PROTOBUF, Some(Protobuf)),
        (FORMATS, &format!("{PROTOBUF};stream=watch"), Some(Protobuf)),
        (FORMATS, "application/vnd.cluster.protobuf", None), // of the other naming profile
        (FORMATS, "application/cbor", None),
        (WITH_CBOR, "application/cbor", Some(Cbor)),
        (WITH_CBOR, "application/cbor-seq", None),
        (FORMATS, "text/plain", None),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, given.parse().unwrap());
        match (formats.input(&headers), want) {
            (got, Some(want)) => assert_eq!(got.unwrap(), want, "{given}"),
            (got, None) => {
                let refused = got.unwrap_err();
                assert_eq!(refused.code.as_u16(), 415, "{given}");
                let start = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, ";
                assert!(refused.message.starts_with(start), "{}", refused.message);
            }
        }
    }
    assert_eq!(FORMATS.input(&HeaderMap::new()).unwrap(), Json);
}

#[test]
fn custom_types_have_no_protobuf_encoding_except_for_their_metadata() {
    let formats = FORMATS.with_objects(Objects::Custom);
    let accepted = format!(
        "only the following media types are accepted: application/json, application/yaml, {PROTOBUF}"
    );
    for (offer, accept, want) in [
        (Offer::Object, "*/*", "json"),
        (Offer::Object, PROTOBUF, &*accepted),
        (Offer::Object, &format!("{PROTOBUF},application/json"), "json"),
        (Offer::Object, &format!("{PROTOBUF};as=PartialObjectMetadata;{META}"), "protobuf metadata"),
        (Offer::List, &format!("application/json;as=Table;{META}"), "json table"),
        // The route accepts any header, so the clauses determine the result.
        (Offer::Object, "text/plain", &accepted),
    ] {
        assert_eq!(outcome_text(negotiate(formats, accept, offer)), want, "{offer:?} {accept}");
    }
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, PROTOBUF.parse().unwrap());
    let refused = formats.input(&headers).unwrap_err();
    assert_eq!(
        (refused.code.as_u16(), &*refused.message),
        (
            415,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml"
        )
    );
    assert_eq!(FORMATS.input(&headers).unwrap(), Input::Protobuf);
}
