//! The records of the batch in the making, on their way into the log.
//!
//! `encode ─► buffer ─ a piece at a time, while more is encoded ─► file ─► the disk begins ─► … the rest ─► sync`
//!
//! A large batch is handed over while it grows, so that the disk works while the processor does: when the last record is
//! encoded, the disk has most of them. Nothing follows from that: what a batch has in the file before its sync is of no
//! more worth than what it has in the buffer. A crash meanwhile leaves what a crash during the sync leaves, some of the
//! batch's bytes. A batch that is refused takes them back first.

use std::io;

use crate::log::Log;
use crate::record::{self, Head, NewRecord};

/// Bytes handed over at a time. Half as much costs more in requests to the disk than it gains.
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces end where the file's pages do: one that the disk is at work on is not written to.
const PAGE_BYTES: usize = 4096;
/// Most pieces of a batch, unless it is a single larger record.
const PIECES_MAX: usize = 16;
/// A batch that has grown to this size is complete. A larger one would gain nothing: the sync is a small part of its time.
pub(crate) const BATCH_BYTES_MAX: usize = PIECES_MAX * PIECE_BYTES;

/// See the module. All of it will stand at the log's position.
pub(crate) struct Appender {
    bytes: Vec<u8>,
    /// How many of them are in the file.
    written: usize,
    /// How many the file may have some of.
    touched: usize,
    /// A piece could not be handed over: the batch will be refused, most likely.
    stuck: bool,
    piece_bytes: usize,
}

impl Appender {
    /// An empty one.
    pub fn new() -> Appender {
        Appender { bytes: Vec::new(), written: 0, touched: 0, stuck: false, piece_bytes: PIECE_BYTES }
    }

    /// From now on pieces have so many bytes.
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

    /// Encodes a record, for which there is room in the log's segment. Returns its offset there.
    pub fn push(&mut self, record: &NewRecord<'_>, log: &Log) -> u64 {
        let offset = log.position() + self.bytes.len() as u64;
        record::append(&mut self.bytes, record, log.current().header.salt, offset);
        self.write_piece(log);
        offset
    }

    /// The record of `len` bytes at `offset` of the log's segment, which was pushed.
    pub fn record(&self, offset: u64, len: usize, log: &Log) -> (Head, &[u8]) {
        let start = (offset - log.position()) as usize;
        let bytes = &self.bytes[start..start + len];
        let head = Head::read(bytes, log.current().header.salt, offset);
        (head.expect("a record just encoded reads back"), bytes)
    }

    /// Hands over what has come together, if that is a piece. The rest of the batch will meet the reason why it cannot
    /// be, and tell it.
    fn write_piece(&mut self, log: &Log) {
        if self.bytes.len() - self.written < self.piece_bytes || self.stuck {
            return;
        }
        let end = log.position() as usize + self.bytes.len();
        let end = self.bytes.len() - end % PAGE_BYTES.min(self.piece_bytes);
        let start = self.written;
        // There are blocks for the whole of it before the first piece is written, as for a batch that is written at once.
        let most = self.bytes.len().max(PIECES_MAX * self.piece_bytes);
        let room = if start == 0 { log.allocate(most as u64) } else { Ok(()) };
        match room.and_then(|()| self.write_until(end, log)) {
            Ok(()) => log.begin_write_out(start, end - start),
            Err(_) => self.stuck = true,
        }
    }

    /// Hands over what is not in the file yet. After an error some of it may be.
    pub fn write(&mut self, log: &Log) -> io::Result<()> {
        let start = self.written;
        self.write_until(self.bytes.len(), log)?;
        // The disk is at work on the rest already.
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

    /// Takes back, durably, what the file may have.
    pub fn take_back(&self, log: &Log) -> io::Result<()> {
        if self.touched > 0 { log.erase(self.touched) } else { Ok(()) }
    }

    /// What was taken back is to be written once more.
    pub fn begin_again(&mut self) {
        (self.written, self.touched, self.stuck) = (0, 0, false);
    }

    /// Begins a new batch.
    pub fn clear(&mut self) {
        self.bytes.clear();
        // One huge batch must not keep its memory for good.
        self.bytes.shrink_to(BATCH_BYTES_MAX);
        (self.written, self.touched, self.stuck) = (0, 0, false);
    }
}
