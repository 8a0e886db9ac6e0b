//! Rules for services, without the rules of the IP and port allocators (docs/api/validation.md#services).

use std::net::IpAddr;

use hashbrown::HashSet;

use super::super::path::FieldPath;
use super::super::{Validator, names, scalar_formats};
use super::StructView;
use super::common::SeenStrings;
use types::schema::table::ValueFormat;
use values::json::{Object, Value};

/// Maximum duration of session affinity in seconds.
const AFFINITY_SECONDS_MAX: i64 = 86_400;
const LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
/// Port on which the node agent (kubelet) listens.
const NODE_AGENT_PORT: i64 = 10_250;
/// Maximum number of addresses: one for each IP family.
const ADDRESSES_MAX: usize = 2;

fn is_headless(spec: StructView) -> bool {
    let addresses = spec.texts("clusterIPs");
    // Before the allocation, the list may be empty and only the singular field may be set.
    (addresses.len() == 1 && addresses.clone().next() == Some("None"))
        || (addresses.len() == 0 && spec.text("clusterIP") == "None")
}

pub(super) fn service(validator: &mut Validator, path: &FieldPath, service: StructView) {
    let spec = service.child("spec");
    let root = path.child("spec");
    let kind = spec.text("type");
    let headless = is_headless(spec);
    let annotations = service.child("metadata").child("annotations");
    let [mode, hints] =
        ["mode", "aware-hints"].map(|name| format!("service.{}/topology-{name}", validator.naming.domain));
    if let (Some(value), Some(other)) = (annotations.get(&mode), annotations.get(&hints))
        && value != other
    {
        let metadata = path.child("metadata");
        let list = metadata.child("annotations");
        let detail = format!("must match annotations[{hints}] when both are specified");
        validator.invalid(list.key(&mode), value.clone(), detail);
    }
    if spec.items("ports").is_empty() && !headless && kind != "ExternalName" {
        validator.required(root.child("ports"), "");
    }
    if kind == "LoadBalancer" {
        node_agent_unexposed(validator, &root.child("ports"), spec);
    }
    match kind {
        "ExternalName" => external_name(validator, &root, spec),
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            validator.invalid(root.child("clusterIPs").index(0), "None", detail);
        }
        _ => {}
    }
    ports(validator, &root.child("ports"), spec);
    affinity(validator, &root, spec);
    if kind != "ExternalName" {
        addresses(validator, &root, spec);
    }
    let external = root.child("externalIPs");
    for (at, text) in spec.texts("externalIPs").enumerate() {
        if validator.has_enough() {
            break;
        }
        usable_address(validator, &external.index(at), text);
    }
    balancing(validator, &root, spec);
    traffic(validator, &root, spec);
}

/// Refuses the port of the node agent in a service with a load balancer.
fn node_agent_unexposed(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    for (at, port) in spec.structs("ports").enumerate() {
        if port.int("port") == Some(NODE_AGENT_PORT) && !validator.has_enough() {
            let detail =
                format!("may not expose port {NODE_AGENT_PORT} externally since it is used by kubelet");
            validator.invalid(path.index(at), NODE_AGENT_PORT, detail);
        }
    }
}

fn external_name(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    const DETAIL: &str = "may not be set for ExternalName services";
    let has_address = !spec.items("clusterIPs").is_empty() || !matches!(spec.text("clusterIP"), "" | "None");
    for (name, is_set) in [
        ("clusterIPs", has_address),
        ("ipFamilies", !spec.items("ipFamilies").is_empty()),
        ("ipFamilyPolicy", spec.has("ipFamilyPolicy")),
    ] {
        if is_set {
            validator.forbidden(path.child(name), DETAIL);
        }
    }
    let name = spec.text("externalName");
    let place = path.child("externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => validator.required(place, ""),
        name => validator.refuse(&place, name, names::subdomain(name)),
    }
}

fn ports(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let ports = spec.structs("ports");
    let (mut seen_names, mut seen_ports, mut seen_node_ports) =
        (SeenStrings::new(), HashSet::new(), HashSet::new());
    let has_node_ports = spec.text("type") != "ClusterIP";
    let are_many = ports.len() > 1;
    for (at, port) in ports.enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = path.index(at);
        let name = port.text("name");
        if name.is_empty() && are_many {
            validator.required(place.child("name"), "");
        } else if !name.is_empty() && !seen_names.insert(name) {
            validator.duplicate(place.child("name"), name);
        }
        let number = port.int("port").unwrap_or(0);
        let protocol = port.text("protocol");
        let node_port = port.int("nodePort").unwrap_or(0);
        if node_port != 0 && !has_node_ports {
            validator.forbidden(place.child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
        if node_port != 0 && !seen_node_ports.insert((protocol, node_port)) {
            validator.duplicate(place.child("nodePort"), node_port);
        }
        if !seen_ports.insert((protocol, number)) {
            validator.duplicate(place, internal_port(protocol, number));
        }
    }
}

/// Returns a port in the internal form of the reference server.
fn internal_port(protocol: &str, port: i64) -> Object {
    [
        ("Name", Value::from("")),
        ("Protocol", protocol.into()),
        ("AppProtocol", Value::Null),
        ("Port", Value::Int(port)),
        ("TargetPort", Value::Int(0)),
        ("NodePort", Value::Int(0)),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), value))
    .collect()
}

fn affinity(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let config = spec.child("sessionAffinityConfig");
    let place = path.child("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "ClientIP" => {
            const DETAIL: &str = "when session affinity type is ClientIP";
            let client = config.child("clientIP");
            let client_path = place.child("clientIP");
            let timeout_path = client_path.child("timeoutSeconds");
            match client.int("timeoutSeconds") {
                _ if !config.is_there() => validator.required(place, DETAIL),
                _ if !client.is_there() => validator.required(client_path, DETAIL),
                None => validator.required(timeout_path, DETAIL),
                Some(seconds) if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds) => {
                    let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                    validator.invalid(timeout_path, seconds, detail);
                }
                Some(_) => {}
            }
        }
        "None" if config.is_there() => {
            validator.forbidden(place, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// Checks the cluster addresses and their families.
fn addresses(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let place = path.child("clusterIPs");
    let first = spec.text("clusterIP");
    let list = spec.texts("clusterIPs");
    let all = || spec.get("clusterIPs").cloned().unwrap_or_default();
    match list.clone().next() {
        None => {}
        Some(_) if first.is_empty() => {
            validator.invalid(place, all(), "must be empty when `clusterIP` is not specified");
        }
        Some(other) if other != first => {
            validator.invalid(place, all(), "first value must match `clusterIP`");
        }
        Some(_) => {}
    }
    let families = path.child("ipFamilies");
    let mut seen = SeenStrings::new();
    for (at, family) in spec.texts("ipFamilies").enumerate() {
        if validator.has_enough() {
            return;
        }
        if !matches!(family, "IPv4" | "IPv6") {
            validator.not_supported(families.index(at), family, &["IPv4", "IPv6"]);
        }
        if !seen.insert(family) {
            validator.duplicate(families.index(at), family);
        }
    }
    let mut parsed = Vec::new();
    let mut are_valid = true;
    for (at, text) in list.clone().enumerate() {
        if validator.has_enough() {
            return;
        }
        if at == 0 && text == "None" {
            if list.len() > 1 {
                are_valid = false;
                validator.invalid(place, all(), "'None' must be the first and only value");
            }
            continue;
        }
        match (scalar_formats::address(text), scalar_formats::address_fault(text)) {
            (Some(address), None) => parsed.push(address),
            (_, fault) => {
                are_valid = false;
                validator.invalid(place.index(at), text, fault.unwrap_or(scalar_formats::ADDRESS));
            }
        }
    }
    if list.len() > ADDRESSES_MAX {
        validator.invalid(place, all(), "may only hold up to 2 values");
    }
    if !are_valid {
        return;
    }
    if list.len() > 1 && parsed.iter().map(IpAddr::is_ipv4).collect::<HashSet<_>>().len() < 2 {
        validator.invalid(place, all(), "may specify no more than one IP for each IP family");
    }
    for (at, (family, address)) in spec.texts("ipFamilies").zip(&parsed).enumerate() {
        if (family == "IPv4" && address.is_ipv6()) || (family == "IPv6" && address.is_ipv4()) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{at}]`");
            let text = list.clone().nth(at).unwrap_or_default();
            validator.invalid(place.index(at), text, detail);
        }
    }
}

/// Checks that traffic can be sent to an address. Addresses of special kinds are refused.
pub(super) fn usable_address(validator: &mut Validator, path: &FieldPath, text: &str) {
    if let Some(fault) = scalar_formats::address_fault(text) {
        return validator.invalid(path, text, fault);
    }
    let Some(address) = scalar_formats::address(text) else { return };
    let (is_link_local, is_local_multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    for (is_special, detail) in [
        (address.is_unspecified(), format!("may not be unspecified ({text})")),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()),
        (is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (
            is_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ] {
        if is_special {
            validator.invalid(path, text, detail);
        }
    }
}

/// Checks fields that are only permitted for services of type `LoadBalancer`.
fn balancing(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    const DETAIL: &str = LOAD_BALANCER;
    let is_balanced = spec.text("type") == "LoadBalancer";
    let ranges = spec.texts("loadBalancerSourceRanges");
    if ranges.len() > 0 {
        let place = path.child("LoadBalancerSourceRanges");
        if !is_balanced {
            validator.forbidden(place, DETAIL);
        }
        for (at, range) in ranges.enumerate() {
            if validator.has_enough() {
                return;
            }
            scalar_formats::check_form(
                ValueFormat::CidrPadded,
                &place.index(at),
                range,
                &mut validator.errors,
            );
        }
    } else {
        let name = format!("service.beta.{}/load-balancer-source-ranges", validator.naming.domain);
        let annotations = validator.object.child("metadata").child("annotations");
        if annotations.has(&name) {
            let metadata = FieldPath::ROOT.child("metadata");
            let list = metadata.child("annotations");
            let place = list.key(&name);
            if !is_balanced {
                validator.forbidden(place, DETAIL);
            }
            let ranges = annotations.text(&name);
            for range in ranges.split(',').filter(|_| !ranges.trim().is_empty()) {
                scalar_formats::check_form(ValueFormat::CidrPadded, &place, range, &mut validator.errors);
            }
        }
    }
    if spec.has("allocateLoadBalancerNodePorts") && !is_balanced {
        validator.forbidden(path.child("allocateLoadBalancerNodePorts"), DETAIL);
    }
    if is_balanced && !spec.has("allocateLoadBalancerNodePorts") {
        validator.required("allocateLoadBalancerNodePorts", "");
    }
    balancer_class(validator, &path.child("loadBalancerClass"), spec);
}

fn balancer_class(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let Some(class) = spec.get("loadBalancerClass").and_then(Value::as_str) else { return };
    if spec.text("type") == "LoadBalancer" {
        validator.refuse(path, class, names::qualified(class));
    } else {
        validator.forbidden(path, LOAD_BALANCER);
    }
}

/// Returns whether the service accepts traffic from outside the cluster.
fn is_external(spec: StructView) -> bool {
    match spec.text("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.items("externalIPs").is_empty(),
        _ => false,
    }
}

fn needs_health_check(spec: StructView) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

fn traffic(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let policy = spec.text("externalTrafficPolicy");
    let place = path.child("externalTrafficPolicy");
    match (is_external(spec), policy) {
        (true, "") => validator.required(place, ""),
        (false, "") | (true, _) => {}
        (false, policy) => {
            validator.forget(&place);
            validator.invalid(place, policy, "may only be set for externally-accessible services");
        }
    }
    let port = spec.int("healthCheckNodePort").unwrap_or(0);
    if port != 0 {
        let place = path.child("healthCheckNodePort");
        if needs_health_check(spec) {
            scalar_formats::value(ValueFormat::Port, &place, &Value::Int(port), &mut validator.errors);
        } else {
            let detail =
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            validator.invalid(place, port, detail);
        }
    }
    if !spec.has("internalTrafficPolicy")
        && matches!(spec.text("type"), "NodePort" | "LoadBalancer" | "ClusterIP")
    {
        validator.required(path.child("internalTrafficPolicy"), "");
    }
    const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(distribution) = spec.get("trafficDistribution").and_then(Value::as_str)
        && !DISTRIBUTIONS.contains(&distribution)
    {
        validator.not_supported(path.child("trafficDistribution"), distribution, &DISTRIBUTIONS);
    }
}

/// Checks that addresses and IP families do not change. The check does not apply if the old or the new type
/// is `ExternalName`. The second address and the second IP family may be added and removed.
pub(super) fn service_update(validator: &mut Validator, new: StructView, old: StructView) {
    let (new, old) = (new.child("spec"), old.child("spec"));
    if ![new, old].iter().any(|spec| spec.text("type") == "ExternalName") {
        let (was, is) = (is_headless(old), is_headless(new));
        if !(was && is) {
            check_primary_unchanged(validator, new, old, "clusterIPs", "clusterIP");
        }
        if !was && !is {
            check_primary_unchanged(validator, new, old, "ipFamilies", "ipFamily");
        }
    }
    let is_balanced = |spec: StructView| spec.text("type") == "LoadBalancer";
    // An update checks the class once more than a creation.
    balancer_class(validator, &FieldPath::ROOT.child("spec").child("loadBalancerClass"), new);
    let balanced = is_balanced(new) && is_balanced(old);
    if balanced && !super::super::is_same(new.get("loadBalancerClass"), old.get("loadBalancerClass")) {
        let value = new.get("loadBalancerClass").cloned().unwrap_or_default();
        validator.invalid("spec.loadBalancerClass", value, "may not change once set");
    }
    let checked = needs_health_check(new) && needs_health_check(old);
    if checked && new.int("healthCheckNodePort") != old.int("healthCheckNodePort") {
        validator.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}

/// Checks a list of one or two values. The first value is immutable. The second value may only be removed if
/// the IP family policy permits the removal.
fn check_primary_unchanged(
    validator: &mut Validator,
    new: StructView,
    old: StructView,
    name: &str,
    one: &str,
) {
    let (now, before) = (new.texts(name), old.texts(name));
    let value = || new.get(name).cloned().unwrap_or(Value::Array(Vec::new()));
    let path = format!("spec.{name}");
    if now.len() == before.len() {
        for (at, (now, before)) in now.zip(before).enumerate() {
            if now != before {
                // As in the reference server, an error about IP families has the index of the first value.
                let at = if name == "ipFamilies" { 0 } else { at };
                validator.invalid(format!("{path}[{at}]"), value(), "may not change once set");
            }
        }
        return;
    }
    let releases = now.len() < before.len();
    if now.len() == 0 {
        return; // the allocator keeps the addresses
    }
    if before.len() > 0 && now.clone().next() != before.clone().next() {
        // As in the reference server, the error contains the addresses.
        let value = new.get("clusterIPs").cloned().unwrap_or_default();
        validator.invalid(format!("{path}[0]"), value, "may not change once set");
    }
    if releases && now.len() == 1 && new.text("ipFamilyPolicy") != "SingleStack" {
        let policy = new.get("ipFamilyPolicy").cloned().unwrap_or_default();
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {one}");
        validator.invalid("spec.ipFamilyPolicy", policy, detail);
    }
}
