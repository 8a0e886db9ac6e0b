//! The resource API: what HTTP requests mean, on top of engine snapshots.
//!
//! ```text
//! server ─► pipeline ─► verbs ─┬─► store ─► engine
//!              │               ├─► write: admission · strategy · allocation · validation ─► store
//!              │               ├─► schema · patch · selector
//!              ▼               └─► representation · table · convert ─► response
//!        auth · discovery · openapi · health
//! ```
//!
//! Start reading at [`pipeline`]; [`verbs`] says what each verb means, [`mod@write`] how an object
//! gets into the store, [`schema::table`] what is known about types.
//! This crate knows HTTP, encodings and schemas, and neither files nor flags.

pub mod admission;
pub mod allocation;
pub mod apply;
pub mod attributes;
pub mod audit;
pub mod backfill;
pub mod backup;
pub mod bloom;
pub mod body;
pub mod bootstrap;
pub mod certificates;
pub mod clock;
pub mod codec;
pub mod compress;
pub mod connect;
pub mod context;
pub mod controllers;
pub mod conversion;
pub mod convert;
pub mod custom;
pub mod discovery;
pub mod edge;
pub mod enablement;
pub mod expression;
pub mod extension;
pub mod fairness;
pub mod features;
pub mod field;
pub mod health;
mod impersonation;
pub mod json;
mod keepalive;
#[cfg(test)]
mod layers_test;
pub mod loopback;
pub mod memory;
pub mod metrics;
pub mod names;
pub mod naming;
pub mod negotiate;
pub mod object;
pub mod openapi;
pub mod options;
pub mod outgoing;
pub mod patch;
pub mod pipeline;
pub mod policy;
pub mod qos;
pub mod query;
pub mod replica;
pub mod representation;
pub mod request;
pub mod response;
pub mod retry;
pub mod routes;
pub mod schema;
mod scrape;
pub mod selector;
pub mod served;
pub mod server;
pub mod stage;
pub mod startup;
pub mod status;
pub mod store;
pub mod strategy;
pub mod table;
#[cfg(test)]
mod testing;
pub mod tokens;
pub mod traces;
pub mod validation;
pub mod verbs;
pub mod version;
pub mod warning;
pub mod write;
pub mod zpages;
