//! The access of plugins to the files and servers that the plugin configuration names.

use std::sync::Arc;
use std::time::Duration;

use auth::authn::webhook::Reviewer;

use wire::outgoing::{Identities, Networks};

/// Access to the files that the configuration of plugins names.
pub trait Files {
    /// Reads a file that the configuration names.
    ///
    /// # Errors
    /// Returns the complete error message if the file cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// Returns the PEM of the certificate authorities that the operating system trusts.
    fn system_authorities(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the networks through which this server reaches other servers.
    fn networks(&self) -> Networks {
        Networks::default()
    }

    /// Reads a kubeconfig file and returns its users as the credentials of this server for other servers.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be used.
    fn identities(&self, path: &str) -> Result<Identities, String> {
        Err(format!("stat {path}: no such file or directory"))
    }

    /// Returns a client for the server that a kubeconfig file names. `pause` is the time before a failed
    /// request is retried.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be used.
    fn reviewer(&self, path: &str, _pause: Duration) -> Result<Arc<dyn Reviewer>, String> {
        Err(format!("stat {path}: no such file or directory"))
    }
}
