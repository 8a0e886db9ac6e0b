//! Calls to other servers: one request, one response.
//!
//! ```text
//! Endpoint (URL, address to connect to, credentials) ─► connect ─► TLS ─┬─ post: one response of bounded length
//!                                                                       ├─ open: a streamed response, or an upgrade
//!                                                                       └─ open_pooled: a streamed response
//! ```
//!
//! `endpoint` contains the URL and the address of a server. `egress` decides between a direct connection and
//! a proxy, `guard` rejects forbidden addresses, and `credentials` contains keys and tokens. `authorities`
//! verifies the server, `dial` opens TCP connections, `connect` starts TLS and HTTP on them, and `exchange`
//! sends requests on the resulting `connection`. `pool` keeps the connections of `post` and of `open_pooled`
//! for later calls. This module does not depend on the contents of requests.

mod answer;
mod authorities;
mod call_metrics;
mod client;
mod connect;
mod connection;
mod credentials;
mod dial;
mod egress;
mod endpoint;
mod error;
mod exchange;
mod guard;
mod identities;
mod konnectivity;
mod pool;
mod proxy;
mod redirect;
mod status_failure;
mod tunnel;
mod typed;

pub use answer::Review;
pub use authorities::Authorities;
pub use client::{Client, PATH, Service, with_clean_path};
pub use credentials::{ClientTls, Credentials, Identity};
pub use egress::{Egress, Networks};
pub use endpoint::Endpoint;
pub use error::{Failure, is_cut, unexpected_code};
pub use exchange::{
    ANSWER_BYTES_MAX, Answer, Lease, Opened, REVIEW_BYTES_MAX, Reply, get, get_at_most, open, open_pooled,
    post, post_at_most,
};
pub use guard::{Guard, OwnAddresses, is_global};
pub use identities::Identities;
pub use tunnel::{Protocol, Transport, Tunnel};
pub use typed::ReviewResponse;
