//! The way of a request: stages, routes, and what each verb means.

mod counted;
#[cfg(test)]
mod growth_test;
mod heavy;
pub mod pipeline;
pub mod routes;
pub(crate) mod scrape;
pub mod verbs;
