//! Warning events that the server creates about an object.

use super::Loopback;
use crate::writes::admission::namespace_lifecycle::State;
use crate::writes::bootstrap::{ObjectStore, ObjectTarget};
use objects::store::ObjectName;
use types::schema::registry::Resource;
use values::clock;
use values::json::{Object, Value};
use values::names;
use values::status::Status;

/// The content of a warning event.
pub struct WarningEvent {
    /// The reason as one word.
    pub reason: &'static str,
    /// The text that explains the reason to people.
    pub message: String,
    /// The component that reports the warning.
    pub component: &'static str,
}

impl Loopback<'_> {
    /// Creates a warning event about an object in `namespace`. If the namespace is not active, or if the
    /// event is refused, no event is created.
    ///
    /// # Errors
    /// Fails if the store failed.
    pub async fn warn(
        &self,
        resource: &Resource,
        ObjectName { namespace, name }: ObjectName<'_>,
        uid: &str,
        warning: WarningEvent,
    ) -> Result<(), Status> {
        let _creation = self.origin.server.creations.begin();
        if self.namespace_state(namespace)? != State::Active {
            return Ok(());
        }
        let object = |members: &[(&'static str, &str)]| {
            let present = members.iter().filter(|(_, text)| !text.is_empty());
            Object::from_iter(present.map(|(name, text)| ((*name).into(), Value::from(*text))))
        };
        let now = clock::now();
        let event_name = names::generated(&format!("{}.", name.get(..40).unwrap_or(name)));
        let scope = if resource.namespaced() { namespace } else { "" };
        let mut event = object(&[("kind", "Event"), ("apiVersion", "v1")]);
        event.push("metadata", object(&[("name", &event_name), ("namespace", namespace)]).into());
        let regarding = [
            ("kind", &*resource.table.kind),
            ("namespace", scope),
            ("name", name),
            ("uid", uid),
            ("apiVersion", &resource.api_version),
        ];
        event.push("involvedObject", object(&regarding).into());
        event.push("reason", warning.reason.into());
        event.push("message", warning.message.into());
        event.push("source", object(&[("component", warning.component)]).into());
        event.push("firstTimestamp", now.as_str().into());
        event.push("lastTimestamp", now.into());
        event.push("count", Value::Int(1));
        event.push("type", "Warning".into());
        event.push("reportingComponent", warning.component.into());
        let (namespace, name) = (namespace.to_owned(), event_name);
        let target = ObjectTarget { group: "", version: "v1", resource: "events", namespace, name };
        match self.create(&target, event.into()).await {
            Err(refusal) if refusal.code.is_client_error() => {
                tracing::debug!(%refusal, "event refused");
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }
}
