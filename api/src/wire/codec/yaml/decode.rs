//! YAML events to a tree: one document, within limits.
//!
//! Open containers are on a heap-allocated stack, so nesting uses no call stack. An alias copies its anchor's node:
//! copies are counted, and a document whose aliases would expand beyond the size of a request body is refused before
//! they do. Keys become strings, as JSON requires.

use std::borrow::Cow;

use hashbrown::HashMap;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use super::scalar::{self, Scalar, Tag};
use crate::values::cancellation;
use crate::values::json::{self, DEPTH_MAX, Key, MemberCollector, Object, Value};

/// Most memory that anchors and aliases may add to a document, in bytes: a little more than the largest request body,
/// so that aliases cannot express more than a body without them.
const COPIED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most duplicate keys reported for one document (docs/api/encodings.md#strict-decoding).
const DUPLICATES_MAX: usize = 100;

/// One YAML document as a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The tree; of a key that was set twice, the last value. An empty text is `null`.
    pub value: Value,
    /// `line 4: key "a" already set in map`, in document order, at most 100.
    pub duplicates: Vec<String>,
}

impl Document {
    /// The error of strict decoding for the duplicates, in one text; `None` if there are none.
    pub fn strict_error(&self) -> Option<String> {
        (!self.duplicates.is_empty()).then(|| format!("{STRICT_PREFIX}{}", self.duplicates.join(SEPARATOR)))
    }
}

const STRICT_PREFIX: &str = "yaml: unmarshal errors:\n  ";
const SEPARATOR: &str = "\n  ";

/// The warnings for an error of strict decoding: one for each line of [`Document::strict_error`], any other text
/// unchanged (docs/api/encodings.md#strict-decoding).
pub fn warnings(sentence: &str) -> impl Iterator<Item = &str> {
    sentence.strip_prefix(STRICT_PREFIX).unwrap_or(sentence).split(SEPARATOR)
}

/// Why a text is not one YAML document that JSON can represent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum YamlError {
    /// Not YAML, or not resolvable.
    #[error("yaml: {}{what}", if *.line == 0 { String::new() } else { format!("line {line}: ") })]
    Syntax {
        /// Line of the text, as the reference server counts it; 0 for none.
        line: usize,
        /// The error there.
        what: String,
    },
    /// Not UTF-8.
    #[error("yaml: invalid Unicode")]
    NotUnicode,
    /// Anchors and aliases expand beyond the size of a request body.
    #[error("yaml: document contains excessive aliasing")]
    Aliasing,
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("yaml: exceeded max depth")]
    Depth,
    /// A number without a JSON form.
    #[error("json: unsupported value: {0}")]
    Unsupported(&'static str),
}

impl From<&ScanError> for YamlError {
    fn from(error: &ScanError) -> Self {
        let (line, what) = (error.marker().line(), error.info());
        // The reference server leaves out what was being parsed, counts the lines of the parser from 0 and those of the
        // scanner from 1, and says of neither that it is the first.
        match what.strip_prefix("while parsing ").and_then(|rest| rest.split_once(", ")) {
            Some(("a quoted scalar" | "a tag" | "a tag directive", what)) => YamlError::scanned(line, what),
            Some((_, what)) => {
                let what = match what.starts_with("expected ") {
                    true => format!("did not find {what}"),
                    false => what.to_owned(),
                };
                YamlError::Syntax { line: line.saturating_sub(1), what }
            }
            None => YamlError::scanned(line, said_of_scanning(what)),
        }
    }
}

impl YamlError {
    /// An error of the scanner on a line, counted from 1.
    fn scanned(line: usize, what: &str) -> Self {
        YamlError::Syntax { line: if line > 1 { line } else { 0 }, what: what.to_owned() }
    }

    /// An error of what a node means, which is told without its line.
    fn meant(what: impl Into<String>) -> Self {
        YamlError::Syntax { line: 0, what: what.into() }
    }
}

/// An alias of what has no anchor.
fn of_alias(error: &ScanError, text: &str) -> Option<YamlError> {
    let is_unknown = error.info() == "while parsing node, found unknown anchor";
    is_unknown.then(|| {
        YamlError::meant(format!("unknown anchor '{}' referenced", alias(text, error.marker().index())))
    })
}

/// The name in the alias at a position, in characters.
fn alias(text: &str, at: usize) -> String {
    let name = text.chars().skip(at).skip_while(|c| *c == '*');
    name.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// A tab before the first token of a text. The parser takes it for a blank, the reference server's scanner does not.
fn of_leading_tab(text: &str) -> Option<YamlError> {
    let lines = text.trim_start_matches('\u{feff}').split('\n').map(|line| line.trim_start_matches(' '));
    let is_content = |line: &str| !matches!(line.trim_end_matches('\r').chars().next(), None | Some('#'));
    let (before, first) = lines.enumerate().find(|(_, line)| is_content(line))?;
    let what = "found character that cannot start any token";
    first.starts_with('\t').then(|| YamlError::scanned(before + 1, what))
}

/// What the reference server says where characters make no token.
fn said_of_scanning(what: &str) -> &str {
    let is_tab = what.starts_with("tabs disallowed") || what == "tab cannot be used as indentation";
    if is_tab || what.starts_with("unexpected character") {
        return "found character that cannot start any token";
    }
    if what.starts_with("simple key expect") {
        return "could not find expected ':'";
    }
    let rest = what.strip_prefix("while scanning ").and_then(|rest| rest.split_once(", "));
    rest.map_or(what, |(_, what)| what)
}

/// A tab that indents a line of a plain scalar. The parser says where the scalar begins, the reference server where the
/// tab is.
fn of_tab(error: &ScanError, text: &str) -> Option<YamlError> {
    let is_tab = error.info() == "while scanning a plain scalar, found a tab";
    let begin = error.marker().line();
    let is_indented = |line: &&str| line.trim_start_matches(' ').starts_with('\t') && !line.trim().is_empty();
    let after = text.lines().skip(begin).position(|line| is_indented(&line)).filter(|_| is_tab)?;
    let what = "found a tab character that violates indentation".to_owned();
    Some(YamlError::Syntax { line: begin + after + 1, what })
}

/// Reads the first YAML document of a text that is not empty. As in the reference server, what follows it is not read.
///
/// Costs time in proportion to the text, and memory in proportion to it and to a constant for aliases.
///
/// # Errors
/// See [`YamlError`]. Duplicate keys are no error; they are returned beside the tree.
pub fn parse(text: &[u8]) -> Result<Document, YamlError> {
    let text = std::str::from_utf8(text).map_err(|_| YamlError::NotUnicode)?;
    of_leading_tab(text).map_or(Ok(()), Err)?;
    let told = |error: &ScanError| of_tab(error, text).or_else(|| of_alias(error, text));
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::default();
    let mut document = Value::Null;
    while let Some(event) = parser.next_event() {
        let (event, span) =
            event.map_err(|error| told(&error).unwrap_or_else(|| builder.syntax(&error, text)))?;
        let line = span.start.line();
        match event {
            Event::StreamEnd => break,
            Event::DocumentEnd => {
                document = builder.root.take().unwrap_or_default();
                if !document.is_null() {
                    break;
                }
            }
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::Alias(anchor) if !builder.anchors.contains_key(&anchor) => {
                let name = alias(text, span.start.index());
                return Err(YamlError::meant(format!("anchor '{name}' value contains itself")));
            }
            event => builder.take(event, line)?,
        }
    }
    Ok(Document { value: document, duplicates: builder.duplicates })
}

/// An open container, and the line on which it begins.
enum Frame {
    Sequence { items: Vec<Value>, anchor: usize, line: usize },
    Mapping { members: MemberCollector, expect: Expect, merged: Vec<Object>, anchor: usize, line: usize },
}

/// What a mapping expects next.
enum Expect {
    Key,
    /// The value of this key, whose text in messages is the second.
    Value(String, Cow<'static, str>),
    /// The mappings to merge into this one.
    Merge,
}

/// The node of an anchor.
struct Anchored {
    value: Value,
    cost: Cost,
}

/// The size of a tree's copy.
#[derive(Clone, Copy)]
struct Cost {
    bytes: usize,
    /// Levels of containers, including the tree itself.
    depth: usize,
}

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    /// The finished document.
    root: Option<Value>,
    anchors: HashMap<usize, Anchored>,
    copied_bytes: usize,
    duplicates: Vec<String>,
}

impl Builder {
    /// An error of the parser at this place of the document.
    fn syntax(&self, error: &ScanError, text: &str) -> YamlError {
        if error.info() == "misplaced bracket" {
            let what = self.instead_of_bracket(text, error.marker().index()).to_owned();
            return YamlError::Syntax { line: error.marker().line().saturating_sub(1), what };
        }
        // Between the elements of a sequence in brackets the reference server only knows what may follow, and says where
        // the sequence begins, unless that is the first line.
        let of_pair = error.info() == "illegal placement of ':' indicator";
        match self.stack.last() {
            Some(Frame::Sequence { line, .. }) if of_pair => YamlError::Syntax {
                line: if *line > 1 { line - 1 } else { error.marker().line() - 1 },
                what: "did not find expected ',' or ']'".to_owned(),
            },
            _ => error.into(),
        }
    }

    /// What the reference server wants where a bracket closes nothing, at a position in characters: a node after an indicator,
    /// else what may follow a node.
    fn instead_of_bracket(&self, text: &str, at: usize) -> &'static str {
        let before = text.chars().take(at).filter(|c| !c.is_whitespace()).last();
        match (before, self.stack.last()) {
            (None | Some(':' | '-' | '?'), _) => "did not find expected node content",
            (_, Some(Frame::Mapping { .. })) => "did not find expected key",
            (_, Some(Frame::Sequence { .. })) => "did not find expected '-' indicator",
            (_, None) => "did not find expected <document start>",
        }
    }

    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        cancellation::step();
        let wrong = |what: &str| YamlError::Syntax { line, what: what.to_owned() };
        match event {
            Event::SequenceStart(anchor, _) => {
                self.open(Frame::Sequence { items: Vec::new(), anchor, line }, line)
            }
            Event::MappingStart(anchor, _) => {
                let members = MemberCollector::default();
                self.open(
                    Frame::Mapping { members, expect: Expect::Key, merged: Vec::new(), anchor, line },
                    line,
                )
            }
            Event::SequenceEnd => match self.stack.pop() {
                Some(Frame::Sequence { items, anchor, line }) => self.put(Value::Array(items), anchor, line),
                _ => Err(wrong("did not find expected node content")),
            },
            Event::MappingEnd => match self.stack.pop() {
                Some(Frame::Mapping { mut members, merged, anchor, line, .. }) => {
                    // The mapping's own members take precedence over merged ones.
                    for (name, value) in merged.into_iter().flat_map(Object::into_members) {
                        if members.find(&name).is_none() {
                            members.set(name, value);
                        }
                    }
                    self.put(members.finish().into(), anchor, line)
                }
                _ => Err(wrong("did not find expected node content")),
            },
            Event::Alias(anchor) => {
                let Some(Anchored { value, cost }) = self.anchors.get(&anchor) else {
                    return Err(wrong("did not find expected node content"));
                };
                if self.stack.len() + cost.depth > DEPTH_MAX {
                    return Err(YamlError::Depth);
                }
                charge(&mut self.copied_bytes, cost)?;
                let value = value.clone();
                self.put(value, 0, line)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| {
                    let is_core = tag.is_yaml_core_schema();
                    if is_core { Tag::by_name(&tag.suffix) } else { Tag::Other }
                });
                let scalar = match tag {
                    Some(tag) => scalar::resolve_tagged(tag, &text).map_err(YamlError::meant)?,
                    None if style == ScalarStyle::Plain => scalar::resolve(&text),
                    None => Scalar::Value(Value::String(text.clone().into_owned())),
                };
                self.scalar(scalar, &text, anchor, line)
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, frame: Frame, line: usize) -> Result<(), YamlError> {
        if matches!(self.stack.last(), Some(Frame::Mapping { expect: Expect::Key, .. })) {
            return Err(YamlError::Syntax { line, what: "invalid map key".to_owned() });
        }
        if self.stack.len() >= DEPTH_MAX {
            return Err(YamlError::Depth);
        }
        self.stack.push(frame);
        Ok(())
    }

    /// A scalar; in key position it becomes the key.
    fn scalar(&mut self, scalar: Scalar, text: &str, anchor: usize, line: usize) -> Result<(), YamlError> {
        if let Some(Frame::Mapping { expect: expect @ Expect::Key, .. }) = self.stack.last_mut() {
            *expect = match &scalar {
                Scalar::Merge => Expect::Merge,
                Scalar::NotFinite(_) => Expect::Value(text.to_ascii_lowercase(), text.to_owned().into()),
                Scalar::Value(value) => key(value, line)?,
            };
            if anchor > 0
                && let Scalar::Value(value) = scalar
            {
                self.anchor(anchor, &value)?;
            }
            return Ok(());
        }
        let value = match scalar {
            Scalar::Value(value) => value,
            Scalar::Merge => text.into(),
            Scalar::NotFinite(name) => return Err(YamlError::Unsupported(name)),
        };
        self.put(value, anchor, line)
    }

    /// Adds a complete node to its parent.
    fn put(&mut self, value: Value, anchor: usize, line: usize) -> Result<(), YamlError> {
        if anchor > 0 {
            self.anchor(anchor, &value)?;
        }
        match self.stack.last_mut() {
            None => self.root = Some(value),
            Some(Frame::Sequence { items, .. }) => items.push(value),
            Some(Frame::Mapping { members, expect, merged, .. }) => {
                match std::mem::replace(expect, Expect::Key) {
                    // An alias as a key.
                    Expect::Key => *expect = key(&value, line)?,
                    Expect::Merge => merge(value, merged)?,
                    Expect::Value(name, shown) => {
                        if members.set(Key::Owned(name), value) && self.duplicates.len() < DUPLICATES_MAX {
                            self.duplicates.push(format!("line {line}: key {shown} already set in map"));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Keeps a copy of a node for its aliases.
    fn anchor(&mut self, anchor: usize, value: &Value) -> Result<(), YamlError> {
        let cost = cost(value);
        charge(&mut self.copied_bytes, &cost)?;
        self.anchors.insert(anchor, Anchored { value: value.clone(), cost });
        Ok(())
    }
}

/// Accounts for a copy.
fn charge(copied_bytes: &mut usize, cost: &Cost) -> Result<(), YamlError> {
    *copied_bytes += cost.bytes;
    if *copied_bytes > COPIED_BYTES_MAX { Err(YamlError::Aliasing) } else { Ok(()) }
}

/// A scalar as a key: its JSON name, and its text in messages.
fn key(value: &Value, line: usize) -> Result<Expect, YamlError> {
    let name = match value {
        Value::String(text) => {
            return Ok(Expect::Value(text.clone(), crate::values::field::go_quote(text).into()));
        }
        Value::Bool(true) => "true".to_owned(),
        Value::Bool(false) => "false".to_owned(),
        Value::Int(_) | Value::Float(_) => {
            let mut text = Vec::new();
            json::write(value, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(YamlError::Syntax { line, what: "invalid map key".to_owned() });
        }
    };
    Ok(Expect::Value(name.clone(), name.into()))
}

/// The mappings of a `<<` key; earlier ones of a list take precedence.
fn merge(value: Value, merged: &mut Vec<Object>) -> Result<(), YamlError> {
    let wanted = || YamlError::meant("map merge requires map or sequence of maps as the value");
    match value {
        Value::Object(members) => merged.push(members),
        Value::Array(items) => {
            for item in items {
                let Value::Object(members) = item else { return Err(wanted()) };
                merged.push(members);
            }
        }
        _ => return Err(wanted()),
    }
    Ok(())
}

fn cost(value: &Value) -> Cost {
    cancellation::step();
    let base = size_of::<Value>();
    let inside = |costs: &mut dyn Iterator<Item = Cost>| {
        costs.fold(Cost { bytes: base, depth: 1 }, |sum, cost| Cost {
            bytes: sum.bytes + cost.bytes,
            depth: sum.depth.max(cost.depth + 1),
        })
    };
    match value {
        Value::String(text) => Cost { bytes: base + text.len(), depth: 0 },
        Value::Array(items) => inside(&mut items.iter().map(cost)),
        Value::Object(members) => inside(&mut members.iter().map(|(name, value)| {
            let cost = cost(value);
            Cost { bytes: cost.bytes + size_of::<Key>() + name.len(), ..cost }
        })),
        _ => Cost { bytes: base, depth: 0 },
    }
}
