//! Which writes a policy or binding is about.

use crate::writes::admission::Operation;
use crate::writes::admission::rules::{Ruled, Rules, own_namespace, selector, selects, takes};
use types::schema::registry::{Registry, Resource};
use types::selector::LabelSelector;
use values::json::{Object, Value};

/// The member `matchConstraints` of a policy, or `matchResources` of a binding.
#[derive(Debug)]
pub struct Matching {
    namespaces: LabelSelector,
    objects: LabelSelector,
    rules: Rules,
    excluded: Rules,
    /// Requests in another version of a resource count.
    equivalent: bool,
}

/// A write, as policies see it.
#[derive(Clone, Copy)]
pub struct Asked<'r> {
    /// What is done.
    pub operation: Operation,
    /// The resource, in the version of the request.
    pub resource: &'r Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-scoped objects, but a namespace is in itself.
    pub namespace: &'r str,
    /// Name; empty when it is to be generated.
    pub name: &'r str,
    /// The object as it is stored.
    pub old: Option<&'r Object>,
    /// The object as it is to be.
    pub new: Option<&'r Object>,
}

impl Matching {
    /// Reads the member of an object.
    pub fn read(member: &Value) -> Matching {
        Matching {
            namespaces: selector(member, "namespaceSelector"),
            objects: selector(member, "objectSelector"),
            rules: Rules::read(member, "resourceRules"),
            excluded: Rules::read(member, "excludeResourceRules"),
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
        let ruled = Ruled {
            operation: asked.operation,
            resource: asked.resource,
            subresource: asked.subresource,
            namespace: asked.namespace,
            name: asked.name,
        };
        let find = |rules: &Rules| rules.find(ruled, asked.resource, registry, self.equivalent);
        let found = if self.rules.is_empty() { asked.resource } else { find(&self.rules)? };
        if find(&self.excluded).is_some() {
            return None;
        }
        if !takes(&self.objects, asked.operation, [asked.new, asked.old]) {
            return None;
        }
        if self.namespaces.is_everything() {
            return Some(found);
        }
        let namespace = match (asked.resource.is_of("", "namespaces"), asked.namespace) {
            (true, _) => own_namespace(asked.operation, asked.subresource, asked.new, asked.old),
            // Other objects of the cluster are in no namespace that could be excluded.
            (false, "") => return Some(found),
            (false, _) => labels(),
        };
        namespace.filter(|namespace| selects(&self.namespaces, namespace)).map(|_| found)
    }
}

#[cfg(test)]
#[path = "matching_test.rs"]
mod tests;
