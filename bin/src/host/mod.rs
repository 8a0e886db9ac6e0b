//! The machine and the process: files, certificates, sockets, logging, memory, profiles, and the end of the process.
//!
//! This module depends on no flag group, and connects to no other server.

pub mod allocator;
pub mod authorities;
pub mod debug_socket;
pub mod expiry;
pub mod failure;
pub mod files;
pub mod log_files;
pub mod logging;
pub mod machine;
pub mod memory_return;
pub mod notify;
pub mod pki;
pub mod platform;
pub mod process_end;
pub mod profiles;
pub mod reload;
pub mod welcome;
