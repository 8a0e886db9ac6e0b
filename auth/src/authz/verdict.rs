//! The result of the authorizers for one request.

use crate::decision::Decision;

/// A decision, with the errors on the way to it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Decision of the chain.
    pub decision: Decision,
    /// Errors that may have changed the decision.
    pub error: Option<String>,
}

impl Verdict {
    /// Creates a verdict without an error.
    pub(super) fn without_error(decision: Decision) -> Verdict {
        Verdict { decision, error: None }
    }
}
