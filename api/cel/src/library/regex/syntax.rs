//! The syntax of RE2, as Go's `regexp` reads it, on top of the `regex` crate.
//!
//! The crate's own syntax is close but not the same: there `\d`, `\w`, `\s` and `\b` are about Unicode, classes may nest,
//! `\1` is an octal escape at most, and so on. [`compile`] therefore reads a pattern by the rules of RE2, with RE2's error
//! texts, and writes it anew with constructs that mean the same in the crate. Memory is bounded by the crate's limit on
//! the size of the compiled form.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;

use regex::{Regex, RegexBuilder};

use crate::error::EvalError;

/// Largest count of `{n}`, and largest product of nested counts.
const REPEAT_MAX: u64 = 1000;
/// Deepest nesting of groups.
const NESTING_MAX: usize = 1000;
/// Most classes of Unicode in a pattern that is compiled: each takes kilobytes before the size of the whole is known.
const UNICODE_CLASSES_MAX: usize = 2000;
/// Longest name of a category or script of Unicode.
const CLASS_NAME_MAX: usize = 64;
/// Size of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 20 << 20;

/// What is wrong with a pattern, and the part of it to show.
#[derive(Debug, Eq, PartialEq)]
struct Fault<'p> {
    reason: &'static str,
    shown: &'p str,
}

const MISSING_PAREN: &str = "missing closing )";
const MISSING_BRACKET: &str = "missing closing ]";
const UNEXPECTED_PAREN: &str = "unexpected )";
const MISSING_ARGUMENT: &str = "missing argument to repetition operator";
const NESTED_REPEAT: &str = "invalid nested repetition operator";
const REPEAT_SIZE: &str = "invalid repeat count";
const CLASS_RANGE: &str = "invalid character class range";
const ESCAPE: &str = "invalid escape sequence";
const NAMED_CAPTURE: &str = "invalid named capture";
const PERL: &str = "invalid or unsupported Perl syntax";
const TRAILING_BACKSLASH: &str = "trailing backslash at end of expression";
const TOO_DEEP: &str = "expression nests too deeply";
const TOO_LARGE: &str = "expression too large";
const INTERNAL: &str = "regexp/syntax: internal error";

/// Compiles a pattern.
///
/// # Errors
/// The sentence of Go's `regexp/syntax`.
pub fn compile(pattern: &str) -> Result<Regex, EvalError> {
    compile_within(pattern, COMPILED_BYTES_MAX)
}

/// Compiles a pattern to a form of at most `bytes_max` in memory.
///
/// # Errors
/// As for [`compile`]; a larger form is "too large".
pub fn compile_within(pattern: &str, bytes_max: usize) -> Result<Regex, EvalError> {
    let mut translator = Translator::new(pattern);
    translator.translate().map_err(failed)?;
    if translator.unicode_classes > UNICODE_CLASSES_MAX {
        return Err(failed(Fault { reason: TOO_LARGE, shown: pattern }));
    }
    let mut builder = RegexBuilder::new(&translator.out);
    builder.size_limit(bytes_max).nest_limit(4 * NESTING_MAX as u32);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => failed(Fault { reason: TOO_LARGE, shown: pattern }),
        _ => failed(Fault { reason: INTERNAL, shown: pattern }),
    })
}

/// Looks at the syntax of a pattern only, in time that is linear in its length.
///
/// # Errors
/// The sentence of Go's `regexp/syntax`.
pub fn check(pattern: &str) -> Result<(), EvalError> {
    Translator::new(pattern).translate().map_err(failed)
}

fn failed(Fault { reason, shown }: Fault<'_>) -> EvalError {
    EvalError::new(format!("error parsing regexp: {reason}: `{shown}`"))
}

/// A group that is open, or the whole pattern.
#[derive(Default)]
struct Group<'p> {
    /// Whether something stands before the cursor that can be repeated.
    repeatable: bool,
    /// The text from the last repetition operator on, when it is directly before the cursor.
    after_repeat: Option<&'p str>,
    /// Product of the nested counts of the last expression.
    weight: u64,
    /// Largest weight of the group's expressions.
    weight_max: u64,
}

struct Translator<'p> {
    pattern: &'p str,
    rest: &'p str,
    out: String,
    /// Innermost last; the first one is the whole pattern.
    groups: Vec<Group<'p>>,
    /// How many classes of Unicode were written.
    unicode_classes: usize,
    /// How much is left of the pattern from the last `:]` on. With less left, there is no use in searching for one.
    named_class_end: usize,
}

type Step<'p, T = ()> = Result<T, Fault<'p>>;

impl<'p> Translator<'p> {
    fn new(pattern: &'p str) -> Self {
        let out = String::with_capacity(2 * pattern.len());
        let named_class_end = pattern.rfind(":]").map_or(usize::MAX, |at| pattern.len() - at);
        let groups = vec![Group::default()];
        Self { pattern, rest: pattern, out, groups, unicode_classes: 0, named_class_end }
    }

    fn translate(&mut self) -> Step<'p> {
        while let Some(c) = self.rest.chars().next() {
            let after_repeat = self.group().after_repeat.take();
            match c {
                '(' => self.open_group()?,
                ')' => self.close_group()?,
                '|' => {
                    self.group().repeatable = false;
                    self.emit(1, "|");
                }
                '*' | '+' | '?' => self.repeat(after_repeat, 1, None)?,
                '{' => match counts(self.rest) {
                    Some((len, min, max)) => self.repeat(after_repeat, len, Some((min, max)))?,
                    None => self.literal(1, '{'),
                },
                '[' => self.class()?,
                '\\' => self.escape()?,
                '^' | '$' | '.' => {
                    self.emit(1, c.encode_utf8(&mut [0; 4]));
                    self.atom();
                }
                c => self.literal(c.len_utf8(), c),
            }
        }
        if self.groups.len() > 1 {
            return Err(Fault { reason: MISSING_PAREN, shown: self.pattern });
        }
        Ok(())
    }

    /// The innermost group.
    fn group(&mut self) -> &mut Group<'p> {
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// Moves past `len` bytes and writes `text`.
    fn emit(&mut self, len: usize, text: &str) {
        self.rest = &self.rest[len..];
        self.out.push_str(text);
    }

    /// Notes that an expression which can be repeated was written.
    fn atom(&mut self) {
        let group = self.group();
        group.repeatable = true;
        group.weight = 1;
        group.weight_max = group.weight_max.max(1);
    }

    fn literal(&mut self, len: usize, c: char) {
        self.rest = &self.rest[len..];
        push_char(&mut self.out, c);
        self.atom();
    }

    /// The part of the rest before `after`, which is the end of the rest.
    fn before(&self, after: &str) -> &'p str {
        &self.rest[..self.rest.len() - after.len()]
    }

    fn open_group(&mut self) -> Step<'p> {
        if self.groups.len() > NESTING_MAX {
            return Err(Fault { reason: TOO_DEEP, shown: self.pattern });
        }
        let name = self.rest.strip_prefix("(?P<").or_else(|| self.rest.strip_prefix("(?<"));
        // With nothing behind it, the angle is an unknown flag.
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let Some(end) = name.find('>') else {
                return Err(Fault { reason: NAMED_CAPTURE, shown: self.rest });
            };
            let capture = self.before(&name[end + 1..]);
            let name = &name[..end];
            let valid =
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !valid {
                return Err(Fault { reason: NAMED_CAPTURE, shown: capture });
            }
            // Nothing refers to groups by name or number, and several may have one name.
            self.emit(capture.len(), "(?:");
        } else if let Some(flags) = self.rest.strip_prefix("(?") {
            return self.flags(flags);
        } else {
            self.emit(1, "(?:");
        }
        self.groups.push(Group::default());
        Ok(())
    }

    /// `(?flags)` and `(?flags:`
    fn flags(&mut self, flags: &'p str) -> Step<'p> {
        let mut negative = false;
        let mut seen = false;
        for (at, c) in flags.char_indices() {
            let after = &flags[at + c.len_utf8()..];
            match c {
                'i' | 'm' | 's' | 'U' => seen = true,
                '-' if !negative => (negative, seen) = (true, false),
                ':' | ')' if !negative || seen => {
                    let written = self.before(after);
                    // No flags at all are allowed here, but not in the crate.
                    self.emit(written.len(), if written == "(?)" { "" } else { written });
                    if c == ':' {
                        self.groups.push(Group::default());
                    }
                    return Ok(());
                }
                _ => return Err(Fault { reason: PERL, shown: self.before(after) }),
            }
        }
        Err(Fault { reason: PERL, shown: self.rest })
    }

    fn close_group(&mut self) -> Step<'p> {
        if self.groups.len() == 1 {
            return Err(Fault { reason: UNEXPECTED_PAREN, shown: self.pattern });
        }
        let weight = self.groups.pop().map_or(1, |group| group.weight_max.max(1));
        self.emit(1, ")");
        self.atom();
        let group = self.group();
        group.weight = weight;
        group.weight_max = group.weight_max.max(weight);
        Ok(())
    }

    /// A repetition operator of `len` bytes, with its counts if it is in braces.
    fn repeat(
        &mut self,
        after_repeat: Option<&'p str>,
        len: usize,
        counts: Option<(u64, Option<u64>)>,
    ) -> Step<'p> {
        let len = if self.rest[len..].starts_with('?') { len + 1 } else { len };
        let (operator, after) = self.rest.split_at(len);
        if let Some((min, max)) = counts
            && (min > REPEAT_MAX || max.is_some_and(|max| max > REPEAT_MAX || max < min))
        {
            return Err(Fault { reason: REPEAT_SIZE, shown: operator.trim_end_matches('?') });
        }
        if let Some(first) = after_repeat {
            return Err(Fault { reason: NESTED_REPEAT, shown: &first[..first.len() - after.len()] });
        }
        if !self.group().repeatable {
            return Err(Fault { reason: MISSING_ARGUMENT, shown: operator });
        }
        let start = self.rest;
        let group = self.group();
        if let Some((min, max)) = counts {
            let count = max.unwrap_or(min);
            if count > 0 {
                group.weight = group.weight.saturating_mul(count);
            }
            if count >= 2 && group.weight > REPEAT_MAX {
                return Err(Fault { reason: REPEAT_SIZE, shown: operator });
            }
            group.weight_max = group.weight_max.max(group.weight);
        }
        group.after_repeat = Some(start);
        self.emit(len, operator);
        Ok(())
    }

    fn escape(&mut self) -> Step<'p> {
        let rest = self.rest;
        match rest.as_bytes().get(1) {
            Some(b'A') => self.emit(2, "\\A"),
            Some(b'z') => self.emit(2, "\\z"),
            Some(b'b') => self.emit(2, "(?-u:\\b)"),
            Some(b'B') => self.emit(2, "(?-u:\\B)"),
            Some(b'Q') => {
                let literal = &rest[2..];
                let (literal, len) = match literal.split_once("\\E") {
                    Some((literal, _)) => (literal, literal.len() + 4),
                    None => (literal, rest.len()),
                };
                for c in literal.chars() {
                    push_char(&mut self.out, c);
                }
                self.rest = &rest[len..];
                if literal.is_empty() {
                    return Ok(());
                }
            }
            _ => {
                if let Some((class, after)) = self.perl_class(rest)? {
                    let len = rest.len() - after.len();
                    self.emit(len, &class);
                } else {
                    let (c, after) = escaped_char(rest)?;
                    self.rest = after;
                    push_code_point(&mut self.out, c);
                }
            }
        }
        self.atom();
        Ok(())
    }

    /// `[…]`
    fn class(&mut self) -> Step<'p> {
        let start = self.rest;
        let mut rest = &start[1..];
        self.out.push('[');
        if let Some(after) = rest.strip_prefix('^') {
            self.out.push('^');
            rest = after;
        }
        let mut first = true;
        while first || !rest.starts_with(']') {
            first = false;
            if rest.len() >= self.named_class_end
                && rest.starts_with("[:")
                && let Some(end) = rest[2..].find(":]")
            {
                let (name, after) = rest.split_at(end + 4);
                if !is_posix_class(name) {
                    return Err(Fault { reason: CLASS_RANGE, shown: name });
                }
                self.out.push_str(name);
                rest = after;
                continue;
            }
            if let Some((class, after)) = self.perl_class(rest)? {
                self.out.push_str(&class);
                rest = after;
                continue;
            }
            let range = rest;
            let low;
            (low, rest) = class_char(rest, start)?;
            let mut high = low;
            if let Some(after) = rest.strip_prefix('-')
                && !after.is_empty()
                && !after.starts_with(']')
            {
                (high, rest) = class_char(after, start)?;
                if high < low {
                    return Err(Fault { reason: CLASS_RANGE, shown: &range[..range.len() - rest.len()] });
                }
            }
            push_range(&mut self.out, low, high);
        }
        self.out.push(']');
        self.rest = &rest[1..];
        self.atom();
        Ok(())
    }

    /// As [`perl_class`]; counts those of Unicode.
    fn perl_class(&mut self, text: &'p str) -> Step<'p, Option<(String, &'p str)>> {
        let class = perl_class(text)?;
        self.unicode_classes +=
            usize::from(class.is_some() && (text.starts_with("\\p") || text.starts_with("\\P")));
        Ok(class)
    }
}

/// Length, lower and upper count of `{n}`, `{n,}` or `{n,m}`; `None` when the brace stands for itself.
fn counts(text: &str) -> Option<(usize, u64, Option<u64>)> {
    let number = |text: &str| {
        let len = text.bytes().take_while(u8::is_ascii_digit).count();
        let leading_zero = len > 1 && text.starts_with('0');
        // A count too long for 64 bits is above the limit anyway.
        (len > 0 && !leading_zero).then(|| (text[..len].parse().unwrap_or(u64::MAX), len))
    };
    let (min, len) = number(&text[1..])?;
    let rest = &text[1 + len..];
    if rest.starts_with('}') {
        return Some((len + 2, min, Some(min)));
    }
    let rest = rest.strip_prefix(',')?;
    if rest.starts_with('}') {
        return Some((len + 3, min, None));
    }
    let (max, more) = number(rest)?;
    rest[more..].starts_with('}').then_some((len + more + 3, min, Some(max)))
}

/// The class at the start of `text` that an escape stands for: `\d`, `\pL`, `\p{Greek}`. Only ASCII counts as digit,
/// space or word character.
fn perl_class(text: &str) -> Step<'_, Option<(String, &str)>> {
    let mut chars = text.chars();
    if chars.next() != Some('\\') {
        return Ok(None);
    }
    let class = match chars.next() {
        Some('d') => "[0-9]",
        Some('D') => "[^0-9]",
        Some('s') => "[\\t\\n\\x0C\\r\\x20]",
        Some('S') => "[^\\t\\n\\x0C\\r\\x20]",
        Some('w') => "[0-9A-Za-z_]",
        Some('W') => "[^0-9A-Za-z_]",
        Some(c @ ('p' | 'P')) => return unicode_class(text, c == 'P').map(Some),
        _ => return Ok(None),
    };
    Ok(Some((class.to_owned(), chars.as_str())))
}

fn unicode_class(text: &str, negated: bool) -> Step<'_, (String, &str)> {
    let after = &text[2..];
    let Some(first) = after.chars().next() else { return Err(Fault { reason: ESCAPE, shown: text }) };
    let (name, rest) = match after.strip_prefix('{') {
        Some(braced) => match braced.split_once('}') {
            Some(parts) => parts,
            None => return Err(Fault { reason: CLASS_RANGE, shown: text }),
        },
        None => after.split_at(first.len_utf8()),
    };
    let (name, negated) = match name.strip_prefix('^') {
        Some(name) => (name, !negated),
        None => (name, negated),
    };
    // Categories and scripts, by any of their names; the crate knows other properties, too, and a prefix `is`.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '-');
    let allowed = name.len() <= CLASS_NAME_MAX
        && name.chars().all(plain)
        && !name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("is"));
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    let letter = if negated { 'P' } else { 'p' };
    match ["gc", "sc"].into_iter().find(|property| allowed && is_unicode_class(property, &name)) {
        Some(property) => Ok((format!("\\{letter}{{{property}={name}}}"), rest)),
        None => Err(Fault { reason: CLASS_RANGE, shown: &text[..text.len() - rest.len()] }),
    }
}

/// Whether a property of Unicode has a value of this name, in lower case without anything but letters and digits.
fn is_unicode_class(property: &str, name: &str) -> bool {
    thread_local! {
        /// Those that were found before; there are only so many.
        static KNOWN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }
    let class = format!("\\p{{{property}={name}}}");
    KNOWN.with_borrow_mut(|known| {
        let is_known = known.contains(&class) || regex_syntax::parse(&class).is_ok();
        if is_known {
            known.insert(class);
        }
        is_known
    })
}

/// One character of a class, and what follows it. `class` is the text from the opening bracket on.
fn class_char<'p>(text: &'p str, class: &'p str) -> Step<'p, (u32, &'p str)> {
    let mut chars = text.chars();
    match chars.next() {
        None => Err(Fault { reason: MISSING_BRACKET, shown: class }),
        Some('\\') => escaped_char(text),
        Some(c) => Ok((c.into(), chars.as_str())),
    }
}

/// The code point that the escape at the start of `text` stands for, and what follows it.
fn escaped_char(text: &str) -> Step<'_, (u32, &str)> {
    let mut chars = text[1..].chars();
    let Some(c) = chars.next() else { return Err(Fault { reason: TRAILING_BACKSLASH, shown: "" }) };
    let rest = chars.as_str();
    let invalid = |rest: &str| Err(Fault { reason: ESCAPE, shown: &text[..text.len() - rest.len()] });
    let code = match c {
        // A single digit would refer to a group, which RE2 does not have.
        '1'..='7' if !rest.starts_with(|c: char| ('0'..='7').contains(&c)) => return invalid(rest),
        '0'..='7' => {
            let octal = &text[1..];
            let len = octal.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            return Ok((u32::from_str_radix(&octal[..len], 8).unwrap_or(0), &octal[len..]));
        }
        'x' => return hexadecimal(text, rest),
        'a' => 0x7,
        'f' => 0xc,
        'n' => 0xa,
        'r' => 0xd,
        't' => 0x9,
        'v' => 0xb,
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c.into(),
        _ => return invalid(rest),
    };
    Ok((code, rest))
}

/// `\x7F` or `\x{10FFFF}`, where `digits` follows the `x`.
fn hexadecimal<'p>(text: &'p str, digits: &'p str) -> Step<'p, (u32, &'p str)> {
    // The error shows the escape up to and with the character that is wrong.
    let invalid = |at: usize| {
        let wrong = digits[at..].chars().next().map_or(0, char::len_utf8);
        let shown = &text[..text.len() - digits.len() + at + wrong];
        Err(Fault { reason: ESCAPE, shown })
    };
    let count = |digits: &str| digits.bytes().take_while(u8::is_ascii_hexdigit).count();
    let Some(braced) = digits.strip_prefix('{') else {
        return match count(digits) {
            0 => invalid(0),
            1 => invalid(1),
            _ => Ok((u32::from_str_radix(&digits[..2], 16).unwrap_or(0), &digits[2..])),
        };
    };
    let len = count(braced);
    if len == 0 || !braced[len..].starts_with('}') {
        return invalid(1 + len);
    }
    match u32::from_str_radix(&braced[..len], 16) {
        Ok(code) if code <= u32::from(char::MAX) => Ok((code, &braced[len + 1..])),
        _ => invalid(len),
    }
}

fn is_posix_class(name: &str) -> bool {
    let bare = name.strip_prefix("[:").and_then(|name| name.strip_suffix(":]")).unwrap_or_default();
    let bare = bare.strip_prefix('^').unwrap_or(bare);
    matches!(
        bare,
        "alnum"
            | "alpha"
            | "ascii"
            | "blank"
            | "cntrl"
            | "digit"
            | "graph"
            | "lower"
            | "print"
            | "punct"
            | "space"
            | "upper"
            | "word"
            | "xdigit"
    )
}

fn push_char(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{:02X}", u32::from(c));
    } else {
        out.push(c);
    }
}

/// A code point outside classes; surrogates match nothing, as no text has them.
fn push_code_point(out: &mut String, code: u32) {
    match char::from_u32(code) {
        Some(c) => push_char(out, c),
        None => out.push_str("[a&&b]"),
    }
}

/// A range inside a class, without the surrogates.
fn push_range(out: &mut String, low: u32, high: u32) {
    for (low, high) in [(low, high.min(0xd7ff)), (low.max(0xe000), high)] {
        if let (Some(low), Some(high)) = (char::from_u32(low), char::from_u32(high))
            && low <= high
        {
            push_char(out, low);
            out.push('-');
            push_char(out, high);
        }
    }
    if (0xd800..=0xdfff).contains(&low) && high <= 0xdfff {
        out.push_str("[a&&b]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_re2() {
        for (pattern, text, want) in [
            (r"\d+", "x٣12", Some("12")),
            (r"\D+", "12é", Some("é")),
            (r"\w+", "éab_1", Some("ab_1")),
            (r"\s", "\u{b}", None),
            (r"\s", "\u{a0}", None),
            (r"[\s]", "\n", Some("\n")),
            (r"[^\d]", "1é", Some("é")),
            (r"\bé", "aé", Some("é")),
            (r"a\B", "ab", Some("a")),
            (r"(?i)STRASSE", "strasse", Some("strasse")),
            (r"(?s).", "\n", Some("\n")),
            (r"(?U)a+", "aaa", Some("a")),
            (r"(?P<n>a)(?<m>b)", "ab", Some("ab")),
            (r"(?P<n>a)(?P<n>b)", "ab", Some("ab")),
            (r"[+--]", ",", Some(",")),
            (r"[a-z--/]+", "b.", Some("b.")),
            (r"[^]a]", "]ab", Some("b")),
            (r"^*a{", "a{", Some("a{")),
            (r"\.\-\/\_", ".-/_", Some(".-/_")),
            (r"(?)a", "a", Some("a")),
            (r"\Qa.b\E+", "a.bb", Some("a.bb")),
            (r"\Q", "", Some("")),
            (r"[]a]+", "]a", Some("]a")),
            (r"[a-]+", "-a", Some("-a")),
            (r"[[:alpha:]-]+", "a-é", Some("a-")),
            (r"[a&&b]+", "&&", Some("&&")),
            (r"[[a]+", "[a", Some("[a")),
            (r"[a~~b]", "~", Some("~")),
            (r"a{,2}", "a{,2}", Some("a{,2}")),
            (r"a{02}", "a{02}", Some("a{02}")),
            (r"a{2}?", "aaa", Some("aa")),
            (r"a}", "a}", Some("a}")),
            (r"\x{e9}\xe9\351", "ééé", Some("ééé")),
            (r"\012", "\n", Some("\n")),
            (r"\pN\p{Greek}\P{^L}", "1αx", Some("1αx")),
            (r"\p{letter}\p{Any}\p{old italic}*", "aé", Some("aé")),
            (r"# x", "# x", Some("# x")),
            (r"^a$", "a", Some("a")),
            (r"(?m)^b$", "a\nb", Some("b")),
            (r"\x{D800}|a", "a", Some("a")),
            (r"[\x{D700}-\x{E000}]", "\u{e000}", Some("\u{e000}")),
            ("", "x", Some("")),
        ] {
            let regex = compile(pattern).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(regex.find(text).map(|found| found.as_str()), want, "{pattern}");
        }
    }

    #[test]
    fn the_reason_of_a_refusal_is_told() {
        for (pattern, want) in [
            ("(", "missing closing ): `(`"),
            ("a(b", "missing closing ): `a(b`"),
            ("a)", "unexpected ): `a)`"),
            ("[", "missing closing ]: `[`"),
            ("a[b", "missing closing ]: `[b`"),
            ("[]", "missing closing ]: `[]`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("a|+?", "missing argument to repetition operator: `+?`"),
            ("(*)", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a*??", "invalid nested repetition operator: `*??`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{99999999999999999999}", "invalid repeat count: `{99999999999999999999}`"),
            ("((a{100}){100}){100}", "invalid repeat count: `{100}`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\pX", r"invalid character class range: `\pX`"),
            (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
            (r"\p{Alphabetic}", r"invalid character class range: `\p{Alphabetic}`"),
            (r"\p{IsGreek}", r"invalid character class range: `\p{IsGreek}`"),
            (r"\p{L", r"invalid character class range: `\p{L`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"\C", r"invalid escape sequence: `\C`"),
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            (r"\xg", r"invalid escape sequence: `\xg`"),
            (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
            (r"\é", r"invalid escape sequence: `\é`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
            ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
            ("(?<!a)", "invalid named capture: `(?<!a)`"),
            ("(?P<n!>a)", "invalid named capture: `(?P<n!>`"),
            ("(?P<", "invalid or unsupported Perl syntax: `(?P`"),
            ("(?<", "invalid or unsupported Perl syntax: `(?<`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("(?i)?", "missing argument to repetition operator: `?`"),
            ("[[:[:alpha:]]", "invalid character class range: `[:[:alpha:]`"),
            ("[[:^^alpha:]]", "invalid character class range: `[:^^alpha:]`"),
        ] {
            assert!(check(pattern).is_err(), "{pattern}");
            let error =
                compile(pattern).map(|regex| regex.as_str().to_owned()).map_err(|error| error.message);
            assert_eq!(error, Err(format!("error parsing regexp: {want}").into()), "{pattern}");
        }
    }

    #[test]
    fn hostile_patterns_stay_bounded() {
        let deep = format!("{}{}", "(".repeat(100_000), ")".repeat(100_000));
        let large = r"[\pL\pN]{1000}".repeat(100);
        for pattern in [deep, large, r"\pL".repeat(100_000), "{9}".repeat(100_000)] {
            assert!(compile(&pattern).is_err());
        }
        // Time is linear in the length.
        for pattern in ["[[:a]", "{", "{1,", r"\p{Old Italic}", r"\Q\E", "(?P<n>)", "(?i)"] {
            assert!(check(&pattern.repeat(100_000)).is_ok(), "{pattern}");
        }
        assert!(compile(&format!("{}{}", "(".repeat(900), ")".repeat(900))).is_ok());
    }
}
