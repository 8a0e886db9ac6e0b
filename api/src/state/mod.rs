//! What the server holds beside the objects: permissions, allocations, flow control, audit, other servers, health.

pub mod allocation;
pub mod audit;
pub mod backup;
pub mod certificates;
pub mod connect;
pub mod edge;
pub mod extension;
pub mod fairness;
pub mod health;
pub(crate) mod impersonation;
pub mod log_files;
pub mod policy;
pub mod replica;
pub mod secrecy;
pub mod tokens;
pub mod zpages;
