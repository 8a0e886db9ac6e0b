//! Rules for the status of pods, which nodes write (docs/api/subresources.md#status-subresource).

use hashbrown::{HashMap, HashSet};

use super::super::path::FieldPath;
use super::super::{Validator, names, scalar_formats};
use super::StructView;
use super::common::SeenStrings;
use values::field::FieldError;
use values::json::Value;

const RUNS_AGAIN: &str = "may not be transitioned to non-terminated state";
const ONE_OF_EACH: &str = "may specify no more than one IP for each IP family";
const NO_CONTAINER: &str =
    "must match the name of an entry in spec.initContainers.name or spec.containers.name";
const NO_RESOURCE: &str = "must match the extended resource name of an entry in \
                           spec.initContainers.resources.requests or spec.containers.resources.requests";
/// Types of conditions of the system, which are not checked as qualified names.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
/// Maximum ID of a user or group.
const ID_MAX: i64 = i32::MAX as i64;

pub(super) fn pod(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let spec = validator.object.child("spec");
    let old = validator.old.map_or(StructView::from(None), |old| old.child("status"));
    conditions(validator, &path.child("conditions"), status);
    nominated(validator, &path.child("nominatedNodeName"), status, old, spec);
    generation(validator, path, status);
    if status.text("qosClass") != old.text("qosClass") {
        validator.invalid(path.child("qosClass"), status.text("qosClass"), "field is immutable");
    }
    for (list, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        transitions(validator, &path.child(list), status, old, list, spec, containers);
    }
    claims(validator, &path.child("resourceClaimStatuses"), status, spec);
    let extended = status.child(EXTENDED);
    if extended.is_there() {
        extended_claim(validator, &path.child(EXTENDED), extended, spec);
    }
    addresses(validator, &path.child("podIPs"), status, "podIPs");
    let hosts = path.child("hostIPs");
    if let Some(first) = status.structs("hostIPs").next()
        && first.text("ip") != status.text("hostIP")
    {
        validator.invalid(hosts.index(0).child("ip"), first.text("ip"), "must be equal to `hostIP`");
    }
    addresses(validator, &hosts, status, "hostIPs");
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        users(validator, &path.child(list), status, list, spec);
    }
    for (list, containers) in
        [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")]
    {
        health(validator, &path.child(list), status.structs(list), spec.structs(containers));
    }
    let list = path.child("ephemeralContainerStatuses");
    for (at, container) in status.structs("ephemeralContainerStatuses").enumerate() {
        if !container.items(HEALTH).is_empty() && !validator.has_enough() {
            let detail = "must not be specified in container status";
            validator.forbidden(list.index(at).child(HEALTH), detail);
        }
    }
}

/// Checks the nominated node. A pod that is bound to a node must not be nominated for another node.
fn nominated(
    validator: &mut Validator,
    path: &FieldPath,
    status: StructView,
    old: StructView,
    spec: StructView,
) {
    let name = status.text("nominatedNodeName");
    if name.is_empty() || name == old.text("nominatedNodeName") {
        return;
    }
    validator.refuse(path, name, names::subdomain(name));
    if !spec.text("nodeName").is_empty() {
        validator.forbidden(path, "may not be set on pods that are already bound to a node");
    }
}

fn generation(validator: &mut Validator, path: &FieldPath, of: StructView) {
    if let Some(generation) = of.int("observedGeneration").filter(|count| *count < 0) {
        let detail = "must be a non-negative integer";
        validator.invalid(path.child("observedGeneration"), generation, detail);
    }
}

const EXTENDED: &str = "extendedResourceClaimStatus";
const HEALTH: &str = "allocatedResourcesStatus";

/// Checks the health of the resources of containers. The container must request each resource, and IDs must
/// be unique.
fn health<'v>(
    validator: &mut Validator,
    path: &FieldPath,
    statuses: impl Iterator<Item = StructView<'v>>,
    containers: impl Iterator<Item = StructView<'v>>,
) {
    const STATES: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
    let containers: HashMap<&str, StructView> =
        containers.map(|container| (container.text("name"), container)).collect();
    for (at, container) in statuses.enumerate() {
        let element = path.index(at);
        let list = element.child(HEALTH);
        for (at, resource) in container.structs(HEALTH).enumerate() {
            let place = list.index(at);
            let name = resource.text("name");
            if let Some(container) = containers.get(container.text("name"))
                && let Some(detail) = unrequested_detail(*container, name)
            {
                validator.invalid(place.child("name"), name, detail);
            }
            let resources = place.child("resources");
            let mut seen = SeenStrings::new();
            for (at, one) in resource.structs("resources").enumerate() {
                if validator.has_enough() {
                    return;
                }
                let state = one.text("health");
                if !STATES.contains(&state) {
                    validator.not_supported(resources.index(at).child("health"), state, &STATES);
                }
                let id = one.text("resourceID");
                if !seen.insert(id) {
                    validator.duplicate(resources.index(at).child("resourceID"), id);
                }
            }
        }
    }
}

/// Returns the error detail if a container does not request the resource.
fn unrequested_detail(container: StructView, name: &str) -> Option<&'static str> {
    let resources = container.child("resources");
    let (is_requested, detail) = match name.strip_prefix("claim:") {
        Some(name) => {
            let (claim, request) = name.split_once('/').unwrap_or((name, ""));
            let mut claims = resources.structs("claims");
            let is_requested = claims.any(|one| one.text("name") == claim && one.text("request") == request);
            let detail = "must match one of the container's resource claims in a format \
                          'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
            (is_requested, detail)
        }
        None => {
            (resources.child("requests").has(name), "must match one of the container's resource requests")
        }
    };
    (!is_requested).then_some(detail)
}

fn conditions(validator: &mut Validator, path: &FieldPath, status: StructView) {
    for (at, condition) in status.structs("conditions").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = path.index(at);
        generation(validator, &place, condition);
        let kind = condition.text("type");
        if !SYSTEM_CONDITIONS.contains(&kind) {
            validator.refuse(&place.child("Type"), kind, names::qualified(kind));
        }
    }
}

fn exit_code(status: StructView) -> Option<i64> {
    let ended = status.child("state").child("terminated");
    ended.is_there().then(|| ended.int("exitCode").unwrap_or(0))
}

/// Checks that a terminated container runs again only if the restart policy permits a restart.
fn transitions(
    validator: &mut Validator,
    path: &FieldPath,
    new: StructView,
    old: StructView,
    list: &str,
    spec: StructView,
    containers: Option<&str>,
) {
    if containers.is_some() && restarts_all(spec) {
        return;
    }
    let open = new.structs(list).filter(|status| exit_code(*status).is_none());
    let open: HashSet<&str> = open.map(|status| status.text("name")).collect();
    let containers = containers.into_iter().flat_map(|containers| spec.structs(containers));
    let containers: HashMap<&str, StructView> =
        containers.map(|container| (container.text("name"), container)).collect();
    for (at, before) in old.structs(list).enumerate() {
        if validator.has_enough() {
            return;
        }
        let Some(exit_code) = exit_code(before) else { continue };
        let name = before.text("name");
        let may_run =
            || containers.get(name).is_some_and(|container| is_restarted(*container, spec, exit_code));
        if open.contains(name) && !may_run() {
            validator.forbidden(path.index(at).child("state"), RUNS_AGAIN);
        }
    }
}

/// Returns whether a container has a rule that restarts all containers.
fn restarts_all(spec: StructView) -> bool {
    let mut containers = ["initContainers", "containers"].into_iter().flat_map(|list| spec.structs(list));
    containers.any(|container| {
        let mut rules = container.structs("restartPolicyRules");
        rules.any(|rule| rule.text("action") == "RestartAllContainers")
    })
}

/// Returns whether a container that ended with this exit code is restarted. The rules of a container take
/// precedence over its policy, and its policy takes precedence over the policy of the pod.
fn is_restarted(container: StructView, spec: StructView, exit_code: i64) -> bool {
    let by_policy = |policy: &str| match policy {
        "OnFailure" => exit_code != 0,
        policy => policy != "Never",
    };
    let own = container.text("restartPolicy");
    if own.is_empty() {
        return by_policy(spec.text("restartPolicy"));
    }
    let matching = container.structs("restartPolicyRules").find(|rule| {
        let codes = rule.child("exitCodes");
        let is_listed = codes.items("values").iter().any(|code| code.as_i64() == Some(exit_code));
        match codes.text("operator") {
            "In" => is_listed,
            "NotIn" => codes.is_there() && !is_listed,
            _ => false,
        }
    });
    matching.is_some_and(|rule| rule.text("action") == "Restart") || by_policy(own)
}

fn claims(validator: &mut Validator, path: &FieldPath, status: StructView, spec: StructView) {
    let known: HashSet<&str> = spec.structs("resourceClaims").map(|claim| claim.text("name")).collect();
    let mut seen = SeenStrings::new();
    for (at, claim) in status.structs("resourceClaimStatuses").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = path.index(at);
        let name = claim.text("name");
        if !known.contains(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            validator.invalid(place.child("name"), name, detail);
        }
        if !seen.insert(name) {
            validator.duplicate(place.child("name"), name);
        }
        if let Some(object) = claim.get("resourceClaimName").and_then(Value::as_str) {
            validator.refuse(&place.child("name"), object, names::subdomain(object));
        }
    }
}

/// Checks the claim for extended resources, which maps containers and resources to requests of the claim.
fn extended_claim(validator: &mut Validator, path: &FieldPath, claim: StructView, spec: StructView) {
    let list = path.child("requestMappings");
    if claim.items("requestMappings").is_empty() {
        validator.required(list, "at least one request mapping is required");
    }
    let containers = ["initContainers", "containers"].into_iter().flat_map(|list| spec.structs(list));
    let containers: HashMap<&str, StructView> =
        containers.map(|container| (container.text("name"), container)).collect();
    let mut seen = HashSet::new();
    for (at, mapping) in claim.structs("requestMappings").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        let members = ["containerName", "resourceName", "requestName"];
        let [container, resource, request] = members.map(|member| mapping.text(member));
        match containers.get(container) {
            None => validator.invalid(place.child("containerName"), container, NO_CONTAINER),
            Some(container) if !container.child("resources").child("requests").has(resource) => {
                validator.invalid(place.child("resourceName"), resource, NO_RESOURCE);
            }
            Some(_) => {}
        }
        // As in the reference server, the path of the error does not contain the list.
        validator.refuse(&path.child("requestName"), request, names::label(request));
        if !seen.insert((container, resource, request)) {
            for member in members {
                validator.duplicate(place.child(member), mapping.text(member));
            }
        }
    }
    let (place, name) = (path.child("resourceClaimName"), claim.text("resourceClaimName"));
    if name.is_empty() {
        validator.required(place, "");
    } else {
        validator.refuse(&place, name, names::subdomain(name));
    }
}

/// Checks that the list contains at most one address of each IP family.
fn addresses(validator: &mut Validator, path: &FieldPath, status: StructView, list: &str) {
    for (at, address) in status.structs(list).enumerate() {
        if validator.has_enough() {
            return;
        }
        let text = address.text("ip");
        if let Some(fault) = scalar_formats::address_fault(text) {
            validator.invalid(path.index(at), text, fault);
        }
    }
    let all = status.items(list);
    if all.len() > 1 {
        let families: Vec<Option<bool>> = status
            .structs(list)
            .take(3)
            .map(|address| scalar_formats::address(address.text("ip")).map(|address| address.is_ipv4()))
            .collect();
        let is_unreadable = |address: &StructView<'_>| scalar_formats::address(address.text("ip")).is_none();
        if let Some((at, address)) =
            status.structs(list).enumerate().find(|(_, address)| is_unreadable(address))
        {
            let why = format!("invalid IP[{at}]: {}", address.text("ip"));
            let detail = format!("failed to check for dual stack with error:{why}");
            validator.errors.push(FieldError::internal(path, detail));
        }
        let is_pair = matches!(families[..], [Some(a), Some(b)] if a != b);
        if !is_pair {
            validator.invalid(path, Value::Array(all.to_vec()), ONE_OF_EACH);
        }
    }
}

/// Checks the users of the first processes of containers.
fn users(validator: &mut Validator, path: &FieldPath, status: StructView, list: &str, spec: StructView) {
    let system = match spec.child("os").text("name") {
        "" => "linux",
        name => name,
    };
    for (at, container) in status.structs(list).enumerate() {
        if validator.has_enough() {
            return;
        }
        let linux = container.child("user").child("linux");
        if !linux.is_there() {
            continue;
        }
        let element = path.index(at);
        let user = element.child("user");
        let place = user.child("linux");
        match system {
            "windows" => validator.forbidden(place, "cannot be set for a windows pod"),
            "linux" => {
                for name in ["uid", "gid"] {
                    id(validator, &place.child(name), linux.int(name).unwrap_or(0));
                }
                let groups = place.child("supplementalGroups");
                for (at, group) in linux.items("supplementalGroups").iter().enumerate() {
                    id(validator, &groups.index(at), group.as_i64().unwrap_or(0));
                }
            }
            _ => {}
        }
    }
}

fn id(validator: &mut Validator, path: &FieldPath, id: i64) {
    if !(0..=ID_MAX).contains(&id) && !validator.has_enough() {
        validator.invalid(path, id, format!("must be between 0 and {ID_MAX}, inclusive"));
    }
}
