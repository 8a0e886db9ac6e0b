//! The end of the log at opening: the kept records are made durable, and the torn tail is overwritten. `recovery.rs`
//! has the reasons.

use std::io;
use std::ops::Range;

use super::files::failed;
use super::scan::LogScan;
use crate::error::OpenError;
use crate::io::Storage;
use crate::record::{HEAD_BYTES, Head};
use crate::sabotage;
use crate::segment::Segment;
use crate::types::KEY_BYTES_MAX;

/// Makes the records at the end of the log durable, and cuts the torn tail. `current` is the last segment, and
/// `state` is the result of its scan.
pub(super) fn secure_end(
    storage: &dyn Storage,
    current: &Segment,
    state: &LogScan,
    is_end_lost: bool,
) -> Result<(), OpenError> {
    let name = Segment::name(current.header.number);
    let stopped_at = state.stopped_at.max(current.end());
    end_is_readable(current, stopped_at).map_err(|source| {
        let (path, offset) = (storage.path(&name), stopped_at);
        OpenError::UnreadableEnd { path, offset, source }
    })?;
    let doubtful = state.doubtful.unwrap_or(current.end()).min(current.end());
    let written = write_again(current, doubtful..current.end());
    written.map_err(failed(storage, &name, "write the end again"))?;
    let cleared = clear_from(storage, current, current.end(), is_end_lost);
    cleared.map_err(failed(storage, &name, "clear the torn end"))?;
    if !sabotage::recovery_without_sync() {
        current.file.sync_data().map_err(failed(storage, &name, "sync"))?;
    }
    Ok(())
}

/// Checks that the bytes at the end of the log can be read. Readable bytes that are not a sound record were never
/// acknowledged. For bytes that the disk cannot read, this is unknown. A mapping shows zeros for such bytes
/// (`mapping.rs`), so this function does not read through a mapping.
fn end_is_readable(segment: &Segment, end: u64) -> io::Result<()> {
    if sabotage::unreadable_end_cut() {
        return Ok(());
    }
    let left = (segment.file.size() - end) as usize;
    let mut head = vec![0; left.min(HEAD_BYTES + KEY_BYTES_MAX)];
    segment.file.read_into(end, &mut head)?;
    // A sound head contains the length of its record.
    let head = Head::read(&segment.file.read(end, left)?, segment.header.salt, end);
    let mut record = vec![0; head.map_or(0, |head| head.record_len())];
    segment.file.read_into(end, &mut record)
}

/// Writes the bytes in the range again, so that the next sync writes them to the disk.
fn write_again(segment: &Segment, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() || sabotage::tail_not_rewritten() {
        return Ok(());
    }
    let bytes = segment.file.read(range.start, (range.end - range.start) as usize)?;
    segment.file.write_at(range.start, &bytes)
}

/// Overwrites everything behind the end of the log with zeros, including existing zeros. The documentation of
/// `recovery.rs` has the reason.
fn clear_from(storage: &dyn Storage, segment: &Segment, end: u64, is_end_lost: bool) -> io::Result<()> {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    let mut cleared = false;
    let mut at = end;
    segment.assume_filled(end);
    while let Some(stretch) = segment.file.written(at)? {
        if stretch.start == at {
            segment.assume_filled(stretch.end);
        }
        at = stretch.start;
        while at < stretch.end {
            let len = (stretch.end - at).min(ZEROS.len() as u64) as usize;
            let bytes = segment.file.read(at, len)?;
            cleared |= bytes.iter().any(|&b| b != 0);
            if !sabotage::torn_tail_not_cleared() {
                segment.file.write_at(at, &ZEROS[..len])?;
            }
            at += len as u64;
        }
    }
    if cleared {
        let path = storage.path(&Segment::name(segment.header.number));
        let path = path.display();
        if is_end_lost {
            // Some of the cleared records were acknowledged.
            tracing::error!(%path, offset = end, "removed the rest of the lost end of the log");
        } else {
            tracing::warn!(
                %path,
                offset = end,
                "cut the torn tail of the log: writes that a crash interrupted and that were never acknowledged"
            );
        }
    }
    Ok(())
}
