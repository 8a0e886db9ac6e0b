//! Tests of schemas whose objects pass through decoding, pruning, defaulting and validation.

use std::sync::Arc;

use crate::custom::resource::object;
use crate::custom::schema::Schema;
use types::schema::conform::conform;
use types::schema::decode::{decode, decode_record};
use types::schema::defaults;
use types::schema::encode::encode;
use types::schema::make::ResourceMaker;
use types::schema::registry::Resource;
use types::schema::table::Scope;
use values::json::Value;
use values::naming::KUBERNETES;
use values::testing;

/// Returns a resource of kind `Thing` whose `spec` has this schema.
fn things(spec: &str) -> Arc<Resource> {
    let spec = spec.replace("{x}", "x-kubernetes-");
    let schema = format!(r#"{{"type":"object","properties":{{"spec":{spec}}}}}"#);
    of_schema(&schema)
}

fn of_schema(schema: &str) -> Arc<Resource> {
    let schema = Schema::read(&Value::Object(testing::object(&schema.replace("{x}", "x-kubernetes-"))));
    let object = object("Thing", &schema).unwrap();
    ResourceMaker::new("example.com", "v1", "things", Scope::Namespaced, object).unwrap().make(&KUBERNETES)
}

/// Returns a spec after decoding, and the reports of strict decoding.
fn decoded_spec(resource: &Resource, spec: &str) -> (String, Vec<String>) {
    let text = format!(r#"{{"kind":"Thing","apiVersion":"example.com/v1","spec":{spec}}}"#);
    let message = &resource.table.message;
    let decoded = decode(message, text.as_bytes()).unwrap();
    let mut object = decoded.object;
    defaults::apply(message, &mut object, &KUBERNETES);
    let mut out = Vec::new();
    encode(message, &object, &mut out);
    assert_eq!(decode(message, &out).unwrap().object, object, "{}", String::from_utf8_lossy(&out));
    assert_eq!(conform(message, object.clone().into()).unwrap().object, object);
    let spec = object.get("spec").unwrap();
    (testing::object_text(spec.as_object().unwrap()), decoded.strict)
}

#[test]
fn unknown_fields_are_dropped_unless_the_schema_preserves_them() {
    let resource = things(
        r#"{"type":"object","properties":{
            "a":{"type":"string"},
            "o":{"type":"object","properties":{"p":{"type":"integer"}}},
            "free":{"type":"object","{x}preserve-unknown-fields":true,
                "properties":{"known":{"type":"object","properties":{"k":{"type":"string"}}}}},
            "any":{"{x}preserve-unknown-fields":true},
            "list":{"type":"array","items":{"type":"object","properties":{"z":{"type":"integer"}}}},
            "kept":{"type":"array","{x}preserve-unknown-fields":true,
                "items":{"type":"object","properties":{"z":{"type":"integer"}}}},
            "map":{"type":"object","additionalProperties":{"type":"object","properties":{"v":{"type":"string"}}}},
            "open":{"type":"object","additionalProperties":true},
            "empty":{"type":"object"},
            "inner":{"type":"object","{x}embedded-resource":true,"properties":{"spec":{"type":"object"}}}}}"#,
    );
    for (spec, want, unknown) in [
        (r#"{"z":1,"o":{"q":1,"p":2},"a":"x"}"#, r#"{"a":"x","o":{"p":2}}"#, "spec.o.q spec.z"),
        (
            r#"{"free":{"u":{"v":[1]},"known":{"w":1,"k":"y"}}}"#,
            r#"{"free":{"known":{"k":"y"},"u":{"v":[1]}}}"#,
            "spec.free.known.w",
        ),
        (r#"{"any":{"a":[{"b":null}]}}"#, r#"{"any":{"a":[{"b":null}]}}"#, ""),
        (r#"{"list":[{"y":1,"z":1},{}]}"#, r#"{"list":[{"z":1},{}]}"#, "spec.list[0].y"),
        (r#"{"kept":[{"y":1,"z":1}]}"#, r#"{"kept":[{"z":1,"y":1}]}"#, ""),
        (r#"{"map":{"b":{"x":1},"a":{"v":"w"}}}"#, r#"{"map":{"a":{"v":"w"},"b":{}}}"#, "spec.map.b.x"),
        (r#"{"open":{"a":1,"b":[2],"c":{"d":1}}}"#, r#"{"open":{"a":1,"b":[2],"c":{}}}"#, "spec.open.c.d"),
        (r#"{"empty":{"a":1}}"#, r#"{"empty":{}}"#, "spec.empty.a"),
        (
            r#"{"inner":{"data":1,"metadata":{"name":"n","what":1},"kind":"K","apiVersion":"v1"}}"#,
            r#"{"inner":{"kind":"K","apiVersion":"v1","metadata":{"name":"n"}}}"#,
            "spec.inner.data spec.inner.metadata.what",
        ),
    ] {
        let (got, strict) = decoded_spec(&resource, spec);
        let unknown: Vec<String> = unknown
            .split(' ')
            .filter(|path| !path.is_empty())
            .map(|path| format!("unknown field \"{path}\""))
            .collect();
        assert_eq!((got, strict), (want.to_owned(), unknown), "{spec}");
    }
}

#[test]
fn strict_errors_list_duplicates_first_then_metadata_then_other_fields_sorted() {
    let resource = things(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#);
    let text = r#"{"z":1,"spec":{"y":1,"a":"1","a":"2"},"metadata":{"q":1,"name":"n"},"b":2}"#;
    let found = decode(&resource.table.message, text.as_bytes()).unwrap().strict;
    let quoted = |what: &str, path: &str| format!("{what} field \"{path}\"");
    let unknown = ["metadata.q", "b", "spec.y", "z"].map(|path| quoted("unknown", path));
    assert_eq!(found[0], quoted("duplicate", "spec.a"));
    assert_eq!(found[1..], unknown);
}

#[test]
fn defaults_fill_omitted_fields_and_null_counts_as_omitted_unless_nullable() {
    let resource = things(
        r#"{"type":"object","properties":{
            "foo":{"type":"string","default":"d"},
            "bar":{"type":"string","nullable":true},
            "baz":{"type":"string"},
            "both":{"type":"string","nullable":true,"default":"d"},
            "deep":{"type":"object","default":{},"properties":{"x":{"type":"integer","default":5}}},
            "below":{"type":"object","properties":{"x":{"type":"integer","default":5}}},
            "map":{"type":"object","additionalProperties":{"type":"integer"}},
            "list":{"type":"array","items":{"type":"object","properties":{"z":{"type":"integer","default":1}}}}}}"#,
    );
    for (spec, want) in [
        ("{}", r#"{"both":"d","deep":{"x":5},"foo":"d"}"#),
        (
            r#"{"foo":null,"bar":null,"baz":null,"both":null,"deep":null}"#,
            r#"{"bar":null,"both":null,"deep":{"x":5},"foo":"d"}"#,
        ),
        (
            r#"{"below":{},"list":[{},{"z":2},{"z":null}],"map":{"a":null,"b":1}}"#,
            r#"{"below":{"x":5},"both":"d","deep":{"x":5},"foo":"d","list":[{"z":1},{"z":2},{"z":1}],"map":{"b":1}}"#,
        ),
    ] {
        assert_eq!(decoded_spec(&resource, spec), (want.to_owned(), Vec::new()), "{spec}");
    }
}

#[test]
fn null_gets_the_default_of_an_element() {
    let resource = things(
        r#"{"type":"object","properties":{
            "l":{"type":"array","items":{"type":"integer","default":5}},
            "m":{"type":"object","additionalProperties":{"type":"integer","default":7}},
            "n":{"type":"array","items":{"type":"integer","default":5,"nullable":true}},
            "o":{"type":"array","items":{"type":"object","default":{},"properties":{
                "x":{"type":"integer","default":1}}}}}}"#,
    );
    for (spec, want) in [
        (r#"{"l":[null,1]}"#, r#"{"l":[5,1]}"#),
        (r#"{"m":{"a":null,"b":1}}"#, r#"{"m":{"a":7,"b":1}}"#),
        (r#"{"n":[null]}"#, r#"{"n":[null]}"#),
        (r#"{"o":[null,{"x":2}]}"#, r#"{"o":[{"x":1},{"x":2}]}"#),
    ] {
        assert_eq!(decoded_spec(&resource, spec), (want.to_owned(), Vec::new()), "{spec}");
    }
}

#[test]
fn type_and_metadata_of_embedded_objects_get_defaults() {
    let resource = things(
        r#"{"type":"object","properties":{"e":{"type":"object","{x}embedded-resource":true,"properties":{
            "apiVersion":{"type":"string","default":"v1"},"kind":{"type":"string","default":"Pod"},
            "metadata":{"type":"object","default":{"name":"dn"},"properties":{"labels":{"type":"object",
                "default":{"a":"b"},"properties":{"c":{"type":"string","default":"d"}}}}}}}}}"#,
    );
    for (spec, want) in [
        ("{}", "{}"),
        (
            r#"{"e":{}}"#,
            r#"{"e":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"dn","labels":{"a":"b","c":"d"}}}}"#,
        ),
        (
            r#"{"e":{"kind":"A","apiVersion":"b/v1","metadata":{"name":"n","labels":{"x":"y"}}}}"#,
            r#"{"e":{"kind":"A","apiVersion":"b/v1","metadata":{"name":"n","labels":{"c":"d","x":"y"}}}}"#,
        ),
    ] {
        assert_eq!(decoded_spec(&resource, spec), (want.to_owned(), Vec::new()), "{spec}");
    }
}

#[test]
fn values_of_a_wrong_type_are_kept_for_validation_but_not_in_metadata() {
    let resource = things(
        r#"{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"},"l":{"type":"array",
            "items":{"type":"object"}},"m":{"type":"object","additionalProperties":{"type":"boolean"}},
            "p":{"{x}int-or-string":true}}}"#,
    );
    let spec = r#"{"l":"x","m":{"a":"b"},"n":"5","p":9007199254740993,"s":[1]}"#;
    assert_eq!(decoded_spec(&resource, spec), (spec.to_owned(), Vec::new()));
    let spec = r#"{"l":[1,[2]],"m":[],"n":1.5,"p":1.5,"s":{"a":1}}"#;
    assert_eq!(decoded_spec(&resource, spec), (spec.to_owned(), Vec::new()));
    for (text, want) in [
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
        (
            r#"{"metadata":{"ownerReferences":[{"uid":1}]}}"#,
            "json: cannot unmarshal number into Go struct field OwnerReference.ownerReferences.uid of type types.UID",
        ),
        (r#"{"kind":1}"#, "json: cannot unmarshal number into Go struct field Thing.kind of type string"),
    ] {
        let error = decode(&resource.table.message, text.as_bytes()).unwrap_err();
        assert_eq!(error.message, want);
    }
}

#[test]
fn type_and_metadata_of_embedded_objects_must_have_the_right_types() {
    let embedded = r#"{"type":"object","{x}embedded-resource":true,"{x}preserve-unknown-fields":true}"#;
    let resource = things(&format!(
        r#"{{"type":"object","properties":{{"e":{embedded},
            "m":{{"type":"object","additionalProperties":{embedded}}},"l":{{"type":"array","items":{embedded}}}}}}}"#
    ));
    let message = &resource.table.message;
    for (spec, want) in [
        (r#"{"e":{"kind":1}}"#, "spec.e.kind: Invalid value: 1: must be a string"),
        (
            r#"{"m":{"a.b":{"apiVersion":[1]}}}"#,
            "spec.m[a.b].apiVersion: Invalid value: [1]: must be a string",
        ),
        (
            r#"{"l":[{},{"metadata":5}]}"#,
            "spec.l[1].metadata: Invalid value: 5: json: cannot unmarshal number into Go value of type v1.ObjectMeta",
        ),
        (
            r#"{"e":{"metadata":{"labels":{"a":1}}}}"#,
            "spec.e.metadata: Invalid value: {\"labels\":{\"a\":1}}: json: cannot unmarshal number into Go struct field \
             ObjectMeta.labels of type string",
        ),
    ] {
        let text = format!(r#"{{"kind":"Thing","apiVersion":"example.com/v1","spec":{spec}}}"#);
        assert_eq!(decode(message, text.as_bytes()).unwrap_err().message, want);
        let tree = testing::object(&text).into();
        assert_eq!(conform(message, tree).unwrap_err().message, want);
        assert!(decode_record(message, text.as_bytes()).is_ok(), "{text}");
    }
    let (object, strict) =
        decoded_spec(&resource, r#"{"e":{"kind":"A","metadata":{"name":"n","odd":1},"x":1}}"#);
    assert_eq!(object, r#"{"e":{"kind":"A","metadata":{"name":"n"},"x":1}}"#);
    assert_eq!(strict, [r#"unknown field "spec.e.metadata.odd""#]);
}

#[test]
fn every_structural_schema_of_the_keyword_corpus_becomes_a_type() {
    for schema in [
        r#"{"type":"object"}"#,
        r#"{"type":"object","{x}preserve-unknown-fields":true}"#,
        r#"{"type":"object","properties":{"l":{"type":"array","{x}list-type":"map","{x}list-map-keys":["k"],
            "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}}}}"#,
        r#"{"type":"object","properties":{"s":{"type":"array","{x}list-type":"set","items":{"type":"string"}},
            "m":{"type":"object","{x}map-type":"atomic","additionalProperties":{"type":"string"}}}}"#,
    ] {
        let resource = of_schema(schema);
        assert!(resource.table.message.custom, "{schema}");
    }
}
