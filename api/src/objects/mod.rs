//! Operations on single objects: patches, validation, ownership, conversion, storage and representation.

pub mod apply;
pub mod conversion;
pub mod custom;
pub(crate) mod device_limits;
pub mod expression;
pub mod lengths;
pub mod patch;
pub mod representation;
pub mod services;
pub mod store;
pub mod strategy;
pub mod validation;
