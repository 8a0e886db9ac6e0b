//! A minimal client of etcd's v3 protocol, for a server that stores its objects in etcd.
//!
//! ```text
//! Client ─► Pool (one HTTP/2 connection, the next endpoint when it fails) ─► frame ─► etcd
//!        └► Watch (a stream of whole responses, with the reason of its end)
//! ```
//!
//! Every call has a deadline, and every response has a size limit. A call that changes something is sent
//! once. If its response is lost, the error says that its outcome is unknown ([`Error::outcome_is_unknown`]),
//! and the caller decides whether to check the outcome. This crate treats keys and values as bytes, and does
//! not depend on their meaning.

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
