//! Tests, without a webhook, of conversion reviews and of the metadata that conversion preserves.

use std::sync::Arc;

use super::is_current;
use super::pending::Conversions;
use super::restore;
use super::review::{ReviewParameters, object};
use crate::custom::definition::Definition;
use crate::custom::serving::Makers;
use crate::store;
use types::schema::registry::Resource;
use types::schema::share::Pool;
use values::json::{self, Object, Value};
use values::naming::KUBERNETES;
use values::testing::{object as tree, object_text};

const V1: ReviewParameters<'_> = ReviewParameters { group: "apiextensions.k8s.io", version: "v1", uid: "u" };
const BETA: ReviewParameters<'_> = ReviewParameters { version: "v1beta1", ..V1 };

/// Parses `response` as the response to a review that requests a version.
fn answer(conversion: ReviewParameters<'_>, response: &str) -> Result<usize, String> {
    let (group, version) = (conversion.group, conversion.version);
    let text =
        format!(r#"{{"kind":"ConversionReview","apiVersion":"{group}/{version}","response":{response}}}"#);
    conversion.answer(text.as_bytes()).map(|objects| objects.len())
}

/// Returns the resources of the served versions of a definition.
fn served_resources(object: &Object) -> Vec<Arc<Resource>> {
    let makers = Makers::new(&Definition::read(object), object).unwrap();
    makers.into_served(&KUBERNETES, &mut Pool::default())
}

#[test]
fn a_conversion_request_is_a_review_with_an_empty_response() {
    let objects = [b"{\"a\":1}".to_vec(), b"{}".to_vec()];
    let body = V1.request("g.example/v2", objects.into_iter());
    let want = concat!(
        r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","#,
        r#""desiredAPIVersion":"g.example/v2","objects":[{"a":1},{}]},"#,
        r#""response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}"#
    );
    assert_eq!(String::from_utf8(body.to_vec()).unwrap(), want);
}

#[test]
fn a_conversion_response_must_report_success_and_the_uid_of_the_request() {
    for (conversion, response, want) in [
        (V1, r#"{"uid":"u","result":{"status":"Success"},"convertedObjects":[{},{}]}"#, Ok(2)),
        (V1, r#"{"uid":"u","result":{"status":"Success"}}"#, Ok(0)),
        (
            V1,
            r#"{"uid":"u","result":{"status":"Success"},"convertedObjects":{"a":1}}"#,
            Err(
                "json: cannot unmarshal object into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
            ),
        ),
        (BETA, r#"{"result":{"status":"Success"},"convertedObjects":[{}]}"#, Ok(1)),
        (V1, "null", Err("no response provided")),
        (
            V1,
            "[]",
            Err(
                "json: cannot unmarshal array into Go struct field ConversionReview.response of type v1.ConversionResponse",
            ),
        ),
        (V1, r#"{"uid":"x","result":{"status":"Success"}}"#, Err(r#"expected response.uid="u", got "x""#)),
        (V1, r#"{"uid":"u"}"#, Err("response.result.status was '', not 'Success'")),
        (V1, r#"{"uid":"u","result":{"status":"Failure","message":"no"}}"#, Err("no")),
    ] {
        assert_eq!(answer(conversion, response), want.map_err(str::to_owned), "{response}");
    }
}

#[test]
fn a_converted_object_must_have_a_kind() {
    let text = r#"{"response":{"convertedObjects":[{"kind":"A"}, {"b": 1},null,7,{"kind":"A","apiVersion":"a/b/c"},"x"]}}"#;
    let values = json::parse(text.as_bytes()).unwrap();
    let values = values.at(&["response", "convertedObjects"]).and_then(Value::as_array).unwrap();
    for (at, want) in [
        (0, Ok(())),
        (1, Err(r#"Object 'Kind' is missing in '{"b": 1}'"#)),
        (2, Err("unexpected end of JSON input")),
        (3, Err("json: cannot unmarshal number into Go value of type map[string]interface {}")),
        (4, Err(r#"Object 'Kind' is missing in '{"kind":"A","apiVersion":"a/b/c"}'"#)),
        (5, Err("json: cannot unmarshal string into Go value of type map[string]interface {}")),
    ] {
        let got = object(text.as_bytes(), at, values[at].clone()).map(drop);
        assert_eq!(got, want.map_err(str::to_owned), "{at}");
    }
}

/// Returns the metadata of the object after a webhook answered with `converted`.
fn restored_metadata(converted: &str) -> Result<String, String> {
    let original =
        tree(r#"{"kind":"A","metadata":{"name":"n","uid":"u","finalizers":["f"],"labels":{"a":"1"}}}"#);
    let kept = restore::metadata(tree(converted), original)?;
    Ok(object_text(kept.get("metadata").and_then(Value::as_object).unwrap()))
}

#[test]
fn a_conversion_webhook_can_change_only_labels_and_annotations_of_the_metadata() {
    let name = r#""name":"n","uid":"u","finalizers":["f"]"#;
    for (converted, want) in [
        (r#"{"metadata":{"name":"x","generation":7}}"#, Ok(format!("{{{name}}}"))),
        (
            r#"{"metadata":{"labels":{"a":"2"},"annotations":{"b":"3"}}}"#,
            Ok(format!(r#"{{{name},"labels":{{"a":"2"}},"annotations":{{"b":"3"}}}}"#)),
        ),
        (r#"{"metadata":{"labels":null}}"#, Ok(format!("{{{name}}}"))),
        ("{}", Err("missing metadata in converted object")),
        (r#"{"metadata":[]}"#, Err("invalid metadata of type []interface {} in converted object")),
        (r#"{"metadata":{"labels":7}}"#, Err("invalid metadata.labels of type int64 in converted object")),
        (
            r#"{"metadata":{"labels":{"a":1.5}}}"#,
            Err("metadata.labels[a] must be a string, but is float64 in converted object"),
        ),
        (
            r#"{"metadata":{"annotations":{"-":"x"}}}"#,
            Err("metadata.annotation: Invalid value: \"-\": name part must consist of"),
        ),
    ] {
        match (restored_metadata(converted), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{converted}"),
            (Err(got), Err(want)) => assert!(got.starts_with(want), "{converted}: {got}"),
            (got, want) => panic!("{converted}: {got:?}, not {want:?}"),
        }
    }
}

#[test]
fn a_converted_object_must_keep_type_and_identity_of_the_original() {
    let original = tree(r#"{"kind":"A","metadata":{"name":"n","namespace":"s","uid":"u"}}"#);
    let check = |text: &str| {
        let converted = tree(text);
        restore::check_type(&converted, "g/v2", original.get("kind"))?;
        restore::check_identity(&converted, &original)
    };
    for (text, want) in [
        (r#"{"kind":"A","apiVersion":"g/v2","metadata":{"name":"n","namespace":"s","uid":"u"}}"#, ""),
        (r#"{"kind":"A","apiVersion":"g/v1"}"#, "invalid groupVersion (expected g/v2, received g/v1)"),
        (r#"{"kind":"B","apiVersion":"g/v2"}"#, "invalid kind (expected A, received B)"),
        (r#"{"kind":"A","apiVersion":"g/v2"}"#, "must have the same name: n != "),
        (
            r#"{"kind":"A","apiVersion":"g/v2","metadata":{"name":"n","namespace":"s"}}"#,
            "must have the same UID: u != ",
        ),
    ] {
        assert_eq!(check(text).err().unwrap_or_default(), want, "{text}");
    }
}

/// A definition with two versions. The first version is the storage version.
const DEFINITION: &str = r#"{"spec":{"group":"g.example","scope":"Cluster",
    "names":{"plural":"things","kind":"Thing","listKind":"ThingList","singular":"thing"},"versions":[
    {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
        "properties":{"a":{"type":"string"},"b":{"type":"string"}}}}},
    {"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object",
        "properties":{"a":{"type":"string"}}}}}]},
    "status":{"acceptedNames":{"plural":"things","kind":"Thing","listKind":"ThingList","singular":"thing"}}}"#;

const THING: &str = r#"{"kind":"Thing","apiVersion":"g.example/v1","metadata":{"name":"n"},"a":"1","b":"2"}"#;

#[test]
fn a_stored_record_is_current_only_for_the_version_that_wrote_it() {
    let object = tree(DEFINITION);
    let resources = served_resources(&object);
    let payload = store::payload(&resources[0], &tree(THING));
    assert!(
        is_current(&resources[0], &payload.attributes) && !is_current(&resources[1], &payload.attributes)
    );
}

#[test]
fn conversions_without_a_webhook_are_made_immediately() {
    let object = tree(DEFINITION);
    let resources = served_resources(&object);
    let versions = resources[0].versions.as_ref().unwrap();
    let conversions = Conversions::default();
    let converted = conversions.get(versions, tree(THING), "g.example/v2").unwrap();
    let want = r#"{"kind":"Thing","apiVersion":"g.example/v2","metadata":{"name":"n"},"a":"1"}"#;
    assert_eq!((object_text(&converted), conversions.has_requests()), (want.to_owned(), false));
    assert_eq!(conversions.get(versions, tree(THING), "g.example/v9"), None);
}

#[test]
fn conversions_with_a_webhook_are_wanted_until_their_results_are_learned() {
    let webhook = r#""scope":"Cluster","conversion":{"strategy":"Webhook","webhook":{"clientConfig":
        {"url":"https://a.example"},"conversionReviewVersions":["v1"]}}"#;
    let object = tree(&DEFINITION.replace(r#""scope":"Cluster""#, webhook));
    let resources = served_resources(&object);
    let versions = resources[0].versions.as_ref().unwrap();
    let conversions = Conversions::default();
    for _ in 0..2 {
        assert_eq!(conversions.get(versions, tree(THING), "g.example/v2"), None);
    }
    let requests = conversions.take_requests();
    assert_eq!((requests.len(), conversions.has_requests()), (1, false));
    conversions.learn(requests[0].clone(), Object::new());
    assert_eq!(conversions.get(versions, tree(THING), "g.example/v2"), Some(Object::new()));
}

#[test]
fn members_are_sorted_at_every_depth() {
    let mut value = json::parse(br#"{"b":[{"d":1,"c":2}],"a":3}"#).unwrap();
    value.sort_names();
    let mut text = Vec::new();
    json::write(&value, &mut text);
    assert_eq!(text, br#"{"a":3,"b":[{"c":2,"d":1}]}"#);
}
