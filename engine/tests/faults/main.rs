//! The engine on a disk that fails in every way a disk can, compared with a history of its requests and
//! answers.
//!
//! ```text
//! seed ─► fixture (fixture.rs): acts, faults, crashes ─► engine, stepped, on a simulated disk
//!             └─► history (history.rs): named guarantees ─► violation, with the seed
//! ```

mod crash;
mod damage;
mod fixture;
mod full_disk;
mod history;
mod mutations;
mod refusals;
