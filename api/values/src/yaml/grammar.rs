//! The third step: converts tokens to events, with the libyaml grammar that the library of the reference
//! server uses.
//!
//! ```text
//! stream   = document? (directive* DocumentStart node? DocumentEnd*)* StreamEnd
//! node     = Alias | properties? (Scalar | collection)
//! block    = BlockSequenceStart (BlockEntry node?)* BlockEnd
//!          | BlockMappingStart (Key node? (Value node?)?)* BlockEnd
//! flow     = FlowSequenceStart (entry FlowEntry)* entry? FlowSequenceEnd
//!          | FlowMappingStart (entry FlowEntry)* entry? FlowMappingEnd
//! entry    = node | Key node? (Value node?)?
//! ```
//!
//! The value of a mapping may also be a sequence whose entries are in the same column as the key; such a
//! sequence has no start and end tokens. Open productions are on a stack of [`State`]s, so nesting uses no
//! call stack.

use std::borrow::Cow;

use hashbrown::HashMap;

use super::document::YamlError;
use super::reader::Source;
use super::scalar::{CORE_PREFIX, Tag};
use super::scan::{Scanned, Scanner};
use super::token::{Mark, TagDirective, TagParts, TokenKind, YamlToken};

/// An event of the parser, with the line on which it begins, counted from 0.
#[derive(Debug)]
pub(super) struct Event<'t> {
    pub kind: EventKind<'t>,
    pub line: usize,
}

/// The kind of an event, with its data.
#[derive(Debug)]
pub(super) enum EventKind<'t> {
    StreamEnd,
    DocumentStart,
    DocumentEnd,
    Alias(&'t str),
    Scalar(YamlScalar<'t>),
    SequenceStart { anchor: Option<&'t str> },
    SequenceEnd,
    MappingStart { anchor: Option<&'t str> },
    MappingEnd,
}

/// A scalar with its properties.
#[derive(Clone, Debug)]
pub(super) struct YamlScalar<'t> {
    pub text: Cow<'t, str>,
    pub anchor: Option<&'t str>,
    pub tag: Tag,
    /// Whether the text determines the type: the scalar is plain and without a tag, or its tag is `!`.
    pub is_implicit: bool,
}

/// A production of the grammar that is not complete.
#[derive(Clone, Copy, Debug)]
enum State {
    ImplicitDocumentStart,
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockSequenceFirstEntry,
    BlockSequenceEntry,
    IndentlessSequenceEntry,
    BlockMappingFirstKey,
    BlockMappingKey,
    BlockMappingValue,
    FlowSequenceFirstEntry,
    FlowSequenceEntry,
    FlowSequenceEntryKey,
    FlowSequenceEntryValue,
    FlowSequenceEntryEnd,
    FlowMappingFirstKey,
    FlowMappingKey,
    FlowMappingValue,
    FlowMappingEmptyValue,
    End,
}

/// Context in which a node stands.
#[derive(Clone, Copy, Eq, PartialEq)]
enum NodeContext {
    Block,
    /// In a block mapping, where a sequence need not be indented.
    BlockOrIndentless,
    Flow,
}

/// The anchor and the tag of a node.
#[derive(Default)]
struct Properties<'t> {
    anchor: Option<&'t str>,
    tag: Tag,
}

/// The parser of one stream.
pub(super) struct Parser<'t> {
    scanner: Scanner<'t>,
    state: State,
    /// States to return to after the current state.
    states: Vec<State>,
    /// Tag prefixes by handle.
    tag_directives: HashMap<String, String>,
}

impl<'t> Parser<'t> {
    pub fn new(source: &'t Source<'_>) -> Self {
        Parser {
            scanner: Scanner::new(source),
            state: State::ImplicitDocumentStart,
            states: Vec::new(),
            tag_directives: HashMap::new(),
        }
    }

    /// Returns the next event of the stream.
    pub fn next(&mut self) -> Scanned<Event<'t>> {
        match self.state {
            State::ImplicitDocumentStart => self.document_start(true),
            State::DocumentStart => self.document_start(false),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(NodeContext::Block),
            State::BlockSequenceFirstEntry => self.block_sequence_entry(true),
            State::BlockSequenceEntry => self.block_sequence_entry(false),
            State::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            State::BlockMappingFirstKey => self.block_mapping_key(true),
            State::BlockMappingKey => self.block_mapping_key(false),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceFirstEntry => self.flow_sequence_entry(true),
            State::FlowSequenceEntry => self.flow_sequence_entry(false),
            State::FlowSequenceEntryKey => self.flow_sequence_entry_key(),
            State::FlowSequenceEntryValue => self.flow_sequence_entry_value(),
            State::FlowSequenceEntryEnd => {
                self.state = State::FlowSequenceEntry;
                let mark = self.scanner.peek()?.start;
                Ok(event(EventKind::MappingEnd, mark))
            }
            State::FlowMappingFirstKey => self.flow_mapping_key(true),
            State::FlowMappingKey => self.flow_mapping_key(false),
            State::FlowMappingValue => self.flow_mapping_value(),
            State::FlowMappingEmptyValue => {
                let mark = self.scanner.peek()?.start;
                Ok(self.empty(State::FlowMappingKey, mark))
            }
            State::End => Ok(event(EventKind::StreamEnd, Mark::default())),
        }
    }

    /// Returns whether the next token is of this kind, and where that token starts.
    fn next_is(&mut self, is_kind: fn(&TokenKind<'t>) -> bool) -> Scanned<(bool, Mark)> {
        let token = self.scanner.peek()?;
        Ok((is_kind(&token.kind), token.start))
    }

    /// Consumes the next token if it is of this kind, and returns the end of the token.
    fn take_if(&mut self, is_kind: fn(&TokenKind<'t>) -> bool) -> Scanned<Option<Mark>> {
        let token = self.scanner.peek()?;
        let found = is_kind(&token.kind).then_some(token.end);
        if found.is_some() {
            self.scanner.skip();
        }
        Ok(found)
    }

    fn pop_state(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    /// Parses a node in `context`; afterwards the parser continues in state `after`.
    fn node_then(&mut self, after: State, context: NodeContext) -> Scanned<Event<'t>> {
        self.states.push(after);
        self.node(context)
    }

    /// Returns the event for an absent node, which is an empty scalar.
    fn empty(&mut self, after: State, mark: Mark) -> Event<'t> {
        self.state = after;
        empty_scalar(mark)
    }

    fn document_start(&mut self, may_be_implicit: bool) -> Scanned<Event<'t>> {
        if !may_be_implicit {
            while self.take_if(|kind| matches!(kind, TokenKind::DocumentEnd))?.is_some() {}
        }
        let token = self.scanner.peek()?;
        let start = token.start;
        match token.kind {
            TokenKind::StreamEnd => {
                self.state = State::End;
                return Ok(event(EventKind::StreamEnd, start));
            }
            TokenKind::VersionDirective { .. } | TokenKind::TagDirective(_) | TokenKind::DocumentStart => {}
            _ if may_be_implicit => {
                self.directives()?;
                self.states.push(State::DocumentEnd);
                self.state = State::BlockNode;
                return Ok(event(EventKind::DocumentStart, start));
            }
            _ => {}
        }
        self.directives()?;
        let (is_start, at) = self.next_is(|kind| matches!(kind, TokenKind::DocumentStart))?;
        if !is_start {
            return Err(error("did not find expected <document start>", at));
        }
        self.scanner.skip();
        self.states.push(State::DocumentEnd);
        self.state = State::DocumentContent;
        Ok(event(EventKind::DocumentStart, start))
    }

    fn directives(&mut self) -> Scanned {
        let mut has_version = false;
        loop {
            let token = self.scanner.peek()?;
            let at = token.start;
            match &token.kind {
                TokenKind::VersionDirective { .. } if has_version => {
                    return Err(error("found duplicate %YAML directive", at));
                }
                TokenKind::VersionDirective { major: 1, minor: 1 } => has_version = true,
                TokenKind::VersionDirective { .. } => {
                    return Err(error("found incompatible YAML document", at));
                }
                TokenKind::TagDirective(directive) => {
                    let TagDirective { handle, prefix } = TagDirective::clone(directive);
                    if self.tag_directives.insert(handle, prefix).is_some() {
                        return Err(error("found duplicate %TAG directive", at));
                    }
                }
                _ => return Ok(()),
            }
            self.scanner.skip();
        }
    }

    fn document_content(&mut self) -> Scanned<Event<'t>> {
        let token = self.scanner.peek()?;
        match token.kind {
            TokenKind::VersionDirective { .. }
            | TokenKind::TagDirective(_)
            | TokenKind::DocumentStart
            | TokenKind::DocumentEnd
            | TokenKind::StreamEnd => {
                let mark = token.start;
                self.pop_state();
                Ok(empty_scalar(mark))
            }
            _ => self.node(NodeContext::Block),
        }
    }

    fn document_end(&mut self) -> Scanned<Event<'t>> {
        let (is_end, at) = self.next_is(|kind| matches!(kind, TokenKind::DocumentEnd))?;
        if is_end {
            self.scanner.skip();
        }
        self.tag_directives.clear();
        self.state = State::DocumentStart;
        Ok(event(EventKind::DocumentEnd, at))
    }

    fn node(&mut self, context: NodeContext) -> Scanned<Event<'t>> {
        let token = self.scanner.peek()?;
        let start = token.start;
        if let TokenKind::Alias(name) = token.kind {
            self.scanner.skip();
            self.pop_state();
            return Ok(event(EventKind::Alias(name), start));
        }
        let Properties { anchor, tag } = self.properties(start)?;
        let token = self.scanner.peek()?;
        let (at, is_block) = (token.start, context != NodeContext::Flow);
        let (kind, state) = match token.kind {
            TokenKind::BlockEntry if context == NodeContext::BlockOrIndentless => {
                (EventKind::SequenceStart { anchor }, State::IndentlessSequenceEntry)
            }
            TokenKind::FlowSequenceStart => {
                (EventKind::SequenceStart { anchor }, State::FlowSequenceFirstEntry)
            }
            TokenKind::FlowMappingStart => (EventKind::MappingStart { anchor }, State::FlowMappingFirstKey),
            TokenKind::BlockSequenceStart if is_block => {
                (EventKind::SequenceStart { anchor }, State::BlockSequenceFirstEntry)
            }
            TokenKind::BlockMappingStart if is_block => {
                (EventKind::MappingStart { anchor }, State::BlockMappingFirstKey)
            }
            TokenKind::Scalar { .. } => return Ok(self.scalar(start, Properties { anchor, tag })),
            _ if anchor.is_some() || tag != Tag::Absent => {
                self.pop_state();
                let is_implicit = tag == Tag::Absent;
                let scalar = YamlScalar { text: "".into(), anchor, tag, is_implicit };
                return Ok(event(EventKind::Scalar(scalar), start));
            }
            _ => return Err(error("did not find expected node content", at)),
        };
        self.state = state;
        Ok(event(kind, start))
    }

    /// Consumes the next token, a scalar, and returns its event.
    fn scalar(&mut self, start: Mark, Properties { anchor, tag }: Properties<'t>) -> Event<'t> {
        self.pop_state();
        let (text, is_plain) = match self.scanner.skip() {
            Some(YamlToken { kind: TokenKind::Scalar { text, is_plain }, .. }) => (text, is_plain),
            _ => ("".into(), true),
        };
        let is_implicit = tag == Tag::Absent && is_plain || tag == Tag::NonSpecific;
        event(EventKind::Scalar(YamlScalar { text, anchor, tag, is_implicit }), start)
    }

    /// Parses an anchor and a tag, in any order.
    fn properties(&mut self, start: Mark) -> Scanned<Properties<'t>> {
        let mut found = Properties::default();
        let mut has_tag = false;
        loop {
            let token = self.scanner.peek()?;
            let at = token.start;
            match &token.kind {
                TokenKind::Anchor(name) if found.anchor.is_none() => found.anchor = Some(name),
                TokenKind::Tag(parts) if !has_tag => {
                    has_tag = true;
                    found.tag = resolved(&self.tag_directives, parts).ok_or_else(|| {
                        error("found undefined tag handle", if at.line > 0 { at } else { start })
                    })?;
                }
                _ => return Ok(found),
            }
            self.scanner.skip();
        }
    }

    fn block_sequence_entry(&mut self, is_first: bool) -> Scanned<Event<'t>> {
        if is_first {
            self.scanner.skip();
        }
        if let Some(mark) = self.take_if(|kind| matches!(kind, TokenKind::BlockEntry))? {
            let (is_empty, _) =
                self.next_is(|kind| matches!(kind, TokenKind::BlockEntry | TokenKind::BlockEnd))?;
            return if is_empty {
                Ok(self.empty(State::BlockSequenceEntry, mark))
            } else {
                self.node_then(State::BlockSequenceEntry, NodeContext::Block)
            };
        }
        let (is_end, at) = self.next_is(|kind| matches!(kind, TokenKind::BlockEnd))?;
        if !is_end {
            return Err(error("did not find expected '-' indicator", at));
        }
        Ok(self.end(EventKind::SequenceEnd, at))
    }

    /// Consumes the token that ends a collection, and returns its event.
    fn end(&mut self, kind: EventKind<'t>, mark: Mark) -> Event<'t> {
        self.scanner.skip();
        self.pop_state();
        event(kind, mark)
    }

    fn indentless_sequence_entry(&mut self) -> Scanned<Event<'t>> {
        if let Some(mark) = self.take_if(|kind| matches!(kind, TokenKind::BlockEntry))? {
            let (is_empty, _) = self.next_is(|kind| {
                matches!(
                    kind,
                    TokenKind::BlockEntry | TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd
                )
            })?;
            return if is_empty {
                Ok(self.empty(State::IndentlessSequenceEntry, mark))
            } else {
                self.node_then(State::IndentlessSequenceEntry, NodeContext::Block)
            };
        }
        let mark = self.scanner.peek()?.start;
        self.pop_state();
        Ok(event(EventKind::SequenceEnd, mark))
    }

    fn block_mapping_key(&mut self, is_first: bool) -> Scanned<Event<'t>> {
        if is_first {
            self.scanner.skip();
        }
        if let Some(mark) = self.take_if(|kind| matches!(kind, TokenKind::Key))? {
            return self.block_mapping_node(State::BlockMappingValue, mark);
        }
        let (is_end, at) = self.next_is(|kind| matches!(kind, TokenKind::BlockEnd))?;
        if !is_end {
            return Err(error("did not find expected key", at));
        }
        Ok(self.end(EventKind::MappingEnd, at))
    }

    fn block_mapping_value(&mut self) -> Scanned<Event<'t>> {
        if let Some(mark) = self.take_if(|kind| matches!(kind, TokenKind::Value))? {
            return self.block_mapping_node(State::BlockMappingKey, mark);
        }
        let mark = self.scanner.peek()?.start;
        Ok(self.empty(State::BlockMappingKey, mark))
    }

    /// Parses a key or a value of a block mapping.
    fn block_mapping_node(&mut self, after: State, mark: Mark) -> Scanned<Event<'t>> {
        let (is_empty, _) =
            self.next_is(|kind| matches!(kind, TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd))?;
        if is_empty {
            Ok(self.empty(after, mark))
        } else {
            self.node_then(after, NodeContext::BlockOrIndentless)
        }
    }

    /// Consumes the comma between the entries of a flow collection, or detects the end of the collection.
    fn flow_separator(
        &mut self,
        is_first: bool,
        is_end: fn(&TokenKind<'t>) -> bool,
        expected: &str,
    ) -> Scanned<Option<Mark>> {
        if is_first {
            self.scanner.skip();
        }
        let (ends, at) = self.next_is(is_end)?;
        if ends {
            return Ok(Some(at));
        }
        if !is_first && self.take_if(|kind| matches!(kind, TokenKind::FlowEntry))?.is_none() {
            return Err(error(expected, at));
        }
        let (ends, at) = self.next_is(is_end)?;
        Ok(ends.then_some(at))
    }

    fn flow_sequence_entry(&mut self, is_first: bool) -> Scanned<Event<'t>> {
        let is_end = |kind: &TokenKind<'t>| matches!(kind, TokenKind::FlowSequenceEnd);
        if let Some(mark) = self.flow_separator(is_first, is_end, "did not find expected ',' or ']'")? {
            return Ok(self.end(EventKind::SequenceEnd, mark));
        }
        let (is_key, at) = self.next_is(|kind| matches!(kind, TokenKind::Key))?;
        if is_key {
            self.scanner.skip();
            self.state = State::FlowSequenceEntryKey;
            return Ok(event(EventKind::MappingStart { anchor: None }, at));
        }
        self.node_then(State::FlowSequenceEntry, NodeContext::Flow)
    }

    /// Parses the key of an entry. As in the reference server, the token in the position of an empty key is
    /// skipped.
    fn flow_sequence_entry_key(&mut self) -> Scanned<Event<'t>> {
        let skipped = self.take_if(|kind| {
            matches!(kind, TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowSequenceEnd)
        })?;
        match skipped {
            Some(mark) => Ok(self.empty(State::FlowSequenceEntryValue, mark)),
            None => self.node_then(State::FlowSequenceEntryValue, NodeContext::Flow),
        }
    }

    fn flow_sequence_entry_value(&mut self) -> Scanned<Event<'t>> {
        let mark = self.scanner.peek()?.start;
        if self.take_if(|kind| matches!(kind, TokenKind::Value))?.is_some() {
            let (is_empty, _) =
                self.next_is(|kind| matches!(kind, TokenKind::FlowEntry | TokenKind::FlowSequenceEnd))?;
            if !is_empty {
                return self.node_then(State::FlowSequenceEntryEnd, NodeContext::Flow);
            }
        }
        Ok(self.empty(State::FlowSequenceEntryEnd, mark))
    }

    fn flow_mapping_key(&mut self, is_first: bool) -> Scanned<Event<'t>> {
        let is_end = |kind: &TokenKind<'t>| matches!(kind, TokenKind::FlowMappingEnd);
        if let Some(mark) = self.flow_separator(is_first, is_end, "did not find expected ',' or '}'")? {
            return Ok(self.end(EventKind::MappingEnd, mark));
        }
        if self.take_if(|kind| matches!(kind, TokenKind::Key))?.is_none() {
            return self.node_then(State::FlowMappingEmptyValue, NodeContext::Flow);
        }
        let (is_empty, at) = self.next_is(|kind| {
            matches!(kind, TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowMappingEnd)
        })?;
        if is_empty {
            Ok(self.empty(State::FlowMappingValue, at))
        } else {
            self.node_then(State::FlowMappingValue, NodeContext::Flow)
        }
    }

    fn flow_mapping_value(&mut self) -> Scanned<Event<'t>> {
        if self.take_if(|kind| matches!(kind, TokenKind::Value))?.is_some() {
            let (is_empty, _) =
                self.next_is(|kind| matches!(kind, TokenKind::FlowEntry | TokenKind::FlowMappingEnd))?;
            if !is_empty {
                return self.node_then(State::FlowMappingKey, NodeContext::Flow);
            }
        }
        let mark = self.scanner.peek()?.start;
        Ok(self.empty(State::FlowMappingKey, mark))
    }
}

fn event(kind: EventKind<'_>, mark: Mark) -> Event<'_> {
    Event { kind, line: mark.line }
}

fn empty_scalar<'t>(mark: Mark) -> Event<'t> {
    let scalar = YamlScalar { text: "".into(), anchor: None, tag: Tag::Absent, is_implicit: true };
    event(EventKind::Scalar(scalar), mark)
}

/// Returns a grammar error at a position. Lines are counted from 0; an error on the first line is reported
/// without its line.
fn error(what: &str, at: Mark) -> YamlError {
    YamlError::Syntax { line: at.line, what: what.to_owned() }
}

/// Returns the tag that a handle and a suffix denote; `None` for an undefined handle.
fn resolved(directives: &HashMap<String, String>, TagParts { handle, suffix }: &TagParts) -> Option<Tag> {
    if handle.is_empty() {
        return Some(Tag::by_name(suffix));
    }
    let prefix = match (directives.get(handle), handle.as_str()) {
        (Some(prefix), _) => prefix,
        (None, "!") => "!",
        (None, "!!") => CORE_PREFIX,
        (None, _) => return None,
    };
    Some(Tag::by_name(&format!("{prefix}{suffix}")))
}
