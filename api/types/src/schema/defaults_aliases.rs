//! Members that duplicate other members: a former name and a new name, or a single value and a list.
//!
//! In the reference server, the internal form of an object has only one of the two members. The server
//! derives the other member when it serves the object, so that old and new clients find the field that they
//! support. This server stores both members. Each rule says which member takes precedence if the two differ.
//! Source: upstream's conversions of `core/v1` and `apps/v1`.

use std::num::IntErrorKind;

use go::Quoted;

use super::table::Message;
use super::typed_object::TypedObject;
use values::json::{Key, Object, Value};
use values::naming::Naming;

/// Annotation of a daemon set that counts the changes of its template. The strategy increments the number;
/// this module sets the initial value.
pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Annotation with the revision to which a deployment is to be rolled back.
pub const ROLLBACK_REVISION: &str = "deprecated.deployment.rollback.to";

/// Returns the error, in Go's wording, if the annotation that replaces a former number field is malformed. An
/// object with a malformed annotation is rejected.
pub fn unreadable_annotation(message: &Message, object: &Object) -> Option<String> {
    let name = match &*message.name {
        "DaemonSet" if !message.custom => TEMPLATE_GENERATION,
        "Deployment" if !message.custom => ROLLBACK_REVISION,
        _ => return None,
    };
    let is_rollback = name == ROLLBACK_REVISION;
    let text = object.get("metadata")?.get("annotations")?.get(name)?.as_str()?;
    if is_rollback && text.is_empty() {
        return None;
    }
    let why = match text.parse::<i64>().err()?.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    let error = format!("strconv.ParseInt: parsing {}: {why}", Quoted(text));
    Some(if is_rollback {
        format!("failed to parse annotation[{name}]={text} as int64: {error}")
    } else {
        error
    })
}

/// Sets the members that an empty object of a kind has in the reference server. Bookmarks contain an empty
/// object. The reference server creates the empty object in its internal form, which always has these members.
pub fn complete_empty(message: &Message, object: &mut Object) {
    match &*message.name {
        _ if message.custom => {}
        "Deployment" | "ReplicaSet" | "StatefulSet" => {
            object.object_entry("spec").insert("replicas", Value::Int(0));
        }
        "DaemonSet" => {
            let metadata = object.object_entry("metadata");
            metadata.object_entry("annotations").insert(TEMPLATE_GENERATION, "0".into());
        }
        _ => {}
    }
}

/// Copies between `serviceAccountName` and its former name `serviceAccount`. `serviceAccountName` takes
/// precedence unless it is empty.
pub(super) fn pod_spec(spec: &mut TypedObject, _: &'static Naming) {
    const NAMES: [&str; 2] = ["serviceAccountName", "serviceAccount"];
    let Some(account) =
        NAMES.map(|name| spec.text(name).to_owned()).into_iter().find(|text| !text.is_empty())
    else {
        return;
    };
    for name in NAMES {
        if spec.text(name) != account {
            spec.set(name, account.as_str().into());
        }
    }
}

/// Removes the annotations that described init containers and their statuses in pods and templates before
/// there were fields for this purpose.
pub(super) fn pod_template(template: &mut TypedObject, naming: &'static Naming) {
    let is_former = |key: &str| {
        key.split_once('/').is_some_and(|(domain, name)| {
            matches!(domain.strip_suffix(naming.domain), Some("pod.alpha." | "pod.beta."))
                && matches!(name, "init-containers" | "init-container-statuses")
        })
    };
    let metadata = template.object.get("metadata");
    let annotations = metadata.and_then(|metadata| metadata.get("annotations")).and_then(Value::as_object);
    if !annotations.is_some_and(|annotations| annotations.iter().any(|(key, _)| is_former(key))) {
        return;
    }
    let metadata = template.object.object_entry("metadata");
    let annotations = metadata.object_entry("annotations");
    annotations.retain(|key, _| !is_former(key));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Keeps `podIP` equal to the first element of `podIPs`.
pub(super) fn pod_status(status: &mut TypedObject, _: &'static Naming) {
    let text = |item: &Value| item.str_at(&["ip"]).to_owned();
    first_of_list(status, "podIP", "podIPs", text, |ip| {
        Object::from_iter([(Key::Borrowed("ip"), ip.into())]).into()
    });
}

/// Keeps `podCIDR` equal to the first element of `podCIDRs`.
pub(super) fn node_spec(spec: &mut TypedObject, _: &'static Naming) {
    let text = |item: &Value| item.as_str().unwrap_or_default().to_owned();
    first_of_list(spec, "podCIDR", "podCIDRs", text, |network| network.into());
}

/// Makes a single value and the first element of a list equal. The single value takes precedence, because
/// clients that do not support the list write only the single value. If the single value is empty, the list
/// takes precedence.
fn first_of_list(
    node: &mut TypedObject,
    single: &str,
    list: &str,
    text: impl Fn(&Value) -> String,
    item: impl Fn(&str) -> Value,
) {
    let items = node.object.get(list).and_then(Value::as_array).unwrap_or_default();
    let first = items.first().map(text).unwrap_or_default();
    let own = node.text(single).to_owned();
    match (own.is_empty(), first.is_empty()) {
        (true, false) => node.set(single, first.into()),
        (false, _) if own != first => node.set(list, Value::Array(vec![item(&own)])),
        _ => {}
    }
}

/// Sets kind and version of the claim templates of a stateful set, as in stored objects.
pub(super) fn stateful_set_spec(spec: &mut TypedObject, _: &'static Naming) {
    spec.each("volumeClaimTemplates", |mut claim| {
        claim.set("kind", "PersistentVolumeClaim".into());
        claim.set("apiVersion", "v1".into());
    });
}

/// Normalizes the rollback annotation of a deployment.
pub(super) fn deployment(deployment: &mut TypedObject, _: &'static Naming) {
    let Some(mut metadata) = deployment.child("metadata") else { return };
    whole_number(&mut metadata, ROLLBACK_REVISION);
}

/// Sets the template generation of a daemon set to 0 if it is absent.
pub(super) fn daemon_set(set: &mut TypedObject, _: &'static Naming) {
    let Some(mut metadata) = set.child_or_new("metadata") else { return };
    if metadata.map("annotations").is_some_and(|annotations| annotations.contains(TEMPLATE_GENERATION)) {
        return whole_number(&mut metadata, TEMPLATE_GENERATION);
    }
    let annotations = metadata.map("annotations").cloned().unwrap_or_default();
    let mut members = annotations.into_members();
    let at = members.partition_point(|(name, _)| &**name < TEMPLATE_GENERATION);
    members.insert(at, (Key::Borrowed(TEMPLATE_GENERATION), "0".into()));
    metadata.set("annotations", members.into_iter().collect::<Object>().into());
}

/// Normalizes a number in an annotation. Removes an empty text and keeps a text that is not a number.
fn whole_number(metadata: &mut TypedObject, name: &str) {
    let annotations = metadata.object.get_mut("annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    let Some(text) = annotations.get(name).and_then(Value::as_str).map(str::to_owned) else { return };
    if text.is_empty() {
        annotations.remove(name);
        if annotations.is_empty() {
            metadata.object.remove("annotations");
        }
    } else if let Ok(number) = text.parse::<i64>() {
        annotations.insert(name.to_owned(), number.to_string().into());
    }
}
