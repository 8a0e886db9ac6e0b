//! Rules for ingresses, network policies, IP addresses and service CIDRs (docs/api/validation.md#networking-kinds).

use std::net::IpAddr;

use super::super::path::FieldPath;
use super::super::{Validator, names, scalar_formats};
use super::StructView;
use types::schema::table::ValueFormat;
use values::json::{Key, Object, Value};

const SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const ENDS: [&str; 2] = ["/..", "/."];
/// Maximum number of networks: one for each IP family.
const NETWORKS_MAX: usize = 2;

pub(super) fn ingress(validator: &mut Validator, path: &FieldPath, ingress: StructView) {
    let spec = ingress.child("spec");
    let root = path.child("spec");
    let rules = spec.structs("rules");
    if rules.len() == 0 && !spec.has("defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        validator.invalid(root, spec.get("rules").cloned().unwrap_or_default(), detail);
    }
    let list = root.child("rules");
    for (at, rule) in rules.enumerate() {
        if validator.has_enough() {
            break;
        }
        host(validator, &list.index(at).child("host"), rule.text("host"), true);
    }
    let list = root.child("tls");
    for (at, tls) in spec.structs("tls").enumerate() {
        let place = list.index(at);
        let hosts = place.child("hosts");
        for (at, name) in tls.texts("hosts").enumerate() {
            if validator.has_enough() {
                return;
            }
            host(validator, &hosts.index(at), name, false);
        }
    }
    let class = format!("{}/ingress.class", validator.naming.domain);
    let annotation = ingress.child("metadata").child("annotations");
    if validator.is_create()
        && let (Some(old), Some(new)) = (annotation.get(&class), spec.get("ingressClassName"))
        && old != new
    {
        let place = format!("annotations.{class}");
        validator.invalid(place, old.clone(), "must match `ingressClassName` when both are specified");
    }
}

fn host(validator: &mut Validator, path: &FieldPath, name: &str, may_be_empty: bool) {
    if name.is_empty() && may_be_empty {
        return;
    }
    if may_be_empty && scalar_formats::address(name).is_some() {
        validator.invalid(path, name, "must be a DNS name, not an IP address");
    }
    let faults = if name.contains('*') { names::wildcard_subdomain(name) } else { names::subdomain(name) };
    validator.refuse(path, name, faults);
}

/// Checks a path of a host.
pub(super) fn ingress_path(validator: &mut Validator, path: &FieldPath, rule: StructView) {
    let target = rule.text("path");
    let place = path.child("path");
    if !rule.has("pathType") {
        validator.forget(&path.child("backend"));
    }
    match rule.text("pathType") {
        "Exact" | "Prefix" => {
            if !target.starts_with('/') {
                validator.invalid(place, target, "must be an absolute path");
            }
            for sequence in SEQUENCES.iter().filter(|sequence| target.contains(**sequence)) {
                validator.invalid(place, target, format!("must not contain '{sequence}'"));
            }
            for end in ENDS.iter().filter(|end| target.ends_with(**end)) {
                validator.invalid(place, target, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" if !target.is_empty() && !target.starts_with('/') => {
            validator.invalid(place, target, "must be an absolute path");
        }
        _ => {}
    }
}

/// Checks a backend: a port of a service, or a resource.
pub(super) fn ingress_backend(validator: &mut Validator, path: &FieldPath, backend: StructView) {
    let service = backend.child("service");
    match (backend.has("resource"), service.is_there()) {
        (true, true) => return validator.invalid(path, "", "cannot set both resource and service backends"),
        (false, false) => return validator.invalid(path, "", "resource or service backend is required"),
        (true, false) => {
            let resource = backend.child("resource");
            let place = path.child("resource");
            if let Some(group) = resource.get("apiGroup").and_then(Value::as_str) {
                validator.refuse(&place.child("apiGroup"), group, names::subdomain(group));
            }
            for name in ["kind", "name"] {
                match resource.text(name) {
                    "" => validator.required(place.child(name), ""),
                    text => validator.refuse(&place.child(name), text, names::path_segment(text)),
                }
            }
            return;
        }
        (false, true) => {}
    }
    let service_path = path.child("service");
    match service.text("name") {
        "" => validator.required(service_path.child("name"), ""),
        name => validator.refuse(&service_path.child("name"), name, names::label(name)),
    }
    let port = service.child("port");
    let port_path = service_path.child("port");
    let (name, number) = (port.text("name"), port.int("number").unwrap_or(0));
    match (name.is_empty(), number == 0) {
        (false, false) => validator.invalid(path, "", "cannot set both port name & port number"),
        (false, true) => validator.refuse(&port_path.child("name"), name, names::port_name(name)),
        (true, false) => {
            scalar_formats::value(
                ValueFormat::Port,
                &port_path.child("number"),
                &Value::Int(number),
                &mut validator.errors,
            );
        }
        (true, true) => validator.required(path, "port name or number is required"),
    }
}

/// Checks the parameters of an ingress class. The referenced object is cluster-scoped or namespaced.
pub(super) fn class_parameters(validator: &mut Validator, path: &FieldPath, parameters: StructView) {
    let place = path.child("namespace");
    let namespace = parameters.get("namespace").and_then(Value::as_str);
    match (parameters.text("scope"), namespace) {
        ("Namespace", None) => validator.required(place, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", Some(name)) => validator.refuse(&place, name, names::label(name)),
        ("Cluster", Some(_)) => validator.forbidden(place, "`parameters.scope` is set to 'Cluster'"),
        ("Cluster", None) => {}
        (other, _) => {
            if !other.is_empty() || parameters.has("scope") {
                validator.not_supported(path.child("scope"), other, &["Cluster", "Namespace"]);
            }
        }
    }
}

/// Checks a port or a range of ports.
pub(super) fn policy_port(validator: &mut Validator, path: &FieldPath, port: StructView) {
    let Some(end) = port.int("endPort") else { return };
    let place = path.child("endPort");
    match port.get("port") {
        None => validator.invalid(place, end, "may not be specified when `port` is not specified"),
        Some(Value::Int(start)) => {
            if end < *start {
                validator.invalid(place, end, "must be greater than or equal to `port`");
            }
            scalar_formats::value(ValueFormat::Port, &place, &Value::Int(end), &mut validator.errors);
        }
        Some(_) => validator.invalid(place, end, "may not be specified when `port` is non-numeric"),
    }
}

/// Checks a peer: pods, or a block of IP addresses.
pub(super) fn policy_peer(validator: &mut Validator, path: &FieldPath, peer: StructView) {
    let count = ["podSelector", "namespaceSelector", "ipBlock"].iter().filter(|name| peer.has(name)).count();
    if count == 0 {
        validator.required(path, "must specify a peer");
    } else if count > 1 && peer.has("ipBlock") {
        validator.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

/// Checks a block of IP addresses. The exceptions must be inside the block.
pub(super) fn ip_block(validator: &mut Validator, path: &FieldPath, block: StructView) {
    let Some((network, length)) = scalar_formats::network(block.text("cidr")) else { return };
    let list = path.child("except");
    for (at, text) in block.texts("except").enumerate() {
        if validator.has_enough() {
            return;
        }
        let Some((inner, inner_length)) = scalar_formats::network(text) else { continue };
        if inner_length <= length || !contains(network, length, inner) {
            validator.invalid(list.index(at), text, "must be a strict subset of `cidr`");
        }
    }
}

fn contains(network: IpAddr, length: u8, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, true),
        IpAddr::V6(v6) => (u128::from(v6), false),
    };
    let ((network, is_v4), (address, other_is_v4)) = (bits(network), bits(address));
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    is_v4 == other_is_v4 && (length == 0 || network & mask == address & mask)
}

/// Checks the policy types of a network policy. If the list is longer than the number of types, only its
/// length is reported.
pub(super) fn network_policy(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let list = path.child("policyTypes");
    if spec.items("policyTypes").len() > 2 {
        let value = spec.get("policyTypes").cloned().unwrap_or_default();
        validator.forget(&list);
        validator.invalid(list, value, "may not specify more than two policyTypes");
    }
}

/// Checks the networks from which services get addresses. Updates have their own rule.
pub(super) fn service_networks(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    if validator.is_create() {
        networks(validator, &path.child("cidrs"), spec);
    }
}

/// Checks that there is one network, or one network of each IP family.
fn networks(validator: &mut Validator, list: &FieldPath, spec: StructView) {
    let networks = spec.texts("cidrs");
    if networks.len() == 0 {
        return validator.required(list, "at least one CIDR required");
    }
    let parsed: Vec<_> = networks.clone().filter_map(scalar_formats::network).collect();
    let are_dual = match parsed[..] {
        [(one, _), (other, _)] => one.is_ipv4() != other.is_ipv4(),
        _ => false,
    };
    let fault = match networks.len() {
        1 => None,
        NETWORKS_MAX => (!are_dual).then_some(
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        ),
        _ => Some("may only hold up to 2 values"),
    };
    if let Some(fault) = fault {
        let value = spec.get("cidrs").cloned().unwrap_or_default();
        // As in the reference server, the error contains the whole specification if there are too many
        // networks.
        let shown = match networks.len() {
            NETWORKS_MAX => value,
            _ => Value::Object(Object::from_iter([(Key::Borrowed("CIDRs"), value)])),
        };
        return validator.invalid(list, shown, fault);
    }
    for (at, text) in networks.enumerate() {
        if let Some(fault) = scalar_formats::canonical_network_fault(text) {
            validator.invalid(list.index(at), text, fault);
        }
    }
}

/// Checks that an update keeps the networks. An update may add a network of the other IP family.
pub(super) fn service_networks_update(validator: &mut Validator, new: StructView, old: StructView) {
    const DETAIL: &str = "field is immutable";
    let (new, old) = (new.child("spec"), old.child("spec"));
    let (now, before) = (new.texts("cidrs"), old.texts("cidrs"));
    let is_added = before.len() == 1 && now.len() == NETWORKS_MAX;
    if !is_added && now.len() != before.len() {
        let value = new.get("cidrs").cloned().unwrap_or_default();
        return validator.invalid("spec.cidrs", value, DETAIL);
    }
    for (at, (now, before)) in now.zip(before).enumerate() {
        if now != before {
            validator.invalid(format!("spec.cidrs[{at}]"), now, DETAIL);
        }
    }
    if is_added {
        networks(validator, &FieldPath::ROOT.child("spec").child("cidrs"), new);
    }
}

/// Checks an object whose name is an IP address.
pub(super) fn ip_address(validator: &mut Validator, path: &FieldPath, address: StructView) {
    let name = address.child("metadata").text("name");
    if validator.is_create()
        && let Some(fault) = scalar_formats::canonical_address_fault(name)
    {
        let metadata = path.child("metadata");
        let place = metadata.child("name");
        // This rule replaces the rule that names are path segments.
        validator.forget(&place);
        validator.invalid(place, name, fault);
    }
}
