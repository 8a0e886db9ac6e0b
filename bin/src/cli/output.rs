//! Writes the report of a command: text for people, JSON or YAML for programs.

use std::io::{self, Write};

use anyhow::anyhow;
use serde::Serialize;
use values::{json, yaml};

/// The outcome of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The command succeeded, and there is no damage.
    Fine,
    /// The command succeeded, and reported damage.
    Damaged,
    /// The command failed, and the report has the reasons.
    Failed,
}

/// The output format of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
    /// YAML for programs and people.
    Yaml,
}

/// Parses the output format of a command.
///
/// # Errors
/// The text is not the name of a format.
pub fn parse_format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        "yaml" => Ok(Format::Yaml),
        _ => Err("must be text, json or yaml".to_owned()),
    }
}

/// Writes `report` as JSON or YAML, or calls `text` for [`Format::Text`].
///
/// # Errors
/// The report cannot be written.
pub fn write<R, W>(
    out: &mut W,
    format: Format,
    report: &R,
    text: impl FnOnce(&mut W) -> io::Result<()>,
) -> anyhow::Result<()>
where
    R: Serialize,
    W: Write,
{
    match format {
        Format::Text => text(out)?,
        Format::Json => {
            serde_json::to_writer(&mut *out, report)?;
            writeln!(out)?;
        }
        Format::Yaml => out.write_all(&yaml_of(report)?)?,
    }
    Ok(())
}

/// Writes one report of a series for programs: a line of JSON, or a YAML document that begins with `---`.
///
/// # Errors
/// The report cannot be written.
pub fn document(out: &mut impl Write, format: Format, report: &impl Serialize) -> anyhow::Result<()> {
    if format == Format::Yaml {
        writeln!(out, "---")?;
        return Ok(out.write_all(&yaml_of(report)?)?);
    }
    serde_json::to_writer(&mut *out, report)?;
    Ok(writeln!(out)?)
}

/// Returns `report` as a YAML document.
///
/// # Errors
/// The report cannot be written as JSON.
pub fn yaml_of(report: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let tree = json::parse(&serde_json::to_vec(report)?).map_err(|why| anyhow!("{why}"))?;
    let mut text = Vec::new();
    yaml::write(&tree, &mut text);
    Ok(text)
}

/// The side on which the values of a column are aligned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Align {
    /// Texts begin at the same column.
    Left,
    /// Numbers end at the same column.
    Right,
}

/// Writes rows with aligned columns. The first row is the heading, and every row has one cell for each
/// column.
pub fn table<const N: usize>(
    out: &mut impl Write,
    align: [Align; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let mut line = String::new();
        for ((cell, width), align) in row.iter().zip(widths).zip(align) {
            let cell = match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            };
            line.push_str(&cell);
            line.push_str("  ");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_written_as_text_json_or_yaml() {
        let report = serde_json::json!({"b": 1, "a": ["x", "1"]});
        for (format, want) in [
            (Format::Text, "for people\n"),
            (Format::Json, "{\"a\":[\"x\",\"1\"],\"b\":1}\n"),
            (Format::Yaml, "a:\n- x\n- \"1\"\nb: 1\n"),
        ] {
            let mut out = Vec::new();
            write(&mut out, format, &report, |out| writeln!(out, "for people")).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }

    #[test]
    fn several_reports_are_written_as_json_lines_or_yaml_documents() {
        for (format, want) in
            [(Format::Json, "{\"a\":1}\n{\"a\":2}\n"), (Format::Yaml, "---\na: 1\n---\na: 2\n")]
        {
            let mut out = Vec::new();
            for number in [1, 2] {
                document(&mut out, format, &serde_json::json!({"a": number})).unwrap();
            }
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }

    #[test]
    fn columns_of_a_table_are_aligned() {
        let mut out = Vec::new();
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        table(&mut out, [Align::Right, Align::Left], &[row("N", "NAME"), row("12", "ä"), row("3", "longer")])
            .unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), " N  NAME\n12  ä\n 3  longer\n");
    }
}
