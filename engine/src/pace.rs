//! How a file that nobody waits for gets to disk while others wait for theirs.
//!
//! `write → begin to write out → … → after a mebibyte, sync`
//!
//! A sync of the log may have to wait for what the disk is busy with, and for the blocks that the file system notes of
//! other files. One sync at the end of a large file would hold it up for long, one after each small write often. So the
//! disk begins with each write at once, and is waited for now and then.

use std::io;

use crate::io::File;

/// Bytes that may be on their way to the disk.
const UNSYNCED_MAX: u64 = 1024 * 1024;

/// Where one such file is; see the module.
#[derive(Default)]
pub(crate) struct Pace {
    unsynced: u64,
}

impl Pace {
    /// Hears that `len` bytes were written to `file` at `offset`. They need not be durable when this returns.
    pub fn wrote(&mut self, file: &dyn File, offset: u64, len: u64) -> io::Result<()> {
        self.unsynced += len;
        if self.unsynced < UNSYNCED_MAX {
            file.write_out(offset, len);
            return Ok(());
        }
        self.unsynced = 0;
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bytes::Bytes;

    use super::*;

    #[derive(Default)]
    struct Counting {
        begun: AtomicU32,
        synced: AtomicU32,
    }

    impl File for Counting {
        fn size(&self) -> u64 {
            u64::MAX
        }
        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn write_out(&self, _: u64, _: u64) {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        fn sync_data(&self) -> io::Result<()> {
            self.synced.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn read(&self, _: u64, _: usize) -> io::Result<Bytes> {
            Ok(Bytes::new())
        }
    }

    #[test]
    fn the_disk_begins_with_each_write_and_is_waited_for_once_a_mebibyte() {
        let (file, mut pace) = (Counting::default(), Pace::default());
        for at in 0..40 {
            pace.wrote(&file, at * 256 * 1024, 256 * 1024).unwrap();
        }
        assert_eq!((file.begun.into_inner(), file.synced.into_inner()), (30, 10));
        let (file, mut pace) = (Counting::default(), Pace::default());
        pace.wrote(&file, 0, 1 << 24).unwrap();
        assert_eq!((file.begun.into_inner(), file.synced.into_inner()), (0, 1));
    }
}
