//! Start-up: brings the store into the state in which a cluster begins, before the first client is served.
//!
//! ```text
//! custom types ─► bundled objects ─► flow control ─► rules of the aggregated roles among them ─► API services ─► the server's own service
//! ```
//!
//! Each step leaves alone what is as it should be, so that running it at every start costs reads only.

use crate::system::controllers;
use crate::values::status::Status;
use crate::writes::bootstrap::{self, Outcome};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;

/// Serves the custom types that were established before. Call it before the first request; costs reading their
/// definitions.
///
/// # Errors
/// The store failed.
pub fn load_types(context: &Context) -> Result<(), Status> {
    controllers::definitions::load(context)
}

/// Creates the objects that every cluster starts with where they are missing, and gives the aggregated roles among
/// them their rules, so that the first clients have the rights these stand for.
///
/// # Errors
/// The store failed.
pub async fn prepare(context: &Context) -> Result<Outcome, Status> {
    let mut outcome = bootstrap::reconcile(&Loopback::new(context), context.naming()).await?;
    outcome += controllers::flow_control::prepare(context).await?;
    controllers::aggregation::reconcile(context).await?;
    controllers::api_services::prepare(context).await?;
    controllers::own_service::ensure(context).await?;
    Ok(outcome)
}
