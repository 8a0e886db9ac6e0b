//! Types made at run time.
