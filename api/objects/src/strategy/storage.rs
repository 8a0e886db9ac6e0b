//! Changes to volumes, claims and drivers on create and update that tables cannot express.

use super::dropped::Dropped;
use super::{Endpoint, NONE, Strategy, warnings};
use values::clock;
use values::json::{Object, Value};
use values::object::{self, set_meta};

pub(super) const PERSISTENT_VOLUME: Strategy = Strategy {
    create: Some(|object, _| {
        let status = object.object_entry("status");
        status.insert("phase", "Pending".into());
        status.insert("lastPhaseTransitionTime", clock::now().into());
    }),
    update: Some(|endpoint, new, old| {
        if endpoint == Endpoint::Status {
            time_phase(new, old);
        }
    }),
    warnings: Some(warnings::volume),
    ..NONE
};

pub(super) const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy {
    create: Some(|object, _| {
        object.object_entry("status").insert("phase", "Pending".into());
        complete_sources(object, None);
    }),
    update: Some(|endpoint, new, old| {
        if endpoint == Endpoint::Main {
            complete_sources(new, Some(old));
        }
    }),
    warnings: Some(warnings::volume_claim),
    completed_by_reading: true,
    ..NONE
};

/// Increments the generation from the first change on, so a new driver has no generation.
pub(super) const CSI_DRIVER: Strategy = Strategy {
    create: Some(|object, _| set_meta(object, "generation", None)),
    dropped: &[Dropped { below: "spec", sets: &[&["preventPodSchedulingIfMissing"]] }],
    ..NONE
};

/// Sets the time of a phase transition to the current time, except if the writer set a time.
fn time_phase(new: &mut Object, old: &Object) {
    const SINCE: &str = "status.lastPhaseTransitionTime";
    let since = object::at(new, SINCE).filter(|time| !time.is_null());
    let is_left = since.is_none_or(|time| Some(time) == object::at(old, SINCE));
    if is_left && !object::same_at(new, old, "status.phase") {
        new.object_entry("status").insert("lastPhaseTransitionTime", clock::now().into());
    }
}

/// Completes the two members for the source of a claim, because older and newer writers set only one of the two
/// members. If the stored claim has no source, a source in `dataSource` is removed if only `dataSourceRef` permits such
/// a source. A new source in another namespace is removed as well.
fn complete_sources(claim: &mut Object, old: Option<&Object>) {
    let had = |name: &str| {
        let source = old.and_then(|old| old.get("spec")).and_then(|spec| spec.get(name));
        source.is_some_and(|source| !source.is_null())
    };
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let source = |spec: &Object, name: &str| spec.get(name).filter(|source| !source.is_null()).cloned();
    let is_elsewhere = |reference: &Value| !reference.str_at(&["namespace"]).is_empty();
    if source(spec, "dataSourceRef").as_ref().is_some_and(is_elsewhere) && !had("dataSourceRef") {
        spec.remove("dataSourceRef");
    }
    if source(spec, "dataSource").is_some_and(|source| !is_volume_source(&source))
        && source(spec, "dataSourceRef").is_none()
        && !had("dataSource")
        && !had("dataSourceRef")
    {
        spec.remove("dataSource");
    }
    match (source(spec, "dataSource"), source(spec, "dataSourceRef")) {
        (Some(source), None) => _ = spec.insert("dataSourceRef", source),
        (None, Some(reference)) if !is_elsewhere(&reference) => {
            let members = ["apiGroup", "kind", "name"];
            let members =
                members.into_iter().filter_map(|name| Some((name.into(), reference.get(name)?.clone())));
            spec.insert("dataSource", Value::Object(members.collect()));
        }
        _ => {}
    }
}

/// Returns whether `dataSource`, the older member, permits this source: a claim or a volume snapshot.
fn is_volume_source(source: &Value) -> bool {
    match source.str_at(&["apiGroup"]) {
        "" => source.str_at(&["kind"]) == "PersistentVolumeClaim",
        group => source.str_at(&["kind"]) == "VolumeSnapshot" && group.starts_with("snapshot.storage."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing;

    #[test]
    fn data_sources_of_claims_are_completed_or_dropped() {
        const CLAIM: &str = r#"{"kind":"PersistentVolumeClaim","name":"a"}"#;
        const OTHER: &str = r#"{"apiGroup":"x.io","kind":"Pod","name":"a"}"#;
        const FAR: &str = r#"{"kind":"PersistentVolumeClaim","name":"a","namespace":"b"}"#;
        const SNAPSHOT: &str =
            r#"{"apiGroup":"snapshot.storage.example.io","kind":"VolumeSnapshot","name":"a"}"#;
        let claim = |source: &str, reference: &str| {
            let member = |name: &str, value: &str| {
                if value.is_empty() { Vec::new() } else { vec![format!(r#""{name}":{value}"#)] }
            };
            let members =
                [member("dataSource", source), member("dataSourceRef", reference)].concat().join(",");
            testing::object(&format!(r#"{{"spec":{{{members}}}}}"#))
        };
        for (new, old, want) in [
            ((CLAIM, ""), None, (CLAIM, CLAIM)),
            (("", CLAIM), None, (CLAIM, CLAIM)),
            ((SNAPSHOT, ""), None, (SNAPSHOT, SNAPSHOT)),
            ((OTHER, ""), None, ("", "")),
            (("", OTHER), None, (OTHER, OTHER)),
            (("", FAR), None, ("", "")),
            ((OTHER, ""), Some((OTHER, OTHER)), (OTHER, OTHER)),
            ((OTHER, ""), Some(("", "")), ("", "")),
            (("", FAR), Some(("", FAR)), ("", FAR)),
        ] {
            let mut object = claim(new.0, new.1);
            complete_sources(&mut object, old.map(|(source, reference)| claim(source, reference)).as_ref());
            let sorted = |object: &Object| {
                let mut spec = object.get("spec").and_then(Value::as_object).unwrap().clone();
                super::super::sort_members(&mut spec);
                spec
            };
            assert_eq!(sorted(&object), sorted(&claim(want.0, want.1)), "{new:?} beside {old:?}");
        }
    }

    #[test]
    fn a_volume_gets_a_transition_time_when_its_phase_changes() {
        let volume = |phase: &str, time: &str| {
            testing::object(&format!(
                r#"{{"status":{{"phase":"{phase}","lastPhaseTransitionTime":{time}}}}}"#
            ))
        };
        let (then, later) = (r#""2020-01-01T00:00:00Z""#, r#""2021-01-01T00:00:00Z""#);
        let old = volume("Pending", then);
        for (phase, time, is_kept) in [
            ("Bound", then, false),
            ("Bound", "null", false),
            ("Bound", later, true),
            ("Pending", then, true),
            ("Pending", "null", true),
        ] {
            let mut new = volume(phase, time);
            time_phase(&mut new, &old);
            assert_eq!(new == volume(phase, time), is_kept, "{phase} {time}");
        }
    }
}
