//! The history of objects (docs/api/history.md), with the real binary and kubectl.
//!
//! ```text
//! as_of     reads at an earlier point return the same responses as at that time
//! clients   unmodified kubectl, Python and kube clients read an earlier point
//! commands  the commands that read histories, and restore one object
//! log       versions of an object, their authors, and restores
//! undo      all changes since a point are undone
//! ```

mod as_of;
mod clients;
pub mod commands;
mod log;
mod undo;
