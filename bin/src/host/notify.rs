//! Notifies the service manager that the server is ready or is stopping (sd_notify(3)), with a datagram to
//! the socket that the environment names. Without such a variable or a listening manager, nothing happens.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Name of the environment variable with the socket's path; a leading `@` stands for the abstract namespace.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Reports that the server is ready.
pub fn ready() {
    tell("READY=1\n");
}

/// Reports that the server is stopping.
pub fn stopping() {
    tell("STOPPING=1\n");
}

fn tell(state: &str) {
    let Some(path) = std::env::var(SOCKET).ok().filter(|path| !path.is_empty()) else { return };
    if let Err(error) = send(&path, state) {
        tracing::warn!(path, %error, "service manager (systemd) not notified");
    }
}

fn send(path: &str, state: &str) -> std::io::Result<()> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not delay the start.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn the_manager_hears_by_path_and_by_abstract_name() {
        let dir = Scratch::new();
        let path = dir.join("socket");
        let name = format!("notify-test-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let by_path = UnixDatagram::bind(&path).unwrap();
        for (socket, path) in [(by_path, path.display().to_string()), (by_name, format!("@{name}"))] {
            send(&path, "READY=1\n").unwrap();
            let mut told = [0; 32];
            let length = socket.recv(&mut told).unwrap();
            assert_eq!(&told[..length], b"READY=1\n");
        }
        assert!(send(&dir.join("none").display().to_string(), "READY=1\n").is_err());
    }
}
