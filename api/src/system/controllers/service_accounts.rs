//! Maintains the service account `default` in every active namespace. Pods that name no service account use
//! this service account (docs/api/controllers.md#service-account-controller).

use std::sync::Arc;

use super::Ending;
use super::per_namespace::{self, NamespaceObject};
use crate::writes::server::Server;
use values::json::{Object, Value};

/// Runs the controller, which follows namespaces and service accounts.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let make = |existing: Option<Value>| match existing {
        Some(_) => None,
        None => {
            let members = [("kind", "ServiceAccount"), ("apiVersion", "v1")];
            Some(Object::from_iter(members.map(|(name, value)| (name.into(), value.into()))).into())
        }
    };
    let controller = "service-account-controller";
    per_namespace::follow(
        server,
        NamespaceObject { resource: "serviceaccounts", name: "default", controller, make },
    )
    .await
}
