//! Networks: `cidr('10.0.0.0/8')`, and checks of the addresses and networks in them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use go::address::parse_prefix;
use go::quote;

use crate::cost::arithmetic::times_factor;
use crate::cost::rules::{self, TEXT_FACTOR, arg_size};
use crate::cost::{CallEstimate, CallSite, CostEstimate, SizeEstimate};
use crate::error::EvalError;
use crate::library::ip::{Ip, ip_type, is_mapped, prefix_comparison};
use crate::library::opaque::{self, opaque_type};
use crate::library::{Call, Function, Implementation, Library, Overload, Version};
use crate::types::Type;
use crate::value::Value;

const SINCE: Version = Version::new(1, 30);

/// The size of an address in bytes: 4 or 16.
const ADDRESS_BYTES: SizeEstimate = SizeEstimate { min: 4, max: 16 };

/// An address and the prefix length of the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// Returns the type `net.CIDR`.
pub fn cidr_type() -> Type {
    Type::opaque("net.CIDR")
}

opaque_type!(Cidr, cidr_type, |cidr| u64::from(cidr.bits.div_ceil(8)));

/// Returns the declarations of the library.
pub fn library() -> Library {
    let reading = |name, id, result, implementation: Implementation| {
        let overload = Overload { since: SINCE, ..Overload::function(id, [Type::String], result) };
        let overload = overload.computed_by(implementation);
        Function::new(name, [overload.costing(rules::reads_text, rules::reads_text_actual)])
    };
    let member = |id, params: &[Type], result, implementation: Implementation| {
        let params: Vec<_> = std::iter::once(cidr_type()).chain(params.iter().cloned()).collect();
        let overload = Overload { since: SINCE, ..Overload::member(id, params, result) };
        overload.computed_by(implementation).costing(rules::nominal, rules::nominal_actual)
    };
    let to_string =
        Overload { since: SINCE, ..Overload::function("cidr_to_string", [cidr_type()], Type::String) };
    Library {
        functions: vec![
            reading("cidr", "string_to_cidr", cidr_type(), read),
            reading("isCIDR", "is_cidr", Type::Bool, is_cidr),
            Function::new("string", [to_string.computed_by(write)]),
            Function::new(
                "containsIP",
                [
                    member("cidr_contains_ip_string", &[Type::String], Type::Bool, contains_ip)
                        .costing(contains_ip_text_estimate, contains_ip_text_actual),
                    member("cidr_contains_ip_ip", &[ip_type()], Type::Bool, contains_ip)
                        .costing(contains_ip_estimate, contains_ip_actual),
                ],
            ),
            Function::new(
                "containsCIDR",
                [
                    member("cidr_contains_cidr_string", &[Type::String], Type::Bool, contains_cidr)
                        .costing(contains_cidr_text_estimate, contains_cidr_text_actual),
                    member("cidr_contains_cidr", &[cidr_type()], Type::Bool, contains_cidr)
                        .costing(contains_cidr_estimate, contains_cidr_actual),
                ],
            ),
            Function::new("ip", [member("cidr_ip", &[], ip_type(), ip)]),
            Function::new("prefixLength", [member("cidr_prefix_length", &[], Type::Int, prefix_length)]),
            Function::new("masked", [member("cidr_masked", &[], cidr_type(), masked)]),
        ],
        types: vec![(cidr_type(), SINCE)],
    }
}

impl Cidr {
    /// Parses a network in CIDR notation. The address may have bits set after the prefix.
    ///
    /// # Errors
    /// The error text of the reference.
    pub fn parse(text: &str) -> Result<Self, String> {
        const PROLOGUE: &str = "network address parse error during conversion from string: ";
        let (address, bits) = parse_prefix(text).map_err(|error| format!("{PROLOGUE}{PROLOGUE}{error}"))?;
        if is_mapped(address) {
            return Err(format!("{PROLOGUE}IPv4-mapped IPv6 address {} is not allowed", quote(text)));
        }
        Ok(Self { address, bits })
    }

    /// Returns the network with all bits after the prefix cleared.
    pub fn masked(self) -> Self {
        let bits = u32::from(self.bits);
        let address = match self.address {
            IpAddr::V4(v4) => {
                Ipv4Addr::from_bits(v4.to_bits() & u32::MAX.checked_shl(32 - bits).unwrap_or(0)).into()
            }
            IpAddr::V6(v6) => {
                Ipv6Addr::from_bits(v6.to_bits() & u128::MAX.checked_shl(128 - bits).unwrap_or(0)).into()
            }
        };
        Self { address, ..self }
    }

    /// Returns whether an address is in the network.
    pub fn contains(self, address: IpAddr) -> bool {
        let bits = self.bits;
        address.is_ipv4() == self.address.is_ipv4() && Self { address, bits }.masked() == self.masked()
    }

    /// Returns whether all addresses of another network are in this network.
    pub fn contains_network(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn contains_ip_estimate(_: &dyn CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::cost(ADDRESS_BYTES.plus(ADDRESS_BYTES).times_factor(TEXT_FACTOR)))
}

fn contains_ip_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    prefix_comparison(arg_size(args, 0))
}

fn contains_cidr_estimate(_: &dyn CallSite) -> Option<CallEstimate> {
    // The other network is masked first, then the prefix lengths are compared.
    let comparison = ADDRESS_BYTES.plus(ADDRESS_BYTES).times_factor(TEXT_FACTOR);
    let masking = ADDRESS_BYTES.times_factor(TEXT_FACTOR);
    Some(CallEstimate::cost(comparison.plus(masking).plus(CostEstimate::exactly(1))))
}

fn contains_cidr_actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let prefix = arg_size(args, 0);
    prefix_comparison(prefix) + times_factor(prefix, TEXT_FACTOR) + 1
}

/// Adds the cost of reading the text argument.
fn with_text(site: &dyn CallSite, estimate: Option<CallEstimate>) -> Option<CallEstimate> {
    let text = site.size(1).times_factor(TEXT_FACTOR);
    estimate.map(|estimate| CallEstimate::cost(estimate.cost.plus(text)))
}

fn text_actual(args: &[Value<'_>]) -> u64 {
    times_factor(arg_size(args, 1), TEXT_FACTOR)
}

fn contains_ip_text_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    with_text(site, contains_ip_estimate(site))
}

fn contains_ip_text_actual(args: &[Value<'_>], result: &Value<'_>) -> u64 {
    contains_ip_actual(args, result) + text_actual(args)
}

fn contains_cidr_text_estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    with_text(site, contains_cidr_estimate(site))
}

fn contains_cidr_text_actual(args: &[Value<'_>], result: &Value<'_>) -> u64 {
    contains_cidr_actual(args, result) + text_actual(args)
}

fn read<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    Cidr::parse(text).map(opaque::value).map_err(EvalError::new)
}

fn is_cidr<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    Ok(Value::Bool(Cidr::parse(text).is_ok()))
}

fn receiver(call: &Call<'_, '_>) -> Result<Cidr, EvalError> {
    opaque::expect(call.args.first().unwrap_or(&Value::Null)).copied()
}

fn write<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(receiver(call)?.to_string()))
}

fn contains_ip<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let Ip(address) = match call.args.get(1) {
        // The reference does not report the parse error here.
        Some(Value::String(text)) => Ip::parse(text).map_err(|_| EvalError::no_such_overload())?,
        other => *opaque::expect(other.unwrap_or(&Value::Null))?,
    };
    Ok(Value::Bool(receiver(call)?.contains(address)))
}

fn contains_cidr<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let other = match call.args.get(1) {
        Some(Value::String(text)) => Cidr::parse(text).map_err(EvalError::new)?,
        other => *opaque::expect(other.unwrap_or(&Value::Null))?,
    };
    Ok(Value::Bool(receiver(call)?.contains_network(other)))
}

fn ip<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(opaque::value(Ip(receiver(call)?.address)))
}

fn prefix_length<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(receiver(call)?.bits.into()))
}

fn masked<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    Ok(opaque::value(receiver(call)?.masked()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Cidr {
        Cidr::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn networks_contain_their_addresses_and_subnets() {
        for (network, other, contained) in [
            ("10.0.0.0/8", "10.1.2.3/32", true),
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.1.2.3/8", "10.0.0.0/16", true),
            ("10.0.0.0/16", "10.0.0.0/8", false),
            ("10.0.0.0/8", "11.0.0.0/8", false),
            ("0.0.0.0/0", "255.255.255.255/32", true),
            ("0.0.0.0/0", "::/0", false),
            ("::/0", "2001:db8::/32", true),
            ("::1/128", "::1/128", true),
        ] {
            assert_eq!(parsed(network).contains_network(parsed(other)), contained, "{network} {other}");
        }
    }

    #[test]
    fn masking_clears_the_bits_behind_the_prefix() {
        for (network, want) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("2001:db8::1/64", "2001:db8::/64"),
            ("2001:db8::1/0", "::/0"),
            ("2001:db8::1/128", "2001:db8::1/128"),
        ] {
            assert_eq!(parsed(network).masked().to_string(), want);
        }
    }
}
