//! Cell functions of services, endpoints and ingresses.

use std::borrow::Cow;
use std::fmt::Write;

use super::cell::{Cell, Function};
use super::functions::first_three;
use super::row::{Output, Row, text_of};
use values::json::Value;

/// Functions of networking kinds.
pub static FUNCTIONS: &[Function] = &[
    Function::reading(
        "serviceExternalIP",
        "spec{type,externalIPs,externalName},status.loadBalancer.ingress{ip,hostname}",
        service_external_ip,
    ),
    Function::reading("servicePorts", "spec.ports{port,nodePort,protocol}", service_ports),
    Function::reading("ingressHosts", "spec.rules.host", ingress_hosts),
    Function::reading("ingressAddress", "status.loadBalancer.ingress{ip,hostname}", |row, _| {
        Output::text(load_balancer_addresses(row).join(","))
    }),
    Function::reading("endpointsList", "subsets{addresses.ip,ports.port}", endpoints_list),
    Function::reading("slicePorts", "ports{name,port}", slice_ports),
    Function::reading("sliceEndpoints", "endpoints.addresses", slice_endpoints),
];

/// Returns the addresses of the load balancer, sorted and unique.
fn load_balancer_addresses<'r>(row: &Row<'r>) -> Vec<&'r str> {
    let points = row.list(&["status", "loadBalancer", "ingress"]).iter();
    let mut addresses: Vec<&str> = points
        .map(|point| match point.str_at(&["ip"]) {
            "" => point.str_at(&["hostname"]),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Computes the addresses at which a service is reachable from outside, depending on its type.
fn service_external_ip<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let external = row.list(&["spec", "externalIPs"]).iter().filter_map(Value::as_str);
    let (addresses, none) = match row.str(&["spec", "type"]) {
        "ClusterIP" | "NodePort" => (external.collect(), "<none>"),
        "LoadBalancer" => {
            let mut all: Vec<&str> = load_balancer_addresses(row);
            all.extend(external);
            (all, "<pending>")
        }
        "ExternalName" => return Output::text(row.str(&["spec", "externalName"])),
        _ => (Vec::new(), "<unknown>"),
    };
    if addresses.is_empty() { Output::text(none) } else { Output::text(addresses.join(",")) }
}

/// Computes `80/TCP,443:30443/TCP`; unset if there are no ports.
fn service_ports<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let mut text = String::new();
    for port in row.list(&["spec", "ports"]) {
        if !text.is_empty() {
            text.push(',');
        }
        let int = |name| port.get(name).and_then(Value::as_i64).unwrap_or(0);
        let _ = write!(text, "{}", int("port")); // writing to memory cannot fail
        if int("nodePort") > 0 {
            let _ = write!(text, ":{}", int("nodePort"));
        }
        let _ = write!(text, "/{}", port.str_at(&["protocol"]));
    }
    Output::text(text)
}

/// Computes up to three hosts; `*` if no rule has a host.
fn ingress_hosts<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    const SHOWN_MAX: usize = 3;
    let rules = row.list(&["spec", "rules"]);
    let named: Vec<&str> =
        rules.iter().map(|rule| rule.str_at(&["host"])).filter(|host| !host.is_empty()).collect();
    if named.is_empty() {
        return Output::text("*");
    }
    let mut text = named[..named.len().min(SHOWN_MAX)].join(",");
    // If the list has three hosts, the count covers all further rules, with or without a host.
    if named.len() >= SHOWN_MAX && rules.len() > SHOWN_MAX {
        let third = rules.iter().enumerate().filter(|(_, rule)| !rule.str_at(&["host"]).is_empty()).nth(2);
        if third.is_some_and(|(at, _)| at + 1 < rules.len()) {
            let _ = write!(text, " + {} more...", rules.len() - SHOWN_MAX);
        }
    }
    Output::text(text)
}

/// Computes up to three texts `ip:port`, port by port. For a subset without ports, the texts are only
/// addresses.
fn endpoints_list<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    const LISTED_MAX: usize = 3;
    let subsets = row.list(&["subsets"]);
    if subsets.is_empty() {
        return Output::text("<none>");
    }
    let list = |subset: &'r Value, name| subset.get(name).and_then(Value::as_array).unwrap_or_default();
    let mut listed: Vec<String> = Vec::new();
    let mut count = 0_usize;
    for subset in subsets {
        let (addresses, ports) = (list(subset, "addresses"), list(subset, "ports"));
        count = count.saturating_add(addresses.len().saturating_mul(ports.len().max(1)));
        let lines = if ports.is_empty() { &[Value::Null][..] } else { ports };
        'subset: for port in lines {
            for address in addresses {
                if listed.len() == LISTED_MAX {
                    break 'subset; // further endpoints are only counted
                }
                let ip = address.str_at(&["ip"]);
                listed.push(match port.get("port").and_then(Value::as_i64) {
                    None if port.is_null() => ip.to_owned(),
                    port if ip.contains(':') => format!("[{ip}]:{}", port.unwrap_or(0)),
                    port => format!("{ip}:{}", port.unwrap_or(0)),
                });
            }
        }
    }
    let mut text = listed.join(",");
    if count > LISTED_MAX {
        let _ = write!(text, " + {} more...", count - LISTED_MAX);
    }
    Output::text(text)
}

/// Computes the port numbers; a port without a number means all ports with its name, or all ports if the port has no
/// name.
fn slice_ports<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let ports = row.list(&["ports"]).iter().map(|port| {
        let given = |name| port.get(name).filter(|value| !value.is_null());
        given("port").or_else(|| given("name")).map_or(Cow::Borrowed("*"), text_of)
    });
    at_most_three(ports.collect())
}

/// Computes the addresses of all endpoints.
fn slice_endpoints<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let endpoints = row.list(&["endpoints"]).iter();
    let addresses = endpoints.filter_map(|endpoint| endpoint.get("addresses")?.as_array()).flatten();
    at_most_three(addresses.map(text_of).collect())
}

fn at_most_three<'r>(texts: Vec<Cow<'r, str>>) -> Output<'r> {
    let text = first_three(&texts);
    if text.is_empty() { Output::text("<unset>") } else { Output::text(text) }
}
