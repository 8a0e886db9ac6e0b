//! Limits of devices that several modules rely on: the rules enforce them (docs/api/validation.md#devices), selectors
//! estimate their cost by them, and quotas count by them. Limits that only the rules know stand there.

use super::validation::DRIVER_MAX;

/// Most attributes and capacities of a device together, and so most domains and most names in a domain.
pub(crate) const ATTRIBUTES_MAX: usize = 32;
/// Most bytes of the domain of an attribute or a capacity, which is written like the name of a driver.
pub(crate) const DOMAIN_MAX: usize = DRIVER_MAX;
/// Most bytes of the name of an attribute or a capacity within its domain.
pub(crate) const IDENTIFIER_MAX: usize = 32;
/// Most bytes of a text or a version among the attributes.
pub(crate) const TEXT_MAX: usize = 64;
/// Most devices that a claim gets.
pub const RESULTS_MAX: usize = 32;
