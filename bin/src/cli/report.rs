//! Formats numbers, times, keys and damage, as text and as JSON.

use engine::Revision;
use std::fmt::Write as _;

use engine::offline::Damage;
use jiff::Timestamp;
use serde::Serialize;

/// A damage in the JSON output. Unknown members are null.
#[derive(Debug, Serialize)]
pub struct DamageReport {
    problem: String,
    file: String,
    offset: Option<u64>,
    first_revision: Option<u64>,
    last_revision: Option<u64>,
    key: Option<String>,
}

impl From<&Damage> for DamageReport {
    fn from(damage: &Damage) -> DamageReport {
        DamageReport {
            problem: damage.problem.to_string(),
            file: damage.file.clone(),
            offset: damage.offset,
            first_revision: damage.revisions.map(|range| range.0).map(Revision::get),
            last_revision: damage.revisions.map(|range| range.1).map(Revision::get),
            key: damage.key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned()),
        }
    }
}

/// Formats a time of the log as RFC 3339, in UTC.
pub fn time(milliseconds: u64) -> String {
    let time = i64::try_from(milliseconds).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    // Only a manipulated file has times outside the range of `Timestamp`.
    time.map_or_else(|| format!("{milliseconds}ms"), |time| format!("{time:.3}"))
}

/// Formats a number of bytes with a unit.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut value, mut unit) = (count as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Converts bytes of the store to text without terminal control characters.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(safe, "{}", c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Formats `n` with the singular or plural noun.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_have_a_readable_form() {
        for (count, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 26, "64.0 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes(count), want);
        }
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_795_301_234_567), "2026-11-21T22:47:14.567Z");
        assert_eq!(time(u64::MAX), "18446744073709551615ms");
        assert_eq!(printable(b"/a\x1b[2J/\xff\n"), "/a\\u{1b}[2J/\u{fffd}\\n");
    }
}
