//! Compact text to indented text, chunk by chunk: how a list of any size is served indented without being held.
//!
//! Works on bytes: what lies inside strings is copied, white space outside of them is dropped, and structure is
//! laid out with two spaces a level. The input is trusted to be JSON that we wrote.

/// Where the text stands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Place {
    /// Outside of strings.
    #[default]
    Between,
    /// In a string.
    String,
    /// In a string, behind a backslash.
    Escape,
}

/// Lays out one document.
#[derive(Debug, Default)]
pub struct Indenter {
    place: Place,
    depth: usize,
    /// A container was opened and nothing stands in it yet.
    opened: bool,
}

impl Indenter {
    /// Appends the next part of the document, laid out. No newline follows the end of the document.
    pub fn push(&mut self, text: &[u8], out: &mut Vec<u8>) {
        for &byte in text {
            match self.place {
                Place::String => {
                    out.push(byte);
                    self.place = match byte {
                        b'\\' => Place::Escape,
                        b'"' => Place::Between,
                        _ => Place::String,
                    };
                }
                Place::Escape => {
                    out.push(byte);
                    self.place = Place::String;
                }
                Place::Between => self.structure(byte, out),
            }
        }
    }

    fn structure(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte.is_ascii_whitespace() {
            return;
        }
        let closes = matches!(byte, b'}' | b']');
        if closes {
            self.depth = self.depth.saturating_sub(1);
        }
        // An empty container stays on its line; anything else stands on lines of its own.
        if std::mem::take(&mut self.opened) != closes {
            self.new_line(out);
        }
        out.push(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.opened = true;
            }
            b',' => self.new_line(out),
            b':' => out.push(b' '),
            b'"' => self.place = Place::String,
            _ => {}
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        for _ in 0..self.depth {
            out.extend_from_slice(b"  ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{parse, write_pretty};
    use super::*;

    #[test]
    fn any_chunking_gives_what_the_tree_writer_gives() {
        for text in [
            r#"{"a":[1,{"b":{}}],"c":[],"d":"x,{\"y\"}: [","e":null}"#,
            "[]",
            "[[[]],{}]",
            "\"text\"",
            r#"{"kind":"List","items":[{"a":1},{"a":-2.5}]}"#,
        ] {
            let mut want = Vec::new();
            write_pretty(&parse(text.as_bytes()).unwrap(), &mut want);
            for size in [1, 3, 1000] {
                let mut indenter = Indenter::default();
                let mut got = Vec::new();
                format!("{text}\n").as_bytes().chunks(size).for_each(|chunk| indenter.push(chunk, &mut got));
                assert_eq!(String::from_utf8(got).unwrap(), String::from_utf8(want.clone()).unwrap());
            }
        }
    }
}
