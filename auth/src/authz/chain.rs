//! The chain of authorizers, in their configured order.
//!
//! Members of `system:masters` are allowed first. Then the first allow or deny decides; if no authorizer has an
//! opinion the request is denied, with all reasons joined by newlines (docs/api/authorization.md#authorizers).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::impersonation::LastModes;
use super::policy::PolicySource;
use super::rbac::Rbac;
use crate::attributes::Attributes;
use crate::decision::{Authorized, Decision, Denied, Reason};
use crate::identity::MASTERS;

/// One authorizer, as `--authorization-mode` names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Allows everything.
    AlwaysAllow,
    /// Allows nothing.
    AlwaysDeny,
    /// Roles and bindings.
    Rbac,
}

impl Mode {
    /// All modes, in the order in which messages list them.
    pub const ALL: [Mode; 3] = [Mode::AlwaysAllow, Mode::AlwaysDeny, Mode::Rbac];

    /// Name of the mode in flags.
    pub fn name(self) -> &'static str {
        match self {
            Mode::AlwaysAllow => "AlwaysAllow",
            Mode::AlwaysDeny => "AlwaysDeny",
            Mode::Rbac => "RBAC",
        }
    }

    /// Reads a comma-separated list of modes.
    ///
    /// # Errors
    /// An unknown name, a mode named twice, or no mode at all.
    pub fn parse_list(text: &str) -> Result<Vec<Mode>, UnknownMode> {
        let mut modes = Vec::new();
        for name in text.split(',').map(str::trim) {
            let mode = Mode::from_str(name)?;
            if modes.contains(&mode) {
                return Err(UnknownMode::Twice(mode));
            }
            modes.push(mode);
        }
        Ok(modes)
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Mode, UnknownMode> {
        let known = Mode::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| UnknownMode::Unknown(name.to_owned()))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A list of authorization modes that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnknownMode {
    /// Not a mode.
    #[error("authorization mode {0:?} is not one of AlwaysAllow, AlwaysDeny, RBAC")]
    Unknown(String),
    /// A mode makes sense only once.
    #[error("authorization mode {0} is listed more than once")]
    Twice(Mode),
}

/// The chain of authorizers. Built once at start; cheap to share.
pub struct Authorizer {
    modules: Vec<Module>,
    rbac: Rbac,
    pub(super) last_modes: LastModes,
}

#[derive(Clone, Copy)]
enum Module {
    AlwaysAllow,
    AlwaysDeny,
    Rbac,
}

impl Authorizer {
    /// The authorizers of `modes` in that order.
    ///
    /// `policy` is where roles and bindings come from, `rbac_group` the full API group they live in, which the
    /// texts about missing roles name. Both are also used for escalation checks when RBAC is not among the modes.
    pub fn new(modes: &[Mode], policy: Arc<dyn PolicySource>, rbac_group: impl Into<String>) -> Authorizer {
        let modules = modes.iter().map(|mode| match mode {
            Mode::AlwaysAllow => Module::AlwaysAllow,
            Mode::AlwaysDeny => Module::AlwaysDeny,
            Mode::Rbac => Module::Rbac,
        });
        Authorizer {
            modules: modules.collect(),
            rbac: Rbac::new(policy, rbac_group.into()),
            last_modes: LastModes::default(),
        }
    }

    /// The roles and bindings, for escalation checks and rule reviews.
    pub fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    /// What the chain says, for those who need the decision itself (access reviews). Does not block.
    pub fn decide(&self, asked: &Attributes<'_>) -> Decision {
        if asked.user.in_group(MASTERS) {
            return Decision::Allow { reason: Reason::None };
        }
        let mut reasons = String::new();
        for module in &self.modules {
            let decision = match module {
                Module::AlwaysAllow => Decision::Allow { reason: Reason::None },
                Module::AlwaysDeny => {
                    Decision::NoOpinion { reason: "Everything is forbidden.".to_owned().into() }
                }
                Module::Rbac => self.rbac.decide(asked),
            };
            match decision {
                Decision::NoOpinion { reason } if reason.is_empty() => {}
                Decision::NoOpinion { reason } => {
                    if !reasons.is_empty() {
                        reasons.push('\n');
                    }
                    reasons.push_str(&reason.to_string());
                }
                settled => return settled,
            }
        }
        Decision::NoOpinion { reason: reasons.into() }
    }

    /// Asks whether the request may go ahead.
    ///
    /// # Errors
    /// It may not: answer with 403 and the message.
    pub async fn authorize<'r>(&self, asked: &'r Attributes<'r>) -> Result<Authorized<'r>, Denied> {
        match self.decide(asked) {
            Decision::Allow { reason } => Ok(Authorized::allowed(asked, reason)),
            Decision::Deny { reason } | Decision::NoOpinion { reason } => Err(Denied::new(asked, reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::Policy;
    use crate::identity::User;

    #[test]
    fn the_mode_flag_is_a_list_of_known_modes() {
        for (text, want) in [
            ("RBAC", Ok(vec![Mode::Rbac])),
            ("AlwaysAllow", Ok(vec![Mode::AlwaysAllow])),
            ("RBAC, AlwaysDeny", Ok(vec![Mode::Rbac, Mode::AlwaysDeny])),
            ("rbac", Err("authorization mode \"rbac\" is not one of AlwaysAllow, AlwaysDeny, RBAC")),
            ("Node,RBAC", Err("authorization mode \"Node\" is not one of AlwaysAllow, AlwaysDeny, RBAC")),
            ("", Err("authorization mode \"\" is not one of AlwaysAllow, AlwaysDeny, RBAC")),
            ("RBAC,", Err("authorization mode \"\" is not one of AlwaysAllow, AlwaysDeny, RBAC")),
            ("RBAC,RBAC", Err("authorization mode RBAC is listed more than once")),
        ] {
            let got = Mode::parse_list(text).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "{text:?}");
        }
    }

    #[test]
    fn masters_pass_first_and_no_opinion_is_a_denial() {
        // docs/api/authorization.md#authorizers: modes, group of the user, allowed, reason.
        for (modes, group, allowed, reason) in [
            ("AlwaysDeny", "system:masters", true, ""),
            ("RBAC", "system:masters", true, ""),
            ("RBAC", "dev", false, ""),
            ("AlwaysDeny", "dev", false, "Everything is forbidden."),
            ("RBAC,AlwaysDeny", "dev", false, "Everything is forbidden."),
            ("AlwaysDeny,AlwaysAllow", "dev", true, ""),
            ("AlwaysAllow", "dev", true, ""),
        ] {
            let modes = Mode::parse_list(modes).unwrap();
            let chain = Authorizer::new(&modes, Arc::new(Policy::default()), "rbac.example.org");
            let user = User::new("jane", [group]);
            let decision = chain.decide(&Attributes::path(&user, "get", "/x"));
            assert_eq!(decision.is_allowed(), allowed, "{modes:?} {group}");
            assert_eq!(decision.reason().to_string(), reason, "{modes:?} {group}");
        }
    }
}
