//! Selections of the parts of an object that a table needs, and the reader that builds a tree of exactly
//! these parts.
//!
//! ```text
//! metadata{name,creationTimestamp},spec.containers?,status{phase,conditions{type,status}}
//! ```
//!
//! A *selection* is a comma-separated list of dotted paths. Braces group paths with a common prefix. A
//! selection below a list applies to each element. A trailing `?` selects only the shape: presence and number
//! of elements or members. All other parts are skipped, so a table row costs a fraction of the time to parse
//! the object.

use values::json::scan::Scan;
use values::json::{self, DEPTH_MAX, Key, Object, ParseError, Value};

/// The selected parts of one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reads {
    /// Whether the whole value is selected.
    whole: bool,
    /// Whether the number of members or elements is selected.
    shape: bool,
    /// Selected members (of each element, for a list).
    members: Vec<(Key, Reads)>,
}

impl Reads {
    /// Adds a selection in the notation of this module. A malformed selection is parsed up to the error and
    /// is not rejected, because selections are part of the program. The tests of the functions detect
    /// malformed selections.
    pub fn select(&mut self, selection: &'static str) {
        let mut rest = selection;
        self.select_group(&mut rest);
    }

    fn select_group(&mut self, rest: &mut &'static str) {
        loop {
            let mut node = &mut *self;
            loop {
                let end = rest.find(['.', ',', '{', '}', '?']).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                *rest = after;
                if !name.is_empty() {
                    node = node.member(Key::Borrowed(name));
                }
                match after.as_bytes().first() {
                    Some(b'.') => *rest = &after[1..],
                    Some(b'{') => {
                        *rest = &after[1..];
                        node.select_group(rest);
                        break;
                    }
                    Some(b'?') => {
                        *rest = &after[1..];
                        node.shape = true;
                        break;
                    }
                    _ => {
                        node.whole = true;
                        break;
                    }
                }
            }
            match rest.as_bytes().first() {
                Some(b',') => *rest = &rest[1..],
                Some(b'}') => {
                    *rest = &rest[1..];
                    return;
                }
                _ => return,
            }
        }
    }

    /// Adds a path, or only its shape if `shape` is set.
    pub fn path<'k>(&mut self, names: impl IntoIterator<Item = &'k str>, shape: bool) {
        let node = names.into_iter().fold(self, |node, name| node.member(Key::Owned(name.to_owned())));
        if shape {
            node.shape = true;
        } else {
            node.whole = true;
        }
    }

    fn member(&mut self, name: Key) -> &mut Reads {
        let at = match self.members.iter().position(|(key, _)| *key == name) {
            Some(at) => at,
            None => {
                self.members.push((name, Reads::default()));
                self.members.len() - 1
            }
        };
        &mut self.members[at].1
    }

    /// Returns the selected parts of the object in `stored`. If only the number of members is selected, the
    /// members have empty names and null values. Texts that are not selected are null. Other parts are
    /// skipped without validation.
    ///
    /// # Errors
    /// `stored` is not one JSON document.
    pub fn read(&self, stored: &[u8]) -> Result<Value, ParseError> {
        if let Some(value) = self.select_from(stored, 0) {
            return Ok(value);
        }
        // The text is not in canonical form, so write the text again in canonical form.
        let mut usual = Vec::with_capacity(stored.len());
        json::write(&json::parse(stored)?, &mut usual);
        Ok(self.select_from(&usual, 0).unwrap_or_default())
    }

    /// Returns the selected members with their own selections; `None` if the whole value or its shape is
    /// selected.
    pub fn single_members(&self) -> Option<impl Iterator<Item = (&str, &Reads)>> {
        let is_more = self.whole || self.shape;
        (!is_more).then(|| self.members.iter().map(|(name, below)| (&**name, below)))
    }

    /// Reads a text in canonical form like [`Reads::read`]. The text is nested `depth` levels deep.
    /// Returns `None` for any other text.
    pub fn select_from(&self, text: &[u8], depth: usize) -> Option<Value> {
        let mut scan = Scan::new(text);
        self.value(&mut scan, depth).filter(|_| scan.is_at_end())
    }

    fn value(&self, scan: &mut Scan<'_>, depth: usize) -> Option<Value> {
        match scan.peek() {
            b'{' | b'[' if depth >= DEPTH_MAX => None,
            b'{' | b'[' if self.whole => json::parse(scan.value()?).ok(),
            b'{' => self.object(scan, depth + 1),
            b'[' => self.array(scan, depth + 1),
            b'"' => {
                let text = scan.string()?;
                // If only the shape or single members are selected, the text is not copied, because a text
                // can be a megabyte long.
                if !self.whole {
                    return Some(Value::Null);
                }
                String::from_utf8(text.unescaped()?.into_owned()).ok().map(Value::String)
            }
            b't' => scan.word("true").then_some(Value::Bool(true)),
            b'f' => scan.word("false").then_some(Value::Bool(false)),
            b'n' => scan.word("null").then_some(Value::Null),
            _ => {
                let number = scan.number()?;
                number.parse().map(Value::Int).or_else(|_| number.parse().map(Value::Float)).ok()
            }
        }
    }

    fn object(&self, scan: &mut Scan<'_>, depth: usize) -> Option<Value> {
        let mut members = Vec::with_capacity(self.members.len());
        scan.take(b'{');
        if scan.take(b'}') {
            return Some(Value::Object(Object::new()));
        }
        loop {
            let name = scan.name()?.unescaped()?;
            match self.members.iter().find(|(key, _)| key.as_bytes() == &*name) {
                Some((key, below)) => members.push((key.clone(), below.value(scan, depth)?)),
                None => {
                    scan.value()?;
                    if self.shape {
                        members.push((Key::Borrowed(""), Value::Null));
                    }
                }
            }
            if !scan.more(b'}')? {
                scan.take(b'}');
                return Some(Value::Object(members.into_iter().collect()));
            }
        }
    }

    fn array(&self, scan: &mut Scan<'_>, depth: usize) -> Option<Value> {
        // The shape of a list does not depend on its elements.
        let is_skipped = self.members.is_empty();
        let mut items = Vec::new();
        scan.take(b'[');
        if scan.take(b']') {
            return Some(Value::Array(items));
        }
        loop {
            items.push(if is_skipped {
                scan.value()?;
                Value::Null
            } else {
                self.value(scan, depth)?
            });
            if !scan.more(b']')? {
                scan.take(b']');
                return Some(Value::Array(items));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json;

    #[test]
    fn partial_decoding_reads_only_selected_members() {
        let text =
            br#"{"a":{"b":1,"c":[{"x":"y","z":2},{"z":3}]},"d":{"e":"long","f":{}},"g":[1,2,3],"h":"s"}"#;
        for (selection, want) in [
            ("a.b", r#"{"a":{"b":1}}"#),
            ("a{b,c.z},h", r#"{"a":{"b":1,"c":[{"z":2},{"z":3}]},"h":"s"}"#),
            ("d?", r#"{"d":{"":null,"":null}}"#),
            ("d{e?},g?", r#"{"d":{"e":null},"g":[null,null,null]}"#),
            ("a{c{x},b?},q", r#"{"a":{"b":1,"c":[{"x":"y"},{}]}}"#),
            ("a.c,d.f", r#"{"a":{"c":[{"x":"y","z":2},{"z":3}]},"d":{"f":{}}}"#),
        ] {
            let mut reads = Reads::default();
            reads.select(selection);
            let mut out = Vec::new();
            json::write(&reads.read(text).unwrap(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{selection}");
        }
    }

    #[test]
    fn selections_of_several_cells_are_merged() {
        let mut reads = Reads::default();
        reads.select("a.b");
        reads.path(["a", "x.y/z"], false);
        reads.path(["n"], true);
        let mut same = Reads::default();
        same.select("a{b},n?");
        same.path(["a", "x.y/z"], false);
        assert_eq!(reads, same);
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let mut reads = Reads::default();
        reads.select("a");
        for text in ["", "{\"a\":", "{\"a\":1}x", "{\"b\":[1,}", "{\"b\":1,}"] {
            assert!(reads.read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
