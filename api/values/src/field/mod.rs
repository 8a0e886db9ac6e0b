//! Fields of objects: field errors, field paths and field sets.
//!
//! ```text
//! error      one finding of validation, with its field path
//! path       one step of a path in field ownership: member, keyed element, element of a set
//! set        a set of such paths, with set operations
//! fields_v1  the text form of a set in managed fields
//! ```

mod error;
mod fields_v1;
mod path;
mod set;

pub use error::go_float;
pub use error::{ERROR_BYTES_MAX, ERRORS_MAX, FieldError, FieldErrorKind, child, index, is_enough};
pub use fields_v1::{FieldsV1Error, NESTING_MAX, write_field, write_plain_field, write_step};
pub use go::quote as go_quote;
pub use path::{Element, KeyScalar, display};
pub use set::{FieldSet, Node};
