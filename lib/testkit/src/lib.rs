//! Helpers that the tests of several crates share. This crate does not depend on the product.

mod directory;
mod processor;
mod random;
mod skip;
mod small_disk;

pub use directory::TempDir;
pub use processor::processor_time;
pub use random::Random;
pub use skip::{reference, skip};
pub use small_disk::SmallDisk;
