//! Syntax of cron schedules: five fields of lists, ranges and steps, or a descriptor such as `@daily`.
//!
//! This module checks only the syntax. The messages are the same as in the parser of the reference server.

use go::duration;

use super::time_zone;

/// A cron schedule, used only to check its syntax.
pub(super) struct Schedule;

/// Limits of a field: its minimum, its maximum, and the names of the numbers from the minimum on.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const DESCRIPTORS: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

impl Schedule {
    /// Checks the syntax of a schedule.
    ///
    /// # Errors
    /// Returns the error message of the reference server.
    pub(super) fn check(text: &str) -> Result<(), String> {
        let mut rest = text;
        if rest.starts_with("TZ=") || rest.starts_with("CRON_TZ=") {
            let Some((_, after)) = rest.split_once(' ') else {
                return Err(format!("expected exactly 5 fields, found 0: [{text}]"));
            };
            let zone = rest.split([' ', '=']).nth(1).unwrap_or_default();
            if let Some(fault) = time_zone::fault(zone) {
                return Err(format!("provided bad location {zone}: {fault}"));
            }
            rest = after.trim();
        }
        if rest.starts_with('@') {
            return descriptor(rest);
        }
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        }
        fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| list(field, bounds))
    }
}

fn descriptor(text: &str) -> Result<(), String> {
    if let Some(every) = text.strip_prefix("@every ") {
        return match duration::parse(every) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("failed to parse duration {text}: {error}")),
        };
    }
    if DESCRIPTORS.contains(&text) { Ok(()) } else { Err(format!("unrecognized descriptor: {text}")) }
}

fn list(field: &str, bounds: &Bounds) -> Result<(), String> {
    field.split(',').filter(|part| !part.is_empty()).try_for_each(|part| range(part, bounds))
}

/// Checks `*`, `?`, `a` or `a-b`, each with an optional `/step`.
fn range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = if matches!(ends[0], "*" | "?") {
        (bounds.min, bounds.max)
    } else {
        let start = number_or_name(ends[0], bounds)?;
        let end = match ends.len() {
            1 => start,
            2 => number_or_name(ends[1], bounds)?,
            _ => return Err(format!("too many hyphens: {text}")),
        };
        (start, end)
    };
    let step = match parts.len() {
        1 => 1,
        2 => {
            let step = number(parts[1])?;
            if ends.len() == 1 {
                end = bounds.max;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < bounds.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", bounds.min));
    }
    if end > bounds.max {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", bounds.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let named = bounds.names.iter().position(|name| text.eq_ignore_ascii_case(name));
    match named.and_then(|at| u32::try_from(at).ok()) {
        Some(at) => Ok(bounds.min + at),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    let quoted = values::field::go_quote(text);
    match text.parse::<i64>() {
        Ok(number @ ..0) => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_have_five_fields_within_their_bounds() {
        for schedule in [
            "* * * * *",
            "*/5 0-23/2 1,15 jan-mar MON",
            "0 0 ? * 0",
            "5/15 * * * *",
            "@hourly",
            "@every 1h30m",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(Schedule::check(schedule), Ok(()), "{schedule}");
        }
        for (schedule, fault) in [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(Schedule::check(schedule), Err(fault.to_owned()), "{schedule}");
        }
    }
}
