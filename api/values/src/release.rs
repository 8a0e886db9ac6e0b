//! The API release that this server implements.

/// The major number of the API release that this server implements.
pub const MAJOR: &str = "1";
/// The minor number of the API release that this server implements.
pub const MINOR: &str = "36";
