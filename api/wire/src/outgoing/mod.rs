//! Calls to other servers: one request, one response.
//!
//! ```text
//! Endpoint (URL, address to connect to, credentials) ─► connect ─► TLS ─┬─ post: one response of bounded length
//!                                                                       ├─ open: a streamed response, or an upgrade
//!                                                                       └─ open_kept: a streamed response
//! ```
//!
//! `endpoint` has the URL and the address of a server, `egress` the way to reach it, `guard` the forbidden
//! addresses, `credentials` the keys and tokens. `authorities` verifies the server, `dial` opens TCP
//! connections, `connect` makes a `connection` of them, `exchange` sends requests on it, and `pool` keeps the
//! connections of `post` and of `open_kept` for later calls. This module does not know the contents of requests.

mod answer;
mod authorities;
mod client;
mod connect;
mod connection;
mod counting;
mod credentials;
mod dial;
mod egress;
mod endpoint;
mod error;
mod exchange;
mod failed;
mod guard;
mod identities;
mod konnectivity;
mod pool;
mod proxy;
mod redirect;
mod tunnel;
mod typed;

pub use answer::Review;
pub use authorities::Authorities;
pub use client::{Client, PATH, Service};
pub use credentials::{ClientTls, Credentials, Identity};
pub use egress::{Egress, Networks};
pub use endpoint::Endpoint;
pub use error::{Failure, is_cut, unexpected_code};
pub use exchange::{
    ANSWER_BYTES_MAX, Answer, Lease, Opened, REVIEW_BYTES_MAX, Reply, get, get_at_most, open, open_kept,
    post, post_at_most,
};
pub use guard::{Guard, OwnAddresses, is_global};
pub use identities::Identities;
pub use tunnel::{Protocol, Transport, Tunnel};
pub use typed::ReviewResponse;
