//! Scalars that JSON represents as text of a certain format. The server reads each scalar in every format
//! that the reference server accepts, and stores the scalar in the format that the reference server writes.
//!
//! `text → parse → canonical text`, borrowed if the text is already canonical, which is the common case.
//! This module depends on neither fields nor messages. The errors of this module are the messages that
//! clients see after the field's path.

pub mod duration;
pub mod time;
