//! Warnings about services, their addresses, their endpoints, and ingresses.

use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr};

use super::{SPEC, Texts, WrittenObject};
use crate::validation::{self, FieldPath, StructView};
use values::field::go_quote;

/// Type of services that only refer to a host name and have no addresses of their own.
const EXTERNAL_NAME: &str = "ExternalName";

/// Traffic distribution that prefers nearby endpoints: the deprecated value, and the value that replaces it.
const NEAR: (&str, &str) = ("PreferClose", "PreferSameZone");

pub(super) fn service(texts: &mut Texts, written: WrittenObject) {
    let (hints, mode) = ("topology-aware-hints", "topology-mode");
    let label = |name: &str| format!("service.{}", written.naming.label(name));
    if written.annotation(&label(hints)) {
        let (hints, mode) = (label(hints), label(mode));
        texts.add(format!("annotation {hints} is deprecated, please use {mode} instead"));
    }
    let spec = written.view().child("spec");
    let is_headless = spec.texts("clusterIPs").eq(["None"]);
    let is_external_name = spec.text("type") == EXTERNAL_NAME;
    if is_headless {
        if !spec.text("loadBalancerIP").is_empty() {
            texts.add("spec.loadBalancerIP is ignored for headless services");
        }
        if !spec.items("externalIPs").is_empty() {
            texts.add("spec.externalIPs is ignored for headless services");
        }
        if !matches!(spec.text("sessionAffinity"), "" | "None") {
            texts.add("spec.SessionAffinity is ignored for headless services");
        }
    } else {
        addresses(texts, &SPEC.child("clusterIPs"), spec.texts("clusterIPs"));
    }
    if !is_headless && !is_external_name && !spec.items("externalIPs").is_empty() {
        texts.add("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    addresses(texts, &SPEC.child("externalIPs"), spec.texts("externalIPs"));
    address(texts, SPEC.child("loadBalancerIP"), spec.text("loadBalancerIP"));
    let list = SPEC.child("loadBalancerSourceRanges");
    for (at, source) in spec.texts("loadBalancerSourceRanges").enumerate() {
        range(texts, list.index(at), source);
    }
    let name = go_quote(EXTERNAL_NAME);
    if is_external_name && !spec.items("externalIPs").is_empty() {
        texts.add(format!("spec.externalIPs is ignored when spec.type is {name}"));
    }
    if !is_external_name && !spec.text("externalName").is_empty() {
        texts.add(format!("spec.externalName is ignored when spec.type is not {name}"));
    }
    if spec.text("trafficDistribution") == NEAR.0 {
        let (old, new) = (go_quote(NEAR.0), go_quote(NEAR.1));
        texts.add(format!("spec.trafficDistribution: {old} is deprecated; use {new}"));
    }
}

/// Warns about load balancer addresses of services and ingresses. The warning contains the path of the whole
/// entry.
pub(super) fn balancer_status(texts: &mut Texts, written: WrittenObject) {
    let status = FieldPath::ROOT.child("status");
    let balancer = status.child("loadBalancer");
    let list = balancer.child("ingress");
    let entries = written.view().child("status").child("loadBalancer");
    for (at, entry) in entries.structs("ingress").enumerate() {
        address(texts, list.index(at), entry.text("ip"));
    }
}

/// Warns about addresses of endpoints, except if the endpoints controller wrote them.
pub(super) fn endpoints(texts: &mut Texts, written: WrittenObject) {
    let labels = written.view().child("metadata").child("labels");
    let label = format!("endpoints.{}", written.naming.label("managed-by"));
    if labels.text(&label) == "endpoint-controller" {
        return;
    }
    let list = FieldPath::ROOT.child("subsets");
    for (at, subset) in written.view().structs("subsets").enumerate() {
        let place = list.index(at);
        for name in ["addresses", "notReadyAddresses"] {
            let list = place.child(name);
            for (at, given) in subset.structs(name).enumerate() {
                address(texts, list.index(at).child("ip"), given.text("ip"));
            }
        }
    }
}

fn addresses<'v>(texts: &mut Texts, list: &FieldPath, addresses: impl Iterator<Item = &'v str>) {
    for (at, given) in addresses.enumerate() {
        address(texts, list.index(at), given);
    }
}

/// Warns about an address that is valid but not canonical. Some programs do not accept such an address.
pub(super) fn address(texts: &mut Texts, path: impl Display, given: &str) {
    let Some(parsed) = validation::address(given) else { return };
    let canonical = parsed.to_string();
    if canonical == given {
        return;
    }
    let (given, better) = (go_quote(given), go_quote(&canonical));
    let why = match parsed {
        // The address has leading zeros, or has the form of an IPv4-mapped IPv6 address.
        IpAddr::V4(_) => format!("non-standard IP address {given} is invalid: use {better}"),
        IpAddr::V6(_) => format!("IPv6 address {given} should be in RFC 5952 canonical format ({better})"),
    };
    texts.at(path, &why);
}

/// Warns about an address range that is valid but not canonical. Some programs do not accept such a range.
pub(super) fn range(texts: &mut Texts, path: impl Display, given: &str) {
    let Some((address, bits)) = read_range(given) else { return };
    let network = masked(address, bits);
    let (quoted, better) = (go_quote(given), go_quote(&range_text(network, bits)));
    if network != address {
        let single = if address.is_ipv4() { 32 } else { 128 };
        let host = go_quote(&format!("{}/{single}", address.to_canonical()));
        let why = format!("CIDR value {quoted} is ambiguous in this context (should be {better} or {host}?)");
        texts.at(&path, &why);
    }
    if is_read_by_some(given) || address.to_canonical() != address {
        let why = format!("non-standard CIDR value {quoted} is invalid: use {better}");
        texts.at(&path, &why);
    } else if network == address && address.is_ipv6() && format!("{address}/{bits}") != given {
        let better = go_quote(&format!("{address}/{bits}"));
        texts
            .at(path, &format!("IPv6 CIDR value {quoted} should be in RFC 5952 canonical format ({better})"));
    }
}

/// Returns the address of a range, which may be an IPv4-mapped IPv6 address, and the prefix length.
fn read_range(given: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = given.split_once('/')?;
    let (read, _) = validation::network(given)?;
    let address = address.parse::<Ipv6Addr>().map_or(read, IpAddr::V6);
    Some((address, bits.parse().ok()?))
}

/// Returns whether a range has leading zeros, which only some programs accept.
fn is_read_by_some(given: &str) -> bool {
    let (address, bits) = given.split_once('/').unwrap_or((given, ""));
    address.parse::<IpAddr>().is_err() || bits.len() > 1 && bits.starts_with('0')
}

/// Formats a range like Go. An IPv4-mapped range becomes an IPv4 range.
fn range_text(network: IpAddr, bits: u32) -> String {
    let plain = network.to_canonical();
    let bits = if plain == network { bits } else { bits.saturating_sub(96) };
    format!("{plain}/{bits}")
}

fn masked(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

pub(super) fn ingress(texts: &mut Texts, written: WrittenObject) {
    let annotation = written.naming.label("ingress.class");
    let has_class = written.view().child("spec").has("ingressClassName");
    if written.old.is_none() && !has_class && written.annotation(&annotation) {
        let annotation = go_quote(&annotation);
        texts.add(format!(
            "annotation {annotation} is deprecated, please use 'spec.ingressClassName' instead"
        ));
    }
}

pub(super) fn network_policy(texts: &mut Texts, written: WrittenObject) {
    let spec = written.view().child("spec");
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let list = SPEC.child(direction);
        for (at, rule) in spec.structs(direction).enumerate() {
            let rule_path = list.index(at);
            let peers_path = rule_path.child(peers);
            for (at, peer) in rule.structs(peers).enumerate() {
                let block: StructView = peer.child("ipBlock");
                let peer_path = peers_path.index(at);
                let place = peer_path.child("ipBlock");
                if block.is_there() {
                    range(texts, place.child("cidr"), block.text("cidr"));
                }
                let except = place.child("except");
                for (at, part) in block.texts("except").enumerate() {
                    range(texts, except.index(at), part);
                }
            }
        }
    }
}

/// Warns about the addresses of an endpoint slice, except if a controller wrote the slice.
pub(in crate::strategy) fn endpoint_slice(texts: &mut Texts, written: WrittenObject) {
    let slice = written.view();
    if slice.text("addressType") == "FQDN" {
        if written.old.is_none() {
            // The reference server reports this path although slices have no `spec`.
            texts.at("spec.addressType", "FQDN endpoints are deprecated");
        }
        return;
    }
    let label = format!("endpointslice.{}", written.naming.label("managed-by"));
    let manager = slice.child("metadata").child("labels").text(&label);
    let writes_well = |controller: &str| manager == written.naming.group(controller, true);
    if ["endpointslice-controller", "endpointslicemirroring-controller"].into_iter().any(writes_well) {
        return;
    }
    let list = FieldPath::ROOT.child("endpoints");
    for (at, endpoint) in slice.structs("endpoints").enumerate() {
        let place = list.index(at);
        addresses(texts, &place.child("addresses"), endpoint.texts("addresses"));
    }
}
