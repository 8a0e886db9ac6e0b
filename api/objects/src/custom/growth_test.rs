//! Tests that the work for a definition and its objects is proportional to their size. Clients can send any
//! input, so the tests cover each keyword that nests or lists schemas, and each kind of object that is
//! created or updated.
//!
//! The tests measure the processor time of this thread, so parallel tests have no effect. If the size is four
//! times as large, proportional work takes four times as long, and quadratic work takes sixteen times as
//! long. The tests allow eight times.

use std::time::Duration;

use super::definition::Definition;
use super::established::{Established, Prepared, RegistryChanges};
use super::serving::Makers;
use crate::apply::{Reset, Versions, Writer, apply};
use crate::strategy::Endpoint;
use crate::validation::{self, Settings};
use testkit::processor_time;
use types::schema::decode::decode;
use types::schema::decode_form::zero_object;
use types::schema::defaults;
use types::schema::registry::{Registry, Resource};
use types::schema::share::Pool;
use values::json::Object;
use values::naming::KUBERNETES;
use values::testing::{self};

/// The default settings of a server.
const SETTINGS: Settings = Settings::new(&KUBERNETES);

/// Nodes of the smaller definition and elements of the smaller object.
const SMALL: usize = 800;

/// Maximum ratio of the times if the size is four times as large.
const FACTOR_MAX: f64 = 8.0;

/// Maximum number of levels of nested schemas in a request. Each schema has two levels of JSON.
const DEPTH: usize = 45;

/// A schema and a value that satisfies it, as JSON.
type SchemaAndValue = (String, String);

/// Returns an object of chains of [`DEPTH`] nested schemas, with `count` nodes in total. `schema` makes the schema of a
/// link from the schema of the link below, and `value` makes the value of a link from the value of the link below.
fn chains(
    count: usize,
    leaf: (&str, &str),
    schema: impl Fn(&str) -> String,
    value: impl Fn(&str) -> String,
) -> SchemaAndValue {
    let (mut below, mut inside) = (leaf.0.to_owned(), leaf.1.to_owned());
    for _ in 0..DEPTH {
        (below, inside) = (schema(&below), value(&inside));
    }
    side_by_side(count / DEPTH, |_| (below.clone(), inside.clone()))
}

/// Returns an object with `count` properties.
fn side_by_side(count: usize, property: impl Fn(usize) -> SchemaAndValue) -> SchemaAndValue {
    let parts: Vec<SchemaAndValue> = (0..count).map(property).collect();
    let named = |texts: &mut dyn Iterator<Item = &String>| {
        texts.enumerate().map(|(at, text)| format!(r#""p{at:06}":{text}"#)).collect::<Vec<_>>().join(",")
    };
    let schemas = named(&mut parts.iter().map(|(schema, _)| schema));
    let values = named(&mut parts.iter().map(|(_, value)| value));
    (format!(r#"{{"type":"object","properties":{{{schemas}}}}}"#), format!("{{{values}}}"))
}

fn same(text: &str) -> String {
    text.to_owned()
}

/// Returns an object whose members have schemas with nested logical keywords, with `count` nodes in total.
fn logic(count: usize, keyword: &str, link: impl Fn(&str) -> String) -> SchemaAndValue {
    let (mut below, mut levels) = (r#"{"maxLength":9}"#.to_owned(), 0);
    while levels < 2 * DEPTH && below.matches('[').count() < DEPTH {
        below = link(&below);
        levels += 1;
    }
    let schema = format!(
        r#"{{"type":"string","{keyword}":{}}}"#,
        if keyword == "not" { below } else { format!("[{below}]") }
    );
    let nodes = schema.matches('{').count();
    side_by_side(count.div_ceil(nodes), |_| (schema.clone(), r#""a""#.to_owned()))
}

/// Returns the results of `item` for all numbers below `count`, separated by commas.
fn listed(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}

/// Function that makes a schema and a value of a given size.
type MakeSchemaAndValue = fn(usize) -> SchemaAndValue;

fn forms() -> Vec<(&'static str, MakeSchemaAndValue)> {
    vec![
        ("not", |count| {
            // An even number of negations is true if the innermost schema is satisfied.
            let mut below = r#"{"maxLength":9}"#.to_owned();
            (0..2 * DEPTH).for_each(|_| below = format!(r#"{{"not":{below}}}"#));
            let schema = format!(r#"{{"type":"string","allOf":[{below}]}}"#);
            side_by_side(count / DEPTH, |_| (schema.clone(), r#""a""#.to_owned()))
        }),
        ("allOf", |count| logic(count, "allOf", |below| format!(r#"{{"allOf":[{below}]}}"#))),
        ("oneOf", |count| logic(count, "oneOf", |below| format!(r#"{{"oneOf":[{below}]}}"#))),
        ("anyOf", |count| {
            logic(count, "anyOf", |below| format!(r#"{{"anyOf":[{{"minLength":99}},{below}]}}"#))
        }),
        ("anyOf two wide", |count| {
            let mut below = r#"{"maxLength":9}"#.to_owned();
            (0..count.ilog2() - 3).for_each(|_| below = format!(r#"{{"anyOf":[{below},{below}]}}"#));
            side_by_side(8, |_| {
                (format!(r#"{{"type":"string","not":{{"not":{below}}}}}"#), r#""a""#.to_owned())
            })
        }),
        ("logic of parts", |count| {
            let parts = |text: &str, count| listed(count, |at| format!(r#""p{at:06}":{text}"#));
            let (schemas, restricted) =
                (parts(r#"{"type":"string"}"#, count), parts(r#"{"maxLength":9}"#, count));
            let schema = format!(
                r#"{{"type":"object","properties":{{{schemas}}},"allOf":[{{"properties":{{{restricted}}}}}]}}"#
            );
            (schema, format!("{{{}}}", parts(r#""a""#, count)))
        }),
        ("items", |count| {
            let schema = |below: &str| format!(r#"{{"type":"array","items":{below}}}"#);
            chains(count, (r#"{"type":"string"}"#, r#""a""#), schema, |inside| format!("[{inside}]"))
        }),
        ("additionalProperties", |count| {
            let schema = |below: &str| format!(r#"{{"type":"object","additionalProperties":{below}}}"#);
            chains(count, (r#"{"type":"string"}"#, r#""a""#), schema, |inside| format!(r#"{{"k":{inside}}}"#))
        }),
        ("properties", |count| {
            let schema = |below: &str| format!(r#"{{"type":"object","properties":{{"p":{below}}}}}"#);
            chains(count, (r#"{"type":"string"}"#, r#""a""#), schema, |inside| format!(r#"{{"p":{inside}}}"#))
        }),
        ("defaults", |count| {
            let schema =
                |below: &str| format!(r#"{{"type":"object","default":{{}},"properties":{{"p":{below}}}}}"#);
            let (schema, _) = chains(count, (r#"{"type":"string","default":"a"}"#, ""), schema, same);
            (schema, "{}".to_owned())
        }),
        ("rules", |count| {
            let schema = |below: &str| {
                let rule = r#"[{"rule":"has(self.p)"}]"#;
                format!(
                    r#"{{"type":"object","x-kubernetes-validations":{rule},"properties":{{"p":{below}}}}}"#
                )
            };
            let leaf = (r#"{"type":"string","maxLength":9}"#, r#""a""#);
            chains(count / 8, leaf, schema, |inside| format!(r#"{{"p":{inside}}}"#))
        }),
        ("embedded objects", |count| {
            let schema = r#"{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"a":{"type":"string"},"metadata":{"type":"object","properties":{"name":{"type":"string","maxLength":9}}}}}"#;
            let value = r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"a":"b"}"#;
            side_by_side(count / 4, |_| (schema.to_owned(), value.to_owned()))
        }),
        ("required", |count| {
            let properties = listed(count, |at| format!(r#""p{at}":{{"type":"string"}}"#));
            let required = listed(count, |at| format!(r#""p{}""#, count - at - 1));
            let schema =
                format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{required}]}}"#);
            (schema, format!("{{{}}}", listed(count, |at| format!(r#""p{at}":"a""#))))
        }),
        ("different limits", |count| {
            side_by_side(count, |at| {
                (format!(r#"{{"type":"integer","not":{{"minimum":{}}}}}"#, at + 9), at.to_string())
            })
        }),
        ("different enums", |count| {
            side_by_side(count, |at| {
                (format!(r#"{{"type":"string","enum":["a","{at}"]}}"#), r#""a""#.to_owned())
            })
        }),
        ("names that are hard to tell apart", |count| {
            side_by_side(count / 3, |at| {
                let name = |which: usize| format!("aaaaaaaa{:04}bbbbbbbb", (at * 7 + which) % 9999);
                let schema = format!(
                    r#"{{"type":"object","properties":{{"{}":{{"type":"string"}},"{}":{{"type":"string"}}}}}}"#,
                    name(0),
                    name(1)
                );
                (schema, format!(r#"{{"{}":"x"}}"#, name(1)))
            })
        }),
        ("keys", |count| {
            let properties = listed(count, |at| format!(r#""k{at:06}":{{"type":"string"}}"#));
            let keys = listed(count, |at| format!(r#""k{at:06}""#));
            let schema = format!(
                r#"{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":[{keys}],
                "items":{{"type":"object","required":[{keys}],"properties":{{{properties}}}}}}}"#
            );
            (schema, format!("[{{{}}}]", listed(count, |at| format!(r#""k{at:06}":"a""#))))
        }),
        ("elements of a keyed list", |count| {
            let schema = r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
                "items":{"type":"object","required":["k"],"properties":{"k":{"type":"integer"},"v":{"type":"string"}}}}"#;
            (
                schema.to_owned(),
                format!("[{}]", listed(count, |at| format!(r#"{{"k":{},"v":"a"}}"#, at * 7919 % count))),
            )
        }),
        ("elements of a set", |count| {
            let schema = r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}}"#;
            (schema.to_owned(), format!("[{}]", listed(count, |at| at.to_string())))
        }),
        ("values of a map", |count| {
            let schema = r#"{"type":"object","additionalProperties":{"type":"string"}}"#;
            (
                schema.to_owned(),
                format!("{{{}}}", listed(count, |at| format!(r#""k{}":"a""#, at * 7919 % count))),
            )
        }),
    ]
}

const NAMES: &str = r#"{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"}"#;

/// Returns the definition of a type whose objects have a value of this schema.
fn definition(schema: &str) -> String {
    format!(
        r#"{{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{{"name":"things.g.example",
        "uid":"u"}},"spec":{{"group":"g.example","scope":"Namespaced","names":{NAMES},"conversion":{{"strategy":"None"}},"versions":[
        {{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"v":{schema}}}}}}}}}]}},
        "status":{{"acceptedNames":{NAMES},"storedVersions":["v1"],"conditions":[]}}}}"#
    )
}

fn object(value: &str) -> String {
    format!(
        r#"{{"kind":"Thing","apiVersion":"g.example/v1","metadata":{{"name":"a","namespace":"n","uid":"u"}},"v":{value}}}"#
    )
}

/// Returns an object whose member `v` has reversed lists and members, and changed texts.
fn changed(object: &Object) -> Object {
    use values::json::Value;
    fn turn(value: &Value) -> Value {
        match value {
            Value::Array(items) => Value::Array(items.iter().rev().map(turn).collect()),
            Value::Object(object) => Value::Object(turn_members(object)),
            Value::String(text) if text == "a" => "aa".into(),
            other => other.clone(),
        }
    }
    fn turn_members(object: &Object) -> Object {
        object.members().iter().rev().map(|(name, value)| (name.clone(), turn(value))).collect()
    }
    let mut changed = object.clone();
    if let Some(value) = object.get("v") {
        changed.insert("v", turn(value));
    }
    changed
}

/// Processes a definition and one of its objects from their texts to the stored forms.
fn work(registry: &Registry, (schema, value): &SchemaAndValue) {
    let (definition_text, object_text) = (definition(schema), object(value));
    let definitions = registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap();
    let decoded = decode(&definitions.table.message, definition_text.as_bytes()).unwrap().object;
    let errors = validation::create(&definitions.table, SETTINGS, &decoded);
    assert_eq!(errors, [], "{schema:.300}");
    let mut pool = Pool::default();
    let mut made: Option<std::sync::Arc<Resource>> = None;
    for _ in 0..2 {
        let makers = Makers::new(&Definition::read(&decoded), &decoded).unwrap();
        made = makers.into_served(&KUBERNETES, &mut pool).into_iter().next();
    }
    let resource = made.unwrap();
    let message = &resource.table.message;
    let mut object = decode(message, object_text.as_bytes()).unwrap().object;
    defaults::apply(message, &mut object, &KUBERNETES);
    let errors = validation::create(&resource.table, SETTINGS, &object);
    assert_eq!(errors, [], "{schema:.300} {value:.300}");
    // The result does not matter; only the time is measured.
    let changed = changed(&object);
    validation::update(&resource.table, SETTINGS, &changed, &object);
    let versions = Versions::for_resource(registry, &resource);
    let reset = Reset::for_endpoint(&resource, Endpoint::Main);
    let mut stored = zero_object(message);
    for manager in ["a", "b", "a"] {
        let config = decode(message, object_text.as_bytes()).unwrap().object;
        let writer = Writer { manager, subresource: "", now: "2026-01-01T00:00:00Z" };
        let applied = apply(&versions, &writer, &reset, &stored, &config, true).unwrap();
        stored = applied.conformed(message, &stored).unwrap();
    }
}

/// Measures the work for a size and for four times this size. Returns a message if the time grew by more than
/// [`FACTOR_MAX`].
fn growth(name: &str, size: usize, work: impl Fn(usize, &mut dyn FnMut(&dyn Fn()))) -> Option<String> {
    let mean = |size: usize, times: u32| {
        let mut mean = Duration::ZERO;
        work(size, &mut |work| {
            let begin = processor_time();
            (0..times).for_each(|_| work());
            // Processor time is counted in ticks of a few milliseconds.
            mean = ((processor_time() - begin) / times).max(Duration::from_millis(1));
        });
        mean
    };
    let (small, large) = (mean(size, 6), mean(4 * size, 2));
    let factor = large.as_secs_f64() / small.as_secs_f64();
    eprintln!("{name:36} {small:10.1?} {large:10.1?} {factor:5.1}");
    (factor > FACTOR_MAX).then(|| format!("{name}: {small:?} for {size}, {large:?} for four times that"))
}

#[test]
fn work_grows_in_proportion_to_definitions_and_objects() {
    let registry = Registry::new(&KUBERNETES);
    let grown = forms().into_iter().filter_map(|(name, form)| {
        growth(name, SMALL, |size, measure| {
            let form = form(size);
            measure(&|| work(&registry, &form));
        })
    });
    let too_much: Vec<String> = grown.collect();
    assert!(too_much.is_empty(), "{too_much:#?}");
}

#[test]
fn work_grows_in_proportion_to_the_versions_of_a_definition() {
    let registry = Registry::new(&KUBERNETES);
    let definitions = registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap();
    let too_much = growth("versions", 150, |count, measure| {
        let version = |at: usize| {
            format!(
                r#"{{"name":"v{}","served":true,"storage":{},"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"p{at}":{{"type":"string"}}}}}}}}}}"#,
                at + 1,
                at == 0
            )
        };
        let text = definition("{}");
        let (begin, end) = (text.find(r#"{"name":"v1""#).unwrap(), text.find("]}").unwrap());
        let text = format!("{}{}{}", &text[..begin], listed(count, version), &text[end..]);
        measure(&|| {
            let decoded = decode(&definitions.table.message, text.as_bytes()).unwrap().object;
            assert_eq!(validation::create(&definitions.table, SETTINGS, &decoded), []);
            validation::update(&definitions.table, SETTINGS, &decoded, &decoded);
            let read = Definition::read(&decoded);
            let prepared = Prepared::new("a", &decoded, &read).unwrap();
            let (mut established, mut changes) = (Established::default(), RegistryChanges::default());
            established.put(prepared, &KUBERNETES, &mut changes);
            assert_eq!(changes.apply(&registry).group("g.example").unwrap().versions.len(), count);
        });
    });
    assert_eq!(too_much, None);
}

#[test]
fn a_definition_with_forty_nested_negations_is_compiled_quickly() {
    let mut schema = r#"{"type":"string"}"#.to_owned();
    (0..40).for_each(|_| schema = format!(r#"{{"not":{schema}}}"#));
    let schema = format!(r#"{{"type":"object","properties":{{"v":{schema}}}}}"#);
    let read = super::schema::Schema::read(&testing::object(&schema).into());
    assert!(super::resource::object("Thing", &read).is_ok());
}
