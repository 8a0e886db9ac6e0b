//! Writes: admission, the write path, and the writes that the server makes itself.

pub mod accesses;
#[cfg(test)]
mod accesses_test;
pub mod admission;
pub mod backfill;
pub mod bootstrap;
pub mod creations;
pub mod loopback;
pub mod origin;
pub mod plugin;
pub mod pod;
pub mod quotas;
pub mod server;
pub mod stage;
pub mod write;
