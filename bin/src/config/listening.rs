//! Flags of the port that the server listens on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;

use crate::flags::problems::{FlagError, Problems};
use crate::flags::value_parsers::{self, Port};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Args)]
pub struct ListeningFlags {
    /// IP address to listen on. 0.0.0.0 or :: means all addresses.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = value_parsers::ip)]
    pub bind_address: IpAddr,

    /// Port to listen on (HTTPS). `free` selects a free port, which the log line `serving` reports.
    #[arg(long, value_name = "PORT", default_value = "6443", allow_negative_numbers = true,
          value_parser = value_parsers::port)]
    pub secure_port: Port,

    /// Let other processes of the same user listen on the same port (SO_REUSEPORT). The system distributes
    /// connections among them. Use this flag to run several servers on the same etcd, or to start a new
    /// server before the old server ends.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = value_parsers::boolean, action = clap::ArgAction::Set)]
    pub permit_port_sharing: bool,
}

/// Settings of the port.
#[derive(Clone, Copy, Debug)]
pub struct ListeningSettings {
    /// Address to listen on. Port 0 selects a free port.
    pub bind: SocketAddr,
    /// Whether other processes may listen on the same port.
    pub shares_port: bool,
}

impl ListeningFlags {
    /// Returns the settings. Adds an error if the number is not a valid port.
    pub fn settings(&self, problems: &mut Problems) -> Option<ListeningSettings> {
        let port = problems.take(port(self.secure_port))?;
        let bind = SocketAddr::new(self.bind_address, port);
        Some(ListeningSettings { bind, shares_port: self.permit_port_sharing })
    }
}

/// Returns the port to bind to. Port 0 lets the system choose a free port.
fn port(port: Port) -> Result<u16, FlagError> {
    let Port::Number(number) = port else { return Ok(0) };
    u16::try_from(number).ok().filter(|port| *port != 0).ok_or_else(|| {
        let text = format!(
            "--secure-port {number} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
        );
        FlagError::worded("secure-port", number, text)
    })
}
