//! Builds the bootstrap objects from the bundled files.
//!
//! The files contain only the members that differ between objects. This module adds the members that all
//! objects of a file share (kind, bootstrapping label, autoupdate annotation, the binding of a controller's
//! role to its account). In the files, vendor-specific parts of names are placeholders, which the naming
//! profile fills.

use super::ObjectTarget;
use values::json::{Object, Value, parse};
use values::naming::Naming;

/// Returns the annotation that excludes a role or binding from reconciliation if its value is `"false"`.
pub fn autoupdate_annotation(naming: &Naming) -> String {
    format!("rbac.authorization.{}/autoupdate", naming.domain)
}

/// Returns the annotation of a suggested flow control object that says whether the server keeps the spec
/// equal to the bundled spec.
pub fn autoupdate_spec_annotation(naming: &Naming) -> String {
    format!("apf.{}/autoupdate-spec", naming.domain)
}

/// The rule for the comparison of a bootstrap object with the existing object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A namespace, which only has to exist.
    Namespace,
    /// A priority class, which only has to exist.
    PriorityClass,
    /// A role or cluster role, which must have at least the bundled rules.
    Role,
    /// A role binding or cluster role binding, which must refer to the bundled role and have at least the
    /// bundled subjects.
    Binding,
    /// A flow control object whose spec is always restored.
    MandatoryFlowControl,
    /// A flow control object whose spec is restored unless the annotation of the object forbids the restore.
    SuggestedFlowControl,
}

/// A bootstrap object in its wanted state.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The identity of the object.
    pub target: ObjectTarget,
    /// The rule for the comparison.
    pub kind: Kind,
    /// The object that is created if it does not exist.
    pub object: Value,
}

const RBAC: &str = "rbac.authorization";
const FLOW_CONTROL: &str = "flowcontrol.apiserver";

/// Returns all bundled objects except flow control objects, with the names of `naming`. Namespaces come
/// first.
pub fn desired(naming: &Naming) -> Vec<Desired> {
    let mut all = Vec::with_capacity(256);
    all.extend(namespaces(naming));
    for entry in entries(naming, include_str!("../../../bootstrap/priority_classes.json")) {
        all.push(build(naming, PRIORITY_CLASS, &take(entry.clone()), without(entry, &["name"])));
    }
    for entry in entries(naming, include_str!("../../../bootstrap/cluster_roles.json")) {
        all.push(role(naming, CLUSTER_ROLE, entry));
    }
    for entry in entries(naming, include_str!("../../../bootstrap/controllers.json")) {
        let account = entry.str_at(&["name"]).to_owned();
        let name = format!("system:controller:{account}");
        let mut entry = take(entry);
        entry.insert("name", name.clone().into());
        all.push(role(naming, CLUSTER_ROLE, entry.into()));
        let subject = format!("ServiceAccount {}/{account}", naming.system("system"));
        let bound = [
            ("name".into(), name.clone().into()),
            ("role".into(), name.into()),
            ("subjects".into(), Value::Array(vec![subject.into()])),
        ];
        all.push(binding(naming, CLUSTER_ROLE_BINDING, "ClusterRole", &Object::from_iter(bound)));
    }
    for entry in entries(naming, include_str!("../../../bootstrap/cluster_role_bindings.json")) {
        all.push(binding(naming, CLUSTER_ROLE_BINDING, "ClusterRole", &take(entry)));
    }
    for entry in entries(naming, include_str!("../../../bootstrap/roles.json")) {
        all.push(role(naming, ROLE, entry));
    }
    for entry in entries(naming, include_str!("../../../bootstrap/role_bindings.json")) {
        all.push(binding(naming, ROLE_BINDING, "Role", &take(entry)));
    }
    all
}

/// Returns the bundled objects of flow control.
pub fn flow_control(naming: &Naming) -> Vec<Desired> {
    let of = |file, kind_name, resource| {
        let entries = entries(naming, file).into_iter();
        entries.map(move |entry| flow_control_object(naming, kind_name, resource, entry))
    };
    let levels = include_str!("../../../bootstrap/priority_levels.json");
    let schemas = include_str!("../../../bootstrap/flow_schemas.json");
    of(levels, "PriorityLevelConfiguration", "prioritylevelconfigurations")
        .chain(of(schemas, "FlowSchema", "flowschemas"))
        .collect()
}

/// Returns the system namespaces in their wanted state.
pub fn namespaces(naming: &Naming) -> impl Iterator<Item = Desired> {
    let names = entries(naming, include_str!("../../../bootstrap/namespaces.json")).into_iter();
    names.map(|name| {
        build(naming, NAMESPACE, &Object::from_iter([("name".into(), take_text(name).into())]), Object::new())
    })
}

/// The properties that all objects of one kind share.
#[derive(Clone, Copy)]
struct Shape {
    group: &'static str,
    suffixed: bool,
    kind_name: &'static str,
    resource: &'static str,
    kind: Kind,
}

const NAMESPACE: Shape = Shape {
    group: "",
    suffixed: false,
    kind_name: "Namespace",
    resource: "namespaces",
    kind: Kind::Namespace,
};
const PRIORITY_CLASS: Shape = Shape {
    group: "scheduling",
    suffixed: true,
    kind_name: "PriorityClass",
    resource: "priorityclasses",
    kind: Kind::PriorityClass,
};
const CLUSTER_ROLE: Shape = rbac("ClusterRole", "clusterroles", Kind::Role);
const ROLE: Shape = rbac("Role", "roles", Kind::Role);
const CLUSTER_ROLE_BINDING: Shape = rbac("ClusterRoleBinding", "clusterrolebindings", Kind::Binding);
const ROLE_BINDING: Shape = rbac("RoleBinding", "rolebindings", Kind::Binding);

const fn rbac(kind_name: &'static str, resource: &'static str, kind: Kind) -> Shape {
    Shape { group: RBAC, suffixed: true, kind_name, resource, kind }
}

/// Returns the elements of one bundled file.
fn entries(naming: &Naming, file: &str) -> Vec<Value> {
    match parse(naming.fill(file).as_bytes()) {
        Ok(Value::Array(entries)) => entries,
        // The files are part of the program, and the tests read every file.
        _ => unreachable!("a bundled file is not a JSON array"),
    }
}

fn take(value: Value) -> Object {
    match value {
        Value::Object(members) => members,
        _ => Object::new(),
    }
}

fn take_text(value: Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn without(entry: Value, names: &[&str]) -> Object {
    let mut members = take(entry);
    members.retain(|name, _| !names.contains(&name));
    members
}

/// Builds the object of an entry: `name`, `namespace` and `labels` from the entry, then `rest`.
fn build(naming: &Naming, shape: Shape, entry: &Object, rest: Object) -> Desired {
    let text = |member: &str| entry.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, namespace) = (text("name"), text("namespace"));
    let mut metadata = Object::new();
    metadata.push("name", name.clone().into());
    if !namespace.is_empty() {
        metadata.push("namespace", namespace.clone().into());
    }
    let mut labels = entry.get("labels").cloned().map(take).unwrap_or_default();
    if shape.group == RBAC {
        labels.insert(naming.label("bootstrapping"), "rbac-defaults".into());
    }
    if !labels.is_empty() {
        metadata.push("labels", labels.into());
    }
    let annotation = match shape.kind {
        Kind::Role | Kind::Binding => Some(autoupdate_annotation(naming)),
        Kind::MandatoryFlowControl | Kind::SuggestedFlowControl => Some(autoupdate_spec_annotation(naming)),
        Kind::Namespace | Kind::PriorityClass => None,
    };
    if let Some(annotation) = annotation {
        metadata.push("annotations", Object::from_iter([(annotation.into(), "true".into())]).into());
    }
    let mut object = Object::new();
    object.push("kind", shape.kind_name.into());
    object.push("apiVersion", naming.api_version(shape.group, shape.suffixed, "v1").into());
    object.push("metadata", metadata.into());
    for (member, value) in rest.into_members() {
        object.push(member, value);
    }
    let Shape { group, resource, kind, .. } = shape;
    Desired {
        target: ObjectTarget { group, version: "v1", resource, namespace, name },
        kind,
        object: object.into(),
    }
}

fn role(naming: &Naming, shape: Shape, entry: Value) -> Desired {
    let members = take(entry.clone());
    build(naming, shape, &members, without(entry, &["name", "namespace", "labels"]))
}

/// Builds a binding. The entry contains `subjects` in the format `Kind name` or `ServiceAccount
/// namespace/name`.
fn binding(naming: &Naming, shape: Shape, role_kind: &'static str, entry: &Object) -> Desired {
    let group = naming.group(RBAC, true);
    let named = |kind: &str, name: &str| {
        let members = [("apiGroup", group.as_str()), ("kind", kind), ("name", name)];
        Object::from_iter(members.map(|(member, value)| (member.into(), value.into())))
    };
    let subject = |text: &str| match text.split_once(' ') {
        Some(("ServiceAccount", account)) => {
            let (namespace, name) = account.split_once('/').unwrap_or_default();
            let members = [("kind", "ServiceAccount"), ("name", name), ("namespace", namespace)];
            Object::from_iter(members.map(|(member, value)| (member.into(), value.into())))
        }
        Some((kind, name)) => named(kind, name),
        None => Object::new(),
    };
    let subjects = entry.get("subjects").and_then(Value::as_array).unwrap_or_default();
    let subjects: Vec<Value> =
        subjects.iter().filter_map(Value::as_str).map(|text| subject(text).into()).collect();
    let mut rest = Object::new();
    if !subjects.is_empty() {
        rest.push("subjects", Value::Array(subjects));
    }
    let role = entry.get("role").and_then(Value::as_str).unwrap_or_default();
    rest.push("roleRef", named(role_kind, role).into());
    build(naming, shape, entry, rest)
}

fn flow_control_object(
    naming: &Naming,
    kind_name: &'static str,
    resource: &'static str,
    entry: Value,
) -> Desired {
    let mandatory = entry.get("mandatory").and_then(Value::as_bool).unwrap_or(false);
    let kind = if mandatory { Kind::MandatoryFlowControl } else { Kind::SuggestedFlowControl };
    let shape = Shape { group: FLOW_CONTROL, suffixed: true, kind_name, resource, kind };
    let members = take(entry.clone());
    build(naming, shape, &members, without(entry, &["name", "mandatory"]))
}
