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
    pub fn new(group: &'static str, plural: &'static str) -> Self {
        Fixture { registry: Registry::new(&KUBERNETES), group, plural }
    }

    fn resource(&self) -> &Resource {
        self.registry.resource(self.group, "v1", self.plural).unwrap()
    }

    pub fn message(&self) -> &Message {
        &self.resource().table.message
    }

    pub fn versions(&self) -> Versions<'_> {
        Versions::for_resource(&self.registry, self.resource())
    }

    /// Returns the fields that a write through the resource itself does not own.
    pub fn reset(&self) -> Reset {
        Reset::for_endpoint(self.resource(), Endpoint::Main)
    }
}

/// Returns a custom resource of kind `Thing` with a status. `spec` is the JSON of the properties of its field
/// `spec`.
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

/// Returns a writer that writes the resource itself, not a subresource.
pub fn writer<'w>(manager: &'w str, now: &'w str) -> Writer<'w> {
    Writer { manager, subresource: "", now }
}
