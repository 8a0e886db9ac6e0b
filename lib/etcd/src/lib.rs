//! A client of etcd's v3 protocol, as small as a server that keeps its objects there needs.
//!
//! ```text
//! Client ─► Pool (one HTTP/2 connection, the next endpoint when it fails) ─► frame ─► etcd
//!        └► Watch (a stream of whole responses, told apart by why it ended)
//! ```
//!
//! Every call has a deadline, and every answer a greatest size. A call that changes something is sent once: when its answer is
//! lost, the error says that its outcome is unknown ([`Error::outcome_is_unknown`]), and whether to look is the caller's
//! decision. This crate knows keys and bytes, and nothing of what they are used for.

mod client;
mod endpoint;
mod error;
mod frame;
mod pool;
pub mod rpc;
pub mod snapshot;
mod watch;

pub use client::{Client, Config};
pub use endpoint::{Dial, Dialing, Endpoint, EndpointError, Stream, Tls};
pub use error::{Code, Error};
pub use frame::MESSAGE_BYTES_MAX;
pub use watch::{Watch, WatchEnd};
