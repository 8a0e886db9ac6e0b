//! Fixture for tests of field ownership: the built-in types, one resource and a writer.

use std::sync::Arc;

use super::{Reset, Versions, Writer};
use crate::custom::resource;
use crate::custom::schema::Schema;
use crate::strategy::Endpoint;
use types::schema::make::ResourceMaker;
use types::schema::registry::{Registry, Resource};
use types::schema::table::{Message, Scope};
use values::naming::KUBERNETES;
use values::testing;

/// A registry and one of its resources.
pub struct Fixture {
    registry: Registry,
    group: &'static str,
    plural: &'static str,
}

impl Fixture {
    /// Creates the fixture for version `v1` of the resource `plural` of `group`.
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

    /// Returns the fields that the endpoint of the resource itself does not own.
    pub fn reset(&self) -> Reset {
        Reset::of(self.resource(), Endpoint::Main)
    }
}

/// Returns a custom resource of kind `Thing`, with a status, whose `spec` has these properties.
pub fn things(spec: &str) -> Arc<Resource> {
    let text = format!(
        r#"{{"type":"object","properties":{{
            "spec":{{"type":"object","properties":{spec}}},"status":{{"type":"object"}}}}}}"#
    );
    let schema = Schema::read(&testing::object(&text).into());
    let object = resource::object("Thing", &schema).unwrap();
    let maker = ResourceMaker::new("example.com", "v1", "things", Scope::Namespaced, object).unwrap();
    maker.status().make(&KUBERNETES)
}

/// Returns a writer of the resource itself.
pub fn writer<'w>(manager: &'w str, now: &'w str) -> Writer<'w> {
    Writer { manager, subresource: "", now }
}
