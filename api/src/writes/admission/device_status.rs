//! Permissions for two parts of the status of a claim: the allocation of devices to users, and the reports of
//! drivers about devices (docs/api/writes.md#device-access).
//!
//! ```text
//! allocation, users ─► <verb>                                      resourceclaims/binding in all namespaces
//! devices ─► each driver ─► associated-node:<verb> on its node,
//!                           or arbitrary-node:<verb>               resourceclaims/driver by its name
//! ```
//!
//! These permissions are required in addition to the permission to write the status. A refusal is reported as a
//! field error together with the other errors. Each driver needs its own call to the authorizers, so call
//! [`refused`] only for valid claims: the number of devices in a valid claim is bounded.

use std::collections::BTreeSet;

use auth::attributes::Attributes;
use auth::authz::{Authorizer, node_of};
use hashbrown::HashMap;

use types::schema::registry::Resource;
use values::field::{FieldError, go_quote};
use values::json::{Object, Value};
use values::object::{at, same_at, same_values};

/// Returns a field error for each change of the status that the writer is not permitted to make. The result
/// is empty unless the write is to the status of a resource claim. Both objects are in the stored form, and
/// the new object is valid.
pub async fn refused(
    authorizer: &Authorizer,
    attributes: &Attributes<'_>,
    resource: &Resource,
    subresource: &str,
    [new, old]: [&Object; 2],
) -> Vec<FieldError> {
    if subresource != "status" || !resource.is_of("resource", "resourceclaims") {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if ["status.allocation", "status.reservedFor"].into_iter().any(|path| !same_at(new, old, path)) {
        let binding = Attributes { subresource: "binding", namespace: "", name: "", ..*attributes };
        if let Err(why) = require(authorizer, &binding).await {
            let verb = attributes.verb;
            let detail = format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
                 verb=\"{verb}\" permission: {why}"
            );
            errors.push(FieldError::forbidden("status", detail));
        }
    }
    let verbs = verbs(attributes, new);
    for driver in changed_drivers(new, old) {
        if let Err(why) = require_one(authorizer, attributes, &verbs, driver).await {
            let verbs = verbs.join(" ");
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: {why}"
            );
            errors.push(FieldError::forbidden("status.devices", detail));
        }
    }
    errors
}

/// Returns the verbs that permit reports on behalf of a driver. The writer needs only one of these verbs.
fn verbs(attributes: &Attributes<'_>, claim: &Object) -> Vec<String> {
    let node = allocated_node(claim);
    let is_there = node.is_some() && node == node_of(attributes.user);
    let places = is_there.then_some("associated-node").into_iter().chain(["arbitrary-node"]);
    places.map(|place| format!("{place}:{}", attributes.verb)).collect()
}

/// Checks that at least one of the verbs is allowed. Otherwise the result is the refusal of the first verb.
async fn require_one(
    authorizer: &Authorizer,
    attributes: &Attributes<'_>,
    verbs: &[String],
    driver: &str,
) -> Result<(), String> {
    let mut first = Ok(());
    for verb in verbs {
        let attributes = Attributes { verb, subresource: "driver", name: driver, ..*attributes };
        match require(authorizer, &attributes).await {
            Ok(()) => return Ok(()),
            refused => first = first.and(refused),
        }
    }
    first
}

async fn require(authorizer: &Authorizer, attributes: &Attributes<'_>) -> Result<(), String> {
    let Err(denied) = authorizer.authorize(attributes).await else { return Ok(()) };
    let Attributes { group, resource, name, .. } = *attributes;
    let name = if name.is_empty() { String::new() } else { format!(" {}", go_quote(name)) };
    Err(format!("{resource}.{group}{name} is forbidden: {}", denied.message))
}

/// Returns the node to which a claim is allocated, if the node selector names exactly one node.
fn allocated_node(claim: &Object) -> Option<&str> {
    let term = only(at(claim, "status.allocation.nodeSelector.nodeSelectorTerms"))?;
    let expressions = term.get("matchExpressions").and_then(Value::as_array).unwrap_or_default();
    let field = only(term.get("matchFields")).filter(|_| expressions.is_empty())?;
    let is_name = field.str_at(&["key"]) == "metadata.name" && field.str_at(&["operator"]) == "In";
    only(field.get("values")).filter(|_| is_name)?.as_str()
}

/// Returns the only element of a list. Returns `None` for a list of any other length.
fn only(list: Option<&Value>) -> Option<&Value> {
    match list?.as_array()? {
        [one] => Some(one),
        _ => None,
    }
}

/// Returns the drivers of devices whose status is added, changed or removed.
fn changed_drivers<'c>(new: &'c Object, old: &'c Object) -> BTreeSet<&'c str> {
    let mut before: HashMap<_, &Value> = devices(old).map(|device| (identity(device), device)).collect();
    let mut changed = BTreeSet::new();
    for device in devices(new) {
        let known = before.remove(&identity(device));
        if !known.is_some_and(|known| same_values(known, device)) {
            changed.insert(device.str_at(&["driver"]));
        }
    }
    changed.extend(before.into_values().map(|device| device.str_at(&["driver"])));
    changed
}

fn devices(claim: &Object) -> impl Iterator<Item = &Value> {
    at(claim, "status.devices").and_then(Value::as_array).unwrap_or_default().iter()
}

fn identity(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|name| device.str_at(&[name]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use auth::User;
    use auth::authz::{Module, Rule};

    use super::*;
    use crate::testing::user_may;
    use types::schema::registry::Registry;
    use values::naming::KUBERNETES;
    use values::testing::object;

    /// Returns the request attributes of a write to the status of a claim.
    fn of_status<'u>(user: &'u User, verb: &'u str) -> Attributes<'u> {
        Attributes {
            resource_request: true,
            group: "resource.k8s.io",
            version: "v1",
            resource: "resourceclaims",
            subresource: "status",
            namespace: "n",
            name: "x",
            ..Attributes::path(user, verb, "")
        }
    }

    /// Returns an authorizer that allows one user one verb on one subresource of claims.
    fn allowing(user: &str, verb: &str, subresource: &str) -> Authorizer {
        let list = |text: &str| vec![text.to_owned()];
        let rule = Rule {
            verbs: list(verb),
            api_groups: list("resource.k8s.io"),
            resources: list(&format!("resourceclaims/{subresource}")),
            ..Rule::default()
        };
        Authorizer::new(vec![Module::Rbac], Arc::new(user_may(user, rule)), "rbac")
    }

    #[tokio::test]
    async fn each_section_of_a_claim_status_needs_its_own_permission() {
        let allocation = |nodes: &str| {
            format!(
                r#""allocation":{{"nodeSelector":{{"nodeSelectorTerms":[{{"matchFields":[{{"key":"metadata.name","operator":"In","values":[{nodes}]}}]}}]}}}}"#
            )
        };
        let here = allocation(r#""here""#);
        let said = |of: &str| format!(r#""devices":[{{"driver":"{of}","pool":"p","device":"d"}}]"#);
        let bind = "status: Forbidden: changing status.allocation or status.reservedFor requires \
                    resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is \
                    forbidden: User \"jane\" cannot patch resource \"resourceclaims/binding\" in API group \
                    \"resource.k8s.io\" at the cluster scope";
        let speak = |driver: &str| {
            format!(
                "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", \
                 verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"{driver}\" is forbidden: \
                 User \"jane\" cannot arbitrary-node:patch resource \"resourceclaims/driver\" in API group \
                 \"resource.k8s.io\" in the namespace \"n\""
            )
        };
        let none = ("get", "status");
        let registry = Registry::new(&KUBERNETES);
        let resource = registry.resource("resource.k8s.io", "v1", "resourceclaims").unwrap();
        for ((verb, subresource), old, new, want) in [
            (none, String::new(), String::new(), vec![]),
            (none, String::new(), here.clone(), vec![bind.to_owned()]),
            (none, here.clone(), r#""reservedFor":[]"#.to_owned(), vec![bind.to_owned()]),
            (("patch", "binding"), String::new(), here.clone(), vec![]),
            (("update", "binding"), String::new(), here.clone(), vec![bind.to_owned()]),
            (none, said("a.b"), said("a.b"), vec![]),
            (none, said("a.b"), said("c.d"), vec![speak("a.b"), speak("c.d")]),
            (("arbitrary-node:patch", "driver"), said("a.b"), said("c.d"), vec![]),
            (("associated-node:patch", "driver"), said("a.b"), String::new(), vec![speak("a.b")]),
        ] {
            let authorizer = allowing("jane", verb, subresource);
            let jane = User::new("jane", [""; 0]);
            let attributes = of_status(&jane, "patch");
            let claim = |status: &str| object(&format!(r#"{{"status":{{{status}}}}}"#));
            let [new, old] = [&new, &old].map(|status| claim(status));
            let got = refused(&authorizer, &attributes, resource, "status", [&new, &old]).await;
            let got: Vec<String> = got.iter().map(ToString::to_string).collect();
            assert_eq!(got, want, "{verb} {subresource}");
            assert!(refused(&authorizer, &attributes, resource, "", [&new, &old]).await.is_empty());
        }
    }

    /// Returns a service account that runs on the node `here`.
    fn account() -> User {
        let mut account = User::new("system:serviceaccount:n:a", [""; 0]);
        account.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec!["here".to_owned()]);
        account
    }

    /// Returns a resource claim that is allocated to the nodes with these names. `term` and `status` add
    /// members to the node selector term and to the status.
    fn allocated(names: &str, term: &str, status: &str) -> Object {
        object(&format!(
            r#"{{"status":{{"allocation":{{"nodeSelector":{{"nodeSelectorTerms":[{{"matchFields":[{{"key":"metadata.name","operator":"In","values":[{names}]}}]{term}}}]}}}}{status}}}}}"#
        ))
    }

    #[test]
    fn a_service_account_on_the_allocated_node_gets_the_associated_node_verb() {
        let account = account();
        let attributes = Attributes::path(&account, "update", "");
        let expressions = r#","matchExpressions":[{"key":"a","operator":"Exists"}]"#;
        for (claim, is_there) in [
            (allocated(r#""here""#, "", ""), true),
            (allocated(r#""there""#, "", ""), false),
            (allocated(r#""here","there""#, "", ""), false),
            (allocated("", "", ""), false),
            (allocated(r#""here""#, expressions, ""), false),
            (object("{}"), false),
        ] {
            let associated = verbs(&attributes, &claim).contains(&"associated-node:update".to_owned());
            assert_eq!(associated, is_there, "{claim:?}");
        }
    }

    #[tokio::test]
    async fn a_driver_needs_the_associated_node_or_the_arbitrary_node_verb() {
        let account = account();
        let attributes = of_status(&account, "update");
        let registry = Registry::new(&KUBERNETES);
        let resource = registry.resource("resource.k8s.io", "v1", "resourceclaims").unwrap();
        let said = r#","devices":[{"driver":"a.b","pool":"p","device":"d"}]"#;
        for (verb, node, is_allowed) in [
            ("associated-node:update", "here", true),
            ("associated-node:update", "there", false),
            ("arbitrary-node:update", "there", true),
            ("associated-node:patch", "here", false),
        ] {
            let authorizer = allowing(&account.name, verb, "driver");
            let node = format!("\"{node}\"");
            let [new, old] = [said, ""].map(|status| allocated(&node, "", status));
            let got = refused(&authorizer, &attributes, resource, "status", [&new, &old]).await;
            assert_eq!(got.is_empty(), is_allowed, "{verb} {node}: {got:?}");
        }
    }
}
