//! The processing of flags: sources and parsers of values, flags of kube-apiserver without effect, and the errors of
//! wrong flags.
//!
//! The flags themselves are declared in [`crate::config`]. This module does not depend on any single flag of
//! the server.

pub mod duration;
pub mod problems;
pub mod profile;
pub mod sources;
pub mod suggestion;
pub mod upstream;
pub mod value_parsers;
pub mod words;
