//! The writes that admission plugins make are the server's own.

use engine::Revision;

use super::Loopback;
use crate::objects::strategy::Endpoint;
use crate::types::schema::registry::Resource;
use crate::values::json::Object;
use crate::values::object::meta;
use crate::values::status::Reason;
use crate::writes::admission::{Pending, Writer};
use crate::writes::context::Context;
use crate::writes::write::{Current, Made, Outcome, Wanted};

impl Writer for Loopback<'_> {
    fn create<'w>(&'w self, resource: &'w Resource, object: Object) -> Pending<'w, bool> {
        Box::pin(async move {
            let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
            let mut object = Some(object);
            let intent = self.creation(resource, (&namespace, &name));
            let mut source = Made::served(|_: &mut &Loopback<'_>, _: Option<&mut Current>| {
                Ok(object.take().map_or(Wanted::AsItIs, Wanted::Object))
            });
            match self.write(&intent, &mut source).await {
                Ok(outcome) => Ok(matches!(outcome, Outcome::Created(_))),
                Err(status) if status.reason == Reason::AlreadyExists => Ok(false),
                Err(status) => Err(status),
            }
        })
    }

    fn replace<'w>(
        &'w self,
        resource: &'w Resource,
        endpoint: Endpoint,
        seen: Revision,
        object: Object,
    ) -> Pending<'w, bool> {
        Box::pin(async move {
            let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
            let mut object = Some(object);
            let mut intent = self.intent(resource, (&namespace, &name));
            (intent.endpoint, intent.seen) = (endpoint, Some(seen));
            let mut source = Made::stored(|_: &mut &Loopback<'_>, _: Option<&mut Current>| {
                Ok(object.take().map_or(Wanted::AsItIs, Wanted::Object))
            });
            let outcome = self.write(&intent, &mut source).await?;
            Ok(matches!(outcome, Outcome::Updated(_) | Outcome::Unchanged(_)))
        })
    }
}

impl Writer for Context {
    fn create<'w>(&'w self, resource: &'w Resource, object: Object) -> Pending<'w, bool> {
        Box::pin(async move { Writer::create(&Loopback::new(self), resource, object).await })
    }

    fn replace<'w>(
        &'w self,
        resource: &'w Resource,
        endpoint: Endpoint,
        seen: Revision,
        object: Object,
    ) -> Pending<'w, bool> {
        Box::pin(async move { Loopback::new(self).replace(resource, endpoint, seen, object).await })
    }
}
