use super::*;
use crate::schema::make::{ResourceMaker, Struct, ValueBuilder};
use crate::schema::registry::Resource;
use crate::schema::table::Scope;
use values::naming::KUBERNETES;

/// Returns a type with these fields in `spec`.
fn make_resource(kind: &str, spec: Struct, pool: &mut Pool) -> Resource {
    let object = Struct::new(kind.to_owned()).field("spec", spec.node().unwrap());
    let maker = ResourceMaker::new("example.com", "v1", "things", Scope::Cluster, object).unwrap();
    maker.shared(pool).resource(&KUBERNETES)
}

fn spec(resource: &Resource) -> &Ref<Message> {
    resource.table.message.field("spec").unwrap().kind.message().unwrap()
}

fn text(length: u64) -> ValueBuilder {
    ValueBuilder::new(Kind::String).limits(Limits { length: (None, Some(length)), ..Limits::default() })
}

fn selector(length: u64) -> ValueBuilder {
    let expression =
        Struct::new("").required("key", text(length)).field("values", ValueBuilder::list(text(length)));
    let labels = ValueBuilder::map(text(length));
    let selector =
        Struct::new("").field("labels", labels).field("all", ValueBuilder::list(expression.node().unwrap()));
    selector.node().unwrap()
}

#[test]
fn equal_type_descriptions_are_shared_within_and_across_types() {
    let mut pool = Pool::default();
    let of = |length| Struct::new("").field("a", selector(length)).field("b", selector(length));
    let first = make_resource("First", of(5), &mut pool);
    let part =
        |resource: &Resource, name: &str| spec(resource).field(name).unwrap().kind.message().unwrap().clone();
    assert!(part(&first, "a").is(&part(&first, "b")));
    let second = make_resource("Second", of(5), &mut pool);
    assert!(spec(&first).is(spec(&second)));
    assert!(!first.table.message.is(&second.table.message));
    let third = make_resource("Third", of(6), &mut pool);
    assert!(!part(&first, "a").is(&part(&third, "a")));
}

#[test]
fn type_descriptions_that_differ_in_any_setting_are_not_shared() {
    let limited = |limits: Limits| ValueBuilder::new(Kind::String).limits(limits);
    let one = |node: ValueBuilder| Struct::new("").field("a", node);
    let plain = || ValueBuilder::new(Kind::String);
    let enumeration = |text: &str| limited(Limits { enumeration: vec![text.into()], ..Limits::default() });
    let pattern = |text: &str| {
        let pattern = crate::schema::pattern::Pattern::new(text.to_owned());
        limited(Limits { pattern: Some(pattern), ..Limits::default() })
    };
    let inner = || Struct::new("").field("k", plain());
    let different = [
        Struct::new(""),
        one(plain()),
        Struct::new("").field("b", plain()),
        Struct::new("").required("a", plain()),
        one(plain()).atomic(),
        one(plain()).embedded(),
        one(plain()).unknown(crate::schema::table::Unknown::Preserve),
        one(plain()).field("b", plain()),
        one(plain().nullable()),
        one(plain().default("\"x\"")),
        one(plain().default("\"y\"")),
        one(ValueBuilder::new(Kind::Int64)),
        one(ValueBuilder::new(Kind::Json)),
        one(ValueBuilder::list(plain())),
        one(ValueBuilder::set(plain())),
        one(ValueBuilder::list(plain().nullable())),
        one(ValueBuilder::list(text(3))),
        one(ValueBuilder::list(inner().node().unwrap())),
        one(ValueBuilder::keyed(inner().node().unwrap(), ["k"])),
        one(ValueBuilder::map(plain())),
        one(ValueBuilder::atomic_map(plain())),
        one(inner().node().unwrap()),
        one(inner().atomic().node().unwrap()),
        one(enumeration("x")),
        one(enumeration("y")),
        one(pattern("x")),
        one(pattern("y")),
        one(text(3)),
        one(text(4)),
    ];
    let mut pool = Pool::default();
    let all: Vec<_> = different.into_iter().map(|each| make_resource("Thing", each, &mut pool)).collect();
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate().skip(at + 1) {
            assert!(!spec(one).is(spec(other)), "{at} and {other_at}");
        }
    }
}

#[test]
fn the_pool_of_type_descriptions_holds_only_weak_references_and_is_swept() {
    let mut pool = Pool::default();
    for length in 0..SWEPT_MIN as u64 * 4 {
        drop(make_resource("Thing", Struct::new("").field("a", text(length)), &mut pool));
        assert!(pool.messages.known.len() <= SWEPT_MIN && pool.limits.known.len() <= SWEPT_MIN);
    }
    let kept = make_resource("Thing", Struct::new("").field("a", text(1)), &mut pool);
    let weak = pool.messages.known.iter().filter(|(_, weak)| weak.strong_count() > 0).count();
    assert_eq!(weak, 2, "the object and its spec");
    drop(kept);
    assert!(pool.messages.known.iter().all(|(_, weak)| weak.strong_count() == 0));
}
