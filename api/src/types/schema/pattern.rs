//! Regular expressions of schemas: the syntax and the classes of RE2, matched in linear time.
//!
//! `pattern ─ translate ─► syntax of the regex crate ─► automaton, made at the first match`
//!
//! Both languages are nearly one. In RE2 `\d`, `\s`, `\w` and `\b` mean ASCII, a brace that begins no repetition is
//! itself, `\Q…\E` quotes, and a class knows neither nested classes nor set operations. An automaton is bounded in size;
//! a pattern that would need a larger one matches nothing.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use super::handle::Text;

/// Largest automaton of one pattern in memory: a thousand repetitions of a class of letters need less than half of it.
const AUTOMATON_BYTES_MAX: usize = 4 << 20;

/// A pattern that a text may have a match of.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Text,
    regex: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// The pattern as the schema states it.
    pub fn new(text: impl Into<Text>) -> Self {
        Pattern { text: text.into(), regex: OnceLock::new() }
    }

    /// The pattern as the schema states it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether there is a match anywhere in `text`; `false` for a pattern that is none. Linear in the length of `text`.
    pub fn is_in(&self, text: &str) -> bool {
        let regex = self.regex.get_or_init(|| {
            RegexBuilder::new(&translate(&self.text)).size_limit(AUTOMATON_BYTES_MAX).build().ok()
        });
        regex.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

/// A pattern of RE2 in the syntax of the regex crate.
pub fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        rest = match char {
            '\\' => escape(after, false, &mut out),
            '[' => class(after, &mut out),
            '{' if repetition(after).is_none() => {
                out.push_str("\\{");
                after
            }
            _ => {
                out.push(char);
                after
            }
        };
    }
    out
}

/// Translates what follows a backslash; returns what comes after it.
fn escape<'p>(after: &'p str, in_class: bool, out: &mut String) -> &'p str {
    let Some(char) = after.chars().next() else {
        out.push('\\');
        return after;
    };
    let rest = &after[char.len_utf8()..];
    let ascii = match char {
        'd' => Some((false, "0-9")),
        'D' => Some((true, "0-9")),
        's' => Some((false, r"\t\n\x0C\r ")),
        'S' => Some((true, r"\t\n\x0C\r ")),
        'w' => Some((false, "0-9A-Za-z_")),
        'W' => Some((true, "0-9A-Za-z_")),
        _ => None,
    };
    match (char, ascii) {
        (_, Some((is_negated, members))) => {
            out.push_str(if is_negated { "[^" } else { "[" });
            out.push_str(members);
            out.push(']');
        }
        ('b', _) if !in_class => out.push_str(r"(?-u:\b)"),
        ('Q', _) if !in_class => {
            let (quoted, rest) = rest.split_once(r"\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(quoted));
            return rest;
        }
        ('p' | 'P' | 'x', _) if rest.starts_with('{') => {
            let end = rest.find('}').map_or(rest.len(), |at| at + 1);
            out.push('\\');
            out.push(char);
            out.push_str(&rest[..end]);
            return &rest[end..];
        }
        _ => {
            out.push('\\');
            out.push(char);
        }
    }
    rest
}

/// Translates a class after its bracket; returns what comes after it.
fn class<'p>(after: &'p str, out: &mut String) -> &'p str {
    out.push('[');
    let mut rest = after;
    if let Some(negated) = rest.strip_prefix('^') {
        out.push('^');
        rest = negated;
    }
    let mut is_first = true;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        rest = match char {
            ']' if !is_first => {
                out.push(']');
                return after;
            }
            '\\' => escape(after, true, out),
            '[' if after.starts_with(':') && after.contains(":]") => {
                let end = after.find(":]").map_or(0, |at| at + 2);
                out.push('[');
                out.push_str(&after[..end]);
                &after[end..]
            }
            ']' | '[' | '&' | '~' => {
                out.push('\\');
                out.push(char);
                after
            }
            // Two dashes would read as a difference of sets: the first is a member, or begins a range up to the second.
            '-' if after.starts_with('-') => {
                out.push_str(if is_first { "\\-" } else { "-\\-" });
                if is_first { after } else { &after[1..] }
            }
            _ => {
                out.push(char);
                after
            }
        };
        is_first = false;
    }
    rest
}

/// What follows `{` if it begins a repetition: `3}`, `3,}`, `3,5}`.
fn repetition(after: &str) -> Option<&str> {
    let (bounds, rest) = after.split_once('}')?;
    let (least, most) = bounds.split_once(',').unwrap_or((bounds, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(least) && (most.is_empty() || is_number(most))).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_re2() {
        for (pattern, matching, other) in [
            ("^a", "ab", "ba"),
            (r"^\d+$", "12", "٣"),
            (r"^[\d.]+$", "1.2", "1,2"),
            (r"^\w+$", "a_1", "é"),
            (r"^\W$", "é", "e"),
            (r"^[^\s]+$", "a\u{a0}b", "a b"),
            (r"\bfoo\b", "éfoo", "afoo"),
            ("^a{,2}$", "a{,2}", "aa"),
            ("^{a}$", "{a}", "a"),
            ("^a{2,}$", "aaa", "a"),
            (r"^\Qa.b\E$", "a.b", "axb"),
            ("^[[a]+$", "[a", "]"),
            ("^[]a]+$", "]a", "["),
            ("^[a&&b]+$", "a&b", "c"),
            ("^[+--]$", ",", "a"),
            ("^[--/]$", ".", "+"),
            ("^[[:alpha:]-]+$", "a-b", "1"),
            (r"^\/a\z", "/a", "/ab"),
            (r"^\p{Greek}\x{61}$", "αa", "ba"),
            ("(?i)^K$", "\u{212a}", "j"),
        ] {
            let pattern = Pattern::new(pattern);
            assert!(pattern.is_in(matching), "{} in {matching}: {}", pattern.text, translate(&pattern.text));
            assert!(!pattern.is_in(other), "{} not in {other}: {}", pattern.text, translate(&pattern.text));
        }
    }

    #[test]
    fn a_pattern_that_is_none_or_too_large_matches_nothing() {
        for pattern in ["(", "((((a{1000}){1000}){1000}){1000})", "[b-a]", "\\"] {
            assert!(!Pattern::new(pattern).is_in("a"), "{pattern}");
        }
    }
}
