//! The last step: builds a tree from events, with the meaning that the library of the reference server gives
//! them.
//!
//! ```text
//! Parser ──Event──► Loader ──► Builder ──► Document
//!                    │  ▲
//!                    ▼  │ an alias, or a list of mappings to merge
//!                   record
//! ```
//!
//! The loader records the events of anchored nodes, and an alias replays these events as if the text of the
//! node were repeated there. Therefore errors, lines and duplicate keys are reported as the reference server
//! reports them. Both the record and the number of replayed events are bounded. Open containers are on a
//! heap-allocated stack, so nesting uses no call stack.

use std::borrow::Cow;
use std::ops::Range;

use hashbrown::HashMap;

use super::build::Builder;
use super::document::{SEPARATOR, STRICT_PREFIX, YamlDocument, YamlError};
use super::grammar::{Event, EventKind, Parser, YamlScalar};
use super::reader;
use super::scalar::Tag;
use crate::cancellation;
use crate::json::Value;

/// Maximum amount of memory that anchored nodes and their copies may add to a document, in bytes. The limit
/// is a little larger than the largest request body, so that aliases cannot express more than a request body
/// without aliases.
const COPIED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Splits an error of strict decoding into warnings: one for each line of [`YamlDocument::strict_error`]. Any
/// other text is returned unchanged (docs/api/encodings.md#strict-decoding).
pub fn warnings(sentence: &str) -> impl Iterator<Item = &str> {
    sentence.strip_prefix(STRICT_PREFIX).unwrap_or(sentence).split(SEPARATOR)
}

/// Parses the first YAML document of a text. As in the reference server, the text after the first document is
/// not read.
///
/// Time is proportional to the length of the text. Memory is proportional to the length of the text plus a
/// constant for aliases.
///
/// # Errors
/// See [`YamlError`]. A syntax error anywhere in the document takes precedence over errors about the meaning
/// of nodes. Duplicate keys are not an error; they are returned in addition to the tree.
pub fn parse(text: &[u8]) -> Result<YamlDocument, YamlError> {
    let source = reader::read(text);
    let mut parser = Parser::new(&source);
    let mut loader = Loader::default();
    loop {
        let Event { kind, line } = parser.next()?;
        match kind {
            EventKind::DocumentStart => loader.builder.count(false),
            EventKind::DocumentEnd | EventKind::StreamEnd => break,
            kind => loader.take(kind, line)?,
        }
    }
    match loader.failure {
        Some(failure) => Err(failure),
        None => loader.builder.finish(),
    }
}

/// A recorded event.
struct Recorded<'t> {
    node: RecordedNode<'t>,
    line: usize,
}

enum RecordedNode<'t> {
    /// An alias with the number of its anchor.
    Alias(usize),
    Scalar {
        text: Cow<'t, str>,
        tag: Tag,
        is_implicit: bool,
    },
    SequenceStart,
    SequenceEnd,
    MappingStart,
    MappingEnd,
}

impl RecordedNode<'_> {
    fn text_len(&self) -> usize {
        match self {
            RecordedNode::Scalar { text, .. } => text.len(),
            _ => 0,
        }
    }
}

/// A recorded node that has an anchor.
struct Anchor {
    start: usize,
    /// `None` until the node is complete.
    end: Option<usize>,
    is_mapping: bool,
}

/// A range of the record that is being replayed.
struct Playing {
    range: Range<usize>,
    /// Whether an alias caused the replay.
    is_aliased: bool,
    /// Whether the range is one of several mappings to merge.
    is_merged: bool,
}

#[derive(Default)]
struct Loader<'t> {
    builder: Builder,
    /// The first error about the meaning of a node. After this error no tree is built any more, but syntax
    /// errors are still detected.
    failure: Option<YamlError>,
    record: Vec<Recorded<'t>>,
    copied_bytes: usize,
    anchors: Vec<Anchor>,
    /// The most recent anchor of each name.
    names: HashMap<&'t str, usize>,
    /// The anchor of each open container, if the container has one.
    open: Vec<Option<usize>>,
    /// Number of open containers with an anchor.
    open_anchors: usize,
    /// The list of mappings to merge that is being recorded: its start in the record, and the number of
    /// containers that are open around the list.
    merge_list: Option<(usize, usize)>,
}

impl<'t> Loader<'t> {
    /// Processes the next event of the document.
    ///
    /// # Errors
    /// The anchor of an alias is unknown, or the record is full. Other errors are kept until the document has
    /// been read.
    fn take(&mut self, kind: EventKind<'t>, line: usize) -> Result<(), YamlError> {
        cancellation::step();
        let (anchor, is_mapping) = match &kind {
            EventKind::Scalar(YamlScalar { anchor, .. }) | EventKind::SequenceStart { anchor } => {
                (*anchor, false)
            }
            EventKind::MappingStart { anchor } => (*anchor, true),
            _ => (None, false),
        };
        let anchor = anchor.map(|name| {
            self.anchors.push(Anchor { start: self.record.len(), end: None, is_mapping });
            self.names.insert(name, self.anchors.len() - 1);
            self.anchors.len() - 1
        });
        let node = self.node(kind)?;
        let opens = matches!(node, RecordedNode::SequenceStart | RecordedNode::MappingStart);
        let closes = matches!(node, RecordedNode::SequenceEnd | RecordedNode::MappingEnd);
        let event = Recorded { node, line };
        if opens {
            self.open.push(anchor);
            self.open_anchors += usize::from(anchor.is_some());
            let is_list = matches!(event.node, RecordedNode::SequenceStart);
            if is_list && self.failure.is_none() && self.builder.expects_merge() {
                self.merge_list.get_or_insert((self.record.len(), self.open.len()));
            }
        }
        let is_recorded = self.open_anchors > 0 || anchor.is_some() || self.merge_list.is_some();
        if !is_recorded {
            if self.failure.is_none() {
                let built = self.build(event);
                self.keep(built);
            }
            self.open.truncate(self.open.len() - usize::from(closes));
            return Ok(());
        }
        let at = self.record.len();
        self.charge(&event)?;
        self.record.push(event);
        let depth = self.open.len();
        let closed = if closes { self.open.pop().flatten() } else { anchor.filter(|_| !opens) };
        if let Some(anchor) = closed {
            self.anchors[anchor].end = Some(self.record.len());
            self.open_anchors -= usize::from(closes);
        }
        let range = match self.merge_list {
            Some((start, levels)) if closes && levels == depth => {
                self.merge_list = None;
                start..self.record.len()
            }
            Some(_) => return Ok(()),
            None => at..self.record.len(),
        };
        if self.failure.is_none() {
            let played = self.play(range, false);
            self.keep(played);
        }
        Ok(())
    }

    /// Returns the node of an event. An alias must name an anchor that was set before.
    fn node(&mut self, kind: EventKind<'t>) -> Result<RecordedNode<'t>, YamlError> {
        Ok(match kind {
            EventKind::Alias(name) => {
                let Some(&anchor) = self.names.get(name) else {
                    return Err(YamlError::without_line(format!("unknown anchor '{name}' referenced")));
                };
                if self.anchors[anchor].end.is_none() {
                    self.fail(YamlError::without_line(format!("anchor '{name}' value contains itself")));
                }
                RecordedNode::Alias(anchor)
            }
            EventKind::Scalar(YamlScalar { text, tag, is_implicit, .. }) => {
                RecordedNode::Scalar { text, tag, is_implicit }
            }
            EventKind::SequenceStart { .. } => RecordedNode::SequenceStart,
            EventKind::MappingStart { .. } => RecordedNode::MappingStart,
            EventKind::SequenceEnd => RecordedNode::SequenceEnd,
            _ => RecordedNode::MappingEnd,
        })
    }

    fn fail(&mut self, error: YamlError) {
        self.failure.get_or_insert(error);
    }

    fn keep(&mut self, built: Result<(), YamlError>) {
        if let Err(error) = built {
            self.fail(error);
        }
    }

    /// Charges an event of the record against the memory limit.
    fn charge(&mut self, event: &Recorded<'_>) -> Result<(), YamlError> {
        self.copied_bytes += size_of::<Recorded<'_>>() + event.node.text_len();
        if self.copied_bytes > COPIED_BYTES_MAX { Err(YamlError::Aliasing) } else { Ok(()) }
    }

    /// Builds an event that is not recorded.
    fn build(&mut self, event: Recorded<'t>) -> Result<(), YamlError> {
        match event.node {
            RecordedNode::Alias(anchor) => {
                let range = self.enter_alias(anchor, event.line, false)?;
                self.play(range, true)
            }
            RecordedNode::Scalar { text, tag, is_implicit } => {
                self.builder.scalar(text, tag, is_implicit, event.line, false)
            }
            RecordedNode::SequenceStart => self.builder.open_sequence(event.line, false),
            RecordedNode::MappingStart => self.builder.open_mapping(event.line, false),
            RecordedNode::SequenceEnd | RecordedNode::MappingEnd => self.builder.close(),
        }
    }

    /// Adds an alias to the tree. Returns the range of the record that contains the node of the alias.
    fn enter_alias(
        &mut self,
        anchor: usize,
        line: usize,
        is_aliased: bool,
    ) -> Result<Range<usize>, YamlError> {
        let Anchor { start, end, is_mapping } = self.anchors[anchor];
        self.builder.alias(line, is_aliased, is_mapping)?;
        Ok(start..end.unwrap_or(start))
    }

    /// Replays a range of the record.
    fn play(&mut self, range: Range<usize>, is_aliased: bool) -> Result<(), YamlError> {
        let mut playing = vec![Playing { range, is_aliased, is_merged: false }];
        while let Some(top) = playing.last_mut() {
            cancellation::step();
            let is_aliased = top.is_aliased;
            let is_first_merged = std::mem::take(&mut top.is_merged);
            let Some(at) = top.range.next() else {
                playing.pop();
                continue;
            };
            if is_first_merged {
                self.builder.expect_merge();
            }
            let Recorded { node, line } = &self.record[at];
            let line = *line;
            if is_aliased {
                self.copied_bytes += size_of::<Value>() + node.text_len();
            }
            match node {
                RecordedNode::Alias(anchor) => {
                    let range = self.enter_alias(*anchor, line, is_aliased)?;
                    playing.push(Playing { range, is_aliased: true, is_merged: false });
                }
                RecordedNode::Scalar { text, tag, is_implicit } => {
                    let (text, tag, is_implicit) = (text.clone(), *tag, *is_implicit);
                    self.builder.scalar(text, tag, is_implicit, line, is_aliased)?;
                }
                RecordedNode::SequenceStart if self.builder.expects_merge() => {
                    if is_first_merged {
                        return Err(Builder::not_a_map());
                    }
                    let items = self.items(at);
                    let end = items.last().map_or(at + 1, |last| last.end);
                    top.range.start = (end + 1).min(top.range.end);
                    self.builder.expect_key();
                    // The last pushed item is replayed first, so earlier mappings of the list take
                    // precedence.
                    playing.extend(items.into_iter().map(|range| Playing {
                        range,
                        is_aliased,
                        is_merged: true,
                    }));
                }
                RecordedNode::SequenceStart => self.builder.open_sequence(line, is_aliased)?,
                RecordedNode::MappingStart => self.builder.open_mapping(line, is_aliased)?,
                RecordedNode::SequenceEnd | RecordedNode::MappingEnd => self.builder.close()?,
            }
            if self.copied_bytes > COPIED_BYTES_MAX {
                return Err(YamlError::Aliasing);
            }
        }
        Ok(())
    }

    /// Returns the items of the sequence that begins at a position of the record.
    fn items(&self, start: usize) -> Vec<Range<usize>> {
        let mut items = Vec::new();
        let (mut depth, mut item) = (0_usize, start + 1);
        for (at, event) in self.record.iter().enumerate().skip(start + 1) {
            match event.node {
                RecordedNode::SequenceStart | RecordedNode::MappingStart => depth += 1,
                RecordedNode::SequenceEnd | RecordedNode::MappingEnd if depth == 0 => break,
                RecordedNode::SequenceEnd | RecordedNode::MappingEnd => depth -= 1,
                RecordedNode::Alias(_) | RecordedNode::Scalar { .. } => {}
            }
            if depth == 0 {
                items.push(item..at + 1);
                item = at + 1;
            }
        }
        items
    }
}
