//! Strategies of single kinds: what creations and updates of their objects get beyond what the tables say. A kind names
//! its own in the schema (option `strategy`).

use super::warnings;
use super::{Creation, Endpoint, Strategy, sort_members};
use crate::objects::custom::definition::conditions::{self, Deletion, State};
use crate::objects::custom::definition::{Definition, formats};
use crate::types::schema::TEMPLATE_GENERATION;
use crate::values::clock;
use crate::values::json::{Object, Value};
use crate::values::object::{self, copy_path, meta, same_at, set_meta};
use crate::values::qos::qos_class;

/// Nothing beyond what the tables say.
pub(super) const NONE: Strategy = Strategy { create: None, update: None, warnings: None, delete: None };

pub(super) const NAMESPACE: Strategy = Strategy {
    create: Some(create_namespace),
    update: Some(|endpoint, new, old| {
        if endpoint == Endpoint::Main {
            copy_path(new, old, "spec.finalizers");
        }
    }),
    ..NONE
};

pub(super) const POD: Strategy = Strategy {
    create: Some(|object, _| {
        raise_grace_period(object);
        let qos = qos_class(object);
        let gates = object::at(object, "spec.schedulingGates").and_then(Value::as_array);
        let is_gated = gates.is_some_and(|gates| !gates.is_empty());
        let status = object.object_entry("status");
        if is_gated {
            tell_of_gates(status);
        }
        status.insert("phase", "Pending".into());
        status.insert("qosClass", qos.into());
    }),
    update: Some(|_, new, _| raise_grace_period(new)),
    warnings: Some(warnings::pod),
    ..NONE
};

/// A pod with scheduling gates is not scheduled, and says so from the beginning.
fn tell_of_gates(status: &mut Object) {
    let mut condition = Object::new();
    condition.push("type", "PodScheduled".into());
    condition.push("status", "False".into());
    condition.push("lastProbeTime", Value::Null);
    condition.push("lastTransitionTime", Value::Null);
    condition.push("reason", "SchedulingGated".into());
    condition.push("message", "Scheduling is blocked due to non-empty scheduling gates".into());
    status.insert("conditions", Value::Array(vec![condition.into()]));
}

/// A negative time to end counts as the shortest one.
fn raise_grace_period(pod: &mut Object) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(seconds @ Value::Int(..=-1)) = spec.get_mut("terminationGracePeriodSeconds") {
        *seconds = Value::Int(1);
    }
}

pub(super) const PERSISTENT_VOLUME: Strategy = Strategy {
    create: Some(|object, _| {
        let status = object.object_entry("status");
        status.insert("phase", "Pending".into());
        status.insert("lastPhaseTransitionTime", clock::now().into());
    }),
    warnings: Some(warnings::volume),
    ..NONE
};

pub(super) const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy {
    create: Some(|object, _| {
        object.object_entry("status").insert("phase", "Pending".into());
        complete_sources(object);
    }),
    update: Some(|_, new, _| complete_sources(new)),
    warnings: Some(warnings::volume_claim),
    ..NONE
};

pub(super) const DAEMON_SET: Strategy = Strategy {
    create: Some(|object, _| {
        let count = template_generation(object).max(1);
        set_template_generation(object, count);
    }),
    update: Some(|_, new, old| {
        let changed = !same_at(new, old, "spec.template");
        set_template_generation(new, template_generation(old).saturating_add(i64::from(changed)));
    }),
    warnings: Some(warnings::template),
    ..NONE
};

pub(super) const JOB: Strategy = Strategy { create: Some(create_job), warnings: Some(warnings::job), ..NONE };

pub(super) const CERTIFICATE_SIGNING_REQUEST: Strategy = Strategy {
    create: Some(create_signing_request),
    update: Some(|endpoint, new, old| {
        if matches!(endpoint, Endpoint::Status | Endpoint::Approval) {
            time_conditions(new, old);
        }
    }),
    ..NONE
};

/// Generations are counted from the first change on.
pub(super) const CSI_DRIVER: Strategy =
    Strategy { create: Some(|object, _| set_meta(object, "generation", None)), ..NONE };

pub(super) const API_SERVICE: Strategy = Strategy { create: Some(create_api_service), ..NONE };

pub(super) const CUSTOM_RESOURCE_DEFINITION: Strategy = Strategy {
    create: Some(|object, _| {
        // No names are granted yet.
        let mut names = Object::new();
        names.push("plural", "".into());
        names.push("kind", "".into());
        let mut status = Object::new();
        status.push("conditions", Value::Null);
        status.push("acceptedNames", names.into());
        status.push("storedVersions", Value::Null);
        object.insert("status", status.into());
        add_stored_version(object);
    }),
    update: Some(|endpoint, object, _| {
        if endpoint == Endpoint::Main {
            add_stored_version(object);
        }
    }),
    warnings: Some(|texts, written| {
        let old = written.old.map(Definition::read);
        texts.extend(formats::warnings(&Definition::read(written.new), old.as_ref()));
    }),
    delete: Some(|object, naming| {
        let finalizer = conditions::finalizer(naming);
        if !object::finalizers(object).contains(&&*finalizer) {
            let held = object::finalizers(object).into_iter().map(Value::from);
            let held = held.chain([finalizer.into()]).collect();
            object::set_finalizers(object, held);
        }
        let mut state = State::of(&Definition::read(object));
        state.set(Deletion::Pending.condition(), &clock::now());
        state.write(object);
    }),
};

/// Objects may be stored in the storage version from now on.
fn add_stored_version(definition: &mut Object) {
    let versions = object::at(definition, "spec.versions").and_then(Value::as_array).unwrap_or_default();
    let mut stored =
        versions.iter().filter(|version| version.get("storage").and_then(Value::as_bool) == Some(true));
    let Some(name) = stored.next().map(|version| Value::from(version.str_at(&["name"]))) else { return };
    let versions = definition.object_entry("status").entry("storedVersions");
    match versions {
        Value::Array(names) if names.contains(&name) => {}
        Value::Array(names) => names.push(name),
        _ => *versions = Value::Array(vec![name]),
    }
}

/// `spec.finalizers` holds the system's finalizer, the name is a label, and the phase is Active.
fn create_namespace(object: &mut Object, creation: &Creation) {
    let naming = creation.naming;
    let name = meta(object, "name").to_owned();
    let spec = object.object_entry("spec");
    let finalizers = spec.entry("finalizers");
    if !matches!(finalizers, Value::Array(_)) {
        *finalizers = Value::Array(Vec::new());
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|item| item.as_str() == Some(naming.word))
    {
        list.push(naming.word.into());
    }
    if !name.is_empty() {
        let labels = object::metadata_mut(object).object_entry("labels");
        labels.insert(naming.label("metadata.name"), name.into());
    }
    object.object_entry("status").insert("phase", "Active".into());
}

/// Unless told otherwise, a job selects its pods by its own identity.
fn create_job(object: &mut Object, creation: &Creation) {
    let uid = meta(object, "uid").to_owned();
    let name = meta(object, "name").to_owned();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let batch = |label: &str| format!("batch.{}", creation.naming.label(label));
    let labels = spec.object_entry("template").object_entry("metadata").object_entry("labels");
    for (label, value) in [
        (batch("controller-uid"), &uid),
        (batch("job-name"), &name),
        ("controller-uid".to_owned(), &uid),
        ("job-name".to_owned(), &name),
    ] {
        labels.insert(label, value.as_str().into());
    }
    sort_members(labels);
    let labels = labels.clone();
    let selector = spec.object_entry("selector").object_entry("matchLabels");
    selector.insert(batch("controller-uid"), uid.into());
    // As every later write would default it: a job without labels has those of its template.
    let own = object::metadata_mut(object).object_entry("labels");
    if own.is_empty() {
        *own = labels;
    }
}

/// The requester is taken from the request, not from the body.
fn create_signing_request(object: &mut Object, creation: &Creation) {
    let user = creation.user;
    let spec = object.object_entry("spec");
    let texts = |list: &[String]| Value::Array(list.iter().map(|item| item.as_str().into()).collect());
    spec.insert("username", user.name.as_str().into());
    spec.insert("uid", user.uid.as_str().into());
    spec.insert("groups", texts(&user.groups));
    let mut extra = Object::new();
    for (name, values) in &user.extra {
        extra.push(name.clone(), texts(values));
    }
    spec.remove("extra");
    if !extra.is_empty() {
        spec.insert("extra", extra.into());
    }
}

/// Conditions of a certificate request get the times that their writer left out.
fn time_conditions(new: &mut Object, old: &Object) {
    let now = Value::from(clock::now());
    let before = object::at(old, "status.conditions").and_then(Value::as_array).unwrap_or_default();
    let status = new.object_entry("status");
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        let is_same =
            |other: &&Value| ["type", "status"].iter().all(|name| other.get(name) == condition.get(name));
        let since = before.iter().find(is_same).and_then(|other| other.get("lastTransitionTime"));
        let since = since.filter(|time| !time.is_null()).unwrap_or(&now).clone();
        for (name, time) in [("lastUpdateTime", now.clone()), ("lastTransitionTime", since)] {
            if condition.get(name).is_none_or(Value::is_null) {
                condition.insert(name, time);
            }
        }
    }
}

/// A claim's source stands in two places, of which writers of either time know one.
fn complete_sources(claim: &mut Object) {
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let source = |name: &str| spec.get(name).filter(|source| !source.is_null()).cloned();
    match (source("dataSource"), source("dataSourceRef")) {
        (Some(source), None) => _ = spec.insert("dataSourceRef", source),
        (None, Some(reference)) if reference.str_at(&["namespace"]).is_empty() => {
            let members = ["apiGroup", "kind", "name"];
            let members =
                members.into_iter().filter_map(|name| Some((name.into(), reference.get(name)?.clone())));
            spec.insert("dataSource", Value::Object(members.collect()));
        }
        _ => {}
    }
}

/// How often the template of a daemon set was given, as far as it says.
fn template_generation(set: &Object) -> i64 {
    let annotation = |set: &Object| {
        let annotations = set.get("metadata")?.get("annotations")?;
        annotations.get(TEMPLATE_GENERATION)?.as_str()?.parse().ok()
    };
    annotation(set).unwrap_or(0)
}

fn set_template_generation(set: &mut Object, count: i64) {
    let annotations = object::metadata_mut(set).object_entry("annotations");
    annotations.insert(TEMPLATE_GENERATION, count.to_string().into());
    sort_members(annotations);
}

/// A service without a backend is this server itself, and available.
fn create_api_service(object: &mut Object, _: &Creation) {
    if object::at(object, "spec.service").is_some_and(|service| !service.is_null()) {
        return;
    }
    let mut condition = Object::new();
    for (name, value) in [
        ("type", "Available".to_owned()),
        ("status", "True".to_owned()),
        ("lastTransitionTime", clock::now()),
        ("reason", "Local".to_owned()),
        ("message", "Local APIServices are always available".to_owned()),
    ] {
        condition.push(name, value.into());
    }
    object.object_entry("status").insert("conditions", Value::Array(vec![condition.into()]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_negative_grace_period_counts_as_one_second() {
        for (given, want) in [(-1, 1), (-7, 1), (0, 0), (30, 30)] {
            let mut pod =
                testing::object(&format!(r#"{{"spec":{{"terminationGracePeriodSeconds":{given}}}}}"#));
            raise_grace_period(&mut pod);
            let got = object::at(&pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
            assert_eq!(got, Some(want), "{given}");
        }
    }
}
