//! Notifies the service manager that the server is ready or is stopping (sd_notify(3)). A notification is a
//! datagram to the socket in the environment variable `NOTIFY_SOCKET`. If the variable is not set or no
//! manager listens, nothing happens.

use std::convert::Infallible;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::host::platform::sockets;

/// Name of the environment variable with the path of the socket. A leading `@` means the abstract namespace.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Reports that the server is ready.
pub fn ready() {
    send_state("READY=1\n");
}

/// Reports that the server is stopping.
pub fn stopping() {
    send_state("STOPPING=1\n");
}

/// Reports that the server works, twice in each interval of the watchdog (sd_watchdog_enabled(3)). If the runtime
/// hangs, there are no reports, and the manager restarts the server. This function never returns. Without a
/// configured watchdog, the function only waits.
pub async fn keep_alive() -> Infallible {
    let variable = |name: &str| std::env::var(name).ok();
    let interval = watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id());
    let Some(interval) = interval else { return std::future::pending().await };
    loop {
        send_state("WATCHDOG=1\n");
        tokio::time::sleep(interval / 2).await;
    }
}

/// Returns the interval of the watchdog from its two environment variables, if the variables are for the
/// process `own`.
fn watchdog(microseconds: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    let interval = Duration::from_micros(microseconds?.parse().ok()?);
    let is_ours = pid.is_none_or(|pid| pid == own.to_string());
    (is_ours && !interval.is_zero()).then_some(interval)
}

fn send_state(state: &str) {
    let Some(path) = std::env::var(SOCKET).ok().filter(|path| !path.is_empty()) else { return };
    if let Err(error) = send(&path, state) {
        tracing::warn!(path, %error, "service manager (systemd) not notified");
    }
}

fn send(path: &str, state: &str) -> std::io::Result<()> {
    let address = match path.strip_prefix('@') {
        Some(name) => sockets::abstract_address(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    // Do not block, so that a manager that does not read cannot delay the start.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn a_watchdog_needs_the_id_of_this_process_and_an_interval() {
        for (microseconds, pid, want_ms) in [
            (Some("60000000"), None, Some(60_000)),
            (Some("1000"), Some("7"), Some(1)),
            (Some("1000"), Some("8"), None),
            (Some("0"), None, None),
            (Some("-1"), None, None),
            (Some("soon"), None, None),
            (None, Some("7"), None),
        ] {
            let found = watchdog(microseconds.map(str::to_owned), pid.map(str::to_owned), 7);
            assert_eq!(found, want_ms.map(Duration::from_millis), "{microseconds:?} {pid:?}");
        }
    }

    #[test]
    fn the_service_manager_is_notified_by_path_and_by_abstract_name() {
        let dir = Scratch::new();
        let path = dir.join("socket");
        let name = format!("notify-test-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&sockets::abstract_address(&name).unwrap()).unwrap();
        let by_path = UnixDatagram::bind(&path).unwrap();
        for (socket, path) in [(by_path, path.display().to_string()), (by_name, format!("@{name}"))] {
            send(&path, "READY=1\n").unwrap();
            let mut message = [0; 32];
            let length = socket.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1\n");
        }
        assert!(send(&dir.join("none").display().to_string(), "READY=1\n").is_err());
    }
}
