//! Which writes a webhook is asked about.

use super::Write;
use crate::writes::admission::rules::{Ruled, Rules, own_namespace, selector, selects, takes};
use types::schema::registry::{Registry, Resource};
use types::selector::LabelSelector;
use values::json::{Object, Value};
use values::status::Status;

/// Rules and selectors of a webhook.
pub(super) struct Matching {
    rules: Rules,
    namespaces: LabelSelector,
    objects: LabelSelector,
    /// Requests in another version of a resource count.
    equivalent: bool,
}

impl Matching {
    pub(super) fn read(webhook: &Value) -> Matching {
        Matching {
            rules: Rules::read(webhook, "rules"),
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
        let ruled = Ruled {
            operation: write.operation,
            resource: write.resource,
            subresource: write.subresource,
            namespace: write.namespace,
            name: write.name,
        };
        let Some(found) = self.rules.find(ruled, own, registry, self.equivalent) else { return Ok(None) };
        if !takes(&self.objects, write.operation, [write.new, write.old]) {
            return Ok(None);
        }
        if self.namespaces.is_everything() {
            return Ok(Some(found));
        }
        let is_selected = if write.resource.is_of("", "namespaces") {
            own_namespace(write.operation, write.subresource, write.new, write.old)
                .is_some_and(|own| selects(&self.namespaces, own))
        } else if write.namespace.is_empty() {
            // Other objects of the cluster are in no namespace that could be excluded.
            true
        } else {
            selects(&self.namespaces, &namespace()?)
        };
        Ok(is_selected.then_some(found))
    }
}
