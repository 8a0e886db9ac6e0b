//! Rate limit for log lines that clients cause, so that clients cannot fill the disk.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum number of lines that may be logged at once. A deployment that starts with wrong credentials causes
/// fewer lines.
const BURST: u32 = 100;

/// Time after which one more line may be logged: ten lines a second in the long run.
const REFILL: Duration = Duration::from_millis(100);

/// Maximum length of a reason in a log line, in bytes. Texts of clients and webhooks can be longer.
const REASON_BYTES_MAX: usize = 1024;

/// Returns the beginning of `text` that fits into a log line.
pub fn shortened(text: &str) -> &str {
    let longest = REASON_BYTES_MAX.min(text.len());
    let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Rate limit of one kind of log line.
#[derive(Debug)]
pub struct LogLimit(Mutex<State>);

#[derive(Debug)]
struct State {
    left: u32,
    /// Time at which `left` was last raised; `None` before the first line.
    refilled: Option<Instant>,
    omitted: u64,
}

impl Default for LogLimit {
    fn default() -> LogLimit {
        LogLimit::new()
    }
}

impl LogLimit {
    /// Creates a limit that allows a full burst.
    pub const fn new() -> LogLimit {
        LogLimit(Mutex::new(State { left: BURST, refilled: None, omitted: 0 }))
    }

    /// Returns the number of lines that were omitted since the last logged line, or `None` if no line may be
    /// logged now.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        let refilled = *state.refilled.get_or_insert(now);
        let steps = now.saturating_duration_since(refilled).as_nanos() / REFILL.as_nanos();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        state.left = state.left.saturating_add(steps).min(BURST);
        state.refilled = Some(if state.left == BURST { now } else { refilled + REFILL * steps });
        if state.left == 0 {
            state.omitted += 1;
            return None;
        }
        state.left -= 1;
        Some(std::mem::take(&mut state.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_log_texts_are_truncated_between_characters() {
        assert_eq!(shortened("ab"), "ab");
        let long = format!("a{}", "é".repeat(REASON_BYTES_MAX));
        assert_eq!(shortened(&long).len(), REASON_BYTES_MAX - 1);
    }

    #[test]
    fn suppressed_log_lines_are_counted_and_announced_by_the_next_line() {
        let limit = LogLimit::new();
        let begin = Instant::now();
        let admitted = (0..BURST + 50).filter(|_| limit.admit_at(begin).is_some()).count();
        assert_eq!(admitted, BURST as usize);
        assert_eq!(limit.admit_at(begin + REFILL / 2), None);
        assert_eq!(limit.admit_at(begin + REFILL), Some(51));
        assert_eq!(limit.admit_at(begin + REFILL), None);
        assert_eq!(limit.admit_at(begin + 2 * REFILL), Some(1));
        // After a long pause only one burst is allowed.
        let later = begin + Duration::from_secs(3_600);
        let admitted = (0..2 * BURST).filter(|_| limit.admit_at(later).is_some()).count();
        assert_eq!(admitted, BURST as usize);
    }
}
