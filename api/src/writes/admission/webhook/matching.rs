//! Which writes a webhook is asked about: rules, selectors, and whether other versions of a resource count.

use super::Write;
use super::review::operation_name;
use crate::types::schema::registry::{Registry, Resource};
use crate::types::selector::LabelSelector;
use crate::values::json::{Object, Value};
use crate::values::object::at;
use crate::values::status::Status;

/// Rules and selectors of a webhook.
pub(super) struct Matching {
    rules: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
    /// Requests in another version of a resource count.
    equivalent: bool,
}

struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl Matching {
    pub(super) fn read(webhook: &Value) -> Matching {
        let rules = webhook.get("rules").and_then(Value::as_array).unwrap_or_default();
        Matching {
            rules: rules.iter().map(Rule::read).collect(),
            namespaces: selector(webhook, "namespaceSelector"),
            objects: selector(webhook, "objectSelector"),
            equivalent: webhook.str_at(&["matchPolicy"]) != "Exact",
        }
    }

    /// The resource in whose version the webhook wants to see the write: `own`, that of the request, or the same in another
    /// version. `None`: it is not asked. `namespace` reads the object's namespace; it is called only where it counts.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub(super) fn matches<'r>(
        &self,
        write: &Write<'_>,
        own: &'r Resource,
        registry: &'r Registry,
        namespace: impl FnOnce() -> Result<Object, Status>,
    ) -> Result<Option<&'r Resource>, Status> {
        let Some(found) = self.by_rules(write, own, registry) else { return Ok(None) };
        let has = |object: Option<&Object>| object.is_some_and(|object| selects(&self.objects, object));
        if !self.objects.is_everything() && !has(write.new) && !has(write.old) {
            return Ok(None);
        }
        if self.namespaces.is_everything() {
            return Ok(Some(found));
        }
        let is_selected = if write.resource.is_of("", "namespaces") {
            write.new.or(write.old).is_some_and(|own| selects(&self.namespaces, own))
        } else if write.namespace.is_empty() {
            // Other objects of the cluster are in no namespace that could be excluded.
            true
        } else {
            selects(&self.namespaces, &namespace()?)
        };
        Ok(is_selected.then_some(found))
    }

    fn by_rules<'r>(
        &self,
        write: &Write<'_>,
        own: &'r Resource,
        registry: &'r Registry,
    ) -> Option<&'r Resource> {
        let is_wanted = |resource: &Resource| self.rules.iter().any(|rule| rule.matches(write, resource));
        if is_wanted(own) {
            return Some(own);
        }
        let storage = own.storage.as_ref().filter(|_| self.equivalent)?;
        registry.resources().map(|resource| &**resource).find(|resource| {
            resource.storage.as_ref().is_some_and(|other| other.key_prefix == storage.key_prefix)
                && is_wanted(resource)
        })
    }
}

/// The label selector at a member; everything where there is none.
fn selector(webhook: &Value, name: &str) -> LabelSelector {
    match webhook.get(name).filter(|selector| !selector.is_null()) {
        None => LabelSelector::default(),
        // Validation accepted it.
        selector => LabelSelector::from_object(selector).unwrap_or_default(),
    }
}

fn selects(selector: &LabelSelector, object: &Object) -> bool {
    let labels = at(object, "metadata.labels");
    selector.matches(|key| labels?.get(key)?.as_str())
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
        }
    }

    fn matches(&self, write: &Write<'_>, resource: &Resource) -> bool {
        let has = |list: &[String], name: &str| list.iter().any(|item| item == "*" || item == name);
        // A namespace counts as an object of the cluster, although its name stands as its namespace in requests.
        let is_of_cluster = write.namespace.is_empty() || write.resource.is_of("", "namespaces");
        let is_in_scope = match self.scope.as_str() {
            "Namespaced" => !is_of_cluster,
            "Cluster" => is_of_cluster,
            _ => true,
        };
        is_in_scope
            && has(&self.operations, operation_name(write.operation))
            && has(&self.groups, &resource.group)
            && has(&self.versions, &resource.version)
            && self.resources.iter().any(|item| is_named(item, &resource.table.plural, write.subresource))
    }
}

/// Whether `pods`, `pods/*`, `*/scale` and the like are a resource and subresource; `*` is no subresource.
pub(super) fn is_named(item: &str, plural: &str, subresource: &str) -> bool {
    let (main, sub) = item.split_once('/').unwrap_or((item, ""));
    (main == "*" || main == plural) && (sub == subresource || sub == "*")
}
