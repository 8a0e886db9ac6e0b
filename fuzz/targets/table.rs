//! Tables: every stored object has a row or an error, and the output is JSON.

use std::sync::Arc;

use jiff::Timestamp;
use types::schema::decode::decode;
use types::schema::encode::encode;
use types::table::{
    Headers, IncludeObject, ListMeta, MetaVersion, PrinterColumn, TableFormat, metadata_range,
};
use values::json::{Value, parse};
use values::naming::CLUSTER;

use super::selectors::some_resource;
use super::text;
use crate::document;
use crate::input::Input;

const INCLUDES: &[IncludeObject] = &[IncludeObject::None, IncludeObject::Metadata, IncludeObject::Object];

/// Chooses a resource and an object of it: the stored form of an object built by schema, an object with
/// arbitrary members, or the bytes themselves.
pub fn table(data: &[u8]) {
    let mut input = Input::new(data);
    let resource = some_resource(&mut input);
    let include = input.pick(INCLUDES);
    let format =
        TableFormat::for_resource(resource, &CLUSTER).expect("a test holds that every column is known");
    let stored = match input.below(3) {
        0 => input.rest().to_vec(),
        1 => document::object(&resource.message, &mut input),
        _ => match decode(&resource.message, &document::object(&resource.message, &mut input)) {
            Ok(decoded) => {
                let mut stored = Vec::new();
                encode(&resource.message, &decoded.object, &mut stored);
                stored
            }
            Err(_) => return,
        },
    };
    check(format, include, &stored);
}

/// Reads columns of a custom resource, one path per line up to a zero byte, and the object after it.
pub fn printer_columns(data: &[u8]) {
    let mut input = Input::new(data);
    let paths = String::from_utf8_lossy(input.section()).into_owned();
    let column = |(at, json_path)| PrinterColumn {
        name: "Column",
        kind: ["string", "integer", "number", "boolean", "date", "other"][at % 6],
        format: "",
        description: "",
        priority: at as i64,
        json_path,
    };
    let columns: Vec<PrinterColumn> = paths.lines().enumerate().map(column).collect();
    check(Arc::new(TableFormat::for_custom(&columns)), IncludeObject::Metadata, input.rest());
}

fn check(format: Arc<TableFormat>, include: IncludeObject, stored: &[u8]) {
    let parsed = parse(stored);
    if let Some(range) = metadata_range(stored) {
        assert!(stored[range.clone()].starts_with(b"{"));
        // Damaged objects may lack members; intact ones have the complete metadata.
        if let Ok(object) = &parsed {
            let metadata = parse(&stored[range]).expect("a member of a document is one");
            assert!(
                object.get("metadata").is_some_and(|last| text(last) == text(&metadata)) || repeats(stored)
            );
        }
    }
    let mut writer = format.writer(MetaVersion::V1, &CLUSTER, include, Timestamp::UNIX_EPOCH);
    let mut out = Vec::new();
    let meta = ListMeta { resource_version: "7", continue_token: None, remaining: Some(1) };
    writer.head(&meta, Headers::Shown, &mut out);
    let mut written = 0;
    for _ in 0..2 {
        let before = out.len();
        match writer.row(stored, stored, &mut out) {
            Ok(()) => written += 1,
            Err(error) => assert!(out.len() == before && !error.to_string().is_empty()),
        }
    }
    writer.tail(&mut out);
    if parsed.is_err() {
        return; // a row may contain bytes of the object that are not JSON
    }
    let shown = parse(&out).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out)));
    let list =
        |value: Option<&Value>| value.and_then(Value::as_array).map(<[Value]>::to_vec).unwrap_or_default();
    let (columns, rows) = (list(shown.get("columnDefinitions")), list(shown.get("rows")));
    assert_eq!(rows.len(), written);
    for row in rows {
        // There may be cells of columns that are not included.
        assert!(list(row.get("cells")).len() >= columns.len());
    }
}

/// Returns whether an object has a duplicate member, about which readers disagree. Stored objects
/// have no duplicates.
fn repeats(stored: &[u8]) -> bool {
    values::json::parse_reporting_duplicates(stored).is_ok_and(|(_, duplicates)| !duplicates.is_empty())
}
