//! Permissions that several tests of this crate use.

use auth::authz::{Binding, Policy, RoleRef, Rule, Subject};

/// Returns rules under which the user jane may only get pods, in all namespaces, through the role `reader`.
pub(crate) fn jane_may_get_pods() -> Policy {
    let list = |text: &str| vec![text.to_owned()];
    let read = Rule { verbs: list("get"), api_groups: list(""), resources: list("pods"), ..Rule::default() };
    user_may("jane", read)
}

/// Returns rules under which a user may do what `rule` permits, in all namespaces, through the role `reader`.
pub(crate) fn user_may(name: &str, rule: Rule) -> Policy {
    let mut policy = Policy::default();
    policy.set_cluster_role("reader", Some([rule].into()));
    let [kind, role_kind] = ["User", "ClusterRole"].map(str::to_owned);
    let user = Subject { kind, name: name.to_owned(), api_group: String::new(), namespace: String::new() };
    let role = RoleRef { kind: role_kind, name: "reader".to_owned(), api_group: String::new() };
    let (namespace, name) = (String::new(), "b".to_owned());
    policy.set_binding(Binding { namespace, name, role, subjects: vec![user] });
    policy
}
