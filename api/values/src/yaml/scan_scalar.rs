//! Scans the text of scalars: block (`|`, `>`), quoted and plain scalars, with their rules for folding lines.

use std::borrow::Cow;

use super::scan::{Scanned, Scanner};
use super::token::{Mark, TokenKind};

/// Treatment of the line breaks at the end of a block scalar.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

/// White space between two parts of a folded scalar.
#[derive(Default)]
struct Gap<'t> {
    /// The first line break, or empty.
    first_break: &'t str,
    /// The line breaks after the first line break.
    more_breaks: String,
}

impl<'t> Gap<'t> {
    fn add_break(&mut self, found: &'t str) {
        if self.first_break.is_empty() {
            self.first_break = found;
        } else {
            self.more_breaks.push_str(found);
        }
    }

    /// Appends the folded line breaks: a single line feed becomes a space. The function drops the first of
    /// several line breaks if the first line break is a line feed.
    fn fold_into(&mut self, text: &mut String) {
        match self.first_break {
            "\n" if self.more_breaks.is_empty() => text.push(' '),
            "\n" => {}
            other => text.push_str(other),
        }
        text.push_str(&self.more_breaks);
        self.first_break = "";
        self.more_breaks.clear();
    }
}

impl<'t> Scanner<'t> {
    /// Scans a block scalar from its `|` or `>`.
    pub(super) fn scan_block_scalar(&mut self) -> Scanned<TokenKind<'t>> {
        let is_literal = self.cursor.peek() == b'|';
        self.cursor.skip();
        let (chomping, increment) = self.scan_block_header()?;
        let mut indent = match increment {
            0 => 0,
            increment => self.indent.max(0) as usize + increment,
        };
        let mut text = String::new();
        let (mut leading_break, mut more_breaks) = ("", String::new());
        let mut was_blank = false;
        self.scan_block_indent(&mut indent, &mut more_breaks)?;
        while self.cursor.column() == indent && !self.cursor.is_end() {
            // A line that begins with white space is not folded with the lines before and after it.
            let is_blank = self.cursor.is_blank();
            if !is_literal && !was_blank && !is_blank && leading_break == "\n" {
                if more_breaks.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push_str(leading_break);
            }
            text.push_str(&more_breaks);
            more_breaks.clear();
            was_blank = is_blank;
            let start = self.cursor.position();
            while !self.cursor.is_break_or_end() {
                self.cursor.skip();
            }
            text.push_str(self.cursor.since(start));
            leading_break = self.cursor.take_break();
            self.scan_block_indent(&mut indent, &mut more_breaks)?;
        }
        if chomping != Chomping::Strip {
            text.push_str(leading_break);
        }
        if chomping == Chomping::Keep {
            text.push_str(&more_breaks);
        }
        Ok(TokenKind::Scalar { text: text.into(), is_plain: false })
    }

    /// Scans the rest of the first line: `+` or `-`, and the indentation if one is given, in any order.
    fn scan_block_header(&mut self) -> Scanned<(Chomping, usize)> {
        let mut chomping = self.scan_chomping();
        let mut increment = 0;
        if self.cursor.peek().is_ascii_digit() {
            increment = usize::from(self.cursor.peek() - b'0');
            if increment == 0 {
                return Err(self.error("found an indentation indicator equal to 0"));
            }
            self.cursor.skip();
            if chomping == Chomping::Clip {
                chomping = self.scan_chomping();
            }
        }
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !self.cursor.is_break_or_end() {
            return Err(self.error("did not find expected comment or line break"));
        }
        self.cursor.take_break();
        Ok((chomping, increment))
    }

    fn scan_chomping(&mut self) -> Chomping {
        let found = match self.cursor.peek() {
            b'+' => Chomping::Keep,
            b'-' => Chomping::Strip,
            _ => return Chomping::Clip,
        };
        self.cursor.skip();
        found
    }

    /// Skips indentation and empty lines, and collects the line breaks. An `indent` of 0 means that the
    /// indentation is unknown; the function sets it to the indentation of the first line with content, or of
    /// the longest empty line before it.
    fn scan_block_indent(&mut self, indent: &mut usize, breaks: &mut String) -> Scanned {
        let mut widest = 0;
        loop {
            let is_inside = |column: usize| *indent == 0 || column < *indent;
            while is_inside(self.cursor.column()) && self.cursor.peek() == b' ' {
                self.cursor.skip();
            }
            widest = widest.max(self.cursor.column());
            if is_inside(self.cursor.column()) && self.cursor.peek() == b'\t' {
                return Err(self.error("found a tab character where an indentation space is expected"));
            }
            match self.cursor.take_break() {
                "" => break,
                found => breaks.push_str(found),
            }
        }
        if *indent == 0 {
            *indent = widest.max((self.indent + 1).max(1) as usize);
        }
        Ok(())
    }

    /// Scans a quoted scalar from its first quote.
    pub(super) fn scan_quoted(&mut self) -> Scanned<(TokenKind<'t>, Mark)> {
        let quote = self.cursor.peek();
        self.cursor.skip();
        let start = self.cursor.position();
        let is_special = |byte: u8| byte == quote || byte == b'\\' && quote == b'"';
        // Most quoted scalars have neither escapes nor line breaks. The text of such scalars is borrowed from
        // the input.
        loop {
            self.cursor.take_run(is_special);
            if self.cursor.peek() == b' ' {
                self.cursor.skip();
            } else {
                break;
            }
        }
        let simple = self.cursor.since(start);
        let is_end = self.cursor.peek() == quote && (quote == b'"' || self.cursor.peek_at(1) != quote);
        let text = if is_end && !simple.is_empty() {
            Cow::Borrowed(simple)
        } else {
            Cow::Owned(self.scan_quoted_rest(quote, simple)?)
        };
        self.cursor.skip();
        Ok((TokenKind::Scalar { text, is_plain: false }, self.cursor.mark()))
    }

    /// Scans the text up to the closing quote; `before` is the text that was already scanned.
    fn scan_quoted_rest(&mut self, quote: u8, before: &str) -> Scanned<String> {
        // Spaces before a line break are not part of the text, so they are collected separately.
        let mut text = before.trim_end_matches(' ').to_owned();
        let mut spaces = before[text.len()..].to_owned();
        let is_special = |byte: u8| byte == quote || byte == b'\\' && quote == b'"';
        loop {
            if self.cursor.is_document_indicator() {
                return Err(self.error("found unexpected document indicator"));
            }
            if self.cursor.is_end() {
                return Err(self.error("found unexpected end of stream"));
            }
            let mut is_after_break = false;
            if !self.cursor.is_white() {
                text.push_str(&spaces);
                spaces.clear();
            }
            while !self.cursor.is_white() {
                match self.cursor.peek() {
                    b'\'' if quote == b'\'' && self.cursor.peek_at(1) == b'\'' => {
                        text.push('\'');
                        self.cursor.skip_many(2);
                    }
                    byte if byte == quote => break,
                    b'\\' if quote == b'"' && self.cursor.is_break_at(1) => {
                        self.cursor.skip();
                        self.cursor.take_break();
                        is_after_break = true;
                        break;
                    }
                    b'\\' if quote == b'"' => text.push(self.scan_escape()?),
                    _ => text.push_str(self.cursor.take_run(is_special)),
                }
            }
            if self.cursor.peek() == quote {
                return Ok(text);
            }
            let mut gap = Gap::default();
            loop {
                if self.cursor.is_blank() {
                    if !is_after_break {
                        spaces.push(char::from(self.cursor.peek()));
                    }
                    self.cursor.skip();
                    continue;
                }
                let found = self.cursor.take_break();
                if found.is_empty() {
                    break;
                }
                if is_after_break && gap.first_break.is_empty() {
                    // After an escaped line break the following line breaks are kept.
                    gap.more_breaks.push_str(found);
                } else {
                    gap.add_break(found);
                }
                spaces.clear();
                is_after_break = true;
            }
            if is_after_break {
                gap.fold_into(&mut text);
            }
        }
    }

    /// Scans an escape sequence from its backslash.
    fn scan_escape(&mut self) -> Scanned<char> {
        let (plain, digits) = match self.cursor.peek_at(1) {
            b'0' => ('\0', 0),
            b'a' => ('\x07', 0),
            b'b' => ('\x08', 0),
            b't' | b'\t' => ('\t', 0),
            b'n' => ('\n', 0),
            b'v' => ('\x0b', 0),
            b'f' => ('\x0c', 0),
            b'r' => ('\r', 0),
            b'e' => ('\x1b', 0),
            byte @ (b' ' | b'"' | b'\'' | b'\\') => (char::from(byte), 0),
            b'N' => ('\u{85}', 0),
            b'_' => ('\u{a0}', 0),
            b'L' => ('\u{2028}', 0),
            b'P' => ('\u{2029}', 0),
            b'x' => ('\0', 2),
            b'u' => ('\0', 4),
            b'U' => ('\0', 8),
            _ => return Err(self.error("found unknown escape character")),
        };
        self.cursor.skip_many(2);
        if digits == 0 {
            return Ok(plain);
        }
        let digit = |at| char::from(self.cursor.peek_at(at)).to_digit(16);
        let Some(code) = (0..digits).try_fold(0_u64, |code, at| Some(code << 4 | u64::from(digit(at)?)))
        else {
            return Err(self.error("did not find expected hexdecimal number"));
        };
        let Some(found) = u32::try_from(code).ok().and_then(char::from_u32) else {
            return Err(self.error("found invalid Unicode character escape code"));
        };
        self.cursor.skip_many(digits);
        Ok(found)
    }

    /// Scans a scalar without quotes.
    pub(super) fn scan_plain(&mut self) -> Scanned<(TokenKind<'t>, Mark)> {
        let is_in_flow = self.is_in_flow();
        let is_flow_indicator =
            |byte: u8| is_in_flow && matches!(byte, b',' | b'?' | b'[' | b']' | b'{' | b'}');
        let indent = self.indent + 1;
        let start = self.cursor.position();
        // As long as there is no line break, the text is the input between `start` and `end`.
        let (mut end, mut end_mark) = (start, self.cursor.mark());
        let mut folded: Option<String> = None;
        let mut gap = Gap::default();
        let mut gap_start = start;
        while !self.cursor.is_document_indicator() && self.cursor.peek() != b'#' {
            let word = self.cursor.position();
            loop {
                self.cursor.take_run(|byte| byte == b':' || is_flow_indicator(byte));
                if self.cursor.peek() != b':' || self.cursor.is_white_at(1) {
                    break;
                }
                self.cursor.skip();
            }
            if self.cursor.position() > word {
                if !gap.first_break.is_empty() {
                    let text = folded.get_or_insert_with(|| self.cursor.between(start, end).to_owned());
                    gap.fold_into(text);
                    text.push_str(self.cursor.since(word));
                } else if let Some(text) = &mut folded {
                    text.push_str(self.cursor.since(gap_start));
                }
                (end, end_mark) = (self.cursor.position(), self.cursor.mark());
            }
            if !self.cursor.is_white() || self.cursor.is_end() {
                break;
            }
            gap_start = self.cursor.position();
            loop {
                if self.cursor.is_blank() {
                    let is_indentation =
                        !gap.first_break.is_empty() && (self.cursor.column() as isize) < indent;
                    if is_indentation && self.cursor.peek() == b'\t' {
                        return Err(self.error("found a tab character that violates indentation"));
                    }
                    self.cursor.skip();
                    continue;
                }
                match self.cursor.take_break() {
                    "" => break,
                    found => gap.add_break(found),
                }
            }
            if !is_in_flow && (self.cursor.column() as isize) < indent {
                break;
            }
        }
        if !gap.first_break.is_empty() {
            self.is_key_allowed = true;
        }
        let text = folded.map_or_else(|| Cow::Borrowed(self.cursor.between(start, end)), Cow::Owned);
        Ok((TokenKind::Scalar { text, is_plain: true }, end_mark))
    }
}
