//! Repairs allocations of services that are stored separately from the services
//! (docs/api/etcd.md#allocation).

use std::sync::Arc;
use std::time::Duration;

use super::Ending;
use crate::writes::server::Server;

/// Interval of repairs.
const LOOK: Duration = Duration::from_secs(180);

/// Interval of repairs while an allocation without a service has not been released.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Repairs allocations periodically, if there is a ledger.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let Some(ledger) = server.store.ledger() else { return std::future::pending().await };
    loop {
        let is_settled = ledger.repair_allocations().await?;
        tokio::time::sleep(if is_settled { LOOK } else { LOOK_AGAIN }).await;
    }
}
