//! The scalars that JSON writes as text of a certain form: each is read in every form the reference server
//! accepts and kept in the one form it writes.
//!
//! `text → parse → canonical text`, borrowed when the text was canonical already, which is the common case.
//! Nothing here knows fields or messages; errors are the sentences clients see behind the field's path.

pub mod duration;
pub mod time;
