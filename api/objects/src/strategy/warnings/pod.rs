//! Warnings about pods and pod templates.

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::{Texts, WrittenObject, network, node_label_deprecation, storage};
use crate::validation::{FieldPath, StructView};
use values::field::go_quote;
use values::naming::Naming;

/// Warns about a new pod. Updates of pods produce no warnings, because programs make nearly all updates of pods.
pub(in crate::strategy) fn pod(texts: &mut Texts, written: WrittenObject) {
    if written.old.is_some() {
        return;
    }
    texts.host_name(written, "the Pod's hostname");
    PodSpec { texts, naming: written.naming, is_template: false }.check(&FieldPath::ROOT, written.view());
}

/// Warns about the addresses in the status of a pod.
pub(in crate::strategy) fn pod_status(texts: &mut Texts, written: WrittenObject) {
    let (status, root) = (written.view().child("status"), FieldPath::ROOT.child("status"));
    for name in ["podIPs", "hostIPs"] {
        let list = root.child(name);
        for (at, given) in status.structs(name).enumerate() {
            network::address(texts, list.index(at).child("ip"), given.text("ip"));
        }
    }
}

/// Warns about the pod template at a path.
pub(super) fn template(texts: &mut Texts, path: &FieldPath, template: StructView, naming: &Naming) {
    PodSpec { texts, naming, is_template: true }.check(path, template);
}

struct PodSpec<'t> {
    texts: &'t mut Texts,
    naming: &'t Naming,
    is_template: bool,
}

/// A port of a container with its location.
struct Port<'v> {
    place: PortLocation,
    address: &'v str,
    on_host: i64,
}

/// Location of a port: the container list, the index of the container, and the index of the port.
#[derive(Clone, Copy, Eq, PartialEq)]
struct PortLocation(&'static str, usize, usize);

impl PortLocation {
    /// Returns the path of the port below `root`, the path of the specification.
    fn path(self, root: &FieldPath) -> String {
        let PortLocation(list, container, port) = self;
        root.child(list).index(container).child("ports").index(port).to_string()
    }
}

/// Volume types that are deprecated or removed, with the warning about them.
const VOLUMES: [(&str, &str); 10] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("ephemeral", ""),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Container lists of a pod, in the order in which they are visited.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

impl PodSpec<'_> {
    fn check(&mut self, path: &FieldPath, pod: StructView) {
        let root = path.child("spec");
        let (spec, metadata) = (pod.child("spec"), pod.child("metadata"));
        let annotations = metadata.child("annotations");
        let annotated = path.child("metadata");
        let annotated = annotated.child("annotations");
        self.node_labels(&root, spec);
        self.annotations(&annotated, annotations);
        self.volumes(&root, spec);
        self.duplicates(&root, spec);
        for name in ["memory", "ephemeral-storage"] {
            self.texts.fraction(&root.child("overhead"), spec.child("overhead"), name);
        }
        let seccomp = "seccomp.security.alpha.kubernetes.io/pod";
        let is_set = |context: StructView| context.child("securityContext").has("seccompProfile");
        if annotations.has(seccomp) && !is_set(spec) {
            self.texts.at(annotated.key(seccomp), SECCOMP);
        }
        for name in CONTAINERS {
            let list = root.child(name);
            for (at, container) in spec.structs(name).enumerate() {
                self.container(&list.index(at), container, &annotated, annotations, spec);
            }
        }
        self.ports(&root, spec);
        if spec.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
            let why = "must be >= 0; negative values are invalid and will be treated as 1";
            self.texts.at(root.child("terminationGracePeriodSeconds"), why);
        }
        self.affinity(&root, spec);
        let servers = root.child("dnsConfig");
        let servers = servers.child("nameservers");
        for (at, address) in spec.child("dnsConfig").texts("nameservers").enumerate() {
            network::address(self.texts, servers.index(at), address);
        }
        let aliases = root.child("hostAliases");
        for (at, alias) in spec.structs("hostAliases").enumerate() {
            network::address(self.texts, aliases.index(at).child("ip"), alias.text("ip"));
        }
    }

    fn node_labels(&mut self, root: &FieldPath, spec: StructView) {
        let selector = root.child("nodeSelector");
        for (label, _) in spec.map("nodeSelector") {
            if let Some(why) = node_label_deprecation(label, self.naming) {
                self.texts.at(selector.key(label), &why);
            }
        }
        let nodes = spec.child("affinity").child("nodeAffinity");
        let place = root.child("affinity");
        let place = place.child("nodeAffinity");
        let required = place.child("requiredDuringSchedulingIgnoredDuringExecution");
        let required = required.child("nodeSelectorTerms");
        let terms = nodes.child("requiredDuringSchedulingIgnoredDuringExecution");
        for (at, term) in terms.structs("nodeSelectorTerms").enumerate() {
            self.texts.node_selector_term(&required.index(at), term, false, self.naming);
        }
        let preferred = place.child("preferredDuringSchedulingIgnoredDuringExecution");
        for (at, term) in nodes.structs("preferredDuringSchedulingIgnoredDuringExecution").enumerate() {
            let place = preferred.index(at);
            self.texts.node_selector_term(
                &place.child("preference"),
                term.child("preference"),
                false,
                self.naming,
            );
        }
        let constraints = root.child("topologySpreadConstraints");
        for (at, constraint) in spec.structs("topologySpreadConstraints").enumerate() {
            let place = constraints.index(at);
            self.texts.node_label(place.child("topologyKey"), constraint.text("topologyKey"), self.naming);
            if !constraint.has("labelSelector") {
                self.texts.at(place.child("labelSelector"), NO_SELECTOR);
            }
        }
    }

    fn annotations(&mut self, path: &FieldPath, annotations: StructView) {
        for (name, why) in [
            (
                "scheduler.alpha.kubernetes.io/critical-pod",
                "non-functional in v1.16+; use the \"priorityClassName\" field instead",
            ),
            (
                "security.alpha.kubernetes.io/sysctls",
                "non-functional in v1.11+; use the \"sysctls\" field instead",
            ),
            (
                "security.alpha.kubernetes.io/unsafe-sysctls",
                "non-functional in v1.11+; use the \"sysctls\" field instead",
            ),
        ] {
            if annotations.has(name) {
                self.texts.at(path.key(name), why);
            }
        }
    }

    fn volumes(&mut self, root: &FieldPath, spec: StructView) {
        let list = root.child("volumes");
        for (at, volume) in spec.structs("volumes").enumerate() {
            let place = list.index(at);
            for (kind, why) in VOLUMES.iter().filter(|(kind, _)| volume.has(kind)) {
                // The warning spells this name differently.
                let shown = if *kind == "storageos" { "storageOS" } else { kind };
                if !why.is_empty() {
                    self.texts.at(place.child(shown), why);
                    continue;
                }
                let claim = volume.child("ephemeral").child("volumeClaimTemplate");
                if claim.is_there() {
                    let path = place.child("ephemeral");
                    let path = path.child("volumeClaimTemplate");
                    storage::claim(self.texts, &path.child("spec"), claim.child("spec"));
                }
            }
        }
        for volume in spec.structs("volumes") {
            storage::overlaps(self.texts, volume);
        }
    }

    /// Warns about list elements that repeat an earlier element.
    fn duplicates(&mut self, root: &FieldPath, spec: StructView) {
        for (list, name) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
            let path = root.child(list);
            let mut seen = Vec::new();
            for (at, item) in spec.structs(list).enumerate() {
                let value = item.text(name);
                if seen.contains(&value) {
                    let why = format!("duplicate {name} {}", go_quote(value));
                    self.texts.at(path.index(at).child(name), &why);
                } else if seen.len() < SEEN_MAX {
                    seen.push(value);
                }
            }
        }
        let path = root.child("imagePullSecrets");
        for (at, secret) in spec.structs("imagePullSecrets").enumerate() {
            if secret.text("name").is_empty() {
                self.texts.at(path.index(at).child("name"), "invalid empty name \"\"");
            }
        }
    }

    fn container(
        &mut self,
        path: &FieldPath,
        container: StructView,
        annotated: &FieldPath,
        annotations: StructView,
        spec: StructView,
    ) {
        let name = container.text("name");
        let context = container.child("securityContext");
        let of_container = |prefix: &str| {
            annotations.members().map(|(key, _)| key).find(|key| key.strip_prefix(prefix) == Some(name))
        };
        if !context.has("seccompProfile")
            && let Some(seccomp) = of_container("container.seccomp.security.alpha.kubernetes.io/")
        {
            self.texts.at(annotated.key(seccomp), SECCOMP);
        }
        let has_profile =
            context.has("appArmorProfile") || spec.child("securityContext").has("appArmorProfile");
        if self.is_template
            && !has_profile
            && let Some(armor) = of_container("container.apparmor.security.beta.kubernetes.io/")
        {
            self.texts.at(annotated.key(armor), ARMOR);
        }
        let resources = path.child("resources");
        for list in ["limits", "requests"] {
            for name in ["memory", "ephemeral-storage"] {
                let amounts = container.child("resources").child(list);
                self.texts.fraction(&resources.child(list), amounts, name);
            }
        }
        let list = path.child("env");
        let mut seen = HashSet::new();
        for (at, variable) in container.structs("env").enumerate() {
            let name = variable.text("name");
            if seen.insert(name) {
                continue;
            }
            let (value, reference) = (variable.text("value"), format!("$({name})"));
            if variable.has("valueFrom") || value == reference || !value.contains(&reference) {
                let name = go_quote(name);
                let why =
                    format!("hides previous definition of {name}, which may be dropped when using apply");
                self.texts.at(list.index(at), &why);
            }
        }
    }

    /// Warns first about ports that are defined more than once, and then about port names that several
    /// containers use.
    fn ports(&mut self, root: &FieldPath, spec: StructView) {
        let places = CONTAINERS.into_iter().flat_map(move |list| {
            spec.structs(list).zip(0..).flat_map(move |(container, at)| {
                container
                    .structs("ports")
                    .zip(0..)
                    .map(move |(port, index)| (PortLocation(list, at, index), port))
            })
        });
        let mut seen: HashMap<(i64, &str), SmallVec<[Port; 1]>> = HashMap::new();
        for (place, port) in places.clone() {
            self.port(&mut seen, root, place, port);
        }
        let mut named: HashMap<&str, PortLocation> = HashMap::new();
        for (place, port) in places {
            let name = port.text("name");
            if name.is_empty() {
                continue;
            }
            let first = *named.entry(name).or_insert(place);
            if first != place {
                let (name, first) = (go_quote(name), first.path(root));
                let why = format!(
                    "duplicate port name {name} with {first}, services and probes that select ports by name will use {first}"
                );
                self.texts.at(place.path(root), &why);
            }
        }
    }

    fn port<'v>(
        &mut self,
        seen: &mut HashMap<(i64, &'v str), SmallVec<[Port<'v>; 1]>>,
        root: &FieldPath,
        place: PortLocation,
        port: StructView<'v>,
    ) {
        let (address, on_host) = (port.text("hostIP"), port.int("hostPort").unwrap_or(0));
        let (number, protocol) = (port.int("containerPort").unwrap_or(0), port.text("protocol"));
        if !address.is_empty() && on_host == 0 {
            let name = port.text("name");
            let shown = format!(
                "hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} \
                 HostIP:{address}}}"
            );
            self.texts.at(place.path(root), &shown);
        }
        let others = seen.entry((number, protocol)).or_default();
        for other in others.iter() {
            let how = if (address, on_host) == (other.address, other.on_host) {
                "duplicate port definition"
            } else if on_host == 0 || other.on_host == 0 {
                "overlapping port definition"
            } else if on_host == other.on_host && address.is_empty() != other.address.is_empty() {
                "dangerously ambiguous port definition"
            } else {
                continue;
            };
            let other = other.place.path(root);
            self.texts.at(place.path(root), &format!("{how} with {other}"));
        }
        if others.len() < SEEN_MAX {
            others.push(Port { place, address, on_host });
        }
    }

    fn affinity(&mut self, root: &FieldPath, spec: StructView) {
        let place = root.child("affinity");
        for kind in ["podAffinity", "podAntiAffinity"] {
            let (place, terms) = (place.child(kind), spec.child("affinity").child(kind));
            let name = "requiredDuringSchedulingIgnoredDuringExecution";
            let list = place.child(name);
            for (at, term) in terms.structs(name).enumerate() {
                if !term.has("labelSelector") {
                    self.texts.at(list.index(at).child("labelSelector"), NO_SELECTOR);
                }
            }
            let name = "preferredDuringSchedulingIgnoredDuringExecution";
            let list = place.child(name);
            for (at, term) in terms.structs(name).enumerate() {
                if !term.child("podAffinityTerm").has("labelSelector") {
                    let term = list.index(at);
                    self.texts.at(term.child("podAffinityTerm").child("labelSelector"), NO_SELECTOR);
                }
            }
        }
    }
}

/// Warning about an annotation for a profile that now has its own field.
pub(in crate::strategy) const ARMOR: &str =
    "deprecated since v1.30; use the \"appArmorProfile\" field instead";

const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

/// Maximum number of earlier elements with which an element is compared. A longer list is not a typing
/// mistake of a person.
const SEEN_MAX: usize = 256;
