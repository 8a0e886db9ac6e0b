//! Flags of extension servers.

use std::path::PathBuf;

use clap::Args;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct ExtensionFlags {
    /// Client certificate (PEM) by which extension servers know this one.
    #[arg(long, value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --proxy-client-cert-file.
    #[arg(long, value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,
}

impl ExtensionFlags {
    /// Of the certificate and the key that peers know this server by, what is not given first, as kube-apiserver calls it.
    pub fn missing_for_peers(&self) -> Option<&'static str> {
        match (&self.proxy_client_cert_file, &self.proxy_client_key_file) {
            (None, _) => Some("proxy-cert-file"),
            (Some(_), None) => Some("proxy-key-file"),
            (Some(_), Some(_)) => None,
        }
    }
}
