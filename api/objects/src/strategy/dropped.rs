//! Fields of disabled features. A write drops such fields, except if the stored object has a field of the
//! same set (docs/api/writes.md#fields-that-are-dropped).
//!
//! ```text
//! prefix + set of paths ─┬─ the stored object has one of them ─► all stay
//!                        └─ otherwise ─► all are removed from the new object
//! ```
//!
//! In a path, `[]` visits the elements of a list, `{}` visits the values of a map, and `?` marks a member that is also
//! removed if the member becomes empty. This module contains no code for particular kinds. The functions read an object
//! before they modify it, so an object without these fields is not modified and its settled parts stay settled.

use values::json::{Object, Value};

/// Dropped fields below one path of a kind.
#[derive(Clone, Copy)]
pub(super) struct Dropped {
    /// Path of the value that contains the fields; empty for the object itself.
    pub(super) below: &'static str,
    /// Sets of paths relative to `below`. The fields of one set are kept or dropped together.
    pub(super) sets: &'static [&'static [&'static str]],
}

/// Fields of the specification of a pod: pod groups, stop signals of containers, and projections of trust
/// bundles and certificates.
pub(super) const POD_SPEC: &[&[&str]] = &[
    &["schedulingGroup"],
    &[
        "initContainers[].lifecycle?.stopSignal",
        "containers[].lifecycle?.stopSignal",
        "ephemeralContainers[].lifecycle?.stopSignal",
    ],
    &["volumes[].projected.sources[].clusterTrustBundle"],
    &["volumes[].projected.sources[].podCertificate"],
];

/// Field of the status of a pod: node resources that claims allocate.
pub(super) const POD_STATUS: &[&[&str]] = &[&["nodeAllocatableResourceClaimStatuses"]];

/// Fields of the pod template of a workload.
pub(super) const TEMPLATE: &[Dropped] = &[Dropped { below: "spec.template.spec", sets: POD_SPEC }];

/// Fields of the pod template of a cron job.
pub(super) const JOB_TEMPLATE: &[Dropped] =
    &[Dropped { below: "spec.jobTemplate.spec.template.spec", sets: POD_SPEC }];

/// Fields of a `PodTemplate` object.
pub(super) const BARE_TEMPLATE: &[Dropped] = &[Dropped { below: "template.spec", sets: POD_SPEC }];

/// Fields of a stateful set: the fields of its pod template, and the maximum number of unavailable pods
/// during an update.
pub(super) const STATEFUL_SET: &[Dropped] = &[
    Dropped { below: "spec.template.spec", sets: POD_SPEC },
    Dropped { below: "spec", sets: &[&["updateStrategy.rollingUpdate.maxUnavailable"]] },
];

/// Drops the fields from a new object, except for the sets from which `old` has a field.
pub(super) fn drop_unused(dropped: &[Dropped], new: &mut Object, old: Option<&Object>) {
    for part in dropped {
        if old.is_some_and(|old| new.shares(part.below, old)) {
            continue;
        }
        for set in part.sets {
            let paths = || set.iter().map(|path| Steps(part.below, path));
            let is_used = |object: &Object| paths().any(|path| has(object, path));
            if is_used(new) && !old.is_some_and(is_used) {
                paths().for_each(|path| remove(new, path));
            }
        }
    }
}

/// The remaining steps of a path: the steps to `below`, and the steps after it. There is at least one step.
#[derive(Clone, Copy)]
struct Steps(&'static str, &'static str);

impl Steps {
    /// Returns the first step and the remaining steps; `None` if there are no remaining steps.
    fn split(self) -> (&'static str, Option<Steps>) {
        let Steps(to_part, within) = self;
        let (head, tail) = if to_part.is_empty() { (within, "") } else { (to_part, within) };
        // Steps are short, so a loop over their bytes costs less than a search.
        let len = head.bytes().position(|byte| byte == b'.').unwrap_or(head.len());
        let (first, left) = (&head[..len], head.get(len + 1..).unwrap_or_default());
        (first, (!left.is_empty() || !tail.is_empty()).then_some(Steps(left, tail)))
    }
}

/// Splits a step of a path into the name of the member and the kind of its values.
fn step(text: &str) -> (&str, StepKind) {
    let (mark, kind) = match text.as_bytes().last() {
        Some(b']') => ("[]", StepKind::Elements),
        Some(b'}') => ("{}", StepKind::Values),
        Some(b'?') => ("?", StepKind::Vanishing),
        _ => ("", StepKind::Member),
    };
    (text.strip_suffix(mark).unwrap_or(text), kind)
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum StepKind {
    Member,
    Elements,
    Values,
    Vanishing,
}

fn has(object: &Object, path: Steps) -> bool {
    let (first, rest) = path.split();
    let (name, kind) = step(first);
    let Some(value) = object.get(name).filter(|value| !value.is_null()) else { return false };
    let Some(rest) = rest else { return true };
    let below = |value: &Value| value.as_object().is_some_and(|object| has(object, rest));
    match kind {
        StepKind::Elements => value.as_array().unwrap_or_default().iter().any(below),
        StepKind::Values => value.as_object().is_some_and(|map| map.iter().any(|(_, value)| below(value))),
        StepKind::Member | StepKind::Vanishing => below(value),
    }
}

fn remove(object: &mut Object, path: Steps) {
    let (first, rest) = path.split();
    let (name, kind) = step(first);
    let Some(rest) = rest else {
        object.remove(name);
        return;
    };
    let below = |value: &mut Value| {
        if let Some(object) = value.as_object_mut().filter(|object| has(object, rest)) {
            remove(object, rest);
        }
    };
    match (kind, object.get_mut(name)) {
        (_, None) => {}
        (StepKind::Elements, Some(value)) => value.as_array_mut().into_iter().flatten().for_each(below),
        (StepKind::Values, Some(value)) => {
            value.as_object_mut().into_iter().flat_map(Object::iter_mut).for_each(|(_, value)| below(value));
        }
        (StepKind::Member | StepKind::Vanishing, Some(value)) => below(value),
    }
    let is_left_empty = || {
        object
            .get(name)
            .and_then(Value::as_object)
            .is_some_and(|left| left.iter().all(|(_, value)| value.is_null()))
    };
    if kind == StepKind::Vanishing && is_left_empty() {
        object.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing;

    #[test]
    fn fields_behind_a_disabled_gate_are_dropped_unless_the_old_object_uses_them() {
        const DROPPED: &[Dropped] = &[
            Dropped {
                below: "spec",
                sets: &[&["one"], &["items[].hook?.signal", "more[].hook?.signal"], &["map{}.kinds"]],
            },
            Dropped { below: "", sets: &[&["whole"], &["top.member"]] },
        ];
        for (new, old, want) in [
            (r#"{"spec":{"one":1,"two":2}}"#, None, r#"{"spec":{"two":2}}"#),
            (r#"{"spec":{"one":1,"two":2}}"#, Some(r#"{"spec":{"two":1}}"#), r#"{"spec":{"two":2}}"#),
            (r#"{"spec":{"one":1}}"#, Some(r#"{"spec":{"one":3}}"#), r#"{"spec":{"one":1}}"#),
            (
                r#"{"spec":{"items":[{"a":1,"hook":{"signal":"x"}},{"hook":{"signal":"x","b":1}}],"more":[{}]}}"#,
                None,
                r#"{"spec":{"items":[{"a":1},{"hook":{"b":1}}],"more":[{}]}}"#,
            ),
            (
                r#"{"spec":{"items":[{"hook":{"signal":"x"}}]}}"#,
                Some(r#"{"spec":{"more":[{"hook":{"signal":"y"}}]}}"#),
                r#"{"spec":{"items":[{"hook":{"signal":"x"}}]}}"#,
            ),
            (r#"{"spec":{"map":{"a":{"kinds":[1],"b":2}}}}"#, None, r#"{"spec":{"map":{"a":{"b":2}}}}"#),
            (r#"{"spec":null}"#, None, r#"{"spec":null}"#),
            (r#"{"whole":1,"top":{"member":1,"a":2}}"#, None, r#"{"top":{"a":2}}"#),
            (r#"{"spec":{"items":[{"hook":{}}]}}"#, None, r#"{"spec":{"items":[{"hook":{}}]}}"#),
        ] {
            let mut object = testing::object(new);
            drop_unused(DROPPED, &mut object, old.map(testing::object).as_ref());
            assert_eq!(object, testing::object(want), "{new} beside {old:?}");
        }
    }
}
