//! Kubeconfig files: the administrator's is written, and those of operators say how to reach other servers, for all
//! that ask them: webhooks for audit, tokens and permissions, and commands that connect to a running server.
//!
//! ```text
//! file ─► Settings (current context) ─► Source ─┬─ certificates, tokens: inline or in files, read again
//!                                               └─ exec: a program is asked, until its answer is over or refused
//!                                                        └─► Endpoint for the next call
//! ```
//!
//! A call has a connection of its own, so that new credentials count from the next call on.

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
pub use written::Connection;
