//! Kubeconfig files: the server writes one for its administrator, and reads those that describe other
//! servers: webhooks for audit, tokens and permissions, and the server that an offline command connects to.
//!
//! ```text
//! file ─► Settings (current context) ─► Source ─┬─ certificates, tokens: inline or in files, read again
//!                                               └─ exec: a program runs, until its credential has expired or is refused
//!                                                        └─► Endpoint for the next call
//! ```
//!
//! Each call has a connection of its own, so that new credentials apply from the next call on.

mod exec;
mod form;
mod identities;
mod settings;
mod source;
mod usable;
mod written;

pub use identities::identities;
pub use settings::Settings;
pub use source::Source;
pub use usable::{confirm, load};
pub use written::{Connection, KUBECONFIG_FILE, with_replaced};
