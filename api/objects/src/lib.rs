//! Operations on single objects: patches, validation, field ownership, conversion, storage and
//! representation.

pub mod apply;
pub mod body;
pub mod changes;
pub mod codec;
pub mod conversion;
pub mod custom;
pub mod device_limits;
pub mod expression;
pub mod known_types;
pub mod lengths;
pub mod negotiate;
mod parameters;
pub mod patch;
pub mod representation;
pub mod request;
pub mod services;
pub mod store;
pub mod strategy;
pub mod user_info;
pub mod validation;
