//! The path of a request through the server: steps, routes, and the implementation of each verb.

#[cfg(test)]
mod growth_test;
mod history;
mod large_requests;
pub mod past;
pub mod pipeline;
pub mod request;
mod request_labels;
pub mod routes;
pub(crate) mod scrape;
mod testing;
pub mod verbs;
