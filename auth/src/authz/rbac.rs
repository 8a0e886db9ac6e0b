//! Role-based access control: compares the request attributes with the rules granted to the user
//! (docs/api/authorization.md#rbac).
//!
//! Permissions are additive; there is no deny. A binding to a missing role adds an error to the reason, and the other
//! bindings still count.

use std::sync::Arc;

use super::policy::{Binding, Policy, PolicySource, Rule, Rules};
use crate::attributes::Attributes;
use crate::decision::{Decision, Reason};
use crate::identity::User;
use go::Quoted;

/// Most resolution errors kept for one request, so that many dangling bindings cannot make a response of megabytes.
const RESOLUTION_ERRORS_MAX: usize = 100;

/// The authorizer over roles and bindings.
pub struct Rbac {
    policy: Arc<dyn PolicySource>,
    group: String,
}

/// The rules a user holds in a scope, and the errors of resolving them.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Rules in the order of the grants; not de-duplicated.
    pub rules: Vec<Rule>,
    /// Errors for roles that are bound but missing.
    pub errors: Vec<String>,
}

impl Rbac {
    pub(super) fn new(policy: Arc<dyn PolicySource>, group: String) -> Rbac {
        Rbac { policy, group }
    }

    /// The API group roles and bindings live in.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The source of roles and bindings.
    pub fn source(&self) -> &dyn PolicySource {
        &*self.policy
    }

    /// Allow if a granted rule covers the request, no opinion otherwise.
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
            match self.rules_of(policy, grant.binding()) {
                Ok(rules) if rules.iter().any(|rule| allows(rule, asked, resource)) => {
                    return Decision::Allow { reason: Reason::Granted(grant.clone()) };
                }
                Ok(_) => {}
                Err(error) => note(&mut errors, error),
            }
        }
        match join_errors(&errors) {
            None => Decision::NoOpinion { reason: Reason::None },
            Some(text) => Decision::NoOpinion { reason: format!("RBAC: {text}").into() },
        }
    }

    /// The rules `user` holds in `namespace` (empty: cluster-wide only).
    pub fn rules_for(&self, user: &User, namespace: &str) -> Held {
        let mut held = Held::default();
        self.policy.read(&mut |policy| {
            for grant in policy.grants(user, namespace) {
                match self.rules_of(policy, grant.binding()) {
                    Ok(rules) => held.rules.extend_from_slice(rules),
                    Err(error) => note(&mut held.errors, error),
                }
            }
        });
        held
    }

    /// The rules of the role that a binding refers to.
    ///
    /// # Errors
    /// The text `role.<group> "name" not found`.
    pub fn rules_of<'p>(&self, policy: &'p Policy, binding: &Binding) -> Result<&'p Rules, String> {
        let name = &binding.role.name;
        let (found, resource) = match binding.role.kind.as_str() {
            "ClusterRole" => (policy.cluster_role(name), "clusterrole"),
            "Role" => (policy.role(&binding.namespace, name), "role"),
            kind => return Err(format!("unsupported role reference kind: {}", Quoted(kind))),
        };
        found.ok_or_else(|| format!("{resource}.{} {} not found", self.group, Quoted(name)))
    }
}

fn note(errors: &mut Vec<String>, error: String) {
    if errors.len() < RESOLUTION_ERRORS_MAX && !errors.contains(&error) {
        errors.push(error);
    }
}

/// One error as it is, several as `[a, b]`, none as `None`.
pub fn join_errors(errors: &[String]) -> Option<String> {
    match errors {
        [] => None,
        [only] => Some(only.clone()),
        errors => Some(format!("[{}]", errors.join(", "))),
    }
}

/// Whether one of the rules covers the request.
pub fn permits(rules: &[Rule], asked: &Attributes<'_>) -> bool {
    let resource = match asked.subresource {
        "" => asked.resource.to_owned(),
        subresource => format!("{}/{subresource}", asked.resource),
    };
    rules.iter().any(|rule| allows(rule, asked, &resource))
}

/// Whether one rule covers the request; `resource` is `<resource>` or `<resource>/<subresource>`.
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

/// A rule with names never matches a request without a name, such as create or an unselective list.
fn names_match(names: &[String], asked: &str) -> bool {
    names.is_empty() || (!asked.is_empty() && names.iter().any(|name| name == asked))
}

fn has(values: &[String], asked: &str) -> bool {
    values.iter().any(|value| value == "*" || value == asked)
}

/// `*`, the exact resource, or `*/<subresource>`. Nothing else is a wildcard: `pods/*` matches only that text.
pub(crate) fn resource_matches(entry: &str, resource: &str, subresource: &str) -> bool {
    entry == "*"
        || entry == resource
        || (!subresource.is_empty() && entry.strip_prefix("*/").is_some_and(|rest| rest == subresource))
}

/// `*`, the exact path, or a prefix followed by `*`.
pub(crate) fn url_matches(entry: &str, path: &str) -> bool {
    entry == path
        || entry.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix.trim_end_matches('*')))
}

#[cfg(test)]
#[path = "rbac_test.rs"]
mod tests;
