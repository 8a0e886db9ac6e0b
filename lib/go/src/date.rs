//! Numeric dates (RFC 7519), ordered as in Go's `time`.

/// Seconds between the year 1, from which Go counts, and 1970.
const TO_1970: i64 = 62_135_596_800;

/// Converts a number to whole seconds since 1970. A number outside the range of Go's clock, which wraps
/// around, becomes the earliest time, so that a token with this expiry time has expired.
pub fn seconds(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { in_range(number as i64) } else { i64::MIN }
}

/// Applies the rule of [`seconds`] for the range to an integer.
pub fn in_range(seconds: i64) -> i64 {
    if seconds > i64::MAX - TO_1970 { i64::MIN } else { seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_beyond_the_range_of_the_clock_sort_before_all_others() {
        let last = i64::MAX - TO_1970;
        for (given, want) in [(0, 0), (-1, -1), (last, last), (last + 1, i64::MIN), (i64::MAX, i64::MIN)] {
            assert_eq!(in_range(given), want, "{given}");
        }
        for (given, want) in [
            (1.9, 1),
            (-1.9, -1),
            (9.22337202e18, i64::MIN),
            (1e20, i64::MIN),
            (-1e20, i64::MIN),
            (f64::NAN, i64::MIN),
        ] {
            assert_eq!(seconds(given), want, "{given}");
        }
    }
}
