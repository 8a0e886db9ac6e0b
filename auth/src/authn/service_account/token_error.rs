//! The reasons why a service account token is refused.

use go::QuotedList;

/// Reasons why a token of this server's issuers is refused. The texts equal the texts of kube-apiserver,
/// because token reviews contain these texts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    /// No known key verifies the signature.
    #[error("go-jose/go-jose: error in cryptographic primitive")]
    Signature,
    /// The claims are not a JSON object.
    #[error("service account token claims are malformed")]
    Malformed,
    /// A claim has the wrong JSON type.
    #[error("{0}")]
    WrongType(String),
    /// A time is not a number.
    #[error("go-jose/go-jose/jwt: expected number value to unmarshal NumericDate")]
    NoDate,
    /// The audiences are neither a string nor a list of strings.
    #[error("go-jose/go-jose/jwt: expected string or array value to unmarshal to Audience")]
    NoAudience,
    /// The current time is after `exp`.
    #[error("service account token has expired")]
    Expired,
    /// The current time is before `nbf`.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// The current time is before `iat`.
    #[error("service account token is issued in the future")]
    IssuedInFuture,
    /// The token has none of the accepted audiences.
    #[error("token audiences {} is invalid for the target audiences {}", QuotedList(.token), QuotedList(.target))]
    Audience {
        /// The audiences of the token.
        token: Vec<String>,
        /// The accepted audiences.
        target: Vec<String>,
    },
    /// The token names no account.
    #[error("resource name may not be empty")]
    NoName,
    /// The token names no namespace.
    #[error("the server could not find the requested resource")]
    NoNamespace,
    /// The account does not exist.
    #[error("serviceaccounts \"{0}\" not found")]
    NoAccount(String),
    /// The account is being deleted.
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted {
        /// Namespace of the account.
        namespace: String,
        /// Name of the account.
        name: String,
    },
    /// The bound object no longer exists.
    #[error("service account token has been invalidated")]
    Invalidated,
    /// A newer object has the same name as the bound object.
    #[error("{kind} UID ({current}) does not match {claim} ({claimed})")]
    OtherIncarnation {
        /// Kind of the bound object.
        kind: &'static str,
        /// Uid of the current object.
        current: String,
        /// Description of the claim in messages.
        claim: &'static str,
        /// Uid in the token.
        claimed: String,
    },
    /// A claim is missing in a legacy token.
    #[error("{0} claim is missing")]
    MissingClaim(&'static str),
    /// The subject of a legacy token is not the account in the token.
    #[error("sub claim is invalid")]
    OtherSubject,
    /// The secret of a legacy token no longer exists.
    #[error("Token has been invalidated")]
    SecretGone,
    /// The secret of a legacy token contains another token.
    #[error("Token does not match server's copy")]
    OtherToken,
    /// The account of a legacy token is being deleted.
    #[error("ServiceAccount {namespace}/{name} has been deleted")]
    LegacyAccountDeleted {
        /// Namespace of the account.
        namespace: String,
        /// Name of the account.
        name: String,
    },
    /// A newer account has the same name as the account of a legacy token.
    #[error("ServiceAccount UID ({current}) does not match claim ({claimed})")]
    OtherAccount {
        /// Uid of the current account.
        current: String,
        /// Uid in the token.
        claimed: String,
    },
    /// A legacy token is invalid because it was not used for a long time.
    #[error(
        "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. \
         Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{label}' label \
         from the secret to temporarily allow use of this token"
    )]
    MarkedInvalid {
        /// Namespace of the secret and the account.
        namespace: String,
        /// Name of the secret.
        secret: String,
        /// Name of the account.
        account: String,
        /// Label that marks the token as invalid.
        label: String,
    },
}
