//! Puts right what is allocated beside the services, where that is stored apart from them (docs/api/etcd.md#allocation).

use std::sync::Arc;
use std::time::Duration;

use super::Ending;
use crate::writes::context::Context;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(180);

/// The same while something that no service has is to be given back.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Looks again and again. Only where there is a ledger.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    let Some(ledger) = api.ledger() else { return std::future::pending().await };
    loop {
        let is_settled = ledger.repair_allocations().await?;
        tokio::time::sleep(if is_settled { LOOK } else { LOOK_AGAIN }).await;
    }
}
