//! Tails: readers that follow the log from any retained revision on.
//!
//! ```text
//! sequencer ─ publish ─► ring of the newest events ──────────► Tail::next
//!                 │                        (further back) log ─┘
//!                 └─► registry: prefix → tails ─ pending, wake ─► Tail
//! ```
//!
//! A tail is a position in the committed log, not a queue. The store buffers no events for a tail, so a tail
//! that is not read costs only its struct. A tail that keeps up finds its events, shared by all tails, in the
//! ring. A tail that lags reads records from the log and returns to the ring by itself.
//!
//! A live tail remembers up to which revision it has examined the log. The publisher sets `pending` of the
//! tail to the first later revision that concerns the tail. The tail does not examine the revisions before
//! `pending`, because they cannot match. So a thousand tails on quiet prefixes cost nothing while a busy
//! prefix is written, and the progress of a tail is known without reading the log.
//!
//! A publication holds the registry's lock and proceeds in this order: set the pending marks, extend the
//! ring, store the root, store the published revision. A tail reads the published revision before its pending
//! mark.

mod hub;
mod registry;
mod replay;
mod ring;
mod tail;
#[cfg(test)]
mod tail_test;

pub(crate) use self::hub::Hub;
pub(crate) use self::ring::RING_EVENTS_MAX;
pub use self::tail::Tail;
