//! Options and names of sockets.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;

/// Settings of the probes of an idle connection.
pub struct KeepAlive {
    /// Time without a byte until the first probe.
    pub idle: Duration,
    /// Time between two probes.
    pub interval: Duration,
    /// Number of unanswered probes after which the connection is closed.
    pub probes_max: u32,
}

/// Enables probes of idle connections for this socket, and for all connections that this socket accepts.
pub fn probe(socket: impl AsFd, when: &KeepAlive) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, when.idle)?;
    sockopt::set_tcp_keepintvl(&socket, when.interval)?;
    Ok(sockopt::set_tcp_keepcnt(&socket, when.probes_max)?)
}

/// Returns the address of a socket in the abstract namespace. Such a socket has a name but no file.
///
/// # Errors
/// The name is too long.
pub fn abstract_address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}
