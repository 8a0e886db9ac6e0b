//! Names in expressions.

use std::sync::Arc;

/// An identifier, field name or function name. Cloning is cheap.
pub type Name = Arc<str>;
