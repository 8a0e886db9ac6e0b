//! Whether a text is a regular expression in the syntax of RE2, with the reference server's words for what is wrong.
//!
//! `text ─ one pass, one frame for each open group ─► nothing, or the first error and the part that it is about`
//!
//! Only the syntax is looked at; matching is elsewhere. Repetitions may multiply to a thousand, groups nest a thousand
//! deep.

use std::collections::BTreeSet;
use std::fmt;

use hashbrown::HashSet;
use parking_lot::Mutex;

/// Largest count of a repetition, and largest product of counts of nested ones.
const COUNT_MAX: u32 = 1000;

/// Deepest nesting of groups.
const NESTING_MAX: usize = 1000;

/// Longest name of a category or script of Unicode.
const NAME_MAX: usize = 64;

/// What is wrong with a pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PatternError {
    what: &'static str,
    part: String,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.what, self.part)
    }
}

impl std::error::Error for PatternError {}

const BAD_CLASS_RANGE: &str = "invalid character class range";
const BAD_ESCAPE: &str = "invalid escape sequence";
const BAD_NAME: &str = "invalid named capture";
const BAD_PERL: &str = "invalid or unsupported Perl syntax";
const BAD_NESTED_REPETITION: &str = "invalid nested repetition operator";
const BAD_COUNT: &str = "invalid repeat count";
const NO_BRACKET: &str = "missing closing ]";
const NO_PAREN: &str = "missing closing )";
const NO_ARGUMENT: &str = "missing argument to repetition operator";
const TRAILING_BACKSLASH: &str = "trailing backslash at end of expression";
const EXTRA_PAREN: &str = "unexpected )";
const TOO_DEEP: &str = "expression nests too deeply";

fn error<T>(what: &'static str, part: &str) -> Result<T, PatternError> {
    Err(PatternError { what, part: part.to_owned() })
}

/// Checks a pattern.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn check(pattern: &str) -> Result<(), PatternError> {
    let mut parser = Parser {
        whole: pattern,
        rest: pattern,
        open: vec![Group::default()],
        names: HashSet::new(),
        named_class_end: pattern.rfind(":]").map_or(usize::MAX, |at| pattern.len() - at),
    };
    // Where the last token began, if it was a repetition.
    let mut repetition: Option<&str> = None;
    while let Some(c) = parser.rest.chars().next() {
        let token = parser.rest;
        let is_repetition = match c {
            '*' | '+' | '?' => {
                parser.rest = &token[1..];
                parser.repeat(token, 1, repetition)?;
                true
            }
            '{' => match counts(token) {
                None => {
                    parser.item(1);
                    false
                }
                Some((least, most, after)) => {
                    parser.rest = after;
                    let fits = |count: Option<u32>| count.is_some_and(|count| count <= COUNT_MAX);
                    let is_ordered = most.is_none_or(|most| least <= most);
                    if !fits(least) || most.is_some_and(|most| !fits(most)) || !is_ordered {
                        return error(BAD_COUNT, consumed(token, after));
                    }
                    let count = most.flatten().or(least).unwrap_or(0).max(1);
                    parser.repeat(token, count, repetition)?;
                    true
                }
            },
            _ => {
                parser.token(c)?;
                false
            }
        };
        repetition = is_repetition.then_some(token);
    }
    if parser.open.len() > 1 { error(NO_PAREN, pattern) } else { Ok(()) }
}

/// What is open at a place: the whole pattern, or a group.
#[derive(Default)]
struct Group {
    /// The largest product of counts of nested repetitions in it.
    product: u32,
    /// That of what a repetition would repeat; `None` where nothing is there to be repeated.
    last: Option<u32>,
}

struct Parser<'p> {
    whole: &'p str,
    rest: &'p str,
    /// The open groups, the innermost last.
    open: Vec<Group>,
    names: HashSet<&'p str>,
    /// How much is left of the pattern from the last `:]` on. With less left, there is no use in searching for one.
    named_class_end: usize,
}

/// What was read of `from` when `after` is left.
fn consumed<'p>(from: &'p str, after: &str) -> &'p str {
    &from[..from.len() - after.len()]
}

impl<'p> Parser<'p> {
    fn group(&mut self) -> &mut Group {
        self.open.last_mut().expect("the whole pattern stays open")
    }

    /// One more thing that can be repeated, of `bytes` bytes.
    fn item(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        let group = self.group();
        group.last = Some(1);
        group.product = group.product.max(1);
    }

    /// A repetition whose operator has been read; `token` begins with it.
    fn repeat(&mut self, token: &'p str, count: u32, earlier: Option<&'p str>) -> Result<(), PatternError> {
        self.rest = self.rest.strip_prefix('?').unwrap_or(self.rest);
        let rest = self.rest;
        if let Some(earlier) = earlier {
            return error(BAD_NESTED_REPETITION, consumed(earlier, rest));
        }
        let group = self.group();
        let Some(product) = group.last else { return error(NO_ARGUMENT, consumed(token, rest)) };
        let product = product.saturating_mul(count);
        if count > 1 && product > COUNT_MAX {
            return error(BAD_COUNT, consumed(token, rest));
        }
        group.last = Some(product);
        group.product = group.product.max(product);
        Ok(())
    }

    fn token(&mut self, first: char) -> Result<(), PatternError> {
        match first {
            '(' if self.rest.starts_with("(?") => return self.perl_group(),
            '(' => return self.open_group(1),
            ')' if self.open.len() == 1 => return error(EXTRA_PAREN, self.whole),
            ')' => {
                let inner = self.open.pop().map_or(1, |group| group.product.max(1));
                self.item(1);
                let group = self.group();
                group.last = Some(inner);
                group.product = group.product.max(inner);
            }
            '|' => {
                self.rest = &self.rest[1..];
                self.group().last = None;
            }
            '[' => {
                let after = class(self.rest, self.named_class_end)?;
                self.item(self.rest.len() - after.len());
            }
            '\\' => return self.backslash(),
            other => self.item(other.len_utf8()),
        }
        Ok(())
    }

    fn open_group(&mut self, bytes: usize) -> Result<(), PatternError> {
        if self.open.len() >= NESTING_MAX {
            return error(TOO_DEEP, self.whole);
        }
        self.rest = &self.rest[bytes..];
        self.open.push(Group::default());
        Ok(())
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)`, `(?flags:`.
    fn perl_group(&mut self) -> Result<(), PatternError> {
        let all = self.rest;
        if let Some(named) = all.strip_prefix("(?P<").or_else(|| all.strip_prefix("(?<")) {
            let Some(end) = named.find('>') else { return error(BAD_NAME, all) };
            let (name, after) = (&named[..end], &named[end + 1..]);
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_word) {
                return error(BAD_NAME, consumed(all, after));
            }
            if !self.names.insert(name) {
                return error("duplicate capture group name", name);
            }
            return self.open_group(all.len() - after.len());
        }
        let (mut is_negative, mut has_flag) = (false, false);
        let mut flags = all[2..].char_indices();
        loop {
            let Some((at, c)) = flags.next() else { return error(NO_PAREN, all) };
            let end = 2 + at + c.len_utf8();
            match c {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !is_negative => (is_negative, has_flag) = (true, false),
                ':' if !is_negative || has_flag => return self.open_group(end),
                ')' if !is_negative || has_flag => {
                    self.rest = &all[end..];
                    return Ok(());
                }
                _ => return error(BAD_PERL, &all[..end]),
            }
        }
    }

    fn backslash(&mut self) -> Result<(), PatternError> {
        let all = self.rest;
        let bytes = match all.as_bytes().get(1) {
            Some(b'A' | b'b' | b'B' | b'z') => 2,
            Some(b'C') => return error(BAD_ESCAPE, &all[..2]),
            Some(b'Q') => {
                let quoted = &all[2..];
                let (text, end) = match quoted.find("\\E") {
                    Some(at) => (&quoted[..at], at + 4),
                    None => (quoted, all.len()),
                };
                if text.is_empty() {
                    self.rest = &all[end..];
                    return Ok(());
                }
                end
            }
            _ => all.len() - escaped_or_class(all)?.len(),
        };
        self.item(bytes);
        Ok(())
    }
}

/// `{least}`, `{least,}` or `{least,most}`: the counts, and what comes after; `None` where the brace is itself. A count
/// is `None` where it is too large to be read, the last one also where it is open.
type Counts<'p> = (Option<u32>, Option<Option<u32>>, &'p str);

fn counts(token: &str) -> Option<Counts<'_>> {
    let number = |text: &'_ str| -> Option<(Option<u32>, usize)> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let has_padding = digits > 1 && text.starts_with('0');
        (digits > 0 && !has_padding).then(|| (text[..digits].parse().ok(), digits))
    };
    let rest = &token[1..];
    let (least, digits) = number(rest)?;
    let rest = &rest[digits..];
    if let Some(after) = rest.strip_prefix('}') {
        return Some((least, Some(least), after));
    }
    let rest = rest.strip_prefix(',')?;
    if let Some(after) = rest.strip_prefix('}') {
        return Some((least, None, after));
    }
    let (most, digits) = number(rest)?;
    Some((least, Some(most), rest[digits..].strip_prefix('}')?))
}

/// `[…]`; returns what comes after it.
fn class(all: &str, named_class_end: usize) -> Result<&str, PatternError> {
    let mut rest = all[1..].strip_prefix('^').unwrap_or(&all[1..]);
    let mut is_first = true;
    loop {
        if let Some(after) = rest.strip_prefix(']')
            && !is_first
        {
            return Ok(after);
        }
        is_first = false;
        if let Some(named) = rest.strip_prefix("[:").filter(|named| named.len() >= named_class_end)
            && let Some(end) = named.find(":]")
        {
            let name = named[..end].trim_start_matches('^');
            const NAMES: [&str; 14] = [
                "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
                "space", "upper", "word", "xdigit",
            ];
            if !NAMES.contains(&name) || named[..end].starts_with("^^") {
                return error(BAD_CLASS_RANGE, &rest[..end + 4]);
            }
            rest = &named[end + 2..];
            continue;
        }
        if let Some(after) = class_escape(rest)? {
            rest = after;
            continue;
        }
        let range = rest;
        let (low, after) = class_char(rest, all)?;
        rest = after;
        if let Some(high) = rest.strip_prefix('-').filter(|high| !high.starts_with(']') && !high.is_empty()) {
            let (high, after) = class_char(high, all)?;
            rest = after;
            if high < low {
                return error(BAD_CLASS_RANGE, consumed(range, rest));
            }
        }
    }
}

fn class_char<'p>(rest: &'p str, all: &str) -> Result<(char, &'p str), PatternError> {
    match rest.chars().next() {
        None => error(NO_BRACKET, all),
        Some('\\') => escaped(rest),
        Some(c) => Ok((c, &rest[c.len_utf8()..])),
    }
}

/// What comes after an escape, which `rest` begins with.
fn escaped_or_class(rest: &str) -> Result<&str, PatternError> {
    match class_escape(rest)? {
        Some(after) => Ok(after),
        None => escaped(rest).map(|(_, after)| after),
    }
}

/// What comes after `\d`, `\pL`, `\p{Greek}` and the like; `None` for anything else.
fn class_escape(rest: &str) -> Result<Option<&str>, PatternError> {
    let mut chars = rest.chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), Some('d' | 'D' | 's' | 'S' | 'w' | 'W')) => Ok(Some(&rest[2..])),
        (Some('\\'), Some('p' | 'P')) => {
            let Some(c) = chars.next() else { return Ok(None) };
            let end = match c {
                '{' => match rest.find('}') {
                    Some(end) => end + 1,
                    None => return error(BAD_CLASS_RANGE, rest),
                },
                c => 2 + c.len_utf8(),
            };
            let name = rest[2..end].trim_start_matches('{').trim_end_matches('}');
            let name = name.strip_prefix('^').unwrap_or(name);
            if is_unicode_class(name) { Ok(Some(&rest[end..])) } else { error(BAD_CLASS_RANGE, &rest[..end]) }
        }
        _ => Ok(None),
    }
}

/// Whether a category or script of Unicode has this name, whatever its case, spaces, dashes and underscores.
fn is_unicode_class(name: &str) -> bool {
    /// Names that were found before; there are only so many.
    static KNOWN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_part) {
        return false;
    }
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    if KNOWN.lock().contains(&name) {
        return true;
    }
    let is_known = regex::Regex::new(&format!("\\p{{{name}}}")).is_ok();
    if is_known {
        KNOWN.lock().insert(name);
    }
    is_known
}

/// The character that an escape stands for, and what comes after.
fn escaped(all: &str) -> Result<(char, &str), PatternError> {
    let mut rest = all[1..].chars();
    let Some(c) = rest.next() else { return error(TRAILING_BACKSLASH, "") };
    let after = rest.as_str();
    let refused = |after: &str| error(BAD_ESCAPE, consumed(all, after));
    let octal = |byte: &u8| matches!(byte, b'0'..=b'7');
    let found = match c {
        '1'..='7' if !after.as_bytes().first().is_some_and(octal) => return refused(after),
        '0'..='7' => {
            let more = after.bytes().take(2).take_while(octal).count();
            let value = u32::from_str_radix(&all[1..2 + more], 8).ok().and_then(char::from_u32);
            return value.map_or_else(|| refused(after), |value| Ok((value, &after[more..])));
        }
        'x' => return hexadecimal(all, after),
        'a' => '\u{7}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return refused(after),
    };
    Ok((found, after))
}

/// `\x7F` or `\x{10FFFF}`, of which the `x` has been read.
fn hexadecimal<'p>(all: &str, after: &'p str) -> Result<(char, &'p str), PatternError> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let value = |text: &str| u32::from_str_radix(text, 16).ok().and_then(char::from_u32);
    if let Some(braced) = after.strip_prefix('{') {
        let count = digits(braced);
        let found = value(&braced[..count]).zip(braced[count..].strip_prefix('}'));
        let next = braced[count..].chars().next().map_or(0, char::len_utf8);
        return found.map_or_else(|| error(BAD_ESCAPE, consumed(all, &braced[count + next..])), Ok);
    }
    let count = digits(after).min(2);
    if count == 2 {
        return value(&after[..2]).map_or_else(|| error(BAD_ESCAPE, all), |value| Ok((value, &after[2..])));
    }
    let next = after[count..].chars().next().map_or(0, char::len_utf8);
    error(BAD_ESCAPE, consumed(all, &after[count + next..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_the_language_pass() {
        for pattern in [
            "",
            "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]+)*$",
            "a|b|",
            "()",
            "(?i)a(?-i)b",
            "(?P<n>a)(?<m>b)",
            "a{2}b{1,}c{1,3}?",
            "a{,2}",
            "a{",
            "x{a}",
            "a{01}",
            "[]a]",
            "[^]a]",
            "[a-]",
            "[-a]",
            "[[:alpha:]_]",
            r"[\d\s-]",
            r"\pL\p{Greek}\P{^Lu}",
            r"\x41\x{10FFFF}\012\07",
            r"\Qa*(\E+",
            r"\A\bx\B\z",
            "^*",
            "[[:foo]",
            "(a{10}){100}",
            r"\.\-\/\_",
            "é+",
            "(?:a)+?",
            "[a-z--/]",
            r"\p{Any}",
            r"\p{greek}\p{Old_Italic}\p{Letter}",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
        assert_eq!(check(&format!("{}{}", "(".repeat(900), ")".repeat(900))), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_told_in_the_words_of_the_language() {
        for (pattern, want) in [
            ("(", "missing closing ): `(`"),
            ("a)", "unexpected ): `a)`"),
            ("[a", "missing closing ]: `[a`"),
            ("x[", "missing closing ]: `[`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
            (r"\p{Foo", r"invalid character class range: `\p{Foo`"),
            (r"\", "trailing backslash at end of expression: ``"),
            (r"\8", r"invalid escape sequence: `\8`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"a\y", r"invalid escape sequence: `\y`"),
            (r"\C", r"invalid escape sequence: `\C`"),
            (r"\xg1", r"invalid escape sequence: `\xg`"),
            (r"\x{110000}", r"invalid escape sequence: `\x{110000}`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("a|+?", "missing argument to repetition operator: `+?`"),
            ("(?i)?", "missing argument to repetition operator: `?`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a+??", "invalid nested repetition operator: `+??`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{99999999999}", "invalid repeat count: `{99999999999}`"),
            ("((a{100}){100})", "invalid repeat count: `{100}`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
            ("(?i", "missing closing ): `(?i`"),
            ("(?P<a", "invalid named capture: `(?P<a`"),
            ("(?P<a b>)", "invalid named capture: `(?P<a b>`"),
            ("(?<!a)", "invalid named capture: `(?<!a)`"),
        ] {
            let text = check(pattern).unwrap_err().to_string();
            assert_eq!(text, format!("error parsing regexp: {want}"), "{pattern}");
        }
        assert!(check(&"[[:a]".repeat(200_000)).is_ok(), "time is linear in the length");
        let deep = format!("{}{}", "(".repeat(1001), ")".repeat(1001));
        assert!(check(&deep).unwrap_err().to_string().contains("expression nests too deeply"));
    }
}
