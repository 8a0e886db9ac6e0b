//! Rules for containers: their own fields, and their mounts of the volumes of the pod.

use hashbrown::{HashMap, HashSet};

use super::super::path::FieldPath;
use super::super::{Validator, names, scalar_formats};
use super::common::SeenStrings;
use super::resources::{self, Owner};
use super::{StructView, security};
use types::schema::table::ValueFormat;
use values::json::Value;

/// Container lists, in the order in which names are compared.
const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// Fields that are only permitted for containers that run as long as the pod: regular containers and
/// restartable init containers.
const FOR_RUNNING: [&str; 4] = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
/// Fields that are forbidden for ephemeral containers.
const NOT_FOR_EPHEMERAL: [&str; 8] = [
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "ports",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];
/// Maximum number of restart rules, and maximum number of exit codes in one rule.
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// The parts of a pod to which its containers refer.
pub(super) struct Surroundings<'v> {
    /// Volumes of the pod by name.
    pub(super) volumes: HashMap<&'v str, StructView<'v>>,
    /// Names of device claims.
    pub(super) claims: SeenStrings<'v>,
    /// Specification of the pod.
    pub(super) spec: StructView<'v>,
}

/// Checks a container on its own.
pub(super) fn container(validator: &mut Validator, path: &FieldPath, container: StructView) {
    ports(validator, &path.child("ports"), container);
    resize_policies(validator, &path.child("resizePolicy"), container);
}

fn ports(validator: &mut Validator, path: &FieldPath, container: StructView) {
    let mut seen = SeenStrings::new();
    for (at, port) in container.structs("ports").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = path.index(at);
        let name = port.text("name");
        if !name.is_empty() && !seen.insert(name) && names::port_name(name).is_empty() {
            validator.duplicate(place.child("name"), name);
        }
        // 0 means unset.
        if let Some(host) = port.get("hostPort").filter(|host| host.as_i64() != Some(0)) {
            scalar_formats::value(ValueFormat::Port, &place.child("hostPort"), host, &mut validator.errors);
        }
    }
}

fn resize_policies(validator: &mut Validator, path: &FieldPath, container: StructView) {
    let mut seen = SeenStrings::new();
    for (at, policy) in container.structs("resizePolicy").enumerate() {
        if validator.has_enough() {
            break;
        }
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if !seen.insert(resource) {
            validator.duplicate(path.index(at), resource);
        }
        match resource {
            "cpu" | "memory" => {}
            "" => validator.required(path, ""),
            _ => validator.not_supported(path, resource, &["cpu", "memory"]),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => validator.required(path, ""),
            _ => validator.not_supported(path, restart, &["NotRequired", "RestartContainer"]),
        }
    }
}

/// Checks header names. The reference server reports an invalid name at the path of the list.
pub(super) fn http_get(validator: &mut Validator, path: &FieldPath, action: StructView) {
    for header in action.structs("httpHeaders") {
        if validator.has_enough() {
            break;
        }
        let name = header.text("name");
        validator.refuse(&path.child("httpHeaders"), name, names::http_header(name));
    }
}

/// Checks all containers of a pod.
pub(super) fn all(validator: &mut Validator, path: &FieldPath, around: &Surroundings) {
    let spec = around.spec;
    let mut taken = HashSet::new();
    for list in LISTS {
        let list_path = path.child(list);
        let mut host_ports = HashSet::new();
        for (at, container) in spec.structs(list).enumerate() {
            if validator.has_enough() {
                break;
            }
            let place = list_path.index(at);
            let name = container.text("name");
            // Several init containers may be unnamed if all regular containers have names.
            let shares_none = list == "initContainers" && name.is_empty();
            let is_new = if shares_none { !taken.contains(name) } else { taken.insert(name) };
            if !is_new {
                validator.duplicate(place.child("name"), name);
            }
            in_pod(validator, &place, container, list, around);
            match list {
                "containers" => {
                    unique_host_ports(validator, &place.child("ports"), container, &mut host_ports);
                }
                // Init containers run one after the other, so their ports do not conflict. As in the
                // reference server, the errors have the path of the first init container.
                "initContainers" => {
                    host_ports.clear();
                    let first = list_path.index(0);
                    unique_host_ports(validator, &first.child("ports"), container, &mut host_ports);
                }
                _ => {}
            }
        }
        taken.extend(spec.structs(list).map(|container| container.text("name")));
    }
    targets(validator, &path.child("ephemeralContainers"), spec);
}

/// Checks that the target of an ephemeral container is another container of the pod.
fn targets(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let ephemeral = spec.structs("ephemeralContainers");
    if ephemeral.len() == 0 {
        return;
    }
    let others: HashSet<&str> =
        LISTS[..2].iter().flat_map(|list| spec.structs(list)).map(|other| other.text("name")).collect();
    for (at, container) in ephemeral.enumerate() {
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) && !validator.has_enough() {
            let place = path.index(at);
            validator.not_found(place.child("targetContainerName"), target);
        }
    }
}

fn in_pod(
    validator: &mut Validator,
    path: &FieldPath,
    container: StructView,
    list: &str,
    around: &Surroundings,
) {
    let spec = around.spec;
    mounts(validator, &path.child("volumeMounts"), container, around);
    devices(validator, &path.child("volumeDevices"), container, around);
    files(validator, &path.child("env"), container, around);
    let resources = container.child("resources");
    resources::requirements(validator, &path.child("resources"), resources, Owner::Container, &around.claims);
    if spec.text("restartPolicy") == "Never" {
        let policies = path.child("resizePolicy");
        for policy in container.structs("resizePolicy") {
            let restart = policy.text("restartPolicy");
            if restart != "NotRequired" && !validator.has_enough() {
                let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
                validator.invalid(policies, restart, detail);
            }
        }
    }
    let unmasked = container.child("securityContext").text("procMount") == "Unmasked";
    if unmasked && spec.flag("hostUsers") != Some(false) {
        let context = path.child("securityContext");
        let detail = "`hostUsers` must be false to use `Unmasked`";
        validator.invalid(context.child("procMount"), "Unmasked", detail);
    }
    match list {
        "initContainers" if container.text("restartPolicy") != "Always" => {
            starting(validator, path, container);
            return restarting(validator, path, container);
        }
        "ephemeralContainers" => return ephemeral(validator, path, container),
        _ => {}
    }
    restarting(validator, path, container);
    let grace = spec.int("terminationGracePeriodSeconds");
    for (probe, succeeds_once) in [("livenessProbe", true), ("readinessProbe", false), ("startupProbe", true)]
    {
        let value = container.child(probe);
        if !value.is_there() {
            continue;
        }
        let place = path.child(probe);
        let threshold = value.int("successThreshold").unwrap_or(0);
        if succeeds_once && threshold != 1 {
            validator.invalid(place.child("successThreshold"), threshold, "must be 1");
        }
        if let Some(seconds) =
            value.int("terminationGracePeriodSeconds").filter(|_| probe == "readinessProbe")
        {
            let detail = "must not be set for readinessProbes";
            validator.invalid(place.child("terminationGracePeriodSeconds"), seconds, detail);
        }
    }
    let lifecycle = path.child("lifecycle");
    for moment in ["postStart", "preStop"] {
        let handler = container.child("lifecycle").child(moment);
        // `sleep` is the last type of handler that is checked, and only if there is no other handler.
        let seconds = handler.child("sleep").int("seconds").filter(|_| handler.members().count() == 1);
        if let (Some(seconds), Some(grace)) = (seconds, grace)
            && !(0..=grace).contains(&seconds)
        {
            let place = lifecycle.child(moment);
            let detail =
                format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            validator.invalid(place.child("sleep"), seconds, detail);
        }
    }
    if container.child("lifecycle").has("stopSignal") {
        security::stop_signal(validator, &lifecycle.child("stopSignal"), container.child("lifecycle"), spec);
    }
}

/// Checks that files with environment variables are on `emptyDir` volumes.
fn files(validator: &mut Validator, path: &FieldPath, container: StructView, around: &Surroundings) {
    for (at, variable) in container.structs("env").enumerate() {
        let file = variable.child("valueFrom").child("fileKeyRef");
        if !file.is_there() || validator.has_enough() {
            continue;
        }
        let element = path.index(at);
        let source = element.child("valueFrom");
        let reference = source.child("fileKeyRef");
        let (place, name) = (reference.child("volumeName"), file.text("volumeName"));
        match around.volumes.get(name) {
            None => validator.not_found(place, name),
            Some(volume) if !volume.has("emptyDir") => {
                validator.invalid(place, name, "referenced volume must be of type emptyDir");
            }
            Some(_) => {}
        }
    }
}

/// Checks an init container that ends before the other containers start. The content of forbidden fields is
/// not checked.
fn starting(validator: &mut Validator, path: &FieldPath, container: StructView) {
    for name in FOR_RUNNING.into_iter().filter(|name| container.has(name)) {
        let detail = "may not be set for init containers without restartPolicy=Always";
        validator.forget(&path.child(name));
        validator.forbidden(path.child(name), detail);
    }
    let policies = path.child("resizePolicy");
    for (at, policy) in container.structs("resizePolicy").enumerate() {
        let restart = policy.text("restartPolicy");
        if restart == "RestartContainer" && !validator.has_enough() {
            let place = policies.index(at);
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            validator.invalid(place.child("restartPolicy"), restart, detail);
        }
    }
}

fn ephemeral(validator: &mut Validator, path: &FieldPath, container: StructView) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    for name in FOR_RUNNING {
        validator.forget(&path.child(name));
    }
    for name in NOT_FOR_EPHEMERAL {
        if container.has(name) {
            validator.forbidden(path.child(name), DETAIL);
        }
    }
    if container.child("resources").members().next().is_some() {
        validator.forbidden(path.child("resources"), DETAIL);
    }
    let mounts = path.child("volumeMounts");
    for (at, mount) in container.structs("volumeMounts").enumerate() {
        for name in ["subPath", "subPathExpr"] {
            if !mount.text(name).is_empty() && !validator.has_enough() {
                let place = mounts.index(at);
                validator.forbidden(place.child(name), DETAIL);
            }
        }
    }
}

/// Checks a restart policy of a container, which overrides the policy of the pod.
fn restarting(validator: &mut Validator, path: &FieldPath, container: StructView) {
    let place = path.child("restartPolicy");
    let rules = container.structs("restartPolicyRules");
    match container.get("restartPolicy").and_then(Value::as_str) {
        None => {
            if rules.len() > 0 {
                validator.required(place, "must specify restartPolicy when restart rules are used");
            }
        }
        Some("Always" | "Never" | "OnFailure") => {}
        Some(other) => validator.not_supported(place, other, &["Always", "Never", "OnFailure"]),
    }
    let list = path.child("restartPolicyRules");
    if rules.len() > RESTART_RULES_MAX {
        validator.errors.push(values::field::FieldError::too_many(list, rules.len(), RESTART_RULES_MAX));
    }
    for (at, rule) in rules.enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = list.index(at);
        match rule.text("action") {
            "Restart" | "RestartAllContainers" => {}
            other => {
                validator.not_supported(place.child("action"), other, &["Restart", "RestartAllContainers"])
            }
        }
        let codes = rule.child("exitCodes");
        let codes_path = place.child("exitCodes");
        if !codes.is_there() {
            validator.required(codes_path, "must be specified");
            continue;
        }
        match codes.text("operator") {
            "In" | "NotIn" => {}
            other => validator.not_supported(codes_path.child("operator"), other, &["In", "NotIn"]),
        }
        let values = codes.items("values").len();
        if values > EXIT_CODES_MAX {
            let error =
                values::field::FieldError::too_many(codes_path.child("values"), values, EXIT_CODES_MAX);
            validator.errors.push(error);
        }
    }
}

/// Checks that containers that run at the same time use different ports of the node.
fn unique_host_ports<'v>(
    validator: &mut Validator,
    path: &FieldPath,
    container: StructView<'v>,
    taken: &mut HashSet<(&'v str, &'v str, i64)>,
) {
    for (at, port) in container.structs("ports").enumerate() {
        let number = port.int("hostPort").unwrap_or(0);
        let (protocol, address) = (port.text("protocol"), port.text("hostIP"));
        if number != 0 && !taken.insert((protocol, address, number)) && !validator.has_enough() {
            let place = path.index(at);
            validator.duplicate(place.child("hostPort"), format!("{protocol}/{address}/{number}"));
        }
    }
}

fn mounts(validator: &mut Validator, path: &FieldPath, container: StructView, around: &Surroundings) {
    let mut targets = SeenStrings::new();
    let devices: HashMap<&str, &str> = container
        .structs("volumeDevices")
        .map(|device| (device.text("name"), device.text("devicePath")))
        .collect();
    let device_paths: HashSet<&str> = devices.values().copied().collect();
    let is_privileged = container.child("securityContext").is_true("privileged");
    for (at, mount) in container.structs("volumeMounts").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = path.index(at);
        let (name, target) = (mount.text("name"), mount.text("mountPath"));
        if !around.volumes.contains_key(name) {
            validator.not_found(place.child("name"), name);
        }
        if !targets.insert(target) {
            validator.invalid(place.child("mountPath"), target, "must be unique");
        }
        if devices.contains_key(name) {
            validator.invalid(place.child("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(target) {
            let detail = "must not already exist as a path in volumeDevices";
            validator.invalid(place.child("mountPath"), target, detail);
        }
        let (below, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
        for (field, text) in [("subPath", below), ("subPathExpr", expression)] {
            // As in the reference server, the error has the path of the list.
            scalar_formats::text(ValueFormat::Descending, &path.child(field), text, &mut validator.errors);
        }
        if !below.is_empty() && !expression.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            validator.invalid(place.child("subPathExpr"), expression, detail);
        }
        propagation(validator, path, mount, is_privileged);
    }
}

fn propagation(validator: &mut Validator, path: &FieldPath, mount: StructView, is_privileged: bool) {
    let propagation = mount.text("mountPropagation");
    const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    if mount.has("mountPropagation") && !PROPAGATIONS.contains(&propagation) {
        validator.not_supported(path.child("mountPropagation"), propagation, &PROPAGATIONS);
    }
    if propagation == "Bidirectional" && !is_privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        validator.forbidden(path.child("mountPropagation"), detail);
    }
    let place = path.child("recursiveReadOnly");
    match mount.get("recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.is_true("readOnly") {
                validator.forbidden(place, "may only be specified when readOnly is true");
            }
            if mount.has("mountPropagation") && propagation != "None" {
                let detail = "may only be specified when mountPropagation is None or not specified";
                validator.forbidden(place, detail);
            }
        }
        Some(other) => validator.not_supported(place, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(validator: &mut Validator, path: &FieldPath, container: StructView, around: &Surroundings) {
    if container.items("volumeDevices").is_empty() {
        return;
    }
    let mounts: HashMap<&str, &str> = container
        .structs("volumeMounts")
        .map(|mount| (mount.text("name"), mount.text("mountPath")))
        .collect();
    let mount_paths: HashSet<&str> = mounts.values().copied().collect();
    let (mut seen_names, mut seen_paths) = (SeenStrings::new(), SeenStrings::new());
    for (at, device) in container.structs("volumeDevices").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = path.index(at);
        let (name, target) = (device.text("name"), device.text("devicePath"));
        if !name.is_empty() && !seen_names.insert(name) {
            validator.invalid(place.child("name"), name, "must be unique");
        }
        match around.volumes.get(name) {
            None => validator.not_found(place.child("name"), name),
            Some(volume)
                if !volume.has("persistentVolumeClaim")
                    && !volume.has("ephemeral")
                    && !volume.has("metadata") =>
            {
                let detail =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                validator.invalid(place.child("name"), name, detail);
            }
            Some(_) => {}
        }
        if seen_paths.contains(target) {
            validator.invalid(place.child("devicePath"), target, "must be unique");
        }
        if target.split('/').any(|step| step == "..") {
            validator.invalid(place.child("devicePath"), target, "can not contain backsteps ('..')");
        } else {
            seen_paths.insert(target);
        }
        if mounts.contains_key(name) {
            validator.invalid(place.child("name"), name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(target) {
            let detail = "must not already exist as a path in volumeMounts";
            validator.invalid(place.child("devicePath"), target, detail);
        }
    }
}
