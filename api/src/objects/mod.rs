//! What is done with one object: patches, validation, ownership, conversion, its record and its representations.

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
