//! Parsing of IP addresses and network prefixes, with the error texts of Go's `net/netip`.
//!
//! `std::net` parses the same forms but does not report why a text is invalid. The messages of this module
//! quote the reason.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::quote;

/// An IP address, with the zone of an IPv6 address (`fe80::1%eth0`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ZonedAddress<'t> {
    /// The address; IPv4-mapped IPv6 addresses stay IPv6.
    pub address: IpAddr,
    /// The zone; empty if the address has no zone.
    pub zone: &'t str,
}

/// A fault, and the part of the text from the fault on.
type Fault<'t> = (&'static str, &'t str);

/// Parses an address.
///
/// # Errors
/// The message of Go's `ParseAddr`.
pub fn parse_address(text: &str) -> Result<ZonedAddress<'_>, String> {
    let parsed = match text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => parse_ipv4(text).map(|octets| (Ipv4Addr::from(octets).into(), "")),
        Some(b':') => parse_ipv6(text).map(|(address, zone)| (address.into(), zone)),
        Some(_) => Err(("missing IPv6 address", "")),
        None => Err(("unable to parse IP", "")),
    };
    match parsed {
        Ok((address, zone)) => Ok(ZonedAddress { address, zone }),
        Err((fault, "")) => Err(format!("ParseAddr({}): {fault}", quote(text))),
        Err((fault, at)) => Err(format!("ParseAddr({}): {fault} (at {})", quote(text), quote(at))),
    }
}

/// Parses `address/bits`.
///
/// # Errors
/// The message of Go's `ParsePrefix`.
pub fn parse_prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let fail = |fault: &str| Err(format!("netip.ParsePrefix({}): {fault}", quote(text)));
    let Some((address, bits)) = text.rsplit_once('/') else { return fail("no '/'") };
    let ZonedAddress { address, zone } = match parse_address(address) {
        Ok(parsed) => parsed,
        Err(fault) => return fail(&fault),
    };
    if !zone.is_empty() {
        return fail("IPv6 zones cannot be present in a prefix");
    }
    // A sign or a leading zero is invalid; the range check below bounds the value.
    let plain = bits.len() == 1 || !bits.starts_with('0');
    if !plain || bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) || bits.len() > 18 {
        return fail(&format!("bad bits after slash: {}", quote(bits)));
    }
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    match bits.parse::<u8>() {
        Ok(bits) if bits <= bits_max => Ok((address, bits)),
        _ => fail("prefix length out of range"),
    }
}

fn parse_ipv4(text: &str) -> Result<[u8; 4], Fault<'_>> {
    let bytes = text.as_bytes();
    let mut octets = [0u8; 4];
    let (mut octet, mut value, mut digits) = (0, 0u16, 0);
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
                octets[octet] = u8::try_from(value).map_err(|_| ("IPv4 field has value >255", ""))?;
            }
            b'.' if digits == 0 || at + 1 == bytes.len() => {
                return Err(("IPv4 field must have at least one digit", &text[at..]));
            }
            b'.' if octet == 3 => return Err(("IPv4 address too long", "")),
            b'.' => (octet, value, digits) = (octet + 1, 0, 0),
            _ => return Err(("unexpected character", tail(text, at))),
        }
    }
    if octet < 3 {
        return Err(("IPv4 address too short", ""));
    }
    Ok(octets)
}

fn parse_ipv6(text: &str) -> Result<(Ipv6Addr, &str), Fault<'_>> {
    let (mut rest, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(("zone must be a non-empty string", "")),
        Some(parts) => parts,
        None => (text, ""),
    };
    let mut bytes = [0u8; 16];
    let mut len = 0;
    let mut ellipsis = None;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok((Ipv6Addr::UNSPECIFIED, zone));
        }
    }
    while len < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        let Ok(group) = u16::from_str_radix(&rest[..digits], 16) else {
            return Err(("each colon-separated field must have at least one digit", rest));
        };
        if rest[digits..].starts_with('.') {
            if ellipsis.is_none() && len != 12 {
                return Err(("embedded IPv4 address must replace the final 2 fields of the address", rest));
            }
            if len > 12 {
                return Err(("too many hex fields to fit an embedded IPv4 at the end of the address", rest));
            }
            bytes[len..len + 4].copy_from_slice(&parse_ipv4(rest)?);
            len += 4;
            rest = "";
            break;
        }
        bytes[len..len + 2].copy_from_slice(&group.to_be_bytes());
        len += 2;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(len);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match ellipsis {
        None if len < 16 => return Err(("address string too short", "")),
        Some(_) if len == 16 => return Err(("the :: must expand to at least one field of zeros", "")),
        Some(at) => bytes[at..].rotate_right(16 - len),
        None => {}
    }
    Ok((Ipv6Addr::from(bytes), zone))
}

/// Returns the text from byte `at` on. All bytes before `at` are ASCII, so `at` is always a character
/// boundary.
fn tail(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addresses_are_parsed() {
        for (text, want, zone) in [
            ("0.0.0.0", "0.0.0.0", ""),
            ("255.255.255.255", "255.255.255.255", ""),
            ("::", "::", ""),
            ("::1", "::1", ""),
            ("1::", "1::", ""),
            ("2001:DB8::1", "2001:db8::1", ""),
            ("2001:db8:0:0:0:0:0:1", "2001:db8::1", ""),
            ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", ""),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4", ""),
            ("64:ff9b::1.2.3.4", "64:ff9b::102:304", ""),
            ("fe80::1%eth0", "fe80::1", "eth0"),
        ] {
            let parsed = parse_address(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((parsed.address.to_string().as_str(), parsed.zone), (want, zone), "{text}");
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_the_error_of_go() {
        for (text, want) in [
            ("", "unable to parse IP"),
            ("%1", "missing IPv6 address"),
            ("1.2.3", "IPv4 address too short"),
            ("1.2.3.4.5", "IPv4 address too long"),
            ("01.2.3.4", "IPv4 field has octet with leading zero"),
            ("1.2.3.256", "IPv4 field has value >255"),
            (".1.2.3", "IPv4 field must have at least one digit (at \".1.2.3\")"),
            ("1.2.3.", "IPv4 field must have at least one digit (at \".\")"),
            ("1..2.3", "IPv4 field must have at least one digit (at \".2.3\")"),
            ("é1.2.3.4", "unexpected character (at \"é1.2.3.4\")"),
            ("::1%", "zone must be a non-empty string"),
            ("::12345", "each group must have 4 or less digits (at \"12345\")"),
            ("2001:db8::g", "each colon-separated field must have at least one digit (at \"g\")"),
            (
                "1:2.3.4.5",
                "embedded IPv4 address must replace the final 2 fields of the address (at \"2.3.4.5\")",
            ),
            (
                "1:2:3:4:5:6:7::1.2.3.4",
                "too many hex fields to fit an embedded IPv4 at the end of the address (at \"1.2.3.4\")",
            ),
            ("1::2é", "unexpected character, want colon (at \"é\")"),
            ("1::2:", "colon must be followed by more characters (at \":\")"),
            ("::1::", "multiple :: in address (at \":\")"),
            ("1:2:3:4:5:6:7:8:9", "trailing garbage after address (at \"9\")"),
            ("1:2", "address string too short"),
            ("1:2:3:4::5:6:7:8", "the :: must expand to at least one field of zeros"),
        ] {
            assert_eq!(parse_address(text), Err(format!("ParseAddr({}): {want}", quote(text))), "{text}");
        }
    }

    #[test]
    fn ip_prefixes_are_parsed() {
        for (text, want) in [
            ("10.0.0.0/8", Ok("10.0.0.0/8")),
            ("2001:db8::1/64", Ok("2001:db8::1/64")),
            ("::/0", Ok("::/0")),
            ("1.2.3.4", Err("no '/'")),
            ("/8", Err("ParseAddr(\"\"): unable to parse IP")),
            ("::1%a/8", Err("IPv6 zones cannot be present in a prefix")),
            ("1.2.3.4/33", Err("prefix length out of range")),
            ("::1/129", Err("prefix length out of range")),
            ("::1/1000", Err("prefix length out of range")),
            ("1.2.3.4/-1", Err("bad bits after slash: \"-1\"")),
            ("1.2.3.4/024", Err("bad bits after slash: \"024\"")),
            ("1.2.3.4/", Err("bad bits after slash: \"\"")),
            ("1.2.3.4/8 ", Err("bad bits after slash: \"8 \"")),
        ] {
            let got = parse_prefix(text).map(|(address, bits)| format!("{address}/{bits}"));
            let want = want
                .map(str::to_owned)
                .map_err(|fault| format!("netip.ParsePrefix({}): {fault}", quote(text)));
            assert_eq!(got, want, "{text}");
        }
    }
}
