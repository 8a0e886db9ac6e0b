//! The mechanics of flags: parsers of values, flags of kube-apiserver without effect, and the errors of wrong flags.
//!
//! The flags themselves are declared in [`crate::config`]. Nothing here knows a flag of this server by its meaning.

pub mod duration;
pub mod forms;
pub mod problems;
pub mod profile;
pub mod sources;
pub mod suggestion;
pub mod upstream;
pub mod words;
