//! The errors of the webhook that authenticates tokens.

/// Reasons why the webhook did not accept a token, for logs and token reviews.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WebhookError {
    /// The other server refused the token with this error.
    #[error("{0}")]
    Refused(String),
    /// The other server did not answer.
    #[error("{0}")]
    Unanswered(String),
    /// The response is not a token review.
    #[error("{0}")]
    Unreadable(String),
}
