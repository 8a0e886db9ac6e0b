//! Role-based access control: compares the request attributes with the rules granted to the user
//! (docs/api/authorization.md#rbac).
//!
//! Permissions are additive; there is no deny. A binding to a missing role adds an error to the reason, and
//! the other bindings still count.

use std::sync::Arc;

use go::{Quoted, join_errors};

use super::policy::{Policy, PolicySource, RoleRef, Rule, Rules};
use crate::attributes::Attributes;
use crate::decision::{Decision, Reason};
use crate::identity::User;

/// Maximum number of resolution errors kept for one request, so that many dangling bindings cannot produce a
/// response of megabytes.
const RESOLUTION_ERRORS_MAX: usize = 100;

/// The authorizer that decides by roles and bindings.
pub struct Rbac {
    policy: Arc<dyn PolicySource>,
    group: String,
}

/// The rules that a user has in a scope, and the errors of resolving them.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Rules in the order of the grants; duplicates are kept.
    pub rules: Vec<Rule>,
    /// Bindings whose role cannot be resolved, each once.
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
    /// The binding refers to an object of this kind, which is not a role kind.
    Kind(String),
}

impl Unresolved {
    /// Formats the error; `group` is the API group of roles.
    pub(super) fn text(&self, group: &str) -> String {
        match self {
            Unresolved::Missing { resource, name } => missing(resource, group, name),
            Unresolved::Kind(kind) => format!("unsupported role reference kind: {}", Quoted(kind)),
        }
    }

    /// Formats the error for the refusal of a write to `resource`, which then replaces the resource of the
    /// missing role.
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

    /// Returns an allow if a granted rule covers the request, and no opinion otherwise.
    pub fn decide(&self, asked: &Attributes<'_>) -> Decision {
        let mut decision = Decision::NoOpinion { reason: Reason::None };
        self.policy.read(&mut |policy| decision = self.decide_under(policy, asked));
        decision
    }

    fn decide_under(&self, policy: &Policy, asked: &Attributes<'_>) -> Decision {
        let combined = match asked.subresource {
            "" => None,
            subresource => Some(format!("{}/{subresource}", asked.resource)),
        };
        let resource = combined.as_deref().unwrap_or(asked.resource);
        let mut errors = Vec::new();
        for grant in policy.grants(asked.user, asked.namespace) {
            match rules_of(policy, &grant.binding().namespace, &grant.binding().role) {
                Ok(rules) if rules.iter().any(|rule| allows(rule, asked, resource)) => {
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

    /// Returns the rules that `user` has in `namespace` (empty: cluster-wide only).
    pub fn rules_for(&self, user: &User, namespace: &str) -> Held {
        let mut held = Held::default();
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

    /// Formats each of the resolution errors.
    pub(super) fn texts(&self, errors: &[Unresolved]) -> Vec<String> {
        errors.iter().map(|error| error.text(&self.group)).collect()
    }
}

/// Returns the rules of the role that a binding in `namespace` (empty: cluster-wide) refers to.
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

/// Returns whether one of the rules covers the request.
pub fn permits(rules: &[Rule], asked: &Attributes<'_>) -> bool {
    let resource = match asked.subresource {
        "" => asked.resource.to_owned(),
        subresource => format!("{}/{subresource}", asked.resource),
    };
    rules.iter().any(|rule| allows(rule, asked, &resource))
}

/// Returns whether one rule covers the request; `resource` is `<resource>` or `<resource>/<subresource>`.
fn allows(rule: &Rule, asked: &Attributes<'_>, resource: &str) -> bool {
    has(&rule.verbs, asked.verb)
        && if asked.resource_request {
            has(&rule.api_groups, asked.group)
                && rule.resources.iter().any(|entry| resource_matches(entry, resource, asked.subresource))
                && names_match(&rule.resource_names, asked.name)
        } else {
            rule.non_resource_urls.iter().any(|url| url_matches(url, asked.path))
        }
}

/// Returns whether the names of a rule match. A rule with names never matches a request without a name, such
/// as create or a list without a field selector for the name.
fn names_match(names: &[String], asked: &str) -> bool {
    names.is_empty() || (!asked.is_empty() && names.iter().any(|name| name == asked))
}

fn has(values: &[String], asked: &str) -> bool {
    values.iter().any(|value| value == "*" || value == asked)
}

/// Returns whether `entry` matches: `*`, the exact resource, or `*/<subresource>`. Nothing else is a
/// wildcard: `pods/*` matches only that text.
pub(crate) fn resource_matches(entry: &str, resource: &str, subresource: &str) -> bool {
    entry == "*"
        || entry == resource
        || (!subresource.is_empty() && entry.strip_prefix("*/").is_some_and(|rest| rest == subresource))
}

/// Returns whether `entry` matches: `*`, the exact path, or a prefix followed by `*`.
pub(crate) fn url_matches(entry: &str, path: &str) -> bool {
    entry == path
        || entry.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix.trim_end_matches('*')))
}

#[cfg(test)]
#[path = "rbac_test.rs"]
mod tests;
