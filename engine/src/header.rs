//! The first block of a segment: its header, and notes about the log that are made while the segment is
//! written.
//!
//! ```text
//! offset size                          header:  0  8  magic "REVLOG\r\n"
//!      0  128  header                           8  4  format version: 1 dense, 2 sparse revisions
//!   1024   32  a note                          12  4  segment number
//!   2048  128  copy of the header              16  4  number of the segment before it; 0 in the first
//!   3072   32  a note                          20  4  records                      \
//!                                              24  8  first revision                |  of a rewritten
//! note:    0  4  crc of salt, bytes 4..32      32  8  salt                          |  segment; zero in
//!          4  4  sequence, ascending           40  8  last revision                 |  one that the log
//!          8  8  synced                        48  8  history compacted up to here  |  was written to
//!         16  8  oldest                        56  8  end of the records           /
//!         24  8  zero                          64  8  store fingerprint
//!                                              72  8  bytes of tombstones (rewritten)
//!                                              80  8  tombstones since (rewritten)
//!                                              88 36  zero
//!                                             124  4  crc32 of bytes 0..124
//! ```
//!
//! Later formats must keep magic, version and crc at these offsets, so that a newer format can be
//! distinguished from damage. The block contains no record, so no record write touches it. Each part of the
//! block is in a disk sector of its own, so a torn write of one part leaves the other parts intact. The two
//! notes are written alternately.

use std::io;

use bytes::Bytes;

use crate::io::File;
use crate::sabotage;
use crate::types::{REVISION_END, Revision, SegmentNumber};

/// The newest format version that this release reads.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// Exclusive upper limit of segment numbers, so that there is always a next number.
pub(crate) const NUMBER_END: u32 = 1 << 31;
/// Offset of the first record in a segment.
pub(crate) const RECORDS_START: u64 = 4096;

const MAGIC: [u8; 8] = *b"REVLOG\r\n";
pub(crate) const HEADER_BYTES: usize = 128;
pub(crate) const SECOND_HEADER: usize = 2048;
const NOTE_BYTES: usize = 32;
const NOTES: [u64; 2] = [1024, 3072];

/// The description of a segment in its own file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    /// Number of the segment, which determines the name of its file. Segments made later have higher numbers.
    pub number: SegmentNumber,
    /// Number of the segment that was the previous one in the log when this segment was made; 0 for the first
    /// segment.
    pub after: SegmentNumber,
    /// Lowest revision that may be in the segment.
    pub first_revision: Revision,
    /// Random number that is part of the checksums of the records.
    pub salt: u64,
    /// Store fingerprint, the same in all segments of a store.
    pub store: u64,
    /// Order of the revisions of the records.
    pub numbering: Numbering,
    /// Additional fields of a segment that reclamation wrote.
    pub rewritten: Option<Rewritten>,
}

/// Order of the revisions of a segment's records. Segments with sparse revisions have format version 2,
/// because a release that supports only version 1 would report a gap between revisions as damage.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Numbering {
    /// Each revision is one higher than the revision before it (version 1).
    #[default]
    Dense,
    /// No revision is lower than the revision before it; there may be gaps, and several records may share one
    /// revision (version 2).
    Sparse,
}

impl Numbering {
    /// Returns the format version of this order.
    fn version(self) -> u32 {
        match self {
            Numbering::Dense => 1,
            Numbering::Sparse => 2,
        }
    }

    fn from_version(version: u32) -> Numbering {
        if version < 2 { Numbering::Dense } else { Numbering::Sparse }
    }

    /// Returns the lowest revision that may follow `revision` in the next record.
    pub fn lowest_after(self, revision: Revision) -> Revision {
        match self {
            Numbering::Dense => revision.next(),
            Numbering::Sparse => revision,
        }
    }
}

/// Properties of a segment that was complete when it got its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Rewritten {
    /// Last revision of the range of the log that the segment replaces. The range begins with the first
    /// revision of the segment.
    pub last_revision: Revision,
    /// Oldest revision at which the records can be read; older history was dropped.
    pub oldest: Revision,
    /// Number of records in the segment.
    pub records: u32,
    /// Offset at which the last record ends.
    pub end: u64,
    /// Bytes of the records that are tombstones.
    pub tombstone_bytes: u64,
    /// Lowest creation revision of any key with a tombstone; 0 if it is unknown or the segment has no
    /// tombstone.
    pub tombstones_since: Revision,
}

/// Reason why a file is not a segment.
pub(crate) enum HeaderError {
    Newer(u32),
    Damaged,
    Io(io::Error),
}

impl Header {
    /// Encodes the 128 bytes of one copy of the header.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let rewritten = self.rewritten.unwrap_or(Rewritten {
            last_revision: Revision::ZERO,
            oldest: Revision::ZERO,
            records: 0,
            end: 0,
            tombstone_bytes: 0,
            tombstones_since: Revision::ZERO,
        });
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&self.numbering.version().to_le_bytes());
        header[12..16].copy_from_slice(&self.number.get().to_le_bytes());
        header[16..20].copy_from_slice(&self.after.get().to_le_bytes());
        header[20..24].copy_from_slice(&rewritten.records.to_le_bytes());
        header[24..32].copy_from_slice(&self.first_revision.get().to_le_bytes());
        header[32..40].copy_from_slice(&self.salt.to_le_bytes());
        header[40..48].copy_from_slice(&rewritten.last_revision.get().to_le_bytes());
        header[48..56].copy_from_slice(&rewritten.oldest.get().to_le_bytes());
        header[56..64].copy_from_slice(&rewritten.end.to_le_bytes());
        header[64..72].copy_from_slice(&self.store.to_le_bytes());
        header[72..80].copy_from_slice(&rewritten.tombstone_bytes.to_le_bytes());
        header[80..88].copy_from_slice(&rewritten.tombstones_since.get().to_le_bytes());
        let crc = crc32fast::hash(&header[..HEADER_BYTES - 4]);
        header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Returns the first block of a segment with this header and without notes.
    pub fn block(&self) -> [u8; RECORDS_START as usize] {
        let header = self.bytes();
        let mut block = [0; RECORDS_START as usize];
        block[..HEADER_BYTES].copy_from_slice(&header);
        block[SECOND_HEADER..SECOND_HEADER + HEADER_BYTES].copy_from_slice(&header);
        block
    }

    /// Reads the header of segment `number` from either of its copies.
    pub fn read(number: SegmentNumber, file: &dyn File) -> Result<Header, HeaderError> {
        if file.size() < RECORDS_START {
            return Err(HeaderError::Damaged);
        }
        for at in [0, SECOND_HEADER as u64] {
            if at > 0 && sabotage::second_header_ignored() {
                break;
            }
            let bytes = file.read(at, HEADER_BYTES).map_err(HeaderError::Io)?;
            match Header::from_bytes(&bytes, file.size()) {
                Ok(header) if header.number == number => return Ok(header),
                Err(error @ HeaderError::Newer(_)) => return Err(error),
                _ => {}
            }
        }
        Err(HeaderError::Damaged)
    }

    /// Decodes one copy of the header, 128 bytes long, of a file of `size` bytes.
    pub fn from_bytes(bytes: &[u8], size: u64) -> Result<Header, HeaderError> {
        let crc_is_right = crc32fast::hash(&bytes[..HEADER_BYTES - 4]) == u32_at(bytes, 124);
        if bytes[..8] != MAGIC || !(crc_is_right || sabotage::crc_ignored()) {
            return Err(HeaderError::Damaged);
        }
        match u32_at(bytes, 8) {
            newer if newer > FORMAT_VERSION => Err(HeaderError::Newer(newer)),
            _ => Header::parse(bytes, size).ok_or(HeaderError::Damaged),
        }
    }

    /// Decodes the fields. Returns `None` if the fields are not plausible for a file of `size` bytes.
    fn parse(bytes: &[u8], size: u64) -> Option<Header> {
        let rewritten = Rewritten {
            last_revision: Revision::new(u64_at(bytes, 40)),
            oldest: Revision::new(u64_at(bytes, 48)),
            records: u32_at(bytes, 20),
            end: u64_at(bytes, 56),
            tombstone_bytes: u64_at(bytes, 72),
            tombstones_since: Revision::new(u64_at(bytes, 80)),
        };
        let header = Header {
            number: SegmentNumber::new(u32_at(bytes, 12)),
            after: SegmentNumber::new(u32_at(bytes, 16)),
            first_revision: Revision::new(u64_at(bytes, 24)),
            salt: u64_at(bytes, 32),
            store: u64_at(bytes, 64),
            numbering: Numbering::from_version(u32_at(bytes, 8)),
            rewritten: (rewritten.last_revision > Revision::ZERO).then_some(rewritten),
        };
        let sound = (Revision::FIRST..REVISION_END).contains(&header.first_revision)
            && (1..NUMBER_END).contains(&header.number.get())
            && header.after < header.number
            && header.rewritten.is_none_or(|rewritten| {
                (header.first_revision..REVISION_END).contains(&rewritten.last_revision)
                    && (rewritten.last_revision..REVISION_END).contains(&rewritten.oldest)
                    && (header.numbering == Numbering::Sparse
                        || u64::from(rewritten.records)
                            <= rewritten.last_revision.since(header.first_revision) + 1)
                    && (RECORDS_START..=size).contains(&rewritten.end)
                    && rewritten.tombstone_bytes <= rewritten.end - RECORDS_START
                    && rewritten.tombstones_since <= rewritten.last_revision
            });
        sound.then_some(header)
    }
}

/// A note about the log in the segment that is being written. The store writes notes from time to time and
/// when it closes. A note may be missing, and later writes may have made it out of date.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Note {
    /// Ascending number of the note; of the two notes in a segment, the one with the higher number is valid.
    pub sequence: u32,
    /// Everything up to this revision is durable.
    pub synced: Revision,
    /// History before this revision was compacted.
    pub oldest: Revision,
}

impl Note {
    /// Writes this note over the older of the segment's two notes. The caller syncs.
    pub fn write(&self, file: &dyn File, salt: u64) -> io::Result<()> {
        file.write_at(self.place(), &self.bytes(salt))
    }

    /// Returns the first block of a new segment with this note in it.
    pub fn block(&self, header: &Header) -> Bytes {
        let mut block = header.block();
        let at = self.place() as usize;
        block[at..at + NOTE_BYTES].copy_from_slice(&self.bytes(header.salt));
        Bytes::copy_from_slice(&block)
    }

    fn place(&self) -> u64 {
        NOTES[self.sequence as usize % 2]
    }

    fn bytes(&self, salt: u64) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.synced.get().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.oldest.get().to_le_bytes());
        let crc = Note::crc(&bytes, salt);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns the newest note of a segment; an empty note if the segment has no sound note.
    pub fn read(file: &dyn File, salt: u64) -> io::Result<Note> {
        let mut newest = Note::default();
        for at in NOTES {
            let bytes = file.read(at, NOTE_BYTES)?;
            let note = Note {
                sequence: u32_at(&bytes, 4),
                synced: Revision::new(u64_at(&bytes, 8)),
                oldest: Revision::new(u64_at(&bytes, 16)),
            };
            let sound = (Note::crc(&bytes, salt) == u32_at(&bytes, 0) || sabotage::crc_ignored())
                && note.synced < REVISION_END
                && note.oldest < REVISION_END;
            if sound && note.sequence > newest.sequence {
                newest = note;
            }
        }
        Ok(newest)
    }

    fn crc(bytes: &[u8], salt: u64) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&salt.to_le_bytes());
        crc.update(&bytes[4..]);
        crc.finalize()
    }
}

/// Returns the little-endian number at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the little-endian number at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::io::{Dir, Storage};
    use crate::testing::{HEADER, REWRITTEN, TempDir};

    fn file(temp: &TempDir) -> Arc<dyn File> {
        Dir::open(temp.path()).unwrap().unwrap().create("f", 8_192).unwrap()
    }

    #[test]
    fn a_header_is_read_from_either_of_its_two_copies() {
        let temp = TempDir::new();
        let file = file(&temp);
        let sparse = Header { numbering: Numbering::Sparse, ..HEADER };
        for header in [HEADER, REWRITTEN, sparse] {
            file.write_at(0, &header.block()).unwrap();
            for broken in [0, SECOND_HEADER as u64] {
                let good = file.read(broken + 30, 1).unwrap()[0];
                file.write_at(broken + 30, &[good ^ 4]).unwrap();
                assert_eq!(Header::read(SegmentNumber::new(7), &*file).ok(), Some(header));
                file.write_at(broken + 30, &[good]).unwrap();
            }
            assert!(matches!(Header::read(SegmentNumber::new(8), &*file), Err(HeaderError::Damaged)));
        }
        file.write_at(0, &[0; 4096]).unwrap();
        assert!(matches!(Header::read(SegmentNumber::new(7), &*file), Err(HeaderError::Damaged)));
    }

    #[test]
    fn header_fields_without_a_meaning_are_damage_despite_a_valid_checksum() {
        let temp = TempDir::new();
        let file = file(&temp);
        let rewritten = REWRITTEN.rewritten.unwrap();
        for header in [
            Header { first_revision: Revision::ZERO, ..HEADER },
            Header { first_revision: REVISION_END, ..HEADER },
            Header { after: SegmentNumber::new(7), ..HEADER },
            Header { rewritten: Some(Rewritten { last_revision: Revision::new(99), ..rewritten }), ..HEADER },
            Header { rewritten: Some(Rewritten { oldest: Revision::new(199), ..rewritten }), ..HEADER },
            Header { rewritten: Some(Rewritten { records: 102, ..rewritten }), ..HEADER },
            Header { rewritten: Some(Rewritten { end: 8_193, ..rewritten }), ..HEADER },
            Header { rewritten: Some(Rewritten { end: 4_095, ..rewritten }), ..HEADER },
            Header {
                rewritten: Some(Rewritten { tombstones_since: Revision::new(201), ..rewritten }),
                ..HEADER
            },
        ] {
            file.write_at(0, &header.block()).unwrap();
            assert!(
                matches!(Header::read(SegmentNumber::new(7), &*file), Err(HeaderError::Damaged)),
                "{header:?}"
            );
        }
        let mut newer = HEADER.block();
        newer[8] = FORMAT_VERSION as u8 + 1;
        let crc = crc32fast::hash(&newer[..124]).to_le_bytes();
        newer[124..128].copy_from_slice(&crc);
        file.write_at(0, &newer).unwrap();
        assert!(
            matches!(Header::read(SegmentNumber::new(7), &*file), Err(HeaderError::Newer(found)) if found == FORMAT_VERSION + 1)
        );
    }

    #[test]
    fn the_newest_undamaged_note_of_a_header_is_used() {
        let temp = TempDir::new();
        let file = file(&temp);
        file.write_at(0, &HEADER.block()).unwrap();
        assert_eq!(Note::read(&*file, 99).unwrap(), Note::default());
        let notes =
            [1, 2, 3].map(|n| Note { sequence: n, synced: Revision::new(n.into()), oldest: Revision::ZERO });
        for note in notes {
            note.write(&*file, 99).unwrap();
            assert_eq!(Note::read(&*file, 99).unwrap(), note);
            // A note is valid only in the segment that it was made for.
            assert_eq!(Note::read(&*file, 98).unwrap(), Note::default());
        }
        // The last note is torn, so the note before it is valid.
        file.write_at(NOTES[1] + 9, &[0xff]).unwrap();
        assert_eq!(Note::read(&*file, 99).unwrap(), notes[1]);
        assert_eq!(Header::read(SegmentNumber::new(7), &*file).ok(), Some(HEADER));
    }
}
