//! The history of objects (docs/api/history.md), with the real binary and kubectl.
//!
//! ```text
//! as_of  answers of an earlier point are those that were sent then
//! log    versions of an object, their authors, and the way back
//! ```

mod as_of;
mod log;
