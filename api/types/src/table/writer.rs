//! Writing of tables row by row.
//!
//! A row is appended to a buffer; a failed row appends nothing. A writer that keeps the previous row
//! ([`TableWriter::fork`]) copies the cells whose inputs are the same as in that row.

use std::sync::Arc;

use jiff::Timestamp;

use super::cell_reuse::{InputPositions, PreviousRow};
use super::row::{Output, Row, text_of};
use super::{
    ColumnKind, CompiledColumn, Headers, IncludeObject, ListMeta, PartialWriter, RowError, Source,
    TableFormat, duration,
};
use values::field::go_float;
use values::json::{self, Value, write_string};

/// Writer of tables of one format, row by row.
#[derive(Debug)]
pub struct TableWriter {
    pub(super) format: Arc<TableFormat>,
    pub(super) opening: String,
    pub(super) partial: PartialWriter,
    pub(super) include: IncludeObject,
    pub(super) now: Timestamp,
    pub(super) rows: usize,
    /// The previous row, if this writer keeps it.
    pub(super) before: Option<Box<PreviousRow>>,
}

/// The source of a row's cells.
#[expect(
    clippy::large_enum_variant,
    reason = "only one value is on the stack at a time; a box would cost an allocation for each row"
)]
enum Cells {
    /// The cells that the writer keeps, for an object in canonical form.
    Remembered(InputPositions),
    /// The parts of the object from which the cells are computed.
    Computed(Value),
}

impl Cells {
    /// Returns the resourceVersion of the object whose stored form is `stored`; may be empty.
    fn resource_version<'c>(&'c self, stored: &'c [u8]) -> &'c str {
        match self {
            Cells::Remembered(positions) => positions.resource_version(stored).unwrap_or_default(),
            Cells::Computed(object) => object.str_at(&["metadata", "resourceVersion"]),
        }
    }
}

impl TableWriter {
    /// Sets the time to which ages refer, with second precision. A watch updates this time, because a watch lasts long.
    pub fn set_now(&mut self, now: Timestamp) {
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        if now == self.now {
            return;
        }
        self.now = now;
        if let Some(before) = &mut self.before {
            before.forget();
        }
    }

    /// Creates a writer of further rows of the same table, after the first row. The writer keeps each row for
    /// the comparison with the next row.
    #[must_use]
    pub fn fork(&self) -> Self {
        TableWriter {
            format: self.format.clone(),
            opening: self.opening.clone(),
            partial: self.partial.fork(),
            include: self.include,
            now: self.now,
            rows: 1,
            before: (!self.format.inputs.is_empty()).then(Box::default),
        }
    }

    /// Appends the head of a table.
    pub fn head(&mut self, meta: &ListMeta, headers: Headers, out: &mut Vec<u8>) {
        self.rows = 0;
        out.extend_from_slice(self.opening.as_bytes());
        out.extend_from_slice(b",\"metadata\":");
        meta.write(out);
        out.extend_from_slice(b",\"columnDefinitions\":");
        out.extend_from_slice(match headers {
            Headers::Shown => &self.format.definitions,
            Headers::Omitted => b"null",
        });
        out.extend_from_slice(b",\"rows\":[");
    }

    /// Appends the row of one object. The cells are computed from `stored`, the stored form of the object.
    /// The row includes `served`, the form of the object in the requested version. If no conversion is
    /// needed, `served` has the same bytes.
    ///
    /// # Errors
    /// Fails if `stored` cannot be parsed, and then writes nothing.
    pub fn row(&mut self, stored: &[u8], served: &[u8], out: &mut Vec<u8>) -> Result<(), RowError> {
        let cells = match self.remember(stored) {
            Some(positions) => Cells::Remembered(positions),
            None => Cells::Computed(self.format.reads.read(stored)?),
        };
        self.write_row(&cells, stored, served, out)
    }

    /// Keeps the cells of an object in canonical form, and computes only the cells whose inputs differ from
    /// the previous row. Returns `None` for any other object, or if this writer keeps no rows.
    fn remember(&mut self, stored: &[u8]) -> Option<InputPositions> {
        let mut before = self.before.take()?;
        let positions = self.compare(&mut before, stored);
        if positions.is_none() {
            before.forget();
        }
        self.before = Some(before);
        positions
    }

    /// Performs [`TableWriter::remember`] on the given previous row.
    fn compare(&self, before: &mut PreviousRow, stored: &[u8]) -> Option<InputPositions> {
        let format = &*self.format;
        let positions = before.locate(&format.inputs, stored)?;
        let finished = format.finished_mask();
        before.cells.resize_with(format.columns.len(), Vec::new);
        let masks = format.columns.iter().map(|column| column.mask).chain([finished]);
        let selected =
            masks.filter(|mask| mask & positions.changed != 0).fold(0, |selected, mask| selected | mask);
        if selected != 0 {
            let object = positions.tree(&format.inputs, selected, stored)?;
            let row = Row { object: &object, now: self.now };
            for (column, cell) in format.columns.iter().zip(&mut before.cells) {
                if column.mask & positions.changed != 0 {
                    cell.clear();
                    column.write(&row, cell);
                }
            }
            if finished & positions.changed != 0 {
                before.conditions = finished_conditions(row.str(&["status", "phase"]));
            }
        }
        before.keep(&format.inputs, &positions, stored);
        Some(positions)
    }

    /// Closes the table, with the final newline of a document.
    pub fn tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}\n");
    }

    /// Appends a whole table of one object, without a newline: the response to a get or a write, or the
    /// object of a watch event (bookmarks too). The table's metadata has the object's resourceVersion.
    ///
    /// # Errors
    /// The same errors as [`TableWriter::row`].
    pub fn single(
        &mut self,
        stored: &[u8],
        served: &[u8],
        headers: Headers,
        out: &mut Vec<u8>,
    ) -> Result<(), RowError> {
        // A table has its own resourceVersion. The resourceVersion of the stored form can be copied only if the
        // resourceVersion is a string without escapes.
        let cells =
            match self.remember(stored).filter(|positions| positions.resource_version(stored).is_some()) {
                Some(positions) => Cells::Remembered(positions),
                None => Cells::Computed(self.format.single_reads.read(stored)?),
            };
        let before = out.len();
        let resource_version = cells.resource_version(stored);
        self.head(&ListMeta { resource_version, ..ListMeta::default() }, headers, out);
        let written = self.write_row(&cells, stored, served, out);
        match written {
            Ok(()) => out.extend_from_slice(b"]}"),
            Err(_) => out.truncate(before),
        }
        written
    }

    fn write_row(
        &mut self,
        cells: &Cells,
        stored: &[u8],
        served: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), RowError> {
        let start = out.len();
        if self.rows > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"cells\":[");
        let metadata = match cells {
            Cells::Remembered(positions) => {
                self.write_remembered(out);
                std::ptr::eq(stored, served).then(|| &stored[positions.metadata.clone()])
            }
            Cells::Computed(object) => {
                self.write_computed(object, out);
                None
            }
        };
        self.end_row(metadata, served, start, out)
    }

    /// Writes the kept cells and the row conditions.
    fn write_remembered(&self, out: &mut Vec<u8>) {
        let Some(before) = &self.before else { return };
        for (at, cell) in before.cells.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(cell);
        }
        out.push(b']');
        out.extend_from_slice(before.conditions.as_bytes());
    }

    /// Computes and writes the cells of an object, and the row conditions.
    fn write_computed(&self, object: &Value, out: &mut Vec<u8>) {
        let row = Row { object, now: self.now };
        for (at, column) in self.format.columns.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            column.write(&row, out);
        }
        out.push(b']');
        if self.format.marks_finished {
            out.extend_from_slice(finished_conditions(row.str(&["status", "phase"])).as_bytes());
        }
    }

    /// Writes the object of the row that began at `start`, and ends the row. `metadata` is the metadata of
    /// the object, if already known.
    fn end_row(
        &mut self,
        metadata: Option<&[u8]>,
        served: &[u8],
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), RowError> {
        out.extend_from_slice(b",\"object\":");
        let written = match self.include {
            IncludeObject::None => {
                out.extend_from_slice(b"null");
                true
            }
            IncludeObject::Metadata => match metadata {
                Some(metadata) => {
                    self.partial.object_of(metadata, out);
                    true
                }
                None => self.partial.object(served, out),
            },
            IncludeObject::Object => {
                out.extend_from_slice(served.trim_ascii_end());
                true
            }
        };
        if !written {
            out.truncate(start);
            return Err(RowError::NoMetadata);
        }
        out.push(b'}');
        self.rows += 1;
        Ok(())
    }
}

impl CompiledColumn {
    /// Appends the cell of a row.
    fn write(&self, row: &Row<'_>, out: &mut Vec<u8>) {
        match &self.source {
            Source::Cell(cell) => write_cell(self.kind, row.evaluate(cell), out),
            Source::Path(path) => write_custom_cell(self.kind, path.first(row.object), row, out),
            Source::Name(path) => {
                let name = path.first(row.object).and_then(Value::as_str).unwrap_or_default();
                write_string(name, out);
            }
        }
    }
}

/// Returns the row conditions of finished pods, which clients may hide.
fn finished_conditions(phase: &str) -> &'static str {
    match phase {
        "Succeeded" => {
            r#","conditions":[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod has completed successfully."}]"#
        }
        "Failed" => {
            r#","conditions":[{"type":"Completed","status":"True","reason":"Failed","message":"The pod failed."}]"#
        }
        _ => "",
    }
}

/// Writes a cell of a built-in type. Numbers are written as texts in text columns. An unset cell contains the
/// zero value of the column, because the stored form omits zeros.
fn write_cell(kind: ColumnKind, output: Output, out: &mut Vec<u8>) {
    match (kind, output) {
        (ColumnKind::Integer | ColumnKind::Number, Output::Unset) => out.push(b'0'),
        (ColumnKind::Boolean, Output::Unset) => out.extend_from_slice(b"false"),
        (_, Output::Int(n)) => json::write(&Value::Int(n), out),
        (_, Output::Bool(b)) => json::write(&Value::Bool(b), out),
        (ColumnKind::Integer | ColumnKind::Number | ColumnKind::Boolean, Output::Value(value)) => {
            json::write(value, out);
        }
        (_, output) => write_string(&output.into_text(), out),
    }
}

/// Writes a cell of a custom resource: a value of the column's type, or null. In a text column, a `null` in
/// the object differs from an absent value.
fn write_custom_cell(kind: ColumnKind, value: Option<&Value>, row: &Row, out: &mut Vec<u8>) {
    let Some(value) = value else { return out.extend_from_slice(b"null") };
    match (kind, value) {
        (ColumnKind::Text, Value::Null) => write_string("<no value>", out),
        (ColumnKind::Text, Value::Float(n)) => write_string(&go_float(*n), out),
        (ColumnKind::Text, Value::Object(_) | Value::Array(_)) => {
            let mut text = Vec::new();
            json::write_sorted(value, &mut text);
            write_string(&String::from_utf8_lossy(&text), out);
        }
        (ColumnKind::Text, value) => write_string(&text_of(value), out),
        (ColumnKind::Integer, Value::Float(n)) => json::write(&Value::Int(integer_part(*n)), out),
        (ColumnKind::Number, Value::Int(n)) if n.unsigned_abs() > DOUBLE_EXACT => {
            json::write(&Value::Float(*n as f64), out);
        }
        (ColumnKind::Integer | ColumnKind::Number, Value::Int(_))
        | (ColumnKind::Number, Value::Float(_))
        | (ColumnKind::Boolean, Value::Bool(_)) => json::write(value, out),
        (ColumnKind::Date, Value::String(text)) => {
            let age = row.age(text);
            let is_unset = matches!(text.as_str(), "" | "null") || text.starts_with("0001-");
            let never = if is_unset { duration::UNKNOWN } else { "<invalid>" };
            write_string(age.as_deref().unwrap_or(never), out);
        }
        _ => out.extend_from_slice(b"null"),
    }
}

/// Largest number up to which doubles represent all integers exactly: 2^53.
const DOUBLE_EXACT: u64 = 1 << 53;

/// Returns the integer part of a double. For NaN and for doubles outside the range of `i64` the result is
/// `i64::MIN`, as in the reference server on x86-64.
fn integer_part(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0; // 2^63
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}
