//! IP addresses: `ip('10.0.0.1')`, and checks of the kind of address.

use std::net::IpAddr;

use go::address::parse_address;
use go::quote;

use crate::cost::arithmetic::times_factor;
use crate::cost::rules::{self, TEXT_FACTOR};
use crate::cost::{CallEstimate, CallSite};
use crate::error::EvalError;
use crate::library::opaque::{self, opaque_type};
use crate::library::{Call, Function, Implementation, Library, Overload, Version};
use crate::types::Type;
use crate::value::Value;

const SINCE: Version = Version::new(1, 30);

/// An IP address. IPv4-mapped IPv6 addresses and zones are refused, so that equal addresses are equal values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ip(pub IpAddr);

/// Returns the type `net.IP`.
pub fn ip_type() -> Type {
    Type::opaque("net.IP")
}

opaque_type!(Ip, ip_type, |ip| if ip.0.is_ipv4() { 4 } else { 16 });

/// Returns the declarations of the library.
pub fn library() -> Library {
    let reading = |id, result, implementation: Implementation| {
        let overload = Overload { since: SINCE, ..Overload::function(id, [Type::String], result) };
        overload.computed_by(implementation)
    };
    let member = |name, id, result, implementation: Implementation| {
        let overload = Overload { since: SINCE, ..Overload::member(id, [ip_type()], result) };
        let overload = overload.computed_by(implementation);
        Function::new(name, [overload.costing(rules::nominal, rules::nominal_actual)])
    };
    let ip = reading("string_to_ip", ip_type(), read).costing(rules::reads_text, rules::reads_text_actual);
    let is_ip = reading("is_ip", Type::Bool, is_ip).costing(rules::reads_text, rules::reads_text_actual);
    // The function parses and formats the address.
    let canonical = reading("ip_is_canonical", Type::Bool, is_canonical)
        .costing(rewrites_text, rules::rewrites_text_actual);
    let to_string =
        Overload { since: SINCE, ..Overload::function("ip_to_string", [ip_type()], Type::String) };
    Library {
        functions: vec![
            Function::new("ip", [ip]),
            Function::new("isIP", [is_ip]),
            Function::new("ip.isCanonical", [canonical]),
            Function::new("string", [to_string.computed_by(write)]),
            member("family", "ip_family", Type::Int, family),
            member("isUnspecified", "ip_is_unspecified", Type::Bool, is_unspecified),
            member("isLoopback", "ip_is_loopback", Type::Bool, is_loopback),
            member("isLinkLocalMulticast", "ip_is_link_local_multicast", Type::Bool, is_link_local_multicast),
            member("isLinkLocalUnicast", "ip_is_link_local_unicast", Type::Bool, is_link_local_unicast),
            member("isGlobalUnicast", "ip_is_global_unicast", Type::Bool, is_global_unicast),
        ],
        types: vec![(ip_type(), SINCE)],
    }
}

impl Ip {
    /// Parses an address.
    ///
    /// # Errors
    /// The error text of the reference.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = parse_address(text).map_err(|error| {
            format!("IP Address {} parse error during conversion from string: {error}", quote(text))
        })?;
        if !parsed.zone.is_empty() {
            return Err(format!("IP address {} with zone value is not allowed", quote(text)));
        }
        if is_mapped(parsed.address) {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
        }
        Ok(Self(parsed.address))
    }

    fn is_link_local_unicast(self) -> bool {
        match self.0 {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
        }
    }

    fn is_link_local_multicast(self) -> bool {
        match self.0 {
            IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
            IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
        }
    }

    /// Returns whether the address is anything except unspecified, loopback, multicast, link-local unicast or
    /// the IPv4 broadcast address.
    fn is_global_unicast(self) -> bool {
        let broadcast = matches!(self.0, IpAddr::V4(v4) if v4.is_broadcast());
        let special = self.0.is_unspecified() || self.0.is_loopback() || self.0.is_multicast();
        !broadcast && !special && !self.is_link_local_unicast()
    }
}

/// Returns whether an address is an IPv4 address in IPv6 form (`::ffff:1.2.3.4`).
pub(crate) fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

fn rewrites_text(site: &dyn CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::cost(site.size(0).times_factor(2.0 * TEXT_FACTOR)))
}

/// Returns the cost of comparing `prefix` bytes of two addresses.
pub(crate) fn prefix_comparison(prefix: u64) -> u64 {
    times_factor(prefix.saturating_mul(2), TEXT_FACTOR)
}

fn read<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    Ip::parse(text).map(opaque::value).map_err(EvalError::new)
}

fn is_ip<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(Ip::parse(text).is_ok()))
}

fn is_canonical<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    let ip = Ip::parse(text).map_err(EvalError::new)?;
    Ok(Value::Bool(ip.0.to_string() == **text))
}

fn receiver(call: &Call<'_, '_>) -> Result<Ip, EvalError> {
    opaque::expect(call.args.first().unwrap_or(&Value::Null)).copied()
}

fn write<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(receiver(call)?.0.to_string()))
}

fn family<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(if receiver(call)?.0.is_ipv4() { 4 } else { 6 }))
}

fn is_unspecified<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(receiver(call)?.0.is_unspecified()))
}

fn is_loopback<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(receiver(call)?.0.is_loopback()))
}

fn is_link_local_multicast<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(receiver(call)?.is_link_local_multicast()))
}

fn is_link_local_unicast<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(receiver(call)?.is_link_local_unicast()))
}

fn is_global_unicast<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(receiver(call)?.is_global_unicast()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_ip_addresses_are_distinguished() {
        // Rows: address; unspecified, loopback, link-local multicast, link-local unicast, global unicast.
        for (text, want) in [
            ("0.0.0.0", "u...."),
            ("::", "u...."),
            ("127.1.2.3", ".l..."),
            ("::1", ".l..."),
            ("224.0.0.1", "..m.."),
            ("224.0.1.1", "....."),
            ("ff02::1", "..m.."),
            ("ff12::1", "..m.."),
            ("ff05::1", "....."),
            ("169.254.1.1", "...u."),
            ("fe80::1", "...u."),
            ("255.255.255.255", "....."),
            ("10.0.0.1", "....g"),
            ("2001:db8::1", "....g"),
        ] {
            let ip = Ip::parse(text).unwrap_or_else(|error| panic!("{error}"));
            let kinds = [
                (ip.0.is_unspecified(), 'u'),
                (ip.0.is_loopback(), 'l'),
                (ip.is_link_local_multicast(), 'm'),
                (ip.is_link_local_unicast(), 'u'),
                (ip.is_global_unicast(), 'g'),
            ];
            let got: String = kinds.iter().map(|&(is, mark)| if is { mark } else { '.' }).collect();
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn mapped_addresses_and_zones_are_refused() {
        for (text, want) in [
            ("::ffff:1.2.3.4", "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed"),
            ("fe80::1%eth0", "IP address \"fe80::1%eth0\" with zone value is not allowed"),
            (
                "x",
                "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP",
            ),
        ] {
            assert_eq!(Ip::parse(text), Err(want.to_owned()));
        }
    }
}
