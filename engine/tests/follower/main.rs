//! A follower: a store whose revisions another store assigned, with gaps and with several records of one
//! revision.
//!
//! ```text
//! seed ─► script (script.rs): batches, and the states at each revision ─► store, on a simulated disk
//!                                                                          or on a real one
//! ```

mod crash;
mod script;
mod stores;
