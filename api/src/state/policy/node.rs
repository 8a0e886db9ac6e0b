//! Permissions of node agents (docs/api/authorization.md#node-authorizer): the permissions of the role
//! `system:node`, and access to the objects that belong to the pods of the node.
//!
//! ```text
//! node ◄─ pod ◄─ secret, config map, service account
//!             ◄─ claim ◄─ volume (by its claimRef) ◄─ secret
//! node ◄─ attachment
//! ```
//!
//! The authorizer looks up these paths in the store. The selector attributes identify the pods of a node, so
//! other pods are not read. The volumes that need a secret are cached until a volume changes.

use std::sync::Arc;

use auth::Attributes;
use auth::authz::{NodePolicy, Rule};
use auth::decision::{Decision, Reason};
use engine::{Engine, LastChange, Revision, Snapshot};
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::rules::read_rules;
use objects::store;
use types::attributes::Selection;
use types::schema::registry::{Registry, Resource};
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::at;

/// The role whose rules apply to every agent.
const ROLE: &str = "system:node";

/// The authorizer of node agents.
pub struct NodeAuthorizer {
    engine: Engine,
    registry: Registry,
    rules: Vec<Rule>,
    lease_namespace: String,
    /// The annotation of mirror pods.
    mirror: String,
    volumes: Volumes,
}

/// The claims of the volumes that need a secret, recomputed after a volume has changed.
#[derive(Default)]
struct Volumes {
    changed: Option<LastChange>,
    known: Mutex<(Revision, Arc<ClaimsBySecret>)>,
}

/// Namespace and name of claims, by namespace and name of a secret.
type ClaimsBySecret = HashMap<(String, String), Vec<(String, String)>>;

impl NodeAuthorizer {
    /// Returns an authorizer over the objects of `engine`.
    pub fn new(engine: Engine, naming: &'static Naming) -> NodeAuthorizer {
        let roles = naming.fill(include_str!("../../../bootstrap/cluster_roles.json"));
        let roles = json::parse(roles.as_bytes()).unwrap_or_default();
        let role = roles.as_array().unwrap_or_default().iter().find(|role| role.str_at(&["name"]) == ROLE);
        let rules = role.map(|role| read_rules(role.get("rules"))).unwrap_or_default();
        let registry = Registry::new(naming);
        let volumes = registry.resource("", "v1", "persistentvolumes");
        let changed = volumes.map(|volumes| engine.last_change(store::collection(volumes, "")));
        NodeAuthorizer {
            engine,
            registry,
            volumes: Volumes { changed, known: Mutex::default() },
            rules,
            lease_namespace: naming.system("node-lease"),
            mirror: naming.label("config.mirror"),
        }
    }

    fn resource(&self, group: &str, plural: &str) -> Option<&Resource> {
        let group = self.registry.groups().iter().find(|each| {
            each.name
                .strip_prefix(group)
                .is_some_and(|rest| rest.is_empty() || !group.is_empty() && rest.starts_with('.'))
        })?;
        group.versions.iter().find_map(|version| version.resource(plural)).map(|resource| &**resource)
    }

    fn object(
        &self,
        snapshot: &Snapshot,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Object> {
        let resource = self.resource(group, plural)?;
        let entry = snapshot.get(&store::key(resource, namespace, name))?;
        store::read(entry).ok()?.object(resource).ok()
    }

    /// Returns whether `found` returns true for a pod of a namespace that is bound to a node, including pods
    /// that have ended. Mirror pods give no access, because agents create mirror pods themselves.
    fn any_pod(
        &self,
        snapshot: &Snapshot,
        node: &str,
        namespace: &str,
        found: impl Fn(&Object) -> bool,
    ) -> bool {
        let Some(pods) = self.resource("", "pods") else { return false };
        let selector = format!("spec.nodeName={node}");
        let Ok(selection) = Selection::parse("", &selector, &pods.table, &pods.stored().table) else {
            return false;
        };
        let entries = snapshot.prefix(&store::collection(pods, namespace));
        entries.into_iter().any(|entry| {
            let Ok(Some(stored)) = store::read_selected(pods, &selection, entry) else { return false };
            let Ok(pod) = stored.object(pods) else { return false };
            let is_mirror =
                at(&pod, "metadata.annotations").is_some_and(|all| all.get(&self.mirror).is_some());
            !is_mirror && found(&pod)
        })
    }

    /// Returns whether an object belongs to the pods of a node.
    fn is_related(&self, node: &str, attributes: &Attributes<'_>) -> bool {
        let snapshot = self.engine.snapshot();
        let (namespace, name) = (attributes.namespace, attributes.name);
        match attributes.resource {
            "pods" => self.names_node(&snapshot, "", attributes, node),
            "secrets" => {
                self.any_pod(&snapshot, node, namespace, |pod| names(pod, "secret").any(|n| n == name))
                    || self
                        .claims_by_secret(&snapshot)
                        .get(&(namespace.to_owned(), name.to_owned()))
                        .is_some_and(|claims| {
                            claims
                                .iter()
                                .any(|(namespace, name)| self.is_claimed(&snapshot, node, namespace, name))
                        })
            }
            "configmaps" => {
                self.any_pod(&snapshot, node, namespace, |pod| names(pod, "configMap").any(|n| n == name))
            }
            "serviceaccounts" => self.any_pod(&snapshot, node, namespace, |pod| {
                at(pod, "spec.serviceAccountName").and_then(Value::as_str) == Some(name)
            }),
            "persistentvolumeclaims" => {
                self.any_pod(&snapshot, node, namespace, |pod| claims(pod).any(|claim| claim == name))
            }
            "persistentvolumes" => {
                let volume = self.object(&snapshot, "", "persistentvolumes", "", name);
                volume.is_some_and(|volume| {
                    claim_of(&volume)
                        .is_some_and(|(namespace, name)| self.is_claimed(&snapshot, node, namespace, name))
                })
            }
            "volumeattachments" => self.names_node(&snapshot, "storage", attributes, node),
            "resourceslices" => self.names_node(&snapshot, "resource", attributes, node),
            "resourceclaims" => self.any_pod(&snapshot, node, namespace, |pod| {
                let list = |path: &str| at(pod, path).and_then(Value::as_array).unwrap_or_default().iter();
                list("spec.resourceClaims")
                    .chain(list("status.resourceClaimStatuses"))
                    .chain(at(pod, "status.extendedResourceClaimStatus"))
                    .any(|claim| claim.str_at(&["resourceClaimName"]) == name)
            }),
            _ => false,
        }
    }

    /// Returns whether the requested object itself names the node.
    fn names_node(&self, snapshot: &Snapshot, group: &str, attributes: &Attributes<'_>, node: &str) -> bool {
        let object = self.object(snapshot, group, attributes.resource, attributes.namespace, attributes.name);
        object.is_some_and(|object| at(&object, "spec.nodeName").and_then(Value::as_str) == Some(node))
    }

    /// Returns whether a pod of a node refers to a claim.
    fn is_claimed(&self, snapshot: &Snapshot, node: &str, namespace: &str, name: &str) -> bool {
        self.any_pod(snapshot, node, namespace, |pod| claims(pod).any(|claim| claim == name))
    }

    /// Returns the claims of the volumes that need a secret. Reads all volumes if a volume has changed.
    fn claims_by_secret(&self, snapshot: &Snapshot) -> Arc<ClaimsBySecret> {
        let (Some(changed), Some(volumes)) = (&self.volumes.changed, self.resource("", "persistentvolumes"))
        else {
            return Arc::default();
        };
        let mut known = self.volumes.known.lock();
        if known.0 == Revision::ZERO || changed.revision() > known.0 {
            let mut claims = ClaimsBySecret::new();
            for entry in snapshot.prefix(&store::collection(volumes, "")) {
                let volume = store::read(entry).ok().and_then(|stored| stored.object(volumes).ok());
                let Some(volume) = volume else { continue };
                let Some((namespace, name)) = claim_of(&volume) else { continue };
                for secret in secrets_of_volume(&volume) {
                    let secret = (secret.0.to_owned(), secret.1.to_owned());
                    claims.entry(secret).or_default().push((namespace.to_owned(), name.to_owned()));
                }
            }
            *known = (snapshot.revision(), Arc::new(claims));
        }
        known.1.clone()
    }

    fn decide_for(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        let Some(stem) = self.stem(attributes.group) else { return self.by_role(attributes) };
        match (stem, attributes.resource) {
            ("", "secrets" | "configmaps") => self.read_namespaced(node, attributes),
            ("", "persistentvolumeclaims") if attributes.subresource == "status" => {
                if !matches!(attributes.verb, "update" | "patch") {
                    return refused("can only get/update/patch this type");
                }
                self.related(node, attributes)
            }
            ("", "persistentvolumeclaims" | "persistentvolumes")
            | ("storage", "volumeattachments")
            | ("resource", "resourceclaims") => self.get_only(node, attributes),
            ("", "serviceaccounts") => self.account(node, attributes),
            ("", "nodes") => own_node(node, attributes),
            ("", "pods") => self.own_pod(node, attributes),
            ("coordination", "leases") => self.own_lease(node, attributes),
            ("storage", "csinodes") => check_own_name(node, attributes, "CSINode"),
            ("resource", "resourceslices") => self.own_slice(node, attributes),
            _ => self.by_role(attributes),
        }
    }

    /// Returns the name of a built-in group without the suffix of the naming profile.
    fn stem<'g>(&self, group: &'g str) -> Option<&'g str> {
        self.registry.group(group).and_then(|_| group.split('.').next())
    }

    fn by_role(&self, attributes: &Attributes<'_>) -> Result<(), String> {
        if auth::authz::rbac::permits(&self.rules, attributes) { Ok(()) } else { refused("") }
    }

    fn read_namespaced(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if !matches!(attributes.verb, "get" | "list" | "watch") {
            return refused("can only read resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return refused("cannot read subresource");
        }
        if attributes.namespace.is_empty() {
            return refused("can only read namespaced object of this type");
        }
        self.related(node, attributes)
    }

    /// Authorizes access to the service accounts of a node's pods, and to tokens for these accounts.
    fn account(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            return self.related(node, attributes);
        }
        if attributes.verb != "create" || attributes.name.is_empty() {
            return refused("can only create tokens for individual service accounts");
        }
        if attributes.subresource != "token" {
            return refused("can only create token subresource of serviceaccount");
        }
        self.related(node, attributes)
    }

    /// Authorizes access to the pods of a node. Admission decides which pods the agent may create, delete and
    /// report on.
    fn own_pod(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        match (attributes.subresource, attributes.verb) {
            ("", "get") => self.related(node, attributes),
            ("", "list" | "watch") if is_selected(node, attributes) => Ok(()),
            ("", "list" | "watch") if !attributes.name.is_empty() => self.related(node, attributes),
            ("", "list" | "watch") => refused("can only list/watch pods with spec.nodeName field selector"),
            _ => self.by_role(attributes),
        }
    }

    /// Authorizes access to the device slices of a node. Admission checks the node in a new slice.
    fn own_slice(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if !attributes.subresource.is_empty() {
            return refused("cannot authorize ResourceSlice subresources");
        }
        match attributes.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, attributes),
            "list" | "watch" | "deletecollection" if is_selected(node, attributes) => Ok(()),
            "list" | "watch" | "deletecollection" => {
                refused("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => refused(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    fn get_only(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if attributes.verb != "get" {
            return refused("can only get individual resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return refused("cannot get subresource");
        }
        self.related(node, attributes)
    }

    fn related(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if attributes.name.is_empty() {
            return refused("No Object name found");
        }
        if self.is_related(node, attributes) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{node}' and this object"))
    }

    fn own_lease(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if !matches!(attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
            return refused("can only get, create, update, patch, or delete a node lease");
        }
        if attributes.namespace != self.lease_namespace {
            return Err(format!(
                "can only access leases in the \"{}\" system namespace",
                self.lease_namespace
            ));
        }
        // Admission checks the name of a new lease.
        if attributes.verb != "create" && attributes.name != node {
            return refused("can only access node lease with the same name as the requesting node");
        }
        Ok(())
    }
}

fn refused(why: &str) -> Result<(), String> {
    Err(why.to_owned())
}

/// Authorizes access to the node itself. Admission decides which node the agent may create and change.
fn own_node(node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
    match (attributes.subresource, attributes.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name {
            name if name == node => Ok(()),
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
            _ => Err(format!("node '{node}' cannot read '{}', only its own Node object", attributes.name)),
        },
        _ => refused(""),
    }
}

/// Returns whether a field selector restricts the request to objects on this node.
fn is_selected(node: &str, attributes: &Attributes<'_>) -> bool {
    let on_node =
        |each: &auth::FieldRequirement| each.is_equal && each.field == "spec.nodeName" && each.value == node;
    attributes.selectors.fields.iter().any(on_node)
}

/// Authorizes access to an object with the name of the node.
fn check_own_name(node: &str, attributes: &Attributes<'_>, kind: &str) -> Result<(), String> {
    if !matches!(attributes.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err(format!("can only get, create, update, patch, or delete a {kind}"));
    }
    if !attributes.subresource.is_empty() {
        return Err(format!("cannot authorize {kind} subresources"));
    }
    if attributes.verb != "create" && attributes.name != node {
        return Err(format!("can only access {kind} with the same name as the requesting node"));
    }
    Ok(())
}

impl NodePolicy for NodeAuthorizer {
    fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let no_opinion = |reason: String| Decision::NoOpinion { reason: reason.into() };
        let Some(node) = attributes.user.node() else { return no_opinion(String::new()) };
        if node.is_empty() {
            return no_opinion(format!(
                "unknown node for user {}",
                values::field::go_quote(&attributes.user.name)
            ));
        }
        let decided = if attributes.resource_request {
            self.decide_for(node, attributes)
        } else {
            self.by_role(attributes)
        };
        match decided {
            Ok(()) => Decision::Allow { reason: Reason::None },
            Err(why) => no_opinion(why),
        }
    }
}

/// Returns the claims of a pod: the claims that the pod names, and the claims of its ephemeral volumes.
fn claims(pod: &Object) -> impl Iterator<Item = String> + '_ {
    let pod_name = at(pod, "metadata.name").and_then(Value::as_str).unwrap_or_default();
    volumes(pod).filter_map(move |volume| {
        let claim = volume.str_at(&["persistentVolumeClaim", "claimName"]);
        if !claim.is_empty() {
            return Some(claim.to_owned());
        }
        let is_made = volume.get("ephemeral").is_some_and(|source| !source.is_null());
        is_made.then(|| format!("{pod_name}-{}", volume.str_at(&["name"])))
    })
}

fn volumes(pod: &Object) -> impl Iterator<Item = &Value> {
    at(pod, "spec.volumes").and_then(Value::as_array).unwrap_or_default().iter()
}

/// Returns the names of the secrets (`secret`) or config maps (`configMap`) that a pod refers to.
fn names<'p>(pod: &'p Object, kind: &'static str) -> impl Iterator<Item = &'p str> {
    let list = move |path: &str| at(pod, path).and_then(Value::as_array).unwrap_or_default().iter();
    let pulls = list("spec.imagePullSecrets").map(|secret| secret.str_at(&["name"]));
    let pulls = pulls.filter(move |_| kind == "secret");
    let containers = ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"];
    let in_containers = containers.into_iter().flat_map(list).flat_map(move |container| {
        let list = |name: &str| container.get(name).and_then(Value::as_array).unwrap_or_default().iter();
        let (from, key) = match kind {
            "secret" => ("secretRef", "secretKeyRef"),
            _ => ("configMapRef", "configMapKeyRef"),
        };
        let whole = list("envFrom").map(move |source| source.str_at(&[from, "name"]));
        whole.chain(list("env").map(move |variable| variable.str_at(&["valueFrom", key, "name"])))
    });
    let in_volumes = volumes(pod).flat_map(move |volume| {
        let sources = volume.at(&["projected", "sources"]).and_then(Value::as_array).unwrap_or_default();
        let projected = sources.iter().map(move |source| source.str_at(&[kind, "name"]));
        let direct = match kind {
            "secret" => volume.str_at(&["secret", "secretName"]),
            _ => volume.str_at(&["configMap", "name"]),
        };
        // Some volume drivers authenticate with a secret in the namespace of the pod.
        let drivers = volume.as_object().into_iter().flat_map(Object::iter);
        let drivers = drivers.flat_map(|(_, source)| {
            [
                source.str_at(&["secretRef", "name"]),
                source.str_at(&["nodePublishSecretRef", "name"]),
                source.str_at(&["secretName"]),
            ]
        });
        let drivers = drivers.filter(move |_| kind == "secret");
        projected.chain([direct]).chain(drivers)
    });
    pulls.chain(in_containers).chain(in_volumes).filter(|name| !name.is_empty())
}

/// Returns namespace and name of the claim to which a volume belongs.
fn claim_of(volume: &Object) -> Option<(&str, &str)> {
    let claim = at(volume, "spec.claimRef")?;
    let place = (claim.str_at(&["namespace"]), claim.str_at(&["name"]));
    (!place.0.is_empty()).then_some(place)
}

/// Returns namespaces and names of the secrets that nodes need for a volume.
fn secrets_of_volume(volume: &Object) -> impl Iterator<Item = (&str, &str)> {
    const REFERENCES: [&str; 4] =
        ["secretRef", "nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let claimed = at(volume, "spec.claimRef.namespace").and_then(Value::as_str).unwrap_or_default();
    let sources = volume.get("spec").and_then(Value::as_object).into_iter().flat_map(Object::iter);
    let places = sources.flat_map(|(_, source)| {
        let references = REFERENCES.into_iter().filter_map(|name| source.get(name));
        let named = references.map(|secret| (secret.str_at(&["namespace"]), secret.str_at(&["name"])));
        // Some volume sources have two members instead of a reference.
        named.chain([(source.str_at(&["secretNamespace"]), source.str_at(&["secretName"]))])
    });
    places
        .filter(|(_, name)| !name.is_empty())
        .map(move |(namespace, name)| (if namespace.is_empty() { claimed } else { namespace }, name))
}
