//! Environments and checks of the expressions in admission policies and webhooks.

pub mod declared;
pub mod environment;
pub mod mutation_values;
