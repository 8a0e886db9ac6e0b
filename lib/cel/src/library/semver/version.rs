//! Semantic versions 2.0.0 (<https://semver.org>): strict and lenient parsing, and precedence.

use std::cmp::Ordering;
use std::fmt;

use go::quote;

/// A semantic version. Build metadata does not affect the order.
#[derive(Clone, Debug)]
pub struct SemanticVersion {
    /// Major version, the first number.
    pub major: u64,
    /// Minor version, the second number.
    pub minor: u64,
    /// Patch version, the third number.
    pub patch: u64,
    prerelease: Vec<Identifier>,
    build: Vec<Box<str>>,
}

/// A dot-separated identifier of a prerelease. Numbers come before words.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Identifier {
    Number(u64),
    Word(Box<str>),
}

impl SemanticVersion {
    /// Parses a version exactly as in the specification.
    ///
    /// # Errors
    /// The error text of the reference.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(patch)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let major = number(major, "major", "Major")?;
        let minor = number(minor, "minor", "Minor")?;
        let (patch, build) = split_off(patch, '+');
        let (patch, prerelease) = split_off(patch, '-');
        let patch = number(patch, "patch", "Patch")?;
        let prerelease = prerelease.map(identifier).collect::<Result<_, _>>()?;
        let build = build.map(metadata).collect::<Result<_, _>>()?;
        Ok(Self { major, minor, patch, prerelease, build })
    }

    /// Parses a version leniently: a leading `v` and leading zeros are allowed, and the last one or two
    /// numbers may be missing.
    ///
    /// # Errors
    /// The error text of the reference, which quotes the text after these corrections.
    pub fn parse_lenient(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_leading_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }
}

impl Ord for SemanticVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        let prerelease = || match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            // A release comes after its prereleases.
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.prerelease.cmp(&other.prerelease),
        };
        numbers(self).cmp(&numbers(other)).then_with(prerelease)
    }
}

impl PartialOrd for SemanticVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SemanticVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SemanticVersion {}

impl fmt::Display for SemanticVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (index, part) in self.prerelease.iter().enumerate() {
            let separator = if index == 0 { '-' } else { '.' };
            match part {
                Identifier::Number(number) => write!(f, "{separator}{number}")?,
                Identifier::Word(word) => write!(f, "{separator}{word}")?,
            }
        }
        for (index, part) in self.build.iter().enumerate() {
            write!(f, "{}{part}", if index == 0 { '+' } else { '.' })?;
        }
        Ok(())
    }
}

/// Splits a text at `mark`. Returns the text before the mark, and the dot-separated identifiers after
/// the mark.
fn split_off(text: &str, mark: char) -> (&str, impl Iterator<Item = &str>) {
    let (before, after) = match text.split_once(mark) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    };
    (before, after.into_iter().flat_map(|after| after.split('.')))
}

fn number(text: &str, name: &str, capitalized: &str) -> Result<u64, String> {
    if !is_numeric(text) {
        return Err(format!("Invalid character(s) found in {name} number {}", quote(text)));
    }
    if has_leading_zero(text) {
        return Err(format!("{capitalized} number must not contain leading zeroes {}", quote(text)));
    }
    parse_u64(text)
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        Err("Prerelease is empty".to_owned())
    } else if is_numeric(text) {
        if has_leading_zero(text) {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                quote(text)
            ));
        }
        Ok(Identifier::Number(parse_u64(text)?))
    } else if is_word(text) {
        Ok(Identifier::Word(text.into()))
    } else {
        Err(format!("Invalid character(s) found in prerelease {}", quote(text)))
    }
}

fn metadata(text: &str) -> Result<Box<str>, String> {
    if text.is_empty() {
        Err("Build meta data is empty".to_owned())
    } else if is_word(text) {
        Ok(text.into())
    } else {
        Err(format!("Invalid character(s) found in build meta data {}", quote(text)))
    }
}

fn is_numeric(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn has_leading_zero(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

/// Parses digits as a number. The text has only digits, so an error means that the text is empty or the
/// number is too large.
fn parse_u64(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let reason = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {}: {reason}", quote(text))
    })
}

/// Removes leading zeros. A zero is kept (or added) if no digit would remain.
fn without_leading_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let stripped = part.trim_start_matches('0');
    if stripped.starts_with(|c: char| c.is_ascii_digit()) {
        stripped.to_owned()
    } else {
        format!("0{stripped}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_written() {
        for (text, lenient, want) in [
            ("1.2.3", false, "1.2.3"),
            ("1.2.3-rc.1+b.02", false, "1.2.3-rc.1+b.02"),
            ("1.2.3--x", false, "1.2.3--x"),
            ("v1.02", true, "1.2.0"),
            ("1", true, "1.0.0"),
            ("0.0", true, "0.0.0"),
            ("1.00.3-rc", true, "1.0.3-rc"),
        ] {
            let parsed =
                if lenient { SemanticVersion::parse_lenient(text) } else { SemanticVersion::parse(text) };
            assert_eq!(parsed.map(|version| version.to_string()).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn an_invalid_semantic_version_is_refused_with_the_reason() {
        for (text, lenient, want) in [
            ("", false, "Version string empty"),
            ("", true, "strconv.ParseUint: parsing \"\": invalid syntax"),
            ("1.2", false, "No Major.Minor.Patch elements found"),
            ("v1.2.3", false, "Invalid character(s) found in major number \"v1\""),
            ("1.02.3", false, "Minor number must not contain leading zeroes \"02\""),
            ("1.2.3.4", true, "Invalid character(s) found in patch number \"3.4\""),
            ("1.2.3-", true, "Prerelease is empty"),
            ("1.2.3+", false, "Build meta data is empty"),
            ("1.2.3-01", false, "Numeric PreRelease version must not contain leading zeroes \"01\""),
            ("1.2.3-é", false, "Invalid character(s) found in prerelease \"é\""),
            ("1.2.3+a_b", false, "Invalid character(s) found in build meta data \"a_b\""),
            ("-1.0.0", true, "Invalid character(s) found in major number \"0-1\""),
            (" 1.0.0", true, "Invalid character(s) found in major number \"0 1\""),
            ("1.2-beta", true, "short version cannot contain PreRelease/Build meta data"),
            (
                "999999999999999999999.0.0",
                false,
                "strconv.ParseUint: parsing \"999999999999999999999\": value out of range",
            ),
        ] {
            let parsed =
                if lenient { SemanticVersion::parse_lenient(text) } else { SemanticVersion::parse(text) };
            assert_eq!(parsed, Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn versions_are_ordered_by_precedence() {
        let ascending = [
            "1.0.0-1",
            "1.0.0-alpha",
            "1.0.0-alpha.9",
            "1.0.0-alpha.10",
            "1.0.0-alpha.beta",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.1.0",
            "10.0.0",
        ];
        for pair in ascending.windows(2) {
            assert!(SemanticVersion::parse(pair[0]) < SemanticVersion::parse(pair[1]), "{pair:?}");
        }
        assert_eq!(SemanticVersion::parse("1.2.3+a"), SemanticVersion::parse("1.2.3+b"));
    }
}
