//! The roles and bindings of the cluster, parsed and indexed by subject.
//!
//! ```text
//! Policy ─┬─ cluster roles  name → Role                    ┌─ users   name → bindings by name
//!         ├─ cluster-wide   Scope ─────────────────────────┤
//!         └─ namespaces     name → Scope + roles by name   └─ groups  name → bindings by name
//! ```
//!
//! A lookup for a user reads only the bindings that name the user or a group of the user, so the cost does
//! not depend on the total number of bindings. Service accounts are stored under their user names. Bindings
//! are sorted by name, so that the same roles and bindings always lead to the same reason.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use go::Quoted;

use crate::identity::{User, service_account_user};

/// A rule of a role, which permits every combination of the listed values. The lists are the same as in the
/// object.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rule {
    /// API groups. The empty string is the core group, and `*` matches any group.
    pub api_groups: Vec<String>,
    /// Resources, for example `pods`, `pods/log`, `*` or `*/scale`.
    pub resources: Vec<String>,
    /// Verbs; `*` matches any verb.
    pub verbs: Vec<String>,
    /// Object names to which the rule is restricted; empty means any name.
    pub resource_names: Vec<String>,
    /// URL paths. A trailing `*` matches any suffix.
    pub non_resource_urls: Vec<String>,
}

impl Rule {
    /// Returns the two rules that permit everything.
    pub fn everything() -> [Rule; 2] {
        let all = || vec!["*".to_owned()];
        [
            Rule { api_groups: all(), resources: all(), verbs: all(), ..Rule::default() },
            Rule { non_resource_urls: all(), verbs: all(), ..Rule::default() },
        ]
    }
}

/// The rules of a role or cluster role.
pub type Rules = Arc<[Rule]>;

/// The role that a binding grants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RoleRef {
    /// API group in the object, without changes.
    pub api_group: String,
    /// Kind of the role: `Role` or `ClusterRole`.
    pub kind: String,
    /// Name of the role.
    pub name: String,
}

/// A subject to which a binding grants the role.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Subject {
    /// Kind of the subject: `User`, `Group` or `ServiceAccount`. Any other kind matches no user.
    pub kind: String,
    /// API group in the object, without changes.
    pub api_group: String,
    /// Name of the user, group or account.
    pub name: String,
    /// Namespace of a service account; empty means the namespace of the binding.
    pub namespace: String,
}

/// A role binding or, if the namespace is empty, a cluster role binding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Binding {
    /// Namespace in which the binding applies; empty means the whole cluster.
    pub namespace: String,
    /// Name of the binding object.
    pub name: String,
    /// Role that the binding grants.
    pub role: RoleRef,
    /// Subjects that receive the role.
    pub subjects: Vec<Subject>,
}

/// A binding, and the subject through which it applies to a user.
#[derive(Clone, Debug)]
pub struct Grant {
    binding: Arc<Binding>,
    subject: usize,
}

impl Grant {
    /// Returns the binding of the grant.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }
}

/// Formats the grant as `RoleBinding "name/ns" of Role "r" to ServiceAccount "name/ns"`
/// (docs/api/authorization.md#authorizers).
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { namespace, name, role, subjects } = &*self.binding;
        match namespace.as_str() {
            "" => write!(f, "ClusterRoleBinding {}", Quoted(name))?,
            namespace => write!(f, "RoleBinding {}", Quoted(&format!("{name}/{namespace}")))?,
        }
        write!(f, " of {} {} to ", role.kind, Quoted(&role.name))?;
        let subject = &subjects[self.subject];
        if subject.kind == "ServiceAccount" {
            let home = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
            write!(f, "ServiceAccount {}", Quoted(&format!("{}/{home}", subject.name)))
        } else {
            write!(f, "{} {}", subject.kind, Quoted(&subject.name))
        }
    }
}

/// A source of the current roles and bindings.
pub trait PolicySource: Send + Sync {
    /// Calls `read` with roles and bindings that include every write acknowledged before the call.
    ///
    /// Implementations must not wait for I/O. `read` takes microseconds and must not call the source again.
    fn read(&self, read: &mut dyn FnMut(&Policy));
}

/// All roles and bindings at one revision.
#[derive(Debug, Default)]
pub struct Policy {
    cluster_roles: HashMap<String, Rules>,
    cluster_wide: Scope,
    namespaces: HashMap<String, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    roles: HashMap<String, Rules>,
    scope: Scope,
}

/// Bindings by subject. A binding has one entry for each user or group that it names. If several subjects of
/// a binding are equal, the entry refers to the first of them.
#[derive(Debug, Default)]
struct Scope {
    bindings: HashMap<String, Arc<Binding>>,
    users: BySubject,
    groups: BySubject,
}

/// Grants by user or group name, and then by binding name.
type BySubject = HashMap<String, BTreeMap<String, Grant>>;

impl Policy {
    /// Returns the rules of cluster role `name`.
    pub fn cluster_role(&self, name: &str) -> Option<&Rules> {
        self.cluster_roles.get(name)
    }

    /// Returns the rules of role `name` in `namespace`.
    pub fn role(&self, namespace: &str, name: &str) -> Option<&Rules> {
        self.namespaces.get(namespace)?.roles.get(name)
    }

    /// Returns whether there are neither roles nor bindings.
    pub fn is_empty(&self) -> bool {
        self.cluster_roles.is_empty() && self.cluster_wide.bindings.is_empty() && self.namespaces.is_empty()
    }

    /// Iterates over the grants to `user` that apply in `namespace`: first the cluster-wide grants, then the
    /// grants of the namespace. A binding appears once for each user name or group through which it matches.
    pub fn grants<'p>(&'p self, user: &'p User, namespace: &str) -> impl Iterator<Item = &'p Grant> {
        let own = if namespace.is_empty() { None } else { self.namespaces.get(namespace) };
        let scopes = [Some(&self.cluster_wide), own.map(|namespace| &namespace.scope)];
        scopes.into_iter().flatten().flat_map(move |scope| {
            let by_group = user.groups.iter().filter_map(|group| scope.groups.get(group));
            scope.users.get(&user.name).into_iter().chain(by_group).flat_map(BTreeMap::values)
        })
    }

    /// Sets the rules of cluster role `name`. `None` removes the cluster role.
    pub fn set_cluster_role(&mut self, name: &str, rules: Option<Rules>) {
        set(&mut self.cluster_roles, name, rules);
    }

    /// Sets the rules of role `name` in `namespace`. `None` removes the role.
    pub fn set_role(&mut self, namespace: &str, name: &str, rules: Option<Rules>) {
        let slot = self.namespaces.entry(namespace.to_owned()).or_default();
        set(&mut slot.roles, name, rules);
        self.drop_if_empty(namespace);
    }

    /// Adds a binding, or replaces the binding with the same namespace and name.
    pub fn set_binding(&mut self, binding: Binding) {
        self.scope_mut(&binding.namespace).set(binding);
    }

    /// Removes the binding `name` in `namespace`. An empty namespace means a cluster role binding.
    pub fn forget_binding(&mut self, namespace: &str, name: &str) {
        self.scope_mut(namespace).forget(name);
        self.drop_if_empty(namespace);
    }

    fn scope_mut(&mut self, namespace: &str) -> &mut Scope {
        match namespace {
            "" => &mut self.cluster_wide,
            namespace => &mut self.namespaces.entry(namespace.to_owned()).or_default().scope,
        }
    }

    /// Removes the entry of a namespace without roles and bindings, so that deleted namespaces use no memory.
    fn drop_if_empty(&mut self, namespace: &str) {
        if self
            .namespaces
            .get(namespace)
            .is_some_and(|it| it.roles.is_empty() && it.scope.bindings.is_empty())
        {
            self.namespaces.remove(namespace);
        }
    }
}

fn set<V>(map: &mut HashMap<String, V>, name: &str, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(name.to_owned(), value)),
        None => drop(map.remove(name)),
    }
}

impl Scope {
    fn set(&mut self, binding: Binding) {
        self.forget(&binding.name);
        let binding = Arc::new(binding);
        for (at, subject) in binding.subjects.iter().enumerate() {
            let Some((index, key)) = self.index_of(subject, &binding.namespace) else { continue };
            let grants = index.entry(key).or_default();
            grants
                .entry(binding.name.clone())
                .or_insert_with(|| Grant { binding: binding.clone(), subject: at });
        }
        self.bindings.insert(binding.name.clone(), binding);
    }

    fn forget(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            let Some((index, key)) = self.index_of(subject, &binding.namespace) else { continue };
            if let Some(grants) = index.get_mut(&key) {
                grants.remove(name);
                if grants.is_empty() {
                    index.remove(&key);
                }
            }
        }
    }

    /// Returns the index and the key for a subject. Returns `None` if the subject cannot match any user.
    fn index_of(&mut self, subject: &Subject, binding_namespace: &str) -> Option<(&mut BySubject, String)> {
        match subject.kind.as_str() {
            "User" => Some((&mut self.users, subject.name.clone())),
            "Group" => Some((&mut self.groups, subject.name.clone())),
            "ServiceAccount" => {
                let home = if subject.namespace.is_empty() { binding_namespace } else { &subject.namespace };
                // Every service account has a namespace, so a subject without a namespace matches no user.
                let key = (!home.is_empty()).then(|| service_account_user(home, &subject.name))?;
                Some((&mut self.users, key))
            }
            _ => None,
        }
    }
}

/// A set of roles and bindings that does not change can be used as a source.
impl PolicySource for Policy {
    fn read(&self, read: &mut dyn FnMut(&Policy)) {
        read(self);
    }
}
