//! What extension servers read to know who asks: a ConfigMap with the authorities and headers of this server
//! (docs/api/extension-servers.md#identity).

use std::sync::Arc;

use super::{EVENTS_MAX, Ending};
use crate::objects::store;
use crate::values::json::{Object, Value};
use crate::writes::bootstrap::{ObjectStore, Target};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;

const NAME: &str = "extension-apiserver-authentication";

/// Keeps the members that this server sets; others stay as they are.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    let loopback = Loopback::new(&api);
    let target = Target {
        group: "",
        version: "v1",
        resource: "configmaps",
        namespace: api.naming().system("system"),
        name: NAME.to_owned(),
    };
    let resource = loopback.resource(&target)?;
    let key = store::key(resource, &target.namespace, NAME);
    let mut tail = api.engine().tail(api.engine().revision(), key)?;
    let mut changes = api.extensions().setting_changes();
    loop {
        changes.borrow_and_update();
        let wanted = &api.extensions().settings().authentication;
        match loopback.get(&target)? {
            None => {
                let text = |members: &[(&str, &str)]| {
                    Object::from_iter(
                        members.iter().map(|(name, text)| ((*name).to_owned().into(), (*text).into())),
                    )
                };
                let mut object = text(&[("kind", "ConfigMap"), ("apiVersion", "v1")]);
                object.push("metadata", text(&[("name", NAME), ("namespace", &target.namespace)]).into());
                let data = wanted.iter().map(|(name, value)| (name.clone().into(), value.as_str().into()));
                object.push("data", Object::from_iter(data).into());
                // A conflict is another writer's object, which is an event.
                loopback.create(&target, object.into()).await?;
            }
            Some(mut found) => {
                let has = |name: &str, value: &str| found.str_at(&["data", name]) == value;
                if !wanted.iter().all(|(name, value)| has(name, value)) {
                    if let Value::Object(object) = &mut found {
                        let data = object.object_entry("data");
                        for (name, value) in wanted {
                            data.insert(name.clone(), value.as_str().into());
                        }
                    }
                    loopback.update(&target, found).await?;
                }
            }
        }
        tokio::select! {
            events = tail.next(EVENTS_MAX) => drop(events?),
            // The sender lives as long as the server.
            _ = changes.changed() => {}
        }
    }
}
