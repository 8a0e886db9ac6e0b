//! The writes under way: requests that have arrived and are not answered yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of writes under way on a server.
#[derive(Clone, Debug, Default)]
pub struct WritesUnderWay(Arc<AtomicUsize>);

/// A write under way. Dropping the value ends the write.
#[derive(Debug)]
pub struct WriteUnderWay(Arc<AtomicUsize>);

impl WritesUnderWay {
    /// Begins a write of a client.
    pub fn begin(&self) -> WriteUnderWay {
        self.0.fetch_add(1, Ordering::SeqCst);
        WriteUnderWay(self.0.clone())
    }

    /// Returns how many writes are under way.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for WriteUnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_counts_as_in_flight_until_its_guard_is_dropped() {
        let writes = WritesUnderWay::default();
        let (one, other) = (writes.begin(), writes.clone().begin());
        assert_eq!(writes.count(), 2);
        drop(one);
        assert_eq!(writes.count(), 1);
        drop(other);
        assert_eq!(writes.count(), 0);
    }
}
