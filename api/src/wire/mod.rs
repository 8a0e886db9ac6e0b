//! Bytes and protocols: TLS and HTTP connections, heads and bodies of requests, the encodings of objects, and
//! requests that this server sends to other servers.

pub mod body;
pub mod codec;
pub mod compress;
pub mod config_type;
pub(crate) mod keepalive;
pub mod known_types;
pub mod metrics;
pub mod negotiate;
pub mod outgoing;
mod parameters;
pub mod request;
pub mod response;
pub mod server;
pub mod stream;
pub mod traces;
pub mod typed;
