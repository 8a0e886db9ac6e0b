//! The origin of a write: the data that both requests and the server's own writes pass to the write path,
//! without the user.

use std::sync::Arc;

use crate::writes::server::Server;
use objects::conversion::Conversions;
use types::served::Served;

/// The origin of writes: a request, or a client with which the server writes its own objects.
pub struct Origin<'o> {
    /// The context of the server.
    pub server: &'o Server,
    /// The types that were served when the write began. All steps of the write use these types.
    pub types: Arc<Served>,
    /// Conversions by webhooks that are needed to compute the managed fields of the written objects.
    pub conversions: Conversions,
}

impl<'o> Origin<'o> {
    /// Returns an origin with the types that are served now.
    pub fn new(server: &'o Server) -> Origin<'o> {
        Origin { server, types: server.types.now(), conversions: Conversions::default() }
    }
}

/// A clone has the same types, but no conversions.
impl Clone for Origin<'_> {
    fn clone(&self) -> Self {
        Origin { server: self.server, types: self.types.clone(), conversions: Conversions::default() }
    }
}
