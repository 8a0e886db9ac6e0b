//! Reads the wall clock, and writes and parses times as objects have them: RFC 3339 in UTC.

use std::time::Duration;

use jiff::Timestamp;

/// Now, in whole seconds: `2006-01-02T15:04:05Z`.
pub fn now() -> String {
    format_seconds(Timestamp::now().as_second())
}

/// Today, in UTC: `2006-01-02`.
pub fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}

/// Now, in microseconds: `2006-01-02T15:04:05.000000Z`.
pub fn now_micros() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// So long ago, as Go writes it: `2006-01-02T15:04:05.123456789Z`, without zeros at the end of the fraction.
pub fn ago(time: Duration) -> String {
    let time = Timestamp::now().saturating_sub(time).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string()
}

/// Seconds since the epoch as RFC 3339 in UTC.
pub fn format_seconds(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Seconds since the epoch of an RFC 3339 text.
pub fn parse_seconds(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|time| time.as_second())
}

/// Seconds since the epoch.
pub fn now_seconds() -> i64 {
    Timestamp::now().as_second()
}
