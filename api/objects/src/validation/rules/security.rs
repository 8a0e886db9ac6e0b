//! Rules for the security contexts of pods and containers.

use super::super::path::FieldPath;
use super::super::{Validator, scalar_formats};
use super::StructView;
use super::common::SeenStrings;
use types::schema::table::ValueFormat;
use values::field::FieldError;
use values::json::Value;

const SYSCTL_MAX: usize = 253;
/// Maximum length of a path on a node.
const PROFILE_MAX: usize = 4095;
const CREDENTIAL_KIB_MAX: usize = 64;
const USER_DOMAIN_MAX: usize = 256;
const USER_MAX: usize = 104;

/// Checks the security context of a container.
pub(super) fn container(validator: &mut Validator, path: &FieldPath, context: StructView) {
    if context.is_true("privileged") && !validator.allows_privileged {
        validator.forbidden(path.child("privileged"), "disallowed by cluster policy");
    }
    if context.flag("allowPrivilegeEscalation") != Some(false) {
        return;
    }
    if context.is_true("privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        validator.invalid(path, context.to_value(), detail);
    }
    if context.child("capabilities").texts("add").any(|name| name == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        validator.invalid(path, context.to_value(), detail);
    }
}

/// Checks the security context of a pod.
pub(super) fn pod(validator: &mut Validator, path: &FieldPath, context: StructView) {
    let sysctls = path.child("sysctls");
    let mut seen = SeenStrings::new();
    for (at, sysctl) in context.structs("sysctls").enumerate() {
        if validator.has_enough() {
            break;
        }
        let name = sysctl.text("name");
        let place = sysctls.index(at);
        if name.is_empty() {
            continue; // the schema refuses it
        }
        if !is_sysctl(name) {
            let segment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
            let detail = format!(
                "must have at most {SYSCTL_MAX} characters and match regex ^({segment}[\\./])*{segment}$"
            );
            validator.invalid(place.child("name"), name, detail);
        } else if !seen.insert(name) {
            validator.duplicate(place.child("name"), name);
        }
    }
    let had_policy = validator.before(path).has("seLinuxChangePolicy");
    if let Some(policy) = context.get("seLinuxChangePolicy").and_then(Value::as_str) {
        // The feature gate SELinuxMount is disabled. Therefore only an object that already has a policy may
        // use the other policy.
        let supported: &[&str] = if had_policy { &["MountOption", "Recursive"] } else { &["Recursive"] };
        if !supported.contains(&policy) {
            validator.not_supported(path.child("seLinuxChangePolicy"), policy, supported);
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_segment = |segment: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        let bytes = segment.as_bytes();
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
    };
    name.len() <= SYSCTL_MAX && name.split(['.', '/']).all(is_segment)
}

/// Checks a seccomp profile. The path of the profile on the node is required for one profile type and
/// forbidden for the other types.
pub(super) fn seccomp(validator: &mut Validator, path: &FieldPath, profile: StructView) {
    let place = path.child("localhostProfile");
    match (profile.text("type"), profile.get("localhostProfile")) {
        ("Localhost", None) => validator.required(place, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(value)) => {
            scalar_formats::value(ValueFormat::Descending, &place, value, &mut validator.errors)
        }
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            validator.invalid_from(place, &path.to_string(), profile.to_value(), detail);
        }
        (_, None) => {}
    }
}

/// Checks an AppArmor profile. The rules for AppArmor profiles and for seccomp profiles are the same, but the
/// messages differ.
pub(super) fn app_armor(validator: &mut Validator, path: &FieldPath, profile: StructView) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    let place = path.child("localhostProfile");
    let given = profile.get("localhostProfile").and_then(Value::as_str);
    match (profile.text("type"), given) {
        ("Localhost", None) => validator.required(place, MISSING),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                validator.invalid(place, name, "must not be padded with whitespace");
            } else if name.is_empty() {
                validator.required(place, MISSING);
            }
            if name.len() > PROFILE_MAX {
                validator.errors.push(FieldError::too_long(place, PROFILE_MAX));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            validator.invalid(place, name, "can only be set when AppArmor type is Localhost");
        }
        _ => {}
    }
}

/// Checks the Windows options of a container.
pub(super) fn windows(validator: &mut Validator, path: &FieldPath, options: StructView) {
    if let Some(credential) = options.get("gmsaCredentialSpec").and_then(Value::as_str) {
        let place = path.child("gmsaCredentialSpec");
        if credential.is_empty() {
            validator.invalid(place, credential, "gmsaCredentialSpec cannot be an empty string");
        } else if credential.len() > CREDENTIAL_KIB_MAX * 1024 {
            let detail = format!("gmsaCredentialSpec size must be under {CREDENTIAL_KIB_MAX} KiB");
            validator.invalid(place, credential, detail);
        }
    }
    let Some(name) = options.get("runAsUserName").and_then(Value::as_str) else { return };
    let place = path.child("runAsUserName");
    for fault in user_faults(name) {
        validator.invalid(place, name, fault);
    }
}

fn user_faults(name: &str) -> Vec<String> {
    let one = |text: &str| vec![format!("runAsUserName {text}")];
    if name.is_empty() {
        return one("cannot be an empty string");
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return one("cannot contain control characters");
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => return one("cannot contain more than one backslash"),
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut faults = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= USER_DOMAIN_MAX {
            faults.push(format!("runAsUserName's Domain length must be under {USER_DOMAIN_MAX} characters"));
        }
        if !is_net_bios(domain) && !is_windows_domain(domain) {
            faults.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
        }
    }
    if user.is_empty() {
        faults.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > USER_MAX {
        faults.push(format!("runAsUserName's User length must not be longer than {USER_MAX} characters"));
    }
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        faults.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let detail = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        faults.push(detail.to_owned());
    }
    faults
}

fn is_net_bios(domain: &str) -> bool {
    let len = domain.chars().count();
    (1..=15).contains(&len)
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_windows_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

/// Checks that the operating system of the pod supports the stop signal of a container.
pub(super) fn stop_signal(
    validator: &mut Validator,
    path: &FieldPath,
    lifecycle: StructView,
    spec: StructView,
) {
    let signal = lifecycle.text("stopSignal");
    match spec.child("os").text("name") {
        "" => validator.forbidden(path, "may not be set for containers with empty `spec.os.name`"),
        "windows" if !matches!(signal, "SIGTERM" | "SIGKILL") => {
            validator.not_supported(path, signal, &["SIGKILL", "SIGTERM"]);
        }
        _ => {}
    }
}

/// Checks a pod with its own user namespace. Such a pod must not use other namespaces of the node, or block
/// devices. Block devices of a stored pod are accepted, because earlier releases accepted block devices.
fn own_users(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    const DETAIL: &str = "when `hostUsers` is false";
    for (name, place) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.is_true(name) {
            validator.forbidden(path.child(place), DETAIL);
        }
    }
    let has_devices = |container: StructView| !container.items("volumeDevices").is_empty();
    let before = validator.before(path);
    let mut is_kept = false;
    if before.flag("hostUsers") == Some(false) {
        each_container(before, path, |_, container| is_kept |= has_devices(container));
    }
    each_container(spec, path, |place, container| {
        if !is_kept && has_devices(container) {
            validator.forbidden(place.child("volumeDevices"), DETAIL);
        }
    });
}

/// Checks fields that must agree between a pod and its containers.
pub(super) fn whole_pod(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let context = spec.child("securityContext");
    let context_path = path.child("securityContext");
    if spec.is_true("hostPID") && spec.is_true("shareProcessNamespace") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        validator.invalid(context_path.child("shareProcessNamespace"), true, detail);
    }
    if spec.flag("hostUsers") == Some(false) {
        own_users(validator, path, spec);
    }
    host_sysctls(validator, &context_path.child("sysctls"), spec);
    host_processes(validator, path, spec);
    match spec.child("os").text("name") {
        "" => {}
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            refuse_members(validator, &context_path, context, &["windowsOptions"], detail);
            each_container(spec, path, |place, container| {
                let context = container.child("securityContext");
                refuse_members(
                    validator,
                    &place.child("securityContext"),
                    context,
                    &["windowsOptions"],
                    detail,
                );
            });
        }
        "windows" => refuse_linux_settings(validator, path, spec),
        other => validator.not_supported(path.child("os"), other, &["linux", "windows"]),
    }
}

fn refuse_members(
    validator: &mut Validator,
    path: &FieldPath,
    context: StructView,
    names: &[&str],
    detail: &str,
) {
    for name in names.iter().filter(|name| context.has(name)) {
        validator.forbidden(path.child(name), detail);
    }
}

fn each_container<'v>(
    spec: StructView<'v>,
    path: &FieldPath,
    mut visit: impl FnMut(&FieldPath, StructView<'v>),
) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list_path = path.child(list);
        for (at, container) in spec.structs(list).enumerate() {
            visit(&list_path.index(at), container);
        }
    }
}

fn refuse_linux_settings(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    const DETAIL: &str = "cannot be set for a windows pod";
    const OF_PODS: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const OF_CONTAINERS: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    refuse_members(validator, path, spec, &["hostUsers", "shareProcessNamespace"], DETAIL);
    for name in ["hostPID", "hostIPC"] {
        if spec.is_true(name) {
            validator.forbidden(path.child(name), DETAIL);
        }
    }
    let context = path.child("securityContext");
    refuse_members(validator, &context, spec.child("securityContext"), &OF_PODS, DETAIL);
    each_container(spec, path, |place, container| {
        let context = container.child("securityContext");
        refuse_members(validator, &place.child("securityContext"), context, &OF_CONTAINERS, DETAIL);
    });
}

/// Refuses kernel settings of namespaces that the pod shares with its node.
fn host_sysctls(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let shares_network = spec.is_true("hostNetwork");
    let shares_ipc = spec.is_true("hostIPC");
    if !shares_network && !shares_ipc {
        return;
    }
    for (at, sysctl) in spec.child("securityContext").structs("sysctls").enumerate() {
        if validator.has_enough() {
            break;
        }
        let name = sysctl.text("name").replace('/', ".");
        let is_ipc =
            ["kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| name.starts_with(p));
        let what = match () {
            () if shares_network && name.starts_with("net.") => "hostNetwork",
            () if shares_ipc && is_ipc => "hostIPC",
            () => continue,
        };
        let place = path.index(at);
        let detail = format!("may not be specified when '{what}' is true");
        validator.invalid(place.child("name"), sysctl.text("name"), detail);
    }
}

/// Checks containers that are Windows host processes. Either all containers of a pod or no containers are
/// host processes.
fn host_processes(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let flag =
        |context: StructView| context.child("securityContext").child("windowsOptions").flag("hostProcess");
    let of_pod = flag(spec);
    let (mut all, mut processes) = (0, 0);
    each_container(spec, path, |place, container| {
        let own = flag(container);
        all += 1;
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let context = place.child("securityContext");
            let options = context.child("windowsOptions");
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            validator.invalid(options.child("hostProcess"), own, detail);
        }
        processes += usize::from(own.or(of_pod) == Some(true));
    });
    if processes == 0 {
        return;
    }
    if processes != all {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        validator.invalid(path, "", detail);
    }
    if !spec.is_true("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        validator.invalid(path.child("hostNetwork"), false, detail);
    }
    if !validator.allows_privileged {
        validator.forbidden(path, "hostProcess containers are disallowed by cluster policy");
    }
}
