//! Helpers that the tests of several crates share. This crate knows nothing of the product.

mod directory;
mod processor;
mod random;
mod skip;

pub use directory::TempDir;
pub use processor::processor_time;
pub use random::Random;
pub use skip::{reference, skip};
