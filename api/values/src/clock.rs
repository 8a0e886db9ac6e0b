//! Wall clock time, in the RFC 3339 form that objects use (UTC).

use std::time::Duration;

use jiff::Timestamp;

/// Returns the current time with second precision: `2006-01-02T15:04:05Z`.
pub fn now() -> String {
    format_seconds(Timestamp::now().as_second())
}

/// Returns the current date in UTC: `2006-01-02`.
pub fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}

/// Returns the current time with microsecond precision: `2006-01-02T15:04:05.000000Z`.
pub fn now_micros() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Returns the time `time` ago in Go's format: `2006-01-02T15:04:05.123456789Z`, without trailing zeros in
/// the fraction.
pub fn ago(time: Duration) -> String {
    let time = Timestamp::now().saturating_sub(time).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string()
}

/// Formats `seconds` since the Unix epoch as RFC 3339 in UTC.
pub fn format_seconds(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Parses an RFC 3339 text and returns its seconds since the Unix epoch.
pub fn parse_seconds(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|time| time.as_second())
}

/// Returns the current time in seconds since the Unix epoch.
pub fn now_seconds() -> i64 {
    Timestamp::now().as_second()
}
