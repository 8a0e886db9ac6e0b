//! Environments of expressions in admission policies and webhooks, and checks of these expressions.

pub mod declared;
pub mod environment;
pub mod form;
