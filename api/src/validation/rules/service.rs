//! Services, but for what the allocators of addresses and ports say (semantics §5.7).

use hashbrown::HashSet;

use super::super::metadata::{is_enough, labels, refuse};
use super::super::names;
use super::super::path::Path;
use super::{Check, given, items, text, top};
use crate::field::FieldError;
use crate::json::{Object, Value};

pub(super) fn service(check: &mut Check) {
    let root = Path::ROOT.child("spec");
    let spec = top(check.object, "spec");
    let faults = &mut *check.errors;
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = items(spec, "ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        faults.push(FieldError::required(root.child("ports"), ""));
    }
    match kind {
        "ExternalName" => {
            let name = text(spec, "externalName");
            let place = root.child("externalName");
            if name.is_empty() {
                faults.push(FieldError::required(place, ""));
            } else {
                refuse(faults, &place, name, names::subdomain(name.strip_suffix('.').unwrap_or(name)));
            }
            if !matches!(text(spec, "clusterIP"), "" | "None") {
                let detail = "may not be set when `type` is 'ExternalName'";
                faults.push(FieldError::forbidden(root.child("clusterIPs"), detail));
            }
        }
        "LoadBalancer" if headless => {
            let value = "None".into();
            let detail = "may not be set to 'None' for LoadBalancer services";
            faults.push(FieldError::invalid(root.child("clusterIPs").index(0), &value, detail));
        }
        "NodePort" if headless => {
            let value = "None".into();
            let detail = "may not be set to 'None' for NodePort services";
            faults.push(FieldError::invalid(root.child("clusterIPs").index(0), &value, detail));
        }
        _ => {}
    }
    validate_ports(&root.child("ports"), ports, faults);
    labels(&root.child("selector"), given(spec, "selector"), faults);
    let timeout =
        given(spec, "sessionAffinityConfig").and_then(|config| config.at(&["clientIP", "timeoutSeconds"]));
    if let Some(value @ Value::Int(seconds)) = timeout
        && !(1..=86_400).contains(seconds)
    {
        let config = root.child("sessionAffinityConfig");
        let client = config.child("clientIP");
        let detail = "must be greater than 0 and less than 86400";
        faults.push(FieldError::invalid(client.child("timeoutSeconds"), value, detail));
    }
}

fn validate_ports(path: &Path, ports: &[Value], errors: &mut Vec<FieldError>) {
    let (mut seen_names, mut seen_ports, mut seen_node_ports) =
        (HashSet::new(), HashSet::new(), HashSet::new());
    for (at, port) in ports.iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let place = path.index(at);
        let entry = Some(port);
        let name = text(entry, "name");
        let name_path = place.child("name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(name_path, ""));
            }
        } else {
            refuse(errors, &name_path, name, names::label(name));
            if !seen_names.insert(name) {
                errors.push(FieldError::duplicate(name_path, &name.into()));
            }
        }
        let number = given(entry, "port").and_then(Value::as_i64).unwrap_or(0);
        for fault in names::port_number(number) {
            errors.push(FieldError::invalid(place.child("port"), &Value::Int(number), fault));
        }
        match given(entry, "targetPort") {
            Some(value @ Value::Int(target)) => {
                let faults = names::port_number(*target).into_iter();
                errors
                    .extend(faults.map(|fault| FieldError::invalid(place.child("targetPort"), value, fault)));
            }
            Some(Value::String(target)) => {
                refuse(errors, &place.child("targetPort"), target, names::port_name(target));
            }
            _ => {}
        }
        let protocol = text(entry, "protocol");
        if !seen_ports.insert((protocol, number)) {
            errors.push(FieldError::duplicate(
                place,
                &shown(&[("Protocol", protocol.into()), ("Port", Value::Int(number))]),
            ));
        }
        let node_port = given(entry, "nodePort").and_then(Value::as_i64).unwrap_or(0);
        if node_port != 0 && !seen_node_ports.insert((protocol, node_port)) {
            let value = shown(&[("Protocol", protocol.into()), ("NodePort", Value::Int(node_port))]);
            errors.push(FieldError::duplicate(place, &value));
        }
    }
}

/// A port as the reference server prints its internal form.
fn shown(set: &[(&str, Value)]) -> Value {
    let members = [
        ("Name", Value::from("")),
        ("Protocol", Value::from("")),
        ("AppProtocol", Value::Null),
        ("Port", Value::Int(0)),
        ("TargetPort", Value::Int(0)),
        ("NodePort", Value::Int(0)),
    ];
    let value = |name: &str, zero: Value| {
        set.iter().find(|(set, _)| *set == name).map_or(zero, |(_, value)| value.clone())
    };
    Value::Object(
        members.into_iter().map(|(name, zero)| (name.into(), value(name, zero))).collect::<Object>(),
    )
}

/// The address stays, unless the service becomes or was a mere name.
pub(super) fn service_update(check: &mut Check, old: &Object) {
    let (new, old) = (top(check.object, "spec"), old.get("spec"));
    let names_only = [new, old].iter().any(|spec| text(*spec, "type") == "ExternalName");
    let (address, former) = (text(new, "clusterIP"), text(old, "clusterIP"));
    if !names_only && !former.is_empty() && !address.is_empty() && address != former {
        let list = given(new, "clusterIPs").cloned().unwrap_or_else(|| Value::Array(vec![address.into()]));
        let error = FieldError::invalid("spec.clusterIPs[0]", &list, "may not change once set");
        check.errors.push(error);
    }
}
