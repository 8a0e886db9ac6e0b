//! Bytes and protocols: TLS and HTTP connections, heads and bodies of requests, the encodings of objects, and
//! requests that this server sends to other servers.

pub mod compress;
pub mod config_type;
pub mod http2;
pub mod keepalive;
pub mod metrics;
pub mod outgoing;
mod platform;
pub mod response;
pub mod server;
pub mod stream;
pub mod traces;
pub mod typed;
