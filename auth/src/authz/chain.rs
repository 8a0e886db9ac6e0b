//! The chain of authorizers, in their configured order.
//!
//! Members of `system:masters` are allowed first. Then the first allow or deny decides. If no authorizer has
//! an opinion, the request is denied, with all reasons joined by newlines
//! (docs/api/authorization.md#authorizers).

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

/// A kind of authorizer, as `--authorization-mode` names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Attribute-based policies from a file.
    Abac,
    /// An authorizer that allows everything.
    AlwaysAllow,
    /// An authorizer that allows nothing.
    AlwaysDeny,
    /// The authorizer of node agents: their own objects and those that their pods need.
    Node,
    /// Role-based access control, from roles and bindings.
    Rbac,
    /// An authorizer on another server.
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

    /// Returns the mode with this name, which is case-sensitive.
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
    /// Has no opinion on any request, so it never allows one.
    AlwaysDeny,
    /// Decides requests of node agents.
    Node(Arc<dyn NodePolicy>),
    /// Decides by roles and bindings.
    Rbac,
    /// Requests the decision from another server.
    Webhook(Arc<Webhook>),
}

/// The authorizer of node agents. Its decisions depend on which objects belong to the pods of a node.
pub trait NodePolicy: Send + Sync {
    /// Returns the decision; no opinion for users that are not node agents.
    fn decide(&self, asked: &Attributes<'_>) -> Decision;
}

/// The rules of a user, as far as the authorizers can list them.
#[derive(Debug, Default)]
pub struct Listed {
    /// Rules, in the order of the authorizers.
    pub rules: Vec<Rule>,
    /// Reasons why rules could not be listed.
    pub errors: Vec<String>,
    /// Whether the user may have more rules than listed.
    pub is_incomplete: bool,
}

/// The chain of authorizers, cheap to share. Its modules can be replaced while it is in use.
pub struct Authorizer {
    modules: RwLock<Arc<[Module]>>,
    rbac: Rbac,
    pub(super) last_modes: LastModes,
    pub(super) permitted: Permitted,
}

impl Authorizer {
    /// Creates a chain of `modules` in this order.
    ///
    /// `policy` is the source of roles and bindings. `rbac_group` is their full API group, which error texts
    /// about missing roles name. Both are also used for escalation checks if RBAC is not among the modules.
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

    /// Returns the decision of the chain, for callers that need the decision itself (access reviews).
    pub async fn decide(&self, asked: &Attributes<'_>) -> Verdict {
        let mut chain = match Chain::begin(asked) {
            Ok(chain) => chain,
            Err(decided) => return decided,
        };
        for module in &*self.modules() {
            let verdict = match module {
                Module::Webhook(webhook) => webhook.decide(asked).await,
                module => Verdict::without_error(self.decide_at_once(module, asked).unwrap_or_default()),
            };
            if let Some(settled) = chain.take(verdict) {
                return settled;
            }
        }
        chain.end()
    }

    /// Returns the decision of the chain if no other server must be called; `None` otherwise.
    pub fn decide_now(&self, asked: &Attributes<'_>) -> Option<Verdict> {
        let mut chain = match Chain::begin(asked) {
            Ok(chain) => chain,
            Err(decided) => return Some(decided),
        };
        for module in &*self.modules() {
            let verdict = Verdict::without_error(self.decide_at_once(module, asked)?);
            if let Some(settled) = chain.take(verdict) {
                return Some(settled);
            }
        }
        Some(chain.end())
    }

    fn decide_at_once(&self, module: &Module, asked: &Attributes<'_>) -> Option<Decision> {
        Some(match module {
            Module::Abac(policies) => policies.decide(asked),
            Module::AlwaysAllow => Decision::Allow { reason: Reason::None },
            Module::AlwaysDeny => {
                Decision::NoOpinion { reason: "Everything is forbidden.".to_owned().into() }
            }
            Module::Node(policy) => policy.decide(asked),
            Module::Rbac => self.rbac.decide(asked),
            Module::Webhook(_) => return None,
        })
    }

    /// Returns the rules of a user in a namespace.
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
    /// The request is not allowed. The response is 403 with the message, or 500 if an authorizer failed.
    pub async fn authorize<'r>(&self, asked: &'r Attributes<'r>) -> Result<Authorized<'r>, Denied> {
        let Verdict { decision, error } = self.decide(asked).await;
        let is_final = matches!(decision, Decision::Deny { .. });
        match decision {
            Decision::Allow { reason } => Ok(Authorized::allowed(asked, reason)),
            Decision::Deny { reason } | Decision::NoOpinion { reason } => {
                Err(Denied { error, is_final, ..Denied::new(asked, reason) })
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

/// Reasons and errors of the authorizers that have no opinion.
#[derive(Default)]
struct Chain {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl Chain {
    /// Starts the chain. Members of `system:masters` are allowed at once.
    fn begin(asked: &Attributes<'_>) -> Result<Chain, Verdict> {
        if asked.user.in_group(MASTERS) {
            return Err(Verdict::without_error(Decision::Allow { reason: Reason::None }));
        }
        Ok(Chain::default())
    }

    /// Returns the verdict if it decides the request; otherwise records its reason and error.
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
    fn the_rules_of_agents_alone_are_incomplete() {
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
    fn masters_pass_first_and_no_opinion_is_a_denial() {
        // Rows of docs/api/authorization.md#authorizers: modes, group of the user, allowed, reason.
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
