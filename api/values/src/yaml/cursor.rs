//! A position in the text, with the character classes that YAML 1.1 distinguishes.
//!
//! Every byte beyond the end reads as 0, which the text itself cannot contain, so lookahead needs no bounds
//! checks.

use super::token::Mark;

/// A cursor that counts lines and columns.
pub(super) struct LineCursor<'t> {
    text: &'t str,
    /// Offset in bytes.
    at: usize,
    mark: Mark,
}

impl<'t> LineCursor<'t> {
    pub fn new(text: &'t str) -> Self {
        LineCursor { text, at: 0, mark: Mark::default() }
    }

    pub fn mark(&self) -> Mark {
        self.mark
    }

    pub fn column(&self) -> usize {
        self.mark.column
    }

    /// Returns the current position in bytes.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the text from `start` to the current position.
    pub fn since(&self, start: usize) -> &'t str {
        &self.text[start..self.at]
    }

    /// Returns the text from one position to another.
    pub fn between(&self, start: usize, end: usize) -> &'t str {
        &self.text[start..end]
    }

    pub fn is_byte_order_mark(&self) -> bool {
        self.text[self.at..].starts_with('\u{feff}')
    }

    /// Returns whether fewer than `count` bytes are left.
    pub fn is_within(&self, count: usize) -> bool {
        self.text.len() - self.at < count
    }

    /// Returns the next byte without consuming it.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.peek_at(0)
    }

    /// Returns the byte that is `ahead` bytes after the next byte.
    #[inline]
    pub fn peek_at(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    #[inline]
    pub fn is_end(&self) -> bool {
        self.peek() == 0
    }

    /// Returns whether the next byte is a space or a tab.
    #[inline]
    pub fn is_blank(&self) -> bool {
        matches!(self.peek(), b' ' | b'\t')
    }

    #[inline]
    pub fn is_break(&self) -> bool {
        self.is_break_at(0)
    }

    #[inline]
    pub fn is_break_at(&self, ahead: usize) -> bool {
        self.break_len(ahead) > 0
    }

    #[inline]
    pub fn is_break_or_end(&self) -> bool {
        self.is_end() || self.is_break()
    }

    /// Returns whether the cursor is at a space, a tab, a line break or the end.
    #[inline]
    pub fn is_white(&self) -> bool {
        self.is_white_at(0)
    }

    #[inline]
    pub fn is_white_at(&self, ahead: usize) -> bool {
        matches!(self.peek_at(ahead), b' ' | b'\t' | 0) || self.break_len(ahead) > 0
    }

    /// Returns whether the next byte is a letter, a digit, `-` or `_`.
    #[inline]
    pub fn is_word(&self) -> bool {
        self.peek().is_ascii_alphanumeric() || matches!(self.peek(), b'-' | b'_')
    }

    /// Returns whether a line begins here with `---` or `...`, followed by white space or the end.
    pub fn is_document_indicator(&self) -> bool {
        self.is_indicator(b'-') || self.is_indicator(b'.')
    }

    /// Returns whether a line begins here with `byte` three times, followed by white space or the end.
    pub fn is_indicator(&self, byte: u8) -> bool {
        self.mark.column == 0 && (0..3).all(|ahead| self.peek_at(ahead) == byte) && self.is_white_at(3)
    }

    /// Returns the length in bytes of the line break at offset `ahead`; 0 if there is no break.
    #[inline]
    fn break_len(&self, ahead: usize) -> usize {
        match self.peek_at(ahead) {
            b'\r' if self.peek_at(ahead + 1) == b'\n' => 2,
            b'\r' | b'\n' => 1,
            0xc2 if self.peek_at(ahead + 1) == 0x85 => 2, // NEL
            0xe2 if self.peek_at(ahead + 1) == 0x80 && matches!(self.peek_at(ahead + 2), 0xa8 | 0xa9) => 3, // LS, PS
            _ => 0,
        }
    }

    /// Skips one character, which must not be a line break.
    #[inline]
    pub fn skip(&mut self) {
        let width = match self.peek() {
            ..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0.. => 4,
        };
        self.at = (self.at + width).min(self.text.len());
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Skips characters up to white space or a byte for which `is_stop` holds, and returns them.
    #[inline]
    pub fn take_run(&mut self, is_stop: impl Fn(u8) -> bool) -> &'t str {
        let start = self.at;
        while !self.is_white() && !is_stop(self.peek()) {
            self.skip();
        }
        self.since(start)
    }

    /// Skips `count` characters, which must not be line breaks.
    pub fn skip_many(&mut self, count: usize) {
        (0..count).for_each(|_| self.skip());
    }

    /// Skips spaces and tabs.
    pub fn skip_blanks(&mut self) {
        while self.is_blank() {
            self.skip();
        }
    }

    /// Skips the rest of the line if a comment begins here.
    pub fn skip_comment(&mut self) {
        if self.peek() == b'#' {
            while !self.is_break_or_end() {
                self.skip();
            }
        }
    }

    /// Skips a line break, if there is one. Returns the line break as it appears in the value of a scalar.
    pub fn take_break(&mut self) -> &'t str {
        let len = self.break_len(0);
        if len == 0 {
            return "";
        }
        let found = &self.text[self.at..self.at + len];
        self.at += len;
        self.mark.index += if found == "\r\n" { 2 } else { 1 };
        self.mark.line += 1;
        self.mark.column = 0;
        // Only the Unicode separators of lines and paragraphs are kept. Any other line break becomes a line
        // feed.
        if len == 3 { found } else { "\n" }
    }

    /// Moves the mark to the start of the next line, unless a line begins here.
    pub fn end_line(&mut self) {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
    }
}
