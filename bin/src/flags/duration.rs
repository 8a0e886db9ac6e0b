//! Parses durations in flags: `90s`, `1h30m`, `1.5m`, `250ms`, `0`.
//!
//! The format is the format of Go's `time.ParseDuration`, as in the flags of kube-apiserver. Negative
//! values are invalid, except for flags that accept negative values in kube-apiserver: for these flags, a
//! negative value means zero.

use std::time::Duration;

/// Parses a duration that must not be negative.
///
/// # Errors
/// The text is not a duration. The error is a fragment of a sentence.
pub fn parse(text: &str) -> Result<Duration, String> {
    nanos(text)?.try_into().map(Duration::from_nanos).map_err(|_| "must not be negative".to_owned())
}

/// Parses a retention or waiting time. A negative duration means zero: no retention, or no waiting.
///
/// # Errors
/// The text is not a duration. The error is a fragment of a sentence.
pub fn parse_clamped(text: &str) -> Result<Duration, String> {
    Ok(nanos(text)?.try_into().map_or(Duration::ZERO, Duration::from_nanos))
}

fn nanos(text: &str) -> Result<i64, String> {
    go::duration::parse(text).map_err(|error| error.to_string())
}

/// Formats a duration as Go does: `1h0m0s`, `10m0s`, `5s`.
pub fn duration_text(duration: Duration) -> String {
    go::duration::to_text(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_by_go() {
        for (seconds, want) in [(0, "0s"), (59, "59s"), (600, "10m0s"), (3600, "1h0m0s"), (90_061, "25h1m1s")]
        {
            assert_eq!(duration_text(Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn durations_are_parsed_as_by_go() {
        for (text, want_ms) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("60s", Some(60_000)),
            ("1m0s", Some(60_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5m", Some(90_000)),
            (".5s", Some(500)),
            ("2.s", Some(2_000)),
            ("+250ms", Some(250)),
            ("1500000µs", Some(1_500)),
            ("0.10000000000000000000000000001s", Some(100)),
            ("2540400h", Some(9_145_440_000_000)),
            ("", None),
            ("+", None),
            ("60", None),
            ("s", None),
            (".s", None),
            ("1.2.3s", None),
            ("1d", None),
            ("1 s", None),
            ("-1s", None),
            ("soon", None),
            ("2562048h", None), // over 2^63 ns
            ("99999999999999999999999s", None),
        ] {
            let got = parse(text);
            assert_eq!(got.clone().ok().map(|d| d.as_millis() as u64), want_ms, "{text:?}: {got:?}");
        }
    }

    #[test]
    fn a_negative_retention_time_becomes_zero() {
        for (text, want) in [
            ("2m", Ok(Duration::from_secs(120))),
            ("-1s", Ok(Duration::ZERO)),
            ("x", Err("time: invalid duration \"x\"".to_owned())),
            ("5", Err("time: missing unit in duration \"5\"".to_owned())),
        ] {
            assert_eq!(parse_clamped(text), want, "{text}");
        }
    }
}
