//! Scalars that JSON represents as text of a certain format. Each is read in every format that the reference
//! server accepts, and stored in the one format that it writes.
//!
//! `text → parse → canonical text`, borrowed if the text is already canonical, which is the common case. This
//! module knows neither fields nor messages. Its errors are the messages that clients see after the field's
//! path.

pub mod duration;
pub mod time;
