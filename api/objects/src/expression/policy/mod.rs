//! The environments of expressions in admission policies and webhooks, and what is wrong with such an expression.

pub mod declared;
pub mod environment;
pub mod form;
