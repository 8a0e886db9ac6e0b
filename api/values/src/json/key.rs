//! Names of members.

use std::borrow::Cow;

/// A member name. Names that a schema declares are borrowed from the tables of the schema, and other names
/// are owned.
pub type Key = Cow<'static, str>;
