//! Helpers shared by this crate's own tests: a temporary directory, pseudo-random numbers, and headers of
//! segments.

use crate::header::{Header, Numbering, Rewritten};
use crate::types::{Revision, SegmentNumber};

pub(crate) use testkit::{Random, TempDir};

/// The header of a segment as the log writes it.
pub(crate) const HEADER: Header = Header {
    number: SegmentNumber::new(7),
    after: SegmentNumber::new(6),
    first_revision: Revision::new(100),
    salt: 99,
    store: 55,
    numbering: Numbering::Dense,
    rewritten: None,
};

/// The header of a rewritten segment.
pub(crate) const REWRITTEN: Header = Header {
    rewritten: Some(Rewritten {
        last_revision: Revision::new(200),
        oldest: Revision::new(250),
        records: 3,
        end: 5_000,
        tombstone_bytes: 80,
        tombstones_since: Revision::new(90),
    }),
    ..HEADER
};
