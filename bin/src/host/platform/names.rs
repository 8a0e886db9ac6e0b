//! The name of this machine.

/// Returns the host name. If the name is not UTF-8, invalid bytes become replacement characters.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
