//! Rules for resource names and quantities: requests and limits of containers, and resources that quotas
//! count.

use quantity::Quantity;

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use super::common::SeenStrings;
use super::scalar_formats::NOT_NEGATIVE;
use super::view::quantity;
use values::json::Value;
use values::naming::Naming;

/// Resources whose amounts are integers.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Resources whose amounts may be fractions.
const MEASURED: [&str; 9] = [
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Owner of resources. The owner determines which names are valid.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Owner {
    Container,
    Pod,
}

pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Returns whether a name has no domain, or has the domain of the system.
pub(super) fn is_native(naming: &Naming, name: &str) -> bool {
    match name.split_once('/') {
        None => true,
        Some((prefix, _)) => prefix.ends_with(naming.domain),
    }
}

/// Returns whether a name has a domain that is not the domain of the system.
pub(super) fn is_extended(naming: &Naming, name: &str) -> bool {
    !is_native(naming, name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

pub(super) fn allows_overcommit(naming: &Naming, name: &str) -> bool {
    is_native(naming, name) && !is_huge_page(name)
}

/// Checks the name of a compute resource and returns whether it is valid.
pub(super) fn name(validator: &mut Validator, path: &FieldPath, name: &str) -> bool {
    let faults = names::qualified(name);
    if !faults.is_empty() {
        validator.refuse(path, name, faults);
        return false;
    }
    let is_standard = MEASURED.contains(&name)
        || COUNTED.contains(&name)
        || matches!(name, "storage" | "requests.storage")
        || is_huge_page(name)
        || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !is_standard {
        validator.invalid(path, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// Checks the name of a resource that containers can have.
pub(super) fn container_name(validator: &mut Validator, path: &FieldPath, name: &str) {
    if matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name) {
        return;
    }
    self::name(validator, path, name);
    if !name.contains('/') {
        validator.invalid(path, name, "must be a standard resource for containers");
    } else if !is_native(validator.naming, name) && !is_extended(validator.naming, name) {
        validator.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// Checks the name of a resource that quotas count.
pub(super) fn quota_name(validator: &mut Validator, path: &FieldPath, name: &str) {
    self::name(validator, path, name);
    if !name.contains('/') && !is_quota(name) {
        validator.invalid(path, name, "must be a standard resource for quota");
    }
}

pub(super) fn is_quota(name: &str) -> bool {
    MEASURED.contains(&name)
        || COUNTED.contains(&name)
        || name == "requests.storage"
        || is_huge_page(name)
        || name.starts_with("requests.hugepages-")
}

fn pod_name(validator: &mut Validator, path: &FieldPath, name: &str) {
    if self::name(validator, path, name) && !(matches!(name, "cpu" | "memory") || is_huge_page(name)) {
        validator.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// Checks an amount against the rules of its resource.
pub(super) fn amount(validator: &mut Validator, path: &FieldPath, name: &str, value: &Value) {
    let Some(quantity) = quantity(value) else { return };
    if quantity.is_negative() {
        validator.invalid(path, value.clone(), NOT_NEGATIVE);
    }
    let is_counted = COUNTED.contains(&name) || is_extended(validator.naming, name);
    if is_counted && !quantity.is_whole() {
        validator.invalid(path, value.clone(), "must be an integer");
    }
}

fn pages(validator: &mut Validator, path: &FieldPath, name: &str, value: &Value) {
    let (Some(quantity), Some(page)) = (quantity(value), name.strip_prefix("hugepages-")) else { return };
    let is_multiple =
        Quantity::parse(page).is_ok_and(|page| page.is_whole() && quantity.is_multiple_of(page));
    if !is_multiple {
        let detail = format!("{} is not positive integer multiple of {name}", quantity.to_text());
        validator.invalid(path, value.clone(), detail);
    }
}

/// Checks the requests and limits of a container or pod. `claims` contains the names of the claims of the
/// pod.
pub(super) fn requirements(
    validator: &mut Validator,
    path: &FieldPath,
    requirements: StructView,
    owner: Owner,
    claims: &SeenStrings,
) {
    if !requirements.is_there() {
        return;
    }
    let mut names_computing = false;
    let mut names_pages = false;
    let limits = requirements.child("limits");
    let limits_path = path.child("limits");
    for list in ["limits", "requests"] {
        let list_path = path.child(list);
        for (name, value) in requirements.map(list) {
            if validator.has_enough() {
                break;
            }
            let place = list_path.key(name);
            match owner {
                Owner::Container => container_name(validator, &place, name),
                Owner::Pod => pod_name(validator, &place, name),
            }
            amount(validator, &place, name, value);
            names_computing |= matches!(name, "cpu" | "memory");
            if list == "requests" {
                within_limit(validator, &list_path, &limits_path, name, value, limits);
            }
            if is_huge_page(name) {
                names_pages = true;
                pages(validator, &place, name, value);
            }
        }
    }
    if names_pages && !names_computing {
        validator.forbidden(path, "HugePages require cpu or memory");
    }
    claim_names(validator, &path.child("claims"), requirements, claims);
}

fn within_limit(
    validator: &mut Validator,
    path: &FieldPath,
    limits_path: &FieldPath,
    name: &str,
    value: &Value,
    limits: StructView,
) {
    let can_exceed = allows_overcommit(validator.naming, name);
    let Some(limit_value) = limits.get(name) else {
        if !can_exceed {
            validator.required(limits_path, "Limit must be set for non overcommitable resources");
        }
        return;
    };
    let (Some(request), Some(limit)) = (quantity(value), quantity(limit_value)) else { return };
    if request != limit && !can_exceed {
        validator.invalid(
            path,
            value.clone(),
            format!("must be equal to {name} limit of {}", limit.to_text()),
        );
    } else if request > limit {
        let detail = format!("must be less than or equal to {name} limit of {}", limit.to_text());
        validator.invalid(path, value.clone(), detail);
    }
}

fn claim_names(validator: &mut Validator, path: &FieldPath, requirements: StructView, claims: &SeenStrings) {
    let mut whole = SeenStrings::new();
    let mut parts: hashbrown::HashSet<(&str, &str)> = hashbrown::HashSet::new();
    let mut with_parts = SeenStrings::new();
    for (at, claim) in requirements.structs("claims").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = path.index(at);
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            validator.required(place, "");
            continue;
        }
        if whole.contains(name) {
            validator.duplicate(place, name);
        } else if request.is_empty() {
            if with_parts.contains(name) {
                validator.duplicate(place, name);
            }
            whole.insert(name);
        } else {
            validator.refuse(&place.child("request"), request, names::label(request));
            if !parts.insert((name, request)) {
                validator.duplicate(place, format!("{name}/{request}"));
            }
            with_parts.insert(name);
        }
        if !claims.contains(name) {
            let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if claims.is_empty() {
                detail.push_str(" which is empty");
            } else {
                detail.push_str(": ");
                detail.push_str(&claims.sorted().join(", "));
            }
            validator.not_found(place, name);
            if let Some(error) = validator.errors.last_mut() {
                error.detail = detail;
            }
        }
    }
}
