//! The encoded records of the current batch, and the writes that bring these records into the log.
//!
//! `encode ─► buffer ─ a piece at a time, while more is encoded ─► file ─► write-out begins ─► … the rest ─► sync`
//!
//! A large batch is written to the file while further records are encoded, so that the disk and the processor
//! work at the same time. When the last record is encoded, the disk already has most of the batch. Writing
//! early does not affect correctness. Bytes of a batch that are in the file before the sync are not part of
//! the log yet. A crash before the sync may leave some of these bytes in the file, as a crash during the sync
//! does. If the batch is refused, these bytes are erased first.

use std::io;

use crate::log::Log;
use crate::record::{self, Head, NewRecord};

/// Number of bytes written at a time. With half of this size, the additional requests to the disk would cost
/// more than the overlap saves.
const PIECE_BYTES: usize = 256 * 1024;
/// Page size of the file. Pieces end at page boundaries, so that no page is written to while the disk writes
/// it out.
const PAGE_BYTES: usize = 4096;
/// Maximum number of pieces in a batch, unless a single record is larger.
const PIECES_MAX: usize = 16;
/// Size at which a batch is complete. A larger batch would gain nothing, because the sync is a small part of
/// its time.
pub(crate) const BATCH_BYTES_MAX: usize = PIECES_MAX * PIECE_BYTES;

/// The encoded records of the current batch. The appender writes these bytes at the current position of the log.
pub(crate) struct Appender {
    bytes: Vec<u8>,
    /// Number of bytes that are in the file.
    written: usize,
    /// Number of bytes that may be partly in the file.
    touched: usize,
    /// Whether a piece could not be written. The batch will then most likely be refused.
    stuck: bool,
    piece_bytes: usize,
}

impl Appender {
    /// Creates an empty appender.
    pub fn new() -> Appender {
        Appender { bytes: Vec::new(), written: 0, touched: 0, stuck: false, piece_bytes: PIECE_BYTES }
    }

    /// Sets the size of the pieces from now on.
    #[cfg(feature = "fault")]
    pub fn set_piece_bytes(&mut self, piece_bytes: usize) {
        self.piece_bytes = piece_bytes;
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Encodes a record and returns its offset in the current segment of the log. The segment must have room
    /// for the record.
    pub fn push(&mut self, record: &NewRecord<'_>, log: &Log) -> u64 {
        let offset = log.position() + self.bytes.len() as u64;
        record::append(&mut self.bytes, record, log.current().header.salt, offset);
        self.write_piece(log);
        offset
    }

    /// Returns a record of `len` bytes that [`Appender::push`] encoded at `offset`.
    pub fn record(&self, offset: u64, len: usize, log: &Log) -> (Head, &[u8]) {
        let start = (offset - log.position()) as usize;
        let bytes = &self.bytes[start..start + len];
        let head = Head::read(bytes, log.current().header.salt, offset);
        (head.expect("a record just encoded reads back"), bytes)
    }

    /// Writes the collected bytes if they fill a piece. An error is not reported here, because the write of
    /// the rest of the batch fails in the same way and reports it.
    fn write_piece(&mut self, log: &Log) {
        if self.bytes.len() - self.written < self.piece_bytes || self.stuck {
            return;
        }
        let end = log.position() as usize + self.bytes.len();
        let end = self.bytes.len() - end % PAGE_BYTES.min(self.piece_bytes);
        let start = self.written;
        // Allocates blocks for the whole batch before the first piece is written, as for a batch that is
        // written at once.
        let most = self.bytes.len().max(PIECES_MAX * self.piece_bytes);
        let room = if start == 0 { log.allocate(most as u64) } else { Ok(()) };
        match room.and_then(|()| self.write_until(end, log)) {
            Ok(()) => log.begin_write_out(start, end - start),
            Err(_) => self.stuck = true,
        }
    }

    /// Writes the bytes that are not in the file yet. After an error some of these bytes may be in the file.
    pub fn write(&mut self, log: &Log) -> io::Result<()> {
        let start = self.written;
        self.write_until(self.bytes.len(), log)?;
        // The disk is already writing the other pieces.
        if start > 0 {
            log.begin_write_out(start, self.written - start);
        }
        Ok(())
    }

    fn write_until(&mut self, end: usize, log: &Log) -> io::Result<()> {
        log.allocate(end as u64)?;
        self.touched = end;
        log.write(self.written, &self.bytes[self.written..end])?;
        self.written = end;
        Ok(())
    }

    /// Erases the bytes that may be in the file. The erasure is durable.
    pub fn erase_written(&self, log: &Log) -> io::Result<()> {
        if self.touched > 0 { log.erase(self.touched) } else { Ok(()) }
    }

    /// Prepares the appender to write the erased bytes again.
    pub fn rewind(&mut self) {
        (self.written, self.touched, self.stuck) = (0, 0, false);
    }

    /// Begins a new batch.
    pub fn clear(&mut self) {
        self.bytes.clear();
        // A single huge batch must not keep its memory forever.
        self.bytes.shrink_to(BATCH_BYTES_MAX);
        (self.written, self.touched, self.stuck) = (0, 0, false);
    }
}
