//! The part that a request and a client of the server itself have in common: what the write path needs to know
//! of either, besides the user.

use std::sync::Arc;

use crate::writes::server::Server;
use objects::conversion::Conversions;
use types::served::Served;

/// The origin of writes: a request, or a client with which the server writes to itself.
pub struct Origin<'o> {
    /// The context of the server.
    pub server: &'o Server,
    /// The served types, the same from the first step to the last.
    pub types: Arc<Served>,
    /// Conversions by webhooks that the managed fields of its writes need.
    pub conversions: Conversions,
}

impl<'o> Origin<'o> {
    /// Returns the origin of writes that see the types served now.
    pub fn new(server: &'o Server) -> Origin<'o> {
        Origin { server, types: server.types.now(), conversions: Conversions::default() }
    }
}

/// A clone has the same types, and no conversions.
impl Clone for Origin<'_> {
    fn clone(&self) -> Self {
        Origin { server: self.server, types: self.types.clone(), conversions: Conversions::default() }
    }
}
