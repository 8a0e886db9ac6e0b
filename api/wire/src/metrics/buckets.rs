//! Bucket bounds of histograms, equal to those that existing dashboards expect.
//!
//! Each bound is written once, as it appears in the output; the number that values are compared with is
//! computed at compile time.

use super::histogram::HistogramBound;

/// Histograms of durations count microseconds and are written in seconds.
const MICROS: u64 = 1_000_000;
/// Histograms of sizes and numbers are written in the unit in which they count.
const ONE: u64 = 1;
/// Histograms of ratios count thousandths.
const MILLIS: u64 = 1_000;

/// Converts bounds from the unit of the output to the counting unit. `unit` is the number of counting units
/// in one unit of the output. Results are rounded down, so a bound below one counting unit is 0.
const fn bounds<const N: usize>(unit: u64, texts: [&'static str; N]) -> [HistogramBound; N] {
    let mut result = [(0, ""); N];
    let mut index = 0;
    while index < N {
        result[index] = (scaled(texts[index], unit), texts[index]);
        assert!(index == 0 || result[index - 1].0 <= result[index].0, "bounds ascend");
        index += 1;
    }
    result
}

/// Parses a decimal number with an optional exponent, such as `1.05e+06`, and multiplies it by `unit`. The
/// result is rounded down.
const fn scaled(text: &str, unit: u64) -> u64 {
    let bytes = text.as_bytes();
    let (mut digits, mut exponent, mut index, mut is_fraction) = (0_u128, 0_i32, 0, false);
    while index < bytes.len() && bytes[index] != b'e' {
        match bytes[index] {
            b'.' => is_fraction = true,
            digit @ b'0'..=b'9' => {
                digits = digits * 10 + (digit - b'0') as u128;
                exponent -= is_fraction as i32;
            }
            _ => panic!("a bound has digits"),
        }
        index += 1;
    }
    if index < bytes.len() {
        let is_negative = bytes[index + 1] == b'-';
        let (mut power, mut at) = (0, index + 2);
        while at < bytes.len() {
            power = power * 10 + (bytes[at] - b'0') as i32;
            at += 1;
        }
        exponent += if is_negative { -power } else { power };
    }
    let mut value = digits * unit as u128;
    while exponent > 0 {
        value *= 10;
        exponent -= 1;
    }
    while exponent < 0 {
        value /= 10;
        exponent += 1;
    }
    assert!(value <= u64::MAX as u128, "a bound fits");
    value as u64
}

/// Durations of requests and of store operations, in microseconds.
pub const REQUESTS_US: &[HistogramBound] = &bounds(
    MICROS,
    [
        "0.005", "0.025", "0.05", "0.1", "0.2", "0.4", "0.6", "0.8", "1", "1.25", "1.5", "2", "3", "4", "5",
        "6", "8", "10", "15", "20", "30", "45", "60",
    ],
);

/// Durations until connections through an egress proxy are established, in microseconds.
pub const TUNNELS_US: &[HistogramBound] = &bounds(MICROS, ["0.005", "0.025", "0.1", "0.5", "2.5", "12.5"]);

/// Durations of calls to the external token signer, in microseconds.
pub const SIGNER_US: &[HistogramBound] = &bounds(
    MICROS,
    ["0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60"],
);

/// Bucket bounds of the SLI duration histogram in microseconds: the bounds of the request histogram from 50
/// ms up.
pub const INDICATORS_US: &[HistogramBound] = REQUESTS_US.split_at(2).1;

/// Sizes of responses, in bytes.
pub const ANSWERS_BYTES: &[HistogramBound] =
    &bounds(ONE, ["1000", "10000", "100000", "1e+06", "1e+07", "1e+08", "1e+09"]);

/// Sizes of watch events, in bytes.
pub const EVENTS_BYTES: &[HistogramBound] =
    &bounds(ONE, ["1024", "2048", "4096", "8192", "16384", "32768", "65536", "131072"]);

/// Sizes of request bodies, in bytes.
pub const BODIES_BYTES: &[HistogramBound] = &bounds(
    ONE,
    [
        "50000", "150000", "250000", "350000", "450000", "550000", "650000", "750000", "850000", "950000",
        "1.05e+06", "1.15e+06", "1.25e+06", "1.35e+06", "1.45e+06", "1.55e+06", "1.65e+06", "1.75e+06",
        "1.85e+06", "1.95e+06", "2.05e+06", "2.15e+06", "2.25e+06", "2.35e+06", "2.45e+06", "2.55e+06",
        "2.65e+06", "2.75e+06", "2.85e+06", "2.95e+06", "3.05e+06",
    ],
);

/// Durations of authentication and authorization, in microseconds.
pub const IDENTITY_US: &[HistogramBound] = &bounds(
    MICROS,
    [
        "0.001", "0.002", "0.004", "0.008", "0.016", "0.032", "0.064", "0.128", "0.256", "0.512", "1.024",
        "2.048", "4.096", "8.192", "16.384",
    ],
);

/// Durations of admission, in microseconds.
pub const ADMISSION_US: &[HistogramBound] = &bounds(MICROS, ["0.005", "0.025", "0.1", "0.5", "1", "2.5"]);

/// Durations of expressions of admission policies, in microseconds. The first bound is 0 microseconds.
pub const POLICIES_US: &[HistogramBound] = &bounds(MICROS, ["5e-07", "0.001", "0.01", "0.1", "1"]);

/// Durations of match conditions, in microseconds.
pub const CONDITIONS_US: &[HistogramBound] =
    &bounds(MICROS, ["0.001", "0.005", "0.01", "0.025", "0.1", "0.2", "0.25"]);

/// Durations of calls to admission webhooks, in microseconds.
pub const WEBHOOKS_US: &[HistogramBound] =
    &bounds(MICROS, ["0.005", "0.025", "0.1", "0.5", "1", "2.5", "10", "25"]);

/// Durations of the steps of a request, in microseconds.
pub const STAGES_US: &[HistogramBound] = &bounds(
    MICROS,
    ["0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1", "5", "10", "15", "30"],
);

/// Durations for which requests wait for seats and occupy them, in microseconds.
pub const SEATS_US: &[HistogramBound] =
    &bounds(MICROS, ["0", "0.005", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "15", "30"]);

/// Remaining lifetimes of client certificates, in seconds.
pub const LIFETIMES_S: &[HistogramBound] = &bounds(
    ONE,
    [
        "0",
        "1800",
        "3600",
        "7200",
        "21600",
        "43200",
        "86400",
        "172800",
        "345600",
        "604800",
        "2.592e+06",
        "7.776e+06",
        "1.5552e+07",
        "3.1104e+07",
    ],
);

/// Durations of the check that detects updates that change only timestamps, in microseconds.
pub const COMPARISONS_US: &[HistogramBound] =
    &bounds(MICROS, ["0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1", "5"]);

/// Durations of writes by unknown-field policy, in microseconds.
pub const VALIDATIONS_US: &[HistogramBound] = INDICATORS_US;

/// Durations in which watches send their initial list, in microseconds.
pub const WATCH_LISTS_US: &[HistogramBound] = &bounds(
    MICROS,
    ["0.05", "0.1", "0.2", "0.4", "0.6", "0.8", "1", "2", "4", "6", "8", "10", "15", "20", "30", "45", "60"],
);

/// Durations of calls to other servers, in microseconds.
pub const CALLS_US: &[HistogramBound] =
    &bounds(MICROS, ["0.005", "0.025", "0.1", "0.25", "0.5", "1", "2", "4", "8", "15", "30", "60"]);

/// Sizes of requests to other servers and of their responses, in bytes.
pub const MESSAGES_BYTES: &[HistogramBound] = &bounds(
    ONE,
    [
        "64",
        "256",
        "512",
        "1024",
        "4096",
        "16384",
        "65536",
        "262144",
        "1.048576e+06",
        "4.194304e+06",
        "1.6777216e+07",
    ],
);

/// Seats that a priority level demands, in thousandths of its own seats.
pub const DEMAND_MILLIS: &[HistogramBound] =
    &bounds(MILLIS, ["0.2", "0.4", "0.6", "0.8", "1", "1.2", "1.4", "1.7", "2", "2.8", "4", "6"]);

/// Requests of a priority level, in thousandths of its capacity.
pub const FILLED_MILLIS: &[HistogramBound] =
    &bounds(MILLIS, ["0", "0.001", "0.003", "0.01", "0.03", "0.1", "0.25", "0.5", "0.75", "1"]);

/// Seats of a priority level in use, in thousandths of its own seats.
pub const SEATED_MILLIS: &[HistogramBound] = &bounds(
    MILLIS,
    ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.99", "1"],
);

/// Read or write requests in progress, in thousandths of their limit.
pub const KINDS_MILLIS: &[HistogramBound] = &bounds(
    MILLIS,
    [
        "0", "0.001", "0.01", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.99",
        "1",
    ],
);

/// Numbers of requests in a queue.
pub const QUEUES: &[HistogramBound] = &bounds(ONE, ["0", "10", "25", "50", "100", "250", "500", "1000"]);

/// Number of watches that receive a write.
pub const WATCHERS: &[HistogramBound] = &bounds(ONE, ["0", "1", "10", "100", "1000", "10000"]);

/// Number of seats of a request.
pub const ESTIMATES: &[HistogramBound] = &bounds(ONE, ["1", "2", "4", "8", "16", "32", "64", "100"]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_converts_written_bounds_to_units() {
        for (shown, unit, value) in [
            ("0.005", MICROS, 5_000),
            ("1.25", MICROS, 1_250_000),
            ("60", MICROS, 60_000_000),
            ("1.05e+06", ONE, 1_050_000),
            ("1e+09", ONE, 1_000_000_000),
            ("1e-08", MICROS, 0),
            ("9.999999999999999e-06", MICROS, 9),
            ("0.2", MILLIS, 200),
            ("0", MICROS, 0),
        ] {
            assert_eq!(scaled(shown, unit), value, "{shown}");
        }
        assert_eq!(INDICATORS_US.first(), Some(&(50_000, "0.05")));
    }
}
