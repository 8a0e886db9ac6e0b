//! Durations: signed nanoseconds in 64 bits, about ±292 years.
//!
//! Text is read as Go reads it, a sequence of decimal numbers with units (`1h30m`, `1.5s`, `-2us`). It is written in two
//! forms: as seconds (`5400s`, what `string(duration)` gives) and in units, as Go does (`1h30m0s`, what people read).

/// A span of time in nanoseconds, about ±292 years.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Duration {
    /// Nanoseconds.
    pub nanoseconds: i64,
}

/// Nanoseconds in a second.
pub const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The seconds of `nanos` with the shortest fraction that reads back, and `s`: `5400s`, `-0.5s`.
pub fn to_seconds_text(nanos: i64) -> String {
    format!("{}s", seconds(nanos))
}

/// The duration as a fractional number of seconds.
pub fn seconds(nanos: i64) -> f64 {
    // The whole part and the fraction are converted apart, which keeps the fraction's digits of long durations.
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
