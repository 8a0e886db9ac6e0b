//! The part of a webhook that selects writes.

use super::Write;
use crate::writes::admission::rules::{Ruled, Rules, own_namespace, selector, selects, takes};
use types::schema::registry::{Registry, Resource};
use types::selector::LabelSelector;
use values::json::{Object, Value};
use values::status::Status;

/// The rules and selectors of a webhook.
pub(super) struct WebhookRules {
    rules: Rules,
    namespaces: LabelSelector,
    objects: LabelSelector,
    /// Whether the rules also match requests in another version of the resource.
    equivalent: bool,
}

impl WebhookRules {
    pub(super) fn read(webhook: &Value) -> WebhookRules {
        WebhookRules {
            rules: Rules::read(webhook, "rules"),
            namespaces: selector(webhook, "namespaceSelector"),
            objects: selector(webhook, "objectSelector"),
            equivalent: webhook.str_at(&["matchPolicy"]) != "Exact",
        }
    }

    /// Returns the resource in whose version the webhook receives the write: `own`, the resource of the
    /// request, or the same resource in another version. `None` means that the webhook is not called.
    /// `namespace` reads the namespace of the object. This function calls `namespace` only if a selector uses
    /// the labels of the namespace.
    ///
    /// # Errors
    /// Fails if the namespace cannot be read.
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
            // Other cluster-scoped objects have no namespace that a selector could exclude.
            true
        } else {
            selects(&self.namespaces, &namespace()?)
        };
        Ok(is_selected.then_some(found))
    }
}
