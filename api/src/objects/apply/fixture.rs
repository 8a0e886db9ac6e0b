//! Fixture of tests of ownership: the built-in types, one resource and a writer.

use super::{Reset, Versions, Writer};
use crate::objects::strategy::Endpoint;
use crate::types::schema::registry::{Registry, Resource};
use crate::types::schema::table::Message;
use crate::values::naming::KUBERNETES;

/// The registry and one of its resources.
pub struct Fixture {
    registry: Registry,
    group: &'static str,
    plural: &'static str,
}

impl Fixture {
    /// Version `v1` of the resource `plural` of `group`.
    pub fn of(group: &'static str, plural: &'static str) -> Self {
        Fixture { registry: Registry::new(&KUBERNETES), group, plural }
    }

    fn resource(&self) -> &Resource {
        self.registry.resource(self.group, "v1", self.plural).unwrap()
    }

    pub fn message(&self) -> &Message {
        &self.resource().table.message
    }

    pub fn versions(&self) -> Versions<'_> {
        Versions::of(&self.registry, self.resource())
    }

    /// For the resource itself, not a subresource.
    pub fn reset(&self) -> Reset {
        Reset::of(self.resource(), Endpoint::Main)
    }
}

/// A writer of the resource itself.
pub fn writer<'w>(manager: &'w str, now: &'w str) -> Writer<'w> {
    Writer { manager, subresource: "", now }
}
