//! Where services of the cluster are reached by what calls them for the server: webhooks, conversions, extension servers
//! (docs/api/webhooks.md#calls).
//!
//! A service is reached at its address in the cluster, or, where the operator wants that, at one of its endpoints. It is
//! looked up in the newest state for each call.

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

/// The services of the store.
pub struct Services {
    engine: Engine,
    services: Arc<Resource>,
    slices: Arc<Resource>,
    naming: &'static Naming,
    reaches_endpoints: bool,
}

impl Services {
    /// Those of this store.
    ///
    /// # Panics
    /// Services are not built in.
    pub fn new(
        engine: Engine,
        builtin: &Registry,
        naming: &'static Naming,
        reaches_endpoints: bool,
    ) -> Services {
        let resource = |group: &str, plural: &str| {
            let found = builtin.resource(group, "v1", plural).cloned();
            found.expect("a test holds that services are built in")
        };
        let services = resource("", "services");
        let slices = resource(&naming.group("discovery", true), "endpointslices");
        Services { engine, services, slices, naming, reaches_endpoints }
    }

    /// Where a service is reached now.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub fn address(&self, service: &Service) -> Result<(String, u16), String> {
        let object = self.find(service).map_err(|status| status.message)?;
        if !self.reaches_endpoints {
            return service.address(object.as_ref());
        }
        let slices = self.slices_of(service).map_err(|status| status.message)?;
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
