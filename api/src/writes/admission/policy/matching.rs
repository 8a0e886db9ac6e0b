//! The part of a policy or binding that selects writes.

use crate::writes::admission::rules::{Ruled, Rules, own_namespace, selector, selects, takes};
use crate::writes::plugin::Operation;
use types::schema::registry::{Registry, Resource};
use types::selector::LabelSelector;
use values::json::{Object, Value};

/// The member `matchConstraints` of a policy, or `matchResources` of a binding.
#[derive(Debug)]
pub struct MatchResources {
    namespaces: LabelSelector,
    objects: LabelSelector,
    rules: Rules,
    excluded: Rules,
    /// Whether the rules also match requests in another version of the resource.
    equivalent: bool,
}

/// The properties of a write that policies match.
#[derive(Clone, Copy)]
pub struct PolicyWrite<'r> {
    /// The operation on the object.
    pub operation: Operation,
    /// The resource, in the version of the request.
    pub resource: &'r Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-scoped objects. The namespace of a namespace is its own name.
    pub namespace: &'r str,
    /// Name; empty if the server will generate the name.
    pub name: &'r str,
    /// The object as stored before the write.
    pub old: Option<&'r Object>,
    /// The object as it will be stored.
    pub new: Option<&'r Object>,
}

impl MatchResources {
    /// Reads the member `matchConstraints` or `matchResources` of an object.
    pub fn read(member: &Value) -> MatchResources {
        MatchResources {
            namespaces: selector(member, "namespaceSelector"),
            objects: selector(member, "objectSelector"),
            rules: Rules::read(member, "resourceRules"),
            excluded: Rules::read(member, "excludeResourceRules"),
            equivalent: member.str_at(&["matchPolicy"]) != "Exact",
        }
    }

    /// Returns the resource that matches the rules: the resource of the request, or the same resource in
    /// another version. Returns `None` if the write does not match. `labels` returns the namespace of the
    /// object. This function calls `labels` only if a selector needs the labels of the namespace.
    pub fn matches<'r>(
        &self,
        write: &PolicyWrite<'r>,
        registry: &'r Registry,
        labels: impl FnOnce() -> Option<&'r Object>,
    ) -> Option<&'r Resource> {
        let ruled = Ruled {
            operation: write.operation,
            resource: write.resource,
            subresource: write.subresource,
            namespace: write.namespace,
            name: write.name,
        };
        let find = |rules: &Rules| rules.find(ruled, write.resource, registry, self.equivalent);
        let found = if self.rules.is_empty() { write.resource } else { find(&self.rules)? };
        if find(&self.excluded).is_some() {
            return None;
        }
        if !takes(&self.objects, write.operation, [write.new, write.old]) {
            return None;
        }
        if self.namespaces.is_everything() {
            return Some(found);
        }
        let namespace = match (write.resource.is_of("", "namespaces"), write.namespace) {
            (true, _) => own_namespace(write.operation, write.subresource, write.new, write.old),
            // Other cluster-scoped objects have no namespace that a selector could exclude.
            (false, "") => return Some(found),
            (false, _) => labels(),
        };
        namespace.filter(|namespace| selects(&self.namespaces, namespace)).map(|_| found)
    }
}

#[cfg(test)]
#[path = "matching_test.rs"]
mod tests;
