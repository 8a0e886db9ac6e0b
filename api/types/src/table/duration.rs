//! Human-readable durations in tables: `45s`, `5m30s`, `3h`, `2d4h`, `1y20d`
//! (docs/api/encodings.md#table-columns).

use std::fmt::Write;

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Seconds of a year of 365 days.
const YEAR: i64 = 365 * DAY;

/// Text for values that are not a time.
pub const UNKNOWN: &str = "<unknown>";

/// Formats a duration of `seconds`, rounded down to its one or two most significant units. A value between
/// minus one second and zero is `0s`, because clocks differ slightly; a lower value is `<invalid>`.
pub fn human(seconds: i64) -> String {
    let s = seconds;
    let mut text = String::with_capacity(8);
    match s {
        ..-1 => text.push_str("<invalid>"),
        -1 => text.push_str("0s"),
        _ if s < 2 * MINUTE => push_units(&mut text, &[(s, "s")]),
        _ if s < 10 * MINUTE => push_units(&mut text, &[(s / MINUTE, "m"), (s % MINUTE, "s")]),
        _ if s < 3 * HOUR => push_units(&mut text, &[(s / MINUTE, "m")]),
        _ if s < 8 * HOUR => push_units(&mut text, &[(s / HOUR, "h"), (s % HOUR / MINUTE, "m")]),
        _ if s < 2 * DAY => push_units(&mut text, &[(s / HOUR, "h")]),
        _ if s < 8 * DAY => push_units(&mut text, &[(s / DAY, "d"), (s % DAY / HOUR, "h")]),
        _ if s < 2 * YEAR => push_units(&mut text, &[(s / DAY, "d")]),
        _ if s < 8 * YEAR => push_units(&mut text, &[(s / YEAR, "y"), (s % YEAR / DAY, "d")]),
        _ => push_units(&mut text, &[(s / YEAR, "y")]),
    }
    text
}

/// Appends the counts of units. Counts of zero are left out, except for the first count.
fn push_units(text: &mut String, counts: &[(i64, &str)]) {
    for (at, (count, unit)) in counts.iter().enumerate() {
        if at == 0 || *count > 0 {
            let _ = write!(text, "{count}{unit}"); // writing to memory cannot fail
        }
    }
}

/// Parses a time; returns `None` if the text is empty, not RFC 3339, or the zero time.
pub fn time(text: &str) -> Option<Timestamp> {
    let time: Timestamp = text.parse().ok()?;
    // The reference server writes the zero time as year 1.
    (text.as_bytes().first_chunk() != Some(b"0001")).then_some(time)
}

/// Returns the seconds from `since` to `until`, rounded towards zero.
pub fn seconds_between(since: Timestamp, until: Timestamp) -> i64 {
    until.duration_since(since).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_tables_have_the_documented_form() {
        for (seconds, want) in [
            (-100, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (659, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR + 600, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY + 5 * HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 3 * DAY, "2y3d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR, "8y"),
            (20 * YEAR + 5 * DAY, "20y"),
        ] {
            assert_eq!(human(seconds), want, "{seconds} s");
        }
    }

    #[test]
    fn unset_and_malformed_times_are_none() {
        assert!(time("2026-01-02T03:04:05Z").is_some());
        assert!(time("2026-01-02T03:04:05.123456Z").is_some());
        for text in ["", "0001-01-01T00:00:00Z", "yesterday", "2026-13-01T00:00:00Z"] {
            assert!(time(text).is_none(), "{text}");
        }
        let until = time("2026-01-02T03:04:05Z").unwrap();
        let since = time("2026-01-02T03:04:05.9Z").unwrap();
        assert_eq!(seconds_between(since, until), 0, "rounded towards zero, so this is 0s and not <invalid>");
    }
}
