//! Tests that impersonation behaves as docs/api/authentication.md#impersonation describes.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::authz::{Binding, Module, Policy, RoleRef, Rule, Subject};

/// Returns the result of a future that completes immediately.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the check waits for something"),
    }
}

/// Parses `verbs group resources[ names]`; `-` is the core group.
fn rule(text: &str) -> Rule {
    let list = |at: usize| -> Vec<String> {
        let part = text.split(' ').nth(at).unwrap_or_default();
        let values = part.split(',').filter(|value| !value.is_empty());
        values.map(|value| value.trim_matches('-').to_owned()).collect()
    };
    Rule {
        verbs: list(0),
        api_groups: list(1),
        resources: list(2),
        resource_names: list(3),
        ..Rule::default()
    }
}

/// Returns an RBAC authorizer in which `bob` has these rules in all namespaces.
fn chain(rules: &[&str]) -> Authorizer {
    chain_for("bob", rules)
}

/// Returns an RBAC authorizer in which a user has these rules in all namespaces.
fn chain_for(user: &str, rules: &[&str]) -> Authorizer {
    let mut policy = Policy::default();
    let rules: Vec<Rule> = rules.iter().map(|text| rule(text)).collect();
    policy.set_cluster_role("bob", Some(rules.into()));
    policy.set_binding(Binding {
        namespace: String::new(),
        name: "bob".into(),
        role: RoleRef { api_group: "rbac".into(), kind: "ClusterRole".into(), name: "bob".into() },
        subjects: vec![Subject {
            kind: "User".into(),
            api_group: "rbac".into(),
            name: user.into(),
            namespace: String::new(),
        }],
    });
    Authorizer::new(vec![Module::Rbac], Arc::new(policy), "rbac")
}

/// Parses `name[ group…][ uid=…][ key=value]`.
fn user(text: &str) -> User {
    let mut parts = text.split(' ');
    let mut user = User { name: parts.next().unwrap_or_default().to_owned(), ..User::default() };
    for part in parts {
        match part.split_once('=') {
            None => user.groups.push(part.to_owned()),
            Some(("uid", uid)) => user.uid = uid.to_owned(),
            Some((key, value)) => user.extra.entry(key.to_owned()).or_default().push(value.to_owned()),
        }
    }
    user
}

/// Lists pods as `caller`, who impersonates the user `impersonated`. Returns the groups of that user, or the
/// refusal.
fn attempt(chain: &Authorizer, caller: &str, impersonated: &str) -> Result<String, String> {
    let caller = User::new(caller, ["dev"]);
    let request = Attributes {
        resource_request: true,
        version: "v1",
        resource: "pods",
        namespace: "ns",
        ..Attributes::path(&caller, "list", "/api/v1/namespaces/ns/pods")
    };
    let acting = ready(chain.impersonate(&request, &user(impersonated)));
    acting.map(|acting| acting.user.groups.join(" ")).map_err(|refused| refused.message)
}

#[test]
fn impersonation_of_nodes_has_its_own_modes() {
    let on = |mode: &str| format!("impersonate-on:{mode}:list - pods");
    let (associated, arbitrary) = (on("associated-node"), on("arbitrary-node"));
    let own = "impersonate:associated-node authentication.k8s.io nodes";
    let any = "impersonate:arbitrary-node authentication.k8s.io nodes b";
    let account = |node: &str| {
        let mut caller = User::new("system:serviceaccount:ns:agent", ["system:serviceaccounts"]);
        caller.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec![node.to_owned()]);
        caller
    };
    let refused = Err(());
    for (rules, caller, impersonated, want) in [
        (vec![own, &*associated], account("a"), "system:node:a", Ok(("system:nodes", "associated-node"))),
        (vec![own, &*associated], account("a"), "system:node:b", refused),
        (vec![own, &*associated], User::new("bob", [""; 0]), "system:node:a", refused),
        (vec![any, &*arbitrary], account("a"), "system:node:b", Ok(("system:nodes", "arbitrary-node"))),
        (vec![any, &*arbitrary], account("a"), "system:node:c", refused),
        (vec![any, &*arbitrary], account("a"), "system:node:b devs", refused),
        (vec![any], account("a"), "system:node:b", refused),
        // `b_` is not a valid node name.
        (vec![any, &*arbitrary], account("a"), "system:node:b_", refused),
    ] {
        // The binding contains the name of the caller.
        let chain = chain_for(&caller.name, &rules);
        let request = Attributes {
            resource_request: true,
            version: "v1",
            resource: "pods",
            namespace: "ns",
            ..Attributes::path(&caller, "list", "/api/v1/namespaces/ns/pods")
        };
        let acting = ready(chain.impersonate(&request, &user(impersonated))).map_err(|_| ());
        let got = acting.as_ref().map(|acting| {
            let constraint = acting.constraint.unwrap_or_default().strip_prefix("impersonate:");
            (&*acting.user.groups[0], constraint.unwrap_or_default())
        });
        assert_eq!(got.ok(), want.ok(), "{rules:?} {} as {impersonated}", caller.name);
    }
}

#[test]
fn each_attribute_of_an_impersonated_identity_needs_its_own_permission() {
    const USERS: &str = "impersonate - users alice";
    let on_pods = "User \"bob\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the \
                   namespace \"ns\"";
    let constrained = [
        "impersonate:user-info authentication.k8s.io users,groups alice,devs",
        "impersonate-on:user-info:list - pods",
    ];
    for (rules, impersonated, want) in [
        (&[USERS][..], "alice", Ok("system:authenticated")),
        (&[], "alice", Err(on_pods)),
        (&[USERS], "carol", Err(on_pods)),
        (&[USERS], "alice devs", Err(on_pods)),
        (&[USERS], "alice uid=u-1", Err(on_pods)),
        (&[USERS], "alice scopes=view", Err(on_pods)),
        (&[USERS, "impersonate - groups devs"], "alice devs", Ok("devs system:authenticated")),
        (&[USERS, "impersonate authentication.k8s.io uids u-1"], "alice uid=u-1", Ok("system:authenticated")),
        (&[USERS, "impersonate authentication.k8s.io uids u-1"], "alice uid=u-2", Err(on_pods)),
        (
            &[USERS, "impersonate authentication.k8s.io userextras/scopes view"],
            "alice scopes=view",
            Ok("system:authenticated"),
        ),
        (
            &[USERS, "impersonate authentication.k8s.io userextras/scopes view"],
            "alice scopes=edit",
            Err(on_pods),
        ),
        // The permission for users does not apply to service accounts.
        (
            &["impersonate - users"],
            "system:serviceaccount:ns:sa",
            Err(
                "User \"bob\" cannot impersonate-on:serviceaccount:list resource \"pods\" in API group \"\" in the \
                 namespace \"ns\"",
            ),
        ),
        (
            &["impersonate - serviceaccounts sa"],
            "system:serviceaccount:ns:sa",
            Ok("system:serviceaccounts system:serviceaccounts:ns system:authenticated"),
        ),
        // Constrained modes need both permissions, and never permit `system:masters`.
        (&constrained, "alice devs", Ok("devs system:authenticated")),
        (
            &constrained[1..],
            "alice",
            Err(
                "User \"bob\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at \
             the cluster scope",
            ),
        ),
        (&["* * *"], "alice system:masters", Ok("system:masters system:authenticated")),
        (
            &["impersonate:user-info,impersonate-on:user-info:list * *"],
            "alice system:masters",
            Err(
                "User \"bob\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at \
             the cluster scope: impersonating the system:masters group is not allowed",
            ),
        ),
        (
            &["impersonate:user-info,impersonate-on:user-info:list * *"],
            "alice k=v",
            Err(
                "User \"bob\" cannot impersonate:user-info resource \"userextras\" in API group \"authentication.k8s.io\" \
             at the cluster scope: impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \
             \"k\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            ),
        ),
        (
            &["impersonate:user-info,impersonate-on:user-info:list * *"],
            "alice acme.io/k=v",
            Ok("system:authenticated"),
        ),
        // If the name is not valid for a node, the wanted user counts as any other user.
        (
            &["impersonate:user-info authentication.k8s.io users system:node:b_", constrained[1]],
            "system:node:b_",
            Ok("system:authenticated"),
        ),
    ] {
        let got = attempt(&chain(rules), "bob", impersonated);
        assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{rules:?} as {impersonated}");
    }
}

#[test]
fn impersonation_checks_the_attributes_of_an_identity_in_a_fixed_order() {
    const ALL: &str = "impersonate:user-info,impersonate-on:user-info:list * *";
    const ON: &str = "impersonate-on:user-info:list - pods";
    const USERS: &str = "impersonate:user-info authentication.k8s.io users";
    let refused = |resource: &str, why: &str| {
        format!(
            "User \"bob\" cannot impersonate:user-info resource \"{resource}\" in API group \
             \"authentication.k8s.io\" at the cluster scope{why}"
        )
    };
    let empty_group = refused("groups", ": impersonating the empty string group is not allowed");
    let masters = refused("groups", ": impersonating the system:masters group is not allowed");
    let invalid = |text: &str| {
        let why = format!(
            ": impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {text}"
        );
        refused("userextras", &why)
    };
    let path = "\"?\": Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
    let upper = ": impersonating a non-lowercase key in extra is not allowed: \"a.io/K\"";
    let no_value = ": impersonating the empty string value in extra is not allowed";
    for (rules, impersonated, want) in [
        (&[ON, USERS][..], "alice devs uid=1 a.io/k=v", refused("uids", "")),
        (&[ON, USERS], "alice devs a.io/k=v", refused("groups", "")),
        (&[ON, USERS], "alice a.io/k=v", refused("userextras/a.io/k", "")),
        (&[ON, USERS], "alice devs system:masters", masters),
        (&[ALL], "alice system:masters  devs", empty_group),
        (
            &[ALL],
            "alice a.io/k=v b=v",
            invalid("\"b\": must be a domain-prefixed path (such as \"acme.io/foo\")"),
        ),
        (&[ALL], "alice a.io/?=v", invalid(path)),
        (&[ALL], "alice a.io/K=v", refused("userextras", upper)),
        (&[ALL], "alice a.io/k=", refused("userextras", no_value)),
    ] {
        assert_eq!(attempt(&chain(rules), "bob", impersonated), Err(want), "{rules:?} as {impersonated}");
    }
}

#[test]
fn many_impersonated_groups_and_extra_values_are_checked_with_one_wildcard_request() {
    const ON: &str = "impersonate-on:user-info:list - pods";
    const USERS: &str = "impersonate:user-info authentication.k8s.io users";
    let groups = "impersonate:user-info authentication.k8s.io groups *";
    let extra = "impersonate:user-info authentication.k8s.io userextras/* *";
    for (rule, impersonated, is_allowed) in [
        (groups, "alice a b c d", true),
        (groups, "alice a b c", false),
        (extra, "alice a.io/k=1 a.io/k=2 a.io/l=3 a.io/l=4", true),
        (extra, "alice a.io/k=1 a.io/k=2 a.io/l=3", false),
    ] {
        let got = attempt(&chain(&[ON, USERS, rule]), "bob", impersonated);
        assert_eq!(got.is_ok(), is_allowed, "{rule} as {impersonated}: {got:?}");
    }
}

#[test]
fn authorizers_receive_the_extra_keys_of_a_caller_that_impersonates_its_node() {
    let mut caller = User::new("system:serviceaccount:ns:agent", [""; 0]);
    for key in ["authentication.kubernetes.io/node-name", "a.io/k"] {
        caller.extra.insert(key.to_owned(), vec!["a".to_owned()]);
    }
    let shown = on_its_node(&caller);
    let keys = ["a.io/k", "authentication.kubernetes.io/node-name"].map(str::to_owned).to_vec();
    let want = [("authentication.kubernetes.io/associated-node-keys".to_owned(), keys)];
    assert_eq!((shown.name, shown.extra), (caller.name, want.into()));
}

#[test]
fn an_impersonation_refusal_comes_from_the_mode_that_last_succeeded() {
    let chain = chain(&["impersonate - users alice"]);
    let legacy = "User \"bob\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
    assert_ne!(attempt(&chain, "bob", "carol"), Err(legacy.to_owned()));
    assert!(attempt(&chain, "bob", "alice").is_ok());
    assert_eq!(attempt(&chain, "bob", "carol"), Err(legacy.to_owned()));
    // A cached permission of bob does not apply to other callers.
    assert!(attempt(&chain, "eve", "alice").is_err());
}

#[test]
fn an_impersonated_name_implies_its_system_groups() {
    for (impersonated, groups) in [
        ("dave", "system:authenticated"),
        ("dave system:unauthenticated", "system:unauthenticated"),
        ("dave system:authenticated a", "system:authenticated a"),
        ("system:anonymous a", "a system:unauthenticated"),
        ("system:serviceaccount:ns:sa a", "a system:authenticated"),
        ("system:serviceaccount:ns:X_", "system:authenticated"),
        ("system:serviceaccount:ns:", "system:authenticated"),
    ] {
        assert_eq!(
            completed(ImpersonationMode::Legacy, &user(impersonated)).groups.join(" "),
            groups,
            "{impersonated}"
        );
    }
}

#[test]
fn permissions_of_constrained_impersonation_are_cached_for_a_while() {
    let constrained =
        ["impersonate:user-info authentication.k8s.io users", "impersonate-on:user-info:list - pods"];
    for (rules, is_kept) in [(&constrained[..], true), (&["impersonate - users"], false)] {
        let chain = chain(rules);
        assert!(attempt(&chain, "bob", "alice").is_ok(), "{rules:?}");
        chain.replace(vec![Module::AlwaysDeny]);
        assert_eq!(attempt(&chain, "bob", "alice").is_ok(), is_kept, "{rules:?}");
        assert!(attempt(&chain, "bob", "carol").is_err(), "{rules:?}");
        assert!(attempt(&chain, "eve", "alice").is_err(), "{rules:?}");
    }
}
