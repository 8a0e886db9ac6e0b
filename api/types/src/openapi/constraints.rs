//! Constraints of types made at run time, as published schemas express them.

use super::dialect::{Dialect, push_text};
use crate::schema::limits::Limits;
use crate::schema::pattern::Pattern;
use crate::schema::table::Empty;
use values::json::{Object, Value, plain_number};

/// Adds the constraints of a value, in addition to its kind, to `schema`.
pub(super) fn constrain(schema: &mut Object, limits: Option<&Limits>, empty: Empty, dialect: Dialect) {
    if empty == Empty::Nullable && dialect == Dialect::V3 {
        schema.push("nullable", true.into());
    }
    let Some(limits) = limits else { return };
    for (bound, exclusive, limit) in
        [("minimum", "exclusiveMinimum", limits.min), ("maximum", "exclusiveMaximum", limits.max)]
    {
        if let Some((number, is_excluded)) = limit {
            schema.push(bound, plain_number(number));
            if is_excluded {
                schema.push(exclusive, true.into());
            }
        }
    }
    if let Some(step) = limits.multiple_of {
        schema.push("multipleOf", plain_number(step));
    }
    for (least, most, (min, max)) in [
        ("minLength", "maxLength", limits.length),
        ("minItems", "maxItems", limits.items),
        ("minProperties", "maxProperties", limits.members),
    ] {
        for (name, count) in [(least, min), (most, max)] {
            if let Some(count) = count {
                schema.push(name, Value::Int(i64::try_from(count).unwrap_or(i64::MAX)));
            }
        }
    }
    push_text(schema, "pattern", limits.pattern.as_ref().map(Pattern::as_str).unwrap_or_default());
    if limits.unique {
        schema.push("uniqueItems", true.into());
    }
    if !limits.enumeration.is_empty() {
        schema.push("enum", Value::Array(limits.enumeration.clone()));
    }
}
