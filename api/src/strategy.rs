//! What the server itself does to an object on its way in, beyond defaults: which parts each endpoint may write,
//! generation, and the few kinds that get something set at creation (docs/api/writes.md#preparation-and-validation,
//! #what-an-update-keeps, docs/api/subresources.md).
//!
//! Pure functions from objects to objects; the data (which paths, which kinds count generations) is in the
//! schema tables, the code here is for what tables cannot say.

use auth::User;

use crate::clock;
use crate::json::{Object, Value};
use crate::naming::Naming;
use crate::object::{self, copy_path, meta, same_at, set_meta};
use crate::schema::TEMPLATE_GENERATION;
use crate::schema::registry::Resource;

/// Which way a write came in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Endpoint {
    /// The resource itself.
    Main,
    /// `/status`.
    Status,
    /// `/scale`; only the replica count of the parent is taken.
    Scale,
    /// `/binding` of pods; the verb itself says what changes.
    Binding,
    /// `/finalize` of namespaces.
    Finalize,
    /// `/approval` of certificate signing requests.
    Approval,
    /// `/ephemeralcontainers` of pods.
    EphemeralContainers,
    /// `/resize` of pods.
    Resize,
}

impl Endpoint {
    /// Name of the subresource; empty for the resource itself.
    pub fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Finalize => "finalize",
            Self::Approval => "approval",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
        }
    }

    /// The endpoint of a subresource that reads and writes its parent object; `None` for the others.
    pub fn of_parent(subresource: &str) -> Option<Self> {
        Some(match subresource {
            "" => Self::Main,
            "status" => Self::Status,
            "finalize" => Self::Finalize,
            "approval" => Self::Approval,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            _ => return None,
        })
    }
}

/// Members of `metadata` that a client cannot set at creation.
const SYSTEM_METADATA: [&str; 5] =
    ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// Wipes what only the system may set (docs/api/writes.md#system-metadata).
pub fn wipe_system_metadata(object: &mut Object) {
    let metadata = object::metadata_mut(object);
    metadata.retain(|name, _| !SYSTEM_METADATA.contains(&name));
}

/// Makes a decoded, defaulted object what a new one looks like.
pub fn prepare_create(resource: &Resource, object: &mut Object, user: &User, naming: &Naming) {
    let table = &resource.table;
    if let Some(rules) = &table.status
        && !rules.kept_on_create
    {
        for path in rules.kept_by_main.iter().filter(|path| path.starts_with("status")) {
            copy_path(object, &Object::new(), path);
        }
    }
    if !table.generation_on.is_empty() {
        set_meta(object, "generation", Some(Value::Int(1)));
    }
    let stem = resource.group.strip_suffix(naming.group_suffix).unwrap_or(&resource.group);
    match (stem, &*table.kind) {
        ("", "Namespace") => prepare_namespace(object, naming),
        ("", "Pod") => {
            let qos = qos_class(object);
            let status = object.object_entry("status");
            status.insert("phase", "Pending".into());
            status.insert("qosClass", qos.into());
        }
        ("", "PersistentVolume") => {
            let status = object.object_entry("status");
            status.insert("phase", "Pending".into());
            status.insert("lastPhaseTransitionTime", clock::now().into());
        }
        ("", "PersistentVolumeClaim") => {
            object.object_entry("status").insert("phase", "Pending".into());
        }
        ("apps", "DaemonSet") => {
            let count = template_generation(object).max(1);
            set_template_generation(object, count);
        }
        ("batch", "Job") => prepare_job(object, naming),
        ("certificates", "CertificateSigningRequest") => prepare_signing_request(object, user),
        ("apiregistration", "APIService") => prepare_api_service(object),
        _ => {}
    }
}

/// `spec.finalizers` holds the system's finalizer, the name is a label, and the phase is Active
/// (docs/api/delete.md#namespace-lifecycle).
fn prepare_namespace(object: &mut Object, naming: &Naming) {
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
fn prepare_job(object: &mut Object, naming: &Naming) {
    let uid = meta(object, "uid").to_owned();
    let name = meta(object, "name").to_owned();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let batch = |label: &str| format!("batch.{}", naming.label(label));
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

/// Who asks is taken from the request, not from the body.
fn prepare_signing_request(object: &mut Object, user: &User) {
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
fn prepare_api_service(object: &mut Object) {
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

/// Quality of service of a pod, from its requests and limits as a whole where it has any, else from those of its
/// containers.
pub fn qos_class(pod: &Object) -> &'static str {
    let mut guaranteed = true;
    let mut any = false;
    let spec = pod.get("spec");
    let lists = ["containers", "initContainers"]
        .map(|list| spec.and_then(|spec| spec.get(list)).and_then(Value::as_array).unwrap_or_default());
    let whole = spec.filter(|spec| {
        let lists =
            ["requests", "limits"].map(|list| spec.at(&["resources", list]).and_then(Value::as_object));
        let mut names = lists.into_iter().flatten().flat_map(Object::iter).map(|(name, _)| name);
        names.any(|name| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-"))
    });
    let containers = lists.into_iter().flatten().filter(|_| whole.is_none());
    for container in whole.into_iter().chain(containers) {
        let amounts =
            |which: &str, name: &str| container.at(&["resources", which, name]).filter(|q| !is_zero(q));
        let mut counted = 0;
        for name in ["cpu", "memory"] {
            let (request, limit) = (amounts("requests", name), amounts("limits", name));
            any |= request.is_some() || limit.is_some();
            if limit.is_some() && request.is_none_or(|request| Some(request) == limit) {
                counted += 1;
            }
        }
        guaranteed &= counted == 2;
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn is_zero(quantity: &Value) -> bool {
    match quantity {
        Value::String(text) => {
            text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_matches(['0', '.']).is_empty()
        }
        Value::Int(n) => *n == 0,
        _ => true,
    }
}

/// Makes `new` what an update through `endpoint` may make of `old`, and counts the generation.
pub fn prepare_update(resource: &Resource, endpoint: Endpoint, new: &mut Object, old: &Object) {
    match endpoint {
        Endpoint::Main => {
            for path in resource.table.status.iter().flat_map(|rules| &*rules.kept_by_main) {
                copy_path(new, old, path);
            }
            if resource.group.is_empty() && resource.table.kind == "Namespace" {
                copy_path(new, old, "spec.finalizers");
            }
        }
        Endpoint::Status => {
            for path in resource.table.status.iter().flat_map(|rules| &*rules.kept_by_status) {
                if *path == "metadata" {
                    let mut metadata =
                        old.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
                    metadata.remove("managedFields");
                    if let Some(fields) =
                        new.get("metadata").and_then(|metadata| metadata.get("managedFields"))
                    {
                        metadata.insert("managedFields", fields.clone());
                    }
                    new.insert("metadata", metadata.into());
                } else {
                    copy_path(new, old, path);
                }
            }
            if resource.table.kind == "CertificateSigningRequest" {
                time_conditions(new, old);
            }
        }
        Endpoint::Scale | Endpoint::Binding => {}
        Endpoint::Finalize => only(new, old, &["spec.finalizers"]),
        Endpoint::Approval => {
            only(new, old, &["status.conditions"]);
            time_conditions(new, old);
        }
        Endpoint::EphemeralContainers => only(new, old, &["spec.ephemeralContainers"]),
        Endpoint::Resize => take_resources(new, old),
    }
    if (resource.group.as_str(), &*resource.table.kind) == ("apps", "DaemonSet") {
        let changed = !same_at(new, old, "spec.template");
        set_template_generation(new, template_generation(old).saturating_add(i64::from(changed)));
    }
    restore_system_metadata(new, old);
    let counted = &resource.table.generation_on;
    if !counted.is_empty() {
        let before =
            old.get("metadata").and_then(|metadata| metadata.get("generation")).and_then(Value::as_i64);
        let changed = counted.iter().any(|path| !same_at(new, old, path));
        let generation = before.unwrap_or(0) + i64::from(changed);
        set_meta(new, "generation", (generation > 0).then_some(Value::Int(generation)));
    } else if endpoint != Endpoint::Main {
        copy_path(new, old, "metadata.generation");
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

/// Keeps of `new` only the given paths (and the metadata of `new`); everything else is as in `old`.
fn only(new: &mut Object, old: &Object, paths: &[&'static str]) {
    let mut kept = old.clone();
    for path in paths {
        copy_path(&mut kept, new, path);
    }
    copy_path(&mut kept, new, "metadata.resourceVersion");
    copy_path(&mut kept, new, "metadata.managedFields");
    *new = kept;
}

/// A resize takes the resources of the pod, and the resources and resize policies of its containers. Containers that are not the same ones in the same
/// order are left for validation to refuse.
fn take_resources(new: &mut Object, old: &Object) {
    let mut kept = old.clone();
    for list in ["containers", "initContainers"] {
        let wanted =
            new.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array).unwrap_or_default();
        let Some(spec) = kept.get_mut("spec").and_then(Value::as_object_mut) else { continue };
        let own = spec.get(list).and_then(Value::as_array).unwrap_or_default();
        if !own.iter().map(|item| item.str_at(&["name"])).eq(wanted.iter().map(|item| item.str_at(&["name"])))
        {
            spec.insert(list, Value::Array(wanted.to_vec()));
            continue;
        }
        let own = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, source) in own.zip(wanted) {
            if let (Some(target), Some(source)) = (container.as_object_mut(), source.as_object()) {
                copy_path(target, source, "resources");
                copy_path(target, source, "resizePolicy");
            }
        }
    }
    copy_path(&mut kept, new, "spec.resources");
    copy_path(&mut kept, new, "metadata.resourceVersion");
    copy_path(&mut kept, new, "metadata.managedFields");
    *new = kept;
}

/// What an update may omit but never change: filled in from the stored object
/// (docs/api/writes.md#what-an-update-keeps).
fn restore_system_metadata(new: &mut Object, old: &Object) {
    let old_meta = |name: &str| old.get("metadata").and_then(|metadata| metadata.get(name)).cloned();
    for name in ["creationTimestamp", "selfLink"] {
        set_meta(new, name, old_meta(name));
    }
    if meta(new, "uid").is_empty() {
        set_meta(new, "uid", old_meta("uid"));
    }
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = old_meta(name) {
            set_meta(new, name, Some(value));
        }
    }
}

/// Orders a string map as it is written: by key.
pub fn sort_members(members: &mut Object) {
    members.members_mut().sort_by(|(a, _), (b, _)| a.cmp(b));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        for (containers, want) in [
            (r#"[{}]"#, "BestEffort"),
            (r#"[{"resources":{"requests":{"cpu":"0"}}}]"#, "BestEffort"),
            (r#"[{"resources":{"requests":{"cpu":"1"}}}]"#, "Burstable"),
            (r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]"#, "Guaranteed"),
            (
                r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m","memory":"1Gi"}}}]"#,
                "Burstable",
            ),
            (r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}},{}]"#, "Burstable"),
            // What the pod says as a whole counts.
            (r#"[{}],"resources":{"limits":{"cpu":"1","memory":"1Gi"}}"#, "Guaranteed"),
            (r#"[{}],"resources":{"requests":{"cpu":"1"}}"#, "Burstable"),
            (
                r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}],"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2","memory":"2Gi"}}"#,
                "Burstable",
            ),
            (r#"[{"resources":{"requests":{"cpu":"1"}}}],"resources":{}"#, "Burstable"),
        ] {
            let pod = parse(format!(r#"{{"spec":{{"containers":{containers}}}}}"#).as_bytes()).unwrap();
            assert_eq!(qos_class(pod.as_object().unwrap()), want, "{containers}");
        }
    }
}
