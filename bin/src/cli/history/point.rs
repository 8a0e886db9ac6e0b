//! Points on the command line: a revision, a time, or a duration before now.

use std::time::Duration;

use go::duration;
use jiff::Timestamp;

/// An earlier point: a revision or a time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Point {
    /// A revision.
    Revision(u64),
    /// A time, with its text in RFC 3339.
    Time(Timestamp, String),
    /// A duration before now, with its text as a negative duration.
    Ago(Duration, String),
}

impl Point {
    /// Returns the text of the point in paths of the server.
    pub fn text(&self) -> String {
        match self {
            Point::Revision(revision) => revision.to_string(),
            Point::Time(_, text) | Point::Ago(_, text) => text.clone(),
        }
    }

    /// Returns the path prefix of requests that read the state at the point.
    pub fn prefix(&self) -> String {
        format!("/as-of/{}", self.text())
    }

    /// Returns whether a version with this revision and time is after the point.
    pub fn precedes(&self, revision: u64, time: Option<Timestamp>) -> bool {
        match self {
            Point::Revision(point) => revision > *point,
            Point::Time(point, _) => time.is_none_or(|time| time > *point),
            Point::Ago(ago, _) => {
                let point = Timestamp::now().saturating_sub(*ago).unwrap_or(Timestamp::UNIX_EPOCH);
                time.is_none_or(|time| time > point)
            }
        }
    }
}

/// Parses a point. A duration may be written with or without its sign.
///
/// # Errors
/// The text is neither a revision, nor a time, nor a duration.
pub fn point(text: &str) -> Result<Point, String> {
    let wrong = || {
        "must be a revision (184467), a time (2026-11-28T12:00:00Z), or a duration before now (10m)"
            .to_owned()
    };
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let revision = text.parse().ok().filter(|revision| *revision > 0);
        return revision.map(Point::Revision).ok_or_else(wrong);
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(Point::Time(time, time.to_string()));
    }
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    match duration::parse(unsigned) {
        Ok(nanos) if nanos >= 0 && unsigned.starts_with(|c: char| c.is_ascii_digit()) => {
            Ok(Point::Ago(Duration::from_nanos(nanos.unsigned_abs()), format!("-{unsigned}")))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_a_revision_a_time_or_a_duration() {
        for (text, want) in [
            ("184467", Some("184467")),
            ("10m", Some("-10m")),
            ("-10m", Some("-10m")),
            ("1h30m", Some("-1h30m")),
            ("2026-11-28T12:00:00Z", Some("2026-11-28T12:00:00Z")),
            ("2026-11-28T13:00:00+01:00", Some("2026-11-28T12:00:00Z")),
            ("0", None),
            ("", None),
            ("-", None),
            ("--5m", None),
            ("now", None),
            ("5", Some("5")),
            ("2026-11-28", None),
        ] {
            assert_eq!(point(text).ok().map(|point| point.text()).as_deref(), want, "{text}");
        }
        let at = |text: &str| point(text).unwrap();
        let time: Timestamp = "2026-11-28T12:00:01Z".parse().unwrap();
        assert!(at("7").precedes(8, None) && !at("7").precedes(7, None));
        assert!(at("2026-11-28T12:00:00Z").precedes(1, Some(time)));
        assert!(!at("2026-11-28T12:00:01Z").precedes(1, Some(time)));
        assert!(!at("1s").precedes(1, Some(time - Duration::from_secs(1_000_000_000))));
    }
}
