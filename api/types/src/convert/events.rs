//! Conversion between the core/v1 Event and the Event of the events group. The two types have the same values
//! under different names.

use values::json::{Key, Object};

/// Member names that differ: the name in core/v1, and the name in events v1.
static NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts the core form to the form of the events group.
pub(super) fn from_core(object: Object) -> Object {
    renamed(object, |name| NAMES.iter().find(|(core, _)| *core == name).map(|(_, events)| *events))
}

/// Converts the events group's form to the core form.
pub(super) fn to_core(object: Object) -> Object {
    renamed(object, |name| NAMES.iter().find(|(_, events)| *events == name).map(|(core, _)| *core))
}

fn renamed(object: Object, new_name: impl Fn(&str) -> Option<&'static str>) -> Object {
    let members = object.into_members().into_iter();
    members.map(|(name, value)| (new_name(&name).map_or(name, Key::Borrowed), value)).collect()
}
