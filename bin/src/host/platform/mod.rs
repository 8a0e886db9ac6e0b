//! The calls of the operating system that the standard library does not provide. All other files of this crate use only
//! the standard library and tokio to call the system. So a port to another system needs only another implementation of
//! this module.
//!
//! | file | contract | on a system without it |
//! |---|---|---|
//! | `process.rs` | resource usage of this process | `None`: the metrics are absent, and memory is not returned |
//! | `mappings.rs` | the files whose code is mapped into this process | empty: profiles have addresses without names |
//! | `sampling.rs` | a function is called on running threads after each period of processor time | never called: profiles are empty |
//! | `code_pages.rs` | the code of the start-up is not resident any more | nothing: it stays resident |
//! | `limits.rs` | the limit of open files is as high as possible | unchanged: fewer connections |
//! | `sockets.rs` | probes of idle connections, abstract names of sockets | no probes; such names are errors |
//! | `parent.rs` | a function is called when the parent process has ended | the number of the parent is read repeatedly |
//! | `names.rs` | the name of this machine | must exist |
//!
//! The implementation is for Linux.

pub mod code_pages;
pub mod limits;
pub mod mappings;
pub mod names;
pub mod parent;
pub mod process;
pub mod sampling;
pub mod sockets;
