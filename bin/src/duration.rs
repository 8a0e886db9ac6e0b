//! Parses durations in flags: `90s`, `1h30m`, `1.5m`, `250ms`, `0`.
//!
//! The format of Go's `time.ParseDuration`, as in kube-apiserver's flags, without negative values, which no flag here
//! accepts.

use std::time::Duration;

/// Parses a duration.
///
/// # Errors
/// A fragment that describes the problem.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("must not be negative".to_owned());
    }
    let invalid = || "not a duration such as 90s or 1h30m".to_owned();
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total_ns = 0u128;
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(|| {
            if rest.bytes().any(|byte| byte.is_ascii_digit()) {
                "missing its unit".to_owned()
            } else {
                invalid()
            }
        })?;
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let unit_ns: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(invalid()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(invalid());
        }
        let too_long = || "too long".to_owned();
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
        total_ns += u128::from(whole) * unit_ns;
        // Digits below a nanosecond of an hour change nothing; dropping them keeps the scale in range.
        let fraction = &fraction[..fraction.len().min(15)];
        if !fraction.is_empty() {
            let digits: u64 = fraction.parse().map_err(|_| invalid())?;
            total_ns += u128::from(digits) * unit_ns / 10u128.pow(fraction.len() as u32);
        }
        if total_ns > i64::MAX as u128 {
            return Err(too_long());
        }
        rest = tail;
    }
    Ok(Duration::from_nanos(total_ns as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_upstream_writes_them() {
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
}
