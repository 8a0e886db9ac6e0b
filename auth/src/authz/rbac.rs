//! Role-based access control: compares the request attributes with the rules that bindings grant to the user
//! (docs/api/authorization.md#rbac).
//!
//! Rules only add permissions; no rule denies a request. A binding to a missing role adds an error to the
//! reason. The other bindings still apply.

use std::sync::Arc;

use go::{Quoted, join_errors};

use super::policy::{Policy, PolicySource, RoleRef, Rule, Rules};
use crate::attributes::Attributes;
use crate::decision::{Decision, Reason};
use crate::identity::User;

/// Maximum number of resolution errors for one request. Without this limit, many bindings to missing roles
/// could produce a response of several megabytes.
const RESOLUTION_ERRORS_MAX: usize = 100;

/// The authorizer that decides by roles and bindings.
pub struct Rbac {
    policy: Arc<dyn PolicySource>,
    group: String,
}

/// The rules that a user has in a scope, and the bindings whose roles cannot be resolved.
#[derive(Clone, Debug, Default)]
pub struct GrantedRules {
    /// Rules in the order of the grants, including duplicates.
    pub rules: Vec<Rule>,
    /// The reasons why roles of bindings cannot be resolved, without duplicates.
    pub errors: Vec<Unresolved>,
}

/// The reason why a binding's role cannot be resolved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unresolved {
    /// The role does not exist.
    Missing {
        /// Resource of the role: `role` or `clusterrole`.
        resource: &'static str,
        /// Name of the role.
        name: String,
    },
    /// The binding refers to an object of this kind, which is neither a role nor a cluster role.
    Kind(String),
}

impl Unresolved {
    /// Formats the error. `group` is the API group of roles.
    pub(super) fn text(&self, group: &str) -> String {
        match self {
            Unresolved::Missing { resource, name } => missing(resource, group, name),
            Unresolved::Kind(kind) => format!("unsupported role reference kind: {}", Quoted(kind)),
        }
    }

    /// Formats the error for the refusal of a write to `resource`. The text contains `resource` instead of
    /// the resource of the missing role.
    pub(super) fn text_for_write(&self, resource: &str, group: &str) -> String {
        match self {
            Unresolved::Missing { name, .. } => missing(resource, group, name),
            Unresolved::Kind(_) => self.text(group),
        }
    }
}

fn missing(resource: &str, group: &str, name: &str) -> String {
    format!("{resource}.{group} {} not found", Quoted(name))
}

impl Rbac {
    pub(super) fn new(policy: Arc<dyn PolicySource>, group: String) -> Rbac {
        Rbac { policy, group }
    }

    /// Returns the API group of roles and bindings.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the source of roles and bindings.
    pub fn source(&self) -> &dyn PolicySource {
        &*self.policy
    }

    /// Returns an allow if a rule of the user covers the request, and no opinion otherwise.
    pub fn decide(&self, request: &Attributes<'_>) -> Decision {
        let mut decision = Decision::NoOpinion { reason: Reason::None };
        self.policy.read(&mut |policy| decision = self.decide_under(policy, request));
        decision
    }

    fn decide_under(&self, policy: &Policy, request: &Attributes<'_>) -> Decision {
        let combined = match request.subresource {
            "" => None,
            subresource => Some(format!("{}/{subresource}", request.resource)),
        };
        let resource = combined.as_deref().unwrap_or(request.resource);
        let mut errors = Vec::new();
        for grant in policy.grants(request.user, request.namespace) {
            match rules_of(policy, &grant.binding().namespace, &grant.binding().role) {
                Ok(rules) if rules.iter().any(|rule| allows(rule, request, resource)) => {
                    return Decision::Allow { reason: Reason::Granted(grant.clone()) };
                }
                Ok(_) => {}
                Err(error) => note(&mut errors, error),
            }
        }
        match join_errors(self.texts(&errors)) {
            None => Decision::NoOpinion { reason: Reason::None },
            Some(text) => Decision::NoOpinion { reason: format!("RBAC: {text}").into() },
        }
    }

    /// Returns the rules that `user` has in `namespace`. For an empty namespace, only cluster-wide rules are
    /// returned.
    pub fn rules_for(&self, user: &User, namespace: &str) -> GrantedRules {
        let mut held = GrantedRules::default();
        self.policy.read(&mut |policy| {
            for grant in policy.grants(user, namespace) {
                match rules_of(policy, &grant.binding().namespace, &grant.binding().role) {
                    Ok(rules) => held.rules.extend_from_slice(rules),
                    Err(error) => note(&mut held.errors, error),
                }
            }
        });
        held
    }

    /// Formats all resolution errors.
    pub(super) fn texts(&self, errors: &[Unresolved]) -> Vec<String> {
        errors.iter().map(|error| error.text(&self.group)).collect()
    }
}

/// Returns the rules of the role to which a binding refers. `namespace` is the namespace of the binding;
/// empty for a cluster role binding.
pub(super) fn rules_of<'p>(
    policy: &'p Policy,
    namespace: &str,
    role: &RoleRef,
) -> Result<&'p Rules, Unresolved> {
    let (found, resource) = match role.kind.as_str() {
        "ClusterRole" => (policy.cluster_role(&role.name), "clusterrole"),
        "Role" => (policy.role(namespace, &role.name), "role"),
        kind => return Err(Unresolved::Kind(kind.to_owned())),
    };
    found.ok_or_else(|| Unresolved::Missing { resource, name: role.name.clone() })
}

fn note(errors: &mut Vec<Unresolved>, error: Unresolved) {
    if errors.len() < RESOLUTION_ERRORS_MAX && !errors.contains(&error) {
        errors.push(error);
    }
}

/// Returns whether at least one of the rules covers the request.
pub fn permits(rules: &[Rule], request: &Attributes<'_>) -> bool {
    let resource = match request.subresource {
        "" => request.resource.to_owned(),
        subresource => format!("{}/{subresource}", request.resource),
    };
    rules.iter().any(|rule| allows(rule, request, &resource))
}

/// Returns whether `rule` covers the request. `resource` is `<resource>` or `<resource>/<subresource>`.
fn allows(rule: &Rule, request: &Attributes<'_>, resource: &str) -> bool {
    has(&rule.verbs, request.verb)
        && if request.resource_request {
            has(&rule.api_groups, request.group)
                && rule.resources.iter().any(|entry| resource_matches(entry, resource, request.subresource))
                && names_match(&rule.resource_names, request.name)
        } else {
            rule.non_resource_urls.iter().any(|url| url_matches(url, request.path))
        }
}

/// Returns whether the names of a rule match the name of a request. A rule with names never matches a request
/// without a name, for example a create, or a list without a field selector for the name.
fn names_match(names: &[String], requested: &str) -> bool {
    names.is_empty() || (!requested.is_empty() && names.iter().any(|name| name == requested))
}

fn has(values: &[String], requested: &str) -> bool {
    values.iter().any(|value| value == "*" || value == requested)
}

/// Returns whether `entry` matches a resource. The entry is `*`, the exact resource, or `*/<subresource>`.
/// There are no other wildcards: `pods/*` matches only the text `pods/*`.
pub(crate) fn resource_matches(entry: &str, resource: &str, subresource: &str) -> bool {
    entry == "*"
        || entry == resource
        || (!subresource.is_empty() && entry.strip_prefix("*/").is_some_and(|rest| rest == subresource))
}

/// Returns whether `entry` matches a path. The entry is `*`, the exact path, or a prefix followed by `*`.
pub(crate) fn url_matches(entry: &str, path: &str) -> bool {
    entry == path
        || entry.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix.trim_end_matches('*')))
}

#[cfg(test)]
#[path = "rbac_test.rs"]
mod tests;
