//! How the reference server prints structs in errors: as JSON of its internal types, which have the names of its source,
//! every member, and `null` where nothing is.
//!
//! ```text
//! (type, value) ─► form ─► the internal form as a tree
//! path in an object ─► kind of the value there ─► form
//! ```
//!
//! The tables describe the published types. The internal ones follow from them: a member has the published name with its
//! first word in upper case, and the members stand in the published order, except where [`RENAMED`] and [`ORDERED`] say
//! otherwise. Structs of the common metadata are the same type inside and outside, and are printed as they are stored.
//! Values that already are in internal form, and values of another kind than the path has, stay as they are.

use super::View;
use crate::types::schema::handle::Ref;
use crate::types::schema::table::{Field, Kind, Message};
use crate::values::json::{Object, Value};

/// First words of member names that are abbreviations, and those whose internal name has another form.
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

/// Internal names that do not follow from the published ones: type (by the start of its name), member, internal name.
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

/// Types whose members stand in another order inside: these first, in this order, then the rest.
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

/// The members of a volume's specification that say where its data lies.
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

/// Members of a pod's specification that its security context has inside.
const HOST: [(&str, &str, bool); 5] = [
    ("hostNetwork", "HostNetwork", false),
    ("hostPID", "HostPID", false),
    ("hostIPC", "HostIPC", false),
    ("shareProcessNamespace", "ShareProcessNamespace", true),
    ("hostUsers", "HostUsers", true),
];

/// Returns the value at `path` of an object as errors print it.
pub(super) fn at(message: &Message, path: &str, value: Value) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) => match kind_at(message, path) {
            Some(kind) => of_kind(&kind, Some(&value), true),
            None => value,
        },
        other => other,
    }
}

/// Returns a member of an object as errors print it; an absent one is its zero value.
pub(super) fn member(message: &Message, object: View, name: &str) -> Value {
    message.field(name).map_or(Value::Null, |field| of_kind(&field.kind, object.get(name), field.pointer))
}

/// What a struct holds at a dotted path where nothing was given.
pub(super) fn absent(message: &Message, path: &str) -> Value {
    match path.split_once('.') {
        Some((step, rest)) => {
            let inner = message.field(step).and_then(|field| field.kind.message());
            inner.map_or(Value::Null, |inner| absent(inner, rest))
        }
        None => message.field(path).map_or(Value::Null, |field| of_kind(&field.kind, None, field.pointer)),
    }
}

/// Returns the kind of the value at a path; a path that starts inside the specification is found there, and
/// so are members of it that errors place below the metadata.
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

/// Returns a value of a kind; an absent one is the zero value that a struct holds.
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

/// Returns whether a struct has an internal form that is not yet there.
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
            put(&mut out, message, field, object);
        }
    }
    for field in message.fields.iter().filter(|field| !order.contains(&&*field.name)) {
        put(&mut out, message, field, object);
    }
    out
}

fn put(out: &mut Object, message: &Message, field: &Field, object: &Object) {
    let value = object.get(&field.name);
    if message.name == "PodSpec" {
        match &*field.name {
            // An older name of the account, and members that lie in the security context.
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
        // Metadata is embedded: its members stand among those of the struct.
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

/// Returns the security context of a pod, which inside is always there and has what the pod takes from its
/// node.
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
    use crate::types::schema::builtin;
    use crate::values::json;
    use crate::values::naming::KUBERNETES;

    #[test]
    fn structs_are_printed_in_the_internal_form_of_their_type() {
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
            // Types that are the same inside, maps, and what is no value of the kind that the path has.
            (
                "apps",
                "statefulsets",
                "spec.selector",
                r#"{"matchLabels":{"a":"b"}}"#,
                r#"{"matchLabels":{"a":"b"}}"#,
            ),
            ("", "pods", "spec.nodeSelector", r#"{"aB":"c"}"#, r#"{"aB":"c"}"#),
            ("", "pods", "spec.hostname", r#"{"aB":"c"}"#, r#"{"aB":"c"}"#),
            // A path that leaves the specification out.
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
