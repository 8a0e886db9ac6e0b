//! Rules for the status of a claim: allocated devices, their users, and the reports of drivers.

use std::net::IpAddr;

use hashbrown::HashSet;

use super::super::super::path::FieldPath;
use super::super::super::{Validator, is_same, scalar_formats};
use super::super::StructView;
use super::super::status::conditions;
use super::names::{driver, label, pool, share};
use super::request::{Requests, configuration, raw, tolerations};
use super::slice::binding_conditions;
use super::{LIST_MAX, each, fits, node_selector, repeated, set_of, slice_of};
use crate::device_limits::RESULTS_MAX;
use values::field::FieldError;
use values::json::{Object, Value};

/// Maximum number of users of one claim.
const USERS_MAX: usize = 256;
/// Maximum number of conditions of a device, and maximum size in bytes of the data of its driver.
const CONDITIONS_MAX: usize = 8;
const DATA_MAX: usize = 10 * 1024;
/// Limits of the data of a network device: interface name, hardware address, and number of addresses.
const INTERFACE_MAX: usize = 256;
const HARDWARE_MAX: usize = 128;
const ADDRESSES_MAX: usize = 16;

/// Identity of a device or of a share of a device: driver, pool, device, share.
type Identity<'v> = [&'v str; 4];

const IDENTITY: [&str; 4] = ["driver", "pool", "device", "shareID"];

fn identity<'v>(device: StructView<'v>) -> Identity<'v> {
    IDENTITY.map(|name| device.text(name))
}

/// Returns an identity as it appears in error messages.
fn identity_object(identity: Identity) -> Object {
    let mut out = Object::new();
    for (name, text) in ["Driver", "Pool", "Device", "ShareID"].into_iter().zip(identity) {
        out.insert(name, Value::from(text));
    }
    out
}

/// Checks the status of a claim. The allocation can be set once. Reservations and device statuses require an
/// allocation.
pub(in super::super) fn claim_status(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let before = validator.old.map_or(StructView::from(None), |old| old.child("status"));
    let (allocation, place) = (status.child("allocation"), path.child("allocation"));
    set_of(validator, path, status, "reservedFor", USERS_MAX, "uid", user);
    devices_in_use(validator, path, status, allocation);
    reserved(validator, &path.child("reservedFor"), status, before);
    if before.has("allocation") && allocation.is_there() {
        if !is_same(status.get("allocation"), before.get("allocation")) {
            validator.invalid(place, allocation.to_value(), "field is immutable");
        }
    } else if allocation.is_there() {
        let requests = Requests::from_spec(validator.object.child("spec"));
        allocated(validator, &place.child("devices"), allocation.child("devices"), &requests);
        if allocation.has("nodeSelector") {
            node_selector(validator, &place.child("nodeSelector"), allocation.child("nodeSelector"));
        }
    }
}

fn user(validator: &mut Validator, path: &FieldPath, user: StructView) {
    for name in ["resource", "name", "uid"] {
        if user.text(name).is_empty() {
            validator.required(path.child(name), "");
        }
    }
}

/// Returns the members that identify a user of a claim.
fn members_of_user<'v>(user: StructView<'v>) -> [&'v str; 4] {
    ["apiGroup", "resource", "name", "uid"].map(|name| user.text(name))
}

/// Checks the users of a claim. Users require an allocation, and a claim that is being deleted accepts no new
/// users.
fn reserved(validator: &mut Validator, path: &FieldPath, status: StructView, before: StructView) {
    if status.items("reservedFor").is_empty() {
        return;
    }
    if !status.has("allocation") {
        return validator.forbidden(path, "may not be specified when `allocated` is not set");
    }
    let is_deleted = validator.object.child("metadata").has("deletionTimestamp");
    // The new users are compared with a hash set, because their list may be too long.
    let known: HashSet<[&str; 4]> = before.structs("reservedFor").map(members_of_user).collect();
    if is_deleted && !status.structs("reservedFor").map(members_of_user).all(|user| known.contains(&user)) {
        let detail =
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        validator.forbidden(path, detail);
    }
}

/// Checks the reports of drivers about the devices of an allocation.
fn devices_in_use(validator: &mut Validator, path: &FieldPath, status: StructView, allocation: StructView) {
    let given: HashSet<Identity> = allocation.child("devices").structs("results").map(identity).collect();
    let list = path.child("devices");
    each(validator, &list, status.structs("devices"), |validator, path, device| {
        driver(validator, &path.child("driver"), device.text("driver"));
        pool(validator, &path.child("pool"), device.text("pool"));
        label(validator, &path.child("device"), device.text("device"));
        if let Some(id) = device.get("shareID").and_then(Value::as_str) {
            share(validator, &path.child("shareID"), id);
        }
        let identity = identity(device);
        if !given.contains(&identity) {
            validator.invalid(path, identity_object(identity), "must be an allocated device in the claim");
        }
        let list = path.child("conditions");
        if fits(validator, &list, device.items("conditions").len(), CONDITIONS_MAX) {
            conditions(validator, &list, device);
        }
        if device.has("data") {
            raw(validator, &path.child("data"), device.get("data"), DATA_MAX);
        }
        network(validator, &path.child("networkData"), device.child("networkData"));
    });
    let mut seen = HashSet::new();
    for (at, device) in status.structs("devices").enumerate() {
        let identity = identity(device);
        if !seen.insert(identity) && !validator.has_enough() {
            validator.duplicate(list.index(at), identity_object(identity));
        }
    }
}

fn network(validator: &mut Validator, path: &FieldPath, network: StructView) {
    for (name, max) in [("interfaceName", INTERFACE_MAX), ("hardwareAddress", HARDWARE_MAX)] {
        if network.text(name).len() > max {
            validator.errors.push(FieldError::too_long(path.child(name), max));
        }
    }
    let list = path.child("ips");
    let addresses = network.texts("ips");
    if fits(validator, &list, addresses.len(), ADDRESSES_MAX) {
        for (at, address) in addresses.clone().enumerate() {
            interface_address(validator, &list.index(at), address);
        }
        repeated(validator, &list, addresses);
    }
}

/// Checks the address of an interface. The address has a prefix length and must be in canonical form.
fn interface_address(validator: &mut Validator, path: &FieldPath, text: &str) {
    let Some((address, length)) = scalar_formats::network(text) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return validator.invalid(path, text, detail);
    };
    // The parser converts an IPv4-mapped IPv6 address to an IPv4 address, so 96 is subtracted from the prefix
    // length.
    let is_mapped = matches!(address, IpAddr::V4(_)) && length > 32;
    let canonical = format!("{address}/{}", i16::from(length) - if is_mapped { 96 } else { 0 });
    if text != canonical {
        validator.invalid(path, text, format!("must be in canonical form (\"{canonical}\")"));
    }
}

/// Checks the allocated devices and their configuration, which comes from the claim and its classes. The
/// claim must contain the requests to which the devices belong.
fn allocated(validator: &mut Validator, path: &FieldPath, devices: StructView, requests: &Requests) {
    slice_of(validator, path, devices, "results", RESULTS_MAX, |validator, path, result| {
        requests.check(validator, &path.child("request"), result.text("request"));
        driver(validator, &path.child("driver"), result.text("driver"));
        pool(validator, &path.child("pool"), result.text("pool"));
        label(validator, &path.child("device"), result.text("device"));
        binding_conditions(validator, path, result);
        tolerations(validator, path, result);
        if let Some(id) = result.get("shareID").and_then(Value::as_str) {
            share(validator, &path.child("shareID"), id);
        }
    });
    slice_of(validator, path, devices, "config", 2 * LIST_MAX, |validator, path, one| {
        match one.text("source") {
            "FromClaim" | "FromClass" => {}
            "" => validator.required(path.child("source"), ""),
            other => validator.not_supported(path.child("source"), other, &["FromClaim", "FromClass"]),
        }
        requests.check_all(validator, path, one);
        configuration(validator, path, one, false);
    });
}
