//! The write path: the only way by which an object gets into the store.
//!
//! ```text
//! verbs (requests) ──┐                         ┌─► admission (two points)
//! controllers ───────┼─► WriteIntent + Source ─► path ─► ownership · allocation · strategy · validation
//! bootstrap, backfill┘                         └─► commit ─► store
//! ```
//!
//! Read `path` first: its one function lists the stages. `rounds` is the loop around it. The path knows no HTTP.
//! [`crate::requests::verbs`] defines the meaning of requests, and [`crate::writes::loopback`] contains the
//! writes of the server itself.

mod author;
#[cfg(test)]
mod behind_test;
pub mod commit;
#[cfg(test)]
mod custom_test;
#[cfg(test)]
mod definition_test;
pub mod deletion;
mod freshness;
pub mod intent;
pub mod ownership;
mod path;
mod round_end;
mod rounds;
#[cfg(test)]
pub(crate) mod server_fixture;
#[cfg(test)]
mod sharing_test;
mod stages;
#[cfg(test)]
mod table_test;

pub use intent::{Caller, Current, Form, Made, Outcome, Presence, Source, Wanted, WriteIntent, Written};
pub use rounds::write;
