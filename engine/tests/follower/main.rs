//! A follower: a store whose revisions come from elsewhere, with gaps and with several records of one revision.
//!
//! ```text
//! seed ─► script (script.rs): batches, and what the store says at each revision ─► store, on a simulated disk
//!                                                                                  or on a real one
//! ```

mod crash;
mod script;
mod stores;
