//! Server-side tables: one row of cells per object (docs/api/encodings.md#tables, #table-columns).
//!
//! ```text
//! ResourceTable.columns ──cells──► Cell (parsed once) ──► TableFormat { cells, reads, definitions }
//!                                                              │
//! stored bytes ──reads──► tree of the parts in cells  ──eval──►│──► {"cells":[…],"object":…}  bytes, row by row
//! ```
//!
//! A table is streamed as head, rows and tail; nothing is buffered. Cells are computed from the *stored* form
//! of an object, so that every requested version has the same table. The object of a row is copied as a range
//! of stored bytes and is not encoded again. The caller provides the objects.

pub mod cell;
mod cell_reuse;
mod cells;
mod cluster;
mod describe;
mod duration;
mod eval;
mod functions;
pub mod jsonpath;
mod network;
mod parse;
pub mod partial;
mod pods;
mod reads;
mod row;
mod workloads;
mod writer;

#[cfg(test)]
mod kinds_test;
#[cfg(test)]
mod pods_test;
#[cfg(test)]
mod rows_test;

use std::borrow::Cow::Borrowed as B;
use std::sync::Arc;

use jiff::Timestamp;

use self::cell::Cell;
use self::cell_reuse::{Inputs, Mask};
use self::jsonpath::JsonPath;
use self::parse::CellError;
pub use self::partial::{ListMeta, MetaVersion, PartialWriter, metadata_range, metadata_start};
use self::reads::Reads;
pub use self::writer::TableWriter;
use crate::schema::table::{Column, ResourceTable};
use values::json::{ParseError, write_string};
use values::naming::Naming;
use values::status::Status;

/// The part of the object that a row contains in addition to the cells: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IncludeObject {
    /// Rows contain no object.
    None,
    /// Rows contain the object's metadata.
    #[default]
    Metadata,
    /// Rows contain the whole object.
    Object,
}

impl IncludeObject {
    /// Parses the query parameter; an empty value means the default.
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

/// Whether a table contains its column definitions. In a watch, only the first table contains the column definitions
/// (docs/api/encodings.md#tables).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Headers {
    /// `columnDefinitions` contains the column definitions.
    Shown,
    /// `columnDefinitions` is null.
    Omitted,
}

/// Reason why no row can be written for an object.
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
    /// Header of the column.
    pub name: &'c str,
    /// Type: `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: &'c str,
    /// Format hint for clients.
    pub format: &'c str,
    /// Description in one sentence.
    pub description: &'c str,
    /// Priority; 0 means that clients always show the column.
    pub priority: i64,
    /// Path of the cell's value.
    pub json_path: &'c str,
}

impl<'c> PrinterColumn<'c> {
    fn from_column(column: &'c Column) -> Self {
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

/// The conversion of one resource's objects to rows. The value is immutable, is created once per resource,
/// and is shared.
#[derive(Debug)]
pub struct TableFormat {
    columns: Vec<CompiledColumn>,
    /// `columnDefinitions` as JSON.
    definitions: Vec<u8>,
    reads: Reads,
    /// Members of the object that the cells need, and the additional members that a table of a single object
    /// needs.
    single_reads: Reads,
    /// Members from which cells are computed.
    inputs: Inputs,
    /// Whether rows of finished objects have row conditions (pods).
    marks_finished: bool,
}

#[derive(Debug)]
struct CompiledColumn {
    kind: ColumnKind,
    source: Source,
    /// Parts that the cell reads.
    reads: Reads,
    /// Inputs that the cell reads; all inputs if the read inputs are unknown.
    mask: Mask,
}

/// The source of a cell.
#[derive(Debug)]
enum Source {
    /// An expression of a built-in type.
    Cell(Cell),
    /// A path into a custom resource.
    Path(JsonPath),
    /// The path of the object's name; the cell is empty if there is no name.
    Name(JsonPath),
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
    fn from_name(name: &str) -> Self {
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

/// Columns of a type that declares no columns.
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

impl TableFormat {
    /// Returns the format of a resource. The first call creates the format and stores it in the table of the
    /// resource.
    ///
    /// # Errors
    /// The expression of a column is not valid in the cell language.
    pub fn for_resource(resource: &ResourceTable, naming: &'static Naming) -> Result<Arc<Self>, CellError> {
        resource.format.get_or_try(|| {
            if resource.message.custom {
                let columns: Vec<PrinterColumn<'_>> =
                    resource.columns.iter().map(PrinterColumn::from_column).collect();
                return Ok(Self::for_custom(&columns));
            }
            let columns = if resource.columns.is_empty() { &DEFAULT_COLUMNS } else { &*resource.columns };
            let format = Self::for_columns(columns, naming)?;
            Ok(Self { marks_finished: resource.behavior.marks_finished, ..format })
        })
    }

    /// Returns the format of objects with these columns of a built-in type.
    ///
    /// # Errors
    /// A column's text is not in the cell language.
    pub fn for_columns(columns: &[Column], naming: &'static Naming) -> Result<Self, CellError> {
        let mut format = Self::empty();
        for column in columns {
            let mut cell = cells::parse(&column.cell, naming)?;
            // An unknown age is written as `<unknown>` if the age is the whole cell. If an alternative
            // follows after `|`, the cell uses the alternative.
            if matches!(&cell, Cell::Call(function, _) if function.name == "age") {
                let unknown = Cell::parse(&format!("\"{}\"", duration::UNKNOWN))?;
                cell = Cell::FirstOf(vec![cell, unknown]);
            }
            cell.add_reads(&mut format.reads);
            let mut reads = Reads::default();
            cell.add_reads(&mut reads);
            if !column.name.is_empty() {
                let description = describe::description(&column.name);
                let priority = column.priority.into();
                format.define(&column.name, &column.kind, &column.format, description, priority);
            }
            let (kind, source) = (ColumnKind::from_name(&column.kind), Source::Cell(cell));
            format.columns.push(CompiledColumn { kind, source, reads, mask: Mask::MAX });
        }
        Ok(format.finish())
    }

    /// Returns the format of a custom resource. The first column is the name. The declared columns follow, or
    /// the age if no columns are declared. If the path of a column is not in the grammar of [`jsonpath`], the
    /// table omits this column and all columns after it.
    pub fn for_custom(columns: &[PrinterColumn]) -> Self {
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
            let Ok(path) = JsonPath::parse(column.json_path) else { break };
            // An object without a name, such as a bookmark, has an empty cell here instead of `null`.
            let is_name = format.columns.is_empty();
            format.reads.path(path.leading_names(), false);
            let mut reads = Reads::default();
            reads.path(path.leading_names(), false);
            format.define(column.name, column.kind, column.format, column.description, column.priority);
            let source = if is_name { Source::Name(path) } else { Source::Path(path) };
            let kind = ColumnKind::from_name(column.kind);
            format.columns.push(CompiledColumn { kind, source, reads, mask: Mask::MAX });
        }
        format.finish()
    }

    fn empty() -> Self {
        let (reads, single_reads) = (Reads::default(), Reads::default());
        let (columns, inputs) = (Vec::new(), Inputs::default());
        TableFormat {
            columns,
            definitions: b"[".to_vec(),
            reads,
            single_reads,
            inputs,
            marks_finished: false,
        }
    }

    /// Completes the format after all columns were added.
    fn finish(mut self) -> Self {
        self.definitions.push(b']');
        self.single_reads = self.reads.clone();
        self.single_reads.select("metadata.resourceVersion");
        self.inputs = Inputs::from_reads(&self.reads);
        for column in &mut self.columns {
            // A cell whose inputs are unknown is computed again whenever any input changes.
            let mask = self.inputs.mask(&column.reads).filter(|mask| *mask != 0);
            column.mask = mask.unwrap_or(Mask::MAX);
        }
        self
    }

    /// Returns the inputs of the row conditions.
    fn finished_mask(&self) -> Mask {
        let mut phase = Reads::default();
        phase.select("status.phase");
        if self.marks_finished { self.inputs.mask(&phase).unwrap_or(Mask::MAX) } else { 0 }
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

    /// Creates a writer of tables in this format, in the meta group of `words`; ages are relative to `now`.
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
            before: None,
        }
    }
}
