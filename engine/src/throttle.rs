//! Write throttle: background files are written in small pieces, so that they delay syncs of the log as
//! little as possible.
//!
//! `write a piece → wait until the disk has taken the piece → write a piece → … → one sync at the end`
//!
//! A sync of the log also flushes the disk's cache, whichever file filled it. With small pieces the next
//! commit waits for one piece at most. A sync after each piece would also involve the file system's journal,
//! for which commits wait as well. If the disk takes long for each piece regardless of its size, the pieces
//! grow.

use std::io;
use std::sync::Arc;

use crate::io::{Clock, File};

/// Minimum and maximum size of a piece, in bytes.
const PIECE_MIN: usize = 32 * 1024;
const PIECE_MAX: usize = 1024 * 1024;

/// Number of bytes after which the size of pieces is adjusted. The clock has millisecond resolution, so
/// shorter measurements are useless.
const LOOK_BYTES: u64 = 1024 * 1024;
/// If writing [`LOOK_BYTES`] took longer than this, the size of pieces doubles.
const LOOK_MS_MAX: u64 = 24;
/// If writing [`LOOK_BYTES`] took less than this, the size of pieces is halved.
const LOOK_MS_MIN: u64 = 6;

/// The write throttle of one background file; see the module.
pub(crate) struct WriteThrottle {
    clock: Arc<dyn Clock>,
    piece: usize,
    /// Bytes and milliseconds since the size of pieces was last adjusted.
    bytes: u64,
    ms: u64,
}

impl WriteThrottle {
    /// Creates a throttle that begins with small pieces.
    pub fn new(clock: Arc<dyn Clock>) -> WriteThrottle {
        WriteThrottle { clock, piece: PIECE_MIN, bytes: 0, ms: 0 }
    }

    /// Returns the number of bytes that are best passed to [`WriteThrottle::write`] at once.
    pub fn piece(&self) -> usize {
        self.piece
    }

    /// Writes `bytes` to `file` at `offset`. The bytes are durable only after the file is synced, which then
    /// takes little time.
    pub fn write(&mut self, file: &dyn File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // A rest that is smaller than a piece is written together with the last piece.
            let len = if bytes.len() < 2 * self.piece { bytes.len() } else { self.piece };
            let (piece, rest) = bytes.split_at(len);
            let begun_ms = self.clock.now_ms();
            file.write_at(offset, piece)?;
            file.write_out(offset, len as u64)?;
            self.record_write(len as u64, self.clock.now_ms().saturating_sub(begun_ms));
            offset += len as u64;
            bytes = rest;
        }
        Ok(())
    }

    fn record_write(&mut self, bytes: u64, ms: u64) {
        self.bytes += bytes;
        self.ms += ms;
        if self.bytes < LOOK_BYTES {
            return;
        }
        let ms = self.ms * LOOK_BYTES / self.bytes;
        (self.bytes, self.ms) = (0, 0);
        if ms > LOOK_MS_MAX {
            self.piece = (2 * self.piece).min(PIECE_MAX);
        } else if ms < LOOK_MS_MIN {
            self.piece = (self.piece / 2).max(PIECE_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;

    /// A disk that takes `piece_ms` for each piece, and its clock.
    #[derive(Default)]
    struct Disk {
        piece_ms: AtomicU64,
        now_ms: AtomicU64,
        written: Mutex<Vec<(u64, usize)>>,
        taken: Mutex<Vec<(u64, usize)>>,
    }

    impl Clock for Disk {
        fn now_ms(&self) -> u64 {
            self.now_ms.load(Ordering::Relaxed)
        }
    }

    impl File for Disk {
        fn size(&self) -> u64 {
            u64::MAX
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.written.lock().push((offset, bytes.len()));
            Ok(())
        }
        fn sync_data(&self) -> io::Result<()> {
            unreachable!("that is for the end")
        }
        fn write_out(&self, offset: u64, len: u64) -> io::Result<()> {
            self.now_ms.fetch_add(self.piece_ms.load(Ordering::Relaxed), Ordering::Relaxed);
            self.taken.lock().push((offset, len as usize));
            Ok(())
        }
        fn read(&self, _: u64, _: usize) -> io::Result<Bytes> {
            Ok(Bytes::new())
        }
    }

    #[test]
    fn throttled_writes_are_flushed_in_pieces_of_a_minimum_size() {
        let disk = Arc::new(Disk::default());
        let mut throttle = WriteThrottle::new(disk.clone());
        throttle.write(&*disk, 100, &[0; 3 * PIECE_MIN + 5]).unwrap();
        throttle.write(&*disk, 0, &[0; 7]).unwrap();
        throttle.write(&*disk, 0, &[]).unwrap();
        let piece = PIECE_MIN as u64;
        let want = [(100, PIECE_MIN), (100 + piece, PIECE_MIN), (100 + 2 * piece, PIECE_MIN + 5), (0, 7)];
        assert_eq!(*disk.written.lock(), want);
        assert_eq!(*disk.taken.lock(), want);
    }

    #[test]
    fn a_slower_disk_gets_larger_pieces() {
        let disk = Arc::new(Disk::default());
        let mut throttle = WriteThrottle::new(disk.clone());
        // When the disk becomes faster, pieces stay larger for longer, so that their size does not change all
        // the time.
        for (piece_ms, piece_kib) in [(0, 32), (1, 64), (5, 256), (1_000, 1024), (5, 512), (0, 32)] {
            disk.piece_ms.store(piece_ms, Ordering::Relaxed);
            for _ in 0..8 {
                throttle.write(&*disk, 0, &vec![0; LOOK_BYTES as usize]).unwrap();
            }
            assert_eq!(throttle.piece(), piece_kib * 1024, "{piece_ms} ms");
        }
    }
}
