//! The clock of the server, and the RFC 3339 form of times in objects (UTC).
//!
//! The time of the server is the time of the machine, unless the test features (`--testing`) have moved the
//! clock. Until the clock is moved, a read costs only one relaxed load more than a read of the machine's
//! clock.
//!
//! The clock belongs to the process, not to a server. About forty functions read the time, and many of them
//! have no access to a server (defaults of kinds, ages in tables, managed fields). A process with the test
//! features runs only one server.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio::sync::watch;

/// Relation between the time of the server and the time of the machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Motion {
    /// The server is ahead of the machine by this duration, which may be negative.
    Ahead(SignedDuration),
    /// The time of the server stands still.
    Frozen(Timestamp),
}

/// Whether the clock was ever moved.
static IS_MOVED: AtomicBool = AtomicBool::new(false);
static MOTION: RwLock<Motion> = RwLock::new(Motion::Ahead(SignedDuration::ZERO));
/// Counts the moves of the clock and wakes the tasks that sleep.
static MOVES: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

/// The earliest and the latest time that the clock can be set to, in seconds since the Unix epoch: 1970 and
/// the beginning of 2100. The store keeps expiry times in 32 bits, whose range ends in 2106.
const SETTABLE: std::ops::RangeInclusive<i64> = 0..=4_102_444_800;

/// Returns the time of the server.
pub fn timestamp() -> Timestamp {
    let machine = Timestamp::now();
    if !IS_MOVED.load(Ordering::Relaxed) {
        return machine;
    }
    match *MOTION.read() {
        Motion::Ahead(ahead) => machine.saturating_add(ahead).unwrap_or(machine),
        Motion::Frozen(time) => time,
    }
}

/// Returns the time of the server as a [`SystemTime`].
pub fn system_time() -> SystemTime {
    if IS_MOVED.load(Ordering::Relaxed) { timestamp().into() } else { SystemTime::now() }
}

/// Returns whether the time of the server stands still.
pub fn is_frozen() -> bool {
    matches!(*MOTION.read(), Motion::Frozen(_))
}

/// Sets the time of the server. The clock then continues to run, or stands still if `frozen` is true. Wakes
/// every task that waits for a time.
///
/// # Errors
/// A message with the accepted range if `time` is out of range.
pub fn set(time: Timestamp, frozen: bool) -> Result<(), String> {
    if !SETTABLE.contains(&time.as_second()) {
        return Err(format!(
            "{time} is out of range: the clock can be set between {} and {}",
            format_seconds(*SETTABLE.start()),
            format_seconds(*SETTABLE.end())
        ));
    }
    let motion =
        if frozen { Motion::Frozen(time) } else { Motion::Ahead(time.duration_since(Timestamp::now())) };
    change(motion);
    Ok(())
}

/// Lets the time of the server follow the clock of the machine again.
pub fn reset() {
    change(Motion::Ahead(SignedDuration::ZERO));
}

fn change(motion: Motion) {
    *MOTION.write() = motion;
    IS_MOVED.store(true, Ordering::Relaxed);
    MOVES.send_modify(|moves| *moves += 1);
}

/// A stopwatch that measures the time of the server.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    began: Timestamp,
    moves: watch::Receiver<u64>,
}

impl Stopwatch {
    /// Starts a stopwatch at the current time.
    pub fn start() -> Stopwatch {
        Stopwatch { began: timestamp(), moves: MOVES.subscribe() }
    }

    /// Returns the time of the server since the start; zero if the clock was set to a time before the start.
    pub fn elapsed(&self) -> Duration {
        timestamp().duration_since(self.began).try_into().unwrap_or_default()
    }

    /// Resolves when the clock is moved; a move since the previous call counts too.
    pub async fn moved(&mut self) {
        // The sender is never dropped.
        let _ = self.moves.changed().await;
    }
}

/// Sleeps for a duration of the server's time: the sleep ends early if the clock is set forward, and does not end
/// while the clock stands still.
pub async fn sleep(duration: Duration) {
    let mut stopwatch = Stopwatch::start();
    loop {
        let left = duration.saturating_sub(stopwatch.elapsed());
        if left.is_zero() {
            return;
        }
        // While the clock stands still, only a move ends the sleep.
        let frozen = IS_MOVED.load(Ordering::Relaxed) && is_frozen();
        tokio::select! {
            () = tokio::time::sleep(left), if !frozen => {}
            () = stopwatch.moved() => {}
        }
    }
}

/// Returns the current time with second precision: `2006-01-02T15:04:05Z`.
pub fn now() -> String {
    format_seconds(now_seconds())
}

/// Returns the current date in UTC: `2006-01-02`.
pub fn today() -> String {
    timestamp().strftime("%Y-%m-%d").to_string()
}

/// Returns the current time with microsecond precision: `2006-01-02T15:04:05.000000Z`.
pub fn now_micros() -> String {
    timestamp().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Returns the time `time` ago in Go's format: `2006-01-02T15:04:05.123456789Z`, without trailing zeros in
/// the fraction.
pub fn ago(time: Duration) -> String {
    let time = timestamp().saturating_sub(time).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string()
}

/// Formats `seconds` since the Unix epoch as RFC 3339 in UTC.
pub fn format_seconds(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Formats `time` as RFC 3339 in UTC with the precision of commit times: `2006-01-02T15:04:05.000Z`.
pub fn format_millis(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Parses an RFC 3339 text and returns its seconds since the Unix epoch.
pub fn parse_seconds(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|time| time.as_second())
}

/// Returns the current time in seconds since the Unix epoch.
pub fn now_seconds() -> i64 {
    timestamp().as_second()
}
