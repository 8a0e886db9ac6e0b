//! The structure of a pattern: alternatives, groups with their flags, repetitions and their bounds, classes
//! in brackets.

use super::characters::{
    class_char, escaped_char, is_posix_class, perl_class, push_char, push_code_point, push_range,
};
use super::{
    CLASS_RANGE, Fault, MISSING_ARGUMENT, MISSING_PAREN, NAMED_CAPTURE, NESTED_REPEAT, PERL, REPEAT_SIZE,
    Step, TOO_DEEP, UNEXPECTED_PAREN,
};

/// Maximum count of `{n}`, and maximum product of nested counts.
const REPEAT_MAX: u64 = 1000;
/// Maximum nesting depth of groups.
pub(super) const NESTING_MAX: usize = 1000;

/// An open group, or the whole pattern.
#[derive(Default)]
struct Group<'p> {
    /// Whether the expression before the cursor can be repeated.
    repeatable: bool,
    /// Text from the last repetition operator on, if that operator is directly before the cursor.
    after_repeat: Option<&'p str>,
    /// Product of the nested counts of the last expression.
    weight: u64,
    /// Maximum weight of the expressions in the group.
    weight_max: u64,
}

/// A translator of one pattern to the syntax of the crate.
pub(super) struct Translator<'p> {
    pattern: &'p str,
    rest: &'p str,
    /// Translated pattern so far.
    pub(super) out: String,
    /// Open groups, the innermost last; the first group is the whole pattern.
    groups: Vec<Group<'p>>,
    /// Number of Unicode classes in the output.
    pub(super) unicode_classes: usize,
    /// Length of the rest of the pattern from its last `:]` on. A shorter rest contains no `:]`, so the end
    /// of a named class need not be searched in it.
    named_class_end: usize,
}

impl<'p> Translator<'p> {
    pub(super) fn new(pattern: &'p str) -> Self {
        let out = String::with_capacity(2 * pattern.len());
        let named_class_end = pattern.rfind(":]").map_or(usize::MAX, |at| pattern.len() - at);
        let groups = vec![Group::default()];
        Self { pattern, rest: pattern, out, groups, unicode_classes: 0, named_class_end }
    }

    /// Translates the whole pattern.
    pub(super) fn translate(&mut self) -> Step<'p> {
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
            return Err(Fault { reason: MISSING_PAREN, fragment: self.pattern });
        }
        Ok(())
    }

    /// Returns the innermost group.
    fn group(&mut self) -> &mut Group<'p> {
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// Skips `len` bytes of the pattern and appends `text` to the output.
    fn emit(&mut self, len: usize, text: &str) {
        self.rest = &self.rest[len..];
        self.out.push_str(text);
    }

    /// Records that the output ends with an expression that can be repeated.
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

    /// Returns the rest of the pattern up to `after`, which is a suffix of the rest.
    fn before(&self, after: &str) -> &'p str {
        &self.rest[..self.rest.len() - after.len()]
    }

    fn open_group(&mut self) -> Step<'p> {
        if self.groups.len() > NESTING_MAX {
            return Err(Fault { reason: TOO_DEEP, fragment: self.pattern });
        }
        let name = self.rest.strip_prefix("(?P<").or_else(|| self.rest.strip_prefix("(?<"));
        // If the name is empty, the angle bracket is an unknown flag.
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let Some(end) = name.find('>') else {
                return Err(Fault { reason: NAMED_CAPTURE, fragment: self.rest });
            };
            let capture = self.before(&name[end + 1..]);
            let name = &name[..end];
            let valid =
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !valid {
                return Err(Fault { reason: NAMED_CAPTURE, fragment: capture });
            }
            // Names and numbers of groups are not needed, and several groups may have the same name.
            self.emit(capture.len(), "(?:");
        } else if let Some(flags) = self.rest.strip_prefix("(?") {
            return self.flags(flags);
        } else {
            self.emit(1, "(?:");
        }
        self.groups.push(Group::default());
        Ok(())
    }

    /// Translates the flags `(?flags)` and `(?flags:`.
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
                    // RE2 allows an empty list of flags, but the crate does not allow it.
                    self.emit(written.len(), if written == "(?)" { "" } else { written });
                    if c == ':' {
                        self.groups.push(Group::default());
                    }
                    return Ok(());
                }
                _ => return Err(Fault { reason: PERL, fragment: self.before(after) }),
            }
        }
        Err(Fault { reason: PERL, fragment: self.rest })
    }

    fn close_group(&mut self) -> Step<'p> {
        if self.groups.len() == 1 {
            return Err(Fault { reason: UNEXPECTED_PAREN, fragment: self.pattern });
        }
        let weight = self.groups.pop().map_or(1, |group| group.weight_max.max(1));
        self.emit(1, ")");
        self.atom();
        let group = self.group();
        group.weight = weight;
        group.weight_max = group.weight_max.max(weight);
        Ok(())
    }

    /// Translates a repetition operator of `len` bytes, with its counts if it is in braces.
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
            return Err(Fault { reason: REPEAT_SIZE, fragment: operator.trim_end_matches('?') });
        }
        if let Some(first) = after_repeat {
            return Err(Fault { reason: NESTED_REPEAT, fragment: &first[..first.len() - after.len()] });
        }
        if !self.group().repeatable {
            return Err(Fault { reason: MISSING_ARGUMENT, fragment: operator });
        }
        let start = self.rest;
        let group = self.group();
        if let Some((min, max)) = counts {
            let count = max.unwrap_or(min);
            if count > 0 {
                group.weight = group.weight.saturating_mul(count);
            }
            if count >= 2 && group.weight > REPEAT_MAX {
                return Err(Fault { reason: REPEAT_SIZE, fragment: operator });
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

    /// Translates a class in brackets, `[…]`.
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
                    return Err(Fault { reason: CLASS_RANGE, fragment: name });
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
                    return Err(Fault { reason: CLASS_RANGE, fragment: &range[..range.len() - rest.len()] });
                }
            }
            push_range(&mut self.out, low, high);
        }
        self.out.push(']');
        self.rest = &rest[1..];
        self.atom();
        Ok(())
    }

    /// Parses a class like [`perl_class`], and counts Unicode classes.
    fn perl_class(&mut self, text: &'p str) -> Step<'p, Option<(String, &'p str)>> {
        let class = perl_class(text)?;
        self.unicode_classes +=
            usize::from(class.is_some() && (text.starts_with("\\p") || text.starts_with("\\P")));
        Ok(class)
    }
}

/// Parses the length and the lower and upper count of `{n}`, `{n,}` or `{n,m}`; `None` if the brace is a
/// literal.
fn counts(text: &str) -> Option<(usize, u64, Option<u64>)> {
    let number = |text: &str| {
        let len = text.bytes().take_while(u8::is_ascii_digit).count();
        let leading_zero = len > 1 && text.starts_with('0');
        // A count that does not fit in 64 bits is above the limit anyway.
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
