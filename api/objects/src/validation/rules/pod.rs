//! Rules for pods and pod templates: pod-level fields, and containers checked against the pod's volumes and claims
//! (docs/api/validation.md#pods).

use hashbrown::{HashMap, HashSet};
use quantity::Quantity;

use super::super::metadata;
use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::common::{SeenStrings, annotated};
use super::container::{self, Surroundings};
use super::resources::{self, Owner};
use super::view::quantity;
use super::{StructView, placement, pod_profiles, pod_subresource, security};
use values::json::Value;
use values::naming::Naming;

/// Limits of resolvers: number of name servers, number of search domains, and total length of the search
/// domains.
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_BYTES_MAX: usize = 2048;

/// Checks the rules for pods that do not apply to pod templates.
pub(super) fn pod(validator: &mut Validator, path: &FieldPath, pod: StructView) {
    let spec = pod.child("spec");
    let root = path.child("spec");
    if validator.is_create() {
        if !spec.items("ephemeralContainers").is_empty() {
            validator.forbidden(root.child("ephemeralContainers"), "cannot be set on create");
        }
        if !spec.text("nodeName").is_empty() && !spec.items("schedulingGates").is_empty() {
            let detail = "cannot be set until all schedulingGates have been cleared";
            validator.forbidden(root.child("nodeName"), detail);
        }
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let list_path = root.child(list);
        for (at, container) in spec.structs(list).enumerate() {
            if validator.has_enough() {
                break;
            }
            let image = container.text("image");
            if image.trim() != image {
                let place = list_path.index(at);
                validator.invalid(
                    place.child("image"),
                    image,
                    "must not have leading or trailing whitespace",
                );
            }
        }
    }
    if spec.text("serviceAccountName").is_empty() {
        refuse_tokens(validator, &root.child("volumes"), spec);
    }
    annotations(validator, &path.child("metadata").child("annotations"), pod.child("metadata"), spec);
    if validator.is_create() {
        pod_profiles::matching(validator, &root, pod.child("metadata").child("annotations"), spec);
    }
    claims_of_volumes(validator, &root.child("volumes"), pod.child("metadata").text("name"), spec);
}

fn refuse_tokens(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    for (at, volume) in spec.structs("volumes").enumerate() {
        let volume_path = path.index(at);
        let projected = volume_path.child("projected");
        let sources_path = projected.child("sources");
        for (at, source) in volume.child("projected").structs("sources").enumerate() {
            if source.has("serviceAccountToken") && !validator.has_enough() {
                let place = sources_path.index(at);
                let detail = "must not be specified when serviceAccountName is not set";
                validator.forbidden(place.child("serviceAccountToken"), detail);
            }
        }
    }
}

/// Checks that no volume refers to a claim that is created for an ephemeral volume of the pod.
fn claims_of_volumes(validator: &mut Validator, path: &FieldPath, pod: &str, spec: StructView) {
    let mut made = HashSet::new();
    for (at, volume) in spec.structs("volumes").enumerate() {
        let name = volume.text("name");
        if volume.has("ephemeral") && !pod.is_empty() && !name.is_empty() && !validator.has_enough() {
            let claim = format!("{pod}-{name}");
            for fault in names::subdomain(&claim) {
                let place = path.index(at);
                let detail = format!("PVC name {}: {fault}", values::field::go_quote(&claim));
                validator.invalid(place.child("name"), name, detail);
            }
            made.insert(claim);
        }
    }
    for (at, volume) in spec.structs("volumes").enumerate() {
        let claim = volume.child("persistentVolumeClaim").text("claimName");
        if made.contains(claim) && !validator.has_enough() {
            let place = path.index(at);
            let source = place.child("persistentVolumeClaim");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            validator.invalid(source.child("claimName"), claim, detail);
        }
    }
}

/// Checks the annotations of pods that have a defined meaning.
fn annotations(validator: &mut Validator, path: &FieldPath, metadata: StructView, spec: StructView) {
    let annotations = metadata.child("annotations");
    if !annotations.is_there() {
        return;
    }
    let word = validator.naming.word;
    let mirror = format!("{word}.io/config.mirror");
    if let Some(value) = annotations.get(&mirror)
        && spec.text("nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        validator.invalid(path.key(&mirror), value.clone(), detail);
    }
    let cost_key = format!("controller.{}/pod-deletion-cost", validator.naming.domain);
    if let Some(cost) = annotations.get(&cost_key) {
        let text = cost.as_str().unwrap_or_default();
        // A number with leading zeros is only accepted after a sign.
        let begins_well = text == "0" || !text.starts_with(['0', '+']);
        if !(begins_well && text.parse::<i32>().is_ok()) {
            validator.invalid(path.key(&cost_key), text, "must be a 32bit integer");
        }
    }
    let tolerated = tolerations_key(validator.naming);
    if let Some(value) = annotated(validator, path, annotations, &tolerated, "[]core.Toleration") {
        tolerations(validator, &path.child(&tolerated), value.as_array().unwrap_or_default());
    }
    pod_profiles::annotations(validator, path, annotations, spec);
}

/// Returns the key of the annotation that contained the tolerations of a pod before the field existed.
pub(super) fn tolerations_key(naming: &Naming) -> String {
    format!("scheduler.alpha.{}/tolerations", naming.domain)
}

/// Checks tolerations from an annotation, which were not checked against a schema.
fn tolerations(validator: &mut Validator, path: &FieldPath, list: &[Value]) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for (at, toleration) in list.iter().enumerate() {
        if validator.has_enough() {
            return;
        }
        let (place, toleration) = (path.index(at), StructView::from(Some(toleration)));
        let (key, effect) = (toleration.text("key"), toleration.text("effect"));
        if !key.is_empty() {
            validator.refuse(&place.child("key"), key, names::qualified(key));
        }
        placement::toleration(validator, &place, toleration);
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            validator.not_supported(place.child("effect"), effect, &EFFECTS);
        }
    }
}

/// Checks the labels and annotations of a template. The rule for pod specifications checks the `spec` of the template.
pub(super) fn template(validator: &mut Validator, path: &FieldPath, template: StructView) {
    let metadata = template.child("metadata");
    metadata::labels(&path.child("labels"), metadata.get("labels"), &mut validator.errors);
    metadata::annotations(&path.child("annotations"), metadata.get("annotations"), &mut validator.errors);
    let spec = template.child("spec");
    annotations(validator, &path.child("annotations"), metadata, spec);
    pod_profiles::matching(validator, &path.child("spec"), metadata.child("annotations"), spec);
    if !spec.items("ephemeralContainers").is_empty() {
        let place = path.child("spec");
        let detail = "ephemeral containers not allowed in pod template";
        validator.forbidden(place.child("ephemeralContainers"), detail);
    }
}

/// Checks the specification of a pod: pod-level fields, and the containers with their volumes and claims.
pub(super) fn specification(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let mut volumes = HashMap::with_capacity(spec.items("volumes").len());
    let volumes_path = path.child("volumes");
    for (at, volume) in spec.structs("volumes").enumerate() {
        if validator.has_enough() {
            break;
        }
        let name = volume.text("name");
        let place = volumes_path.index(at);
        // An invalid volume does not count as a volume of the pod.
        if volumes.contains_key(name) {
            validator.duplicate(place.child("name"), name);
        } else if validator.errors.is_empty() || !validator.has_errors_in(&place) {
            volumes.insert(name, volume);
        }
    }
    let extra = extra_volumes(validator);
    let count = spec.items("volumes").len();
    let claims = extra.iter().flat_map(|set| set.structs("volumeClaimTemplates"));
    for (at, claim) in claims.enumerate() {
        let name = claim.child("metadata").text("name");
        // The claims become volumes after the volumes of the template. The claims of a stored set cannot
        // change.
        if validator.is_create() && !validator.has_enough() {
            validator.refuse(&volumes_path.index(count + at).child("name"), name, names::label(name));
        }
        volumes.insert(name, claim);
    }
    let claims = resource_claims(validator, &path.child("resourceClaims"), spec);
    let surroundings = Surroundings { volumes, claims, spec };
    container::all(validator, path, &surroundings);
    if spec.child("resources").is_there() {
        pod_resources(validator, &path.child("resources"), spec, &surroundings.claims);
    }
    if spec.has("hostnameOverride") {
        for other in ["setHostnameAsFQDN", "hostNetwork"].into_iter().filter(|other| spec.is_true(other)) {
            let detail = format!("may not be specified when {other} is true");
            validator.forbidden(path.child("hostnameOverride"), detail);
        }
    }
    overhead(validator, &path.child("overhead"), spec.map("overhead"));
    host_ports(validator, &path.child("containers"), spec);
    scheduling_gates(validator, &path.child("schedulingGates"), spec);
    names_resolution(validator, &path.child("dnsConfig"), spec);
    placement::not_repeated(validator, &path.child("topologySpreadConstraints"), spec);
    security::whole_pod(validator, path, spec);
}

/// Returns the specification of the stateful set that contains this pod specification. The claims of a
/// stateful set become volumes of its pods.
fn extra_volumes<'v>(validator: &Validator<'v>) -> Option<StructView<'v>> {
    (validator.kind == "StatefulSet").then(|| validator.object.child("spec"))
}

fn resource_claims<'v>(validator: &mut Validator, path: &FieldPath, spec: StructView<'v>) -> SeenStrings<'v> {
    let is_static = is_static(validator);
    let mut seen = SeenStrings::new();
    for (at, claim) in spec.structs("resourceClaims").enumerate() {
        let name = claim.text("name");
        if !name.is_empty() && !seen.insert(name) && !is_static && !validator.has_enough() {
            let place = path.index(at);
            validator.duplicate(place.child("name"), name);
        }
    }
    seen
}

/// Returns whether the object is a static pod.
fn is_static(validator: &Validator) -> bool {
    validator.kind == "Pod" && pod_subresource::is_static(validator, validator.object)
}

/// Checks a resource claim of a pod. A static pod must not have resource claims, and all other errors about
/// the claim are removed.
pub(super) fn resource_claim(validator: &mut Validator, path: &FieldPath, claim: StructView) {
    if is_static(validator) {
        validator.forget(path);
        return validator.forbidden("[]", "static pods do not support resource claims");
    }
    let detail = match (claim.has("resourceClaimName"), claim.has("resourceClaimTemplateName")) {
        (true, true) => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        (false, false) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        _ => return,
    };
    validator.invalid(path, claim.to_value(), detail);
}

/// Checks pod-level resources. Windows pods must not have pod-level resources.
fn pod_resources(validator: &mut Validator, path: &FieldPath, spec: StructView, claims: &SeenStrings) {
    if spec.child("os").text("name") == "windows" {
        return validator.forbidden(path, "may not be set for a windows pod");
    }
    let resources = spec.child("resources");
    if resources.has("claims") {
        validator.forbidden(path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    resources::requirements(validator, path, resources, Owner::Pod, claims);
    fits_containers(validator, path, spec, "requests");
    fits_containers(validator, path, spec, "limits");
    within_pod_limits(validator, path, spec);
}

/// Checks that pod-level amounts are not less than the sums of the amounts of the containers. For limits,
/// only huge pages are summed.
fn fits_containers(validator: &mut Validator, path: &FieldPath, spec: StructView, list: &str) {
    let amounts = spec.child("resources").child(list);
    let path = path.child(list);
    for (name, sum) in aggregate(spec, list) {
        let is_summed = list == "requests" || resources::is_huge_page(name);
        let Some(of_pod) = amounts.quantity(name).filter(|of_pod| is_summed && sum > *of_pod) else {
            continue;
        };
        if validator.has_enough() {
            return;
        }
        let detail =
            format!("must be greater than or equal to aggregate container {list} of {}", sum.to_text());
        validator.invalid(path.key(name), of_pod.to_text(), detail);
    }
}

/// Checks that the limits of each container do not exceed the limits of the pod.
fn within_pod_limits(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let limits = spec.child("resources").child("limits");
    let containers = path.child("containers");
    for (at, container) in spec.structs("containers").enumerate() {
        let place = containers.index(at);
        for (name, value) in container.child("resources").map("limits") {
            if let (Some(own), Some(most)) = (quantity(value), limits.quantity(name))
                && own > most
                && !validator.has_enough()
            {
                let detail = format!("must be less than or equal to pod limits of {}", most.to_text());
                let place = place.key(name);
                validator.invalid(place.child("limits"), own.to_text(), detail);
            }
        }
    }
}

/// Returns the total requests or limits by resource name: the sum over running containers, or the maximum
/// during startup if that is larger. Defaulting uses the same computation.
fn aggregate<'v>(spec: StructView<'v>, list: &str) -> Vec<(&'v str, Quantity)> {
    let mut running: std::collections::BTreeMap<&str, Quantity> = Default::default();
    let mut peak = running.clone();
    let mut sidecars = running.clone();
    for container in spec.structs("containers") {
        for (name, value) in container.child("resources").map(list) {
            let total = running.entry(name).or_insert(Quantity::ZERO);
            *total = total.plus(quantity(value).unwrap_or(Quantity::ZERO));
        }
    }
    for container in spec.structs("initContainers") {
        let is_sidecar = container.text("restartPolicy") == "Always";
        for (name, value) in container.child("resources").map(list) {
            let own = quantity(value).unwrap_or(Quantity::ZERO);
            let started = sidecars.entry(name).or_insert(Quantity::ZERO);
            let now = started.plus(own);
            if is_sidecar {
                *started = now;
                let total = running.entry(name).or_insert(Quantity::ZERO);
                *total = total.plus(own);
            }
            let most = peak.entry(name).or_insert(Quantity::ZERO);
            if now > *most {
                *most = now;
            }
        }
    }
    for (name, quantity) in peak {
        let total = running.entry(name).or_insert(Quantity::ZERO);
        if quantity > *total {
            *total = quantity;
        }
    }
    running.into_iter().collect()
}

/// Checks the overhead of the container runtime.
pub(super) fn overhead<'v>(
    validator: &mut Validator,
    path: &FieldPath,
    amounts: impl Iterator<Item = (&'v str, &'v Value)>,
) {
    let limits = path.child("limits"); // the reference server reports the overhead as limits
    for (name, value) in amounts {
        if validator.has_enough() {
            break;
        }
        resources::container_name(validator, &limits.key(name), name);
        resources::amount(validator, &limits.key(name), name, value);
    }
}

/// Checks the ports of pods that use the network of the node, where the container port is the host port. A
/// template may leave the host port unset.
fn host_ports(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    if !spec.is_true("hostNetwork") {
        return;
    }
    let is_pod = validator.kind == "Pod";
    for (at, container) in spec.structs("containers").enumerate() {
        let container_path = path.index(at);
        let ports = container_path.child("ports");
        for (at, port) in container.structs("ports").enumerate() {
            if validator.has_enough() {
                return;
            }
            let (host, own) = (port.int("hostPort").unwrap_or(0), port.int("containerPort").unwrap_or(0));
            if (is_pod || host != 0) && host != own {
                let place = ports.index(at);
                let detail = "must match `containerPort` when `hostNetwork` is true";
                validator.invalid(place.child("hostPort"), host, detail);
            }
        }
    }
}

fn scheduling_gates(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let mut seen = SeenStrings::new();
    for (at, gate) in spec.structs("schedulingGates").enumerate() {
        if validator.has_enough() {
            break;
        }
        let name = gate.text("name");
        validator.refuse(&path.index(at), name, names::qualified(name));
        if !seen.insert(name) {
            validator.duplicate(path.index(at), name);
        }
    }
}

fn names_resolution(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let config = spec.child("dnsConfig");
    let servers = config.items("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if !config.is_there() {
            return validator.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return validator.required(path.child("nameservers"), detail);
        }
    }
    if !config.is_there() {
        return;
    }
    let list = |name: &str| config.get(name).cloned().unwrap_or_default();
    if servers.len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        validator.invalid(path.child("nameservers"), list("nameservers"), detail);
    }
    let searches = config.texts("searches");
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        validator.invalid(path.child("searches"), list("searches"), detail);
    }
    let bytes = searches.clone().map(str::len).sum::<usize>() + searches.len().saturating_sub(1);
    if bytes > SEARCH_BYTES_MAX {
        let detail = format!(
            "must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the search list"
        );
        validator.invalid(path.child("searches"), list("searches"), detail);
    }
    let options = path.child("options");
    for (at, option) in config.structs("options").enumerate() {
        if option.text("name").is_empty() && !validator.has_enough() {
            validator.required(options.index(at), "must not be empty");
        }
    }
}
