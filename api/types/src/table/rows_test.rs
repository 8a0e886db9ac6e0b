//! Tests of tables as documents: heads, rows, objects, watch events, custom resources
//! (docs/api/encodings.md#tables, docs/api/openapi.md#published-custom-types).

use super::*;
use crate::schema::builtin;
use values::json::{self, Value};
use values::naming::{CLUSTER, KUBERNETES};

fn pods(naming: &'static Naming) -> Arc<TableFormat> {
    let core = builtin::groups(naming).iter().find(|group| group.stem.is_empty()).unwrap();
    let pods = core.versions[0].resources.iter().find(|resource| resource.plural == "pods").unwrap();
    TableFormat::for_resource(pods, naming).unwrap()
}

fn now() -> Timestamp {
    "2026-01-10T12:00:00Z".parse().unwrap()
}

fn text(out: Vec<u8>) -> String {
    String::from_utf8(out).unwrap()
}

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7"},"spec":{},"status":{"phase":"Running"}}"#;
const CELLS: &str = r#"{"cells":["a","0/0","Running","0","\u003cunknown\u003e","\u003cnone\u003e","\u003cnone\u003e","\u003cnone\u003e","\u003cnone\u003e"]"#;

#[test]
fn rows_include_the_requested_part_of_the_object() {
    for (include, object) in [
        (IncludeObject::None, "null".to_owned()),
        (IncludeObject::Object, POD.to_owned()),
        (
            IncludeObject::Metadata,
            CLUSTER.fill(r#"{"kind":"PartialObjectMetadata","apiVersion":"meta{suffix}/v1","metadata":{"name":"a","resourceVersion":"7"}}"#),
        ),
    ] {
        let mut writer = pods(&CLUSTER).writer(MetaVersion::V1, &CLUSTER, include, now());
        let mut out = Vec::new();
        writer.row(POD.as_bytes(), POD.as_bytes(), &mut out).unwrap();
        assert_eq!(text(out), format!("{CELLS},\"object\":{object}}}"));
    }
}

#[test]
fn a_list_is_one_document_with_column_definitions() {
    let mut writer = pods(&KUBERNETES).writer(MetaVersion::V1beta1, &KUBERNETES, IncludeObject::None, now());
    let mut out = Vec::new();
    let meta = ListMeta { resource_version: "9", continue_token: Some("t"), remaining: Some(4) };
    writer.head(&meta, Headers::Shown, &mut out);
    writer.row(POD.as_bytes(), POD.as_bytes(), &mut out).unwrap();
    writer.row(POD.as_bytes(), POD.as_bytes(), &mut out).unwrap();
    writer.tail(&mut out);
    assert!(out.ends_with(b"}]}\n"));
    let table = json::parse(&out).unwrap();
    let names: Vec<&str> = table.as_object().unwrap().iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["kind", "apiVersion", "metadata", "columnDefinitions", "rows"]);
    assert_eq!(table.str_at(&["kind"]), "Table");
    assert_eq!(table.str_at(&["apiVersion"]), format!("{}/v1beta1", KUBERNETES.meta_group()));
    assert_eq!(table.str_at(&["metadata", "continue"]), "t");
    assert_eq!(table.at(&["metadata", "remainingItemCount"]), Some(&Value::Int(4)));
    assert_eq!(table.get("rows").and_then(Value::as_array).unwrap().len(), 2);
    let columns = table.get("columnDefinitions").and_then(Value::as_array).unwrap();
    for column in columns {
        let names: Vec<&str> = column.as_object().unwrap().iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["name", "type", "format", "description", "priority"]);
    }
    let line = |at: usize| {
        let mut out = Vec::new();
        json::write(&columns[at], &mut out);
        text(out)
    };
    assert!(line(0).starts_with(r#"{"name":"Name","type":"string","format":"name","description":"Name of"#));
    assert!(line(5).starts_with(r#"{"name":"IP","type":"string","format":"","description":""#));
    assert!(line(5).ends_with(r#","priority":1}"#));
}

#[test]
fn later_events_of_a_table_watch_omit_the_column_definitions() {
    let mut writer = pods(&CLUSTER).writer(MetaVersion::V1, &CLUSTER, IncludeObject::Metadata, now());
    let bookmark = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12"}}"#;
    let mut out = Vec::new();
    writer.single(bookmark.as_bytes(), bookmark.as_bytes(), Headers::Omitted, &mut out).unwrap();
    assert_eq!(
        text(out),
        CLUSTER.fill(r#"{"kind":"Table","apiVersion":"meta{suffix}/v1","metadata":{"resourceVersion":"12"},"columnDefinitions":null,"rows":[{"cells":["","0/0","","0","\u003cunknown\u003e","\u003cnone\u003e","\u003cnone\u003e","\u003cnone\u003e","\u003cnone\u003e"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta{suffix}/v1","metadata":{"resourceVersion":"12"}}}]}"#)
    );
}

#[test]
fn rows_of_finished_pods_are_marked() {
    let mut writer = pods(&CLUSTER).writer(MetaVersion::V1, &CLUSTER, IncludeObject::None, now());
    for (phase, reason) in [("Succeeded", Some("Succeeded")), ("Failed", Some("Failed")), ("Running", None)] {
        let pod = POD.replace("Running", phase);
        let mut out = Vec::new();
        writer.row(pod.as_bytes(), b"", &mut out).unwrap();
        let at = out.iter().position(|byte| *byte == b'{').unwrap();
        out.drain(..at); // the comma after the previous row
        let row = json::parse(&out).unwrap();
        let condition = row.get("conditions").and_then(Value::as_array).and_then(|list| list.first());
        assert_eq!(condition.map(|it| it.str_at(&["reason"])), reason);
        if let Some(condition) = condition {
            assert_eq!(condition.str_at(&["type"]), "Completed");
            assert_eq!(condition.str_at(&["status"]), "True");
        }
    }
}

#[test]
fn cells_come_from_the_stored_object_and_the_row_object_from_the_requested_version() {
    let mut writer = pods(&CLUSTER).writer(MetaVersion::V1, &CLUSTER, IncludeObject::Object, now());
    let mut out = Vec::new();
    writer.row(POD.as_bytes(), b"{\"other\":1}\n", &mut out).unwrap();
    assert_eq!(text(out), format!("{CELLS},\"object\":{{\"other\":1}}}}"));
}

#[test]
fn rendering_an_unreadable_object_is_an_error_and_writes_nothing() {
    let mut writer = pods(&CLUSTER).writer(MetaVersion::V1, &CLUSTER, IncludeObject::Metadata, now());
    for (stored, shown) in [("{\"a\":", POD), ("", POD), (POD, "{}"), (POD, "")] {
        let mut out = Vec::new();
        assert!(writer.row(stored.as_bytes(), shown.as_bytes(), &mut out).is_err());
        assert!(writer.single(stored.as_bytes(), shown.as_bytes(), Headers::Shown, &mut out).is_err());
        assert!(out.is_empty());
    }
}

#[test]
fn include_object_has_three_values() {
    for (text, want) in [
        ("", Some(IncludeObject::Metadata)),
        ("Metadata", Some(IncludeObject::Metadata)),
        ("None", Some(IncludeObject::None)),
        ("Object", Some(IncludeObject::Object)),
        ("object", None),
    ] {
        assert_eq!(IncludeObject::parse(text).ok(), want, "{text}");
    }
    let error = IncludeObject::parse("x").unwrap_err();
    assert_eq!(error.code, 400);
    assert_eq!(
        error.message,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"x\": \
         must be 'Metadata', 'Object', 'None', or empty"
    );
}

#[test]
fn custom_resources_show_their_printer_columns() {
    let column = |name, kind, json_path| PrinterColumn {
        name,
        kind,
        format: "",
        description: "d",
        priority: 0,
        json_path,
    };
    let columns = [
        column("Text", "string", ".spec.text"),
        column("Number As Text", "string", ".spec.count"),
        column("Object As Text", "string", ".spec.map"),
        column("Count", "integer", ".spec.count"),
        column("Half", "integer", ".spec.half"),
        column("Ratio", "number", ".spec.half"),
        column("On", "boolean", ".spec.on"),
        column("Wrong", "integer", ".spec.text"),
        column("Missing", "string", ".spec.nothing"),
        column("Null", "string", ".spec.null"),
        column("Null Count", "integer", ".spec.null"),
        column("Large", "string", ".spec.large"),
        column("Large Count", "integer", ".spec.huge"),
        column("Large Number", "number", ".spec.long"),
        column("Unset", "date", ".spec.empty"),
        column("Since", "date", ".spec.since"),
        column("Never", "date", ".spec.text"),
        column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
        column("Annotation", "string", ".metadata.annotations.example\\.com/a"),
    ];
    let object = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","creationTimestamp":"2026-01-10T11:30:00Z","annotations":{"example.com/a":"v"}},"spec":{"text":"t","count":3,"half":2.5,"on":true,"since":"2026-01-10T11:00:00Z","map":{"b":2,"a":1},"null":null,"large":1234567.5,"huge":1e21,"long":9223372036854775807,"empty":""},"status":{"conditions":[{"type":"Other","status":"x"},{"type":"Ready","status":"True"}]}}"#;
    let row = |columns: &[PrinterColumn]| {
        let format = Arc::new(TableFormat::for_custom(columns));
        let mut out = Vec::new();
        let mut writer = format.writer(MetaVersion::V1, &CLUSTER, IncludeObject::None, now());
        writer.row(object.as_bytes(), b"", &mut out).unwrap();
        text(out)
    };
    assert_eq!(
        row(&columns),
        r#"{"cells":["w","t","3","{\"a\":1,\"b\":2}",3,2,2.5,true,null,null,"\u003cno value\u003e",null,"1.2345675e+06",-9223372036854775808,9223372036854776000,"\u003cunknown\u003e","60m","\u003cinvalid\u003e","True","v"],"object":null}"#
    );
    assert_eq!(row(&[]), r#"{"cells":["w","30m"],"object":null}"#);
    // The cell of a missing name is empty, as in bookmarks.
    let format = Arc::new(TableFormat::for_custom(&[column("Text", "string", ".spec.text")]));
    let bookmark = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"}}"#;
    let mut out = Vec::new();
    let mut writer = format.writer(MetaVersion::V1, &CLUSTER, IncludeObject::None, now());
    writer.single(bookmark.as_bytes(), bookmark.as_bytes(), Headers::Omitted, &mut out).unwrap();
    assert!(text(out).contains(r#""rows":[{"cells":["",null],"object":null}]"#));
    // A malformed path ends the columns.
    let good = column("Good", "string", ".spec.text");
    let columns = [good, column("Bad", "string", ".a["), good];
    assert_eq!(row(&columns), r#"{"cells":["w","t"],"object":null}"#);
}

#[test]
fn table_formats_are_compiled_once_for_each_naming_profile() {
    assert!(Arc::ptr_eq(&pods(&CLUSTER), &pods(&CLUSTER)));
    assert!(!Arc::ptr_eq(&pods(&CLUSTER), &pods(&KUBERNETES)));
}
