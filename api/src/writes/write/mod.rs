//! The write path: the one way by which an object gets into the store.
//!
//! ```text
//! verbs (requests) ──┐                         ┌─► admission (two points)
//! controllers ───────┼─► Intent + Source ─► path ─► ownership · allocation · strategy · validation
//! bootstrap, backfill┘                         └─► commit ─► store
//! ```
//!
//! Read `path` first: its one function is the list of the stages. The path knows no HTTP; what a request means is in
//! [`crate::requests::verbs`], what the server writes by itself in [`crate::writes::loopback`].

#[cfg(test)]
mod behind_test;
pub mod commit;
#[cfg(test)]
mod custom_test;
#[cfg(test)]
mod definition_test;
pub mod deletion;
pub mod intent;
pub mod ownership;
mod path;
#[cfg(test)]
pub(crate) mod server_fixture;
#[cfg(test)]
mod sharing_test;
mod stages;
#[cfg(test)]
mod table_test;

pub use intent::{Caller, Current, Form, Intent, Made, Outcome, Presence, Source, Wanted, Written};
pub use path::write;
