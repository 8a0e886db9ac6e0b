//! The resource API: what HTTP requests mean, on top of engine snapshots.
//!
//! Eight rooms. Each imports only from those below it, which `layers_test.rs` checks:
//!
//! ```text
//! system    what runs beside requests: the start, the controllers
//! requests  the stages of a request, the routes, what each verb means
//! writes    admission, the write path, what the server writes by itself
//! state     permissions, allocations, flow control, audit, nodes and other servers, health
//! objects   patches, validation, ownership, conversion; records and representations
//! wire      connections, requests as they arrive, encodings, outgoing calls
//! types     schemas, the registry, discovery, OpenAPI, tables, selectors
//! values    JSON trees, fields, names, times, statuses
//! ```
//!
//! Start reading at [`requests::pipeline`]; [`requests::verbs`] says what each verb means, [`mod@writes::write`] how an
//! object gets into the store, [`types::schema::table`] what is known about types.
//! This crate knows HTTP, encodings and schemas, and neither files nor flags.

pub mod state;

pub mod writes;

pub mod requests;

pub mod system;

#[cfg(test)]
mod layers_test;
#[cfg(test)]
mod testing;
