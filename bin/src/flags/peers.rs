//! Flags of peers: the other servers on the same etcd.

use std::path::PathBuf;

use clap::Args;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct PeerFlags {
    /// CA bundle (PEM) of the certificates of the other servers on the same etcd. With it requests for types that only another
    /// server serves are passed on there. Needs --proxy-client-cert-file and --proxy-client-key-file.
    #[arg(long, value_name = "FILE")]
    pub peer_ca_file: Option<PathBuf>,

    /// Address at which the other servers reach this one, together with --peer-advertise-port; by default that of
    /// --advertise-address, or the one that the server listens at.
    #[arg(long, value_name = "IP", default_value = "")]
    pub peer_advertise_ip: String,

    /// Port at which the other servers reach this one, together with --peer-advertise-ip.
    #[arg(long, value_name = "PORT", default_value = "")]
    pub peer_advertise_port: String,
}
