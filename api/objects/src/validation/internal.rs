//! Representation of structs in error messages: JSON of the reference server's internal types, with the names
//! in the server's source code, every member, and `null` for absent values.
//!
//! ```text
//! (type, value) ─► form ─► the internal form as a tree
//! path in an object ─► kind of the value there ─► form
//! ```
//!
//! The schema tables describe the published types. This module derives the internal types from the published
//! types: the first word of a member name is capitalized, and members keep their published order. [`RENAMED`]
//! and [`ORDERED`] list the exceptions. The structs of the common metadata have no separate internal types,
//! and errors print these structs in the stored form. A value that already has the internal form, or does not have the
//! kind of its path, stays unchanged.

use super::StructView;
use types::schema::handle::Ref;
use types::schema::table::{Field, Kind, Message};
use values::json::{Object, Value};

/// First words of member names that are not simply capitalized in the internal name. Most are abbreviations.
const ABBREVIATIONS: &[(&str, &str)] = &[
    ("api", "API"),
    ("aws", "AWS"),
    ("ca", "CA"),
    ("cel", "CEL"),
    ("cephfs", "CephFS"),
    ("cidr", "CIDR"),
    ("cidrs", "CIDRs"),
    ("csi", "CSI"),
    ("dns", "DNS"),
    ("fc", "FC"),
    ("fs", "FS"),
    ("gce", "GCE"),
    ("gmsa", "GMSA"),
    ("grpc", "GRPC"),
    ("http", "HTTP"),
    ("id", "ID"),
    ("ip", "IP"),
    ("ips", "IPs"),
    ("iqn", "IQN"),
    ("iscsi", "ISCSI"),
    ("nfs", "NFS"),
    ("os", "OS"),
    ("pd", "PD"),
    ("rbd", "RBD"),
    ("se", "SE"),
    ("ssl", "SSL"),
    ("storageos", "StorageOS"),
    ("tcp", "TCP"),
    ("tty", "TTY"),
    ("uid", "UID"),
    ("uri", "URI"),
    ("url", "URL"),
    ("wwids", "WWIDs"),
];

/// Internal names that cannot be derived from the published names: prefix of the type name, member, internal
/// name.
const RENAMED: &[(&str, &str, &str)] = &[
    ("AzureDiskVolumeSource", "diskURI", "DataDiskURI"),
    ("Glusterfs", "endpoints", "EndpointsName"),
    ("ISCSI", "chapAuthDiscovery", "DiscoveryCHAPAuth"),
    ("ISCSI", "chapAuthSession", "SessionCHAPAuth"),
    ("DeviceAttribute", "int", "IntValue"),
    ("DeviceAttribute", "bool", "BoolValue"),
    ("DeviceAttribute", "string", "StringValue"),
    ("DeviceAttribute", "version", "VersionValue"),
    ("DeviceAttribute", "ints", "IntValues"),
    ("DeviceAttribute", "bools", "BoolValues"),
    ("DeviceAttribute", "strings", "StringValues"),
    ("DeviceAttribute", "versions", "VersionValues"),
    ("Flocker", "datasetUUID", "DatasetUUID"),
    ("PhotonPersistentDisk", "pdID", "PdID"),
    ("RBD", "monitors", "CephMonitors"),
    ("RBD", "image", "RBDImage"),
    ("RBD", "pool", "RBDPool"),
    ("RBD", "user", "RadosUser"),
];

/// Types whose internal order of members differs. The listed members come first, in this order, and the other
/// members follow.
const ORDERED: &[(&str, &[&str])] = &[
    (
        "PodSpec",
        &[
            "volumes",
            "initContainers",
            "containers",
            "ephemeralContainers",
            "restartPolicy",
            "terminationGracePeriodSeconds",
            "activeDeadlineSeconds",
            "dnsPolicy",
            "nodeSelector",
            "serviceAccountName",
            "automountServiceAccountToken",
            "nodeName",
            "securityContext",
            "imagePullSecrets",
            "hostname",
            "subdomain",
            "setHostnameAsFQDN",
            "affinity",
            "schedulerName",
            "tolerations",
            "hostAliases",
            "priorityClassName",
            "priority",
            "preemptionPolicy",
            "dnsConfig",
            "readinessGates",
            "runtimeClassName",
            "overhead",
            "enableServiceLinks",
            "topologySpreadConstraints",
            "os",
            "schedulingGates",
            "resourceClaims",
        ],
    ),
    (
        "Volume",
        &[
            "name",
            "hostPath",
            "emptyDir",
            "gcePersistentDisk",
            "awsElasticBlockStore",
            "gitRepo",
            "secret",
            "nfs",
            "iscsi",
            "glusterfs",
            "persistentVolumeClaim",
            "rbd",
            "quobyte",
            "flexVolume",
            "cinder",
            "cephfs",
            "flocker",
            "downwardAPI",
            "fc",
            "azureFile",
            "configMap",
            "vsphereVolume",
            "azureDisk",
            "photonPersistentDisk",
            "projected",
            "portworxVolume",
            "scaleIO",
            "storageos",
        ],
    ),
    (
        "PersistentVolumeSpec",
        &[
            "capacity",
            "gcePersistentDisk",
            "awsElasticBlockStore",
            "hostPath",
            "glusterfs",
            "nfs",
            "rbd",
            "quobyte",
            "iscsi",
            "flexVolume",
            "cinder",
            "cephfs",
            "fc",
            "flocker",
            "azureFile",
            "vsphereVolume",
            "azureDisk",
            "photonPersistentDisk",
            "portworxVolume",
            "scaleIO",
            "local",
            "storageos",
            "csi",
        ],
    ),
    (
        "PodSecurityContext",
        &[
            "seLinuxOptions",
            "windowsOptions",
            "runAsUser",
            "runAsGroup",
            "runAsNonRoot",
            "supplementalGroups",
            "supplementalGroupsPolicy",
            "fsGroup",
            "fsGroupChangePolicy",
        ],
    ),
    ("ServiceAccountTokenProjection", &["audience", "expirationSeconds", "path"]),
];

/// Members of a volume's specification that are volume sources.
pub(super) const VOLUME_SOURCES: [&str; 22] = [
    "GCEPersistentDisk",
    "AWSElasticBlockStore",
    "HostPath",
    "Glusterfs",
    "NFS",
    "RBD",
    "Quobyte",
    "ISCSI",
    "FlexVolume",
    "Cinder",
    "CephFS",
    "FC",
    "Flocker",
    "AzureFile",
    "VsphereVolume",
    "AzureDisk",
    "PhotonPersistentDisk",
    "PortworxVolume",
    "ScaleIO",
    "Local",
    "StorageOS",
    "CSI",
];

/// Members of a pod's specification that the internal type contains in its security context.
const HOST: [(&str, &str, bool); 5] = [
    ("hostNetwork", "HostNetwork", false),
    ("hostPID", "HostPID", false),
    ("hostIPC", "HostIPC", false),
    ("shareProcessNamespace", "ShareProcessNamespace", true),
    ("hostUsers", "HostUsers", true),
];

/// Returns the value at `path` of an object in its internal form.
pub(super) fn at(message: &Message, path: &str, value: Value) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) => match kind_at(message, path) {
            Some(kind) => of_kind(&kind, Some(&value), true),
            None => value,
        },
        other => other,
    }
}

/// Returns a member of an object in its internal form. An absent member is its zero value.
pub(super) fn member(message: &Message, object: StructView, name: &str) -> Value {
    message.field(name).map_or(Value::Null, |field| of_kind(&field.kind, object.get(name), field.pointer))
}

/// Returns the zero value at a dotted path of a struct.
pub(super) fn absent(message: &Message, path: &str) -> Value {
    match path.split_once('.') {
        Some((step, rest)) => {
            let inner = message.field(step).and_then(|field| field.kind.message());
            inner.map_or(Value::Null, |inner| absent(inner, rest))
        }
        None => message.field(path).map_or(Value::Null, |field| of_kind(&field.kind, None, field.pointer)),
    }
}

/// Returns the kind of the value at a path. Some errors have unusual paths. Therefore the path may also start
/// inside the specification, or contain another first step before a member of the specification.
fn kind_at(message: &Message, path: &str) -> Option<Kind> {
    let steps = || path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let below = |message: &Message, from| kind_below(message, steps().skip(from));
    below(message, 0).or_else(|| {
        let spec = spec_of(message)?;
        below(spec, 0).or_else(|| below(spec, 1))
    })
}

fn kind_below<'p>(message: &Message, mut steps: impl Iterator<Item = &'p str>) -> Option<Kind> {
    let mut kind = message.field(steps.next()?)?.kind.clone();
    for step in steps {
        kind = match kind {
            Kind::Message(message) => message.field(step)?.kind.clone(),
            Kind::List(list) => list.item.kind.clone(),
            Kind::Map(map) => map.value.kind.clone(),
            _ => return None,
        };
    }
    Some(kind)
}

fn spec_of(message: &Message) -> Option<&Ref<Message>> {
    message.field("spec")?.kind.message()
}

/// Returns the internal form of a value of a kind. An absent value becomes the zero value of its Go type.
fn of_kind(kind: &Kind, value: Option<&Value>, pointer: bool) -> Value {
    let value = value.filter(|value| !value.is_null());
    match (kind, value) {
        (Kind::List(list), Some(Value::Array(items))) => {
            Value::Array(items.iter().map(|item| of_kind(&list.item.kind, Some(item), false)).collect())
        }
        (Kind::Map(map), Some(Value::Object(members))) => {
            let member = |(name, value): (&str, &Value)| {
                (name.to_owned().into(), of_kind(&map.value.kind, Some(value), false))
            };
            Value::Object(members.iter().map(member).collect())
        }
        (Kind::Message(message), Some(Value::Object(object))) if is_internal(message, object) => {
            Value::Object(form(message, object))
        }
        (_, Some(value)) => value.clone(),
        (Kind::Message(message), None) if !pointer && is_internal(message, &Object::new()) => {
            Value::Object(form(message, &Object::new()))
        }
        (Kind::Message(_), None) if !pointer => Object::new().into(),
        (_, None) if pointer => Value::Null,
        (Kind::Bool, None) => false.into(),
        (Kind::Int32 | Kind::Int64 | Kind::Double, None) => Value::Int(0),
        (Kind::IntOrString, None) => Value::Int(0),
        (Kind::String, None) => "".into(),
        (Kind::Quantity, None) => "0".into(),
        (_, None) => Value::Null,
    }
}

/// Returns whether a struct has an internal form and the object does not have that form yet.
fn is_internal(message: &Message, object: &Object) -> bool {
    let shared = message.package.starts_with("apimachinery") || message.package.starts_with("apiextensions");
    !message.custom && !shared && object.iter().all(|(name, _)| message.field(name).is_some())
}

/// Returns the internal form of a struct.
pub(super) fn form(message: &Message, object: &Object) -> Object {
    let mut out = Object::new();
    let order = ORDERED.iter().find(|(name, _)| *name == message.name).map_or(&[][..], |(_, order)| *order);
    for name in order {
        if let Some(field) = message.field(name) {
            insert_field(&mut out, message, field, object);
        }
    }
    for field in message.fields.iter().filter(|field| !order.contains(&&*field.name)) {
        insert_field(&mut out, message, field, object);
    }
    out
}

/// Inserts the internal form of a member of `object` into `out`.
fn insert_field(out: &mut Object, message: &Message, field: &Field, object: &Object) {
    let value = object.get(&field.name);
    if message.name == "PodSpec" {
        match &*field.name {
            // `serviceAccount` is the older name of `serviceAccountName`. The next arm handles members that belong to
            // the security context.
            "serviceAccount" => return,
            name if HOST.iter().any(|(host, ..)| *host == name) => return,
            "securityContext" => {
                out.insert("SecurityContext", security_context(field, object));
                return;
            }
            _ => {}
        }
    }
    match &field.kind {
        // Metadata is an embedded Go struct, so its members become members of the struct that contains it.
        Kind::Message(inner) if field.name == "metadata" && inner.name == "ObjectMeta" => {
            for (name, value) in value.and_then(Value::as_object).into_iter().flat_map(Object::iter) {
                out.insert(name.to_owned(), value.clone());
            }
        }
        kind => {
            out.insert(name(message, field), of_kind(kind, value, field.pointer));
        }
    }
}

/// Returns the internal security context of a pod. The context always exists, and contains the settings of
/// the pod about the host.
fn security_context(field: &Field, spec: &Object) -> Value {
    let mut out = Object::new();
    for (name, internal, pointer) in HOST {
        let absent = if pointer { Value::Null } else { false.into() };
        out.insert(internal, spec.get(name).cloned().unwrap_or(absent));
    }
    if let Value::Object(own) = of_kind(&field.kind, spec.get("securityContext"), false) {
        for (name, value) in own.into_members() {
            out.insert(name, value);
        }
    }
    out.into()
}

/// Returns the internal name of a member.
fn name(message: &Message, field: &Field) -> String {
    let name = &*field.name;
    let renamed = RENAMED.iter().find(|(stem, member, _)| message.name.starts_with(stem) && *member == name);
    if let Some((.., internal)) = renamed {
        return (*internal).to_owned();
    }
    let first = name.len() - name.trim_start_matches(|c: char| c.is_ascii_lowercase()).len();
    let (word, rest) = name.split_at(first);
    match ABBREVIATIONS.iter().find(|(abbreviation, _)| *abbreviation == word) {
        Some((_, internal)) => format!("{internal}{rest}"),
        None => {
            let mut letters = word.chars();
            let head = letters.next().map(|letter| letter.to_ascii_uppercase());
            head.into_iter().chain(letters).chain(rest.chars()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::schema::builtin;
    use values::json;
    use values::naming::KUBERNETES;

    #[test]
    fn structs_in_error_messages_have_their_internal_form() {
        for (group, plural, path, value, want) in [
            (
                "apps",
                "statefulsets",
                "spec.updateStrategy",
                r#"{"type":"Never"}"#,
                r#"{"Type":"Never","RollingUpdate":null}"#,
            ),
            (
                "",
                "pods",
                "spec.containers[0].securityContext",
                r#"{"seLinuxOptions":{"user":"u"},"privileged":true}"#,
                r#"{"Capabilities":null,"Privileged":true,"SELinuxOptions":{"User":"u","Role":"","Type":"","Level":""},"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":null,"ProcMount":null,"SeccompProfile":null,"AppArmorProfile":null}"#,
            ),
            // Types without an internal form, maps, and values that do not have the kind of their path.
            (
                "apps",
                "statefulsets",
                "spec.selector",
                r#"{"matchLabels":{"a":"b"}}"#,
                r#"{"matchLabels":{"a":"b"}}"#,
            ),
            ("", "pods", "spec.nodeSelector", r#"{"aB":"c"}"#, r#"{"aB":"c"}"#),
            ("", "pods", "spec.hostname", r#"{"aB":"c"}"#, r#"{"aB":"c"}"#),
            // A path without `spec`.
            ("", "persistentvolumes", "nodeAffinity", "{}", r#"{"Required":null}"#),
            ("rbac.authorization", "roles", "roleRef", r#"{"name":"x"}"#, r#"{"name":"x"}"#),
        ] {
            let groups = builtin::groups(&KUBERNETES).iter().filter(|one| one.stem == group);
            let mut tables =
                groups.flat_map(|group| group.versions.iter()).flat_map(|version| version.resources.iter());
            let table = tables.find(|table| table.plural == plural).unwrap();
            let shown = at(&table.message, path, json::parse(value.as_bytes()).unwrap());
            let mut text = Vec::new();
            json::write(&shown, &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), want, "{plural} {path}");
        }
    }
}
