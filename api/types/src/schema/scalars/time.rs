//! Points in time: RFC 3339 in any zone, stored in UTC with second precision or with exactly six decimals.
//!
//! The zero time, year one, means "not set". [`canonical_seconds`] and [`canonical_micros`] return `None` for
//! the zero time, and JSON writes the zero time as `null`.

use std::borrow::Cow;

/// Layouts as error messages print them.
const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The zero time, in seconds since the Unix epoch.
pub const ZERO_SECONDS: i64 = -62_135_596_800;

/// Returns the canonical form of a time with second precision. Decimals are accepted and dropped.
///
/// # Errors
/// The error message for text that is not an RFC 3339 time.
pub fn canonical_seconds(text: &str) -> Result<Option<Cow<'_, str>>, String> {
    // Decimals are dropped before the time is compared with zero. Otherwise the stored text could later be
    // read as "not set".
    let (seconds, _) = Parser { text, layout: SECONDS_LAYOUT, rest: text }.read(false)?;
    Ok(canonical_text(text, seconds, seconds == ZERO_SECONDS, None))
}

/// Returns the canonical form of a time with microsecond precision. Exactly six decimals are required, as in
/// the reference server.
///
/// # Errors
/// The same errors as [`canonical_seconds`].
pub fn canonical_micros(text: &str) -> Result<Option<Cow<'_, str>>, String> {
    let (seconds, nanos) = Parser { text, layout: MICROS_LAYOUT, rest: text }.read(true)?;
    Ok(canonical_text(text, seconds, nanos == 0 && seconds == ZERO_SECONDS, Some(nanos / 1000)))
}

/// Parses `text`, with or without decimals, and returns its seconds since the Unix epoch; `None` if `text` is
/// not a time.
pub fn unix_seconds(text: &str) -> Option<i64> {
    Parser { text, layout: SECONDS_LAYOUT, rest: text }.read(false).ok().map(|(seconds, _)| seconds)
}

/// Parses `text`, with or without decimals, and returns its seconds since the Unix epoch and its nanoseconds;
/// `None` if `text` is not a time.
pub fn unix(text: &str) -> Option<(i64, u32)> {
    Parser { text, layout: SECONDS_LAYOUT, rest: text }.read(false).ok()
}

/// Returns the canonical text of `seconds` since the Unix epoch.
pub fn format_seconds(seconds: i64) -> String {
    format(seconds, None)
}

/// Returns the canonical text, with six decimals, of `seconds` and `micros` since the Unix epoch.
pub fn format_micros(seconds: i64, micros: u32) -> String {
    format(seconds, Some(micros))
}

fn canonical_text(text: &str, seconds: i64, zero: bool, micros: Option<u32>) -> Option<Cow<'_, str>> {
    if zero {
        return None;
    }
    let canonical = format(seconds, micros);
    Some(if canonical == text { Cow::Borrowed(text) } else { Cow::Owned(canonical) })
}

fn format(seconds: i64, micros: Option<u32>) -> String {
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, date) = civil(day);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut out = String::with_capacity(27);
    push_two_digits(&mut out, year / 100);
    push_two_digits(&mut out, year % 100);
    for (mark, part) in [('-', month), ('-', date), ('T', hour), (':', minute), (':', second)] {
        out.push(mark);
        push_two_digits(&mut out, part);
    }
    if let Some(micros) = micros {
        out.push('.');
        for part in [micros / 10_000, micros / 100 % 100, micros % 100] {
            push_two_digits(&mut out, i64::from(part));
        }
    }
    out.push('Z');
    out
}

fn push_two_digits(out: &mut String, n: i64) {
    let n = u8::try_from(n.rem_euclid(100)).unwrap_or(0);
    out.push(char::from(b'0' + n / 10));
    out.push(char::from(b'0' + n % 10));
}

/// Returns year, month and day of month of a day counted from the Unix epoch (proleptic Gregorian calendar).
fn civil(day: i64) -> (i64, i64, i64) {
    // Years are counted from March here, so that the leap day is the last day of a year.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, date)
}

/// Returns the day number of a date; the inverse of [`civil`].
fn day_number(year: i64, month: i64, date: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + date - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

struct Parser<'t> {
    text: &'t str,
    layout: &'static str,
    rest: &'t str,
}

impl<'t> Parser<'t> {
    /// Parses the text to seconds since the Unix epoch and nanoseconds.
    fn read(mut self, micros: bool) -> Result<(i64, u32), String> {
        let year = self.digits(4, "2006")?;
        self.mark('-', "-")?;
        let month = self.ranged(2, "01", 1, 12, "month")?;
        self.mark('-', "-")?;
        let date = self.digits(2, "02")?;
        self.mark('T', "T")?;
        // Go also accepts an hour of one digit.
        let has_two = self.rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        let hour = self.ranged(if has_two { 2 } else { 1 }, "15", 0, 23, "hour")?;
        self.mark(':', ":")?;
        let minute = self.ranged(2, "04", 0, 59, "minute")?;
        self.mark(':', ":")?;
        let second = self.ranged(2, "05", 0, 59, "second")?;
        let nanos = if micros { self.six_decimals()? } else { self.decimals()? };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(self.sentence(&format!(": extra text: {}", values::field::go_quote(self.rest))));
        }
        if !(1..=days_in(year, month)).contains(&date) {
            return Err(self.sentence(": day out of range"));
        }
        let seconds = day_number(year, month, date) * 86_400 + hour * 3600 + minute * 60 + second - offset;
        // The zone offset may move the time out of the range of years that have four digits.
        if !(0..=9999).contains(&civil(seconds.div_euclid(86_400)).0) {
            return Err(self.sentence(": year out of range"));
        }
        Ok((seconds, nanos))
    }

    fn sentence(&self, what: &str) -> String {
        let quoted = values::field::go_quote(self.text);
        if what.starts_with(": ") {
            return format!("parsing time {quoted}{what}");
        }
        let rest = values::field::go_quote(self.rest);
        format!(
            "parsing time {quoted} as \"{}\": cannot parse {rest} as {}",
            self.layout,
            values::field::go_quote(what)
        )
    }

    fn digits(&mut self, count: usize, element: &str) -> Result<i64, String> {
        let bytes = self.rest.as_bytes();
        if bytes.len() < count || !bytes[..count].iter().all(u8::is_ascii_digit) {
            return Err(self.sentence(element));
        }
        let value = bytes[..count].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        self.rest = &self.rest[count..];
        Ok(value)
    }

    fn ranged(&mut self, count: usize, element: &str, min: i64, max: i64, name: &str) -> Result<i64, String> {
        let value = self.digits(count, element)?;
        if (min..=max).contains(&value) {
            return Ok(value);
        }
        Err(self.sentence(&format!(": {name} out of range")))
    }

    fn mark(&mut self, mark: char, element: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(mark).ok_or_else(|| self.sentence(element))?;
        Ok(())
    }

    /// Parses any number of decimals; the first nine count.
    fn decimals(&mut self) -> Result<u32, String> {
        let Some(after) = self.rest.strip_prefix(['.', ',']) else { return Ok(0) };
        let len = after.bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 {
            return Err(self.sentence("Z07:00"));
        }
        let digits = after.bytes().take(len).chain(std::iter::repeat(b'0')).take(9);
        self.rest = &after[len..];
        Ok(digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')))
    }

    fn six_decimals(&mut self) -> Result<u32, String> {
        let bytes = self.rest.as_bytes();
        let fits = bytes.len() >= 7 && bytes[0] == b'.' && bytes[1..7].iter().all(u8::is_ascii_digit);
        if !fits {
            return Err(self.sentence(".000000"));
        }
        let micros = bytes[1..7].iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        self.rest = &self.rest[7..];
        Ok(micros * 1000)
    }

    /// Parses the offset in seconds east of UTC.
    fn offset(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let whole = *self;
        let sign = match self.rest.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.sentence("Z07:00")),
        };
        self.rest = &self.rest[1..];
        let mut read = || {
            let hours = self.digits(2, "")?;
            self.mark(':', "")?;
            Ok::<_, String>((hours, self.digits(2, "")?))
        };
        match read() {
            // Both limits are inclusive, because some writers use offsets of 24 hours or 60 minutes.
            Ok((hours, minutes)) if hours <= 24 && minutes <= 60 => Ok(sign * (hours * 3600 + minutes * 60)),
            Ok((_, minutes)) if minutes > 60 => Err(whole.sentence(": time zone offset minute out of range")),
            Ok(_) => Err(whole.sentence(": time zone offset hour out of range")),
            Err(_) => Err(whole.sentence("Z07:00")),
        }
    }
}

impl Clone for Parser<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for Parser<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_stored_in_utc_with_second_precision() {
        for (text, want) in [
            ("2024-02-29T23:59:59Z", Ok(Some("2024-02-29T23:59:59Z"))),
            ("2024-03-01T00:30:00+01:00", Ok(Some("2024-02-29T23:30:00Z"))),
            ("1969-12-31T23:59:59.999Z", Ok(Some("1969-12-31T23:59:59Z"))),
            ("0001-01-01T00:00:00Z", Ok(None)),
            ("0001-01-01T00:00:00.5Z", Ok(None)),
            ("2024-03-01T1:00:00Z", Ok(Some("2024-03-01T01:00:00Z"))),
            ("2024-03-02T00:00:00+24:60", Ok(Some("2024-02-29T23:00:00Z"))),
            (
                "2024-03-01T00:00:00+25:00",
                Err(r#"parsing time "2024-03-01T00:00:00+25:00": time zone offset hour out of range"#),
            ),
            (
                "2024-03-01T00:00:00-25:61",
                Err(r#"parsing time "2024-03-01T00:00:00-25:61": time zone offset minute out of range"#),
            ),
            ("2023-02-29T00:00:00Z", Err(r#"parsing time "2023-02-29T00:00:00Z": day out of range"#)),
            ("", Err(r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#)),
            (
                "2024-01-01",
                Err(r#"parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
            ),
            (
                "0000-01-01T00:00:00+02:00",
                Err(r#"parsing time "0000-01-01T00:00:00+02:00": year out of range"#),
            ),
        ] {
            let got = canonical_seconds(text);
            assert_eq!(got.as_ref().map(Option::as_deref).map_err(String::as_str), want, "{text}");
        }
    }

    #[test]
    fn micro_times_have_exactly_six_decimals() {
        let same = "2024-05-06T07:08:09.000120Z";
        assert_eq!(canonical_micros(same).unwrap().as_deref(), Some(same));
        let zoned = canonical_micros("2024-05-06T07:08:09.000120-01:00").unwrap();
        assert_eq!(zoned.as_deref(), Some("2024-05-06T08:08:09.000120Z"));
        for bad in ["2024-05-06T07:08:09Z", "2024-05-06T07:08:09.12Z", "2024-05-06T07:08:09.123456789Z"] {
            assert!(canonical_micros(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn days_and_dates_are_inverse() {
        for day in (-719_528..2_932_896).step_by(97) {
            let (year, month, date) = civil(day);
            assert_eq!(day_number(year, month, date), day);
            assert!((1..=days_in(year, month)).contains(&date));
        }
    }
}
