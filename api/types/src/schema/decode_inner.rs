//! Kind, version and metadata of an object inside a custom object. The decoder reads these members as trees first,
//! because errors about these members print the value.

use serde::de::MapAccess;

use super::conform;
use super::decode::Single;
use super::decode_report::{DecodePath, Report};
use super::table::Kind;
use values::field::FieldError;
use values::json::Value;

/// Reads the kind, the version or the metadata of an object inside a custom object. Problems are reported as
/// a field error, which prints the value.
pub(super) fn read_inner<'de, A: MapAccess<'de>>(
    path: &DecodePath<'_>,
    single: Single<'_>,
    source: &mut A,
) -> Result<Option<Value>, A::Error> {
    let report = single.report;
    let given = source.next_value_seed(report.raw())?;
    let fault = if matches!(single.kind, Kind::String) {
        if given.as_str().is_some() {
            return Ok(Some(given));
        }
        "must be a string".to_owned()
    } else {
        let part = Report::default();
        let read = conform::reread(Single { report: &part, is_free: false, ..single }, given.clone());
        match (read, report.absorb(part)) {
            (Ok(value), None) => return Ok(value),
            (_, Some(failure)) => failure.message,
            (Err(sentence), None) => sentence,
        }
    };
    if report.is_lenient() {
        return Ok(None);
    }
    Err(report.fail(Some(path), FieldError::invalid(path.place(), &given, fault).to_string()))
}
