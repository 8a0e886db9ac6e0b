use super::super::compare::compare;
use super::*;
use testkit::Random;
use types::schema::builtin;
use types::schema::decode_form::zero_object;
use types::schema::make::{Struct, ValueBuilder};
use types::schema::table::Kind;
use values::json::parse;
use values::naming::KUBERNETES;

/// Maximum nesting of random objects.
const DEPTH: usize = 7;

/// Returns a random value of `kind`, or sometimes a value of another kind or `null`.
fn draw(kind: &Kind, random: &mut Random, depth: usize) -> Value {
    if random.index(12) == 0 {
        return Value::Null;
    }
    match kind {
        Kind::Bool => Value::Bool(random.index(2) == 0),
        Kind::Int32 | Kind::Int64 | Kind::Double | Kind::IntOrString => Value::Int(random.index(3) as i64),
        Kind::Message(message) => Value::Object(draw_object(message, random, depth)),
        Kind::List(list) if depth < DEPTH => {
            let len = random.index(4);
            Value::Array((0..len).map(|_| draw(&list.item.kind, random, depth + 1)).collect())
        }
        Kind::Map(map) if depth < DEPTH => {
            let names = ["b", "a<", "app.example.com/name"];
            let named = names.into_iter().filter(|_| random.index(2) == 0).collect::<Vec<_>>();
            let member = |name: &'static str, value| (name.into(), value);
            let drawn = named.into_iter().map(|name| member(name, draw(&map.value.kind, random, depth + 1)));
            Value::Object(drawn.collect())
        }
        Kind::Json | Kind::RawExtension => {
            parse([&br#"{"x":[1],"a":{"b":{}}}"#[..], b"[{}]", b"1", b"{}"][random.index(4)]).unwrap()
        }
        _ => Value::from(["", "a", "b\"", "TCP"][random.index(4)]),
    }
}

fn draw_object(message: &Message, random: &mut Random, depth: usize) -> Object {
    let mut object = Object::new();
    if depth < DEPTH {
        for field in message.fields.iter() {
            if random.index(message.fields.len() + 4) < 6 {
                object.insert(field.name.clone(), draw(&field.kind, random, depth + 1));
            }
        }
    }
    object
}

#[test]
fn the_fields_text_of_a_new_object_equals_the_text_of_its_compared_field_set() {
    let mut random = Random(7);
    let (mut lengths, mut unclear) = (0, 0);
    for name in [
        "api.core.v1.Pod",
        "api.core.v1.Service",
        "api.core.v1.ConfigMap",
        "api.core.v1.Node",
        "api.apps.v1.Deployment",
        "api.networking.v1.NetworkPolicy",
        "api.admissionregistration.v1.ValidatingWebhookConfiguration",
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    ] {
        let message = builtin::message(&KUBERNETES, name).unwrap_or_else(|| panic!("{name}"));
        let skip = FieldSet::of_fields(&["kind", "metadata.name", "status.phase"]);
        for round in 0..400 {
            // The old object is empty in every second round.
            let old =
                if round % 2 == 0 { zero_object(message) } else { draw_object(message, &mut random, 2) };
            let new = draw_object(message, &mut random, 0);
            let expected = compare(message, &old, &new, &skip).into_changed().text();
            match text(message, &old, &new, &skip) {
                Some(text) => assert_eq!(text, expected, "{name}"),
                None => unclear += 1,
            }
            lengths += expected.len();
        }
    }
    assert!(lengths > 500_000 && unclear < 1_000, "{lengths} {unclear}");
}

/// A definition may have more fields than 16 bits can count.
#[test]
fn fields_of_a_type_with_more_than_65536_fields_are_sorted() {
    const FIELDS: usize = 70_000;
    let name = |at: usize| format!("f{at:05}");
    let fields =
        (0..FIELDS).fold(Struct::new("Many"), |of, at| of.field(name(at), ValueBuilder::new(Kind::Bool)));
    let message = fields.object("example.com", "v1").unwrap();
    let given = [FIELDS - 1, 0, 1 << 16, 1];
    let new: Object = given.iter().map(|at| (name(*at).into(), true.into())).collect();
    let mut members = given.map(|at| format!("\"f:{}\":{{}}", name(at)));
    members.sort();
    let text = text(&message, &Object::new(), &new, &FieldSet::default()).unwrap();
    assert_eq!(text, format!("{{{}}}", members.join(",")));
}
