//! Tails: readers that follow the log from any retained revision on.
//!
//! ```text
//! sequencer ─ publish ─► ring of the newest events ──────────► Tail::next
//!                 │                        (further back) log ─┘
//!                 └─► registry: prefix → tails ─ pending, wake ─► Tail
//! ```
//!
//! A tail is a position in the committed log, not a queue. The store buffers nothing for it, so a tail that
//! is not read costs only its struct. A tail that keeps up finds its events, shared by all tails, in the
//! ring. A tail that lags reads records from the log and returns to the ring by itself.
//!
//! The publisher sets `pending` of a live tail to the first revision that concerns it since it last looked.
//! The tail looks at nothing before that revision, because nothing before it can match. So a thousand tails
//! on quiet prefixes cost nothing while a busy prefix is written, and the progress of a tail is known without
//! looking.
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
