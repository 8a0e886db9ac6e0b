//! Properties of the machine: names and addresses, listening sockets and resource limits.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::anyhow;
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};
use values::naming::Naming;

use crate::host::pki::Name;

/// Connections that the kernel queues until the server accepts them.
const BACKLOG: u32 = 4096;

/// A connection is probed after this long without a byte, and closed after three unanswered probes. HTTP/2
/// has its own pings; these probes are for watches over HTTP/1.1 whose client has lost its network.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 3);

/// Listens on `address`. With `is_shared`, other processes that also set the option may listen there too.
///
/// # Errors
/// Returns one line with the address if it is in use, or if it is not an address of this machine.
pub fn listen(address: SocketAddr, is_shared: bool) -> anyhow::Result<TcpListener> {
    let open = || -> io::Result<TcpListener> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(is_shared)?;
        // Accepted sockets inherit these options from the listening one.
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE.0)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE.1)?;
        sockopt::set_tcp_keepcnt(&socket, KEEPALIVE.2)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    let failed = |error: io::Error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "address already in use".to_owned(),
            io::ErrorKind::AddrNotAvailable => "cannot assign requested address".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        anyhow!("failed to create listener: failed to listen on {address}: listen tcp {address}: bind: {why}")
    };
    open().map_err(failed)
}

/// Raises the limit of open files to its maximum, because every connection uses a file descriptor.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If this fails, the server accepts fewer connections.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Returns the address at which other machines reach a server that listens on `bound`: the configured one,
/// else the listening one, else this machine's; `None` if the machine has none.
pub fn advertised_address(bound: SocketAddr, configured: Option<IpAddr>) -> Option<SocketAddr> {
    let ip = bound.ip();
    let elsewhere = ip.is_unspecified() || ip.is_loopback();
    let own = || if elsewhere { outward_address(ip).filter(|ip| !ip.is_loopback()) } else { Some(ip) };
    configured.or_else(own).map(|ip| SocketAddr::new(ip, bound.port()))
}

/// Returns the host and port for published documents of a server that listens on `bound`: `name`, else the
/// advertised address. A server on a loopback address is reachable only there, where every machine calls it
/// `localhost`, unless `configured` names a proxy in front of it.
pub fn readers_authority(bound: SocketAddr, configured: Option<IpAddr>, name: Option<&str>) -> String {
    let ip = bound.ip();
    let is_localhost = ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST;
    let name = name.or_else(|| (is_localhost && configured.is_none()).then_some("localhost"));
    if let Some(name) = name {
        return format!("{name}:{}", bound.port());
    }
    let is_local = ip.is_loopback() && configured.is_none();
    let advertised = if is_local { None } else { advertised_address(bound, configured) };
    advertised.unwrap_or(bound).to_string()
}

/// Returns the names for the serving certificate: for clients on this machine, on its network and inside the
/// cluster. `inside` are the server's addresses inside the cluster.
pub fn serving_names(bind: IpAddr, naming: &Naming, inside: &[IpAddr]) -> Vec<Name> {
    let mut names = BTreeSet::new();
    names.insert(Name::Dns("localhost".to_owned()));
    names.insert(Name::Ip(Ipv4Addr::LOCALHOST.into()));
    names.insert(Name::Ip(Ipv6Addr::LOCALHOST.into()));
    if bind.is_unspecified() {
        names.extend(outward_address(bind).map(Name::Ip));
    } else {
        names.insert(Name::Ip(bind));
    }
    names.extend(inside.iter().copied().map(Name::Ip));
    names.extend(hostname().map(Name::Dns));
    for tail in ["", ".default", ".default.svc", ".default.svc.cluster.local"] {
        names.insert(Name::Dns(format!("{}{tail}", naming.word)));
    }
    names.into_iter().collect()
}

/// Returns the host's name, which identifies this server among those on the same store.
pub fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the host's name, if it is valid in a certificate.
fn hostname() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.len() <= 253 && name.chars().all(fits)).then_some(name)
}

/// Returns the address that this machine uses towards other networks. Connecting a datagram socket only
/// consults the routing table; nothing is sent.
fn outward_address(family: IpAddr) -> Option<IpAddr> {
    // A socket that is bound to an address would report that one, even a loopback address.
    let (any, documentation): (IpAddr, IpAddr) = match family {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => {
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((documentation, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

/// Returns the address at which clients on this machine reach a server that listens on `address`.
pub fn local_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_shared_by_those_who_all_say_so() {
        for (first, second, is_shared) in
            [(false, false, false), (true, false, false), (false, true, false), (true, true, true)]
        {
            let one = listen("127.0.0.1:0".parse().unwrap(), first).unwrap();
            let address = one.local_addr().unwrap();
            assert_eq!(listen(address, second).is_ok(), is_shared, "{first} {second}");
        }
    }

    #[test]
    fn readers_of_documents_are_sent_where_they_reach_the_server() {
        for (bound, configured, name, wanted) in [
            ("127.0.0.1:6443", None, None, "localhost:6443"),
            ("[::1]:6443", None, None, "localhost:6443"),
            ("127.0.0.2:6443", None, None, "127.0.0.2:6443"),
            ("127.0.0.1:6443", Some("10.1.1.1"), None, "10.1.1.1:6443"),
            ("10.0.0.1:6443", None, None, "10.0.0.1:6443"),
            ("[2001:db8::1]:6443", None, None, "[2001:db8::1]:6443"),
            ("127.0.0.1:6443", None, Some("api.example.com"), "api.example.com:6443"),
            ("10.0.0.1:6443", Some("10.1.1.1"), Some("api.example.com"), "api.example.com:6443"),
        ] {
            let configured = configured.map(|ip: &str| ip.parse().unwrap());
            assert_eq!(readers_authority(bound.parse().unwrap(), configured, name), wanted);
        }
    }

    #[test]
    fn the_server_is_known_by_every_name_clients_use() {
        let names = serving_names(
            "192.0.2.7".parse().unwrap(),
            &values::naming::KUBERNETES,
            &["10.0.0.1".parse().unwrap()],
        );
        for dns in ["localhost", "kubernetes", "kubernetes.default.svc.cluster.local"] {
            assert!(names.contains(&Name::Dns(dns.to_owned())), "{dns} in {names:?}");
        }
        for ip in ["127.0.0.1", "::1", "192.0.2.7", "10.0.0.1"] {
            assert!(names.contains(&Name::Ip(ip.parse().unwrap())), "{ip} in {names:?}");
        }
        let anywhere = Ipv4Addr::UNSPECIFIED.into();
        assert!(!serving_names(anywhere, &values::naming::CLUSTER, &[]).contains(&Name::Ip(anywhere)));
    }

    #[test]
    fn a_server_on_a_loopback_address_is_advertised_as_one_everywhere_is() {
        let advertised = |bound: &str| advertised_address(bound.parse().unwrap(), None);
        assert_eq!(advertised("127.0.0.1:6443"), advertised("0.0.0.0:6443"));
        assert_eq!(advertised("192.0.2.7:6443"), Some("192.0.2.7:6443".parse().unwrap()));
        let configured =
            advertised_address("127.0.0.1:1".parse().unwrap(), Some("10.1.1.1".parse().unwrap()));
        assert_eq!(configured, Some("10.1.1.1:1".parse().unwrap()));
    }

    #[test]
    fn everywhere_is_reached_at_home() {
        for (bound, want) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("192.0.2.7:1", "192.0.2.7:1")]
        {
            assert_eq!(local_address(bound.parse().unwrap()), want.parse().unwrap());
        }
    }

    #[tokio::test]
    async fn a_taken_address_is_said_in_one_line() {
        let holder = listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = holder.local_addr().unwrap();
        let elsewhere: SocketAddr = "192.0.2.1:6443".parse().unwrap();
        for (address, why) in
            [(address, "address already in use"), (elsewhere, "cannot assign requested address")]
        {
            let error = format!("{:#}", listen(address, false).unwrap_err());
            let want = format!(
                "failed to create listener: failed to listen on {address}: listen tcp {address}: bind: {why}"
            );
            assert_eq!(error, want);
        }
    }
}
