//! The privilege escalation check: a writer cannot grant permissions that the writer does not have
//! (docs/api/authorization.md#privilege-escalation).
//!
//! To write a role, the writer's rules in the same scope must cover the rules of the role. To write a
//! binding, the writer's rules must cover the rules of the role to which the binding refers. Members of
//! `system:masters` are exempt, and so are users who have permission for the verb `escalate` or `bind`. The
//! comparison depends only on the two lists of rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use go::{Quoted, QuotedList, join_errors};

use super::chain::Authorizer;
use super::policy::{RoleRef, Rule};
use super::rbac::{GrantedRules, resource_matches, rules_of, url_matches};
use crate::attributes::Attributes;
use crate::identity::{MASTERS, User};

/// Maximum number of string comparisons in one check, which take some tenths of a second. Without this limit,
/// a small object (with a thousand verbs, groups and resources) could cause 10⁹ comparisons. If the limit is
/// reached, a rule counts as not covered. A check of the largest bundled role, for a user who has all bundled
/// roles, needs a hundredth of this limit.
const COMPARISONS_MAX: usize = 50_000_000;

/// Maximum number of missing permissions that one message lists.
const LISTED_MAX: usize = 1_000;

/// The reasons why a write of a role or binding is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Escalation {
    /// The binding refers to a role with this name, which does not exist (404).
    #[error("role {} not found", Quoted(.0))]
    RoleNotFound(String),
    /// The binding refers to an object of this kind, which is neither a role nor a cluster role (500).
    #[error("unsupported role reference kind: {}", Quoted(.0))]
    UnknownKind(String),
    /// The write would grant permissions that the writer does not have (403). The value is the inner text of
    /// the response.
    #[error("{0}")]
    Forbidden(String),
}

/// A role that a request writes.
#[derive(Clone, Copy, Debug)]
pub struct RoleWrite<'r> {
    /// Resource of the role: `roles` or `clusterroles`.
    pub resource: &'r str,
    /// Namespace of the role; empty for cluster roles.
    pub namespace: &'r str,
    /// Name in the request path. The name is empty for create, so a rule that permits `escalate` only for
    /// certain names does not apply to create.
    pub name: &'r str,
    /// Rules of the role that will be stored.
    pub rules: &'r [Rule],
    /// Whether the role has an aggregation rule before or after the write.
    pub aggregates: bool,
}

impl Authorizer {
    /// Checks a write of a role. The caller skips this check for updates that change only the fields of
    /// garbage collection.
    ///
    /// # Errors
    /// Returns [`Escalation::Forbidden`].
    pub async fn check_role(&self, user: &User, write: &RoleWrite<'_>) -> Result<(), Escalation> {
        let escalate = self.about(user, "escalate", write.resource, write.namespace, write.name);
        if user.in_group(MASTERS) || self.decide(&escalate).await.decision.is_allowed() {
            return Ok(());
        }
        let held = self.rbac().rules_for(user, write.namespace);
        if let Some(text) = self.missing_text(user, write.resource, &held, write.rules) {
            return Err(Escalation::Forbidden(text));
        }
        if write.aggregates && !uncovered(&held.rules, &full_authority()).is_empty() {
            let text = "must have cluster-admin privileges to use the aggregationRule";
            return Err(Escalation::Forbidden(text.to_owned()));
        }
        Ok(())
    }

    /// Checks a write of a binding in `namespace`. An empty namespace means a cluster role binding. The
    /// caller skips this check for updates that change only the fields of garbage collection.
    ///
    /// # Errors
    /// Fails if the role does not exist, or if it grants permissions that the writer does not have.
    pub async fn check_binding(
        &self,
        user: &User,
        namespace: &str,
        role: &RoleRef,
    ) -> Result<(), Escalation> {
        if user.in_group(MASTERS) {
            return Ok(());
        }
        let resource = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            kind => return Err(Escalation::UnknownKind(kind.to_owned())),
        };
        // Unlike the request attributes for `escalate`, the request attributes for `bind` have no API
        // version.
        let bind = Attributes { version: "", ..self.about(user, "bind", resource, namespace, &role.name) };
        if self.decide(&bind).await.decision.is_allowed() {
            return Ok(());
        }
        let mut rules = None;
        self.rbac().source().read(&mut |policy| rules = rules_of(policy, namespace, role).ok().cloned());
        let rules = rules.ok_or_else(|| Escalation::RoleNotFound(role.name.clone()))?;
        let binding = if namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
        match self.missing_text(user, binding, &self.rbac().rules_for(user, namespace), &rules) {
            Some(text) => Err(Escalation::Forbidden(text)),
            None => Ok(()),
        }
    }

    fn about<'a>(
        &'a self,
        user: &'a User,
        verb: &'a str,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> Attributes<'a> {
        let group = self.rbac().group();
        let nothing = Attributes::path(user, verb, "");
        Attributes { resource_request: true, group, version: "*", resource, namespace, name, ..nothing }
    }

    /// Returns the error text for a write of an object of `resource`. Returns `None` if the writer has every
    /// permission in `requested`.
    fn missing_text(
        &self,
        user: &User,
        resource: &str,
        held: &GrantedRules,
        requested: &[Rule],
    ) -> Option<String> {
        let missing = uncovered(&held.rules, requested);
        if missing.is_empty() {
            return None;
        }
        let lines: BTreeSet<String> = compact(missing).iter().map(|rule| Brief(rule).to_string()).collect();
        let listed: Vec<&str> = lines.iter().take(LISTED_MAX).map(String::as_str).collect();
        let mut text = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            Quoted(&user.name),
            QuotedList(&user.groups),
            listed.join("\n")
        );
        if lines.len() > listed.len() {
            text.push_str(&format!("\n(and {} more)", lines.len() - listed.len()));
        }
        // The errors of role lookups contain the resource that the request writes.
        let group = self.rbac().group();
        let errors = held.errors.iter().map(|error| error.text_for_write(resource, group));
        if let Some(errors) = join_errors(errors) {
            text.push_str(&format!("; resolution errors: [{errors}]"));
        }
        Some(text)
    }
}

/// Returns two rules that cover everything.
fn full_authority() -> [Rule; 2] {
    let any = || vec!["*".to_owned()];
    [
        Rule { api_groups: any(), resources: any(), verbs: any(), ..Rule::default() },
        Rule { non_resource_urls: any(), verbs: any(), ..Rule::default() },
    ]
}

/// Returns the permissions in `requested` that no rule in `held` covers. Each permission is a rule with one
/// verb and one resource or path.
///
/// A rule in `requested` is returned unchanged if no single rule covers it and it is too large to be split.
pub fn uncovered(held: &[Rule], requested: &[Rule]) -> Vec<Rule> {
    let mut held: Vec<&Rule> = held.iter().collect();
    // Compare small rules first, because they are cheap, and because a rule that covers everything is small.
    held.sort_unstable_by(|a, b| entries(a).cmp(&entries(b)).then_with(|| a.cmp(b)));
    held.dedup();
    let held_entries = held.iter().map(|rule| entries(rule)).fold(0, usize::saturating_add);
    let mut budget = COMPARISONS_MAX;
    let mut spend = |cost: usize| {
        let affordable = cost <= budget;
        budget -= if affordable { cost } else { 0 };
        affordable
    };
    let mut missing = Vec::new();
    for rule in requested {
        let size = entries(rule);
        if held.iter().any(|owner| spend(size.saturating_mul(entries(owner))) && covers(owner, rule)) {
            continue;
        }
        // The additional entry is for the cost of copying each missing permission.
        if spend(atoms(rule).saturating_mul(held_entries.saturating_add(1))) {
            uncovered_atoms(&held, rule, &mut missing);
        } else {
            missing.push(rule.clone());
        }
    }
    missing
}

/// Returns the number of strings in a rule.
fn entries(rule: &Rule) -> usize {
    let Rule { api_groups, resources, verbs, resource_names, non_resource_urls } = rule;
    [api_groups, resources, verbs, resource_names, non_resource_urls].into_iter().map(Vec::len).sum()
}

/// Returns the number of single permissions in a rule.
fn atoms(rule: &Rule) -> usize {
    let per_verb = [rule.api_groups.len(), rule.resources.len(), rule.resource_names.len().max(1)]
        .into_iter()
        .fold(1, usize::saturating_mul)
        .saturating_add(rule.non_resource_urls.len());
    per_verb.saturating_mul(rule.verbs.len())
}

fn uncovered_atoms(held: &[&Rule], rule: &Rule, missing: &mut Vec<Rule>) {
    for verb in &rule.verbs {
        let verbs = vec![verb.clone()];
        let for_verb: Vec<&Rule> = held.iter().copied().filter(|owner| has(&owner.verbs, verb)).collect();
        for group in &rule.api_groups {
            let for_group: Vec<&Rule> =
                for_verb.iter().copied().filter(|owner| has(&owner.api_groups, group)).collect();
            for resource in &rule.resources {
                let names = rule.resource_names.iter().map(|name| vec![name.clone()]);
                let any_name = rule.resource_names.is_empty().then(Vec::new);
                for resource_names in names.chain(any_name) {
                    let covered = for_group.iter().any(|owner| {
                        resource_covered(&owner.resources, resource)
                            && names_covered(&owner.resource_names, &resource_names)
                    });
                    if !covered {
                        missing.push(Rule {
                            api_groups: vec![group.clone()],
                            resources: vec![resource.clone()],
                            verbs: verbs.clone(),
                            resource_names,
                            non_resource_urls: Vec::new(),
                        });
                    }
                }
            }
        }
        for url in &rule.non_resource_urls {
            if !for_verb.iter().any(|owner| url_covered(&owner.non_resource_urls, url)) {
                let non_resource_urls = vec![url.clone()];
                missing.push(Rule { verbs: verbs.clone(), non_resource_urls, ..Rule::default() });
            }
        }
    }
}

/// Returns whether `owner` covers `requested` completely.
fn covers(owner: &Rule, requested: &Rule) -> bool {
    let has_all = |held: &[String], requested: &[String]| requested.iter().all(|value| has(held, value));
    has_all(&owner.verbs, &requested.verbs)
        && has_all(&owner.api_groups, &requested.api_groups)
        && requested.resources.iter().all(|resource| resource_covered(&owner.resources, resource))
        && names_covered(&owner.resource_names, &requested.resource_names)
        && requested.non_resource_urls.iter().all(|url| url_covered(&owner.non_resource_urls, url))
}

fn has(values: &[String], requested: &str) -> bool {
    values.iter().any(|value| value == "*" || value == requested)
}

fn resource_covered(held: &[String], requested: &str) -> bool {
    let subresource = requested.split_once('/').map_or("", |(_, subresource)| subresource);
    held.iter().any(|entry| resource_matches(entry, requested, subresource))
}

/// Returns whether the object names `held` cover the object names `requested`. An empty list means all names,
/// and only an empty list covers an empty list.
fn names_covered(held: &[String], requested: &[String]) -> bool {
    held.is_empty() || (!requested.is_empty() && requested.iter().all(|name| held.contains(name)))
}

fn url_covered(held: &[String], requested: &str) -> bool {
    held.iter().any(|entry| url_matches(entry, requested))
}

/// Merges single permissions for the same resource into one rule with several verbs. Duplicate verbs are not
/// removed. Other rules are not changed.
pub fn compact(missing: Vec<Rule>) -> Vec<Rule> {
    let mut simple: BTreeMap<(String, String, Option<String>), Vec<String>> = BTreeMap::new();
    let mut rules = Vec::new();
    for rule in missing {
        let one_thing = rule.api_groups.len() == 1
            && rule.resources.len() == 1
            && rule.resource_names.len() <= 1
            && rule.non_resource_urls.is_empty();
        if !one_thing {
            rules.push(rule);
            continue;
        }
        let mut parts = rule.api_groups.into_iter().chain(rule.resources);
        let key = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let verbs = simple.entry((key.0, key.1, rule.resource_names.into_iter().next())).or_default();
        verbs.extend(rule.verbs);
    }
    rules.extend(simple.into_iter().map(|((group, resource, name), verbs)| Rule {
        api_groups: vec![group],
        resources: vec![resource],
        verbs,
        resource_names: name.into_iter().collect(),
        non_resource_urls: Vec::new(),
    }));
    rules
}

/// A rule in the format `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
struct Brief<'r>(&'r Rule);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { api_groups, resources, verbs, resource_names, non_resource_urls } = self.0;
        let parts = [
            ("APIGroups", api_groups),
            ("Resources", resources),
            ("NonResourceURLs", non_resource_urls),
            ("ResourceNames", resource_names),
            ("Verbs", verbs),
        ];
        let mut before = "{";
        for (label, values) in parts.into_iter().filter(|(_, values)| !values.is_empty()) {
            write!(f, "{before}{label}:{}", QuotedList(values))?;
            before = ", ";
        }
        f.write_str(if before == "{" { "{}" } else { "}" })
    }
}

#[cfg(test)]
#[path = "escalation_test.rs"]
mod tests;
