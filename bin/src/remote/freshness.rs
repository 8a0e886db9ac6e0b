//! Computes from the header fields of a response how long it may be cached (RFC 9111, section 4.2.1).
//!
//! `s-maxage → max-age → Expires, counted from Date → a tenth of the age by Last-Modified`: the first field
//! that is present decides. Directives that forbid storing are ignored, because only this process uses the
//! cache.

use std::time::Duration;

use http::HeaderMap;
use http::header::{CACHE_CONTROL, DATE, EXPIRES, HeaderName, LAST_MODIFIED};
use jiff::{SignedDuration, Timestamp};

/// Maximum freshness that is estimated from the date of the last change.
const GUESS_MAX: Duration = Duration::from_secs(24 * 3600);

/// Maximum freshness from any field. Larger numbers count as this value.
const SECONDS_MAX: u64 = 0x7fff_ffff;

/// Returns how long a response that arrived at `now` is fresh. The result is zero if no field has a time, or
/// if the fields are invalid.
pub fn lifetime(headers: &HeaderMap, now: Timestamp) -> Duration {
    let Some((shared, own)) = ages(headers) else { return Duration::ZERO };
    if let Some(seconds) = shared.or(own) {
        return Duration::from_secs(seconds);
    }
    if let Some(end) = date(headers, EXPIRES) {
        return positive(end.duration_since(date(headers, DATE).unwrap_or(now)));
    }
    match date(headers, LAST_MODIFIED) {
        Some(change) => (positive(now.duration_since(change)) / 10).min(GUESS_MAX),
        None => Duration::ZERO,
    }
}

/// Returns the seconds of `s-maxage` and `max-age`, or `None` if one of them is not a number.
fn ages(headers: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let (mut shared, mut own) = (None, None);
    for value in headers.get_all(CACHE_CONTROL) {
        for directive in value.to_str().ok()?.split(',') {
            let (name, seconds) = directive.split_once('=').unwrap_or((directive, ""));
            let place = match name.trim().to_ascii_lowercase().as_str() {
                "s-maxage" => &mut shared,
                "max-age" => &mut own,
                _ => continue,
            };
            *place = Some(number(seconds.trim().trim_matches('"'))?);
        }
    }
    Some((shared, own))
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().map_or(SECONDS_MAX, |seconds: u64| seconds.min(SECONDS_MAX)))
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<Timestamp> {
    let text = headers.get(name)?.to_str().ok()?;
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

fn positive(duration: SignedDuration) -> Duration {
    Duration::try_from(duration).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_first_cache_header_that_is_present_decides_the_freshness() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (fields, want) in [
            ("", 0),
            ("cache-control: max-age=3600", 3600),
            ("cache-control: public, Max-Age=\"60\", must-revalidate", 60),
            ("cache-control: max-age=60, s-maxage=5", 5),
            ("cache-control: no-store", 0),
            ("cache-control: no-store, max-age=60", 60),
            ("cache-control: max-age=x", 0),
            ("cache-control: max-age=", 0),
            ("cache-control: max-age=-5", 0),
            ("cache-control: max-age=99999999999999999999", SECONDS_MAX),
            ("cache-control: max-age=60\nexpires: Thu, 01 Jan 2026 01:00:00 GMT", 60),
            ("expires: Thu, 01 Jan 2026 01:00:00 GMT", 3600),
            ("expires: Thu, 01 Jan 2026 01:00:00 GMT\ndate: Thu, 01 Jan 2026 00:30:00 GMT", 1800),
            ("expires: Wed, 31 Dec 2025 00:00:00 GMT", 0),
            ("expires: 0", 0),
            ("last-modified: Wed, 31 Dec 2025 23:00:00 GMT", 360),
            ("last-modified: Wed, 01 Jan 2025 00:00:00 GMT", 24 * 3600),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields.lines().filter_map(|line| line.split_once(": ")) {
                let name = HeaderName::try_from(name).unwrap();
                headers.append(name, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(lifetime(&headers, now).as_secs(), want, "{fields}");
        }
    }
}
