//! YAML layouts: a tree of texts is written in a layout that the input chooses, and must be read back.
//!
//! The server's own scanner follows the reference server's library, which accepts more than the
//! specification. For the layouts of this target the scanner and the specification agree. Therefore
//! `saphyr-parser`, which follows the specification, is a second oracle: it distinguishes a mistake of
//! this writer from a mistake of the scanner.

use saphyr_parser::{Event, Parser};
use values::json::Value;
use values::yaml;

use crate::input::Input;

/// A document whose scalars are texts.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Node {
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Maximum nesting depth of documents.
const DEPTH_MAX: usize = 5;

/// Texts that need quotes at some positions, and texts that never need quotes.
const TEXTS: &[&str] = &[
    "a",
    "b c",
    "word two three",
    "é ü",
    "x-y_z",
    "",
    " ",
    "x: y",
    "- z",
    "# no",
    "a #b",
    "it's",
    "say \"x\"",
    "true",
    "1.5",
    "~",
    "[",
    "{a}",
    "&a",
    "*b",
    "!t",
    "%d",
    "@e",
    "? q",
    ":",
    "back\\slash",
    "tab\tin",
    "two\nlines\n",
    "one\n",
    "x\n\ny\n",
    " lead\n",
    "\u{2028}",
    "<<",
    "fd00::1",
    "a:b",
];

/// Names of members; each is used once in a mapping.
const NAMES: &[&str] = &["a", "name", "b c", "x: y", "it's", "1", "é", "true", "", "k-v"];

/// Builds a document from choices, and writes it in a layout built from choices.
pub fn yaml_layout(data: &[u8]) {
    let mut input = Input::new(data);
    let node = generate_node(&mut input, 0);
    let mut writer = Writer { input, out: String::new() };
    writer.document(&node);
    let text = writer.out;
    let document = yaml::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    assert_eq!(document.duplicates, [""; 0], "{text:?}");
    assert_eq!(read(&document.value), node, "{text:?}");
    assert_eq!(read_by_specification(&text), Some(node), "{text:?}");
}

fn generate_node(input: &mut Input<'_>, depth: usize) -> Node {
    let kind = if depth < DEPTH_MAX { input.below(4) } else { 0 };
    match kind {
        2 => Node::List((0..input.below(4)).map(|_| generate_node(input, depth + 1)).collect()),
        3 => {
            let first = input.below(NAMES.len());
            let names = (0..input.below(4)).map(|at| NAMES[(first + at) % NAMES.len()]);
            Node::Map(names.map(|name| (name.to_owned(), generate_node(input, depth + 1))).collect())
        }
        _ => Node::Text(input.pick(TEXTS).to_owned()),
    }
}

/// Returns the node of a tree; every scalar must have been read as text.
fn read(value: &Value) -> Node {
    match value {
        Value::String(text) => Node::Text(text.clone()),
        Value::Array(items) => Node::List(items.iter().map(read).collect()),
        Value::Object(members) => {
            Node::Map(members.iter().map(|(name, value)| (name.to_owned(), read(value))).collect())
        }
        other => panic!("{other:?} was written as a text"),
    }
}

/// Returns the node that `saphyr-parser` reads.
fn read_by_specification(text: &str) -> Option<Node> {
    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<(bool, Vec<Node>)> = Vec::new();
    loop {
        let (event, _) = parser.next_event()?.unwrap_or_else(|error| panic!("{error}: {text:?}"));
        let node = match event {
            Event::Scalar(text, ..) => Node::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                open.push((false, Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push((true, Vec::new()));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop()? {
                (false, items) => Node::List(items),
                (true, parts) => {
                    let pairs = parts.chunks_exact(2).map(|pair| match &pair[0] {
                        Node::Text(name) => (name.clone(), pair[1].clone()),
                        other => panic!("{other:?} was written as a name"),
                    });
                    Node::Map(pairs.collect())
                }
            },
            Event::StreamEnd => return None,
            _ => continue,
        };
        match open.last_mut() {
            Some((_, parts)) => parts.push(node),
            None => return Some(node),
        }
    }
}

/// A writer of nodes that chooses the layout from the input.
struct Writer<'d> {
    input: Input<'d>,
    out: String,
}

impl Writer<'_> {
    fn document(&mut self, node: &Node) {
        if self.input.one_in(3) {
            self.out.push_str("# comment\n---\n");
        }
        match node {
            Node::Map(members) if !members.is_empty() && !self.input.one_in(4) => self.members(members, 0),
            Node::List(items) if !items.is_empty() && !self.input.one_in(4) => self.items(items, 0),
            node => {
                self.inline(node, 1);
                self.end_line();
            }
        }
    }

    fn indent(&mut self, columns: usize) {
        self.out.extend(std::iter::repeat_n(' ', columns));
    }

    /// Ends a line, with a comment or an empty line by choice.
    fn end_line(&mut self) {
        if self.input.one_in(6) {
            self.out.push_str("  # comment");
        }
        self.out.push('\n');
        if self.input.one_in(6) {
            self.out.push('\n');
        }
    }

    fn members(&mut self, members: &[(String, Node)], column: usize) {
        for (at, (name, value)) in members.iter().enumerate() {
            if at > 0 {
                self.indent(column);
            }
            self.scalar(name, None);
            self.out.push(':');
            let may_be_indentless = true;
            self.value(value, column, may_be_indentless);
        }
    }

    fn items(&mut self, items: &[Node], column: usize) {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.indent(column);
            }
            self.out.push('-');
            self.item(item, column);
        }
    }

    /// Writes the part after a `-`, which may be a collection that begins on the same line.
    fn item(&mut self, item: &Node, column: usize) {
        let gap = 1 + self.input.below(3);
        let inner = column + 1 + gap;
        match item {
            Node::Map(members) if !members.is_empty() && self.input.one_in(2) => {
                self.indent(gap);
                self.members(members, inner);
            }
            Node::List(items) if !items.is_empty() && self.input.one_in(2) => {
                self.indent(gap);
                self.items(items, inner);
            }
            item => self.value(item, column, false),
        }
    }

    /// Writes the node that follows a `:` or `-` in a collection that is indented to a column.
    fn value(&mut self, value: &Node, column: usize, may_be_indentless: bool) {
        let is_block = !self.input.one_in(3);
        let inner = column + 1 + self.input.below(4);
        match value {
            Node::Map(members) if is_block && !members.is_empty() => {
                self.end_line();
                self.indent(inner);
                self.members(members, inner);
            }
            Node::List(items) if is_block && !items.is_empty() => {
                let inner = if may_be_indentless && self.input.one_in(2) { column } else { inner };
                self.end_line();
                self.indent(inner);
                self.items(items, inner);
            }
            Node::Text(text) if is_block && is_literal(text) => {
                self.out.push_str(" |\n");
                for line in text.lines() {
                    if !line.is_empty() {
                        self.indent(inner);
                        self.out.push_str(line);
                    }
                    self.out.push('\n');
                }
            }
            value => {
                self.out.push(' ');
                self.inline(value, column + 1);
                self.end_line();
            }
        }
    }

    /// Writes a node in flow style. The further lines of the text begin at `column` or after it.
    fn inline(&mut self, node: &Node, column: usize) {
        match node {
            Node::Text(text) => self.scalar(text, Some(column)),
            Node::List(items) => {
                self.out.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.separate(at, column);
                    self.inline(item, column);
                }
                self.close(']', !items.is_empty(), column);
            }
            Node::Map(members) => {
                self.out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    self.separate(at, column);
                    self.scalar(name, None);
                    self.out.push_str(": ");
                    self.inline(value, column);
                }
                self.close('}', !members.is_empty(), column);
            }
        }
    }

    fn separate(&mut self, at: usize, column: usize) {
        if at > 0 {
            self.out.push(',');
        }
        if self.input.one_in(3) {
            self.out.push('\n');
            self.indent(column);
        } else if at > 0 {
            self.out.push(' ');
        }
    }

    fn close(&mut self, bracket: char, may_end_with_comma: bool, column: usize) {
        if may_end_with_comma && self.input.one_in(4) {
            self.out.push(',');
        }
        if self.input.one_in(3) {
            self.out.push('\n');
            self.indent(column);
        }
        self.out.push(bracket);
    }

    /// Writes a scalar on one line, or folded over lines from `column` on.
    fn scalar(&mut self, text: &str, column: Option<usize>) {
        if is_plain(text) && !self.input.one_in(3) {
            self.folded(text, column);
        } else if !text.contains(|c: char| c.is_control() || c == '\u{2028}') && self.input.one_in(2) {
            self.out.push('\'');
            self.folded(&text.replace('\'', "''"), column);
            self.out.push('\'');
        } else {
            self.out.push('"');
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            self.folded(&escaped.replace('\t', "\\t").replace('\u{2028}', "\\L"), column);
            self.out.push('"');
        }
    }

    /// Writes a text in which a line break may represent a space between two letters.
    fn folded(&mut self, text: &str, column: Option<usize>) {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(' ') {
            let is_between =
                before.ends_with(char::is_alphanumeric) && after.starts_with(char::is_alphanumeric);
            self.out.push_str(before);
            match column {
                Some(column) if is_between && self.input.one_in(4) => {
                    self.out.push('\n');
                    self.indent(column);
                }
                _ => self.out.push(' '),
            }
            rest = after;
        }
        self.out.push_str(rest);
    }
}

/// Returns whether a text needs no quotes at any position.
fn is_plain(text: &str) -> bool {
    let is_word = |word: &str| word.chars().all(|c| c.is_alphabetic() || matches!(c, '-' | '_'));
    let begins = text.starts_with(char::is_alphabetic);
    begins
        && text.len() > 1
        && text != "true"
        && text.split(' ').all(|word| !word.is_empty() && is_word(word))
}

/// Returns whether a text can be written as a literal block with the indentation of its first line.
fn is_literal(text: &str) -> bool {
    let is_text = |c: char| c == '\n' || !c.is_control() && c != '\u{2028}';
    text.ends_with('\n')
        && !text.starts_with([' ', '\n'])
        && !text.ends_with("\n\n")
        && text.chars().all(is_text)
}
