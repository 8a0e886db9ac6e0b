//! Parses strings that the expression language treats as points in time, and describes why a string is
//! invalid.
//!
//! The error texts are the same as in Go's `time.Parse`, because messages for authors of rules contain these texts. A
//! layout is parsed piece by piece. The error contains the first piece that does not match, and the rest of the text
//! from that position.

use cel::value::Timestamp;

/// Layout of a date: `2006-01-02`.
const DATE: &str = "2006-01-02";

/// The only layout of a date and time that has no zone, which is tried last.
const LOCAL: &str = "2006-01-02T15:04:05";

/// Parses a date as the first moment of the day.
pub(super) fn date(text: &str) -> Result<Timestamp, String> {
    read(DATE, text)
}

/// Parses a date and time. Without a zone, the time is in UTC. An empty text is the epoch.
pub(super) fn date_time(text: &str) -> Result<Timestamp, String> {
    if text.is_empty() {
        return Timestamp::from_seconds(0).ok_or_else(String::new);
    }
    Timestamp::parse(text).or_else(|_| read(LOCAL, text))
}

/// Pieces of a layout: the text, and the minimum and maximum of the number. Years have four digits, and hours
/// have one or two.
const PIECES: [(&str, u32, u32); 11] = [
    ("2006", 0, 9999),
    ("-", 0, 0),
    ("01", 1, 12),
    ("-", 0, 0),
    ("02", 0, 99),
    ("T", 0, 0),
    ("15", 0, 23),
    (":", 0, 0),
    ("04", 0, 59),
    (":", 0, 0),
    ("05", 0, 59),
];

fn read(layout: &str, text: &str) -> Result<Timestamp, String> {
    let said = |message: String| format!("parsing time {}{message}", quoted(text));
    let mut rest = text;
    let mut numbers = [0_u32; 6];
    let mut count = 0;
    let pieces = PIECES.iter().take(if layout == DATE { 5 } else { PIECES.len() });
    for (piece, min, max) in pieces {
        let cannot = |rest: &str| {
            let (layout, rest, piece) = (quoted(layout), quoted(rest), quoted(piece));
            said(format!(" as {layout}: cannot parse {rest} as {piece}"))
        };
        if !piece.starts_with(|c: char| c.is_ascii_digit()) {
            rest = rest.strip_prefix(piece).ok_or_else(|| cannot(rest))?;
            continue;
        }
        let digits = match *piece {
            "2006" => 4,
            "15" if !rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => 1,
            _ => 2,
        };
        let number = rest.get(..digits).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let number: u32 = number.and_then(|number| number.parse().ok()).ok_or_else(|| cannot(rest))?;
        if !(*min..=*max).contains(&number) {
            let what = match *piece {
                "01" => "month",
                "15" => "hour",
                "04" => "minute",
                _ => "second",
            };
            return Err(said(format!(": {what} out of range")));
        }
        numbers[count] = number;
        count += 1;
        rest = &rest[digits..];
    }
    // A fraction may follow the seconds, although the layout contains no fraction.
    let fraction = rest
        .strip_prefix(['.', ','])
        .filter(|_| layout == LOCAL)
        .map(|after| &after[..after.bytes().take_while(u8::is_ascii_digit).count()])
        .filter(|digits| !digits.is_empty());
    if let Some(digits) = fraction {
        rest = &rest[1 + digits.len()..];
    }
    if !rest.is_empty() {
        return Err(said(format!(": extra text: {}", quoted(rest))));
    }
    let [year, month, day, hour, minute, second] = numbers;
    let fraction = fraction.map_or_else(String::new, |digits| format!(".{digits}"));
    let full = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z");
    Timestamp::parse(&full).map_err(|_| said(": day out of range".to_owned()))
}

/// Quotes a text like Go's time package: control characters and bytes outside of ASCII become `\xNN`.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_date_is_refused_with_the_component_that_failed() {
        for (text, want) in [
            ("2024-02-29", Ok("2024-02-29T00:00:00Z")),
            ("bad", Err(r#"parsing time "bad" as "2006-01-02": cannot parse "bad" as "2006""#)),
            ("2024", Err(r#"parsing time "2024" as "2006-01-02": cannot parse "" as "-""#)),
            ("2024-13-01", Err(r#"parsing time "2024-13-01": month out of range"#)),
            ("2023-02-29", Err(r#"parsing time "2023-02-29": day out of range"#)),
            ("2024-02-29é", Err(r#"parsing time "2024-02-29\xc3\xa9": extra text: "\xc3\xa9""#)),
        ] {
            assert_eq!(date(text).map(Timestamp::to_text), want.map(str::to_owned).map_err(str::to_owned));
        }
        for (text, want) in [
            ("2024-02-29T01:02:03Z", Ok("2024-02-29T01:02:03Z")),
            ("2024-02-29T1:02:03.5", Ok("2024-02-29T01:02:03.5Z")),
            ("", Ok("1970-01-01T00:00:00Z")),
            ("y", Err(r#"parsing time "y" as "2006-01-02T15:04:05": cannot parse "y" as "2006""#)),
            ("2024-02-29T25:00:00Z", Err(r#"parsing time "2024-02-29T25:00:00Z": hour out of range"#)),
            ("2024-02-29T01:02:03z", Err(r#"parsing time "2024-02-29T01:02:03z": extra text: "z""#)),
        ] {
            let got = date_time(text).map(Timestamp::to_text);
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned));
        }
    }
}
