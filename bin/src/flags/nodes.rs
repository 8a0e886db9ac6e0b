//! Flags of the connections to kubelets.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::flags::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct NodeFlags {
    /// CA bundle (PEM) that the certificates of kubelets are verified against. Default: their certificates
    /// are not verified.
    #[arg(long, value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,

    /// Client certificate (PEM) that this server presents to kubelets.
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_certificate: Option<PathBuf>,

    /// Private key (PEM) of --kubelet-client-certificate.
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_key: Option<PathBuf>,

    /// Types of node addresses, separated by commas. The server connects to a kubelet at the first of these
    /// addresses that the node has.
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    pub kubelet_preferred_address_types: Vec<String>,

    /// How long connecting to a kubelet may take.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::kept)]
    pub kubelet_timeout: Duration,
}
