//! The result of the authorizers for one request.

use crate::decision::Decision;

/// A decision, with the errors of authorizers that failed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Decision of the chain.
    pub decision: Decision,
    /// Errors of authorizers. The decision might be different without these errors.
    pub error: Option<String>,
}

impl Verdict {
    /// Creates a verdict without an error.
    pub(super) fn without_error(decision: Decision) -> Verdict {
        Verdict { decision, error: None }
    }
}
