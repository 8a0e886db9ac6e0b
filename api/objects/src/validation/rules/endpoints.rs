//! Rules for endpoints and endpoint slices.

use std::net::IpAddr;

use hashbrown::HashSet;

use super::super::path::FieldPath;
use super::super::{Validator, metadata, names, scalar_formats};
use super::StructView;
use super::common::SeenStrings;
use super::service::usable_address;
use values::field::FieldError;

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;

/// Checks a list of addresses and their common ports.
pub(super) fn subset(validator: &mut Validator, path: &FieldPath, subset: StructView) {
    if subset.items("addresses").is_empty() && subset.items("notReadyAddresses").is_empty() {
        validator.required(path, "must specify `addresses` or `notReadyAddresses`");
    }
    for list in ["addresses", "notReadyAddresses"] {
        let list_path = path.child(list);
        for (at, address) in subset.structs(list).enumerate() {
            if validator.has_enough() {
                return;
            }
            let place = list_path.index(at);
            let text = address.text("ip");
            usable_address(validator, &place.child("ip"), text);
            if scalar_formats::address(text).is_none() {
                // The error is reported a second time, because the check for special addresses fails as well.
                validator.invalid(place.child("ip"), text, "must be a valid IP address");
            }
        }
    }
    let list = path.child("ports");
    let ports = subset.structs("ports");
    let are_many = ports.len() > 1;
    for (at, port) in ports.enumerate() {
        if port.text("name").is_empty() && are_many && !validator.has_enough() {
            let place = list.index(at);
            validator.required(place.child("name"), "");
        }
    }
}

pub(super) fn slice(validator: &mut Validator, path: &FieldPath, slice: StructView) {
    let kind = slice.text("addressType");
    let list = path.child("endpoints");
    let endpoints = slice.structs("endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        return validator.errors.push(FieldError::too_many(list, endpoints.len(), ENDPOINTS_MAX));
    }
    let stored = stored_addresses(validator);
    for (at, endpoint) in endpoints.enumerate() {
        if validator.has_enough() {
            return;
        }
        check_endpoint(validator, &list.index(at), endpoint, kind, &stored);
    }
    let list = path.child("ports");
    let ports = slice.structs("ports");
    if ports.len() > PORTS_MAX {
        return validator.errors.push(FieldError::too_many(list, ports.len(), PORTS_MAX));
    }
    let mut seen = SeenStrings::new();
    for (at, port) in ports.enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        let name = port.text("name");
        if !seen.insert(name) {
            validator.duplicate(place.child("name"), name);
        }
    }
}

/// Returns the addresses of the stored slice. An update may keep such an address even if it is not canonical.
fn stored_addresses(validator: &Validator) -> HashSet<String> {
    let old = validator.old.into_iter().flat_map(|old| old.structs("endpoints"));
    let addresses = old.flat_map(|endpoint| endpoint.texts("addresses"));
    addresses
        .filter(|text| scalar_formats::canonical_address_fault(text).is_some())
        .map(str::to_owned)
        .collect()
}

fn check_endpoint(
    validator: &mut Validator,
    path: &FieldPath,
    endpoint: StructView,
    kind: &str,
    stored: &HashSet<String>,
) {
    let list = path.child("addresses");
    let addresses = endpoint.texts("addresses");
    if addresses.len() == 0 {
        validator.required(list, "must contain at least 1 address");
    } else if addresses.len() > ADDRESSES_MAX {
        validator.errors.push(FieldError::too_many(list, addresses.len(), ADDRESSES_MAX));
    }
    for (at, text) in addresses.enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        match kind {
            "IPv4" | "IPv6" => {
                if let Some(fault) = scalar_formats::address_fault(text) {
                    validator.invalid(place, text, fault);
                    continue;
                }
                let Some(address) = scalar_formats::address(text) else { continue };
                if !matches!((kind, address), ("IPv4", IpAddr::V4(_)) | ("IPv6", IpAddr::V6(_))) {
                    // As in the reference server, the error has the path of the list.
                    validator.invalid(list, text, format!("must be an {kind} address"));
                } else if let Some(fault) = scalar_formats::canonical_address_fault(text)
                    && !stored.contains(text)
                {
                    validator.invalid(place, text, fault);
                    continue;
                }
                usable_address(validator, &place, text);
            }
            "FQDN" => domain(validator, &place, text),
            _ => {}
        }
    }
    let topology = endpoint.child("deprecatedTopology");
    let place = path.child("deprecatedTopology");
    metadata::labels(&place, endpoint.get("deprecatedTopology"), &mut validator.errors);
    let count = topology.members().count();
    if count > TOPOLOGY_MAX {
        validator.errors.push(FieldError::too_many(place, count, TOPOLOGY_MAX));
    }
    let hints = path.child("hints");
    for list in ["forZones", "forNodes"] {
        let names = endpoint.child("hints").structs(list);
        let place = hints.child(list);
        if names.len() > HINTS_MAX {
            validator.errors.push(FieldError::too_many(place, names.len(), HINTS_MAX));
            continue;
        }
        let mut seen = SeenStrings::new();
        for (at, name) in names.enumerate() {
            let name = name.text("name");
            if !seen.insert(name) && !validator.has_enough() {
                let place = place.index(at);
                validator.duplicate(place.child("name"), name);
            }
        }
    }
}

/// Checks a domain of at least two labels.
fn domain(validator: &mut Validator, path: &FieldPath, text: &str) {
    let name = text.strip_suffix('.').unwrap_or(text);
    let faults = names::subdomain(name);
    if text.is_empty() {
        validator.required(path, "");
    } else if !faults.is_empty() {
        validator.invalid(path, name, faults.join(","));
    } else if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        validator.invalid(path, name, detail);
    }
}
