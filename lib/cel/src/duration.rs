//! Durations: signed nanoseconds in 64 bits, about ±292 years.
//!
//! Text is parsed as in Go, as a sequence of decimal numbers with units (`1h30m`, `1.5s`, `-2us`). Durations
//! are formatted in two ways: as seconds (`5400s`, the result of `string(duration)`), and with units as in Go
//! (`1h30m0s`, for messages).

/// A span of time in nanoseconds, about ±292 years.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Duration {
    /// Length in nanoseconds; may be negative.
    pub nanoseconds: i64,
}

/// Number of nanoseconds in a second.
pub const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Formats `nanos` as seconds with the shortest exact fraction: `5400s`, `-0.5s`.
pub fn to_seconds_text(nanos: i64) -> String {
    format!("{}s", seconds(nanos))
}

/// Returns the duration as a fractional number of seconds.
pub fn seconds(nanos: i64) -> f64 {
    // The whole part and the fraction are converted separately, which keeps the digits of the fraction of
    // long durations.
    (nanos / NANOS_PER_SECOND) as f64 + (nanos % NANOS_PER_SECOND) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_in_seconds() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "0.000000001s"),
            (1_500, "0.0000015s"),
            (-1_000_000, "-0.001s"),
            (5_400_000_000_000, "5400s"),
            (-93_784_000_000_005, "-93784.000000005s"),
            (60_000_000_000, "60s"),
        ] {
            assert_eq!(to_seconds_text(nanos), want);
        }
    }
}
