//! Rules for events (docs/api/validation.md#events). An event is stored in the form of the core group. The
//! newer group has more requirements, and its updates may change only the series.

use super::super::path::FieldPath;
use super::super::{Validator, internal, is_same, names};
use super::StructView;
use values::field::FieldError;

/// Maximum length in bytes of the action, the reason and the name of the reporting instance.
const EVENT_WORD_MAX: usize = 128;
/// Maximum length in bytes of an event's message.
const EVENT_NOTE_MAX: usize = 1024;

/// Members that an update through the newer group must not change, in the order of the checks. The reason is
/// checked twice.
const IMMUTABLE: [&str; 14] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    CONTROLLER,
    "reportingInstance",
];
/// Name of the member for the reporting controller in the core group and in stored events.
const CONTROLLER: &str = "reportingComponent";
/// Name of the member for the reporting controller in the newer group.
const NEWER_CONTROLLER: &str = "reportingController";

fn is_newer(validator: &Validator) -> bool {
    validator.group == validator.naming.group("events", true)
}

/// Checks that an event is in the namespace of its involved object. An event about a cluster-scoped object
/// must be in `default`.
pub(super) fn event(validator: &mut Validator, path: &FieldPath, event: StructView) {
    let namespace = event.child("involvedObject").text("namespace");
    let own = event.child("metadata").text("namespace");
    let fits = match (event.has("eventTime"), namespace) {
        (false, "") => matches!(own, "" | "default"),
        (false, namespace) => own == namespace,
        // An event with a precise time may be in any namespace. If the object is cluster-scoped, the event
        // must be in `default` or in the system namespace.
        (true, "") => own == "default" || own == validator.naming.system("system"),
        (true, _) => true,
    };
    if !fits {
        let about = path.child("involvedObject");
        validator.invalid(about.child("namespace"), namespace, "does not match event.namespace");
    }
    if event.has("eventTime") {
        reported(validator, path, event);
    }
    if validator.is_create() && is_newer(validator) {
        newer_event(validator, path, event);
    }
}

/// Checks that an update through the newer group changes only the series.
pub(super) fn update(validator: &mut Validator, new: StructView, old: StructView) {
    if !is_newer(validator) {
        return;
    }
    if !is_same(new.get("series"), old.get("series")) {
        series(validator, &FieldPath::ROOT, new);
    }
    for name in IMMUTABLE {
        let [now, before] = [new, old].map(|event| internal::member(validator.message, event, name));
        if now != before {
            let place = if name == CONTROLLER { NEWER_CONTROLLER } else { name };
            validator.errors.push(FieldError::invalid(place, &now, "field is immutable"));
        }
    }
}

/// Checks the reporter, the action and the reason, which are required for events with a precise time.
fn reported(validator: &mut Validator, path: &FieldPath, event: StructView) {
    let controller = event.text(CONTROLLER);
    let place = path.child(if is_newer(validator) { NEWER_CONTROLLER } else { CONTROLLER });
    if controller.is_empty() {
        validator.required(place, "");
    }
    validator.refuse(&place, controller, names::qualified(controller));
    for name in ["reportingInstance", "action", "reason"] {
        match event.text(name).len() {
            0 => validator.required(path.child(name), ""),
            1..=EVENT_WORD_MAX => {}
            _ => {
                let detail = format!("can have at most {EVENT_WORD_MAX} characters");
                validator.invalid(path.child(name), "", detail);
            }
        }
    }
    if event.text("message").len() > EVENT_NOTE_MAX {
        validator.invalid(path.child("message"), "", format!("can have at most {EVENT_NOTE_MAX} characters"));
    }
}

/// Checks fields that the newer group requires or forbids.
fn newer_event(validator: &mut Validator, path: &FieldPath, event: StructView) {
    series(validator, path, event);
    if !event.has("eventTime") {
        validator.required(path.child("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        validator.invalid(path.child("type"), "", format!("has invalid value: {kind}"));
    }
    let source = event.child("source");
    for (name, is_set) in [
        ("firstTimestamp", event.has("firstTimestamp")),
        ("lastTimestamp", event.has("lastTimestamp")),
        ("count", event.int("count").unwrap_or(0) != 0),
        ("source", !source.text("component").is_empty() || !source.text("host").is_empty()),
    ] {
        if is_set {
            validator.invalid(path.child(name), "", "needs to be unset");
        }
    }
}

/// Checks that a series has at least two occurrences.
fn series(validator: &mut Validator, path: &FieldPath, event: StructView) {
    let series = event.child("series");
    if !series.is_there() {
        return;
    }
    let place = path.child("series");
    if series.int("count").unwrap_or(0) < 2 {
        validator.invalid(place.child("count"), "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        validator.required(place.child("lastObservedTime"), "");
    }
}
