//! The members of a service that allocation reads and writes. For an update, members that the new type does not
//! use are dropped, and omitted members are taken from the stored object.

use std::collections::{HashMap, HashSet};

use values::json::{Object, Value};
use values::object::{at, same_at};

pub(super) fn spec(service: &Object) -> Option<&Object> {
    service.get("spec").and_then(Value::as_object)
}

pub(super) fn text<'o>(service: &'o Object, name: &str) -> &'o str {
    spec(service).and_then(|spec| spec.get(name)).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn texts(service: &Object, name: &str) -> Vec<String> {
    let list = spec(service).and_then(|spec| spec.get(name)).and_then(Value::as_array).unwrap_or_default();
    list.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

pub(super) fn set(service: &mut Object, name: &'static str, value: Value) {
    service.object_entry("spec").insert(name, value);
}

pub(super) fn clear(service: &mut Object, name: &str) {
    service.object_entry("spec").remove(name);
}

pub(super) fn kind(service: &Object) -> &str {
    text(service, "type")
}

pub(super) fn needs_address(service: &Object) -> bool {
    matches!(kind(service), "" | "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Returns whether the ports of the service may have node ports.
pub(super) fn needs_node_ports(service: &Object) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// Returns whether node ports are allocated by default.
pub(super) fn allocates_node_ports(service: &Object) -> bool {
    let allocates = at(service, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool);
    kind(service) == "NodePort" || kind(service) == "LoadBalancer" && allocates != Some(false)
}

pub(super) fn needs_health_check_port(service: &Object) -> bool {
    kind(service) == "LoadBalancer" && text(service, "externalTrafficPolicy") == "Local"
}

pub(super) fn same(service: &Object, old: &Object, name: &str) -> bool {
    same_at(service, old, &format!("spec.{name}"))
}

pub(super) fn copy_address(service: &mut Object) {
    let address = text(service, "clusterIP").to_owned();
    set(service, "clusterIPs", Value::from(&[address][..]));
}

pub(super) fn ports(service: &Object) -> &[Value] {
    spec(service).and_then(|spec| spec.get("ports")).and_then(Value::as_array).unwrap_or_default()
}

pub(super) fn ports_mut(service: &mut Object) -> impl Iterator<Item = &mut Object> {
    let ports = service.object_entry("spec").get_mut("ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten().filter_map(Value::as_object_mut)
}

pub(super) fn number(port: &Value, name: &str) -> i64 {
    port.get(name).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn protocol(port: &Value) -> &str {
    port.get("protocol").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn node_ports(service: &Object) -> Vec<i64> {
    ports(service).iter().map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

/// Removes fields that the new type does not use, if the client left them unchanged.
pub(super) fn drop_fields_of_other_types(service: &mut Object, old: &Object) {
    if needs_address(old) && !needs_address(service) {
        if same(service, old, "clusterIP") && same(service, old, "clusterIPs") {
            clear(service, "clusterIP");
            clear(service, "clusterIPs");
        }
        clear_same(service, old, &["ipFamilies", "ipFamilyPolicy"]);
    }
    if needs_node_ports(old) && !needs_node_ports(service) {
        let had: HashSet<i64> = node_ports(old).into_iter().collect();
        if node_ports(service).iter().all(|port| had.contains(port)) {
            ports_mut(service).for_each(|port| drop(port.remove("nodePort")));
        }
    }
    if needs_health_check_port(old) && !needs_health_check_port(service) {
        clear_same(service, old, &["healthCheckNodePort"]);
    }
    if kind(old) == "LoadBalancer" && kind(service) != "LoadBalancer" {
        clear_same(service, old, &["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_reached_from_outside(old) && !is_reached_from_outside(service) {
        clear_same(service, old, &["externalTrafficPolicy"]);
    }
    if kind(old) != "ExternalName" && kind(service) == "ExternalName" {
        clear_same(service, old, &["internalTrafficPolicy"]);
    }
}

fn is_reached_from_outside(service: &Object) -> bool {
    needs_node_ports(service) || kind(service) == "ClusterIP" && !texts(service, "externalIPs").is_empty()
}

/// Removes each of the named members that did not change.
fn clear_same(service: &mut Object, old: &Object, names: &[&str]) {
    for name in names {
        if same(service, old, name) {
            clear(service, name);
        }
    }
}

/// Fills in allocated items that the client omitted.
pub(super) fn fill_in(service: &mut Object, old: &Object) {
    if needs_address(old) && needs_address(service) {
        if text(service, "clusterIP").is_empty() && !text(old, "clusterIP").is_empty() {
            set(service, "clusterIP", text(old, "clusterIP").into());
        }
        if texts(service, "clusterIPs").is_empty() && same(service, old, "clusterIP") {
            let before = texts(old, "clusterIPs");
            if !before.is_empty() {
                set(service, "clusterIPs", before.as_slice().into());
            }
        }
    }
    if needs_node_ports(old) && needs_node_ports(service) {
        let named: HashSet<i64> = node_ports(service).into_iter().collect();
        let by_name: HashMap<&str, i64> =
            ports(old).iter().map(|port| (port.str_at(&["name"]), number(port, "nodePort"))).collect();
        for port in ports_mut(service) {
            if port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) == 0 {
                let name = port.get("name").and_then(Value::as_str).unwrap_or_default();
                // Skip a node port that the client moved to another port of the service.
                if let Some(number) = by_name.get(name).filter(|port| **port != 0 && !named.contains(port)) {
                    port.insert("nodePort", Value::Int(*number));
                }
            }
        }
    }
    let health = "spec.healthCheckNodePort";
    let open = at(service, health).and_then(Value::as_i64).unwrap_or(0) == 0;
    if open
        && needs_health_check_port(old)
        && needs_health_check_port(service)
        && let Some(before) = at(old, health).cloned()
    {
        set(service, "healthCheckNodePort", before);
    }
}

/// Keeps `clusterIP` and `clusterIPs` consistent for clients that set only `clusterIP`.
pub(super) fn synchronise(service: &mut Object, old: &Object) {
    let (now, before) = (text(service, "clusterIP").to_owned(), text(old, "clusterIP"));
    let (all, all_before) = (texts(service, "clusterIPs"), texts(old, "clusterIPs"));
    if !all_before.is_empty() && all.is_empty() && now == before {
        return set(service, "clusterIPs", all_before.as_slice().into());
    }
    if now != before && all == all_before {
        if now.is_empty() { clear(service, "clusterIPs") } else { copy_address(service) }
    }
}
