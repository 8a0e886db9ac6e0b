//! Regular expressions of schemas: the syntax and the character classes of RE2, matched in linear time.
//!
//! `pattern ─ first match ─► automaton, compiled by the expression language, which has the same syntax`
//!
//! The size of an automaton is limited; a pattern that needs a larger automaton matches nothing.

use std::sync::OnceLock;

use cel::library::regex::compile_within;
use regex::Regex;

use super::handle::Text;

/// Maximum memory of the automaton of one pattern, in bytes. A thousand repetitions of a class of letters
/// need less than half of this memory.
const AUTOMATON_BYTES_MAX: usize = 4 << 20;

/// A regular expression that is compiled at its first use.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Text,
    regex: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Creates a pattern from its text in the schema.
    pub fn new(text: impl Into<Text>) -> Self {
        Pattern { text: text.into(), regex: OnceLock::new() }
    }

    /// Returns the pattern as written in the schema.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Compiles the pattern now instead of at the first match, to check its syntax.
    ///
    /// # Errors
    /// The syntax error, in the wording of the reference server.
    pub fn compile(&self) -> Result<(), String> {
        let regex =
            compile_within(&self.text, AUTOMATON_BYTES_MAX).map_err(|error| error.message.into_owned())?;
        let _ = self.regex.set(Some(regex)); // if another caller has set a regex, it is equal
        Ok(())
    }

    /// Returns whether the pattern matches anywhere in `text`; `false` if the pattern is invalid. Takes time
    /// linear in the length of `text`.
    pub fn is_in(&self, text: &str) -> bool {
        let regex = self.regex.get_or_init(|| compile_within(&self.text, AUTOMATON_BYTES_MAX).ok());
        regex.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
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
            assert!(pattern.is_in(matching), "{} in {matching}", pattern.text);
            assert!(!pattern.is_in(other), "{} not in {other}", pattern.text);
        }
    }

    #[test]
    fn an_invalid_or_too_large_pattern_matches_nothing() {
        for pattern in ["(", "((((a{1000}){1000}){1000}){1000})", "[b-a]", "\\"] {
            assert!(!Pattern::new(pattern).is_in("a"), "{pattern}");
        }
    }
}
