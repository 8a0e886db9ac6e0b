//! The plugins NamespaceExists and NamespaceAutoProvision. If the namespace of a write does not exist,
//! NamespaceExists refuses the write, and NamespaceAutoProvision creates the namespace.

use std::sync::Arc;

use super::namespace_lifecycle;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use types::schema::registry::Resource;
use values::json::Object;
use values::object::metadata_mut;
use values::status::Status;

/// Access to the namespaces of the store.
struct Namespaces {
    store: Arc<ObjectStorage>,
    resource: Arc<Resource>,
}

impl Namespaces {
    fn new(server: &Server) -> Namespaces {
        Namespaces { store: server.store.clone(), resource: server.types.resource("", "v1", "namespaces") }
    }

    fn has(&self, namespace: &str) -> Result<bool, Status> {
        Ok(self.store.stored(&self.resource, "", namespace)?.is_some())
    }
}

/// The admission plugin NamespaceExists.
pub struct NamespaceExists(Namespaces);

impl NamespaceExists {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> NamespaceExists {
        NamespaceExists(Namespaces::new(server))
    }
}

impl Plugin for NamespaceExists {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.resource.namespaced() && target.operation != Operation::Connect
    }

    fn reads_objects(&self) -> bool {
        false
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        if !record.is_namespaced() {
            return Ok(()).into();
        }
        let decision = match self.0.has(record.write.namespace) {
            Ok(true) => Ok(()),
            Ok(false) => Err(namespace_lifecycle::missing(record.write.namespace)),
            Err(status) => Err(status),
        };
        decision.into()
    }
}

/// The admission plugin NamespaceAutoProvision.
pub struct NamespaceAutoProvision(Namespaces);

impl NamespaceAutoProvision {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> NamespaceAutoProvision {
        NamespaceAutoProvision(Namespaces::new(server))
    }

    async fn provide(&self, record: &AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        if record.write.dry_run() || !record.is_namespaced() || self.0.has(record.write.namespace)? {
            return Ok(());
        }
        let mut namespace = Object::new();
        namespace.push("kind", "Namespace".into());
        namespace.push("apiVersion", "v1".into());
        metadata_mut(&mut namespace).insert("name", record.write.namespace.into());
        // The result is also a success if another request created the namespace first.
        record.writer.create(&self.0.resource, namespace).await.map(drop)
    }
}

impl Plugin for NamespaceAutoProvision {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.resource.namespaced() && target.operation == Operation::Create
    }

    fn reads_objects(&self) -> bool {
        false
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        Step::wait(self.provide(record))
    }
}
