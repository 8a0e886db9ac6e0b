//! State that the server keeps in memory in addition to the stored objects: permissions, allocations of
//! addresses, flow control, audit, connections to other servers, health.

pub mod allocation;
pub mod audit;
pub mod backup;
pub mod certificates;
pub mod connect;
pub mod debug;
pub mod edge;
pub mod extension;
pub mod fairness;
pub mod health;
pub(crate) mod impersonation;
pub mod log_files;
pub mod peers;
pub mod policy;
pub mod secrecy;
pub mod testing;
pub mod tokens;
pub mod zpages;
