//! Who asks, and whether they may. Knows no HTTP and no store.
//!
//! ```text
//! Credentials ──authn::Authenticator──► User ─┐
//!                                             ├─ Attributes ──authz::Authorizer──► Authorized | Denied
//! verb, resource, namespace, name, path ──────┘                     │
//!                                                                   └─ PolicySource (implemented over the store)
//! ```
//!
//! What must be looked up (roles, bindings, service accounts) reaches this crate through narrow traits. Nothing
//! here blocks or does I/O, except that reading key and token files is left to the caller, who passes text.

pub mod attributes;
pub mod authn;
pub mod authz;
pub mod decision;
pub mod go;
pub mod identity;

pub use attributes::Attributes;
pub use authn::{Authenticated, Authenticator, AuthnError, Credentials};
pub use authz::Authorizer;
pub use decision::{Authorized, Decision, Denied};
pub use identity::User;
