//! Authorization: the authorizers run in the configured order. Each authorizer allows the request, denies it,
//! or has no opinion.
//!
//! `system:masters → mode 1 → mode 2 → … → denied` (docs/api/authorization.md#authorizers)

pub mod abac;
pub mod aggregation;
mod chain;
mod condition;
pub mod config;
pub mod escalation;
mod impersonation;
mod impersonation_mode;
mod permitted;
pub mod policy;
pub mod rbac;
mod verdict;
pub mod webhook;

pub use chain::{Authorizer, Listed, Mode, Module, NodePolicy};
pub use condition::Conditions;
pub use escalation::{Escalation, RoleWrite};
pub use impersonation::Refused;
pub use impersonation_mode::node_of;
pub use policy::{Binding, Policy, PolicySource, RoleRef, Rule, Subject};
pub use verdict::Verdict;
