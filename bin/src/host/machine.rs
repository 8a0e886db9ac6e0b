//! Properties of the machine: names and addresses, and listening sockets.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::anyhow;
use tokio::net::{TcpListener, TcpSocket};
use values::naming::Naming;

use crate::host::pki::Name;
use crate::host::platform::names;
use crate::host::platform::sockets::{self, KeepAlive};

/// Maximum number of connections that the kernel queues until the server accepts them.
const BACKLOG: u32 = 4096;

/// Settings of the probes of idle connections. HTTP/2 has its own pings, but a watch over HTTP/1.1 needs
/// these probes to detect that its client has lost the network.
const KEEPALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes_max: 3 };

/// Listens on `address`. If `is_shared` is true, other processes may listen on the same address, if they also
/// use this option.
///
/// # Errors
/// The address is in use, or is not an address of this machine. The error is one line with the address.
pub fn listen(address: SocketAddr, is_shared: bool) -> anyhow::Result<TcpListener> {
    let open = || -> io::Result<TcpListener> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(is_shared)?;
        // Accepted sockets inherit these options from the listening socket.
        sockets::probe(&socket, &KEEPALIVE)?;
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

/// Returns the address at which other machines reach a server that listens on `bound`. The result is the
/// configured address, if there is one, else the listening address. If the listening address is unspecified
/// or a loopback address, the result is the address of this machine, or `None` if the machine has no address.
pub fn advertised_address(bound: SocketAddr, configured: Option<IpAddr>) -> Option<SocketAddr> {
    let ip = bound.ip();
    let elsewhere = ip.is_unspecified() || ip.is_loopback();
    let own = || if elsewhere { outward_address(ip).filter(|ip| !ip.is_loopback()) } else { Some(ip) };
    configured.or_else(own).map(|ip| SocketAddr::new(ip, bound.port()))
}

/// Returns the host and port of a server that listens on `bound`, for published documents. The host is
/// `name`, if given. If `configured` is not set and the server listens on a loopback address, only clients on
/// this machine can connect, so the host is `localhost` or the loopback address. Otherwise the host is the
/// advertised address.
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

/// Returns the names in the serving certificate. Clients on this machine, on its network and inside the
/// cluster use these names. `inside` has the addresses of the server inside the cluster.
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

/// Returns the host name, which identifies this server among the servers on the same etcd.
pub fn node_name() -> String {
    names::host()
}

/// Returns the host name, if it is valid in a certificate.
fn hostname() -> Option<String> {
    let name = names::host().to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.len() <= 253 && name.chars().all(fits)).then_some(name)
}

/// Returns the address from which this machine sends to other networks. Connecting a datagram socket only
/// reads the routing table, and sends nothing.
fn outward_address(family: IpAddr) -> Option<IpAddr> {
    // Bind to an unspecified address. A socket that is bound to another address would report that address.
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
    async fn a_port_is_shared_only_if_both_listeners_allow_it() {
        for (first, second, is_shared) in
            [(false, false, false), (true, false, false), (false, true, false), (true, true, true)]
        {
            let one = listen("127.0.0.1:0".parse().unwrap(), first).unwrap();
            let address = one.local_addr().unwrap();
            assert_eq!(listen(address, second).is_ok(), is_shared, "{first} {second}");
        }
    }

    #[test]
    fn issuer_documents_name_an_address_at_which_the_server_is_reachable() {
        for (bound, configured, name, expected) in [
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
            assert_eq!(readers_authority(bound.parse().unwrap(), configured, name), expected);
        }
    }

    #[test]
    fn serving_names_include_every_name_that_clients_use() {
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
    fn a_server_on_a_loopback_address_advertises_the_address_of_the_host() {
        let advertised = |bound: &str| advertised_address(bound.parse().unwrap(), None);
        assert_eq!(advertised("127.0.0.1:6443"), advertised("0.0.0.0:6443"));
        assert_eq!(advertised("192.0.2.7:6443"), Some("192.0.2.7:6443".parse().unwrap()));
        let configured =
            advertised_address("127.0.0.1:1".parse().unwrap(), Some("10.1.1.1".parse().unwrap()));
        assert_eq!(configured, Some("10.1.1.1:1".parse().unwrap()));
    }

    #[test]
    fn an_unspecified_address_is_reached_at_the_loopback_address() {
        for (bound, want) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("192.0.2.7:1", "192.0.2.7:1")]
        {
            assert_eq!(local_address(bound.parse().unwrap()), want.parse().unwrap());
        }
    }

    #[tokio::test]
    async fn an_address_in_use_is_reported_in_one_line() {
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
