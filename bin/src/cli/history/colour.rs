//! Colours of the history commands. The output has colours only on a terminal, and only if `NO_COLOR` is not
//! set.

use std::io::{self, IsTerminal, Write};

/// A colour of text on a terminal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Colour {
    /// Text in the terminal's own colour.
    Plain,
    /// Colour of new objects, fields and lines.
    Green,
    /// Colour of removed objects, fields and lines.
    Red,
    /// Colour of changed objects and fields.
    Yellow,
    /// Colour of headings and of positions in a diff.
    Cyan,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Plain => "",
            Colour::Green => "\x1b[32m",
            Colour::Red => "\x1b[31m",
            Colour::Yellow => "\x1b[33m",
            Colour::Cyan => "\x1b[36m",
        }
    }
}

/// Returns whether standard output shows colours.
pub fn is_enabled() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes text, in a colour if `coloured` is true.
pub fn write(out: &mut impl Write, coloured: bool, colour: Colour, text: &str) -> io::Result<()> {
    match colour.code() {
        code if coloured && !code.is_empty() => write!(out, "{code}{text}\x1b[0m"),
        _ => out.write_all(text.as_bytes()),
    }
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct ColouredCell {
    /// The text, without control characters.
    pub text: String,
    /// The colour of the text.
    pub colour: Colour,
}

impl From<String> for ColouredCell {
    fn from(text: String) -> ColouredCell {
        ColouredCell { text, colour: Colour::Plain }
    }
}

/// Writes rows with aligned columns. The first row is the heading.
pub fn table<const N: usize>(
    out: &mut impl Write,
    coloured: bool,
    rows: &[[ColouredCell; N]],
) -> io::Result<()> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    for row in rows {
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            write(out, coloured, cell.colour, &cell.text)?;
            if at + 1 < N {
                write!(out, "{:1$}", "", width - cell.text.chars().count() + 3)?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_with_and_without_colours() {
        let cell = |text: &str, colour| ColouredCell { text: text.to_owned(), colour };
        let rows = [
            [cell("A", Colour::Plain), cell("B", Colour::Plain)],
            [cell("äöü", Colour::Red), cell("x", Colour::Plain)],
        ];
        let written = |coloured| {
            let mut out = Vec::new();
            table(&mut out, coloured, &rows).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(false), "A     B\näöü   x\n");
        assert_eq!(written(true), "A     B\n\x1b[31mäöü\x1b[0m   x\n");
    }
}
