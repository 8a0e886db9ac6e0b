//! Failures of strategic merge patches.

use super::{Status, plain_error};

/// Reason why a patch cannot be merged. Each variant has its own status code.
#[derive(Debug)]
pub(super) enum MergeFailure {
    /// A 400 with this text.
    Malformed(&'static str),
    /// A 422 without a text.
    Unprocessable,
    /// A 500 with this text and without a reason.
    Other(String),
}

pub(super) type Outcome<T> = Result<T, MergeFailure>;

impl From<MergeFailure> for Status {
    fn from(failure: MergeFailure) -> Self {
        match failure {
            MergeFailure::Malformed(text) => Status::bad_request(text),
            MergeFailure::Unprocessable => Status::unprocessable(),
            MergeFailure::Other(text) => plain_error(text),
        }
    }
}
