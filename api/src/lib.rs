//! The resource API: gives HTTP requests their meaning, on top of engine snapshots.
//!
//! The crate has four rooms. Each room imports only from rooms below it; `layers_test.rs` checks this:
//!
//! ```text
//! system    work that runs beside requests: startup, controllers
//! requests  the stages of a request, routes, the semantics of each verb
//! writes    admission, the write path, writes by the server itself
//! state     permissions, allocation, flow control, audit, nodes and other servers, health
//! ```
//!
//! Four crates lie below: `objects` (encodings, patches, validation, ownership, conversion, records and
//! representations), `wire` (connections, outgoing calls, metrics), `types` (schemas, the registry, discovery, OpenAPI,
//! tables, selectors) and `values` (JSON and YAML trees, fields, names, times, statuses).
//!
//! Start reading at [`requests::pipeline`]. [`requests::verbs`] describes each verb, [`mod@writes::write`]
//! describes how an object gets into the store, and [`types::schema::table`] holds the facts about each type.
//! This crate knows HTTP, encodings and schemas. It reads no files and parses no flags.

pub mod state;

pub mod writes;

pub mod requests;

pub mod system;

#[cfg(test)]
mod layers_test;
#[cfg(test)]
mod testing;
