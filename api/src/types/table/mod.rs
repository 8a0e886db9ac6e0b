//! Server-side tables: one row of cells per object (docs/api/encodings.md#tables, #table-columns).
//!
//! ```text
//! ResourceTable.columns ──cells──► Cell (parsed once) ──► TableFormat { cells, what they read, definitions }
//!                                                              │
//! stored bytes ──reads──► tree of what the cells need ──eval──►│──► {"cells":[…],"object":…}  bytes, row by row
//! ```
//!
//! A table is streamed: head, rows, tail; nothing is buffered. Cells are computed from the *stored* form of an object,
//! so that every requested version shows the same table. The object of a row is a range of stored bytes and is not
//! encoded again. Nothing here knows where objects come from.

pub mod cell;
mod cells;
mod cluster;
mod describe;
mod duration;
mod eval;
mod functions;
pub mod jsonpath;
mod network;
pub mod partial;
mod pods;
mod reads;
mod workloads;

#[cfg(test)]
mod kinds_test;
#[cfg(test)]
mod pods_test;
#[cfg(test)]
mod rows_test;

use std::borrow::Cow::Borrowed as B;
use std::sync::Arc;

use jiff::Timestamp;

use self::cell::{Cell, CellError};
use self::eval::{Output, Row, text_of};
use self::jsonpath::{JsonPath, JsonPathError};
pub use self::partial::{ListMeta, MetaVersion, PartialWriter, metadata_range};
use self::reads::Reads;
use crate::types::schema::table::{Column, ResourceTable};
use crate::values::json::{self, ParseError, Value, write_string};
use crate::values::naming::Naming;
use crate::values::status::Status;

/// The object in a row besides the cells: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IncludeObject {
    /// No object.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the query parameter; the empty value is the default.
    ///
    /// # Errors
    /// 400 for any other value (docs/api/encodings.md#tables).
    pub fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Whether a table includes its column definitions. In a watch only the first one does
/// (docs/api/encodings.md#tables).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Headers {
    /// `columnDefinitions` is the list.
    Shown,
    /// `columnDefinitions` is null.
    Omitted,
}

/// Why an object has no row.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The bytes are not JSON.
    #[error("object is not JSON")]
    NotJson(#[from] ParseError),
    /// The bytes are not an object with metadata.
    #[error("object has no metadata")]
    NoMetadata,
}

/// A column of a custom resource (`additionalPrinterColumns`).
#[derive(Clone, Copy, Debug)]
pub struct PrinterColumn<'c> {
    /// Header.
    pub name: &'c str,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: &'c str,
    /// The format hint for clients.
    pub format: &'c str,
    /// One sentence.
    pub description: &'c str,
    /// 0 = always shown.
    pub priority: i64,
    /// Path of the cell's value.
    pub json_path: &'c str,
}

/// How the objects of one resource become rows. Immutable; created once per resource and shared.
impl<'c> PrinterColumn<'c> {
    fn of(column: &'c Column) -> Self {
        PrinterColumn {
            name: &column.name,
            kind: &column.kind,
            format: &column.format,
            description: &column.description,
            priority: column.priority.into(),
            json_path: &column.cell,
        }
    }
}

/// How the objects of one resource become rows. Immutable; made once per resource and shared.
#[derive(Debug)]
pub struct TableFormat {
    columns: Vec<CompiledColumn>,
    /// `columnDefinitions` as JSON.
    definitions: Vec<u8>,
    reads: Reads,
    /// Rows of finished objects are marked (pods).
    marks_finished: bool,
}

#[derive(Debug)]
struct CompiledColumn {
    kind: ColumnKind,
    source: Source,
}

/// The source of a cell.
#[derive(Debug)]
enum Source {
    /// A cell of a built-in type.
    Cell(Cell),
    /// A path into a custom resource.
    Path(JsonPath),
}

/// The type of a column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ColumnKind {
    Text,
    Integer,
    Number,
    Boolean,
    Date,
}

impl ColumnKind {
    fn of(name: &str) -> Self {
        match name {
            "integer" => ColumnKind::Integer,
            "number" => ColumnKind::Number,
            "boolean" => ColumnKind::Boolean,
            "date" => ColumnKind::Date,
            _ => ColumnKind::Text,
        }
    }
}

const NAME: Column = Column {
    name: B("Name"),
    kind: B("string"),
    format: B("name"),
    priority: 0,
    description: B(""),
    cell: B("metadata.name"),
};

/// Columns of a type without declared ones.
static DEFAULT_COLUMNS: [Column; 2] = [
    NAME,
    Column {
        name: B("Created At"),
        kind: B("date"),
        format: B(""),
        priority: 0,
        description: B(""),
        cell: B("rfc3339(metadata.creationTimestamp)"),
    },
];

/// Formats of the built-in resources, by the address of their columns and the naming profile; both are static, so the
/// map is bounded by the program.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// That of a built-in type; a slip in the schema, which the tests find.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// That of a type made at run time.
    #[error(transparent)]
    Path(#[from] JsonPathError),
}

impl TableFormat {
    /// The format of a resource, made at the first call and kept in its table.
    ///
    /// # Errors
    /// A column's text is not understood.
    pub fn for_resource(resource: &ResourceTable, naming: &'static Naming) -> Result<Arc<Self>, FormatError> {
        resource.format.get_or_try(|| {
            if resource.message.custom {
                let columns: Vec<PrinterColumn<'_>> =
                    resource.columns.iter().map(PrinterColumn::of).collect();
                return Ok(Self::for_custom(&columns)?);
            }
            let columns = if resource.columns.is_empty() { &DEFAULT_COLUMNS } else { &*resource.columns };
            let format = Self::for_columns(columns, naming)?;
            Ok(Self { marks_finished: resource.behavior.marks_finished, ..format })
        })
    }

    /// The format of objects with these columns, as built-in types have them.
    ///
    /// # Errors
    /// A column's text is not understood.
    pub fn for_columns(columns: &[Column], naming: &'static Naming) -> Result<Self, CellError> {
        let mut format = Self::empty();
        for column in columns {
            let mut cell = cells::parse(&column.cell, naming)?;
            // Alone, an age that is not known says so; before a `|` it makes room for the alternative.
            if matches!(&cell, Cell::Call(function, _) if function.name == "age") {
                let unknown = Cell::parse(&format!("\"{}\"", duration::UNKNOWN))?;
                cell = Cell::FirstOf(vec![cell, unknown]);
            }
            cell.add_reads(&mut format.reads);
            format.define(
                &column.name,
                &column.kind,
                &column.format,
                describe::description(&column.name),
                column.priority.into(),
            );
            format
                .columns
                .push(CompiledColumn { kind: ColumnKind::of(&column.kind), source: Source::Cell(cell) });
        }
        format.definitions.push(b']');
        Ok(format)
    }

    /// The format of a custom resource: its name, then the declared columns, or the age if none are declared.
    ///
    /// # Errors
    /// A column's path is not in the grammar of [`jsonpath`].
    pub fn for_custom(columns: &[PrinterColumn]) -> Result<Self, JsonPathError> {
        let name = PrinterColumn {
            name: "Name",
            kind: "string",
            format: "name",
            description: describe::description("Name"),
            priority: 0,
            json_path: ".metadata.name",
        };
        let age = PrinterColumn {
            name: "Age",
            kind: "date",
            format: "",
            description: describe::description("Age"),
            json_path: ".metadata.creationTimestamp",
            ..name
        };
        let declared = if columns.is_empty() { &[age][..] } else { columns };
        let mut format = Self::empty();
        for column in [name].iter().chain(declared) {
            let path = JsonPath::parse(column.json_path)?;
            format.reads.path(path.leading_names(), false);
            format.define(column.name, column.kind, column.format, column.description, column.priority);
            format
                .columns
                .push(CompiledColumn { kind: ColumnKind::of(column.kind), source: Source::Path(path) });
        }
        format.definitions.push(b']');
        Ok(format)
    }

    fn empty() -> Self {
        let mut reads = Reads::default();
        reads.select("metadata.resourceVersion");
        TableFormat { columns: Vec::new(), definitions: b"[".to_vec(), reads, marks_finished: false }
    }

    fn define(&mut self, name: &str, kind: &str, format: &str, description: &str, priority: i64) {
        let out = &mut self.definitions;
        if out.len() > 1 {
            out.push(b',');
        }
        for (before, text) in [
            ("{\"name\":", name),
            (",\"type\":", kind),
            (",\"format\":", format),
            (",\"description\":", description),
        ] {
            out.extend_from_slice(before.as_bytes());
            write_string(text, out);
        }
        out.extend_from_slice(format!(",\"priority\":{priority}}}").as_bytes());
    }

    /// A writer of tables in this format, in the meta group of `words`; ages refer to `now`.
    pub fn writer(
        self: &Arc<Self>,
        version: MetaVersion,
        words: &Naming,
        include: IncludeObject,
        now: Timestamp,
    ) -> TableWriter {
        TableWriter {
            format: self.clone(),
            opening: version.opening("Table", words),
            partial: PartialWriter::new(version, words),
            include,
            now,
            rows: 0,
        }
    }
}

/// Writes tables of one format, row by row.
#[derive(Debug)]
pub struct TableWriter {
    format: Arc<TableFormat>,
    opening: String,
    partial: PartialWriter,
    include: IncludeObject,
    now: Timestamp,
    rows: usize,
}

impl TableWriter {
    /// Sets the time to which ages refer: a watch lasts longer than one moment.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Opens a table.
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

    /// Appends the row of one object. `stored` is its stored form, from which the cells are computed; `shown` its form
    /// in the requested version, which the row includes (the same bytes without a conversion).
    ///
    /// # Errors
    /// `stored` cannot be parsed; nothing was written.
    pub fn row(&mut self, stored: &[u8], shown: &[u8], out: &mut Vec<u8>) -> Result<(), RowError> {
        let object = self.format.reads.read(stored)?;
        self.write_row(&object, shown, out)
    }

    /// Closes the table, with the final newline of a document.
    pub fn tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"]}\n");
    }

    /// Appends a whole table of one object, without a newline: the response to a get or a write, or the object of a
    /// watch event (bookmarks too). Its metadata has the object's resourceVersion.
    ///
    /// # Errors
    /// As [`TableWriter::row`].
    pub fn single(
        &mut self,
        stored: &[u8],
        shown: &[u8],
        headers: Headers,
        out: &mut Vec<u8>,
    ) -> Result<(), RowError> {
        let before = out.len();
        let object = self.format.reads.read(stored)?;
        let resource_version = object.str_at(&["metadata", "resourceVersion"]);
        self.head(&ListMeta { resource_version, ..ListMeta::default() }, headers, out);
        if let Err(error) = self.write_row(&object, shown, out) {
            out.truncate(before);
            return Err(error);
        }
        out.extend_from_slice(b"]}");
        Ok(())
    }

    fn write_row(&mut self, object: &Value, shown: &[u8], out: &mut Vec<u8>) -> Result<(), RowError> {
        let before = out.len();
        if self.rows > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"cells\":[");
        let row = Row { object, now: self.now };
        for (at, column) in self.format.columns.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            match &column.source {
                Source::Cell(cell) => write_cell(column.kind, row.evaluate(cell), out),
                Source::Path(path) => write_custom_cell(column.kind, path.first(object), &row, out),
            }
        }
        out.push(b']');
        if self.format.marks_finished {
            out.extend_from_slice(finished_conditions(row.str(&["status", "phase"])).as_bytes());
        }
        out.extend_from_slice(b",\"object\":");
        let written = match self.include {
            IncludeObject::None => {
                out.extend_from_slice(b"null");
                true
            }
            IncludeObject::Metadata => self.partial.object(shown, out),
            IncludeObject::Object => {
                out.extend_from_slice(shown.trim_ascii_end());
                true
            }
        };
        if !written {
            out.truncate(before);
            return Err(RowError::NoMetadata);
        }
        out.push(b'}');
        self.rows += 1;
        Ok(())
    }
}

/// The row conditions of finished pods, which clients may hide.
fn finished_conditions(phase: &str) -> &'static str {
    match phase {
        "Succeeded" => {
            r#","conditions":[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod ran to its end."}]"#
        }
        "Failed" => {
            r#","conditions":[{"type":"Completed","status":"True","reason":"Failed","message":"The pod ended in failure."}]"#
        }
        _ => "",
    }
}

/// Writes a cell of a built-in type. Numbers are written as texts in text columns; an unset cell is the column's zero
/// value, because the stored form leaves zeros out.
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

/// Writes a cell of a custom resource: a value of the column's type, or null.
fn write_custom_cell(kind: ColumnKind, value: Option<&Value>, row: &Row, out: &mut Vec<u8>) {
    let value = value.unwrap_or(&Value::Null);
    match (kind, value) {
        (_, Value::Null) => out.extend_from_slice(b"null"),
        (ColumnKind::Text, value) => write_string(&text_of(value), out),
        (ColumnKind::Integer, Value::Float(n)) => json::write(&Value::Int(*n as i64), out),
        (ColumnKind::Integer | ColumnKind::Number, Value::Int(_))
        | (ColumnKind::Number, Value::Float(_))
        | (ColumnKind::Boolean, Value::Bool(_)) => json::write(value, out),
        (ColumnKind::Date, Value::String(text)) => {
            let age = row.age(text);
            let never = if text.starts_with("0001-") { duration::UNKNOWN } else { "<invalid>" };
            write_string(age.as_deref().unwrap_or(never), out);
        }
        _ => out.extend_from_slice(b"null"),
    }
}
