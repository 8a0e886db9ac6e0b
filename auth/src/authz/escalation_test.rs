//! Tests that escalation checks behave as docs/api/authorization.md#privilege-escalation describes.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::authz::{Binding, Module, NodePolicy, Policy, Subject};
use crate::decision::{Decision, Reason};

fn list(part: &str) -> Vec<String> {
    part.split(',').map(|value| if value == "-" { String::new() } else { value.to_owned() }).collect()
}

/// Parses `verbs groups resources[ names]` or `verbs /path,…`; `-` is the core group.
fn rule(text: &str) -> Rule {
    let parts: Vec<&str> = text.split(' ').collect();
    match parts.as_slice() {
        [verbs, urls] => Rule { verbs: list(verbs), non_resource_urls: list(urls), ..Rule::default() },
        [verbs, groups, resources, names @ ..] => Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: names.iter().flat_map(|names| list(names)).collect(),
            non_resource_urls: vec![],
        },
        _ => panic!("{text}"),
    }
}

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| rule(text)).collect()
}

#[test]
fn uncovered_lists_each_permission_that_the_own_rules_do_not_grant() {
    for (held, requested, missing) in [
        (&["get,list - pods"][..], &["get - pods"][..], ""),
        (&["get - pods", "list - pods"], &["get,list - pods"], ""),
        (
            &["get - pods"],
            &["get,list - pods,services"],
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]} {APIGroups:[""], Resources:["services"], Verbs:["get" "list"]}"#,
        ),
        (&["* * *"], &["get,x -,apps pods,pods/log a,b"], ""),
        (&["* * *"], &["get /x"], r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#),
        (&["* /*"], &["get,post /x,/y/*"], ""),
        (&["get /x/*"], &["get /x/y,/x/*,/x"], r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#),
        (&["get - pods"], &["* - pods"], r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#),
        (&["get - pods"], &["get * pods"], r#"{APIGroups:["*"], Resources:["pods"], Verbs:["get"]}"#),
        // A rule with names does not cover a rule without names, but a rule without names covers a rule with
        // names.
        (&["get - pods a,b"], &["get - pods"], r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#),
        (&["get - pods a,b"], &["get - pods b"], ""),
        (&["get - pods a", "get - pods b"], &["get - pods a,b"], ""),
        (
            &["get - pods a"],
            &["get - pods a,b"],
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}"#,
        ),
        (&["get - pods"], &["get - pods b"], ""),
        // These rules name subresources.
        (&["get - */scale"], &["get - pods/scale"], ""),
        (&["get - */scale"], &["get - pods"], r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#),
        (&["get - pods"], &["get - pods/log"], r#"{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}"#),
        (&["get - *"], &["get - pods/log"], ""),
        (
            &["get - pods/*"],
            &["get - pods/log"],
            r#"{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}"#,
        ),
        // If a verb is requested twice, the message lists the verb twice.
        (&[], &["get,get - pods"], r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "get"]}"#),
        (
            &["list - pods"],
            &["get - pods", "list,get - pods"],
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "get"]}"#,
        ),
        (&[], &[], ""),
    ] {
        let missing_rules = compact(uncovered(&rules(held), &rules(requested)));
        let got: Vec<String> = missing_rules.iter().map(|rule| Brief(rule).to_string()).collect();
        assert_eq!(got.join(" "), missing, "{held:?} against {requested:?}");
    }
}

#[test]
fn a_rule_with_too_many_permissions_is_missing_as_a_whole() {
    let many = |prefix: &str| (0..1_000).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    let huge = Rule { verbs: many("v"), api_groups: many("g"), resources: many("r"), ..Rule::default() };
    assert_eq!(uncovered(&rules(&["get - pods"]), std::slice::from_ref(&huge)), std::slice::from_ref(&huge));
    assert!(uncovered(&rules(&["get - pods", "* * *"]), std::slice::from_ref(&huge)).is_empty());
    let names = Rule { resource_names: (0..200_000).map(|n| n.to_string()).collect(), ..rule("get - pods") };
    let held = [names.clone()];
    assert_eq!(uncovered(&held, &[Rule { verbs: vec!["put".into()], ..names }]).len(), 1);
}

/// Returns the result of a future that completes immediately.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the check waits for something"),
    }
}

fn chain() -> Authorizer {
    let mut policy = Policy::default();
    policy.set_cluster_role("reader", Some(rules(&["get - pods", "get /x"]).into()));
    policy.set_cluster_role("writer", Some(rules(&["update - pods"]).into()));
    policy.set_cluster_role("escalator", Some(rules(&["escalate rbac clusterroles special"]).into()));
    policy.set_cluster_role("binder", Some(rules(&["bind rbac clusterroles,roles writer,local"]).into()));
    policy.set_cluster_role("all", Some(rules(&["* * *", "* /*"]).into()));
    policy.set_role("ns", "local", Some(rules(&["update - pods"]).into()));
    for (namespace, role, user) in [
        ("", "reader", "jane"),
        ("", "gone", "jane"),
        ("", "gone", "kim"),
        ("", "lost", "kim"),
        ("ns", "writer", "jane"),
        ("", "escalator", "eve"),
        ("", "binder", "bob"),
        ("", "all", "root"),
    ] {
        policy.set_binding(Binding {
            namespace: namespace.to_owned(),
            name: format!("{role}-{user}"),
            role: RoleRef { api_group: "rbac".into(), kind: "ClusterRole".into(), name: role.into() },
            subjects: vec![Subject {
                kind: "User".into(),
                api_group: "rbac".into(),
                name: user.into(),
                namespace: String::new(),
            }],
        });
    }
    Authorizer::new(vec![Module::Rbac], Arc::new(policy), "rbac")
}

#[test]
fn a_role_can_grant_only_permissions_of_its_writer() {
    let chain = chain();
    let writer = rules(&["get,update - pods,services"]);
    let jane_may_not = "user \"jane\" (groups=[\"dev\" \"ops\"]) is attempting to grant RBAC permissions not \
                        currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"update\"]}\n\
                        {APIGroups:[\"\"], Resources:[\"services\"], Verbs:[\"get\" \"update\"]}; resolution \
                        errors: [clusterroles.rbac \"gone\" not found]";
    let eve_may_not = "user \"eve\" (groups=[\"dev\" \"ops\"]) is attempting to grant RBAC permissions not \
                       currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}";
    let aggregation = "must have cluster-admin privileges to use the aggregationRule";
    let pods = rules(&["get - pods"]);
    let update = rules(&["update - pods"]);
    for (user, namespace, name, requested, aggregates, refusal) in [
        ("jane", "", "r", &pods, false, ""),
        ("jane", "", "r", &writer, false, jane_may_not),
        ("jane", "ns", "r", &update, false, ""),
        ("jane", "", "r", &pods, true, aggregation),
        ("root", "", "r", &writer, true, ""),
        // The permission for `escalate` is only for a named role, so it never applies to create.
        ("eve", "", "special", &pods, true, ""),
        ("eve", "", "other", &pods, false, eve_may_not),
        ("eve", "", "", &pods, false, eve_may_not),
    ] {
        let user = User::new(user, ["dev", "ops"]);
        let resource = if namespace.is_empty() { "clusterroles" } else { "roles" };
        let write = RoleWrite { resource, namespace, name, rules: requested, aggregates };
        let got =
            ready(chain.check_role(&user, &write)).err().map_or(String::new(), |error| error.to_string());
        assert_eq!(got, refusal, "{} writes {name:?} in {namespace:?}", user.name);
    }
    let master = User::new("m", ["system:masters"]);
    let write =
        RoleWrite { resource: "clusterroles", namespace: "", name: "", rules: &writer, aggregates: true };
    assert_eq!(ready(chain.check_role(&master, &write)), Ok(()));
}

#[test]
fn a_binding_can_grant_only_permissions_that_its_writer_has_or_may_bind() {
    let chain = chain();
    for (user, namespace, role, refusal) in [
        ("jane", "", "ClusterRole/reader", ""),
        ("jane", "ns", "ClusterRole/writer", ""),
        ("jane", "ns", "Role/local", ""),
        (
            "jane",
            "",
            "ClusterRole/writer",
            "user \"jane\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"update\"]}; resolution errors: \
             [clusterrolebindings.rbac \"gone\" not found]",
        ),
        ("jane", "", "ClusterRole/gone", "role \"gone\" not found"),
        ("jane", "other", "Role/local", "role \"local\" not found"),
        ("jane", "", "Role/local", "role \"local\" not found"),
        ("jane", "ns", "Foo/local", "unsupported role reference kind: \"Foo\""),
        ("root", "ns", "Foo/local", "unsupported role reference kind: \"Foo\""),
        (
            "kim",
            "",
            "ClusterRole/writer",
            "user \"kim\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"update\"]}; resolution errors: \
             [[clusterrolebindings.rbac \"gone\" not found, clusterrolebindings.rbac \"lost\" not found]]",
        ),
        ("bob", "", "ClusterRole/writer", ""),
        ("bob", "other", "Role/local", ""),
        (
            "bob",
            "",
            "ClusterRole/reader",
            "user \"bob\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}",
        ),
        ("root", "", "ClusterRole/writer", ""),
    ] {
        let (kind, name) = role.split_once('/').unwrap();
        let role_ref = RoleRef { api_group: "rbac".into(), kind: kind.into(), name: name.into() };
        let user = User::new(user, Vec::<String>::new());
        let got = ready(chain.check_binding(&user, namespace, &role_ref));
        let got = got.err().map_or(String::new(), |error| error.to_string());
        assert_eq!(got, refusal, "{} binds {role} in {namespace:?}", user.name);
    }
    let master = User::new("m", ["system:masters"]);
    let role_ref = RoleRef { api_group: "rbac".into(), kind: "ClusterRole".into(), name: "gone".into() };
    assert_eq!(ready(chain.check_binding(&master, "", &role_ref)), Ok(()));
}

/// An authorizer that allows everything and records the request attributes.
#[derive(Default)]
struct RecordingPolicy(parking_lot::Mutex<Vec<String>>);

impl NodePolicy for RecordingPolicy {
    fn decide(&self, request: &Attributes<'_>) -> Decision {
        let Attributes { verb, group, version, resource, namespace, name, .. } = request;
        self.0.lock().push(format!("{verb} {group} {version} {resource} {namespace} {name}"));
        Decision::Allow { reason: Reason::None }
    }
}

#[test]
fn escalation_checks_ask_for_the_same_permissions_as_the_reference_server() {
    let policy = Arc::new(RecordingPolicy::default());
    let chain = Authorizer::new(vec![Module::Node(policy.clone())], Arc::new(Policy::default()), "rbac");
    let user = User::new("jane", [""; 0]);
    let write = RoleWrite { resource: "roles", namespace: "ns", name: "r", rules: &[], aggregates: false };
    assert_eq!(ready(chain.check_role(&user, &write)), Ok(()));
    let role = RoleRef { api_group: "rbac".into(), kind: "ClusterRole".into(), name: "r".into() };
    assert_eq!(ready(chain.check_binding(&user, "ns", &role)), Ok(()));
    assert_eq!(*policy.0.lock(), ["escalate rbac * roles ns r", "bind rbac  clusterroles ns r"]);
}
