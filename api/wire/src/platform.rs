//! Calls to the operating system that the standard library does not offer. All other files of this crate call
//! the system only through the standard library, tokio and socket2. Therefore a port to another system only
//! needs another implementation of this module.
//!
//! The implementation is for Linux.

/// Returns the name of this machine; empty if the system reports no name.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
