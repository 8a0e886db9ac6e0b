//! Indentation of compact JSON chunk by chunk, so that a list of any size can be served indented without
//! being buffered.
//!
//! The indenter works on bytes: it copies strings, drops white space outside of strings, and indents
//! structure by two spaces per level. The input must be valid JSON; it is not checked.

/// State of the indenter within the input.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Position {
    /// Outside of strings.
    #[default]
    Between,
    /// In a string.
    String,
    /// In a string, after a backslash.
    Escape,
}

/// Indenter of one document.
#[derive(Debug, Default)]
pub struct Indenter {
    position: Position,
    depth: usize,
    /// Whether a container was just opened and has no content yet.
    opened: bool,
}

impl Indenter {
    /// Indents the next part of the document and appends it to `out`. No newline follows the end of the
    /// document.
    pub fn push(&mut self, text: &[u8], out: &mut Vec<u8>) {
        for &byte in text {
            match self.position {
                Position::String => {
                    out.push(byte);
                    self.position = match byte {
                        b'\\' => Position::Escape,
                        b'"' => Position::Between,
                        _ => Position::String,
                    };
                }
                Position::Escape => {
                    out.push(byte);
                    self.position = Position::String;
                }
                Position::Between => self.structure(byte, out),
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
        // An empty container stays on one line; elements and members each get a line of their own.
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
            b'"' => self.position = Position::String,
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
    fn indenting_any_chunks_gives_the_same_text_as_the_tree_writer() {
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
