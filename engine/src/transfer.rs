//! Frames that carry a backup from a running engine to its destination, over any medium.
//!
//! ```text
//! Engine::backup ─► Outgoing ─► start, (segment, data …) …, end ─► offline::Receiver ─► a store's directory
//!                      ▲                                               │
//!                      └────────── segments already received ──────────┘
//! ```
//!
//! Each frame carries its number and a checksum, and a transfer is complete only with the frame `end`. So the
//! receiver detects a transfer that was cut off, and a transfer in which a part was lost. `docs/format.md`
//! describes the layout.

use bytes::Bytes;

use crate::header::{HEADER_BYTES, Header, HeaderError, RECORDS_START, u32_at, u64_at};
use crate::io::read_around;
use crate::record::HEAD_BYTES;
use crate::segment::Segment;
use crate::types::Revision;

/// Version of the transfer that this release makes, and the newest that it reads.
pub(crate) const TRANSFER_VERSION: u32 = 1;

/// Maximum bytes of records in one frame. A sender has only this many bytes in memory, and a slow client
/// receives a frame in reasonable time.
pub(crate) const DATA_BYTES: usize = 256 * 1024;

/// Bytes before the contents of a frame.
pub(crate) const FRAME_HEAD: usize = 16;

const MAGIC: [u8; 8] = *b"REVBKUP\n";
const START_BYTES: usize = 48;
const ANNOUNCEMENT_BYTES: usize = HEADER_BYTES + 24;
/// Maximum length of the reason in a frame `failed`, in bytes.
const REASON_BYTES: usize = 1024;

const START: u32 = 1;
const SEGMENT: u32 = 2;
const DATA: u32 = 3;
const END: u32 = 4;
const FAILED: u32 = 5;

/// Contents of a frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Frame<'b> {
    /// The first frame of a transfer.
    Start(TransferStart),
    /// Beginning of a segment of the log; segments come in the order of the log.
    Segment(SegmentAnnouncement),
    /// The next bytes of the segment announced last.
    Data(&'b [u8]),
    /// The last frame of a complete transfer.
    End,
    /// The last frame of a failed transfer, with the reason.
    Failed(String),
}

/// The announcement of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TransferStart {
    pub segments: u32,
    pub store: u64,
    /// The revision at which the backup is consistent.
    pub revision: Revision,
    pub oldest: Revision,
    /// Bytes of records that will be sent.
    pub bytes: u64,
}

/// Announcement of a segment of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SegmentAnnouncement {
    pub header: Header,
    /// Size of the segment's file.
    pub size: u64,
    /// Offset at which the records of the segment end.
    pub end: u64,
    /// Whether the records are not sent, because the receiver has them already.
    pub held: bool,
}

/// Reason why bytes cannot be decoded as a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FrameError {
    /// A later release made the frame.
    Newer(u32),
    /// The bytes are not a frame, or a part is missing.
    Malformed,
}

impl Frame<'_> {
    /// Encodes the frame with the given number.
    pub fn encode(&self, number: u32) -> Bytes {
        let mut frame = vec![0; FRAME_HEAD];
        let kind = match self {
            Frame::Start(start) => {
                frame.extend_from_slice(&MAGIC);
                frame.extend_from_slice(&TRANSFER_VERSION.to_le_bytes());
                frame.extend_from_slice(&start.segments.to_le_bytes());
                for field in [start.store, start.revision.get(), start.oldest.get(), start.bytes] {
                    frame.extend_from_slice(&field.to_le_bytes());
                }
                START
            }
            Frame::Segment(announcement) => {
                frame.extend_from_slice(&announcement.header.bytes());
                for field in [announcement.size, announcement.end, announcement.held.into()] {
                    frame.extend_from_slice(&field.to_le_bytes());
                }
                SEGMENT
            }
            Frame::Data(bytes) => {
                frame.extend_from_slice(bytes);
                DATA
            }
            Frame::End => END,
            Frame::Failed(reason) => {
                frame.extend(reason.bytes().take(REASON_BYTES));
                FAILED
            }
        };
        seal(&mut frame, kind, number);
        frame.into()
    }

    /// Decodes the frame with the given number at the beginning of `bytes`, and returns it with its length.
    /// Returns `None` if there are not enough bytes yet.
    pub fn decode(bytes: &[u8], number: u32) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
        if bytes.len() < FRAME_HEAD {
            return Ok(None);
        }
        let (kind, len) = (u32_at(bytes, 4), u32_at(bytes, 8) as usize);
        if len > DATA_BYTES {
            return Err(FrameError::Malformed);
        }
        let Some(frame) = bytes.get(..FRAME_HEAD + len) else { return Ok(None) };
        if crc32fast::hash(&frame[4..]) != u32_at(frame, 0) || u32_at(frame, 12) != number {
            return Err(FrameError::Malformed);
        }
        let contents = &frame[FRAME_HEAD..];
        let decoded = match kind {
            START if len >= 12 && contents[..8] == MAGIC && u32_at(contents, 8) > TRANSFER_VERSION => {
                return Err(FrameError::Newer(u32_at(contents, 8)));
            }
            START if len == START_BYTES && contents[..8] == MAGIC => Frame::Start(TransferStart {
                segments: u32_at(contents, 12),
                store: u64_at(contents, 16),
                revision: Revision::new(u64_at(contents, 24)),
                oldest: Revision::new(u64_at(contents, 32)),
                bytes: u64_at(contents, 40),
            }),
            SEGMENT if len == ANNOUNCEMENT_BYTES => Frame::Segment(SegmentAnnouncement::decode(contents)?),
            DATA => Frame::Data(contents),
            END if len == 0 => Frame::End,
            FAILED => Frame::Failed(String::from_utf8_lossy(contents).into_owned()),
            _ => return Err(FrameError::Malformed),
        };
        Ok(Some((decoded, FRAME_HEAD + len)))
    }
}

impl SegmentAnnouncement {
    fn decode(contents: &[u8]) -> Result<SegmentAnnouncement, FrameError> {
        let (size, end) = (u64_at(contents, HEADER_BYTES), u64_at(contents, HEADER_BYTES + 8));
        let header = Header::from_bytes(&contents[..HEADER_BYTES], size).map_err(|error| match error {
            HeaderError::Newer(version) => FrameError::Newer(version),
            HeaderError::Damaged | HeaderError::Io(_) => FrameError::Malformed,
        })?;
        let sound = (RECORDS_START..=size).contains(&end);
        let held = u64_at(contents, HEADER_BYTES + 16) == 1;
        if sound { Ok(SegmentAnnouncement { header, size, end, held }) } else { Err(FrameError::Malformed) }
    }
}

/// Writes the head of a frame whose contents are complete.
fn seal(frame: &mut [u8], kind: u32, number: u32) {
    let len = (frame.len() - FRAME_HEAD) as u32;
    frame[4..8].copy_from_slice(&kind.to_le_bytes());
    frame[8..12].copy_from_slice(&len.to_le_bytes());
    frame[12..16].copy_from_slice(&number.to_le_bytes());
    let crc = crc32fast::hash(&frame[4..]);
    frame[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the bytes of `segment` at `offset` as the frame with the given number: at most as many as a frame
/// holds, and only bytes before `end`. The bytes are read once, directly into the frame. Unreadable bytes
/// are sent as zeros; the receiver checks every record.
pub(crate) fn data(segment: &Segment, offset: u64, end: u64, number: u32) -> Bytes {
    let len = (end - offset).min(DATA_BYTES as u64) as usize;
    let mut frame = vec![0; FRAME_HEAD + len];
    if let Some((at, error)) = read_around(&*segment.file, offset, &mut frame[FRAME_HEAD..]) {
        let segment = segment.header.number;
        tracing::error!(
            segment = segment.get(),
            offset = at,
            "a backup lacks records that the disk cannot read: {error}"
        );
    }
    seal(&mut frame, DATA, number);
    frame.into()
}

/// Description of a complete segment by a receiver that has a copy. The header alone does not suffice: a
/// machine that was reset to an earlier state may have completed the same segment a second time, with other
/// records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HeldSegment {
    pub header: Header,
    /// Offset at which the records of the segment end.
    pub end: u64,
    /// Offset of the last record, and the checksums at the beginning of that record.
    pub last: Option<(u64, [u8; 8])>,
}

const HELD_SEGMENT_BYTES: usize = HEADER_BYTES + 24;

impl HeldSegment {
    /// Encodes the first descriptions in `all`, as many as fit into `bytes_max` bytes.
    pub fn encode(all: &[HeldSegment], bytes_max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for held in all.iter().take(bytes_max / HELD_SEGMENT_BYTES) {
            let (offset, checksums) = held.last.unwrap_or_default();
            bytes.extend_from_slice(&held.header.bytes());
            bytes.extend_from_slice(&held.end.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&checksums);
        }
        bytes
    }

    /// Decodes descriptions of segments; `None` if the bytes are not such descriptions.
    pub fn decode(bytes: &[u8]) -> Option<Vec<HeldSegment>> {
        let entries = bytes.chunks(HELD_SEGMENT_BYTES);
        let held = entries.map(|entry| {
            let entry: &[u8; HELD_SEGMENT_BYTES] = entry.try_into().ok()?;
            let offset = u64_at(entry, HEADER_BYTES + 8);
            let checksums = u64_at(entry, HEADER_BYTES + 16).to_le_bytes();
            Some(HeldSegment {
                header: Header::from_bytes(&entry[..HEADER_BYTES], u64::MAX).ok()?,
                end: u64_at(entry, HEADER_BYTES),
                last: (offset != 0).then_some((offset, checksums)),
            })
        });
        held.collect()
    }

    /// Returns whether this describes `segment`, whose records end at `end`.
    pub fn describes(&self, segment: &Segment, end: u64) -> bool {
        self.header == segment.header
            && self.end == end
            && match self.last {
                None => end == RECORDS_START,
                Some((offset, checksums)) => {
                    let mut found = [0; 8];
                    (RECORDS_START..end.saturating_sub(HEAD_BYTES as u64 - 1)).contains(&offset)
                        && segment.file.read_into(offset, &mut found).is_ok()
                        && found == checksums
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::REWRITTEN;

    fn frames() -> Vec<Frame<'static>> {
        vec![
            Frame::Start(TransferStart {
                segments: 3,
                store: 55,
                revision: Revision::new(900),
                oldest: Revision::new(250),
                bytes: 70_000,
            }),
            Frame::Segment(SegmentAnnouncement { header: REWRITTEN, size: 8_192, end: 5_000, held: true }),
            Frame::Segment(SegmentAnnouncement { header: REWRITTEN, size: 8_192, end: 4_096, held: false }),
            Frame::Data(b"records"),
            Frame::Data(b""),
            Frame::End,
            Frame::Failed("the disk is gone".to_owned()),
        ]
    }

    #[test]
    fn transfer_frames_survive_a_round_trip_and_incomplete_frames_are_not_decoded() {
        for (number, frame) in frames().iter().enumerate() {
            let bytes = frame.encode(number as u32);
            assert_eq!(Frame::decode(&bytes, number as u32), Ok(Some((frame.clone(), bytes.len()))));
            for len in 0..bytes.len() {
                assert_eq!(Frame::decode(&bytes[..len], number as u32), Ok(None), "{frame:?}, {len}");
            }
            assert_eq!(
                Frame::decode(&bytes, number as u32 + 1),
                Err(FrameError::Malformed),
                "a frame is missing"
            );
        }
    }

    #[test]
    fn a_changed_byte_in_a_transfer_frame_is_detected() {
        for frame in frames() {
            let bytes = frame.encode(4);
            for at in 0..bytes.len() {
                let mut changed = bytes.to_vec();
                changed[at] ^= 4;
                let got = Frame::decode(&changed, 4);
                assert!(matches!(got, Err(_) | Ok(None)), "{frame:?}, byte {at}: {got:?}");
            }
        }
    }

    #[test]
    fn malformed_frame_contents_are_refused_despite_a_valid_checksum() {
        let seal = |kind, contents: &[u8]| {
            let mut frame = [&[0; FRAME_HEAD], contents].concat();
            seal(&mut frame, kind, 0);
            frame
        };
        let announcement = |size: u64, end: u64| {
            [&REWRITTEN.bytes()[..], &size.to_le_bytes(), &end.to_le_bytes(), &[0; 8]].concat()
        };
        let newer = [&MAGIC[..], &2u32.to_le_bytes()].concat();
        for (kind, contents, want) in [
            (START, newer, FrameError::Newer(2)),
            (START, vec![0; START_BYTES], FrameError::Malformed),
            (SEGMENT, vec![0; ANNOUNCEMENT_BYTES], FrameError::Malformed),
            // The records end before they begin, or behind the end of the file, or the file is too short for
            // its header.
            (SEGMENT, announcement(8_192, 4_095), FrameError::Malformed),
            (SEGMENT, announcement(8_192, 8_193), FrameError::Malformed),
            (SEGMENT, announcement(4_999, 4_096), FrameError::Malformed),
            (END, vec![0], FrameError::Malformed),
            (77, Vec::new(), FrameError::Malformed),
        ] {
            assert_eq!(Frame::decode(&seal(kind, &contents), 0), Err(want), "{kind}");
        }
        assert_eq!(
            Frame::decode(&[0xff; FRAME_HEAD], 0),
            Err(FrameError::Malformed),
            "longer than any frame"
        );
    }

    #[test]
    fn the_list_of_held_segments_is_encoded_up_to_a_size_limit() {
        let held = |end, last| HeldSegment { header: REWRITTEN, end, last };
        let all = [held(5_000, Some((4_200, *b"checksum"))), held(4_096, None), held(4_097, None)];
        let bytes = HeldSegment::encode(&all, 3 * HELD_SEGMENT_BYTES - 1);
        assert_eq!(HeldSegment::decode(&bytes).unwrap(), all[..2]);
        assert_eq!(HeldSegment::decode(b"").unwrap(), []);
        assert_eq!(HeldSegment::decode(&bytes[1..]), None);
        assert_eq!(HeldSegment::decode(&[0; HELD_SEGMENT_BYTES]), None);
    }
}
