//! The store of a data directory: its identity, its location, its copy in etcd, upgrades and recorded losses.

pub mod copies;
pub mod etcd;
pub mod identity;
pub mod location;
pub mod losses;
pub mod relocation;
pub mod upgrade;
