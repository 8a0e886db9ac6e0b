//! Connections, requests as they arrive, encodings, and calls of other servers.

pub mod body;
pub mod codec;
pub mod compress;
pub(crate) mod keepalive;
pub mod metrics;
pub mod negotiate;
pub mod outgoing;
pub mod request;
pub mod response;
pub mod server;
pub mod traces;
