//! Tests of the validation of objects: each keyword, the order of errors, and errors that updates ignore.

use super::*;
use crate::custom::resource;
use crate::custom::schema::Schema;
use types::schema::decode::decode;
use types::schema::make::ResourceMaker;
use types::schema::registry::Resource;
use types::schema::table::Scope;
use values::naming::KUBERNETES;
use values::testing;

fn of_schema(schema: &str) -> std::sync::Arc<Resource> {
    let schema = Schema::read(&Value::Object(testing::object(&schema.replace("{x}", "x-kubernetes-"))));
    let object = resource::object("Thing", &schema).unwrap();
    ResourceMaker::new("example.com", "v1", "things", Scope::Namespaced, object).unwrap().make(&KUBERNETES)
}

/// Returns a resource where `value` is the schema of the field `v` of the spec.
fn things(value: &str) -> std::sync::Arc<Resource> {
    of_schema(&format!(
        r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{"v":{value}}}}}}}}}"#
    ))
}

fn read(resource: &Resource, value: &str) -> Object {
    let text = format!(r#"{{"kind":"Thing","apiVersion":"example.com/v1","spec":{{"v":{value}}}}}"#);
    decode(&resource.table.message, text.as_bytes()).unwrap().object
}

fn errors(resource: &Resource, new: &Object, old: Option<&Object>) -> String {
    let errors = object(&resource.table, "", new, old, crate::validation::embedded::check).errors;
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn each_schema_keyword_has_its_own_validation_error() {
    for (schema, value, want) in [
        (
            r#"{"type":"integer"}"#,
            r#""5""#,
            r#"spec.v: Invalid value: "string": spec.v in body must be of type integer: "string""#,
        ),
        (
            r#"{"type":"integer"}"#,
            "1.5",
            r#"spec.v: Invalid value: "number": spec.v in body must be of type integer: "number"; <nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.v"#,
        ),
        (r#"{"type":"integer"}"#, "2.0", ""),
        (r#"{"type":"number"}"#, "2", ""),
        (
            r#"{"type":"boolean"}"#,
            "[]",
            r#"spec.v: Invalid value: "array": spec.v in body must be of type boolean: "array""#,
        ),
        (
            r#"{"type":"array","items":{"type":"string"}}"#,
            "[null]",
            r#"spec.v[0]: Invalid value: "null": spec.v[0] in body must be of type string: "null""#,
        ),
        (r#"{"type":"array","items":{"type":"string","nullable":true}}"#, "[null]", ""),
        (
            r#"{"{x}int-or-string":true}"#,
            "1.5",
            r#"spec.v: Invalid value: "number": spec.v in body must be of type integer,string: "number""#,
        ),
        (r#"{"{x}int-or-string":true}"#, "9007199254740993", ""),
        (r#"{"{x}preserve-unknown-fields":true}"#, "[1,{}]", ""),
        (
            r#"{"type":"string","minLength":2,"maxLength":4,"pattern":"^a"}"#,
            r#""b""#,
            r#"spec.v: Invalid value: "b": spec.v in body should be at least 2 chars long"#,
        ),
        (
            r#"{"type":"string","minLength":2,"maxLength":4,"pattern":"^a"}"#,
            r#""bcdef""#,
            "spec.v: Too long: may not be more than 4 bytes",
        ),
        (
            r#"{"type":"string","minLength":2,"maxLength":4,"pattern":"^a"}"#,
            r#""bcd""#,
            r#"spec.v: Invalid value: "bcd": spec.v in body should match '^a'"#,
        ),
        (r#"{"type":"string","maxLength":2}"#, r#""éé""#, ""),
        (
            r#"{"type":"integer","minimum":1,"maximum":10}"#,
            "0",
            "spec.v: Invalid value: 0: spec.v in body should be greater than or equal to 1",
        ),
        (
            r#"{"type":"number","multipleOf":0.5,"minimum":1}"#,
            "0.3",
            "spec.v: Invalid value: 0.3: spec.v in body should be a multiple of 0.5; spec.v: Invalid value: 0.3: spec.v in body should be greater than or equal to 1",
        ),
        (
            r#"{"type":"string","enum":["a","b"]}"#,
            r#""c""#,
            r#"spec.v: Unsupported value: "c": supported values: "a", "b""#,
        ),
        (
            r#"{"type":"integer","enum":[1,2]}"#,
            "3",
            r#"spec.v: Unsupported value: 3: supported values: "1", "2""#,
        ),
        (
            r#"{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string"}}"#,
            "[]",
            "spec.v: Invalid value: 0: spec.v in body should have at least 1 items",
        ),
        (
            r#"{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string"}}"#,
            r#"["1","2","3"]"#,
            "spec.v: Too many: 3: must have at most 2 items",
        ),
        (
            r#"{"type":"object","maxProperties":1,"additionalProperties":{"type":"integer"}}"#,
            r#"{"a":1,"b":2}"#,
            "spec.v: Too many: 2: must have at most 1 item",
        ),
        (
            r#"{"type":"object","minProperties":1,"additionalProperties":{"type":"integer"}}"#,
            "{}",
            "spec.v: Invalid value: 0: spec.v in body should have at least 1 properties",
        ),
        (
            r#"{"type":"object","additionalProperties":{"type":"integer"}}"#,
            r#"{"a":"x"}"#,
            r#"spec.v.a: Invalid value: "string": spec.v.a in body must be of type integer: "string""#,
        ),
        (
            r#"{"type":"object","required":["b","a"],"properties":{"a":{"type":"string"}}}"#,
            "{}",
            "spec.v.b: Required value; spec.v.a: Required value",
        ),
        (
            r#"{"type":"string","format":"date-time"}"#,
            r#""yesterday""#,
            r#"spec.v: Invalid value: "yesterday": spec.v in body must be of type date-time: "yesterday""#,
        ),
        (
            r#"{"type":"string","format":"uuid"}"#,
            "5",
            r#"spec.v: Invalid value: "int64": spec.v in body must be of type uuid: "int64""#,
        ),
        (
            r#"{"type":"string","format":"unheard-of"}"#,
            "5",
            r#"spec.v: Invalid value: "integer": spec.v in body must be of type string: "integer""#,
        ),
        (
            r#"{"type":"integer","format":"int32"}"#,
            "3000000000",
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.v"#,
        ),
        (
            r#"{"type":"integer","format":"int32","minimum":-4294967295,"maximum":4294967295}"#,
            "1",
            r#"<nil>: Invalid value: "": Minimum boundary value must be of type integer with format int32 in spec.v; <nil>: Invalid value: "": Maximum boundary value must be of type integer with format int32 in spec.v"#,
        ),
        (
            r#"{"type":"integer","format":"int32"}"#,
            "true",
            r#"spec.v: Invalid value: "": spec.v in body must be of type int32: """#,
        ),
        (
            r#"{"type":"number","format":"float"}"#,
            "3.5e38",
            r#"<nil>: Invalid value: "": Checked value must be of type number with format float in spec.v"#,
        ),
        (r#"{"type":"integer","format":"uint32"}"#, "-1", ""),
        (r#"{"type":"array","format":"cidr","items":{"type":"string"}}"#, r#"["a"]"#, ""),
        (
            r#"{"type":"array","{x}list-type":"set","items":{"type":"string"}}"#,
            r#"["a","b","a","a"]"#,
            r#"spec.v[2]: Duplicate value: "a""#,
        ),
        (
            r#"{"type":"object","{x}embedded-resource":true,"{x}preserve-unknown-fields":true}"#,
            r#"{"kind":""}"#,
            r#"spec.v.apiVersion: Required value; spec.v.kind: Required value"#,
        ),
    ] {
        let resource = things(schema);
        assert_eq!(errors(&resource, &read(&resource, value), None), want, "{schema} {value}");
    }
}

#[test]
fn elements_of_a_map_list_are_distinguished_by_all_their_keys() {
    let keyed = |keys: &str| {
        things(&format!(
            r#"{{"type":"array","{{x}}list-type":"map","{{x}}list-map-keys":[{keys}],"items":{{"type":"object",
            "properties":{{"k":{{"type":"string"}},"j":{{"type":"integer"}}}}}}}}"#
        ))
    };
    for (keys, value, want) in [
        (r#""k""#, r#"[{"k":"a"},{"k":"b"}]"#, ""),
        (r#""k""#, r#"[{"k":"a","j":1},{"k":"a","j":2}]"#, r#"spec.v[1]: Duplicate value: {"k":"a"}"#),
        (r#""k""#, r#"[{},{"j":1}]"#, "spec.v[1]: Duplicate value: {}"),
        (r#""k","j""#, r#"[{"k":"a","j":1},{"k":"a","j":2}]"#, ""),
        (
            r#""k","j""#,
            r#"[{"k":"a","j":1},{"j":1,"k":"a"}]"#,
            r#"spec.v[1]: Duplicate value: {"j":1,"k":"a"}"#,
        ),
    ] {
        let resource = keyed(keys);
        assert_eq!(errors(&resource, &read(&resource, value), None), want, "{value}");
    }
}

#[test]
fn errors_of_combined_schemas_explain_the_nearest_alternative() {
    const NIL: &str = r#"<nil>: Invalid value: "": "spec.v""#;
    let one = r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"oneOf":[{"required":["a"]},{"required":["b"]}]}"#;
    let any = r#"{"type":"string","anyOf":[{"maxLength":1},{"pattern":"^x"}]}"#;
    let all = r#"{"type":"integer","allOf":[{"minimum":5},{"maximum":1}]}"#;
    let not = r#"{"type":"integer","not":{"enum":[5]}}"#;
    let number = r#"{"{x}int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}"#;
    let nested = r#"{"type":"object","properties":{"a":{"type":"integer"}},"allOf":[{"properties":{"a":{"minimum":2}}}]}"#;
    for (schema, value, want) in [
        (one, r#"{"a":"1"}"#, String::new()),
        (
            one,
            r#"{"a":"1","b":"2"}"#,
            format!("{NIL} must validate one and only one schema (oneOf). Found 2 valid alternatives"),
        ),
        (
            one,
            "{}",
            format!(
                "{NIL} must validate one and only one schema (oneOf). Found none valid; spec.v.a: Required value"
            ),
        ),
        (any, r#""xy""#, String::new()),
        (
            any,
            r#""yy""#,
            format!(
                "{NIL} must validate at least one schema (anyOf); spec.v: Too long: may not be more than 1 byte"
            ),
        ),
        (
            all,
            "3",
            format!(
                "spec.v: Invalid value: 3: spec.v in body should be greater than or equal to 5; spec.v: Invalid value: 3: spec.v in body should be less than or equal to 1; {NIL} must validate all the schemas (allOf). None validated"
            ),
        ),
        (
            all,
            "6",
            format!(
                "spec.v: Invalid value: 6: spec.v in body should be less than or equal to 1; {NIL} must validate all the schemas (allOf)"
            ),
        ),
        (not, "5", format!("{NIL} must not validate the schema (not)")),
        (not, "4", String::new()),
        (number, "5", String::new()),
        (number, r#""5%""#, String::new()),
        (
            nested,
            r#"{"a":1}"#,
            format!(
                "spec.v.a: Invalid value: 1: spec.v.a in body should be greater than or equal to 2; {NIL} must validate all the schemas (allOf). None validated"
            ),
        ),
    ] {
        let resource = things(schema);
        assert_eq!(errors(&resource, &read(&resource, value), None), want, "{schema} {value}");
    }
}

#[test]
fn the_schema_is_applied_to_the_root_and_to_metadata() {
    let resource = of_schema(
        r#"{"type":"object","required":["spec","status"],"properties":{"metadata":{"type":"object","properties":
        {"name":{"type":"string","maxLength":3}}},"spec":{"type":"object"}}}"#,
    );
    let object = decode(&resource.table.message, br#"{"metadata":{"name":"long"}}"#).unwrap().object;
    assert_eq!(
        errors(&resource, &object, None),
        "metadata.name: Too long: may not be more than 3 bytes; spec: Required value; status: Required value"
    );
    let either = of_schema(
        r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"oneOf":[{"required":["a"]},
        {"required":["b"]}]}"#,
    );
    let nil = r#"<nil>: Invalid value: "": "" must validate one and only one schema (oneOf). Found"#;
    for (object, want) in [
        (r#"{"a":"1"}"#, String::new()),
        ("{}", format!("{nil} none valid; a: Required value")),
        (r#"{"a":"1","b":"1"}"#, format!("{nil} 2 valid alternatives")),
    ] {
        let object = decode(&either.table.message, object.as_bytes()).unwrap().object;
        assert_eq!(errors(&either, &object, None), want);
    }
}

#[test]
fn errors_at_unchanged_values_do_not_fail_updates() {
    const SMALL: &str = r#"{"type":"object","properties":{
        "n":{"type":"integer","maximum":2},
        "l":{"type":"array","items":{"type":"integer","maximum":2}},
        "s":{"type":"array","{x}list-type":"atomic","items":{"type":"integer","maximum":2}},
        "k":{"type":"array","{x}list-type":"map","{x}list-map-keys":["k"],"items":{"type":"object",
            "properties":{"k":{"type":"string"},"n":{"type":"integer","maximum":2}}}},
        "m":{"type":"object","additionalProperties":{"type":"integer","maximum":2}},
        "r":{"type":"object","required":["x"],"properties":{"x":{"type":"string"},"y":{"type":"string"}}},
        "u":{"type":"array","{x}list-type":"set","maxItems":3,"items":{"type":"string","maxLength":2}},
        "c":{"type":"object","maxProperties":1,"additionalProperties":{"type":"integer"}},
        "h":{"type":"object","required":["x"],"properties":{"x":{"type":"string"},
            "u":{"type":"array","{x}list-type":"set","items":{"type":"string"}}}},
        "a":{"type":"object","properties":{"l":{"type":"array","items":{"type":"integer"}}},
            "allOf":[{"properties":{"l":{"maxItems":1}}}]},
        "o":{"type":"object","{x}preserve-unknown-fields":true,"required":["x"]}}}"#;
    let resource = things(SMALL);
    for (old, new, want) in [
        (r#"{"n":5}"#, r#"{"n":5}"#, ""),
        (r#"{"n":5}"#, r#"{"n":6}"#, "spec.v.n"),
        (r#"{"l":[5,1]}"#, r#"{"l":[5,1]}"#, ""),
        (r#"{"l":[5,1]}"#, r#"{"l":[5,2]}"#, "spec.v.l[0]"),
        (r#"{"l":[5]}"#, r#"{"l":[1,5]}"#, "spec.v.l[1]"),
        (r#"{"s":[5]}"#, r#"{"s":[5],"n":1}"#, ""),
        (r#"{"s":[5]}"#, r#"{"s":[5,1]}"#, "spec.v.s[0]"),
        (r#"{"k":[{"k":"a","n":5}]}"#, r#"{"k":[{"k":"b"},{"k":"a","n":5}]}"#, ""),
        (r#"{"k":[{"k":"a","n":5}]}"#, r#"{"k":[{"k":"a","n":6}]}"#, "spec.v.k[0].n"),
        (r#"{"m":{"a":5}}"#, r#"{"m":{"a":5,"b":1}}"#, ""),
        (r#"{"m":{"a":5}}"#, r#"{"m":{"b":5}}"#, "spec.v.m.b"),
        (r#"{"r":{"y":"1"}}"#, r#"{"r":{"y":"1"},"n":1}"#, ""),
        (r#"{"r":{"y":"1"}}"#, r#"{"r":{"y":"2"}}"#, "spec.v.r.x"),
        (r#"{"u":["a","a"]}"#, r#"{"u":["a","a"],"n":1}"#, ""),
        (r#"{"u":["a"]}"#, r#"{"u":["a","a"]}"#, "spec.v.u[1]"),
        (r#"{"u":["aaa","b","c","d"]}"#, r#"{"u":["aaa","b","c","d"],"n":1}"#, ""),
        (r#"{"u":["aaa","b"]}"#, r#"{"u":["b","aaa"]}"#, "spec.v.u[1]"),
        (r#"{"c":{"a":1,"b":2}}"#, r#"{"c":{"b":2,"a":1},"n":1}"#, ""),
        (r#"{"c":{"a":1,"b":2}}"#, r#"{"c":{"a":1,"b":3}}"#, "spec.v.c"),
        (r#"{"h":{"u":["a"]}}"#, r#"{"h":{"u":["a"]},"n":1}"#, ""),
        (r#"{"a":{"l":[1,2]}}"#, r#"{"a":{"l":[1,2]},"n":1}"#, ""),
        (r#"{"a":{"l":[1,2]}}"#, r#"{"a":{"l":[2,1]}}"#, "spec.v.a.l "),
        (r#"{"o":{"y":1}}"#, r#"{"o":{"y":1},"n":1}"#, "spec.v.o.x"),
    ] {
        let (old, new) = (read(&resource, old), read(&resource, new));
        let found = object(&resource.table, "", &new, Some(&old), crate::validation::embedded::check).errors;
        let paths = found.iter().map(|error| &*error.path).collect::<Vec<_>>().join(" ");
        assert_eq!(paths, want, "{}", testing::object_text(&new));
    }
}

#[test]
fn errors_in_a_status_have_paths_relative_to_the_status() {
    let resource = of_schema(
        r#"{"type":"object","required":["spec"],"properties":{"spec":{"type":"object"},"status":{"type":"object",
        "properties":{"phase":{"type":"string"},"n":{"type":"integer","maximum":5},"a":{"type":"string"},
        "b":{"type":"string"},"i":{"type":"integer","format":"int32"},
        "e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}},"oneOf":[{"required":["a"]},{"required":["b"]}]}}}"#,
    );
    let judged = |status: &str, old: &str| {
        let read = |status: &str| {
            let text = format!(r#"{{"kind":"Thing","apiVersion":"example.com/v1","status":{status}}}"#);
            decode(&resource.table.message, text.as_bytes()).unwrap().object
        };
        let check = crate::validation::embedded::check;
        let errors = object(&resource.table, "status", &read(status), Some(&read(old)), check).errors;
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    for (status, old, want) in [
        // The missing spec is not reported.
        (r#"{"a":"x"}"#, "{}", ""),
        (
            r#"{"a":"x","phase":5}"#,
            "{}",
            r#"status.phase: Invalid value: "integer": phase in body must be of type string: "integer""#,
        ),
        (
            r#"{"a":"x","n":9}"#,
            "{}",
            "status.n: Invalid value: 9: n in body should be less than or equal to 5",
        ),
        (r#"{"a":"x","n":9}"#, r#"{"n":9}"#, ""),
        // An embedded object in the status is not checked.
        (r#"{"a":"x","e":{"metadata":{"name":"A/"}}}"#, "{}", ""),
        (
            r#"{"a":"x","i":3000000000}"#,
            "{}",
            r#"status: Invalid value: "": Checked value must be of type integer with format int32 in i"#,
        ),
        (
            r#"{"a":"x","b":"y"}"#,
            "{}",
            r#"status: Invalid value: "": "" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
        (
            r#""x""#,
            "{}",
            r#"status: Invalid value: "string":  in body must be of type object: "string"; status: Invalid value: "": "" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ),
    ] {
        assert_eq!(judged(status, old), want, "{status}");
    }
}

#[test]
fn validation_stops_at_an_error_size_limit_and_a_work_limit() {
    let words = (0..5000).map(|at| format!(r#""word {at}""#)).collect::<Vec<_>>().join(",");
    let resource = things(&format!(r#"{{"type":"array","items":{{"type":"string","enum":[{words}]}}}}"#));
    let wrong = |count: usize| format!("[{}]", vec![r#""x""#; count].join(","));
    let found = |resource: &Resource, value: &str| {
        object(&resource.table, "", &read(resource, value), None, crate::validation::embedded::check).errors
    };
    let [few, some, many] = [10, 1000, 20_000].map(|count| found(&resource, &wrong(count)));
    assert_eq!(few.len(), 10);
    assert_eq!(some, many);
    let bytes: usize = many.iter().map(FieldError::bytes).sum();
    assert!((ERROR_BYTES_MAX..ERROR_BYTES_MAX + 100_000).contains(&bytes), "{bytes}");

    let numbers = things(r#"{"type":"array","items":{"type":"integer"}}"#);
    assert_eq!(found(&numbers, &wrong(20_000)).len(), ERRORS_MAX);
    let sets = things(
        r#"{"type":"object","additionalProperties":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}}}"#,
    );
    let pairs = (0..20_000).map(|at| format!(r#""{at}":[1,1]"#)).collect::<Vec<_>>().join(",");
    assert_eq!(found(&sets, &format!("{{{pairs}}}")).len(), ERRORS_MAX);

    // Each element is checked against a hundred schemas.
    let parts = vec![r#"{"minimum":0}"#; 100].join(",");
    let costly = things(&format!(r#"{{"type":"array","items":{{"type":"integer","allOf":[{parts}]}}}}"#));
    let message: &Message = &costly.table.message;
    let spec = message.field("spec").unwrap();
    for (elements, want) in [(90, vec![]), (110, vec![FieldError::invalid("", &Value::Null, EXHAUSTED)])] {
        let object = read(&costly, &format!("[{}]", vec!["1"; elements].join(",")));
        let checks = Checks { fuel: Cell::new(10_000), ..Checks::new(message, &object, None) };
        let value = object.get("spec").unwrap();
        let limits = limits_of(&spec.kind, spec.limits.as_deref());
        let checked = checks.check(Shape::for_kind(&spec.kind, spec.empty), limits, value, &ValuePath::Root);
        assert_eq!(checks.errors(checked), want, "{elements}");
    }
}
