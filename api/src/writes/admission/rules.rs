//! The selection of writes by webhooks and admission policies: rules, label selectors, and matches of a
//! resource in another version.

use crate::writes::plugin::Operation;
use types::schema::registry::{Registry, Resource};
use types::selector::LabelSelector;
use values::json::{Object, Value};
use values::object::at;

/// A list of rules. A write matches the list if at least one rule matches.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    /// Names of objects; empty means all names. Only rules of policies can have names.
    names: Vec<String>,
}

/// The properties of a write that rules examine.
#[derive(Clone, Copy)]
pub struct Ruled<'r> {
    /// The operation on the object.
    pub operation: Operation,
    /// The resource, in the version of the request.
    pub resource: &'r Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: &'r str,
    /// Name; empty if the server will generate the name.
    pub name: &'r str,
}

impl Rules {
    /// Reads the rules at a member of an object.
    pub fn read(object: &Value, member: &str) -> Rules {
        let rules = object.get(member).and_then(Value::as_array).unwrap_or_default();
        Rules(rules.iter().map(Rule::read).collect())
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the resource in the version that a rule matches; `None` if no rule matches. If a rule matches
    /// `own`, the resource of the request, the result is `own`. Otherwise, if `equivalent` is set, the result
    /// is the same resource in the version that the first matching rule names.
    pub fn find<'r>(
        &self,
        write: Ruled<'_>,
        own: &'r Resource,
        registry: &'r Registry,
        equivalent: bool,
    ) -> Option<&'r Resource> {
        if self.0.iter().any(|rule| rule.matches(write, own)) {
            return Some(own);
        }
        let storage = own.storage.as_ref().filter(|_| equivalent && !self.0.is_empty())?;
        let is_same = |resource: &&Resource| {
            resource.storage.as_ref().is_some_and(|other| other.key_prefix == storage.key_prefix)
                && (write.subresource.is_empty() || resource.subresource(write.subresource).is_some())
        };
        let all = registry.resources().chain(&own.unserved).map(|resource| &**resource);
        let mut same: Vec<&Resource> = all.filter(is_same).collect();
        // Versions of a custom type are in the order of its definition.
        same.sort_by_key(|resource| own.versions.as_ref().map(|all| all.place(&resource.api_version)));
        self.0.iter().find_map(|rule| same.iter().copied().find(|resource| rule.matches(write, resource)))
    }
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let texts = |name: &str| {
            let items = rule.get(name).and_then(Value::as_array).unwrap_or_default();
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: rule.str_at(&["scope"]).to_owned(),
            names: texts("resourceNames"),
        }
    }

    fn matches(&self, write: Ruled<'_>, resource: &Resource) -> bool {
        let has = |list: &[String], name: &str| list.iter().any(|item| item == "*" || item == name);
        // A namespace is a cluster-scoped object, although a request for a namespace contains the name of the
        // namespace as its namespace.
        let is_of_cluster = write.namespace.is_empty() || write.resource.is_of("", "namespaces");
        let is_in_scope = match self.scope.as_str() {
            "Namespaced" => !is_of_cluster,
            "Cluster" => is_of_cluster,
            _ => true,
        };
        is_in_scope
            && has(&self.operations, write.operation.as_str())
            && has(&self.groups, &resource.group)
            && has(&self.versions, &resource.version)
            && self.resources.iter().any(|item| is_named(item, &resource.table.plural, write.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| name == write.name))
    }
}

/// Returns whether an item such as `pods`, `pods/*` or `*/scale` matches a resource and subresource. The item
/// `*` matches all resources, but no subresources.
fn is_named(item: &str, plural: &str, subresource: &str) -> bool {
    let (main, sub) = item.split_once('/').unwrap_or((item, ""));
    (main == "*" || main == plural) && (sub == subresource || sub == "*")
}

/// Reads the label selector at a member; a missing selector selects everything.
pub fn selector(object: &Value, member: &str) -> LabelSelector {
    match object.get(member).filter(|selector| !selector.is_null()) {
        None => LabelSelector::default(),
        // Validation has accepted the selector, so an error is not expected.
        selector => LabelSelector::from_object(selector).unwrap_or_default(),
    }
}

/// Returns whether a selector matches the labels of an object.
pub fn selects(selector: &LabelSelector, object: &Object) -> bool {
    let labels = at(object, "metadata.labels");
    selector.matches(|key| labels?.get(key)?.as_str())
}

/// Returns whether an object selector matches at least one of the objects of a write. Connect options have no
/// metadata, so only a selector that selects everything matches connect options.
pub fn takes(selector: &LabelSelector, operation: Operation, objects: [Option<&Object>; 2]) -> bool {
    let has_metadata = operation != Operation::Connect;
    let is_selected = |object: &Object| selects(selector, object);
    selector.is_everything() || (has_metadata && objects.into_iter().flatten().any(is_selected))
}

/// Returns the namespace object whose labels a selector compares, for a write of a namespace. The function returns the
/// new object if the whole namespace is created or updated, and the stored object otherwise.
pub fn own_namespace<'o>(
    operation: Operation,
    subresource: &str,
    new: Option<&'o Object>,
    old: Option<&'o Object>,
) -> Option<&'o Object> {
    match (operation, subresource) {
        (Operation::Create | Operation::Update, "") => new.or(old),
        _ => old.or(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use objects::custom::definition::Definition;
    use objects::custom::established::{Established, Prepared, RegistryChanges};
    use values::naming::KUBERNETES;
    use values::testing::object;

    #[test]
    fn the_first_rule_that_matches_an_equivalent_version_is_used() {
        let names = r#"{"plural":"things","kind":"Thing","listKind":"ThingList"}"#;
        let version = |name: &str, more: &str| {
            format!(
                r#"{{"name":"{name}","served":{},"storage":{},"schema":{{"openAPIV3Schema":{{"type":"object"}}}}{more}}}"#,
                name != "v2",
                name == "v1"
            )
        };
        let status = r#","subresources":{"status":{}}"#;
        let versions =
            [version("v2beta1", status), version("v3", ""), version("v2", ""), version("v1", status)]
                .join(",");
        let definition = object(&format!(
            r#"{{"spec":{{"group":"g.example","scope":"Cluster","names":{names},"versions":[{versions}]}},"status":{{"acceptedNames":{names}}}}}"#
        ));
        let (mut established, mut changes) = (Established::default(), RegistryChanges::default());
        let read = Definition::read(&definition);
        let prepared = Prepared::new("a", &definition, &read).unwrap();
        established.put(prepared, &KUBERNETES, &mut changes);
        let registry = changes.apply(&Registry::new(&KUBERNETES));
        let own = registry.resource("g.example", "v1", "things").unwrap();
        for (versions, subresource, want) in [
            (r#"["v3"]"#, "", "v3"),
            (r#"["v2beta1"],["v3"]"#, "", "v2beta1"),
            (r#"["v3"],["v2beta1"]"#, "", "v3"),
            (r#"["v3"],["v1"]"#, "", "v1"),
            // If a rule names several versions, the match is the version that comes first in the definition.
            (r#"["v3","v2beta1"]"#, "", "v2beta1"),
            // A rule can match a version that is not served.
            (r#"["v2"]"#, "", "v2"),
            (r#"["v1beta1","v2"],["v3"]"#, "", "v2"),
            // A version that does not have the subresource cannot match.
            (r#"["v3"],["v2beta1"]"#, "status", "v2beta1"),
            (r#"["v3"]"#, "status", "none"),
        ] {
            let rule = |versions: &str| {
                format!(
                    r#"{{"operations":["*"],"apiGroups":["g.example"],"apiVersions":[{versions}],"resources":["things","things/*"]}}"#
                )
            };
            let lists = versions.trim_matches(['[', ']']).split("],[");
            let rules = lists.map(rule).collect::<Vec<_>>().join(",");
            let rules = Rules::read(&Value::Object(object(&format!(r#"{{"rules":[{rules}]}}"#))), "rules");
            let write =
                Ruled { operation: Operation::Create, resource: own, subresource, namespace: "", name: "t" };
            let found = rules.find(write, own, &registry, true);
            assert_eq!(found.map_or("none", |found| &*found.version), want, "{versions} {subresource}");
        }
    }

    #[test]
    fn a_rule_names_resources_together_with_their_subresources() {
        for (item, plural, subresource, want) in [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/*", "pods", "status", true),
            ("pods/*", "pods", "", true),
            ("*/status", "pods", "status", true),
            ("*/status", "pods", "", false),
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("*/*", "pods", "", true),
            ("*/*", "pods", "exec", true),
            ("services", "pods", "", false),
        ] {
            assert_eq!(is_named(item, plural, subresource), want, "{item} {plural} {subresource}");
        }
    }
}
