//! Single characters and character classes: escapes, the classes of Perl, POSIX and Unicode, and their
//! translation.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;

use super::{CLASS_RANGE, ESCAPE, Fault, MISSING_BRACKET, Step, TRAILING_BACKSLASH};

/// Maximum length of the name of a Unicode category or script.
const CLASS_NAME_MAX: usize = 64;

/// Parses the escape of a class at the start of `text`: `\d`, `\pL`, `\p{Greek}`. Only ASCII counts as digit,
/// space or word character.
pub(super) fn perl_class(text: &str) -> Step<'_, Option<(String, &str)>> {
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
    let Some(first) = after.chars().next() else { return Err(Fault { reason: ESCAPE, fragment: text }) };
    let (name, rest) = match after.strip_prefix('{') {
        Some(braced) => match braced.split_once('}') {
            Some(parts) => parts,
            None => return Err(Fault { reason: CLASS_RANGE, fragment: text }),
        },
        None => after.split_at(first.len_utf8()),
    };
    let (name, negated) = match name.strip_prefix('^') {
        Some(name) => (name, !negated),
        None => (name, negated),
    };
    // Categories and scripts are accepted by any of their names. The crate would also accept other
    // properties, and the prefix `is`.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '-');
    let allowed = name.len() <= CLASS_NAME_MAX
        && name.chars().all(plain)
        && !name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("is"));
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_lowercase();
    let letter = if negated { 'P' } else { 'p' };
    match ["gc", "sc"].into_iter().find(|property| allowed && is_unicode_class(property, &name)) {
        Some(property) => Ok((format!("\\{letter}{{{property}={name}}}"), rest)),
        None => Err(Fault { reason: CLASS_RANGE, fragment: &text[..text.len() - rest.len()] }),
    }
}

/// Returns whether a Unicode property has a value of this name. The name is in lower case and has only
/// letters and digits.
fn is_unicode_class(property: &str, name: &str) -> bool {
    thread_local! {
        /// Classes that were found before; their number is limited by Unicode.
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

/// Parses one character of a class. Returns the character and the text after it. `class` is the text from
/// the opening bracket on.
pub(super) fn class_char<'p>(text: &'p str, class: &'p str) -> Step<'p, (u32, &'p str)> {
    let mut chars = text.chars();
    match chars.next() {
        None => Err(Fault { reason: MISSING_BRACKET, fragment: class }),
        Some('\\') => escaped_char(text),
        Some(c) => Ok((c.into(), chars.as_str())),
    }
}

/// Parses the escape at the start of `text`. Returns the code point of the escape, and the text after the
/// escape.
pub(super) fn escaped_char(text: &str) -> Step<'_, (u32, &str)> {
    let mut chars = text[1..].chars();
    let Some(c) = chars.next() else { return Err(Fault { reason: TRAILING_BACKSLASH, fragment: "" }) };
    let rest = chars.as_str();
    let invalid = |rest: &str| Err(Fault { reason: ESCAPE, fragment: &text[..text.len() - rest.len()] });
    let code = match c {
        // A single digit would be a backreference, which RE2 does not support.
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

/// Parses `\x7F` or `\x{10FFFF}`; `digits` is the text after the `x`.
fn hexadecimal<'p>(text: &'p str, digits: &'p str) -> Step<'p, (u32, &'p str)> {
    // The error quotes the escape up to and including the invalid character.
    let invalid = |at: usize| {
        let wrong = digits[at..].chars().next().map_or(0, char::len_utf8);
        let fragment = &text[..text.len() - digits.len() + at + wrong];
        Err(Fault { reason: ESCAPE, fragment })
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

/// Returns whether a text is `[:name:]` or `[:^name:]`.
pub(super) fn is_posix_class(name: &str) -> bool {
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

/// Appends a literal character, escaped if necessary.
pub(super) fn push_char(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{:02X}", u32::from(c));
    } else {
        out.push(c);
    }
}

/// Appends a code point outside a class. Surrogates match nothing, because text never contains them.
pub(super) fn push_code_point(out: &mut String, code: u32) {
    match char::from_u32(code) {
        Some(c) => push_char(out, c),
        None => out.push_str("[a&&b]"),
    }
}

/// Appends a range inside a class, without the surrogates.
pub(super) fn push_range(out: &mut String, low: u32, high: u32) {
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
