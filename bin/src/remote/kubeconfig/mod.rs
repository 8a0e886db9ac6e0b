//! Kubeconfig files. The server writes a kubeconfig for its administrator, and reads the kubeconfigs of
//! webhooks for audit, tokens and permissions. Commands read the kubeconfig of the server that they connect
//! to.
//!
//! ```text
//! file ─► Settings (current context) ─► Source ─┬─ certificates, tokens: inline or in files, read again
//!                                               └─ exec: a program runs, until its credential has expired or is refused
//!                                                        └─► Endpoint for the next call
//! ```
//!
//! Each call opens a new connection, so that new credentials apply from the next call on.

mod admin_file;
mod exec;
mod file_members;
mod identities;
mod settings;
mod source;
mod webhook_file;

pub use admin_file::{Connection, KUBECONFIG_FILE, with_replaced};
pub use identities::identities;
pub use settings::Settings;
pub use source::Source;
pub use webhook_file::{confirm, load};
