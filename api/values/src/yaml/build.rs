//! Converts YAML nodes to a JSON tree: keys become names, scalars get their types, and mappings are merged.
//!
//! A merge (`<<`) sets the members of another mapping at the position of the `<<` key. As in the library of
//! the reference server, and contrary to the specification, a merge replaces members that stand before it.
//! Setting a member twice is a duplicate.

use std::borrow::Cow;

use hashbrown::HashSet;

use super::document::{YamlDocument, YamlError};
use super::scalar::{self, KeyKind, MappingKey, Resolved, Tag};
use crate::json::{DEPTH_MAX, Key, MemberCollector, Value};

/// Maximum number of duplicate keys reported for one document (docs/api/encodings.md#strict-decoding).
const DUPLICATES_MAX: usize = 100;

/// Maximum length of the text of a container in an error, in bytes.
const SHOWN_BYTES_MAX: usize = 16 * 1024;

/// An open container.
enum Frame {
    Sequence(Vec<Value>),
    Mapping(Box<Mapping>),
    /// A mapping whose members are set in the nearest [`Frame::Mapping`] below.
    Merged(Expect),
}

#[derive(Default)]
struct Mapping {
    members: MemberCollector,
    /// The names together with the kinds of their keys. This set is created at the first key that is not a
    /// string.
    names: Option<HashSet<(KeyKind, String)>>,
    expect: Expect,
}

/// State of a mapping: the node that is expected next.
#[derive(Default)]
enum Expect {
    #[default]
    Key,
    /// The value of this key, and the line of the value once it has begun.
    Value(MappingKey, Option<usize>),
    /// A mapping that is merged into this mapping, or a list of such mappings.
    Merge,
}

/// Builds the tree of one document.
#[derive(Default)]
pub(super) struct Builder {
    stack: Vec<Frame>,
    root: Value,
    duplicates: Vec<String>,
    /// Number of nodes that were built. `aliased` is the number of these nodes that come from aliases.
    built: u64,
    aliased: u64,
    /// An error that is reported if there is no other error.
    late: Option<YamlError>,
}

impl Builder {
    /// Returns the document. All nodes must have been built.
    pub fn finish(self) -> Result<YamlDocument, YamlError> {
        match self.late {
            Some(error) => Err(error),
            None => Ok(YamlDocument { value: self.root, duplicates: self.duplicates }),
        }
    }

    /// Counts a node. The limit on the share of nodes that come from aliases is the same as in the reference
    /// server.
    pub fn count(&mut self, is_aliased: bool) {
        self.built += 1;
        self.aliased += u64::from(is_aliased);
    }

    fn counted(&mut self, is_aliased: bool) -> Result<(), YamlError> {
        self.count(is_aliased);
        let is_excessive = self.aliased > 100
            && self.built > 1000
            && self.aliased as f64 / self.built as f64 > alias_share_max(self.built);
        if is_excessive { Err(YamlError::Aliasing) } else { Ok(()) }
    }

    /// Returns whether the next node will be merged into the current mapping.
    pub fn expects_merge(&mut self) -> bool {
        matches!(self.expected(), Some(Expect::Merge))
    }

    /// Makes the current mapping expect a mapping to merge.
    pub fn expect_merge(&mut self) {
        if let Some(expect) = self.expected() {
            *expect = Expect::Merge;
        }
    }

    /// Makes the current mapping expect a key.
    pub fn expect_key(&mut self) {
        if let Some(expect) = self.expected() {
            *expect = Expect::Key;
        }
    }

    /// Returns the error for a node that cannot be merged.
    pub fn not_a_map() -> YamlError {
        YamlError::without_line("map merge requires map or sequence of maps as the value")
    }

    fn expected(&mut self) -> Option<&mut Expect> {
        match self.stack.last_mut()? {
            Frame::Sequence(_) => None,
            Frame::Mapping(mapping) => Some(&mut mapping.expect),
            Frame::Merged(expect) => Some(expect),
        }
    }

    /// Notes the line at which the expected value of the current mapping begins.
    fn begin(&mut self, begin: usize) {
        if let Some(Expect::Value(_, line)) = self.expected() {
            line.get_or_insert(begin);
        }
    }

    /// Adds an alias. The caller must then add the node to which the alias refers.
    pub fn alias(&mut self, line: usize, is_aliased: bool, is_mapping: bool) -> Result<(), YamlError> {
        if self.expects_merge() && !is_mapping {
            return Err(Self::not_a_map());
        }
        self.begin(line);
        self.counted(is_aliased)
    }

    /// Begins a nested sequence.
    pub fn open_sequence(&mut self, line: usize, is_aliased: bool) -> Result<(), YamlError> {
        self.open(line, is_aliased, Frame::Sequence(Vec::new()))
    }

    /// Begins a nested mapping, or a mapping that is merged into the current mapping.
    pub fn open_mapping(&mut self, line: usize, is_aliased: bool) -> Result<(), YamlError> {
        if self.expects_merge() {
            self.expect_key();
            return self.open(line, is_aliased, Frame::Merged(Expect::Key));
        }
        self.open(line, is_aliased, Frame::Mapping(Box::default()))
    }

    fn open(&mut self, line: usize, is_aliased: bool, frame: Frame) -> Result<(), YamlError> {
        self.begin(line);
        self.counted(is_aliased)?;
        if self.stack.len() >= DEPTH_MAX {
            return Err(YamlError::Depth);
        }
        self.stack.push(frame);
        Ok(())
    }

    /// Ends the current container.
    pub fn close(&mut self) -> Result<(), YamlError> {
        let value = match self.stack.pop() {
            Some(Frame::Sequence(items)) => Value::Array(items),
            Some(Frame::Mapping(mapping)) => mapping.members.finish().into(),
            Some(Frame::Merged(_)) | None => return Ok(()),
        };
        if matches!(self.expected(), Some(Expect::Key)) {
            return Err(YamlError::without_line(format!("invalid map key: {}", go_syntax(&value))));
        }
        self.add_node(value);
        Ok(())
    }

    /// Adds a scalar; in key position the scalar becomes the key.
    pub fn scalar(
        &mut self,
        text: Cow<'_, str>,
        tag: Tag,
        is_implicit: bool,
        line: usize,
        is_aliased: bool,
    ) -> Result<(), YamlError> {
        let is_key = match self.expected() {
            Some(Expect::Merge) => return Err(Self::not_a_map()),
            Some(expect @ Expect::Key) => {
                // The key of a merge is not a node of the tree.
                if text == "<<" && (is_implicit || tag == Tag::Merge) {
                    *expect = Expect::Merge;
                    return Ok(());
                }
                true
            }
            _ => false,
        };
        self.begin(line);
        self.counted(is_aliased)?;
        let resolved = match tag {
            Tag::Absent if !is_implicit => Resolved::Text,
            tag => scalar::resolve_tagged(tag, &text).map_err(YamlError::without_line)?,
        };
        let text = match (resolved, tag) {
            (Resolved::Text, Tag::Binary) => scalar::binary(&text).map_err(YamlError::without_line)?,
            (Resolved::Text, _) => text.into_owned(),
            _ => String::new(),
        };
        if is_key {
            if let Some(expect) = self.expected() {
                *expect = Expect::Value(scalar::key(resolved, text), None);
            }
            return Ok(());
        }
        let value = resolved.value(text).unwrap_or_else(|number| {
            self.late.get_or_insert(YamlError::Unsupported(number));
            Value::Null
        });
        self.add_node(value);
        Ok(())
    }

    /// Adds a complete node to its parent.
    fn add_node(&mut self, value: Value) {
        if let Some(Frame::Sequence(items)) = self.stack.last_mut() {
            items.push(value);
        } else if let Some(expect) = self.expected() {
            if let Expect::Value(key, line) = std::mem::take(expect) {
                self.set(key, line.unwrap_or_default(), value);
            }
        } else {
            self.root = value;
        }
    }

    /// Sets a member of the current mapping, or of the mapping into which the current mapping is merged.
    fn set(&mut self, key: MappingKey, line: usize, value: Value) {
        if let Some(reason) = key.unsupported {
            let value = if value.is_null() { "<nil>".to_owned() } else { go_syntax(&value) };
            let what = format!("{reason}, key: {}, value: {value}", key.message_text);
            // An unsupported key is reported in preference to an unsupported number, because the reference
            // server converts keys first.
            if !matches!(self.late, Some(YamlError::UnsupportedKey(_))) {
                self.late = Some(YamlError::UnsupportedKey(what));
            }
        }
        let mut frames = self.stack.iter_mut().rev();
        let Some(mapping) = frames.find_map(|frame| match frame {
            Frame::Mapping(mapping) => Some(mapping),
            Frame::Sequence(_) | Frame::Merged(_) => None,
        }) else {
            return;
        };
        if mapping.set(key.kind, key.name, value) && self.duplicates.len() < DUPLICATES_MAX {
            self.duplicates.push(format!("line {}: key {} already set in map", line + 1, key.message_text));
        }
    }
}

impl Mapping {
    /// Sets a member. Returns whether the same key was set before.
    fn set(&mut self, kind: KeyKind, name: String, value: Value) -> bool {
        if self.names.is_none() && kind == KeyKind::Text {
            return self.members.set(Key::Owned(name), value);
        }
        let members = &self.members;
        let names = self
            .names
            .get_or_insert_with(|| members.names().map(|name| (KeyKind::Text, name.to_owned())).collect());
        // NaN is not equal to itself, so it is never a duplicate key.
        let is_new = names.insert((kind, name.clone())) || name == ".nan" && kind == KeyKind::Float;
        self.members.set(Key::Owned(name), value);
        !is_new
    }
}

/// Returns the maximum share of nodes that come from aliases, for a document with `nodes` nodes.
fn alias_share_max(nodes: u64) -> f64 {
    const SMALL: f64 = 400_000.0;
    const LARGE: f64 = 4_000_000.0;
    let above = (nodes as f64 - SMALL) / (LARGE - SMALL);
    0.99 - 0.89 * above.clamp(0.0, 1.0)
}

/// Returns a value in the `%#v` format of Go, cut if it is too long.
fn go_syntax(value: &Value) -> String {
    let mut out = String::new();
    write_go_syntax(value, &mut out);
    if out.len() > SHOWN_BYTES_MAX {
        out.truncate(out.floor_char_boundary(SHOWN_BYTES_MAX));
        out.push_str("...");
    }
    out
}

fn write_go_syntax(value: &Value, out: &mut String) {
    if out.len() > SHOWN_BYTES_MAX {
        return;
    }
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&cel::number::format_double(*number)),
        Value::Number(words) => out.push_str(words),
        Value::String(text) => out.push_str(&go::quote(text)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_go_syntax(item, out);
            }
            out.push('}');
        }
        Value::Object(members) => {
            out.push_str("map[interface {}]interface {}{");
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            for (at, (name, member)) in sorted.into_iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(&go::quote(name));
                out.push(':');
                write_go_syntax(member, out);
            }
            out.push('}');
        }
    }
}
