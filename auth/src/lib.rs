//! Authentication and authorization: finds the user of a request, and decides whether the request may
//! proceed.
//!
//! ```text
//! Credentials ──authn::Authenticator──► User ─┐
//!                                             ├─ Attributes ──authz::Authorizer──► Authorized | Denied
//! verb, resource, namespace, name, path ──────┘                     │
//!                                                                   └─ PolicySource (implemented over the store)
//! ```
//!
//! This crate reads roles, bindings and service accounts through small traits. The crate does not block and
//! does no I/O: the caller reads key and token files, and passes their text. This crate does not depend on
//! HTTP or on the store.

mod answer;
pub mod attributes;
pub mod authn;
pub mod authz;
pub mod decision;
pub mod document;
mod domain_keys;
pub mod expression_fault;
pub mod identity;
mod json_error;
pub mod strict;

pub use attributes::{Attributes, FieldRequirement, LabelRequirement, Selectors};
pub use authn::{Authenticated, Authenticator, AuthnError, Credentials};
pub use authz::Authorizer;
pub use decision::{Authorized, Decision, Denied};
pub use identity::User;
