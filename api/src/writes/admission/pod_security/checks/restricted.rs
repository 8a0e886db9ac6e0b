//! The checks that the restricted level adds.

use std::collections::BTreeSet;

use super::baseline::{adding_other_than, is_seccomp_allowed, seccomp_type};
use super::offenders::{Offenders, plural, quoted, quoted_set};
use super::{Pod, Violation, baseline};

/// Types of volumes that a pod may define itself. For other types, the pod must use a persistent volume.
const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Requires that a process cannot gain more privileges than its parent.
pub(super) fn privilege_escalation(pod: Pod<'_>) -> Option<Violation> {
    let offenders =
        Offenders::among(pod, |container| container.context.flag("allowPrivilegeEscalation") != Some(false));
    if offenders.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", offenders.names());
    Violation::new("allowPrivilegeEscalation != false", detail)
}

/// Requires that a process cannot gain more privileges than its parent, except on Windows, which lacks this
/// setting.
pub(super) fn privilege_escalation_on_linux(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { privilege_escalation(pod) }
}

/// Requires that containers drop all capabilities and add only `NET_BIND_SERVICE`, the capability for low
/// ports.
pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let keeping = Offenders::among(pod, |container| {
        !container.context.child("capabilities").texts("drop").any(|name| name == "ALL")
    });
    let (adding, added) = adding_other_than(&["NET_BIND_SERVICE"], pod);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", keeping.names()));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            adding.names(),
            quoted_set(&added)
        ));
    }
    if details.is_empty() { None } else { Violation::new("unrestricted capabilities", details.join("; ")) }
}

/// Applies [`capabilities`], except on Windows, which has no capabilities.
pub(super) fn capabilities_on_linux(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { capabilities(pod) }
}

/// Allows only the types of volumes that every user may use.
pub(super) fn volumes(pod: Pod<'_>) -> Option<Violation> {
    let mut names = Vec::new();
    let mut kinds = BTreeSet::new();
    for volume in pod.spec.structs("volumes") {
        if VOLUMES.iter().any(|kind| volume.has(kind)) {
            continue;
        }
        names.push(volume.text("name"));
        let kind = volume.members().map(|(name, _)| name).find(|name| *name != "name");
        kinds.insert(kind.unwrap_or("unknown"));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural(names.len(), "volume", "volumes"),
        quoted(&names),
        plural(names.len(), "uses", "use"),
        plural(kinds.len(), "restricted volume type", "restricted volume types"),
        quoted_set(&kinds)
    );
    Violation::new("restricted volume types", detail)
}

/// Requires that processes do not run as root; reports settings that allow root and missing settings.
pub(super) fn run_as_non_root(pod: Pod<'_>) -> Option<Violation> {
    let of_pod = pod.context().flag("runAsNonRoot");
    let against = Offenders::in_contexts(pod, |context| context.flag("runAsNonRoot") == Some(false));
    if !against.is_empty() {
        let detail = format!("{} must not set securityContext.runAsNonRoot=false", against.names());
        return Violation::new("runAsNonRoot != true", detail);
    }
    let silent = Offenders::among(pod, |container| {
        of_pod != Some(true) && container.context.flag("runAsNonRoot").is_none()
    });
    if silent.is_empty() {
        return None;
    }
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", silent.names());
    Violation::new("runAsNonRoot != true", detail)
}

/// Requires that processes do not run as root, except in a user namespace.
pub(super) fn run_as_non_root_on_node(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { run_as_non_root(pod) }
}

/// Forbids the user id 0.
pub(super) fn run_as_user(pod: Pod<'_>) -> Option<Violation> {
    let offenders = Offenders::in_contexts(pod, |context| context.int("runAsUser") == Some(0));
    if offenders.is_empty() {
        return None;
    }
    Violation::new("runAsUser=0", format!("{} must not set runAsUser=0", offenders.names()))
}

/// Forbids the user id 0, except in a user namespace.
pub(super) fn run_as_user_on_node(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { run_as_user(pod) }
}

/// Requires a seccomp profile for every container.
pub(super) fn seccomp(pod: Pod<'_>) -> Option<Violation> {
    let against = baseline::seccomp(pod);
    if against.is_some() {
        return against;
    }
    let of_pod = seccomp_type(pod.context()).is_some_and(is_seccomp_allowed);
    let silent = Offenders::among(pod, |container| !of_pod && seccomp_type(container.context).is_none());
    if silent.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        silent.names()
    );
    Violation::new("seccompProfile", detail)
}

/// Applies [`seccomp`], except on Windows, which has no seccomp.
pub(super) fn seccomp_on_linux(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { seccomp(pod) }
}
