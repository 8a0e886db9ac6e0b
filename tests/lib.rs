//! A running server to test against: the real binary in a directory of its own, and a plain client for it.
//!
//! Shared by the end-to-end tests and the benches. Servers listen on a free port, keep their data below the
//! system's temporary directory and are killed when dropped.

use std::time::Duration;

pub mod client;
pub mod server;

pub use client::{Client, Reply};
pub use server::{Options, Server, TempDir};

/// How long a test waits for what takes milliseconds, before it says that it does not come: for machines that do a
/// lot of other things, on disks that take a minute to sync.
pub const PATIENCE: Duration = Duration::from_secs(120);
