//! The store of a data directory: identity, location, local copies of etcd, moves, upgrades, recorded losses,
//! and the time of the last backup.

pub mod copies;
pub mod etcd;
pub mod identity;
pub mod last_backup;
pub mod location;
pub mod losses;
pub mod relocation;
pub mod upgrade;
