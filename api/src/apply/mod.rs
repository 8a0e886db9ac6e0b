//! Server-side apply and field ownership (docs/api/apply.md).
//!
//! ```text
//! update, create ─► track ─────────┐                      ┌─► compare ─► typed (the schema's view)
//!                                  ├─► managed (entries) ─┤
//! apply ─► configuration ─► merge ─┘                      └─► field::FieldSet
//! ```
//!
//! `track` follows writes that say what an object shall be; `configuration` carries out those that say what somebody
//! wants of it. Everything here is a function from values to values: requests, stores and clocks stay outside. The
//! sets are of one version each and are compared in that version (`versions`); what an endpoint never owns is said
//! by `reset`.

mod check;
mod collect;
mod compare;
mod configuration;
mod conflict;
pub mod last_applied;
mod managed;
mod merge;
pub mod reading;
mod reconcile;
mod reset;
pub mod scale;
#[cfg(test)]
mod scene;
mod text;
mod track;
mod typed;
mod versions;

pub use configuration::{Applied, ApplyError, apply};
pub use conflict::Conflicts;
pub use managed::{Managed, Manager, Operation, is_same_but_for_times};
pub use reset::Reset;
pub use track::{Writer, created, put_managed_fields, take_managed_fields, updated};
pub use versions::Versions;
