//! The writes of admission plugins. Admission plugins write with the server's own identity or with the identity of a
//! controller.

use std::sync::Arc;

use engine::Revision;

use super::Loopback;
use crate::writes::plugin::{Pending, Writer};
use crate::writes::server::Server;
use crate::writes::write::{Current, FunctionSource, RequestedChange, WriteOutcome};
use objects::store::ObjectName;
use objects::strategy::Endpoint;
use types::schema::registry::Resource;
use values::json::Object;
use values::object::meta;
use values::status::{Status, StatusReason};

impl Loopback<'_> {
    /// Creates an object. Returns `false` if an object with that name exists.
    ///
    /// # Errors
    /// Fails if the object is refused, or if the store failed.
    async fn create_new(&self, resource: &Resource, object: Object) -> Result<bool, Status> {
        let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
        let mut object = Some(object);
        let intent = self.creation(resource, ObjectName { namespace: &namespace, name: &name });
        let mut source = FunctionSource::for_served(|_: &mut &Loopback<'_>, _: Option<&mut Current>| {
            Ok(object.take().map_or(RequestedChange::AsItIs, RequestedChange::Object))
        });
        match self.write(&intent, &mut source).await {
            Ok(outcome) => Ok(matches!(outcome, WriteOutcome::Created(_))),
            Err(status) if status.reason == StatusReason::AlreadyExists => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Replaces the fields of an object that `endpoint` writes, if the object is still at revision `seen`.
    /// Returns `false` if the object has changed.
    ///
    /// # Errors
    /// Fails if the object is refused, or if the store failed.
    async fn replace_seen(
        &self,
        resource: &Resource,
        endpoint: Endpoint,
        seen: Revision,
        object: Object,
    ) -> Result<bool, Status> {
        let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
        let mut object = Some(object);
        let mut intent = self.intent(resource, ObjectName { namespace: &namespace, name: &name });
        (intent.endpoint, intent.seen) = (endpoint, Some(seen));
        let mut source = FunctionSource::for_stored(|_: &mut &Loopback<'_>, _: Option<&mut Current>| {
            Ok(object.take().map_or(RequestedChange::AsItIs, RequestedChange::Object))
        });
        let outcome = self.write(&intent, &mut source).await?;
        Ok(matches!(outcome, WriteOutcome::Updated(_) | WriteOutcome::Unchanged(_)))
    }
}

impl Writer for Server {
    fn shared(&self) -> Arc<dyn Writer> {
        self.itself()
    }

    fn create<'w>(&'w self, resource: &'w Resource, object: Object) -> Pending<'w, bool> {
        Box::pin(async move { Loopback::new(self).create_new(resource, object).await })
    }

    fn replace<'w>(
        &'w self,
        resource: &'w Resource,
        endpoint: Endpoint,
        seen: Revision,
        object: Object,
    ) -> Pending<'w, bool> {
        Box::pin(async move { Loopback::new(self).replace_seen(resource, endpoint, seen, object).await })
    }
}

/// A writer with the identity of a controller.
#[derive(Clone)]
pub struct ControllerWriter {
    /// The context of the server.
    pub server: Arc<Server>,
    /// Name of the controller.
    pub name: &'static str,
}

impl Writer for ControllerWriter {
    fn shared(&self) -> Arc<dyn Writer> {
        Arc::new(self.clone())
    }

    fn create<'w>(&'w self, resource: &'w Resource, object: Object) -> Pending<'w, bool> {
        Box::pin(
            async move { Loopback::controller(&self.server, self.name).create_new(resource, object).await },
        )
    }

    fn replace<'w>(
        &'w self,
        resource: &'w Resource,
        endpoint: Endpoint,
        seen: Revision,
        object: Object,
    ) -> Pending<'w, bool> {
        Box::pin(async move {
            let loopback = Loopback::controller(&self.server, self.name);
            loopback.replace_seen(resource, endpoint, seen, object).await
        })
    }
}
