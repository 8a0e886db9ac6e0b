//! Errors in the creation of a type at run time.

use super::table::Text;

/// Reason why a type cannot be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MakeError {
    /// Two fields of a struct have the same name.
    #[error("field {0} is there twice")]
    Twice(Text),
    /// A list has keys that its elements lack, or its elements are not structs.
    #[error("elements have no field {0} to tell them apart")]
    NoKey(Text),
    /// A default is not valid JSON.
    #[error("default of field {0} is not JSON")]
    Default(Text),
    /// The description of the type cannot be read.
    #[error("what describes the type cannot be read")]
    Unreadable,
    /// The schema is larger than any schema that a client can send.
    #[error("the schema has too many nodes")]
    TooLarge,
}
