//! Timestamps: seconds since the Unix epoch, nanoseconds, and the zone offset of their text.
//!
//! The range is years 1 to 9999. The offset only affects the text form: comparisons, and calendar fields
//! without a zone, use UTC.

use std::cmp::Ordering;
use std::sync::OnceLock;

use jiff::tz::TimeZoneDatabase;

use crate::duration::NANOS_PER_SECOND;

/// Seconds of 0001-01-01T00:00:00Z, the lowest valid timestamp.
pub const SECONDS_MIN: i64 = -62_135_596_800;
/// Seconds of 9999-12-31T23:59:59Z; the fraction of that second is valid as well.
pub const SECONDS_MAX: i64 = 253_402_300_799;

const SECONDS_PER_DAY: i64 = 86_400;

/// An instant, with the zone offset of its text.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
    /// Seconds east of UTC; only [`Timestamp::to_text`] uses it.
    offset: i32,
}

/// The reason why a timestamp is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimestampError {
    /// The text is not an RFC 3339 date and time.
    Malformed,
    /// The instant is before year 1 or after year 9999.
    OutOfRange,
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl std::hash::Hash for Timestamp {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.seconds, self.nanos).hash(state);
    }
}

impl Timestamp {
    /// Creates the timestamp at `seconds` since the epoch, in UTC; `None` if it is out of range.
    pub fn from_seconds(seconds: i64) -> Option<Timestamp> {
        Timestamp::new(seconds, 0)
    }

    /// Creates the timestamp at `seconds` since the epoch plus `nanos` (below 10⁹), in UTC; `None` if it is
    /// out of range.
    pub fn new(seconds: i64, nanos: u32) -> Option<Timestamp> {
        let legal = (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) && i64::from(nanos) < NANOS_PER_SECOND;
        legal.then_some(Timestamp { seconds, nanos, offset: 0 })
    }

    /// Returns the seconds since the epoch, rounded down.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds after [`Timestamp::seconds`].
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// Parses an RFC 3339 date and time.
    ///
    /// Like the reference, this function accepts one digit for the hour, a comma before the fraction, digits
    /// beyond the nanosecond (which are dropped), and zone offsets up to 24:60. Lower case `t` and `z`, leap
    /// seconds and a missing zone are refused.
    pub fn parse(text: &str) -> Result<Timestamp, TimestampError> {
        let fields = Rfc3339::read(text.as_bytes()).ok_or(TimestampError::Malformed)?;
        let local = days_from_civil(fields.year, fields.month, fields.day) * SECONDS_PER_DAY
            + fields.hour * 3600
            + fields.minute * 60
            + fields.second;
        let timestamp = Timestamp::new(local - i64::from(fields.offset), fields.nanos);
        let timestamp = timestamp.ok_or(TimestampError::OutOfRange)?;
        Ok(Timestamp { offset: fields.offset, ..timestamp })
    }

    /// Formats the date and time in RFC 3339, with the zone offset of the timestamp and with as many digits
    /// as the fraction needs.
    pub fn to_text(self) -> String {
        let civil = Civil::at(self.seconds + i64::from(self.offset));
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
        );
        if self.nanos > 0 {
            let digits = format!(".{:09}", self.nanos);
            text.push_str(digits.trim_end_matches('0'));
        }
        match self.offset / 60 {
            0 => text.push('Z'),
            minutes => {
                let sign = if minutes < 0 { '-' } else { '+' };
                let minutes = minutes.abs();
                text.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
            }
        }
        text
    }

    /// Formats the date and time for error texts: `2024-02-29 12:34:56.5 +0000 UTC`. A zone without a name is
    /// printed as its offset.
    pub fn to_plain_text(self) -> String {
        let text = self.to_text();
        let end =
            text.find(['Z', '+']).or_else(|| text.rfind('-').filter(|at| *at > 10)).unwrap_or(text.len());
        let (clock, zone) = text.split_at(end);
        let (offset, name) = match zone {
            "Z" => ("+0000".to_owned(), "UTC".to_owned()),
            zone => (zone.replace(':', ""), zone.replace(':', "")),
        };
        format!("{} {offset} {name}", clock.replacen('T', " ", 1))
    }

    /// Returns the timestamp `nanos` later; `None` if it is out of range.
    pub fn checked_add(self, nanos: i64) -> Option<Timestamp> {
        let sum = i64::from(self.nanos) + nanos % NANOS_PER_SECOND;
        let seconds = self.seconds + nanos / NANOS_PER_SECOND + sum.div_euclid(NANOS_PER_SECOND);
        let nanos = sum.rem_euclid(NANOS_PER_SECOND) as u32;
        Some(Timestamp { offset: self.offset, ..Timestamp::new(seconds, nanos)? })
    }

    /// Returns the nanoseconds from `earlier` to this timestamp; `None` if they do not fit in a duration.
    pub fn checked_since(self, earlier: Timestamp) -> Option<i64> {
        let seconds = self.seconds - earlier.seconds;
        let nanos = i128::from(self.nanos) - i128::from(earlier.nanos);
        i64::try_from(i128::from(seconds) * i128::from(NANOS_PER_SECOND) + nanos).ok()
    }

    /// Returns the calendar fields at `offset` seconds east of UTC.
    pub fn civil(self, offset: i64) -> Civil {
        Civil::at(self.seconds + offset)
    }

    /// Returns the offset of `zone` at this instant in seconds east of UTC. A zone is a name of the time zone
    /// database or an offset `[+-]hours:minutes`. The error is the text of the reference.
    pub fn zone_offset(self, zone: &str) -> Result<i64, String> {
        if let Some((hours, minutes)) = zone.split_once(':') {
            let (hours, minutes) = (parse_integer(hours)?, parse_integer(minutes)?);
            let signed = if zone.starts_with('-') { minutes.wrapping_neg() } else { minutes };
            let minutes = hours.wrapping_mul(60).wrapping_add(signed);
            // The reference computes a duration of this many minutes, which wraps around.
            return Ok(minutes.wrapping_mul(60 * NANOS_PER_SECOND) / NANOS_PER_SECOND);
        }
        // The server's own time zone is UTC.
        if matches!(zone, "" | "UTC" | "Local") {
            return Ok(0);
        }
        if zone.starts_with(['/', '\\']) || zone.contains("..") {
            return Err("time: invalid location name".to_owned());
        }
        static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
        let zones = ZONES.get_or_init(TimeZoneDatabase::bundled);
        let unknown = || format!("unknown time zone {zone}");
        let found = zones.get(zone).map_err(|_| unknown())?;
        // The database lookup ignores case, but the reference compares names exactly.
        if found.iana_name() != Some(zone) {
            return Err(unknown());
        }
        let instant = jiff::Timestamp::from_second(self.seconds).map_err(|_| unknown())?;
        Ok(i64::from(found.to_offset(instant).seconds()))
    }
}

/// A date and time of day in the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Civil {
    /// Year; 0 is the year before year 1.
    pub year: i64,
    /// Month, from 1 to 12.
    pub month: i64,
    /// Day of the month, 1 to 31.
    pub day: i64,
    /// Hour, from 0 to 23.
    pub hour: i64,
    /// Minute, from 0 to 59.
    pub minute: i64,
    /// Second, from 0 to 59.
    pub second: i64,
    /// Day of the week, 0 (Sunday) to 6.
    pub weekday: i64,
    /// Days since the first of January, 0 to 365.
    pub day_of_year: i64,
}

impl Civil {
    /// Returns the date and time that is `seconds` seconds after 1970-01-01T00:00:00.
    fn at(seconds: i64) -> Civil {
        let (days, time) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
            // The epoch was a Thursday.
            weekday: (days + 4).rem_euclid(7),
            day_of_year: days - days_from_civil(year, 1, 1),
        }
    }
}

/// Number of days in 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01 to the epoch. Years start in March here, so that the leap day is the last day.
const EPOCH_DAYS: i64 = 719_468;

/// Returns the number of days from the epoch to a date.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - EPOCH_DAYS
}

/// Returns the year, month and day that is `days` days after the epoch.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The fields of an RFC 3339 text, each checked to be in range.
struct Rfc3339 {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: u32,
    offset: i32,
}

impl Rfc3339 {
    fn read(text: &[u8]) -> Option<Rfc3339> {
        let mut rest = text;
        let year = take_digits(&mut rest, 4)?;
        take_byte(&mut rest, b'-')?;
        let month = take_digits(&mut rest, 2).filter(|month| (1..=12).contains(month))?;
        take_byte(&mut rest, b'-')?;
        let day = take_digits(&mut rest, 2).filter(|day| (1..=days_in_month(year, month)).contains(day))?;
        take_byte(&mut rest, b'T')?;
        let hour_digits = if rest.get(1).is_some_and(u8::is_ascii_digit) { 2 } else { 1 };
        let hour = take_digits(&mut rest, hour_digits).filter(|&hour| hour < 24)?;
        take_byte(&mut rest, b':')?;
        let minute = take_digits(&mut rest, 2).filter(|&minute| minute < 60)?;
        take_byte(&mut rest, b':')?;
        let second = take_digits(&mut rest, 2).filter(|&second| second < 60)?;
        let nanos = take_fraction(&mut rest);
        let offset = take_offset(&mut rest)?;
        rest.is_empty().then_some(Rfc3339 { year, month, day, hour, minute, second, nanos, offset })
    }
}

fn take_byte(rest: &mut &[u8], byte: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[byte])?;
    Some(())
}

fn take_digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let (digits, after) = rest.split_at_checked(count)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    *rest = after;
    Some(digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

/// Removes the fraction of a second, if there is one, from `rest`. Returns the fraction in nanoseconds.
fn take_fraction(rest: &mut &[u8]) -> u32 {
    let [b'.' | b',', after @ ..] = *rest else { return 0 };
    let count = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return 0;
    }
    *rest = &after[count..];
    (0..9).fold(0, |nanos, i| {
        let digit = if i < count { u32::from(after[i] - b'0') } else { 0 };
        nanos * 10 + digit
    })
}

/// Removes `Z` or `[+-]hh:mm` from `rest`. Returns the offset in seconds east of UTC.
fn take_offset(rest: &mut &[u8]) -> Option<i32> {
    if take_byte(rest, b'Z').is_some() {
        return Some(0);
    }
    let sign = match rest.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    *rest = &rest[1..];
    let hours = take_digits(rest, 2).filter(|&hours| hours <= 24)?;
    take_byte(rest, b':')?;
    let minutes = take_digits(rest, 2).filter(|&minutes| minutes <= 60)?;
    i32::try_from(sign * (hours * 60 + minutes) * 60).ok()
}

/// Parses an integer with an optional sign. The error is the text of the reference.
fn parse_integer(text: &str) -> Result<i64, String> {
    text.parse::<i64>().map_err(|error| {
        let cause = match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {text:?}: {cause}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_times_are_read_and_written() {
        use TimestampError::{Malformed, OutOfRange};
        for (text, result) in [
            ("2024-02-29T12:34:56.789123456Z", Ok("2024-02-29T12:34:56.789123456Z")),
            ("2020-01-01T00:00:00.10Z", Ok("2020-01-01T00:00:00.1Z")),
            ("2020-01-01T00:00:00,5Z", Ok("2020-01-01T00:00:00.5Z")),
            ("2020-01-01T00:00:00.1234567899Z", Ok("2020-01-01T00:00:00.123456789Z")),
            ("2020-01-01T5:00:00Z", Ok("2020-01-01T05:00:00Z")),
            ("2020-01-01T00:00:00-00:00", Ok("2020-01-01T00:00:00Z")),
            ("2020-01-01T00:00:00+05:30", Ok("2020-01-01T00:00:00+05:30")),
            ("2020-01-01T00:00:00-08:00", Ok("2020-01-01T00:00:00-08:00")),
            ("0001-01-01T00:00:00Z", Ok("0001-01-01T00:00:00Z")),
            ("9999-12-31T23:59:59.999999999Z", Ok("9999-12-31T23:59:59.999999999Z")),
            ("9999-12-31T23:59:59-01:00", Err(OutOfRange)),
            ("0000-12-31T23:59:59Z", Err(OutOfRange)),
            ("10000-01-01T00:00:00Z", Err(Malformed)),
            ("2020-02-30T00:00:00Z", Err(Malformed)),
            ("2020-01-01T24:00:00Z", Err(Malformed)),
            ("2020-01-01T23:60:00Z", Err(Malformed)),
            ("2020-01-01T23:59:60Z", Err(Malformed)),
            ("2020-01-01t00:00:00z", Err(Malformed)),
            ("2020-01-01 00:00:00Z", Err(Malformed)),
            ("2020-01-01T00:00Z", Err(Malformed)),
            ("2020-01-01T00:00:00", Err(Malformed)),
            ("2020-01-01T00:00:00.Z", Err(Malformed)),
            ("2020-01-01T00:00:00Z ", Err(Malformed)),
            ("", Err(Malformed)),
        ] {
            assert_eq!(
                Timestamp::parse(text).map(Timestamp::to_text).as_deref(),
                result.as_ref().map(|t| *t),
                "{text}"
            );
        }
    }

    #[test]
    fn error_texts_show_the_offset_and_its_name() {
        for (text, want) in [
            ("2024-02-29T12:34:56.5Z", "2024-02-29 12:34:56.5 +0000 UTC"),
            ("2020-01-01T00:00:00+05:30", "2020-01-01 00:00:00 +0530 +0530"),
            ("2020-01-01T00:00:00-08:00", "2020-01-01 00:00:00 -0800 -0800"),
        ] {
            assert_eq!(Timestamp::parse(text).unwrap().to_plain_text(), want);
        }
    }

    #[test]
    fn every_day_of_the_range_converts_both_ways() {
        let (first, last) = (SECONDS_MIN / SECONDS_PER_DAY, SECONDS_MAX / SECONDS_PER_DAY);
        for days in (first..=last).step_by(37) {
            let (year, month, day) = civil_from_days(days);
            assert!((1..=days_in_month(year, month)).contains(&day));
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }

    #[test]
    fn calendar_fields_depend_on_the_zone() {
        for (zone, fields) in [
            ("", "2024-02-29 12:34:56 weekday 4, day 59"),
            ("America/New_York", "2024-02-29 7:34:56 weekday 4, day 59"),
            ("Asia/Kathmandu", "2024-02-29 18:19:56 weekday 4, day 59"),
            ("+14:00", "2024-03-01 2:34:56 weekday 5, day 60"),
            ("05:30", "2024-02-29 18:4:56 weekday 4, day 59"),
            ("-23:59", "2024-02-28 12:35:56 weekday 3, day 58"),
            ("Local", "2024-02-29 12:34:56 weekday 4, day 59"),
            ("/UTC", "time: invalid location name"),
            ("a/../UTC", "time: invalid location name"),
            ("Foo/Bar", "unknown time zone Foo/Bar"),
            ("america/new_york", "unknown time zone america/new_york"),
            ("+a:b", "strconv.Atoi: parsing \"+a\": invalid syntax"),
            ("1:", "strconv.Atoi: parsing \"\": invalid syntax"),
        ] {
            let timestamp = Timestamp::parse("2024-02-29T12:34:56.789Z").unwrap();
            let got = timestamp.zone_offset(zone).map_or_else(
                |error| error,
                |offset| {
                    let Civil { year, month, day, hour, minute, second, weekday, day_of_year } =
                        timestamp.civil(offset);
                    format!("{year}-{month:02}-{day:02} {hour}:{minute}:{second} weekday {weekday}, day {day_of_year}")
                },
            );
            assert_eq!(got, fields, "{zone}");
        }
    }

    #[test]
    fn sums_and_differences_stay_in_range() {
        let last = Timestamp::parse("9999-12-31T23:59:59Z").unwrap();
        let first = Timestamp::parse("0001-01-01T00:00:00Z").unwrap();
        assert_eq!(
            last.checked_add(1).map(Timestamp::to_text).as_deref(),
            Some("9999-12-31T23:59:59.000000001Z")
        );
        assert_eq!(last.checked_add(NANOS_PER_SECOND), None);
        assert_eq!(first.checked_add(-1), None);
        assert_eq!(first.checked_since(last), None);
        assert_eq!(last.checked_since(last.checked_add(-1_500_000_000).unwrap()), Some(1_500_000_000));
    }
}
