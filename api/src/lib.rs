//! The resource API: serves HTTP requests for resources from snapshots of the engine.
//!
//! The crate has four layers. Each layer imports only from the layers below it; `layers_test.rs` checks this:
//!
//! ```text
//! system    work that is independent of requests: startup, controllers
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
//! describes how an object gets into the store, and [`types::schema::table`] contains the properties of each
//! type. This crate depends on HTTP, encodings and schemas. The crate reads no files and parses no flags.

pub mod state;

pub mod writes;

pub mod requests;

pub mod system;

#[cfg(test)]
mod layers_test;
#[cfg(test)]
mod testing;
