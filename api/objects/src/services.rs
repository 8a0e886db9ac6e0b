//! Addresses of the services that the server calls: webhooks, conversion webhooks and extension servers
//! (docs/api/webhooks.md#calls).
//!
//! The server reaches a service at its cluster address. If the operator configures direct connections to endpoints, the
//! server uses one of the endpoints instead. Each call looks up the service in the newest state.

use std::sync::Arc;

use engine::Engine;

use super::store;
use types::schema::registry::{Registry, Resource};
use values::json::{Object, Value};
use values::names;
use values::naming::Naming;
use values::object::at;
use values::status::Status;
use wire::outgoing::Service;

/// Looks up the addresses of services in the store.
pub struct Services {
    engine: Engine,
    services: Arc<Resource>,
    slices: Arc<Resource>,
    naming: &'static Naming,
    reaches_endpoints: bool,
}

impl Services {
    /// Creates a lookup that reads from `backends`.
    ///
    /// # Panics
    /// Panics if the registry does not contain services or endpoint slices.
    pub fn new(
        engine: Engine,
        builtin: &Registry,
        naming: &'static Naming,
        reaches_endpoints: bool,
    ) -> Services {
        let resource = |group: &str, plural: &str| {
            let found = builtin.resource(group, "v1", plural).cloned();
            found.expect("services are built in, as a test checks")
        };
        let services = resource("", "services");
        let slices = resource(&naming.group("discovery", true), "endpointslices");
        Services { engine, services, slices, naming, reaches_endpoints }
    }

    /// Returns the current host and port of a service.
    ///
    /// # Errors
    /// Returns the reason why the service cannot be reached.
    pub fn address(&self, service: &Service) -> Result<(String, u16), String> {
        let object = self.find(service).map_err(Status::into_message)?;
        if !self.reaches_endpoints {
            return service.address(object.as_ref());
        }
        let slices = self.slices_of(service).map_err(Status::into_message)?;
        service.endpoint(object.as_ref(), &slices, |count| {
            usize::from_le_bytes(names::random::<{ size_of::<usize>() }>()) % count
        })
    }

    fn find(&self, service: &Service) -> Result<Option<Object>, Status> {
        let key = store::key(&self.services, &service.namespace, &service.name);
        let stored = self.engine.snapshot().get(&key).map(store::read).transpose()?;
        stored.map(|stored| stored.object(&self.services)).transpose()
    }

    fn slices_of(&self, service: &Service) -> Result<Vec<Object>, Status> {
        let label = self.naming.label("service-name");
        let is_of = |slice: &Object| {
            at(slice, "metadata.labels")
                .is_some_and(|labels: &Value| labels.str_at(&[&label]) == service.name)
        };
        let prefix = store::collection(&self.slices, &service.namespace);
        let mut found = Vec::new();
        for entry in self.engine.snapshot().prefix(&prefix) {
            let slice = store::read(entry)?.object(&self.slices)?;
            if is_of(&slice) {
                found.push(slice);
            }
        }
        Ok(found)
    }
}
