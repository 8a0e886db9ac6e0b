//! A running server for tests and benches: the real binary with its own directory, and a minimal client.
//!
//! The end-to-end tests and the benches share this crate. Servers listen on a free port, keep their data
//! below the system's temporary directory and are killed when dropped.

use std::time::Duration;

pub mod client;
pub mod server;

pub use client::{Client, Reply};
pub use server::{Options, Server, TempDir, spawn};

/// How long a test waits for something that normally takes milliseconds: enough for busy machines and for
/// disks that take a minute to sync.
pub const PATIENCE: Duration = Duration::from_secs(120);
