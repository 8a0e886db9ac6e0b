//! The ring of the newest events, which all tails share.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::Event;
use crate::types::Revision;

/// Maximum number of events in the ring. At a thousand writes a second, a tail may pause for 16 seconds
/// before it has to read from the log.
pub(crate) const RING_EVENTS_MAX: usize = 16 * 1024;
/// Maximum total size of the records of the ring's events, in bytes. The ring contains no values, but the
/// representations cached in its events are about as large as the records.
const RING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The newest events, in order.
pub(super) struct Ring {
    pub events: VecDeque<Arc<Event>>,
    /// The ring has all published events from this revision on.
    pub first: Revision,
    bytes: usize,
    events_max: usize,
}

impl Ring {
    /// Creates a ring without events, for events from revision `first` on.
    pub fn new(first: Revision, events_max: usize) -> Ring {
        Ring { events: VecDeque::new(), first, bytes: 0, events_max }
    }

    /// Adds the newest event, and drops the oldest events beyond the limits.
    pub fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.entry.stored_len();
        self.events.push_back(event);
        while self.events.len() > self.events_max || self.bytes > RING_BYTES_MAX {
            let Some(gone) = self.events.pop_front() else { break };
            self.bytes -= gone.entry.stored_len();
            self.first = gone.revision.next();
        }
    }

    /// Drops the events up to `oldest`, because they keep segments that could otherwise be deleted.
    pub fn forget(&mut self, oldest: Revision) {
        while self.events.front().is_some_and(|first| first.revision <= oldest)
            && let Some(gone) = self.events.pop_front()
        {
            self.bytes -= gone.entry.stored_len();
            self.first = gone.revision.next();
        }
    }
}
