//! The checks of the baseline level.

use std::collections::BTreeSet;

use go::quote;

use super::offenders::{Offenders, plural, quoted, quoted_set};
use super::{Pod, Violation};
use objects::validation::StructView;
use values::json::Value;

/// Capabilities that container runtimes grant by default.
const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that a pod can set without an effect on its node. Later releases added more entries.
const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_syncookies",
];
const SYSCTLS_1_27: &[&str] = &["net.ipv4.ip_local_reserved_ports"];
const SYSCTLS_1_29: &[&str] = &[
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
];
const SYSCTLS_1_32: &[&str] = &["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];

/// SELinux types that are allowed for containers.
const SE_LINUX_TYPES: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
const SE_LINUX_ENGINE: &[&str] = &["container_engine_t"];

/// Requires that containers keep the default AppArmor profile.
pub(super) fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let offenders = Offenders::in_contexts(pod, |context| {
        let profile = context.child("appArmorProfile");
        let kind = profile.text("type");
        let fails = profile.is_there() && !matches!(kind, "RuntimeDefault" | "Localhost");
        if fails {
            types.insert(kind);
        }
        fails
    });
    let prefix = format!("container.apparmor.security.beta.{}/", pod.naming.domain);
    let mut annotations: Vec<String> = pod
        .annotations
        .members()
        .map(|(name, value)| (name, value.as_str().unwrap_or_default()))
        .filter(|(name, value)| {
            let allowed = value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/");
            name.starts_with(&prefix) && !allowed
        })
        .map(|(name, value)| format!("{name}={}", quote(value)))
        .collect();
    annotations.sort_unstable();
    let mut places = Vec::new();
    if !offenders.is_empty() {
        places.push(offenders.names());
    }
    if !annotations.is_empty() {
        places.push(plural(annotations.len(), "annotation", "annotations").to_owned());
    }
    if places.is_empty() {
        return None;
    }
    let values: Vec<&str> = types.into_iter().chain(annotations.iter().map(String::as_str)).collect();
    let detail =
        format!("{} must not set AppArmor profile type to {}", places.join(" and "), quoted(&values));
    Violation::new(plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"), detail)
}

/// Allows only the default capabilities.
pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let (offenders, added) = adding_other_than(CAPABILITIES, pod);
    if offenders.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        offenders.names(),
        quoted_set(&added)
    );
    Violation::new("non-default capabilities", detail)
}

/// Returns the containers that add capabilities outside `allowed`, and the capabilities that they add.
pub(super) fn adding_other_than<'p>(allowed: &[&str], pod: Pod<'p>) -> (Offenders<'p>, BTreeSet<&'p str>) {
    let mut added = BTreeSet::new();
    let offenders = Offenders::among(pod, |container| {
        let before = container.context.child("capabilities").texts("add");
        let mut others = before.filter(|name| !allowed.contains(name)).peekable();
        let fails = others.peek().is_some();
        added.extend(others);
        fails
    });
    (offenders, added)
}

/// Forbids pods that use a namespace of the node.
pub(super) fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|name| pod.spec.is_true(name))
        .map(|name| format!("{name}=true"))
        .collect();
    if shared.is_empty() { None } else { Violation::new("host namespaces", shared.join(", ")) }
}

/// Forbids volumes that mount directories of the node.
pub(super) fn host_paths(pod: Pod<'_>) -> Option<Violation> {
    let volumes: Vec<&str> =
        pod.spec.structs("volumes").filter(|v| v.has("hostPath")).map(|v| v.text("name")).collect();
    if volumes.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural(volumes.len(), "volume", "volumes"), quoted(&volumes));
    Violation::new("hostPath volumes", detail)
}

/// Forbids containers that use ports of the node.
pub(super) fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let offenders = Offenders::among(pod, |container| {
        let used = container.body.structs("ports").filter_map(|port| port.int("hostPort"));
        let mut used = used.filter(|port| *port != 0).map(|port| port.to_string()).peekable();
        let fails = used.peek().is_some();
        ports.extend(used);
        fails
    });
    if offenders.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        offenders.names(),
        offenders.plural("uses", "use"),
        plural(ports.len(), "hostPort", "hostPorts"),
        ports.into_iter().collect::<Vec<_>>().join(", ")
    );
    Violation::new("hostPort", detail)
}

/// Requires that probes and lifecycle handlers, which the node agent runs, connect only to the pod.
pub(super) fn probe_hosts(pod: Pod<'_>) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let mut offenders = Offenders::among(pod, |container| {
        let probes =
            ["livenessProbe", "readinessProbe", "startupProbe"].map(|name| container.body.child(name));
        let lifecycle = container.body.child("lifecycle");
        let handlers = ["postStart", "preStop"].map(|name| lifecycle.child(name));
        let actions = probes.into_iter().chain(handlers);
        let named =
            actions.flat_map(|action| ["httpGet", "tcpSocket"].map(|way| action.child(way).text("host")));
        let mut named = named.filter(|host| !host.is_empty()).peekable();
        let fails = named.peek().is_some();
        hosts.extend(named);
        fails
    });
    if offenders.is_empty() {
        return None;
    }
    offenders.containers.sort_unstable();
    offenders.containers.dedup();
    let detail = format!(
        "{} {} {} {}",
        offenders.names(),
        offenders.plural("uses", "use"),
        plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts"),
        quoted_set(&hosts)
    );
    Violation::new("probe or lifecycle host", detail)
}

/// Forbids containers that are privileged.
pub(super) fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let offenders = Offenders::among(pod, |container| container.context.is_true("privileged"));
    if offenders.is_empty() {
        return None;
    }
    Violation::new(
        "privileged",
        format!("{} must not set securityContext.privileged=true", offenders.names()),
    )
}

/// Requires that the default paths in `/proc` stay masked.
pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let offenders = Offenders::among(pod, |container| {
        let kind = container.context.get("procMount").and_then(Value::as_str);
        let other = kind.filter(|kind| *kind != "Default");
        kinds.extend(other);
        other.is_some()
    });
    if offenders.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not set securityContext.procMount to {}", offenders.names(), quoted_set(&kinds));
    Violation::new("procMount", detail)
}

/// Requires that the default paths in `/proc` stay masked, except in a user namespace.
pub(super) fn proc_mount_on_node(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { proc_mount(pod) }
}

/// Requires that a seccomp profile, if set, is the profile of the runtime or a profile on the node. This function reads
/// the annotations that existed before the fields.
pub(super) fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    let of_containers = pod.containers().map(|c| pod.seccomp_annotation_of(c.name));
    let names = std::iter::once(pod.seccomp_annotation()).chain(of_containers);
    let set = names.filter_map(|name| {
        let value = pod.annotations.get(&name)?.as_str()?;
        let allowed =
            matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!allowed).then(|| format!("{name}={}", quote(value)))
    });
    let set: BTreeSet<String> = set.collect();
    if set.is_empty() {
        return None;
    }
    let kind = plural(set.len(), "annotation", "annotations");
    let set: Vec<String> = set.into_iter().collect();
    Violation::new("seccompProfile", format!("forbidden {kind} {}", set.join(", ")))
}

/// Requires that a seccomp profile, if set, is the profile of the runtime or a profile on the node. This function reads
/// the fields.
pub(super) fn seccomp(pod: Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let offenders = Offenders::in_contexts(pod, |context| {
        let other = seccomp_type(context).filter(|kind| !is_seccomp_allowed(kind));
        kinds.extend(other);
        other.is_some()
    });
    if offenders.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.seccompProfile.type to {}",
        offenders.names(),
        quoted_set(&kinds)
    );
    Violation::new("seccompProfile", detail)
}

/// Returns the type of the seccomp profile of a security context, if set.
pub(super) fn seccomp_type(context: StructView<'_>) -> Option<&str> {
    let profile = context.child("seccompProfile");
    profile.is_there().then(|| profile.text("type"))
}

/// Returns whether a profile of this type confines its process.
pub(super) fn is_seccomp_allowed(kind: &str) -> bool {
    matches!(kind, "RuntimeDefault" | "Localhost")
}

/// Allows only SELinux options with a type for containers.
pub(super) fn se_linux(pod: Pod<'_>) -> Option<Violation> {
    se_linux_types(pod, &[])
}

/// Allows only SELinux options with a type for containers or for container engines.
pub(super) fn se_linux_with_engine(pod: Pod<'_>) -> Option<Violation> {
    se_linux_types(pod, SE_LINUX_ENGINE)
}

fn se_linux_types(pod: Pod<'_>, more: &[&str]) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let offenders = Offenders::in_contexts(pod, |context| {
        let options = context.child("seLinuxOptions");
        let kind = options.text("type");
        let bad_type = ![SE_LINUX_TYPES, more].iter().any(|allowed| allowed.contains(&kind));
        if bad_type {
            types.insert(kind);
        }
        let (sets_user, sets_role) = (!options.text("user").is_empty(), !options.text("role").is_empty());
        user |= sets_user;
        role |= sets_role;
        bad_type || sets_user || sets_role
    });
    if offenders.is_empty() {
        return None;
    }
    let mut set = Vec::new();
    if !types.is_empty() {
        set.push(format!("{} {}", plural(types.len(), "type", "types"), quoted_set(&types)));
    }
    if user {
        set.push("user may not be set".to_owned());
    }
    if role {
        set.push("role may not be set".to_owned());
    }
    let detail =
        format!("{} set forbidden securityContext.seLinuxOptions: {}", offenders.names(), set.join("; "));
    Violation::new("seLinuxOptions", detail)
}

/// Allows only sysctls that do not affect the node.
pub(super) fn sysctls(pod: Pod<'_>) -> Option<Violation> {
    sysctls_but(pod, &[SYSCTLS])
}

/// Allows only sysctls in the list of release 1.27.
pub(super) fn sysctls_1_27(pod: Pod<'_>) -> Option<Violation> {
    sysctls_but(pod, &[SYSCTLS, SYSCTLS_1_27])
}

/// Allows only sysctls in the list of release 1.29.
pub(super) fn sysctls_1_29(pod: Pod<'_>) -> Option<Violation> {
    sysctls_but(pod, &[SYSCTLS, SYSCTLS_1_27, SYSCTLS_1_29])
}

/// Allows only sysctls in the list of release 1.32.
pub(super) fn sysctls_1_32(pod: Pod<'_>) -> Option<Violation> {
    sysctls_but(pod, &[SYSCTLS, SYSCTLS_1_27, SYSCTLS_1_29, SYSCTLS_1_32])
}

fn sysctls_but(pod: Pod<'_>, allowed: &[&[&str]]) -> Option<Violation> {
    let set = pod.context().structs("sysctls").map(|sysctl| sysctl.text("name"));
    let others: Vec<&str> = set.filter(|name| !allowed.iter().any(|list| list.contains(name))).collect();
    if others.is_empty() { None } else { Violation::new("forbidden sysctls", others.join(", ")) }
}

/// Forbids containers that run as host processes on a Windows node.
pub(super) fn host_process(pod: Pod<'_>) -> Option<Violation> {
    let offenders =
        Offenders::in_contexts(pod, |context| context.child("windowsOptions").is_true("hostProcess"));
    if offenders.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not set securityContext.windowsOptions.hostProcess=true", offenders.names());
    Violation::new("hostProcess", detail)
}
