//! Tests that process objects of types that are made at run time, and then drop the types.

use std::sync::{Arc, Weak};

use jiff::Timestamp;

use crate::apply::{Reset, Versions, Writer, apply, created, updated};
use crate::patch::{PatchKind, apply as patch};
use crate::strategy::Endpoint;
use crate::validation;
use types::discovery::Discovery;
use types::openapi::OpenApi;
use types::schema::conform::conform;
use types::schema::decode::decode;
use types::schema::decode_form::zero_object;
use types::schema::defaults;
use types::schema::encode::encode;
use types::schema::kind::Kind;
use types::schema::limits::Limits;
use types::schema::make::*;
use types::schema::make_error::MakeError;
use types::schema::registry::Resource;
use types::schema::registry::{Priorities, Registry};
use types::schema::table::{Column, Scope, Unknown};
use types::table::{Headers, IncludeObject, ListMeta, MetaVersion, TableFormat};
use values::json;
use values::naming::KUBERNETES;
use values::testing::{object, object_text};

/// Returns a type with a field of each kind. `revision` is the default of a field and distinguishes the
/// versions of the type.
fn widgets(revision: usize) -> Arc<Resource> {
    let text = || ValueBuilder::new(Kind::String);
    let rows =
        ValueBuilder::list(ValueBuilder::map(ValueBuilder::list(ValueBuilder::new(Kind::Int64).nullable())));
    let port = Struct::new("Port")
        .required("name", text())
        .field("number", ValueBuilder::new(Kind::IntOrString))
        .node()
        .unwrap();
    let limits = Limits { min: Some((1.0, false)), max: Some((9.0, false)), ..Limits::default() };
    let open = Struct::new("Open").field("known", text()).unknown(Unknown::Preserve).node().unwrap();
    let closed = Struct::new("Closed").field("known", text()).unknown(Unknown::Refuse).node().unwrap();
    let spec = Struct::new("Spec")
        .field("rows", rows)
        .field("ports", ValueBuilder::keyed(port, ["name"]))
        .field("tags", ValueBuilder::set(text()))
        .field("size", ValueBuilder::new(Kind::Int64).default("3").limits(limits))
        .field("note", text().nullable())
        .field("revision", ValueBuilder::new(Kind::Int64).default(revision.to_string()))
        .field("any", ValueBuilder::new(Kind::Json))
        .field("open", open)
        .field("closed", closed)
        .field("inner", Struct::new("Inner").embedded().unknown(Unknown::Preserve).node().unwrap());
    let status = Struct::new("Status").field("ready", ValueBuilder::new(Kind::Bool));
    let widget =
        Struct::new("Widget").field("spec", spec.node().unwrap()).field("status", status.node().unwrap());
    let size = Column {
        name: "Size".into(),
        kind: "integer".into(),
        format: "".into(),
        priority: 0,
        description: "How large it is.".into(),
        cell: ".spec.size".into(),
    };
    ResourceMaker::new("example.com", "v1", "widgets", Scope::Namespaced, widget)
        .unwrap()
        .names("widget", "WidgetList", &["wd"], &["all"])
        .column(size)
        .selectable("spec.note")
        .status()
        .make(&KUBERNETES)
}

/// Returns the stored form of a spec with these members after decoding, pruning and defaulting.
fn stored(resource: &Resource, spec: &str) -> String {
    let text = format!(r#"{{"kind":"Widget","apiVersion":"example.com/v1","spec":{{{spec}}}}}"#);
    let message = &resource.table.message;
    let mut object = decode(message, text.as_bytes()).unwrap().object;
    defaults::apply(message, &mut object, &KUBERNETES);
    let mut out = Vec::new();
    encode(message, &object, &mut out);
    let again =
        decode(message, &out).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out)));
    assert_eq!((again.object, again.strict.len()), (object.clone(), 0));
    assert_eq!(conform(message, object.into()).unwrap().object, decode(message, &out).unwrap().object);
    let out = String::from_utf8(out).unwrap();
    let start = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{},"spec":{"#;
    out.strip_prefix(start).unwrap().strip_suffix("}}").unwrap().to_owned()
}

const DEFAULTS: &str = r#""revision":7,"size":3"#;

#[test]
fn given_values_are_kept_and_omitted_values_get_their_defaults() {
    let resource = widgets(7);
    for (spec, want) in [
        ("", DEFAULTS.to_owned()),
        (r#""size":0,"revision":null"#, r#""revision":7,"size":0"#.to_owned()),
        (r#""note":null,"tags":[]"#, format!(r#""note":null,{DEFAULTS},"tags":[]"#)),
        (
            r#""rows":[{"b":[1,null],"a":[]},{}],"what":1"#,
            r#""revision":7,"rows":[{"a":[],"b":[1,null]},{}],"size":3"#.to_owned(),
        ),
        (
            r#""open":{"z":{"x":[null]},"known":"k","a":1}"#,
            format!(r#""open":{{"known":"k","a":1,"z":{{"x":[null]}}}},{DEFAULTS}"#),
        ),
        (
            r#""ports":[{"number":80,"name":"a"},{"name":"b","number":"http"}]"#,
            r#""ports":[{"name":"a","number":80},{"name":"b","number":"http"}],"revision":7,"size":3"#
                .to_owned(),
        ),
        (
            r#""inner":{"metadata":{"name":"i"},"kind":"X","data":{"a":null},"apiVersion":"v1"}"#,
            format!(
                r#""inner":{{"kind":"X","apiVersion":"v1","metadata":{{"name":"i"}},"data":{{"a":null}}}},{DEFAULTS}"#
            ),
        ),
        (r#""any":[1,{"a":"b"}]"#, format!(r#""any":[1,{{"a":"b"}}],{DEFAULTS}"#)),
    ] {
        assert_eq!(stored(&resource, spec), want, "{spec}");
    }
}

#[test]
fn unknown_members_are_reported_and_refused() {
    let resource = widgets(1);
    let message = &resource.table.message;
    let strict = decode(message, br#"{"spec":{"what":1,"open":{"x":1}}}"#).unwrap().strict;
    assert_eq!(strict, [r#"unknown field "spec.what""#]);
    let error = decode(message, br#"{"spec":{"closed":{"x":1}}}"#).unwrap_err();
    assert_eq!((&*error.path, &*error.message), ("spec.closed", r#"unknown field "x""#));
}

#[test]
fn repeated_members_are_reported_at_every_depth() {
    let resource = widgets(1);
    let message = &resource.table.message;
    for (spec, want) in [
        (r#""any":{"a":1,"a":2}"#, r#"duplicate field "spec.any.a""#),
        (r#""any":[{},{"x":[{"a":1,"a":2}]}]"#, r#"duplicate field "spec.any[1].x[0].a""#),
        (r#""open":{"x":{"a":1,"a":2},"known":"k"}"#, r#"duplicate field "spec.open.x.a""#),
        (r#""open":{"x":1,"x":2}"#, r#"duplicate field "spec.open.x""#),
        (
            r#""inner":{"metadata":{"labels":{"a":"1","a":"2"}}}"#,
            r#"duplicate field "spec.inner.metadata.labels.a""#,
        ),
        (r#""inner":{"spec":{"a":1,"a":2}}"#, r#"duplicate field "spec.inner.spec.a""#),
        (r#""zz":1,"zz":2"#, r#"duplicate field "spec.zz", unknown field "spec.zz""#),
        (r#""zz":{"a":1,"a":2}"#, r#"duplicate field "spec.zz.a", unknown field "spec.zz""#),
        (
            r#""zz":1,"size":3,"any":{"a":1,"a":2},"size":4"#,
            r#"duplicate field "spec.any.a", duplicate field "spec.size", unknown field "spec.zz""#,
        ),
        (r#""any":{"a":1,"b":{"a":1}}"#, ""),
    ] {
        // Each text is tested without and with a blank, because the fast decoder does not read texts with
        // blanks.
        for blank in ["", " "] {
            let text =
                format!(r#"{{"kind":"Widget",{blank}"apiVersion":"example.com/v1","spec":{{{spec}}}}}"#);
            let strict = decode(message, text.as_bytes()).unwrap().strict;
            assert_eq!(strict.join(", "), want, "{text}");
        }
    }
}

#[test]
fn validation_finds_values_out_of_bounds_at_every_depth() {
    let resource = widgets(1);
    let judged = |spec: &str| {
        let text = format!(r#"{{"metadata":{{"name":"w","namespace":"n"}},"spec":{{{spec}}}}}"#);
        let object = decode(&resource.table.message, text.as_bytes()).unwrap().object;
        let errors = validation::create(&resource.table, validation::Settings::new(&KUBERNETES), &object);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(judged(r#""size":9,"note":null,"rows":[{"a":[null]}]"#), [""; 0]);
    assert_eq!(
        judged(r#""size":10"#),
        ["spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"]
    );
    assert_eq!(judged(r#""ports":[{}]"#), ["spec.ports[0].name: Required value"]);
    assert_eq!(
        judged(r#""tags":"t","rows":[{"a":["x"]}]"#),
        [
            r#"spec.rows[0].a[0]: Invalid value: "string": spec.rows[0].a[0] in body must be of type integer: "string""#,
            r#"spec.tags: Invalid value: "string": spec.tags in body must be of type array: "string""#,
        ]
    );
}

#[test]
fn two_managers_can_apply_a_custom_object_and_patches_merge_by_key() {
    let resource = widgets(1);
    let registry = Registry::new(&KUBERNETES).with(Arc::clone(&resource), Priorities::CUSTOM);
    let versions = Versions::for_resource(&registry, &resource);
    let message = &resource.table.message;
    let reset = Reset::for_endpoint(&resource, Endpoint::Main);
    let applied = |live: &json::Object, manager: &str, config: &str| {
        let writer = Writer { manager, subresource: "", now: "2026-01-01T00:00:00Z" };
        let applied = apply(&versions, &writer, &reset, live, &object(config), false);
        applied.map(|applied| applied.conformed(message, live).unwrap())
    };
    let nothing = zero_object(message);
    let one = r#"{"spec":{"ports":[{"name":"a","number":1}],"open":{"x":{"y":1}},"tags":["t"],"size":1}}"#;
    let live = applied(&nothing, "one", one).unwrap();
    let two =
        r#"{"spec":{"ports":[{"name":"b","number":"z"}],"open":{"w":2},"tags":["u"],"rows":[{"r":[1]}]}}"#;
    let live = applied(&live, "two", two).unwrap();
    assert_eq!(
        object_text(live.get("spec").unwrap().as_object().unwrap()),
        r#"{"open":{"w":2,"x":{"y":1}},"ports":[{"name":"a","number":1},{"name":"b","number":"z"}],"rows":[{"r":[1]}],"size":1,"tags":["t","u"]}"#
    );
    assert!(applied(&live, "two", r#"{"spec":{"size":2}}"#).is_err(), "another manager owns the field");
    assert!(
        applied(&live, "two", r#"{"spec":{"open":{"x":{"y":2}}}}"#).is_err(),
        "preserved members are owned"
    );
    // A field that its manager no longer applies is removed. The field of the other manager stays.
    let live = applied(&live, "one", r#"{"spec":{"size":1}}"#).unwrap();
    assert_eq!(
        object_text(live.get("spec").unwrap().as_object().unwrap()),
        r#"{"open":{"w":2},"ports":[{"name":"b","number":"z"}],"rows":[{"r":[1]}],"size":1,"tags":["u"]}"#
    );
    for (kind, change) in [
        (PatchKind::Merge, r#"{"spec":{"rows":[{"s":[]}],"note":null}}"#),
        (PatchKind::Json, r#"[{"op":"replace","path":"/spec/rows","value":[{"s":[]}]}]"#),
    ] {
        let patched = patch(kind, None, live.clone().into(), change.as_bytes(), false).unwrap();
        let patched = conform(message, patched.value).unwrap().object;
        assert_eq!(patched.get("spec").unwrap().get("rows"), Some(&json::parse(br#"[{"s":[]}]"#).unwrap()));
    }
}

/// A write through `/status` stores only the status, so its writer must not own the labels that it sent.
#[test]
fn a_writer_of_the_status_owns_neither_metadata_nor_spec() {
    let resource = widgets(1);
    let registry = Registry::new(&KUBERNETES).with(Arc::clone(&resource), Priorities::CUSTOM);
    let versions = Versions::for_resource(&registry, &resource);
    let message = &resource.table.message;
    let reset = Reset::for_endpoint(&resource, Endpoint::Status);
    let writer = Writer { manager: "m", subresource: "status", now: "2026-01-01T00:00:00Z" };
    let sent = r#"{"metadata":{"name":"w","labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["e.com/f"],"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]},"spec":{"size":4},"status":{"ready":true}}"#;
    let fields = |object: &json::Object| {
        let managed = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
        let entries = managed.and_then(json::Value::as_array).unwrap_or_default().iter();
        let own = entries.filter(|entry| entry.str_at(&["manager"]) == "m");
        own.map(|entry| entry.str_at(&["fieldsV1"]).to_owned()).collect::<Vec<_>>()
    };
    let live = zero_object(message);
    let applied = apply(&versions, &writer, &reset, &live, &object(sent), false).unwrap();
    let applied = applied.conformed(message, &live).unwrap();
    assert_eq!(fields(&applied), [r#"{"f:status":{"f:ready":{}}}"#]);

    let mut live = object(r#"{"metadata":{"name":"w"},"spec":{"size":2}}"#);
    created(
        &versions,
        &Writer { manager: "other", subresource: "", ..writer },
        &Reset::for_endpoint(&resource, Endpoint::Main),
        &mut live,
    );
    let mut new = object(sent);
    updated(&versions, &writer, &reset, &live, &mut new);
    assert_eq!(fields(&new), [r#"{"f:status":{".":{},"f:ready":{}}}"#]);
}

#[test]
fn tables_discovery_and_openapi_include_a_custom_type() {
    let resource = widgets(1);
    let registry = Registry::new(&KUBERNETES).with(Arc::clone(&resource), Priorities::CUSTOM);
    let format = TableFormat::for_resource(&resource.table, &KUBERNETES).unwrap();
    let mut rows = format.writer(MetaVersion::V1, &KUBERNETES, IncludeObject::None, Timestamp::UNIX_EPOCH);
    let mut out = Vec::new();
    rows.head(&ListMeta::default(), Headers::Shown, &mut out);
    rows.row(br#"{"metadata":{"name":"w"},"spec":{"size":4}}"#, b"", &mut out).unwrap();
    rows.tail(&mut out);
    let table = String::from_utf8(out).unwrap();
    assert!(table.contains(r#""cells":["w",4]"#) && table.contains("How large it is."), "{table}");

    let registry = Arc::new(registry);
    let headers = http::HeaderMap::new();
    let discovery = Discovery::new(Arc::clone(&registry), String::new(), Vec::new());
    let body = discovery.respond("/apis/example.com/v1", &headers, false).unwrap().response.into_body();
    assert!(String::from_utf8_lossy(&body).contains(r#""name":"widgets/status""#));

    let openapi = OpenApi::new(registry, &[], "v1.2.3".into());
    let document = openapi.respond("/openapi/v3/apis/example.com/v1", None, &headers).unwrap();
    let document = json::parse(document.body()).unwrap();
    let schemas = document.at(&["components", "schemas"]).unwrap();
    let spec = schemas.at(&["com.example.v1.Widget", "properties", "spec", "properties"]).unwrap();
    let text = |path: &[&str]| {
        let mut out = Vec::new();
        json::write(spec.at(path).unwrap_or(&json::Value::Null), &mut out);
        String::from_utf8(out).unwrap()
    };
    let prefix = KUBERNETES.extension_prefix;
    assert_eq!(
        text(&["rows"]),
        r#"{"items":{"additionalProperties":{"items":{"format":"int64","nullable":true,"type":"integer"},"type":"array","{x}list-type":"atomic"},"type":"object"},"type":"array","{x}list-type":"atomic"}"#
            .replace("{x}", prefix)
    );
    assert_eq!(text(&["size"]), r#"{"default":3,"format":"int64","maximum":9,"minimum":1,"type":"integer"}"#);
    assert_eq!(text(&["ports", &format!("{prefix}list-map-keys")]), r#"["name"]"#);
    assert_eq!(text(&["open", &format!("{prefix}preserve-unknown-fields")]), "true");
    assert_eq!(text(&["note", "nullable"]), "true");
    assert!(schemas.get("com.example.v1.WidgetList").is_some());
}

#[test]
fn a_type_with_contradictory_fields_is_an_error() {
    let text = || ValueBuilder::new(Kind::String);
    let twice = Struct::new("S").field("a", text()).field("a", text()).node();
    assert_eq!(twice.unwrap_err(), MakeError::Twice("a".into()));
    let keyless = Struct::new("S").field("l", ValueBuilder::list(ValueBuilder::keyed(text(), ["k"]))).node();
    assert_eq!(keyless.unwrap_err(), MakeError::NoKey("k".into()));
    let default = Struct::new("S").field("a", text().default("{")).node();
    assert_eq!(default.unwrap_err(), MakeError::Default("a".into()));
}

/// Returns the resident memory of this process in pages; 0 if it is unknown.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// Environment variable that is set in the process that runs only one test.
const ALONE: &str = "TYPES_COME_AND_GO_ALONE";

/// Other tests also allocate memory, so this test runs in a separate process.
#[test]
fn making_and_dropping_a_type_ten_thousand_times_leaks_no_memory() {
    if std::env::var_os(ALONE).is_none() {
        let name = "custom::made_types_test::making_and_dropping_a_type_ten_thousand_times_leaks_no_memory";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    const ROUNDS: usize = 10_000;
    let builtin = Registry::new(&KUBERNETES);
    let mut registry = builtin.clone();
    let mut gone: Vec<Weak<Resource>> = Vec::new();
    let mut before = 0;
    for round in 0..ROUNDS {
        registry = registry.with(widgets(round), Priorities::CUSTOM);
        let resource = Arc::clone(registry.resource("example.com", "v1", "widgets").unwrap());
        // A new type may have the address of a dropped type, but must have its own names, defaults, columns
        // and plans.
        assert_eq!(stored(&resource, ""), format!(r#""revision":{round},"size":3"#));
        TableFormat::for_resource(&resource.table, &KUBERNETES).unwrap();
        if round % 3 == 0 {
            registry = registry.without("example.com", "v1", "widgets");
            assert!(registry.group("example.com").is_none());
        }
        gone.retain(|weak| weak.strong_count() > 0);
        assert!(gone.is_empty(), "a replaced type was not dropped");
        gone.push(Arc::downgrade(&resource));
        if round == ROUNDS / 10 {
            before = resident();
        }
    }
    assert!(resident() <= before + 256, "{} pages, {before} before", resident());
    for (ours, theirs) in
        registry.groups().iter().filter(|group| group.name != "example.com").zip(builtin.groups())
    {
        assert!(Arc::ptr_eq(ours, theirs), "{} is shared", ours.name);
    }
}
