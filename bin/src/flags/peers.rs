//! Flags of peers: the other servers on the same etcd.

use std::path::PathBuf;

use clap::Args;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Args)]
pub struct PeerFlags {
    /// CA bundle (PEM) that the certificates of other servers on the same etcd are verified against. With
    /// this flag, the server forwards requests for types that only another server serves. Requires
    /// --proxy-client-cert-file and --proxy-client-key-file.
    #[arg(long, value_name = "FILE")]
    pub peer_ca_file: Option<PathBuf>,

    /// IP address at which other servers on the same etcd reach this one. Requires --peer-advertise-port.
    /// Default: --advertise-address, or the address that the server listens on.
    #[arg(long, value_name = "IP", default_value = "")]
    pub peer_advertise_ip: String,

    /// Port at which other servers on the same etcd reach this one. Requires --peer-advertise-ip.
    #[arg(long, value_name = "PORT", default_value = "")]
    pub peer_advertise_port: String,
}
