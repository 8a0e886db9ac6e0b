//! The part of a policy or binding that selects writes.

use crate::writes::admission::rules::{Ruled, Rules, own_namespace, selector, selects, takes};
use crate::writes::plugin::Operation;
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
    /// Whether requests in another version of a resource match as well.
    equivalent: bool,
}

/// The properties of a write that policies match.
#[derive(Clone, Copy)]
pub struct Asked<'r> {
    /// The operation on the object.
    pub operation: Operation,
    /// The resource, in the version of the request.
    pub resource: &'r Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-scoped objects. The namespace of a namespace is its own name.
    pub namespace: &'r str,
    /// Name; empty when it is to be generated.
    pub name: &'r str,
    /// The object as stored before the write.
    pub old: Option<&'r Object>,
    /// The object as it will be stored.
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

    /// Returns the resource that matches the rules: the resource of the request, or the same resource in
    /// another version. Returns `None` if the write does not match. `labels` returns the namespace of the
    /// object; this function calls it only if a selector needs the labels of the namespace.
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
            // Other cluster-scoped objects have no namespace that could be excluded.
            (false, "") => return Some(found),
            (false, _) => labels(),
        };
        namespace.filter(|namespace| selects(&self.namespaces, namespace)).map(|_| found)
    }
}

#[cfg(test)]
#[path = "matching_test.rs"]
mod tests;
