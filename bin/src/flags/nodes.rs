//! Flags of the connections to nodes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct NodeFlags {
    /// Authorities (PEM) that the agents of nodes are verified against; without, any certificate of theirs will do.
    #[arg(long, value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,

    /// Client certificate (PEM) by which the agents of nodes know this server.
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_certificate: Option<PathBuf>,

    /// Private key (PEM) of --kubelet-client-certificate.
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_key: Option<PathBuf>,

    /// Kinds of node addresses, separated by commas; the first that a node has is where its agent is.
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    pub kubelet_preferred_address_types: Vec<String>,

    /// How long the connection to an agent may take.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::kept)]
    pub kubelet_timeout: Duration,
}
