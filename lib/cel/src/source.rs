//! The text of an expression, and positions in it.
//!
//! Positions are offsets in code points from the start of the text, as in the reference. Lines are separated
//! by `\n`.

use std::sync::Arc;

/// An expression's text with an index of its lines. Cloning shares the text.
#[derive(Clone, Debug)]
pub struct Source {
    text: Arc<str>,
    lines: Arc<[LineStart]>,
}

/// The start of a line, in code points and in bytes.
#[derive(Clone, Copy, Debug)]
struct LineStart {
    offset: u32,
    byte: u32,
}

/// A position for messages: lines count from 1, columns from 0, in code points.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Location {
    /// Line, counted from 1; -1 if the error has no position.
    pub line: i32,
    /// Column in code points, counted from 0; -1 if the error has no position.
    pub column: i32,
}

impl Location {
    /// The location of an error without a position in the text.
    pub const NONE: Self = Self { line: -1, column: -1 };
}

impl Source {
    /// Indexes `text`. The length of the text must be below 4 GiB; the limits of the callers are much lower.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text: Arc<str> = text.into();
        let mut lines = vec![LineStart { offset: 0, byte: 0 }];
        for (offset, (byte, c)) in text.char_indices().enumerate() {
            if c == '\n' {
                lines.push(LineStart { offset: offset as u32 + 1, byte: byte as u32 + 1 });
            }
        }
        Self { text, lines: lines.into() }
    }

    /// Returns the whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line and column of a code point offset. Offsets past the end are columns of the last line.
    pub fn location(&self, offset: u32) -> Location {
        let line = self.lines.partition_point(|line| line.offset <= offset);
        let start = self.lines[line - 1].offset;
        Location { line: line as i32, column: (offset - start) as i32 }
    }

    /// Returns the text of a line, counted from 1, without its line feed; `None` if the line does not exist.
    pub fn line(&self, line: i32) -> Option<&str> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        let start = self.lines.get(index)?.byte as usize;
        let end = self.lines.get(index + 1).map_or(self.text.len(), |next| next.byte as usize - 1);
        Some(&self.text[start..end])
    }
}
