//! Limits of devices that several modules use. Validation rules enforce the limits
//! (docs/api/validation.md#devices), the cost estimates of selectors use the limits, and quotas use the limits to count
//! devices. Limits that only validation needs are defined in the module of validation.

use super::validation::DRIVER_MAX;

/// Maximum number of attributes and capacities of a device together. The same limit applies to the number of domains,
/// and to the number of names in one domain.
pub(crate) const ATTRIBUTES_MAX: usize = 32;
/// Maximum length in bytes of the domain of an attribute or capacity. A domain has the syntax of a driver
/// name.
pub(crate) const DOMAIN_MAX: usize = DRIVER_MAX;
/// Maximum length in bytes of the name of an attribute or capacity within its domain.
pub(crate) const IDENTIFIER_MAX: usize = 32;
/// Maximum length in bytes of an attribute of type string or version.
pub(crate) const TEXT_MAX: usize = 64;
/// Maximum number of devices that are allocated to one claim.
pub const RESULTS_MAX: usize = 32;
