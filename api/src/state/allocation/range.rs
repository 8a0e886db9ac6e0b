//! Ranges of allocation: networks of addresses, and ports.
//!
//! Each range has a lower band for explicit requests, so that explicit requests rarely collide with random
//! allocations (docs/api/validation.md#services).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::{IntErrorKind, ParseIntError};

/// An address family of a service.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Family {
    /// The family `IPv4` of addresses.
    V4,
    /// The family `IPv6` of addresses.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn from_address(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Returns the family with a name.
    pub fn by_name(name: &str) -> Option<Family> {
        [Family::V4, Family::V6].into_iter().find(|family| family.name() == name)
    }

    /// Returns the name, `IPv4` or `IPv6`.
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// Returns the other family.
    pub fn other(self) -> Family {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }
}

/// A network to allocate from. All addresses are allocatable, except the first address and, for IPv4, the last
/// address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    /// The network address.
    base: u128,
    family: Family,
    prefix: u8,
}

/// Minimum number of addresses in a default network (`--service-cluster-ip-range` of kube-apiserver).
const ADDRESSES_MIN: u128 = 8;

impl Network {
    /// Parses a network such as `10.0.0.0/24`. Bits after the prefix and leading zeros of decimal numbers are
    /// ignored.
    ///
    /// # Errors
    /// Fails if the text is not an address, a slash and a number of bits.
    pub fn parse(text: &str) -> Result<Network, String> {
        let invalid = || format!("invalid CIDR address: {text}");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = without_zeros(address).parse().map_err(|_| invalid())?;
        let family = Family::from_address(address);
        let bits = bits(family);
        let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(invalid)?;
        let mask = u128::MAX.checked_shl(u32::from(bits - prefix)).unwrap_or(0);
        Ok(Network { base: number(address) & mask, family, prefix })
    }

    /// Checks that the network is large enough to be the default network.
    ///
    /// # Errors
    /// Fails if the range has fewer than eight addresses.
    pub fn check_size(&self) -> Result<(), String> {
        if self.size() < ADDRESSES_MIN {
            return Err(format!(
                "the service cluster IP range must be at least {ADDRESSES_MIN} IP addresses"
            ));
        }
        Ok(())
    }

    /// Returns the family of the network.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns whether an address is of the family of the network.
    pub fn is_of_family(&self, address: IpAddr) -> bool {
        Family::from_address(address) == self.family
    }

    /// Returns the first allocatable address, which is the address of this server's own service. `None` if the
    /// network has no allocatable address.
    pub fn first(&self) -> Option<IpAddr> {
        (self.count() > 0).then(|| self.nth(0))
    }

    /// Returns whether the address is allocatable.
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::from_address(address) == self.family
            && self.offset(address).is_some_and(|offset| offset < self.count())
    }

    /// Returns whether the address is in the network, allocatable or not.
    pub fn covers(&self, address: IpAddr) -> bool {
        let offset = number(address).checked_sub(self.base);
        Family::from_address(address) == self.family && offset.is_some_and(|offset| offset < self.size())
    }

    /// Returns the number of allocatable addresses.
    pub fn count(&self) -> u128 {
        match self.family {
            Family::V4 => self.size().saturating_sub(2),
            Family::V6 => self.size() - 1,
        }
    }

    /// Returns the number of addresses at the start of the network that are reserved for explicit requests.
    pub fn reserved(&self) -> u128 {
        band(self.count(), 16, 256, 16)
    }

    /// Returns the address at a position below [`Network::count`].
    pub fn nth(&self, at: u128) -> IpAddr {
        address(self.family, self.base + 1 + at)
    }

    fn offset(&self, address: IpAddr) -> Option<u128> {
        number(address).checked_sub(self.base)?.checked_sub(1)
    }

    fn size(&self) -> u128 {
        1u128.checked_shl(u32::from(bits(self.family) - self.prefix)).unwrap_or(u128::MAX)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", address(self.family, self.base), self.prefix)
    }
}

/// A range of ports to allocate from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// The default range of kube-apiserver.
    pub const DEFAULT: Ports = Ports { first: 30000, last: 32767 };

    /// Parses `30000-32767`, `30000+2767` or a single port. An empty text gives the default.
    ///
    /// # Errors
    /// Fails for a malformed range, a range that ends before it begins, and port 0.
    pub fn parse(text: &str) -> Result<Ports, String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Ports::DEFAULT);
        }
        // The error texts are those of the reference server, which reports "out of range" only for numbers that
        // do not fit into 64 bits.
        let number = |text: &str| {
            let why = |error: ParseIntError| match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            text.parse::<i64>().map_err(|error| format!("strconv.Atoi: parsing {text:?}: {}", why(error)))
        };
        let (first, last) = match (text.split_once('-'), text.split_once('+')) {
            (Some((first, last)), None) => (number(first)?, number(last)?),
            (None, Some((first, more))) => {
                let first = number(first)?;
                (first, first.saturating_add(number(more)?))
            }
            (None, None) => (number(text)?, number(text)?),
            (Some(_), Some(_)) => return Err(format!("unable to parse port range: {text}")),
        };
        if last < first {
            return Err(format!("end port cannot be less than start port: {text}"));
        }
        let too_great = |_| format!("the port range cannot be greater than 65535: {text}");
        match (u16::try_from(first), u16::try_from(last)) {
            (Err(error), _) | (_, Err(error)) => Err(too_great(error)),
            // In a service, port 0 requests the allocation of a port, so port 0 itself is not allocatable.
            (Ok(first), Ok(last)) if last > 0 => Ok(Ports { first: first.max(1), last }),
            (Ok(_), Ok(_)) => Err(format!("the port range has no port but 0: {text}")),
        }
    }

    /// Returns whether the port is allocatable.
    pub fn contains(&self, port: i64) -> bool {
        (i64::from(self.first)..=i64::from(self.last)).contains(&port)
    }

    /// Returns the number of ports.
    pub fn count(&self) -> u16 {
        self.last - self.first + 1
    }

    /// Returns the number of ports at the start of the range that are reserved for explicit requests.
    pub fn reserved(&self) -> u16 {
        band(self.count().into(), 16, 128, 32) as u16
    }

    /// Returns the port at a position below [`Ports::count`].
    pub fn nth(&self, at: u16) -> u16 {
        self.first + at
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Removes leading zeros: `010.0.0.1` becomes `10.0.0.1`.
fn without_zeros(address: &str) -> String {
    let short = |part: &str| {
        let digits = part.trim_start_matches('0');
        if digits.starts_with(|c: char| c.is_ascii_digit()) || part.is_empty() { digits } else { "0" }
            .to_owned()
    };
    if address.contains(':') || !address.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        address.to_owned()
    } else {
        address.split('.').map(short).collect::<Vec<_>>().join(".")
    }
}

/// Returns the size of the reserved band of a range, within bounds; 0 for a range no larger than the minimum
/// size.
fn band(count: u128, least: u128, most: u128, parts: u128) -> u128 {
    if count <= least { 0 } else { (count / parts).clamp(least, most) }
}

fn bits(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from(number as u32).into(),
        Family::V6 => Ipv6Addr::from(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_network_allocates_only_addresses_inside_it() {
        for (text, want) in [
            ("10.0.0.0/31", Ok("10.0.0.0/31 first None last None reserved 0")),
            ("255.255.255.255/32", Ok("255.255.255.255/32 first None last None reserved 0")),
            ("fd00::/127", Ok("fd00::/127 first Some(fd00::1) last Some(fd00::1) reserved 0")),
            (
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
                Ok("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128 first None last None reserved 0"),
            ),
            ("10.0.0.0/24", Ok("10.0.0.0/24 first Some(10.0.0.1) last Some(10.0.0.254) reserved 16")),
            ("10.0.0.9/16", Ok("10.0.0.0/16 first Some(10.0.0.1) last Some(10.0.255.254) reserved 256")),
            ("10.1.2.8/29", Ok("10.1.2.8/29 first Some(10.1.2.9) last Some(10.1.2.14) reserved 0")),
            ("010.01.000.0/24", Ok("10.1.0.0/24 first Some(10.1.0.1) last Some(10.1.0.254) reserved 16")),
            ("fd00::/120", Ok("fd00::/120 first Some(fd00::1) last Some(fd00::ff) reserved 16")),
            (
                "fd00::/0",
                Ok("::/0 first Some(::1) last Some(ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe) reserved 256"),
            ),
            ("10.0.0.0/33", Err("invalid CIDR address: 10.0.0.0/33")),
            ("10.0.0.0", Err("invalid CIDR address: 10.0.0.0")),
            ("10..0.0/8", Err("invalid CIDR address: 10..0.0/8")),
            ("x/8", Err("invalid CIDR address: x/8")),
        ] {
            let got = Network::parse(text).map(|network| {
                let last = network.count().checked_sub(1).map(|at| network.nth(at));
                let (first, reserved) = (network.first(), network.reserved());
                assert!(first.into_iter().chain(last).all(|address| network.contains(address)));
                format!("{network} first {first:?} last {last:?} reserved {reserved}")
            });
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        let network = Network::parse("10.0.0.0/24").unwrap();
        for (address, inside) in [
            ("10.0.0.0", false),
            ("10.0.0.1", true),
            ("10.0.0.254", true),
            ("10.0.0.255", false),
            ("9.255.255.255", false),
            ("::a00:1", false),
        ] {
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{address}");
        }
    }

    #[test]
    fn port_ranges_are_parsed_as_upstream_does() {
        for (text, want) in [
            ("30000-32767", Some(("30000-32767", 86))),
            ("30000+10", Some(("30000-30010", 0))),
            ("8080", Some(("8080-8080", 0))),
            ("1-65535", Some(("1-65535", 128))),
            ("0-10", Some(("1-10", 0))),
            ("0", None),
            ("10-9", None),
            ("65535+1", None),
            ("1-2-3", None),
            ("1-2+3", None),
            ("", Some(("30000-32767", 86))),
            ("a-b", None),
            ("1-65536", None),
            ("-5", None),
            ("1+9223372036854775807", None),
        ] {
            let got = Ports::parse(text).ok().map(|ports| (ports.to_string(), ports.reserved()));
            assert_eq!(got, want.map(|(shown, reserved)| (shown.to_owned(), reserved)), "{text}");
        }
        let why = "the port range cannot be greater than 65535: 0-70000";
        assert_eq!(Ports::parse("0-70000").unwrap_err(), why);
        assert!(Ports::DEFAULT.contains(32767) && !Ports::DEFAULT.contains(32768));
    }
}
