//! The user of a request: name, uid, groups and extra values (docs/api/authentication.md).

use std::collections::BTreeMap;

/// Group whose members have all permissions. The membership is checked before any authorizer runs
/// (docs/api/authorization.md#authorizers).
pub const MASTERS: &str = "system:masters";
/// Group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of all unauthenticated users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Name of the user of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of all service accounts. The name with the suffix `:<namespace>` is the group of the service
/// accounts in that namespace.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// Prefix of a service account's user name. `<namespace>:<name>` follows the prefix.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// Group of the node agents.
pub const NODES: &str = "system:nodes";
/// Prefix of a node agent's user name. The name of the node follows the prefix.
pub const NODE_PREFIX: &str = "system:node:";

/// A user. All values are allowed. Authentication does not interpret the values; authorizers do.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct User {
    /// User name. Bindings refer to this name.
    pub name: String,
    /// Identifier that distinguishes users with the same name at different times; often empty.
    pub uid: String,
    /// Groups, in the order in which the authenticator listed them.
    pub groups: Vec<String>,
    /// Extra values. The keys are in lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Creates a user with this name and these groups, without uid and extra values.
    pub fn new<G: Into<String>>(name: impl Into<String>, groups: impl IntoIterator<Item = G>) -> User {
        let groups = groups.into_iter().map(Into::into).collect();
        User { name: name.into(), groups, ..User::default() }
    }

    /// Returns the user of requests without credentials (docs/api/authentication.md#anonymous-requests).
    pub fn anonymous() -> User {
        User::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// Returns whether the user belongs to `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|member_of| member_of == group)
    }

    /// Returns the name of the node if the user is a node agent, and `None` otherwise. The name is empty if
    /// the agent's user name contains no node.
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|_| self.in_group(NODES))
    }

    /// Adds the group `system:authenticated`, unless the user is anonymous or already has
    /// `system:authenticated` or `system:unauthenticated` (docs/api/authentication.md#authenticators).
    pub fn mark_authenticated(&mut self) {
        if self.name != ANONYMOUS && !self.in_group(AUTHENTICATED) && !self.in_group(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
    }
}

/// Returns the user name of the service account `name` in `namespace`.
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Returns the groups of every service account in `namespace`, without `system:authenticated`.
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    [SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_agents_are_recognized_by_group_and_name() {
        for (name, group, want) in [
            ("system:node:a", NODES, Some("a")),
            ("system:node:", NODES, Some("")),
            ("a", NODES, None),
            ("system:node:a", "others", None),
        ] {
            assert_eq!(User::new(name, [group]).node(), want, "{name} {group}");
        }
    }

    #[test]
    fn only_authenticated_users_join_system_authenticated() {
        // The rows of docs/api/authentication.md#authenticators: the name, the groups before, and the groups
        // after.
        for (name, before, after) in [
            ("jane", vec!["dev"], vec!["dev", "system:authenticated"]),
            ("jane", vec!["system:authenticated"], vec!["system:authenticated"]),
            ("jane", vec!["system:unauthenticated"], vec!["system:unauthenticated"]),
            ("system:anonymous", vec![], vec![]),
        ] {
            let mut user = User::new(name, before);
            user.mark_authenticated();
            assert_eq!(user.groups, after, "{name}");
        }
    }
}
