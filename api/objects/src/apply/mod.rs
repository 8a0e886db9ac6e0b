//! Server-side apply and field ownership (docs/api/apply.md).
//!
//! ```text
//! update, create ─► track ─────────┐                      ┌─► compare ─► typed (the schema's view)
//!                                  ├─► managed (entries) ─┤
//! apply ─► configuration ─► merge ─┘                      └─► field::FieldSet
//! ```
//!
//! `track` handles creates, updates and patches; `configuration` handles applies. All functions are pure:
//! they do not access requests, the store or the clock. Each field set belongs to one version and is
//! compared in that version (`versions`). `reset` defines the fields that an endpoint does not own.

mod check;
mod collect;
mod compare;
mod configuration;
mod conflict;
#[cfg(test)]
mod fixture;
pub mod last_applied;
mod managed;
mod merge;
mod new_object_fields;
mod nulls;
pub mod parser;
mod policy_merge;
mod reconcile;
mod reset;
pub mod scale;
mod text;
mod track;
mod typed;
mod versions;

pub use configuration::{Applied, ApplyError, ConvertError, apply};
pub use conflict::Conflicts;
pub use managed::{Managed, Manager, ManagerOperation, is_same_but_for_times};
pub use policy_merge::{MergeError, merge_configuration};
pub use reset::Reset;
pub use track::{Writer, created, put_managed_fields, take_managed_fields, updated};
pub use versions::Versions;
