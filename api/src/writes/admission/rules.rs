//! What webhooks and policies have in common where they say which writes they are about: rules, label selectors, and
//! whether other versions of a resource count.

use super::Operation;
use crate::types::schema::registry::{Registry, Resource};
use crate::types::selector::LabelSelector;
use crate::values::json::{Object, Value};
use crate::values::object::at;

/// A list of rules. One that matches is enough.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    /// Names of objects; none for all. Only rules of policies have them.
    names: Vec<String>,
}

/// A write, as rules see it.
#[derive(Clone, Copy)]
pub struct Ruled<'r> {
    /// What is done.
    pub operation: Operation,
    /// The resource, in the version of the request.
    pub resource: &'r Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: &'r str,
    /// Name; empty when it is to be generated.
    pub name: &'r str,
}

impl Rules {
    /// The rules at a member of an object.
    pub fn read(object: &Value, member: &str) -> Rules {
        let rules = object.get(member).and_then(Value::as_array).unwrap_or_default();
        Rules(rules.iter().map(Rule::read).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The resource as which the write is matched: `own`, that of the request, or, where `equivalent` ones count, the same
    /// in another version.
    pub fn find<'r>(
        &self,
        write: Ruled<'_>,
        own: &'r Resource,
        registry: &'r Registry,
        equivalent: bool,
    ) -> Option<&'r Resource> {
        let is_matched = |resource: &Resource| self.0.iter().any(|rule| rule.matches(write, resource));
        if is_matched(own) {
            return Some(own);
        }
        let storage = own.storage.as_ref().filter(|_| equivalent && !self.0.is_empty())?;
        registry.resources().map(|resource| &**resource).find(|resource| {
            resource.storage.as_ref().is_some_and(|other| other.key_prefix == storage.key_prefix)
                && is_matched(resource)
        })
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
        // A namespace counts as an object of the cluster, although its name stands as its namespace in requests.
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

/// Whether `pods`, `pods/*`, `*/scale` and the like are a resource and subresource; `*` is no subresource.
fn is_named(item: &str, plural: &str, subresource: &str) -> bool {
    let (main, sub) = item.split_once('/').unwrap_or((item, ""));
    (main == "*" || main == plural) && (sub == subresource || sub == "*")
}

/// The label selector at a member; everything where there is none.
pub fn selector(object: &Value, member: &str) -> LabelSelector {
    match object.get(member).filter(|selector| !selector.is_null()) {
        None => LabelSelector::default(),
        // Validation accepted it.
        selector => LabelSelector::from_object(selector).unwrap_or_default(),
    }
}

/// Whether a selector selects an object by its labels.
pub fn selects(selector: &LabelSelector, object: &Object) -> bool {
    let labels = at(object, "metadata.labels");
    selector.matches(|key| labels?.get(key)?.as_str())
}

/// Whether an object selector takes a write of these objects; one of them is enough. The options of a connection have no
/// metadata: only the selector of everything takes them.
pub fn takes(selector: &LabelSelector, operation: Operation, objects: [Option<&Object>; 2]) -> bool {
    let has_metadata = operation != Operation::Connect;
    let is_selected = |object: &Object| selects(selector, object);
    selector.is_everything() || (has_metadata && objects.into_iter().flatten().any(is_selected))
}

/// The namespace whose labels decide about a write of a namespace: the new state where the whole object is created or
/// updated, else the stored one.
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
    use super::is_named;

    #[test]
    fn resources_are_named_with_their_subresources() {
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
