//! Flags of extension servers.

use std::path::PathBuf;

use clap::Args;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct ExtensionFlags {
    /// Client certificate (PEM) that this server presents to extension servers and peers.
    #[arg(long, value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --proxy-client-cert-file.
    #[arg(long, value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
}

impl ExtensionFlags {
    /// Returns the flag that is missing for connections to peers: the client certificate or its key.
    pub fn missing_for_peers(&self) -> Option<&'static str> {
        match (&self.proxy_client_cert_file, &self.proxy_client_key_file) {
            (None, _) => Some("--proxy-client-cert-file"),
            (Some(_), None) => Some("--proxy-client-key-file"),
            (Some(_), Some(_)) => None,
        }
    }
}
