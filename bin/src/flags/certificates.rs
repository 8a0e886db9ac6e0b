//! Flags about the certificates that the server issues: its own, and those that are asked for through the API.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct CertificateFlags {
    /// Further names and addresses in the server's own serving certificate, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_extra_names: Vec<String>,

    /// Certificate (PEM) of the authority that signs approved certificate requests. Default: the server's own CA.
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_cert_file: Option<PathBuf>,

    /// Key (PEM) of that authority.
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_key_file: Option<PathBuf>,

    /// Longest validity of a certificate that is signed for a request.
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s", value_parser = duration::parse)]
    pub cluster_signing_duration: Duration,
}
