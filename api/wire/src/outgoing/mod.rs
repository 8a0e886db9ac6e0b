//! Calls of other servers: one request, one answer.
//!
//! ```text
//! Endpoint (URL, address to connect to, credentials) ─► connect ─► TLS ─┬─ post: one answer of bounded length
//!                                                                       ├─ open: an answer as it comes, or an upgrade
//!                                                                       └─ open_kept: an answer as it comes
//! ```
//!
//! `endpoint` says where a server is, `egress` how it is reached, `guard` where no connection leads, `credentials` how it is known and who asks, `authorities` verifies it, `connect` makes connections, `exchange`
//! sends requests on them, `pool` keeps those of posts and of `open_kept` for the next one. Nothing here knows what is asked.

mod answer;
mod authorities;
mod client;
mod connect;
mod counting;
mod credentials;
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
pub use counting::count_in;
pub use credentials::{Credentials, Identity, Tls};
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
pub use typed::Response;
