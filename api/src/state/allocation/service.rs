//! Allocation of the requested or missing items of one service: address families, cluster IPs and node ports
//! (docs/api/validation.md#services). The steps have the same order as in the reference server's allocator.
//!
//! The validation of services checks single fields. This module contains only the rules that allocation
//! depends on. Fields that an update omits are filled in from the stored object (`members.rs`), so that a client may
//! send fewer fields than the client has read.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::Reservation;
use super::pools::{Item, ReservationRefusal};
use super::range::{Family, Network};
use objects::validation::{ADDRESS, address_fault};
use values::field::FieldError;
use values::json::{Object, Value};
use values::object::at;

mod members;

use members::*;

/// The reason why allocation for a service failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A requested item is invalid or unavailable.
    Invalid(Vec<FieldError>),
    /// A range is exhausted, or a health check port is unavailable.
    Internal(String),
    /// Two ports of one protocol request the same node port.
    Plain(String),
}

const NONE: &str = "None";

/// Allocates for a new service.
pub(super) fn create(pools: &mut Reservation<'_>, service: &mut Object) -> Result<(), Trouble> {
    if texts(service, "clusterIPs").is_empty() && !text(service, "clusterIP").is_empty() {
        copy_address(service);
    }
    families(pools, service, None)?;
    if needs_address(service) {
        addresses(pools, service, 0)?;
    }
    if needs_node_ports(service) {
        new_node_ports(pools, service)?;
    }
    health_check_port(pools, service, None)
}

/// Allocates for an updated service.
pub(super) fn update(pools: &mut Reservation<'_>, service: &mut Object, old: &Object) -> Result<(), Trouble> {
    drop_fields_of_other_types(service, old);
    fill_in(service, old);
    synchronise(service, old);
    families(pools, service, Some(old))?;
    if needs_address(service) && text(service, "clusterIP") != NONE {
        let had = if needs_address(old) { texts(old, "clusterIPs").len() } else { 0 };
        addresses(pools, service, had)?;
    }
    if needs_node_ports(service) {
        changed_node_ports(pools, service, old)?;
    }
    health_check_port(pools, service, Some(old))
}

/// Decides the number and order of the address families of the service.
fn families(pools: &Reservation<'_>, service: &mut Object, old: Option<&Object>) -> Result<(), Trouble> {
    if !needs_address(service) {
        return Ok(());
    }
    let untouched = |old: &Object| {
        let all = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];
        needs_address(old) && all.iter().all(|name| same(service, old, name))
    };
    if old.is_some_and(|old| untouched(old) && text(service, "ipFamilyPolicy") == "PreferDualStack") {
        // A change of the cluster's families does not change existing services.
        return Ok(());
    }
    let old = old.filter(|old| needs_address(old));
    if let Some(old) = old {
        adopt(service, old);
    }
    let headless = text(service, "clusterIP") == NONE;
    let selects = at(service, "spec.selector").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    // Endpoints of headless services without a selector are managed externally and may be of any family.
    let is_open = headless && !selects;
    let policy = match text(service, "ipFamilyPolicy") {
        "" if is_open => "RequireDualStack",
        "" => "SingleStack",
        policy => policy,
    };
    let policy = policy.to_owned();
    fail_on(check_addresses(service))?;
    let mut errors = old.map_or_else(Vec::new, |old| remove_second_family(service, &policy, old));
    let networks = &pools.pools.networks;
    let mut families = requested_families(networks, service, &policy, &mut errors);
    fail_on(errors)?;
    if !is_open {
        fail_on(unconfigured_families(networks, &families, &policy))?;
    }
    if families.is_empty() {
        let default = networks.first().map_or(Family::V4, |network| network.family());
        families.push(default.name().to_owned());
    }
    let is_dual = networks.len() == 2;
    if policy != "SingleStack" && (is_dual || is_open) && families.len() == 1 {
        families.extend(other_family(&families));
    }
    set(service, "ipFamilies", families.as_slice().into());
    set(service, "ipFamilyPolicy", policy.into());
    Ok(())
}

/// Returns an error if `errors` is not empty.
fn fail_on(errors: Vec<FieldError>) -> Result<(), Trouble> {
    if errors.is_empty() { Ok(()) } else { Err(Trouble::Invalid(errors)) }
}

/// Returns the error for a policy that does not fit the cluster or the service.
fn policy_error(policy: &str, detail: String) -> FieldError {
    FieldError::invalid("spec.ipFamilyPolicy", &Value::from(policy), detail)
}

fn has_network(networks: &[Network], family: &str) -> bool {
    networks.iter().any(|network| network.family().name() == family)
}

/// Returns the families that the service names, followed by the families of its other addresses.
fn requested_families(
    networks: &[Network],
    service: &Object,
    policy: &str,
    errors: &mut Vec<FieldError>,
) -> Vec<String> {
    let mut families = texts(service, "ipFamilies");
    let addresses = texts(service, "clusterIPs");
    if policy == "SingleStack" {
        for (several, what) in [(addresses.len() > 1, "cluster IPs"), (families.len() > 1, "IP families")] {
            if several {
                let requirement = "must be 'RequireDualStack' or 'PreferDualStack'";
                errors
                    .push(policy_error(policy, format!("{requirement} when multiple {what} are specified")));
            }
        }
    }
    for (position, address) in addresses.iter().enumerate().skip(families.len()) {
        let Ok(address) = address.parse::<IpAddr>() else { break };
        let family = Family::from_address(address).name();
        if has_network(networks, family) {
            families.push(family.to_owned());
        } else {
            // The client chose the address, so the error names the address and not the derived family.
            let path = format!("spec.clusterIPs[{position}]");
            let detail = format!("{family} is not configured on this cluster");
            errors.push(FieldError::invalid(path, &Value::from(addresses.as_slice()), detail));
        }
    }
    families
}

/// Returns the errors for families and a policy for which the cluster has no networks.
fn unconfigured_families(networks: &[Network], families: &[String], policy: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if policy == "RequireDualStack" && networks.len() != 2 {
        errors
            .push(policy_error(policy, "this cluster is not configured for dual-stack services".to_owned()));
    }
    for (position, family) in families.iter().enumerate().filter(|(_, family)| !has_network(networks, family))
    {
        let path = format!("spec.ipFamilies[{position}]");
        errors.push(FieldError::invalid(path, &family.as_str().into(), "not configured on this cluster"));
    }
    errors
}

fn other_family(families: &[String]) -> Option<String> {
    let first = Family::by_name(families.first()?)?;
    Some(first.other().name().to_owned())
}

/// Fills in the families and the policy that an update omits.
fn adopt(service: &mut Object, old: &Object) {
    let before = texts(old, "ipFamilies");
    if texts(service, "ipFamilies").is_empty()
        && !before.is_empty()
        && text(service, "clusterIP") == text(old, "clusterIP")
    {
        set(service, "ipFamilies", before.as_slice().into());
    }
    if text(service, "ipFamilyPolicy").is_empty() && !text(old, "ipFamilyPolicy").is_empty() {
        set(service, "ipFamilyPolicy", text(old, "ipFamilyPolicy").into());
    }
}

/// If the policy is `SingleStack`, removes the second cluster IP and the second family that the client left
/// unchanged. Under any other policy, the result contains an error if the client removed the second cluster IP
/// or the second family.
fn remove_second_family(service: &mut Object, policy: &str, old: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (now, before) = (texts(service, name), texts(old, name));
        if policy == "SingleStack" {
            if now == before && now.len() > 1 {
                set(service, name, Value::from(&now[..1]));
            }
        } else if !now.is_empty() && now.len() < before.len() {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            errors.push(FieldError::invalid("spec.ipFamilyPolicy", &policy.into(), detail));
        }
    }
    errors
}

/// Checks that the addresses are well-formed and match the families.
fn check_addresses(service: &Object) -> Vec<FieldError> {
    const PATH: &str = "spec.clusterIPs";
    let mut errors = Vec::new();
    let (first, all) = (text(service, "clusterIP"), texts(service, "clusterIPs"));
    let families = texts(service, "ipFamilies");
    let whole = || Value::from(all.as_slice());
    match (first.is_empty(), all.first()) {
        (false, None) => errors.push(FieldError::required(PATH, "")),
        (false, Some(listed)) if listed != first => {
            errors.push(FieldError::invalid(PATH, &whole(), "first value must match `clusterIP`"));
        }
        (true, Some(_)) => {
            let detail = "must be empty when `clusterIP` is not specified";
            errors.push(FieldError::invalid(PATH, &whole(), detail));
        }
        _ => {}
    }
    for (position, family) in families.iter().enumerate() {
        let path = format!("spec.ipFamilies[{position}]");
        if Family::by_name(family).is_none() {
            errors.push(FieldError::not_supported(path, &family.as_str().into(), &["IPv4", "IPv6"]));
        } else if families[..position].contains(family) {
            errors.push(FieldError::duplicate(path, &family.as_str().into()));
        }
    }
    let policy = text(service, "ipFamilyPolicy");
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if !policy.is_empty() && !policies.contains(&policy) {
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", &policy.into(), &policies));
    }
    let mut unreadable = false;
    let mut parsed = Vec::new();
    for (position, address) in all.iter().enumerate() {
        if position == 0 && address == NONE {
            if all.len() > 1 {
                unreadable = true;
                errors.push(FieldError::invalid(PATH, &whole(), "'None' must be the first and only value"));
            }
            continue;
        }
        match (address.parse::<IpAddr>(), address_fault(address)) {
            (Ok(address), None) => parsed.push(address),
            (_, fault) => {
                unreadable = true;
                let detail = fault.unwrap_or(ADDRESS);
                let value = Value::from(address.as_str());
                errors.push(FieldError::invalid(format!("{PATH}[{position}]"), &value, detail));
            }
        }
    }
    if all.len() > 2 {
        errors.push(FieldError::invalid(PATH, &whole(), "may only hold up to 2 values"));
    }
    if unreadable {
        return errors;
    }
    if let [one, other, ..] = parsed[..]
        && (Family::from_address(one) == Family::from_address(other) || parsed.len() > 2)
    {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(PATH, &whole(), detail));
    }
    if errors.is_empty() {
        for (position, (address, family)) in parsed.iter().zip(&families).enumerate() {
            if Family::from_address(*address).name() != family {
                let detail = format!("expected an {family} value as indicated by `ipFamilies[{position}]`");
                let value = Value::from(address.to_string());
                errors.push(FieldError::invalid(format!("{PATH}[{position}]"), &value, detail));
            }
        }
    }
    errors
}

/// Allocates an address for each family except the first `had` families, which have addresses already.
fn addresses(pools: &mut Reservation<'_>, service: &mut Object, had: usize) -> Result<(), Trouble> {
    if text(service, "clusterIP") == NONE {
        return Ok(());
    }
    let families = texts(service, "ipFamilies");
    let mut all = texts(service, "clusterIPs");
    for (position, family) in families.iter().enumerate().skip(had) {
        let Some(family) = Family::by_name(family) else { continue };
        match all.get(position).filter(|text| !text.is_empty()) {
            Some(requested) => {
                let Ok(address) = requested.parse::<IpAddr>() else { continue };
                pools.take(Item::Address(address)).map_err(|refusal| {
                    let mut networks = pools.pools.networks.iter();
                    let network = networks.find(|network| network.family() == family && network.covers(address));
                    let why = match (refusal, network) {
                        // The network address and the broadcast address are not allocatable.
                        (ReservationRefusal::OutOfRange, Some(network)) => format!(
                            "the provided IP ({address}) is not in the valid range. The range of valid IPs is {network}"
                        ),
                        (ReservationRefusal::OutOfRange, None) => {
                            "the provided network does not match the current range".to_owned()
                        }
                        _ => "provided IP is already allocated".to_owned(),
                    };
                    let detail = format!("failed to allocate IP {requested}: {why}");
                    Trouble::Invalid(vec![FieldError::invalid("spec.clusterIPs", &Value::from(all.as_slice()), detail)])
                })?;
            }
            None => {
                let address = pools.pools.take_address(family).map_err(|_| {
                    Trouble::Internal("failed to allocate a serviceIP: range is full".to_owned())
                })?;
                pools.items.insert(Item::Address(address));
                all.push(address.to_string());
            }
        }
    }
    if let Some(first) = all.first() {
        let first = first.as_str().into();
        set(service, "clusterIP", first);
        set(service, "clusterIPs", all.as_slice().into());
    }
    Ok(())
}

impl Reservation<'_> {
    /// Reserves an item. If the service requests the same item twice, the second request is refused, as if
    /// another service held the item.
    fn take(&mut self, item: Item) -> Result<(), ReservationRefusal> {
        if self.items.contains(&item) {
            return Err(ReservationRefusal::Taken);
        }
        self.pools.take(item)?;
        self.items.insert(item);
        Ok(())
    }

    /// Reserves a requested node port.
    fn take_node_port(&mut self, position: usize, port: i64) -> Result<(), Trouble> {
        self.take_port_number(port).map_err(|why| {
            let path = format!("spec.ports[{position}].nodePort");
            Trouble::Invalid(vec![FieldError::invalid(path, &Value::Int(port), why)])
        })
    }

    fn take_port_number(&mut self, port: i64) -> Result<(), String> {
        let taken = match u16::try_from(port) {
            Ok(port) => self.take(Item::Port(port)),
            Err(_) => Err(ReservationRefusal::OutOfRange),
        };
        let ports = self.pools.ports;
        taken.map_err(|refusal| match refusal {
            ReservationRefusal::OutOfRange => {
                format!("provided port is not in the valid range. The range of valid ports is {ports}")
            }
            ReservationRefusal::Taken | ReservationRefusal::Full => {
                "provided port is already allocated".to_owned()
            }
        })
    }

    fn any_node_port(&mut self) -> Result<i64, Trouble> {
        let port = self
            .pools
            .take_port()
            .map_err(|_| Trouble::Internal("failed to allocate a nodePort: range is full".to_owned()))?;
        self.items.insert(Item::Port(port));
        Ok(port.into())
    }
}

/// Allocates the node ports of a new service. Ports with equal numbers share a node port across protocols.
fn new_node_ports(pools: &mut Reservation<'_>, service: &mut Object) -> Result<(), Trouble> {
    let allocates = allocates_node_ports(service);
    let requested: Vec<(i64, i64)> =
        ports(service).iter().map(|port| (number(port, "port"), number(port, "nodePort"))).collect();
    let mut wished: HashMap<i64, i64> = HashMap::new();
    for (port, wish) in requested.iter().filter(|(_, wish)| *wish != 0) {
        wished.entry(*port).or_insert(*wish);
    }
    let mut of_port: HashMap<i64, i64> = HashMap::new();
    let mut chosen = Vec::with_capacity(requested.len());
    for (position, (port, node_port)) in requested.into_iter().enumerate() {
        if node_port == 0 && !allocates {
            chosen.push(0);
            continue;
        }
        chosen.push(match (of_port.get(&port), wished.get(&port)) {
            (Some(shared), _) if node_port == 0 || node_port == *shared => *shared,
            (Some(_), _) => {
                pools.take_node_port(position, node_port)?;
                node_port
            }
            (None, Some(wish)) => {
                pools.take_node_port(position, *wish)?;
                of_port.insert(port, *wish);
                *wish
            }
            (None, None) => {
                let number = pools.any_node_port()?;
                of_port.insert(port, number);
                number
            }
        });
    }
    set_node_ports(service, &chosen);
    Ok(())
}

/// Allocates the node ports of an updated service: existing node ports are kept, and missing node ports are
/// allocated. Ports share a node port only across protocols.
fn changed_node_ports(
    pools: &mut Reservation<'_>,
    service: &mut Object,
    old: &Object,
) -> Result<(), Trouble> {
    let allocates = allocates_node_ports(service);
    let mut had: HashSet<i64> = node_ports(old).into_iter().collect();
    let requested: Vec<(String, i64)> =
        ports(service).iter().map(|port| (protocol(port).to_owned(), number(port, "nodePort"))).collect();
    let mut pairs = HashSet::new();
    let mut chosen = Vec::with_capacity(requested.len());
    for (position, &(ref protocol, node_port)) in requested.iter().enumerate() {
        if node_port == 0 && !allocates {
            chosen.push(0);
            continue;
        }
        let port = if node_port == 0 { pools.any_node_port()? } else { node_port };
        if node_port != 0 && !had.contains(&node_port) {
            pools.take_node_port(position, node_port)?;
            had.insert(node_port);
        }
        if !pairs.insert((protocol.as_str(), port)) {
            return Err(Trouble::Plain(format!("duplicate nodePort: {{{protocol} {port}}}")));
        }
        chosen.push(port);
    }
    set_node_ports(service, &chosen);
    Ok(())
}

fn set_node_ports(service: &mut Object, chosen: &[i64]) {
    for (port, chosen) in ports_mut(service).zip(chosen) {
        if *chosen != 0 {
            port.insert("nodePort", Value::Int(*chosen));
        }
    }
}

/// Allocates the health check port, on which each node reports whether the node has endpoints of the service.
fn health_check_port(
    pools: &mut Reservation<'_>,
    service: &mut Object,
    old: Option<&Object>,
) -> Result<(), Trouble> {
    if !needs_health_check_port(service) || old.is_some_and(needs_health_check_port) {
        return Ok(());
    }
    let requested = at(service, "spec.healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0);
    let port = if requested == 0 {
        let port = pools.pools.take_port().map_err(|_| {
            Trouble::Internal("failed to allocate a HealthCheck NodePort 0: range is full".to_owned())
        })?;
        pools.items.insert(Item::Port(port));
        i64::from(port)
    } else {
        pools.take_port_number(requested).map_err(|why| {
            Trouble::Internal(format!("failed to allocate requested HealthCheck NodePort {requested}: {why}"))
        })?;
        requested
    };
    set(service, "healthCheckNodePort", Value::Int(port));
    Ok(())
}

#[cfg(test)]
#[path = "service_test.rs"]
mod tests;
