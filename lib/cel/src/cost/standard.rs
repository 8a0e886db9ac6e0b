//! Estimates of the standard functions, by overload.
//!
//! Functions that are not listed here take about the same time for all arguments and cost 1.

use crate::cost::rules::{self, TEXT_FACTOR};
use crate::cost::{CallEstimate, CallSite, CostEstimate, SizeEstimate};
use crate::types::Type;

/// Maximum size of a named format, which bounds the cost of comparing two formats.
const FORMAT_SIZE_MAX: u64 = 64;

/// Estimates the cost of a call of a standard overload. `&&`, `||` and `? :` are not included, because their
/// cost depends on the cost of their operands.
pub fn estimate(overload: &str, site: &dyn CallSite) -> CallEstimate {
    let text = |arg: usize| site.size(arg).times_factor(TEXT_FACTOR);
    match (overload, site.len()) {
        ("string_format", 2) => CallEstimate::cost(text(0)),
        ("string_to_bytes", 1) => {
            // A character has at most four bytes.
            let SizeEstimate { min, max } = site.size(0);
            CallEstimate::cost(text(0)).with_size(SizeEstimate { min, max: max.wrapping_mul(4) })
        }
        ("bytes_to_string", 1) => {
            let SizeEstimate { min, max } = site.size(0);
            CallEstimate::cost(text(0)).with_size(SizeEstimate { min: min / 4, max })
        }
        ("strings_quote", 1) => {
            // The result has two quotes, and at most one escape for each character. In the reference, unknown
            // sizes wrap around.
            let SizeEstimate { min, max } = site.size(0);
            let max = max.wrapping_mul(2).wrapping_add(2);
            CallEstimate::cost(text(0)).with_size(SizeEstimate { min: min.wrapping_add(2), max })
        }
        ("starts_with_string" | "ends_with_string", 2) => CallEstimate::cost(text(1)),
        ("contains_string", 2) => CallEstimate::cost(text(0).times(text(1))),
        ("matches_string", 2) => CallEstimate::cost(rules::matching(site.size(0), site.size(1))),
        ("in_list", 2) => CallEstimate::cost(site.size(1).times_factor(1.0)),
        ("add_string" | "add_bytes", 2) => {
            let size = site.size(0).plus(site.size(1));
            CallEstimate::cost(size.times_factor(TEXT_FACTOR)).with_size(size)
        }
        // Concatenation copies no elements; the result refers to both lists.
        ("add_list", 2) => {
            CallEstimate::cost(CostEstimate::exactly(1)).with_size(site.size(0).plus(site.size(1)))
        }
        ("equals", 2) => CallEstimate::cost(library_equality(site).unwrap_or_else(|| comparison(site))),
        (
            "not_equals"
            | "less_string"
            | "less_equals_string"
            | "greater_string"
            | "greater_equals_string"
            | "less_bytes"
            | "less_equals_bytes"
            | "greater_bytes"
            | "greater_equals_bytes",
            2,
        ) => CallEstimate::cost(comparison(site)),
        _ => CallEstimate::cost(CostEstimate::exactly(1)),
    }
}

/// Estimates the cost of a comparison, which ends with the shorter operand. Scalars have size 1, which costs
/// 1.
fn comparison(site: &dyn CallSite) -> CostEstimate {
    let max = site.size(0).max.min(site.size(1).max);
    CostEstimate { min: max.min(1), max }.times_factor(TEXT_FACTOR)
}

/// Returns the cost of `==` between two values of one library type. `!=` has no such rule in the reference.
fn library_equality(site: &dyn CallSite) -> Option<CostEstimate> {
    let (Type::Opaque(name) | Type::Object(name)) = site.type_of(0) else { return None };
    if site.type_of(1) != site.type_of(0) {
        return None;
    }
    let max = match &**name {
        "kubernetes.NamedFormat" => FORMAT_SIZE_MAX,
        "kubernetes.URL" => match site.size(1) {
            SizeEstimate::UNKNOWN => 1,
            size => size.max,
        },
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => {
            return Some(CostEstimate::exactly(1));
        }
        name if name.starts_with("kubernetes.authorization.") => return Some(CostEstimate::exactly(1)),
        _ => return None,
    };
    Some(CostEstimate { min: 1, max }.times_factor(TEXT_FACTOR))
}
