//! Addresses that this server must not connect to on behalf of a client: the addresses of its host, and the
//! addresses of the server itself.
//!
//! Some formats of IPv6 addresses contain an IPv4 address, and the system or a gateway forwards packets to
//! this IPv4 address. Each check therefore also covers the contained addresses. A host name is resolved for
//! the connection, and the check applies to the resolved address. The name therefore cannot resolve to a
//! different address between the check and the connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};

/// The addresses at which clients reach this server, known once the server listens. Copies share the
/// addresses.
#[derive(Clone, Debug, Default)]
pub struct OwnAddresses(Arc<OnceLock<Listening>>);

#[derive(Debug)]
struct Listening {
    /// Address of the listening socket, which may be the unspecified address.
    at: SocketAddr,
    /// Other addresses of this server, which the server advertises.
    others: Vec<SocketAddr>,
}

impl OwnAddresses {
    /// Sets the address of the listening socket, and other addresses that lead to it. Only the first call has
    /// an effect.
    pub fn set(&self, at: SocketAddr, others: Vec<SocketAddr>) {
        let _ = self.0.set(Listening { at, others });
    }

    /// Returns whether a connection to `address` reaches this server.
    pub fn has(&self, address: SocketAddr) -> bool {
        let Some(Listening { at, others }) = self.0.get() else { return false };
        let is_here = |ip: IpAddr| match at.ip() {
            own if own.is_unspecified() => is_local(ip),
            // A connection to the unspecified address reaches the loopback address.
            own => own == ip || ip.is_unspecified(),
        };
        stands_for(address.ip()).any(|ip| {
            let is_told = others.iter().any(|other| (other.ip(), other.port()) == (ip, address.port()));
            is_told || address.port() == at.port() && is_here(ip)
        })
    }
}

/// Returns whether an address belongs to this host.
fn is_local(ip: IpAddr) -> bool {
    // A socket can be bound only to addresses of the host.
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Rule for the addresses to which no connection may be made.
#[derive(Clone, Debug, Default)]
pub enum Guard {
    /// Every address is allowed: the caller or an operator chose it.
    #[default]
    Open,
    /// Addresses of this server are refused.
    NotOwn(OwnAddresses),
    /// Addresses of this server, and addresses that are local to this host or its link, are refused.
    Global(OwnAddresses),
}

impl Guard {
    /// Returns whether connections to `address` are forbidden.
    pub fn refuses(&self, address: SocketAddr) -> bool {
        match self {
            Guard::Open => false,
            Guard::NotOwn(own) => own.has(address),
            Guard::Global(own) => own.has(address) || !is_global(address.ip()),
        }
    }
}

/// Returns whether an address can be the address of a pod. Such an address must not be unspecified,
/// loopback, link-local, broadcast or multicast. Each IPv4 address in the address must meet the same
/// condition.
pub fn is_global(address: IpAddr) -> bool {
    stands_for(address).all(|ip| {
        let is_of_link = match ip {
            // "This network" (RFC 1122, 3.2.1.3) is not a valid destination.
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        !is_of_link && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast()
    })
}

/// Returns the address itself, and the IPv4 addresses that it contains.
fn stands_for(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let carried = match address {
        IpAddr::V4(_) => [None; 2],
        IpAddr::V6(v6) => carried(v6),
    };
    std::iter::once(address).chain(carried.into_iter().flatten().map(IpAddr::V4))
}

/// Returns the IPv4 addresses in an IPv6 address. The supported formats are mapped and compatible addresses
/// (RFC 4291, 2.5.5), NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056), Teredo (RFC 4380, the server and the
/// inverted client), and ISATAP (RFC 5214).
fn carried(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let segments = address.segments();
    let at = |first: usize| {
        let bits = u32::from(segments[first]) << 16 | u32::from(segments[first + 1]);
        Some(Ipv4Addr::from_bits(bits))
    };
    match segments {
        // The unspecified and the loopback address contain no IPv4 address.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 2],
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => [at(6), None],
        [0x64, 0xff9b, ..] => [at(6), None],
        [0x2002, ..] => [at(1), None],
        [0x2001, 0, ..] => [at(2), at(6).map(|client| Ipv4Addr::from_bits(!client.to_bits()))],
        [.., 0 | 0x200, 0x5efe, _, _] => [at(6), None],
        _ => [None; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_are_not_global_in_any_form() {
        for (address, want) in [
            ("10.0.0.1", true),
            ("203.0.113.7", true),
            ("fd00::1", true),
            ("2001:db8::1", true),
            ("64:ff9b::a00:1", true),
            ("2002:a00:1::", true),
            ("::ffff:10.0.0.1", true),
            ("127.0.0.1", false),
            ("127.255.0.1", false),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("169.254.1.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.1.1", false),
            ("::ffff:0:127.0.0.1", false),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b:1::7f00:1", false),
            ("2002:7f00:1::", false),
            ("2002:a9fe:101::5", false),
            ("2001:0:7f00:1::", false),
            ("2001:0:a00:1::80ff:fffe", false),
            ("2001:db8::5efe:127.0.0.1", false),
            ("2001:db8::200:5efe:127.0.0.1", false),
        ] {
            assert_eq!(is_global(address.parse().unwrap()), want, "{address}");
        }
    }

    #[test]
    fn own_addresses_include_every_address_that_the_server_listens_at() {
        let own = OwnAddresses::default();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(!own.has(address("127.0.0.1:6443")), "it does not listen yet");
        own.set(address("0.0.0.0:6443"), vec![address("203.0.113.7:443")]);
        for (text, want) in [
            ("127.0.0.1:6443", true),
            ("127.9.9.9:6443", true),
            ("0.0.0.0:6443", true),
            ("[::1]:6443", true),
            ("[::ffff:127.0.0.1]:6443", true),
            ("[::127.0.0.1]:6443", true),
            ("[64:ff9b::7f00:1]:6443", true),
            ("203.0.113.7:443", true),
            ("[64:ff9b::cb00:7107]:443", true),
            ("127.0.0.1:6444", false),
            ("203.0.113.7:6443", false),
            ("203.0.113.8:443", false),
        ] {
            assert_eq!(own.has(address(text)), want, "{text}");
            let guard = Guard::NotOwn(own.clone());
            assert_eq!(guard.refuses(address(text)), want, "{text}");
            assert!(!Guard::Open.refuses(address(text)));
        }
        let one = OwnAddresses::default();
        one.set(address("10.9.8.7:6443"), Vec::new());
        for (text, want) in
            [("10.9.8.7:6443", true), ("[::ffff:10.9.8.7]:6443", true), ("10.9.8.8:6443", false)]
        {
            assert_eq!(one.has(address(text)), want, "{text}");
        }
        assert!(Guard::Global(one.clone()).refuses(address("127.0.0.1:1")));
        assert!(!Guard::Global(one).refuses(address("10.9.8.8:1")));
    }
}
