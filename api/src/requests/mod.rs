//! The path of a request through the server: steps, routes, and the implementation of each verb.

mod counted;
#[cfg(test)]
mod growth_test;
mod history;
mod large_requests;
pub mod past;
pub mod pipeline;
pub mod request;
pub mod routes;
pub(crate) mod scrape;
pub mod verbs;
