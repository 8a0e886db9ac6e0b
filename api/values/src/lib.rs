//! Values that do not depend on any type: JSON trees, field paths, names, times, statuses.

pub mod base64_text;
pub mod cancellation;
pub mod clock;
pub mod field;
pub mod image;
pub mod json;
pub mod log_limit;
pub mod memory;
pub mod names;
pub mod naming;
pub mod object;
pub mod qos;
pub mod query;
pub mod release;
pub mod request_scope;
pub mod retry;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod type_meta;
pub mod warning;
pub mod yaml;
