//! The second step: converts text to tokens, with the libyaml rules that the library of the reference server
//! uses (YAML 1.1).
//!
//! ```text
//! Cursor ──fetch──► queue ──peek, skip──► grammar
//!                     ▲
//!                     └── `:` puts `Key` (and the start of a block mapping) before the token of its simple key
//! ```
//!
//! A token that may be a *simple key* waits in the queue until a `:` follows or can no longer follow: on
//! another line, or after 1024 characters. These bounds limit the length of the queue, and therefore also the
//! cost of an insertion.

use std::collections::VecDeque;

use super::cursor::LineCursor;
use super::document::YamlError;
use super::reader::Source;
use super::token::{Mark, TokenKind, YamlToken};

/// Maximum distance in characters from the start of a simple key to its `:`. Source: YAML 1.2, section 7.4.
const SIMPLE_KEY_CHARS_MAX: usize = 1024;

/// Maximum number of nested flow collections, and of nested block collections, as in the reference server.
const LEVELS_MAX: usize = 10_000;

/// A token that becomes a key if a `:` follows.
#[derive(Clone, Copy)]
struct SimpleKey {
    is_possible: bool,
    /// Whether only a key is allowed at this position.
    is_required: bool,
    /// Whether the token waits in the queue until it is known to be a key or not.
    is_awaited: bool,
    /// Number of the token in the stream, counted from the start.
    token: usize,
    mark: Mark,
}

impl SimpleKey {
    /// Returns the state "no simple key is possible" for the token with number `token`.
    fn none(token: usize, mark: Mark) -> Self {
        SimpleKey { is_possible: false, is_required: false, is_awaited: false, token, mark }
    }
}

/// A token in the queue.
struct Queued<'t> {
    token: YamlToken<'t>,
    /// Flow level on which this token may be a simple key; `None` if it cannot be a key.
    key_level: Option<usize>,
}

/// The scanner of one stream.
pub(super) struct Scanner<'t> {
    pub(super) cursor: LineCursor<'t>,
    /// The error to report when the scanner reaches the end of the text.
    error_behind: Option<&'t YamlError>,
    queue: VecDeque<Queued<'t>>,
    /// Number of tokens that were taken from the queue.
    taken: usize,
    /// Column of the current block collection; -1 outside of block collections.
    pub(super) indent: isize,
    indents: Vec<isize>,
    /// The possible simple key of each flow level; the first one belongs to the block context.
    keys: Vec<SimpleKey>,
    pub(super) is_key_allowed: bool,
    /// Flow level on which the next token may be a simple key.
    saved_level: Option<usize>,
}

/// A scanning step; it may end with an error.
pub(super) type Scanned<T = ()> = Result<T, YamlError>;

impl<'t> Scanner<'t> {
    pub fn new(source: &'t Source<'_>) -> Self {
        Scanner {
            cursor: LineCursor::new(&source.text),
            error_behind: source.error.as_ref(),
            queue: VecDeque::new(),
            taken: 0,
            indent: -1,
            indents: Vec::new(),
            keys: vec![SimpleKey::none(0, Mark::default())],
            is_key_allowed: true,
            saved_level: None,
        }
    }

    /// Returns the next token without consuming it.
    pub fn peek(&mut self) -> Scanned<&YamlToken<'t>> {
        while self.needs_more()? {
            self.fetch()?;
        }
        match self.queue.front() {
            Some(queued) => Ok(&queued.token),
            None => Err(self.error("did not find expected token")),
        }
    }

    /// Consumes the token that was peeked.
    pub fn skip(&mut self) -> Option<YamlToken<'t>> {
        self.taken += 1;
        self.queue.pop_front().map(|queued| queued.token)
    }

    /// Returns an error at the current position. An error on the first line is reported without its line.
    pub(super) fn error(&self, what: impl Into<String>) -> YamlError {
        let line = self.cursor.mark().line;
        YamlError::Syntax { line: if line > 0 { line + 1 } else { 0 }, what: what.into() }
    }

    pub(super) fn is_in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// Returns whether the queue is empty, or its first token may still become a key.
    fn needs_more(&mut self) -> Scanned<bool> {
        let Some(head) = self.queue.front() else { return Ok(true) };
        match head.key_level {
            Some(level)
                if self.keys.get(level).is_some_and(|key| key.is_awaited && key.token == self.taken) =>
            {
                self.is_valid_key(level)
            }
            _ => Ok(false),
        }
    }

    fn fetch(&mut self) -> Scanned {
        let fetched = self.fetch_token();
        // To find the end of a token, the scanner never has to read more than four bytes beyond that end.
        match self.error_behind {
            Some(error) if self.cursor.is_within(4) => Err(error.clone()),
            _ => fetched,
        }
    }

    fn fetch_token(&mut self) -> Scanned {
        self.skip_to_token();
        self.unroll_indent(self.cursor.column() as isize);
        let cursor = &self.cursor;
        let (byte, is_word_end) = (cursor.peek(), cursor.is_white_at(1));
        let is_line_start = cursor.column() == 0;
        match byte {
            0 => self.fetch_stream_end(),
            b'%' if is_line_start => self.fetch_directive(),
            b'-' if cursor.is_indicator(b'-') => self.fetch_document_indicator(TokenKind::DocumentStart),
            b'.' if cursor.is_indicator(b'.') => self.fetch_document_indicator(TokenKind::DocumentEnd),
            b'[' => self.fetch_flow_start(TokenKind::FlowSequenceStart),
            b'{' => self.fetch_flow_start(TokenKind::FlowMappingStart),
            b']' => self.fetch_flow_end(TokenKind::FlowSequenceEnd),
            b'}' => self.fetch_flow_end(TokenKind::FlowMappingEnd),
            b',' => self.fetch_flow_entry(),
            b'-' if is_word_end => self.fetch_block_entry(),
            b'?' if self.is_in_flow() || is_word_end => self.fetch_key(),
            b':' if self.is_in_flow() || is_word_end => self.fetch_value(),
            b'*' | b'&' => self.fetch_word(Self::scan_anchor),
            b'!' => self.fetch_word(Self::scan_tag),
            b'|' | b'>' if !self.is_in_flow() => self.fetch_block_scalar(),
            b'\'' | b'"' => self.fetch_word(Self::scan_quoted),
            b'#' | b'|' | b'>' | b'%' | b'@' | b'`' | b'\t' => {
                Err(self.error("found character that cannot start any token"))
            }
            _ if self.cursor.is_white() => Err(self.error("found character that cannot start any token")),
            _ => self.fetch_word(Self::scan_plain),
        }
    }

    /// Skips white space and comments. Tabs are not allowed as indentation, nor after `-`, `?` and the `:` of
    /// a complex key.
    fn skip_to_token(&mut self) {
        if self.cursor.position() == 0 && self.cursor.is_byte_order_mark() {
            self.cursor.skip();
        }
        loop {
            let may_be_tab = self.is_in_flow() || !self.is_key_allowed;
            while self.cursor.peek() == b' ' || may_be_tab && self.cursor.peek() == b'\t' {
                self.cursor.skip();
            }
            self.cursor.skip_comment();
            if self.cursor.take_break().is_empty() {
                return;
            }
            // A new line may begin with a key.
            if !self.is_in_flow() {
                self.is_key_allowed = true;
            }
        }
    }

    fn push(&mut self, kind: TokenKind<'t>, start: Mark) {
        let token = YamlToken { kind, start, end: self.cursor.mark() };
        let key_level = self.saved_level.take();
        self.queue.push_back(Queued { token, key_level });
    }

    /// Inserts a token without characters before token `number` of the stream, or at the end if that token
    /// was already taken.
    fn insert(&mut self, number: usize, kind: TokenKind<'t>, mark: Mark) {
        let at = number.checked_sub(self.taken).unwrap_or(self.queue.len());
        self.queue.insert(at, Queued { token: YamlToken { kind, start: mark, end: mark }, key_level: None });
    }

    /// Returns the number of the next token to be pushed.
    fn next_number(&self) -> usize {
        self.taken + self.queue.len()
    }

    /// Consumes characters that form a token by themselves.
    fn push_indicator(&mut self, kind: TokenKind<'t>, chars: usize) {
        let start = self.cursor.mark();
        self.cursor.skip_many(chars);
        self.push(kind, start);
    }

    fn is_valid_key(&mut self, level: usize) -> Scanned<bool> {
        let here = self.cursor.mark();
        let key = &mut self.keys[level];
        if !key.is_possible {
            return Ok(false);
        }
        if key.mark.line < here.line || key.mark.index + SIMPLE_KEY_CHARS_MAX < here.index {
            key.is_possible = false;
            if key.is_required {
                return Err(self.error("could not find expected ':'"));
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Notes that the next token may be a simple key.
    fn save_key(&mut self) -> Scanned {
        if !self.is_key_allowed {
            return Ok(());
        }
        let mark = self.cursor.mark();
        let is_required = !self.is_in_flow() && self.indent == mark.column as isize;
        self.remove_key()?;
        let token = self.next_number();
        let level = self.keys.len() - 1;
        self.keys[level] = SimpleKey { is_possible: true, is_required, is_awaited: true, token, mark };
        self.saved_level = Some(level);
        Ok(())
    }

    /// Discards the possible simple key of this flow level.
    fn remove_key(&mut self) -> Scanned {
        let level = self.keys.len() - 1;
        let key = &mut self.keys[level];
        if std::mem::take(&mut key.is_possible) && key.is_required {
            return Err(self.error("could not find expected ':'"));
        }
        Ok(())
    }

    /// Begins a block collection at a column, unless it is already open. The start token is inserted before
    /// token `number`.
    fn roll_indent(&mut self, mark: Mark, number: usize, kind: TokenKind<'t>) -> Scanned {
        let column = mark.column as isize;
        if self.is_in_flow() || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        if self.indents.len() > LEVELS_MAX {
            return Err(self.too_deep());
        }
        self.insert(number, kind, mark);
        Ok(())
    }

    /// Ends the block collections that are indented more than `column`.
    fn unroll_indent(&mut self, column: isize) {
        if self.is_in_flow() {
            return;
        }
        while self.indent > column {
            self.push(TokenKind::BlockEnd, self.cursor.mark());
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn too_deep(&self) -> YamlError {
        self.error(format!("exceeded max depth of {LEVELS_MAX}"))
    }

    /// Ends all block collections, because something follows that cannot be their content.
    fn leave_blocks(&mut self) -> Scanned {
        self.unroll_indent(-1);
        self.remove_key()?;
        self.is_key_allowed = false;
        Ok(())
    }

    fn fetch_stream_end(&mut self) -> Scanned {
        self.cursor.end_line();
        self.leave_blocks()?;
        self.push(TokenKind::StreamEnd, self.cursor.mark());
        Ok(())
    }

    fn fetch_directive(&mut self) -> Scanned {
        self.leave_blocks()?;
        let start = self.cursor.mark();
        let kind = self.scan_directive()?;
        self.push(kind, start);
        Ok(())
    }

    fn fetch_document_indicator(&mut self, kind: TokenKind<'t>) -> Scanned {
        self.leave_blocks()?;
        self.push_indicator(kind, 3);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: TokenKind<'t>) -> Scanned {
        self.save_key()?;
        let (token, mark) = (self.next_number(), self.cursor.mark());
        if self.keys.len() > LEVELS_MAX {
            return Err(self.too_deep());
        }
        self.keys.push(SimpleKey::none(token, mark));
        self.is_key_allowed = true;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: TokenKind<'t>) -> Scanned {
        self.remove_key()?;
        if self.is_in_flow() {
            let inner = self.keys.pop();
            // As in the reference server, an empty flow collection does not wait for a `:` that would make
            // it a key.
            if let (Some(inner), Some(outer)) = (inner, self.keys.last_mut())
                && inner.token == outer.token
            {
                outer.is_awaited = false;
            }
        }
        self.is_key_allowed = false;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Scanned {
        self.remove_key()?;
        self.is_key_allowed = true;
        self.push_indicator(TokenKind::FlowEntry, 1);
        Ok(())
    }

    /// Scans a `-`. In a flow collection the token is passed on, and the grammar refuses it.
    fn fetch_block_entry(&mut self) -> Scanned {
        if !self.is_in_flow() {
            if !self.is_key_allowed {
                return Err(self.error("block sequence entries are not allowed in this context"));
            }
            self.roll_indent(self.cursor.mark(), self.next_number(), TokenKind::BlockSequenceStart)?;
        }
        self.remove_key()?;
        self.is_key_allowed = true;
        self.push_indicator(TokenKind::BlockEntry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Scanned {
        if !self.is_in_flow() {
            if !self.is_key_allowed {
                return Err(self.error("mapping keys are not allowed in this context"));
            }
            self.roll_indent(self.cursor.mark(), self.next_number(), TokenKind::BlockMappingStart)?;
        }
        self.remove_key()?;
        self.is_key_allowed = !self.is_in_flow();
        self.push_indicator(TokenKind::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Scanned {
        let level = self.keys.len() - 1;
        if self.is_valid_key(level)? {
            let SimpleKey { token, mark, .. } = self.keys[level];
            self.insert(token, TokenKind::Key, mark);
            self.roll_indent(mark, token, TokenKind::BlockMappingStart)?;
            self.keys[level].is_possible = false;
            self.is_key_allowed = false;
        } else {
            // The `:` follows a complex key.
            if !self.is_in_flow() {
                if !self.is_key_allowed {
                    return Err(self.error("mapping values are not allowed in this context"));
                }
                self.roll_indent(self.cursor.mark(), self.next_number(), TokenKind::BlockMappingStart)?;
            }
            self.is_key_allowed = !self.is_in_flow();
        }
        self.push_indicator(TokenKind::Value, 1);
        Ok(())
    }

    /// Scans a token that may be a simple key. The next token cannot be a simple key.
    fn fetch_word(&mut self, scan: fn(&mut Self) -> Scanned<(TokenKind<'t>, Mark)>) -> Scanned {
        self.save_key()?;
        self.is_key_allowed = false;
        let start = self.cursor.mark();
        let (kind, end) = scan(self)?;
        let key_level = self.saved_level.take();
        self.queue.push_back(Queued { token: YamlToken { kind, start, end }, key_level });
        Ok(())
    }

    fn fetch_block_scalar(&mut self) -> Scanned {
        self.remove_key()?;
        self.is_key_allowed = true;
        let start = self.cursor.mark();
        let kind = self.scan_block_scalar()?;
        self.push(kind, start);
        Ok(())
    }
}
