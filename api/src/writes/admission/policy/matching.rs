//! Which writes a policy or binding is about: rules, selectors, and whether other versions of a resource count.

use crate::types::schema::registry::{Registry, Resource};
use crate::types::selector::LabelSelector;
use crate::values::json::{Object, Value};
use crate::values::object::at;
use crate::writes::admission::Operation;

/// The member `matchConstraints` of a policy, or `matchResources` of a binding.
#[derive(Debug)]
pub struct Matching {
    namespaces: LabelSelector,
    objects: LabelSelector,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Requests in another version of a resource count.
    equivalent: bool,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
    names: Vec<String>,
}

/// A write, as rules see it.
#[derive(Clone, Copy)]
pub struct Asked<'r> {
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
    /// The object as it is stored.
    pub old: Option<&'r Object>,
    /// The object as it is to be.
    pub new: Option<&'r Object>,
}

/// The name of an operation in rules and reviews.
pub fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

impl Matching {
    /// Reads the member of an object.
    pub fn read(member: &Value) -> Matching {
        let rules = |name: &str| {
            let rules = member.get(name).and_then(Value::as_array).unwrap_or_default();
            rules.iter().map(Rule::read).collect()
        };
        Matching {
            namespaces: selector(member, "namespaceSelector"),
            objects: selector(member, "objectSelector"),
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            equivalent: member.str_at(&["matchPolicy"]) != "Exact",
        }
    }

    /// The resource as which a write is matched, if it is: that of the request, or the same in another version.
    /// `labels` reads those of the object's namespace; it is asked only where they count.
    pub fn matches<'r>(
        &self,
        asked: &Asked<'r>,
        registry: &'r Registry,
        labels: impl FnOnce() -> Option<&'r Object>,
    ) -> Option<&'r Resource> {
        let found = match self.rules.is_empty() {
            true => asked.resource,
            false => self.by_rules(&self.rules, asked, registry)?,
        };
        if self.by_rules(&self.excluded, asked, registry).is_some() {
            return None;
        }
        let is_selected =
            |object: Option<&Object>| object.is_some_and(|object| self.objects.matches(label(object)));
        if !self.objects.is_everything() && !is_selected(asked.new) && !is_selected(asked.old) {
            return None;
        }
        if self.namespaces.is_everything() {
            return Some(found);
        }
        let own = || match asked.operation {
            Operation::Create | Operation::Update => asked.new.or(asked.old),
            _ => asked.old.or(asked.new),
        };
        let namespace = match (asked.resource.is_of("", "namespaces"), asked.namespace) {
            (true, _) => own(),
            // Other objects of the cluster are in no namespace that could be excluded.
            (false, "") => return Some(found),
            (false, _) => labels(),
        };
        namespace.filter(|namespace| self.namespaces.matches(label(namespace))).map(|_| found)
    }

    fn by_rules<'r>(
        &self,
        rules: &[Rule],
        asked: &Asked<'r>,
        registry: &'r Registry,
    ) -> Option<&'r Resource> {
        if rules.iter().any(|rule| rule.matches(asked, asked.resource)) {
            return Some(asked.resource);
        }
        if !self.equivalent || rules.is_empty() || asked.resource.storage.is_none() {
            return None;
        }
        let stored = &asked.resource.stored().key_prefix;
        let same = registry.resources().map(|resource| &**resource).filter(|resource| {
            !std::ptr::eq(*resource, asked.resource)
                && resource.storage.as_ref().is_some_and(|storage| storage.key_prefix == *stored)
        });
        same.into_iter().find(|resource| rules.iter().any(|rule| rule.matches(asked, resource)))
    }
}

/// The label selector at a member; everything where there is none.
fn selector(member: &Value, name: &str) -> LabelSelector {
    match member.get(name).filter(|selector| !selector.is_null()) {
        None => LabelSelector::default(),
        // Validation accepted it.
        selector => LabelSelector::from_object(selector).unwrap_or_default(),
    }
}

/// The labels of an object.
pub(super) fn label<'o>(object: &'o Object) -> impl Fn(&str) -> Option<&'o str> {
    let labels = at(object, "metadata.labels");
    move |key| labels?.get(key)?.as_str()
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

    fn matches(&self, asked: &Asked<'_>, resource: &Resource) -> bool {
        let has = |list: &[String], name: &str| list.iter().any(|item| item == "*" || item == name);
        let is_namespace = asked.resource.is_of("", "namespaces");
        let is_in_scope = match self.scope.as_str() {
            "Namespaced" => !is_namespace && !asked.namespace.is_empty(),
            "Cluster" => is_namespace || asked.namespace.is_empty(),
            _ => true,
        };
        let is_named = |item: &String| {
            let (main, sub) = item.split_once('/').unwrap_or((item, ""));
            (main == "*" || main == resource.table.plural) && (sub == "*" || sub == asked.subresource)
        };
        is_in_scope
            && has(&self.operations, operation_name(asked.operation))
            && has(&self.groups, &resource.group)
            && has(&self.versions, &resource.version)
            && self.resources.iter().any(is_named)
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
    }
}

#[cfg(test)]
#[path = "matching_test.rs"]
mod tests;
