//! What tests of ownership have around them: the built-in types, one of their resources, and a writer.

use super::{Reset, Versions, Writer};
use crate::naming::KUBERNETES;
use crate::schema::registry::{Registry, Resource};
use crate::schema::table::Message;
use crate::strategy::Endpoint;

/// A resource among the others.
pub struct Scene {
    registry: Registry,
    group: &'static str,
    plural: &'static str,
}

impl Scene {
    /// Version `v1` of the resource `plural` of `group`.
    pub fn of(group: &'static str, plural: &'static str) -> Self {
        Scene { registry: Registry::new(&KUBERNETES), group, plural }
    }

    fn resource(&self) -> &Resource {
        self.registry.resource(self.group, "v1", self.plural).unwrap()
    }

    pub fn message(&self) -> &'static Message {
        self.resource().table.message
    }

    pub fn versions(&self) -> Versions<'_> {
        Versions::of(&self.registry, self.resource())
    }

    /// Of the resource itself, not of one of its subresources.
    pub fn reset(&self) -> Reset {
        Reset::of(self.resource(), Endpoint::Main)
    }
}

/// Who writes the resource itself.
pub fn writer<'w>(manager: &'w str, now: &'w str) -> Writer<'w> {
    Writer { manager, subresource: "", now }
}
