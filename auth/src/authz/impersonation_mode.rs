//! The modes of impersonation, and the order in which they are tried for a caller.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::identity::{NODE_PREFIX, SERVICE_ACCOUNT_PREFIX, User};

/// Maximum number of callers in the map of last modes. If the map is full, all entries are dropped. The loss
/// of the entries changes only the order of the modes.
const REMEMBERED_MAX: usize = 1024;

/// A mode of impersonation, which determines the required permissions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ImpersonationMode {
    /// The wanted user is the node on which the caller, a service account, runs. The wanted user has only a
    /// name.
    AssociatedNode,
    /// The wanted user is any node. The wanted user has only a name.
    ArbitraryNode,
    /// The wanted user is a service account. The wanted user has only a name.
    ServiceAccount,
    /// The wanted user is neither a service account nor a node, and may have groups, a uid and extra values.
    UserInfo,
    /// The wanted user is any user. The verb `impersonate` is sufficient.
    Legacy,
}

impl ImpersonationMode {
    /// Returns the verb for the wanted identity, and the prefix of the verb for the requested object. The
    /// prefix is `None` for the legacy mode.
    pub(super) fn verbs(self) -> (&'static str, Option<&'static str>) {
        match self {
            ImpersonationMode::AssociatedNode => {
                ("impersonate:associated-node", Some("impersonate-on:associated-node:"))
            }
            ImpersonationMode::ArbitraryNode => {
                ("impersonate:arbitrary-node", Some("impersonate-on:arbitrary-node:"))
            }
            ImpersonationMode::ServiceAccount => {
                ("impersonate:serviceaccount", Some("impersonate-on:serviceaccount:"))
            }
            ImpersonationMode::UserInfo => ("impersonate:user-info", Some("impersonate-on:user-info:")),
            ImpersonationMode::Legacy => ("impersonate", None),
        }
    }
}

/// The last successful mode of recent callers, and whether the constrained modes are enabled.
pub(super) struct LastModes {
    modes: Mutex<HashMap<String, ImpersonationMode>>,
    pub(super) is_constrained: bool,
}

impl Default for LastModes {
    fn default() -> LastModes {
        LastModes { modes: Mutex::default(), is_constrained: true }
    }
}

impl LastModes {
    /// Returns the modes that are possible for the wanted identity, in the order in which they are tried.
    pub(super) fn order(&self, caller: &User, impersonated: &User) -> Vec<ImpersonationMode> {
        if !self.is_constrained {
            return vec![ImpersonationMode::Legacy];
        }
        let mut modes = Vec::new();
        let is_name_alone =
            impersonated.groups.is_empty() && impersonated.uid.is_empty() && impersonated.extra.is_empty();
        match (service_account(&impersonated.name), node(&impersonated.name)) {
            (Some(_), _) if is_name_alone => modes.push(ImpersonationMode::ServiceAccount),
            (None, Some(name)) if is_name_alone => {
                if node_of(caller) == Some(name) {
                    modes.push(ImpersonationMode::AssociatedNode);
                }
                modes.push(ImpersonationMode::ArbitraryNode);
            }
            (None, None) => modes.push(ImpersonationMode::UserInfo),
            _ => {}
        }
        modes.push(ImpersonationMode::Legacy);
        let last = self.modes.lock().get(&caller.name).copied();
        // The sort is stable, so it moves only the last successful mode to the front.
        modes.sort_by_key(|mode| Some(*mode) != last);
        modes
    }

    pub(super) fn remember(&self, caller: &User, mode: ImpersonationMode) {
        let mut modes = self.modes.lock();
        if modes.get(&caller.name) == Some(&mode) {
            return;
        }
        if modes.len() >= REMEMBERED_MAX {
            modes.clear();
        }
        modes.insert(caller.name.clone(), mode);
    }
}

/// Returns the node whose agent has this user name. The name of a node must be a valid DNS subdomain.
pub(super) fn node(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX).filter(|name| names::subdomain(name).is_empty())
}

/// Returns the node on which a service account runs, from the extra values of its token.
pub fn node_of(caller: &User) -> Option<&str> {
    service_account(&caller.name)?;
    let (_, names) = caller.extra.iter().find(|(key, _)| domain_of_node_key(key).is_some())?;
    match names.as_slice() {
        [name] => Some(name),
        _ => None,
    }
}

/// Returns the domain in `key`, if `key` is the key of the extra value with the node of a service account.
pub(super) fn domain_of_node_key(key: &str) -> Option<&str> {
    key.strip_suffix("/node-name").filter(|domain| domain.starts_with("authentication."))
}

/// Splits the user name of a service account into namespace and name.
pub(super) fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let valid = names::label(namespace).is_empty() && names::subdomain(name).is_empty();
    valid.then_some((namespace, name))
}
