//! The write path, through which every object enters the store.
//!
//! ```text
//! verbs (requests) ──┐                         ┌─► admission (two points)
//! controllers ───────┼─► WriteIntent + ObjectSource ─► path ─► ownership · allocation · strategy · validation
//! bootstrap, backfill┘                         └─► commit ─► store
//! ```
//!
//! Read the module `path` first, which lists the stages. The module `rounds` has the loop that repeats the
//! stages. The write path does not depend on HTTP. The callers are the verbs of requests
//! ([`crate::requests::verbs`]) and the server's own writes ([`crate::writes::loopback`]).

pub mod author;
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

pub use intent::{
    Caller, Current, FunctionSource, ObjectForm, ObjectSource, Presence, RequestedChange, WriteIntent,
    WriteOutcome, WrittenObject,
};
pub use rounds::write;
