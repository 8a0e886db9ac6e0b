//! The chain of authorizers, in their configured order.
//!
//! Members of `system:masters` are allowed before any authorizer runs. For other users, the first authorizer
//! that allows or denies decides. If no authorizer has an opinion, the request is denied, with the reasons of
//! all authorizers joined by newlines (docs/api/authorization.md#authorizers).

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use super::abac::Policies;
use super::impersonation_mode::LastModes;
use super::permitted::Permitted;
use super::policy::{PolicySource, Rule};
use super::rbac::Rbac;
use super::verdict::Verdict;
use super::webhook::Webhook;
use crate::attributes::Attributes;
use crate::decision::{Authorized, Decision, Denied, Reason};
use crate::identity::{MASTERS, User};

/// A kind of authorizer that `--authorization-mode` can name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Attribute-based policies from a file.
    Abac,
    /// An authorizer that allows everything.
    AlwaysAllow,
    /// An authorizer that allows nothing.
    AlwaysDeny,
    /// The authorizer of node agents, which may access their own objects and the objects that their pods
    /// need.
    Node,
    /// Role-based access control, from roles and bindings.
    Rbac,
    /// An authorizer that calls another server.
    Webhook,
}

impl Mode {
    /// All modes, in the order in which messages list them.
    pub const ALL: [Mode; 6] =
        [Mode::Abac, Mode::AlwaysAllow, Mode::AlwaysDeny, Mode::Node, Mode::Rbac, Mode::Webhook];

    /// Returns the name of the mode in flags.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Abac => "ABAC",
            Mode::AlwaysAllow => "AlwaysAllow",
            Mode::AlwaysDeny => "AlwaysDeny",
            Mode::Node => "Node",
            Mode::Rbac => "RBAC",
            Mode::Webhook => "Webhook",
        }
    }

    /// Returns the mode with this name. Names are case-sensitive.
    pub fn by_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An authorizer of the chain.
#[derive(Clone)]
pub enum Module {
    /// Attribute-based policies of a file.
    Abac(Arc<Policies>),
    /// Allows every request of every user.
    AlwaysAllow,
    /// Has no opinion on any request, so it never allows a request.
    AlwaysDeny,
    /// Decides requests of node agents.
    Node(Arc<dyn NodePolicy>),
    /// Decides by roles and bindings.
    Rbac,
    /// Requests the decision from another server.
    Webhook(Arc<Webhook>),
}

/// The authorizer of node agents, whose decisions depend on the objects that the pods of a node use.
pub trait NodePolicy: Send + Sync {
    /// Returns the decision about a request. The decision is no opinion if the user is not a node agent.
    fn decide(&self, request: &Attributes<'_>) -> Decision;
}

/// The rules of a user that the authorizers can list.
#[derive(Debug, Default)]
pub struct Listed {
    /// Rules, in the order of the authorizers.
    pub rules: Vec<Rule>,
    /// Reasons why rules could not be listed.
    pub errors: Vec<String>,
    /// Whether the user may have additional rules that are not listed.
    pub is_incomplete: bool,
}

/// The chain of authorizers, which is cheap to share. The modules can be replaced while the chain is in use.
pub struct Authorizer {
    modules: RwLock<Arc<[Module]>>,
    rbac: Rbac,
    pub(super) last_modes: LastModes,
    pub(super) permitted: Permitted,
}

impl Authorizer {
    /// Creates a chain of `modules` in this order.
    ///
    /// `policy` is the source of roles and bindings. `rbac_group` is the full API group of roles, for error
    /// texts about missing roles. Escalation checks use both parameters, even if the modules do not include
    /// RBAC.
    pub fn new(
        modules: Vec<Module>,
        policy: Arc<dyn PolicySource>,
        rbac_group: impl Into<String>,
    ) -> Authorizer {
        Authorizer {
            modules: RwLock::new(modules.into()),
            rbac: Rbac::new(policy, rbac_group.into()),
            last_modes: LastModes::default(),
            permitted: Permitted::default(),
        }
    }

    /// Disables the constrained modes of impersonation.
    #[must_use]
    pub fn without_constrained_impersonation(mut self) -> Authorizer {
        self.last_modes.is_constrained = false;
        self
    }

    /// Replaces the modules for all later requests.
    pub fn replace(&self, modules: Vec<Module>) {
        *self.modules.write() = modules.into();
    }

    /// Returns the RBAC authorizer, for escalation checks and rule reviews.
    pub fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    fn modules(&self) -> Arc<[Module]> {
        self.modules.read().clone()
    }

    /// Returns the decision of the chain. Use this method if the caller only reports the decision, for
    /// example in an access review.
    pub async fn decide(&self, request: &Attributes<'_>) -> Verdict {
        let mut chain = match Chain::begin(request) {
            Ok(chain) => chain,
            Err(decided) => return decided,
        };
        for module in &*self.modules() {
            let verdict = match module {
                Module::Webhook(webhook) => webhook.decide(request).await,
                module => Verdict::without_error(self.decide_at_once(module, request).unwrap_or_default()),
            };
            if let Some(settled) = chain.take(verdict) {
                return settled;
            }
        }
        chain.end()
    }

    /// Returns the decision of the chain, or `None` if the decision requires a call to another server.
    pub fn decide_now(&self, request: &Attributes<'_>) -> Option<Verdict> {
        let mut chain = match Chain::begin(request) {
            Ok(chain) => chain,
            Err(decided) => return Some(decided),
        };
        for module in &*self.modules() {
            let verdict = Verdict::without_error(self.decide_at_once(module, request)?);
            if let Some(settled) = chain.take(verdict) {
                return Some(settled);
            }
        }
        Some(chain.end())
    }

    fn decide_at_once(&self, module: &Module, request: &Attributes<'_>) -> Option<Decision> {
        Some(match module {
            Module::Abac(policies) => policies.decide(request),
            Module::AlwaysAllow => Decision::Allow { reason: Reason::None },
            Module::AlwaysDeny => {
                Decision::NoOpinion { reason: "Everything is forbidden.".to_owned().into() }
            }
            Module::Node(policy) => policy.decide(request),
            Module::Rbac => self.rbac.decide(request),
            Module::Webhook(_) => return None,
        })
    }

    /// Returns the rules that the user has in a namespace.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Listed {
        let mut held = Listed::default();
        for module in &*self.modules() {
            match module {
                Module::Abac(policies) => held.rules.extend(policies.rules_for(user, namespace)),
                Module::AlwaysAllow => held.rules.extend(Rule::everything()),
                Module::AlwaysDeny => {}
                Module::Rbac => {
                    let found = self.rbac.rules_for(user, namespace);
                    held.rules.extend(found.rules.iter().cloned());
                    held.errors.extend(self.rbac.texts(&found.errors));
                }
                Module::Node(_) if user.node().is_some() => held.cannot("node"),
                Module::Node(_) => {}
                Module::Webhook(_) => held.cannot("webhook"),
            }
        }
        held
    }

    /// Decides whether the request may proceed.
    ///
    /// # Errors
    /// Fails if the request is not allowed. The response is 403 with the message, or 500 if an authorizer
    /// failed.
    pub async fn authorize<'r>(&self, request: &'r Attributes<'r>) -> Result<Authorized<'r>, Denied> {
        let Verdict { decision, error } = self.decide(request).await;
        let is_final = matches!(decision, Decision::Deny { .. });
        match decision {
            Decision::Allow { reason } => Ok(Authorized::allowed(request, reason)),
            Decision::Deny { reason } | Decision::NoOpinion { reason } => {
                Err(Denied { error, is_final, ..Denied::new(request, reason) })
            }
        }
    }
}

impl Listed {
    fn cannot(&mut self, authorizer: &str) {
        self.is_incomplete = true;
        self.errors.push(format!("{authorizer} authorizer does not support user rule resolution"));
    }
}

/// The reasons and errors of the authorizers without an opinion.
#[derive(Default)]
struct Chain {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl Chain {
    /// Starts the chain. Members of `system:masters` are allowed immediately.
    fn begin(request: &Attributes<'_>) -> Result<Chain, Verdict> {
        if request.user.in_group(MASTERS) {
            return Err(Verdict::without_error(Decision::Allow { reason: Reason::None }));
        }
        Ok(Chain::default())
    }

    /// Returns the verdict if it decides the request. Otherwise records the reason and error of the verdict.
    fn take(&mut self, verdict: Verdict) -> Option<Verdict> {
        let Decision::NoOpinion { reason } = &verdict.decision else { return Some(verdict) };
        if !reason.is_empty() {
            self.reasons.push(reason.to_string());
        }
        self.errors.extend(verdict.error);
        None
    }

    fn end(self) -> Verdict {
        let error = go::join_errors(&self.errors);
        Verdict { decision: Decision::NoOpinion { reason: self.reasons.join("\n").into() }, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::Policy;
    use crate::identity::User;

    struct NoOpinion;

    impl NodePolicy for NoOpinion {
        fn decide(&self, _: &Attributes<'_>) -> Decision {
            Decision::NoOpinion { reason: Reason::None }
        }
    }

    #[test]
    fn the_rules_review_of_a_node_agent_is_incomplete() {
        let modules = vec![Module::Node(Arc::new(NoOpinion)), Module::Rbac];
        let chain = Authorizer::new(modules, Arc::new(Policy::default()), "rbac.example.org");
        for (name, group, is_incomplete) in [
            ("system:node:n", "system:nodes", true),
            ("system:node:", "system:nodes", true),
            ("system:node:n", "dev", false),
            ("jane", "system:nodes", false),
        ] {
            let listed = chain.rules_for(&User::new(name, [group]), "ns");
            assert_eq!(listed.is_incomplete, is_incomplete, "{name} {group}");
            assert_eq!(listed.errors.len(), usize::from(is_incomplete), "{name} {group}");
        }
    }

    #[test]
    fn the_masters_group_is_always_allowed_and_no_opinion_is_a_denial() {
        // The rows of docs/api/authorization.md#authorizers: the modes, the group of the user, whether the
        // request is allowed, and the reason.
        use Module::{AlwaysAllow, AlwaysDeny, Rbac};
        let abac = || Module::Abac(Arc::default());
        for (at, (modules, group, allowed, reason)) in [
            (vec![AlwaysDeny], "system:masters", true, ""),
            (vec![Rbac], "system:masters", true, ""),
            (vec![Rbac], "dev", false, ""),
            (vec![AlwaysDeny], "dev", false, "Everything is forbidden."),
            (vec![Rbac, AlwaysDeny], "dev", false, "Everything is forbidden."),
            (vec![abac(), AlwaysDeny], "dev", false, "No policy matched.\nEverything is forbidden."),
            (vec![AlwaysDeny, AlwaysAllow], "dev", true, ""),
            (vec![AlwaysAllow], "dev", true, ""),
        ]
        .into_iter()
        .enumerate()
        {
            let chain = Authorizer::new(modules, Arc::new(Policy::default()), "rbac.example.org");
            let user = User::new("jane", [group]);
            let decision = chain.decide_now(&Attributes::path(&user, "get", "/x")).unwrap().decision;
            assert_eq!(decision.is_allowed(), allowed, "{at} {group}");
            assert_eq!(decision.reason().to_string(), reason, "{at} {group}");
        }
    }
}
