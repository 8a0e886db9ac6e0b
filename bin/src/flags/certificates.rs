//! Flags of the certificates that the server issues: its own, and those for CertificateSigningRequests.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::flags::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct CertificateFlags {
    /// Additional host names and IP addresses in the serving certificate that the server creates, separated
    /// by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_extra_names: Vec<String>,

    /// Certificate (PEM) of the CA that signs approved CertificateSigningRequests. Default: the server's own
    /// CA.
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --cluster-signing-cert-file.
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_key_file: Option<PathBuf>,

    /// Longest validity of a certificate that is signed for a CertificateSigningRequest.
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s", value_parser = duration::parse)]
    pub cluster_signing_duration: Duration,
}
