//! Creates the system namespaces again if they were deleted (docs/api/operations.md#system-namespaces).
//!
//! ```text
//! a tail on each namespace ─ any change ─► missing? ─► store
//! ```

use std::sync::Arc;

use super::{EVENTS_MAX, Ending, Trouble};
use crate::writes::bootstrap::{self, Desired, ObjectStore};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store;

/// Runs the controller, which follows the system namespaces.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let revision = server.store.engine().revision();
    let desired: Vec<Desired> = bootstrap::namespaces(server.types.naming).collect();
    let tail = |desired: &Desired| {
        let resource = Loopback::new(&server).resource(&desired.target)?;
        let key = store::key(resource, &desired.target.namespace, &desired.target.name);
        Ok::<_, Trouble>(server.store.engine().tail(revision, key)?)
    };
    let mut tails = desired.iter().map(tail).collect::<Result<Vec<_>, _>>()?;
    loop {
        let loopback = Loopback::new(&server);
        for Desired { target, object, .. } in &desired {
            if loopback.get(target)?.is_none() {
                tracing::info!(namespace = target.name, "recreating a system namespace");
                // A conflict means that the namespace exists by now.
                loopback.create(target, object.clone()).await?;
            }
        }
        let changes = tails.iter_mut().map(|tail| Box::pin(tail.next(EVENTS_MAX)));
        futures_util::future::select_all(changes).await.0?;
    }
}
