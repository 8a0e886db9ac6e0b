//! Selectors of devices: expressions about one device that are checked on write
//! (docs/api/validation.md#devices).
//!
//! ```text
//! device.driver                          the driver that manages the device
//! device.attributes[domain].name         properties of the device: any value
//! device.capacity[domain].name           amounts that the device has: quantities
//! device.allowMultipleAllocations        whether several claims may share the device
//! ```
//!
//! Resource slices have maximum sizes, so the cost of an expression is known without a device. The scheduler
//! evaluates these expressions; the server only checks them.

use std::sync::LazyLock;

use cel::cost::{SizeEstimate, SizeHints, estimate};
use cel::environment::{Environment, Origin};
use cel::evaluation::Program;
use cel::library::quantity::quantity_type;
use cel::types::Type;

use super::base;
use super::types::Types;
use crate::device_limits::{ATTRIBUTES_MAX, DOMAIN_MAX, IDENTIFIER_MAX, TEXT_MAX};

/// Maximum cost of an expression for one device.
const COST_MAX: u64 = 1_000_000;

/// Reason why a device selector is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DeviceSelectorFault {
    /// The selector does not compile, or its value is not a boolean.
    Invalid(String),
    /// A constant part of the selector fails.
    Internal(String),
    /// The estimated cost of the selector is too high.
    Complex,
}

/// The constant environments of new and of stored expressions, which take some time to build.
static NEW: LazyLock<Environment> = LazyLock::new(|| declare(Origin::New));
static STORED: LazyLock<Environment> = LazyLock::new(|| declare(Origin::Stored));

fn declare(origin: Origin) -> Environment {
    let named = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
    let mut types = Types::default();
    let device = types.declare(
        "kubernetes.DRADevice",
        [
            ("driver", Type::String),
            ("attributes", named(Type::Any)),
            ("capacity", named(quantity_type())),
            ("allowMultipleAllocations", Type::Bool),
        ],
    );
    base(origin).clone().with_types(types.shared()).with_variable("device", device).with_bindings()
}

/// Checks the selector `text`.
///
/// # Errors
/// Returns the first fault: the selector does not compile, its value is not a boolean, a constant part of the
/// selector fails, or its cost is too high.
pub fn check(text: &str, origin: Origin) -> Result<(), DeviceSelectorFault> {
    let environment: &Environment = match origin {
        Origin::New => &NEW,
        Origin::Stored => &STORED,
    };
    let compiled = environment.compile(text);
    let checked =
        compiled.map_err(|issues| DeviceSelectorFault::Invalid(format!("compilation failed: {issues}")))?;
    let of = checked.result_type();
    if !matches!(of, Type::Bool | Type::Any) {
        let of = of.declared();
        return Err(DeviceSelectorFault::Invalid(format!(
            "must evaluate to bool or the unknown type, not {of}"
        )));
    }
    Program::new(&checked, environment)
        .map_err(|error| DeviceSelectorFault::Internal(format!("program instantiation failed: {error}")))?;
    if estimate(&checked, &Sizes).max > COST_MAX {
        return Err(DeviceSelectorFault::Complex);
    }
    Ok(())
}

/// Maximum sizes of the parts of a device.
struct Sizes;

impl SizeHints for Sizes {
    fn size(&self, path: &[&str]) -> Option<SizeEstimate> {
        let max = match *path {
            ["device"] => 0,
            ["device", "driver"] => DOMAIN_MAX,
            ["device", "allowMultipleAllocations"] => 1,
            ["device", "attributes" | "capacity"] => ATTRIBUTES_MAX,
            ["device", "attributes" | "capacity", "@keys"] => DOMAIN_MAX,
            ["device", "attributes" | "capacity", "@items" | "@values"] => ATTRIBUTES_MAX,
            ["device", "attributes" | "capacity", "@items" | "@values", "@keys"] => IDENTIFIER_MAX,
            ["device", "attributes", "@items" | "@values", _] => TEXT_MAX,
            ["device", "capacity", "@items" | "@values", "@items" | "@values"] => 0,
            _ => return None,
        };
        Some(SizeEstimate { min: 0, max: max as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_selectors_are_boolean_expressions_on_a_device() {
        let invalid = |text: &str| Err(DeviceSelectorFault::Invalid(text.to_owned()));
        for (text, want) in [
            ("true", Ok(())),
            ("device.driver == 'dra.example.com'", Ok(())),
            ("device.attributes['dra.example.com'].model == 'a100'", Ok(())),
            ("device.attributes['dra.example.com'].healthy", Ok(())),
            ("device.capacity['dra.example.com'].memory.compareTo(quantity('10Gi')) >= 0", Ok(())),
            ("'memory' in device.capacity['dra.example.com'] && device.allowMultipleAllocations", Ok(())),
            ("device.attributes['a.b'].version.isGreaterThan(semver('1.0.0'))", Ok(())),
            ("cel.bind(a, device.attributes['a.b'], a.x && a.y)", Ok(())),
            ("device.attributes.exists(d, d == 'a.b')", Ok(())),
            ("device.driver", invalid("must evaluate to bool or the unknown type, not string")),
            ("1 + 1", invalid("must evaluate to bool or the unknown type, not int")),
            (
                "noSuchVar",
                invalid(
                    "compilation failed: ERROR: <input>:1:1: undeclared reference to 'noSuchVar' (in container '')\n \
                     | noSuchVar\n | ^",
                ),
            ),
            (
                "device.name == 'x'",
                invalid(
                    "compilation failed: ERROR: <input>:1:7: undefined field 'name'\n | device.name == 'x'\n | ......^",
                ),
            ),
        ] {
            assert_eq!(check(text, Origin::New), want, "{text}");
        }
    }

    #[test]
    fn selectors_that_may_cost_too_much_are_refused() {
        let all = "device.attributes.all(a, device.attributes[a].all(b, device.attributes.all(c, \
                   device.attributes[c].all(d, device.attributes[a][b] == device.attributes[c][d]))))";
        assert_eq!(check(all, Origin::New), Err(DeviceSelectorFault::Complex));
    }
}
