//! Updates the high-water mark with the durable revision, once a second while there are writes.
//!
//! The log itself contains this information only once a later record is written or the store has gone idle,
//! and the information may be lost if the end of the file is cut off. With the mark, such a cut can remain
//! unnoticed only for the writes of the last second.

use std::time::Duration;

use super::{NAP_MAX, Tools, Turn};

/// Minimum time between two updates.
const PACE: Duration = Duration::from_secs(1);

/// State of the updates of the high-water mark.
#[derive(Default)]
pub(super) struct HighWaterUpdate {
    /// Time of the next update, in milliseconds since 1970.
    next_at_ms: u64,
    has_failed: bool,
}

impl HighWaterUpdate {
    /// Notes the durable revision, unless it was noted within the last second.
    pub fn turn(&mut self, tools: &Tools, now_ms: u64) -> Turn {
        let pace_ms = PACE.as_millis() as u64;
        // If the clock was set back, the interval begins anew.
        self.next_at_ms = self.next_at_ms.min(now_ms + pace_ms);
        if now_ms < self.next_at_ms {
            return Turn::Idle(Duration::from_millis(self.next_at_ms - now_ms));
        }
        let synced = tools.status.synced();
        if tools.high_water.mark().is_none_or(|mark| mark.durable >= synced) {
            return Turn::Idle(NAP_MAX);
        }
        self.next_at_ms = now_ms + pace_ms;
        let noted = tools.high_water.note(synced);
        if let Err(error) = &noted
            && !self.has_failed
        {
            tracing::warn!("cannot record how far the log is durable: {error}");
        }
        self.has_failed = noted.is_err();
        Turn::Worked
    }
}
