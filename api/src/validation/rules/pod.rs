//! Pods and pod templates: the checks of a pod's specification that clients meet most (semantics §5.7).

use hashbrown::{HashMap, HashSet};

use super::super::metadata::{annotations, is_enough, labels, refuse};
use super::super::names;
use super::super::path::Path;
use super::{Check, given, items, members, no_negative_quantities, not_negative, quantity, text, top};
use crate::field::FieldError;
use crate::json::Value;

/// The lists of containers, in the order in which names are compared.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) fn pod(check: &mut Check) {
    let spec = top(check.object, "spec");
    let faults = &mut *check.errors;
    specification(&Path::ROOT.child("spec"), spec, faults);
}

/// A template: labels and annotations, and the specification in it.
pub(super) fn template(path: &Path, template: Option<&Value>, errors: &mut Vec<FieldError>) {
    template_metadata(path, template, errors);
    specification(&path.child("spec"), given(template, "spec"), errors);
}

/// The labels and annotations of a template.
pub(super) fn template_metadata(path: &Path, template: Option<&Value>, errors: &mut Vec<FieldError>) {
    let metadata = given(template, "metadata");
    labels(&path.child("labels"), given(metadata, "labels"), errors);
    annotations(&path.child("annotations"), given(metadata, "annotations"), errors);
}

fn specification(path: &Path, spec: Option<&Value>, errors: &mut Vec<FieldError>) {
    let volumes = items(spec, "volumes");
    let volume_names: HashSet<&str> = volumes.iter().map(|volume| text(Some(volume), "name")).collect();
    validate_volumes(&path.child("volumes"), volumes, errors);
    let host_network = given(spec, "hostNetwork").and_then(Value::as_bool) == Some(true);
    let mut seen = HashSet::new();
    for list in CONTAINER_LISTS {
        let list_path = path.child(list);
        for (at, container) in items(spec, list).iter().enumerate() {
            if is_enough(errors) {
                break;
            }
            let place = list_path.index(at);
            let name = text(Some(container), "name");
            if !name.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(place.child("name"), &name.into()));
            }
            validate_container(&place, container, list, &volume_names, host_network, errors);
        }
    }
    let grace = path.child("terminationGracePeriodSeconds");
    not_negative(&grace, given(spec, "terminationGracePeriodSeconds"), errors);
    if let Some(value @ Value::Int(seconds)) = given(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(path.child("activeDeadlineSeconds"), value, detail));
    }
    labels(&path.child("nodeSelector"), given(spec, "nodeSelector"), errors);
    for (name, check) in [
        ("hostname", names::label as fn(&str) -> names::Faults),
        ("subdomain", names::label),
        ("serviceAccountName", names::subdomain),
        ("nodeName", names::subdomain),
        ("priorityClassName", names::subdomain),
        ("runtimeClassName", names::subdomain),
    ] {
        let value = text(spec, name);
        if !value.is_empty() {
            refuse(errors, &path.child(name), value, check(value));
        }
    }
    validate_tolerations(&path.child("tolerations"), items(spec, "tolerations"), errors);
    resources(&path.child("resources"), given(spec, "resources"), Owner::Pod, errors);
    no_negative_quantities(&path.child("overhead"), given(spec, "overhead"), errors);
}

fn validate_volumes(path: &Path, volumes: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (at, volume) in volumes.iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let place = path.index(at);
        let name = text(Some(volume), "name");
        if !name.is_empty() {
            refuse(errors, &place.child("name"), name, names::label(name));
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(place.child("name"), &name.into()));
            }
        }
        let mut sources = members(Some(volume)).filter(|(name, value)| *name != "name" && !value.is_null());
        if sources.next().is_none() {
            errors.push(FieldError::required(place, "must specify a volume type"));
        }
        for (source, _) in sources {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(place.child(source), detail));
        }
    }
}

fn validate_container(
    path: &Path,
    container: &Value,
    list: &str,
    volumes: &HashSet<&str>,
    host_network: bool,
    errors: &mut Vec<FieldError>,
) {
    let container = Some(container);
    let name = text(container, "name");
    if !name.is_empty() {
        refuse(errors, &path.child("name"), name, names::label(name));
    }
    match text(container, "image") {
        "" => errors.push(FieldError::required(path.child("image"), "")),
        image if image.trim() != image => {
            let detail = "must not have leading or trailing whitespace";
            errors.push(FieldError::invalid(path.child("image"), &image.into(), detail));
        }
        _ => {}
    }
    validate_ports(&path.child("ports"), items(container, "ports"), host_network, errors);
    validate_environment(&path.child("env"), items(container, "env"), errors);
    validate_mounts(&path.child("volumeMounts"), items(container, "volumeMounts"), volumes, errors);
    validate_devices(&path.child("volumeDevices"), items(container, "volumeDevices"), volumes, errors);
    resources(&path.child("resources"), given(container, "resources"), Owner::Container, errors);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(value) = given(container, probe) else { continue };
        let place = path.child(probe);
        let is_sidecar = text(container, "restartPolicy") == "Always";
        if list == "initContainers" && !is_sidecar {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(FieldError::forbidden(place, detail));
            continue;
        }
        validate_probe(&place, value, probe != "readinessProbe", errors);
    }
}

fn validate_ports(path: &Path, ports: &[Value], host_network: bool, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (at, port) in ports.iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let place = path.index(at);
        let port = Some(port);
        let name = text(port, "name");
        if !name.is_empty() {
            refuse(errors, &place.child("name"), name, names::port_name(name));
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(place.child("name"), &name.into()));
            }
        }
        let number = |name: &str| given(port, name).and_then(Value::as_i64).unwrap_or(0);
        for field in ["containerPort", "hostPort"] {
            let value = number(field);
            if value != 0 {
                let faults = names::port_number(value).into_iter();
                let value = Value::Int(value);
                errors.extend(faults.map(|fault| FieldError::invalid(place.child(field), &value, fault)));
            }
        }
        if host_network && number("hostPort") != number("containerPort") {
            let value = Value::Int(number("containerPort"));
            let detail = "must match `hostPort` when `hostNetwork` is true";
            errors.push(FieldError::invalid(place.child("containerPort"), &value, detail));
        }
    }
}

fn validate_environment(path: &Path, variables: &[Value], errors: &mut Vec<FieldError>) {
    for (at, variable) in variables.iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let place = path.index(at);
        let variable = Some(variable);
        let name = text(variable, "name");
        if !name.is_empty() {
            refuse(errors, &place.child("name"), name, names::environment_variable(name));
        }
        let Some(source) = given(variable, "valueFrom") else { continue };
        let place = place.child("valueFrom");
        let count = members(Some(source)).filter(|(_, value)| !value.is_null()).count();
        if !text(variable, "value").is_empty() && count > 0 {
            let detail = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(place, &"".into(), detail));
        } else if count == 0 {
            let detail =
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
            errors.push(FieldError::invalid(place, &"".into(), detail));
        } else if count > 1 {
            let detail = "may not have more than one field specified at a time";
            errors.push(FieldError::invalid(place, &"".into(), detail));
        }
    }
}

fn validate_mounts(path: &Path, mounts: &[Value], volumes: &HashSet<&str>, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (at, mount) in mounts.iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let place = path.index(at);
        let (name, target) = (text(Some(mount), "name"), text(Some(mount), "mountPath"));
        if !name.is_empty() && !volumes.contains(name) {
            errors.push(FieldError::not_found(place.child("name"), &name.into()));
        }
        if !target.is_empty() && !seen.insert(target) {
            errors.push(FieldError::invalid(place.child("mountPath"), &target.into(), "must be unique"));
        }
        let below = text(Some(mount), "subPath");
        if below.starts_with('/') {
            errors.push(FieldError::invalid(
                place.child("subPath"),
                &below.into(),
                "must be a relative path",
            ));
        }
        if below.split('/').any(|step| step == "..") {
            errors.push(FieldError::invalid(place.child("subPath"), &below.into(), "must not contain '..'"));
        }
    }
}

fn validate_devices(path: &Path, devices: &[Value], volumes: &HashSet<&str>, errors: &mut Vec<FieldError>) {
    for (at, device) in devices.iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let name = text(Some(device), "name");
        if !name.is_empty() && !volumes.contains(name) {
            errors.push(FieldError::not_found(path.index(at).child("name"), &name.into()));
        }
    }
}

fn validate_probe(path: &Path, probe: &Value, must_succeed_once: bool, errors: &mut Vec<FieldError>) {
    let probe = Some(probe);
    let mut handlers = 0;
    for name in ["exec", "httpGet", "tcpSocket", "grpc"] {
        let Some(handler) = given(probe, name) else { continue };
        handlers += 1;
        if handlers > 1 {
            let detail = "may not specify more than 1 handler type";
            errors.push(FieldError::forbidden(path.child(name), detail));
            continue;
        }
        let handler_path = path.child(name);
        let place = handler_path.child("port");
        match handler.get("port") {
            _ if name == "exec" && items(Some(handler), "command").is_empty() => {
                errors.push(FieldError::required(handler_path.child("command"), ""));
            }
            Some(Value::String(port)) => refuse(errors, &place, port, names::port_name(port)),
            Some(value @ Value::Int(port)) => {
                let faults = names::port_number(*port).into_iter();
                errors.extend(faults.map(|fault| FieldError::invalid(place, value, fault)));
            }
            _ => {}
        }
    }
    if handlers == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
    for name in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        not_negative(&path.child(name), given(probe, name), errors);
    }
    if must_succeed_once
        && let Some(value @ Value::Int(threshold)) = given(probe, "successThreshold")
        && *threshold != 1
    {
        errors.push(FieldError::invalid(path.child("successThreshold"), value, "must be 1"));
    }
}

fn validate_tolerations(path: &Path, tolerations: &[Value], errors: &mut Vec<FieldError>) {
    for (at, toleration) in tolerations.iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let place = path.index(at);
        let toleration = Some(toleration);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        if !key.is_empty() {
            refuse(errors, &place.child("key"), key, names::qualified(key));
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(place.child("operator"), &operator.into(), detail));
        }
        let value = text(toleration, "value");
        if operator == "Exists" && !value.is_empty() {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(place.child("operator"), &value.into(), detail));
        }
        if given(toleration, "tolerationSeconds").is_some() && text(toleration, "effect") != "NoExecute" {
            let effect = text(toleration, "effect").into();
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(place.child("effect"), &effect, detail));
        }
    }
}

/// Whose resources they are: a claim of the pod as a whole takes fewer names.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Owner {
    Container,
    Pod,
}

fn resources(path: &Path, resources: Option<&Value>, owner: Owner, errors: &mut Vec<FieldError>) {
    let limits: HashMap<&str, &Value> = members(given(resources, "limits")).collect();
    for list in ["limits", "requests"] {
        let place = path.child(list);
        for (name, amount) in members(given(resources, list)) {
            if is_enough(errors) {
                break;
            }
            resource_name(&place.key(name), name, owner, errors);
            if quantity(Some(amount)).is_some_and(|quantity| quantity.is_negative()) {
                errors.push(FieldError::invalid(place.key(name), amount, super::NOT_NEGATIVE));
            }
            if list == "limits" {
                continue;
            }
            let limit_text = limits.get(name).copied();
            if let (Some(request), Some(limit)) = (quantity(Some(amount)), quantity(limit_text))
                && request.order(limit).is_gt()
            {
                let detail = format!("must be less than or equal to {name} limit of {}", limit.to_text());
                errors.push(FieldError::invalid(place, amount, detail));
            }
        }
    }
}

fn resource_name(path: &Path, name: &str, owner: Owner, errors: &mut Vec<FieldError>) {
    if matches!(name, "cpu" | "memory") || name.starts_with("hugepages-") {
        return;
    }
    if owner == Owner::Pod {
        let detail = "supported values: \"cpu\", \"hugepages-\", \"memory\"";
        let mut error = FieldError::not_supported(path, &name.into(), &[]);
        detail.clone_into(&mut error.detail);
        errors.push(error);
        return;
    }
    if name == "ephemeral-storage" {
        return;
    }
    refuse(errors, path, name, names::qualified(name));
    if !name.contains('/') {
        let value = name.into();
        let standard = ["storage", "pods", "services", "secrets", "configmaps", "persistentvolumeclaims"];
        if !standard.contains(&name) {
            let detail = "must be a standard resource type or fully qualified";
            errors.push(FieldError::invalid(path, &value, detail));
        }
        errors.push(FieldError::invalid(path, &value, "must be a standard resource for containers"));
    }
}
