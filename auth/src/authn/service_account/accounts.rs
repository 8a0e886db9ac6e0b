//! The objects that a service account token names, and the interface that looks them up.

use std::time::SystemTime;

use serde::Serialize;

/// A reference to an object by its name and uid.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Reference {
    /// Name of the object.
    pub name: String,
    /// Uid of the object; empty if it is unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The identity of an object. Several objects can have the same name at different times.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Incarnation {
    /// Uid of the object.
    pub uid: String,
    /// Deletion time, if the object is being deleted.
    pub deleted: Option<SystemTime>,
}

/// The secret that stores a legacy token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TokenSecret {
    /// Whether the secret is being deleted.
    pub is_deleted: bool,
    /// Uid of the secret.
    pub uid: String,
    /// Token that the secret contains.
    pub token: Vec<u8>,
    /// Name of the label that marks the token as invalid, because it was not used for a long time. `None` if the
    /// label is not set.
    pub invalid_by: Option<String>,
    /// Whether a label records that the token was used today.
    pub is_use_noted: bool,
}

/// A lookup of service accounts, and of the objects to which tokens are bound. Implementations must not wait
/// for I/O.
pub trait AccountSource: Send + Sync {
    /// Returns the service account `name` in `namespace`.
    fn service_account(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// Returns the pod `name` in `namespace`.
    fn pod(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// Returns the secret `name` in `namespace`.
    fn secret(&self, namespace: &str, name: &str) -> Option<Incarnation>;
    /// Returns the node with this name.
    fn node(&self, name: &str) -> Option<Incarnation>;
    /// Returns the secret `name` in `namespace` with the legacy token that it contains.
    fn token_secret(&self, namespace: &str, name: &str) -> Option<TokenSecret>;
    /// Records that the token of a secret is used today. `uid` is the uid of the secret.
    fn note_use(&self, namespace: &str, secret: &str, uid: &str);
}
