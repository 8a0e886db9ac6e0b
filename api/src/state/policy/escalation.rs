//! The privilege escalation check for every write of a role or binding
//! (docs/api/authorization.md#privilege-escalation).

use auth::attributes::Attributes;
use auth::authz::{Authorizer, Escalation, RoleWrite};

use super::rules::{read_role_ref, read_rules};
use values::json::Object;
use values::object::same_but_for_collection;

/// Checks that replacing `existing` by `new` grants only permissions that the writer has.
///
/// `attributes` describes the request. Only `roles`, `clusterroles`, `rolebindings` and
/// `clusterrolebindings` are checked. Both objects are complete and defaulted. Any change is checked, even a
/// change of a label, because labels decide which aggregated roles include the rules. Only writes of the
/// garbage collector (changes of owner references and finalizers) pass without the check, because the collector must be
/// able to remove roles whose permissions the collector does not have.
///
/// # Errors
/// Returns the refusal; see [`Escalation`].
pub async fn confirm_no_escalation(
    authorizer: &Authorizer,
    attributes: &Attributes<'_>,
    existing: Option<&Object>,
    new: &Object,
) -> Result<(), Escalation> {
    if attributes.group != authorizer.rbac().group() {
        return Ok(());
    }
    if existing.is_some_and(|existing| same_but_for_collection(existing, new)) {
        return Ok(());
    }
    match attributes.resource {
        "roles" | "clusterroles" => {
            let rules = read_rules(new.get("rules"));
            let has_rule = |role: &Object| role.get("aggregationRule").is_some_and(|rule| !rule.is_null());
            let aggregates = existing.is_some_and(has_rule) || has_rule(new);
            let (resource, namespace, name) = (attributes.resource, attributes.namespace, attributes.name);
            // A rule restricted to a name does not match the creation of an object, because the path contains
            // no name.
            let name = if attributes.verb == "create" { "" } else { name };
            let write = RoleWrite { resource, namespace, name, rules: &rules, aggregates };
            authorizer.check_role(attributes.user, &write).await
        }
        "rolebindings" | "clusterrolebindings" => {
            let role = read_role_ref(new.get("roleRef"));
            authorizer.check_binding(attributes.user, attributes.namespace, &role).await
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use auth::User;
    use auth::authz::{Module, Rule};

    use super::*;
    use crate::testing::jane_may_get_pods;
    use values::json::parse;

    fn object(text: &str) -> Object {
        parse(text.replace('\'', "\"").as_bytes()).unwrap().as_object().unwrap().clone()
    }

    /// Jane may get pods; no user is in `system:masters`.
    fn authorizer() -> Authorizer {
        let mut policy = jane_may_get_pods();
        let list = |text: &str| vec![text.to_owned()];
        let all = Rule { verbs: list("*"), api_groups: list("*"), resources: list("*"), ..Rule::default() };
        policy.set_cluster_role("master", Some([all].into()));
        Authorizer::new(vec![Module::Rbac], Arc::new(policy), "rbac")
    }

    #[tokio::test]
    async fn role_changes_are_checked_for_escalation_except_those_of_garbage_collection() {
        // Each row: resource, before, after, whether it passes
        // (docs/api/authorization.md#privilege-escalation).
        let get = "{'rules':[{'verbs':['get'],'apiGroups':[''],'resources':['pods']}]}";
        let put = "{'rules':[{'verbs':['put'],'apiGroups':[''],'resources':['pods']}]}";
        let put_labelled = "{'metadata':{'labels':{'a':'b'}},'rules':[{'verbs':['put'],'apiGroups':[''],'resources':['pods']}]}";
        let aggregated = "{'aggregationRule':{'clusterRoleSelectors':[]}}";
        let put_owned = "{'metadata':{'ownerReferences':[{'uid':'u'}],'finalizers':['f']},'rules':[{'verbs':['put'],'apiGroups':[''],'resources':['pods']}]}";
        let get_labelled = "{'metadata':{'labels':{'a':'b'}},'rules':[{'verbs':['get'],'apiGroups':[''],'resources':['pods']}]}";
        let aggregated_labelled =
            "{'metadata':{'labels':{'a':'b'}},'aggregationRule':{'clusterRoleSelectors':[]}}";
        let bind = "{'roleRef':{'kind':'ClusterRole','name':'reader'}}";
        let bind_master = "{'roleRef':{'kind':'ClusterRole','name':'master'}}";
        let bind_master_eve =
            "{'roleRef':{'kind':'ClusterRole','name':'master'},'subjects':[{'kind':'User','name':'eve'}]}";
        let bind_master_labelled =
            "{'metadata':{'labels':{'a':'b'}},'roleRef':{'kind':'ClusterRole','name':'master'}}";
        let authorizer = authorizer();
        let user = User::new("jane", ["dev"]);
        for (resource, before, after, passes) in [
            ("clusterroles", "", get, true),
            ("clusterroles", "", put, false),
            ("clusterroles", get, put, false),
            ("clusterroles", put, put_labelled, false),
            ("clusterroles", put, put_owned, true),
            ("clusterroles", get, get_labelled, true),
            ("clusterroles", put, get, true),
            ("clusterroles", "", aggregated, false),
            ("clusterroles", aggregated, aggregated, true),
            ("clusterroles", aggregated, aggregated_labelled, false),
            ("clusterroles", aggregated, "{}", false),
            ("roles", "", put, false),
            ("clusterrolebindings", "", bind, true),
            ("clusterrolebindings", "", bind_master, false),
            ("clusterrolebindings", bind_master, bind_master, true),
            ("clusterrolebindings", bind_master, bind_master_eve, false),
            ("clusterrolebindings", bind_master, bind_master_labelled, false),
            ("others", "", put, true),
        ] {
            let nothing = Attributes::path(&user, if before.is_empty() { "create" } else { "update" }, "");
            let attributes =
                Attributes { resource_request: true, group: "rbac", resource, name: "x", ..nothing };
            let existing = (!before.is_empty()).then(|| object(before));
            let result =
                confirm_no_escalation(&authorizer, &attributes, existing.as_ref(), &object(after)).await;
            assert_eq!(result.is_ok(), passes, "{resource}: {before} to {after}: {result:?}");
        }
    }
}
