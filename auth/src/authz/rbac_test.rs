//! Tests that RBAC behaves as docs/api/authorization.md#rbac describes.

use std::time::Instant;

use super::*;
use crate::authz::{Authorizer, Binding, Module, Subject};

/// Parses `verbs groups resources[ =name,…]` or `verbs /path,…`; `-` is the core group.
fn rule(text: &str) -> Rule {
    let list = |part: &str| -> Vec<String> {
        part.split(',').map(|value| if value == "-" { String::new() } else { value.to_owned() }).collect()
    };
    let parts: Vec<&str> = text.split(' ').collect();
    match parts.as_slice() {
        [verbs, urls] => Rule { verbs: list(verbs), non_resource_urls: list(urls), ..Rule::default() },
        [verbs, groups, resources, names @ ..] => Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: names.iter().flat_map(|names| list(names.trim_start_matches('='))).collect(),
            non_resource_urls: vec![],
        },
        _ => panic!("{text}"),
    }
}

fn binding(namespace: &str, name: &str, role: &str, subjects: &[&str]) -> Binding {
    let (kind, role) = role.split_once('/').unwrap();
    let subject = |text: &&str| {
        let (kind, name) = text.split_once('/').unwrap();
        let (namespace, name) =
            if kind == "ServiceAccount" { name.split_once('/').unwrap() } else { ("", name) };
        let [kind, name, namespace] = [kind, name, namespace].map(str::to_owned);
        Subject { kind, api_group: String::new(), name, namespace }
    };
    Binding {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        role: RoleRef { api_group: String::new(), kind: kind.to_owned(), name: role.to_owned() },
        subjects: subjects.iter().map(subject).collect(),
    }
}

fn rbac(policy: Policy) -> Authorizer {
    Authorizer::new(vec![Module::Rbac], Arc::new(policy), "rbac.example.org")
}

/// Returns the decision about a request of the form `verb resource[/subresource][.group] [ns/]name` or `verb
/// /path`.
fn decide(chain: &Authorizer, user: &User, text: &str) -> Decision {
    let parts: Vec<&str> = text.split(' ').collect();
    if parts[1].starts_with('/') {
        return chain.decide_now(&Attributes::path(user, parts[0], parts[1])).unwrap().decision;
    }
    let (resource, group) = parts[1].split_once('.').unwrap_or((parts[1], ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let place = parts.get(2).copied().unwrap_or("");
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let nothing = Attributes::path(user, parts[0], "");
    let resource_request = true;
    let request = Attributes { resource_request, group, resource, subresource, namespace, name, ..nothing };
    chain.decide_now(&request).unwrap().decision
}

#[test]
fn an_rbac_rule_matches_only_its_verbs_groups_resources_and_names() {
    let jane = User::new("jane", ["dev"]);
    for (granted, request, allowed) in [
        ("get - pods", "get pods ns/p", true),
        ("get - pods", "list pods ns/", false),
        ("get - pods", "get services ns/p", false),
        ("get - pods", "get pods.apps ns/p", false),
        ("get apps pods", "get pods ns/p", false),
        ("* * *", "delete deployments/scale.apps ns/d", true),
        ("* * *", "get /metrics", false),
        ("get * pods", "get pods.metrics.example.org ns/p", true),
        // A rule for a resource does not include its subresources. Only `*/sub` and `*` are wildcards
        // (docs/api/authorization.md#rbac).
        ("get - pods", "get pods/log ns/p", false),
        ("get - pods/log", "get pods/log ns/p", true),
        ("get - pods/log", "get pods ns/p", false),
        ("get - pods/*", "get pods/log ns/p", false),
        ("get - *", "get pods/log ns/p", true),
        ("get apps */scale", "get deployments/scale.apps ns/d", true),
        ("get apps */scale", "get deployments.apps ns/d", false),
        ("get apps */scale", "get deployments/status.apps ns/d", false),
        // A request without a name never matches a rule with names (docs/api/authorization.md#rbac).
        ("get,list,create - pods =p,q", "get pods ns/p", true),
        ("get,list,create - pods =p,q", "get pods ns/q", true),
        ("get,list,create - pods =p,q", "get pods ns/r", false),
        ("get,list,create - pods =p,q", "list pods ns/", false),
        ("get,list,create - pods =p,q", "list pods ns/p", true),
        ("get,list,create - pods =p,q", "create pods ns/", false),
        ("get - pods =-", "get pods ns/", false),
        // These rules are for URL paths.
        ("get /healthz", "get /healthz", true),
        ("get /healthz", "get /healthz/etcd", false),
        ("get /healthz", "post /healthz", false),
        ("get /healthz/*", "get /healthz/etcd", true),
        ("get /healthz/*", "get /healthz", false),
        ("get /healthz*", "get /healthz", true),
        ("* *", "get /anything", true),
        ("get /*", "get /anything", true),
    ] {
        let mut policy = Policy::default();
        policy.set_cluster_role("r", Some([rule(granted)].into()));
        policy.set_binding(binding("", "b", "ClusterRole/r", &["User/jane"]));
        let got = decide(&rbac(policy), &jane, request).is_allowed();
        assert_eq!(got, allowed, "{granted:?} for {request:?}");
    }
}

#[test]
fn bindings_grant_permissions_to_their_subjects_in_their_scope() {
    let mut policy = Policy::default();
    policy.set_cluster_role("reader", Some([rule("get - pods,namespaces"), rule("get /x")].into()));
    policy.set_role("ns", "local", Some([rule("update - pods")].into()));
    policy.set_binding(binding("", "everywhere", "ClusterRole/reader", &["Group/ops"]));
    policy.set_binding(binding("ns", "here", "ClusterRole/reader", &["User/jane", "ServiceAccount//robot"]));
    policy.set_binding(binding("ns", "local", "Role/local", &["ServiceAccount/other/robot"]));
    policy.set_binding(binding("other", "local", "Role/local", &["User/jane"]));
    policy.set_binding(binding(
        "",
        "matches-none",
        "ClusterRole/reader",
        &["ServiceAccount//robot", "Robot/jane"],
    ));
    let chain = rbac(policy);
    let missing = r#"RBAC: role.rbac.example.org "local" not found"#;
    for (user, groups, request, allowed, reason) in [
        (
            "joe",
            "ops",
            "get pods any/p",
            true,
            r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "reader" to Group "ops""#,
        ),
        (
            "joe",
            "ops",
            "get namespaces x",
            true,
            r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "reader" to Group "ops""#,
        ),
        (
            "joe",
            "ops",
            "get /x",
            true,
            r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "reader" to Group "ops""#,
        ),
        ("joe", "dev", "get pods any/p", false, ""),
        (
            "jane",
            "",
            "get pods ns/p",
            true,
            r#"RBAC: allowed by RoleBinding "here/ns" of ClusterRole "reader" to User "jane""#,
        ),
        // A request for a namespace object is in that namespace. Only cluster role bindings can grant paths
        // (docs/api/authorization.md#rbac).
        (
            "jane",
            "",
            "get namespaces ns/ns",
            true,
            r#"RBAC: allowed by RoleBinding "here/ns" of ClusterRole "reader" to User "jane""#,
        ),
        ("jane", "", "get /x", false, ""),
        ("jane", "", "get pods default/p", false, ""),
        ("jane", "", "get pods p", false, ""),
        ("jane", "", "get pods other/p", false, missing),
        (
            "system:serviceaccount:ns:robot",
            "",
            "get pods ns/p",
            true,
            r#"RBAC: allowed by RoleBinding "here/ns" of ClusterRole "reader" to ServiceAccount "robot/ns""#,
        ),
        (
            "system:serviceaccount:other:robot",
            "",
            "update pods ns/p",
            true,
            r#"RBAC: allowed by RoleBinding "local/ns" of Role "local" to ServiceAccount "robot/other""#,
        ),
        ("system:serviceaccount:ns:robot", "", "update pods ns/p", false, ""),
        ("robot", "", "get pods ns/p", false, ""),
    ] {
        let user = User::new(user, groups.split(',').filter(|group| !group.is_empty()));
        let decision = decide(&chain, &user, request);
        assert_eq!(decision.is_allowed(), allowed, "{} {request}", user.name);
        assert_eq!(decision.reason().to_string(), reason, "{} {request}", user.name);
    }
}

#[test]
fn bindings_of_missing_roles_are_reported_and_other_bindings_still_grant() {
    let jane = User::new("jane", ["dev"]);
    let mut policy = Policy::default();
    policy.set_binding(binding("", "a", "ClusterRole/gone", &["User/jane"]));
    policy.set_binding(binding("", "a2", "ClusterRole/gone", &["Group/dev"]));
    policy.set_binding(binding("ns", "b", "Role/lost", &["User/jane"]));
    policy.set_binding(binding("ns", "c", "Thing/x", &["User/jane"]));
    let reason = |policy: Policy, request| decide(&rbac(policy), &jane, request).reason().to_string();
    let gone = r#"clusterrole.rbac.example.org "gone" not found"#;
    let lost = r#"role.rbac.example.org "lost" not found"#;
    let odd = r#"unsupported role reference kind: "Thing""#;
    let chain = rbac(policy);
    assert_eq!(decide(&chain, &jane, "get pods p").reason().to_string(), format!("RBAC: {gone}"));
    assert_eq!(
        decide(&chain, &jane, "get pods ns/p").reason().to_string(),
        format!("RBAC: [{gone}, {lost}, {odd}]")
    );
    let mut healed = Policy::default();
    healed.set_cluster_role("ok", Some([rule("get - pods")].into()));
    healed.set_binding(binding("", "a", "ClusterRole/gone", &["User/jane"]));
    healed.set_binding(binding("", "b", "ClusterRole/ok", &["User/jane"]));
    assert_eq!(
        reason(healed, "get pods p"),
        r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "ok" to User "jane""#
    );
}

#[test]
fn changed_roles_and_bindings_take_effect_and_deleted_ones_are_forgotten() {
    let jane = User::new("jane", ["dev"]);
    let mut policy = Policy::default();
    let can = |policy: &Policy| {
        let grants = policy.grants(&jane, "ns").count();
        let rules =
            policy.grants(&jane, "ns").filter_map(|grant| policy.role("ns", &grant.binding().role.name));
        (grants, rules.map(|rules| rules.len()).sum::<usize>())
    };
    policy.set_role("ns", "r", Some([rule("get - pods")].into()));
    assert_eq!(can(&policy), (0, 0));
    policy.set_binding(binding("ns", "b", "Role/r", &["User/jane", "User/jane", "Group/dev"]));
    assert_eq!(can(&policy), (2, 2), "once by name, once by group");
    policy.set_binding(binding("ns", "b", "Role/r", &["User/joe", "Group/dev"]));
    assert_eq!(can(&policy), (1, 1));
    policy.set_role("ns", "r", None);
    assert_eq!(can(&policy), (1, 0));
    policy.forget_binding("ns", "b");
    policy.forget_binding("ns", "never was");
    assert_eq!(can(&policy), (0, 0));
    assert!(policy.is_empty(), "nothing is kept for a namespace without roles and bindings");
}

#[test]
fn the_cost_of_a_check_does_not_grow_with_the_bindings_of_others() {
    let mut policy = Policy::default();
    policy.set_cluster_role("r", Some([rule("get - pods")].into()));
    for n in 0..20_000 {
        policy.set_binding(binding("", &format!("b{n}"), "ClusterRole/r", &[&format!("User/u{n}")]));
        policy.set_binding(binding("ns", &format!("b{n}"), "ClusterRole/r", &[&format!("Group/g{n}")]));
    }
    let chain = rbac(policy);
    let jane = User::new("u77", ["g1", "g2", "g3"]);
    let rounds = (0..100).map(|_| {
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(!decide(&chain, &jane, "get services ns/p").is_allowed());
        }
        begun.elapsed() / 20
    });
    // A scan of forty thousand bindings takes a millisecond; a check with the index takes one or two
    // microseconds. Most rounds may be interrupted.
    let fastest = rounds.min().unwrap();
    assert!(fastest.as_micros() < 100, "{fastest:?} for a check");
}
