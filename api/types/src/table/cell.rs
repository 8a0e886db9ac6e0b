//! The expression of a table cell, and the parts of an object that the expression reads. The module `parse`
//! describes the language.

use std::fmt;

use super::reads::Reads;
use super::row::{Output, Row};

/// The expression of a cell.
#[derive(Clone, Debug)]
pub enum Cell {
    /// A text with placeholders.
    Text(Template),
    /// An integer literal of the language.
    Int(i64),
    /// A boolean literal of the language.
    Bool(bool),
    /// The value at a path.
    Path(CellPath),
    /// A list with one text for each value at the path. Each text is filled in from its value.
    Each(CellPath, Template),
    /// A member of the condition with a given type.
    Condition {
        /// Type of the condition.
        kind: String,
        /// Member of the condition that the cell contains.
        member: String,
    },
    /// Two numbers, written as `2/3`.
    Ratio(CellPath, CellPath),
    /// The sum of numbers.
    Sum(Vec<Cell>),
    /// The first cell that is set.
    FirstOf(Vec<Cell>),
    /// A choice between two cells.
    If {
        /// Path that must be set and not empty for the first alternative.
        given: CellPath,
        /// Cell to use if the condition holds.
        then: Box<Cell>,
        /// Cell to use otherwise.
        otherwise: Box<Cell>,
    },
    /// A call of a function with its arguments.
    Call(&'static Function, Vec<Cell>),
}

/// A function that cells may call.
pub struct Function {
    /// Name in the cell language.
    pub name: &'static str,
    /// Parts that the function reads in addition to its arguments, in the notation of the module `reads`.
    pub reads: &'static str,
    /// Path of an object. The function reads the members of this object that its text arguments name.
    pub reads_member_of: Option<&'static [&'static str]>,
    /// Whether the function needs only the number of elements at its path argument.
    pub shape_only: bool,
    /// The Rust function that computes the cell.
    pub run: for<'r> fn(&Row<'r>, &'r [Cell]) -> Output<'r>,
}

impl Function {
    /// Creates a function that depends only on its arguments.
    pub const fn general(name: &'static str, run: for<'r> fn(&Row<'r>, &'r [Cell]) -> Output<'r>) -> Self {
        Function { name, reads: "", reads_member_of: None, shape_only: false, run }
    }

    /// Creates a function that reads fixed parts of the object.
    pub const fn reading(
        name: &'static str,
        reads: &'static str,
        run: for<'r> fn(&Row<'r>, &'r [Cell]) -> Output<'r>,
    ) -> Self {
        Function { name, reads, reads_member_of: None, shape_only: false, run }
    }

    /// Creates a function like [`Function::reading`] that also reads the annotations named by its arguments.
    pub const fn reading_annotations(
        name: &'static str,
        reads: &'static str,
        run: for<'r> fn(&Row<'r>, &'r [Cell]) -> Output<'r>,
    ) -> Self {
        Function { name, reads, reads_member_of: Some(&["metadata", "annotations"]), shape_only: false, run }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A step of a path into an object.
#[derive(Clone, Debug, PartialEq)]
pub enum CellStep {
    /// The member with this name.
    Member(String),
    /// The element at this position.
    Index(usize),
    /// Every element of a list.
    Each,
}

/// Steps from an object to a value in it.
pub type CellPath = Vec<CellStep>;

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(pub Vec<TemplatePart>);

/// A part of a [`Template`].
#[derive(Clone, Debug, PartialEq)]
pub enum TemplatePart {
    /// A literal text, copied unchanged.
    Literal(String),
    /// A placeholder for the value at a path.
    Fill {
        /// Path of the value.
        path: CellPath,
        /// Whether the value is converted to lower case.
        lower: bool,
    },
    /// Parts that are omitted if a value among them is empty.
    Optional(Vec<TemplatePart>),
}

impl Template {
    /// Returns the text, if it has no placeholders.
    pub fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [TemplatePart::Literal(text)] => Some(text),
            _ => None,
        }
    }
}

impl Cell {
    /// Adds the parts of the object that the cell reads to `reads`.
    pub fn add_reads(&self, reads: &mut Reads) {
        match self {
            Cell::Text(template) => template_reads(&[], &template.0, reads),
            Cell::Int(_) | Cell::Bool(_) => {}
            Cell::Path(path) => add_path(&[], path, false, reads),
            Cell::Each(path, template) => {
                add_path(&[], path, true, reads);
                template_reads(path, &template.0, reads);
            }
            Cell::Condition { member, .. } => {
                for list in [&["status", "conditions"][..], &["conditions"]] {
                    for name in ["type", member] {
                        reads.path(list.iter().copied().chain([name]), false);
                    }
                }
            }
            Cell::Ratio(part, whole) => {
                add_path(&[], part, false, reads);
                add_path(&[], whole, false, reads);
            }
            Cell::Sum(cells) | Cell::FirstOf(cells) => cells.iter().for_each(|cell| cell.add_reads(reads)),
            Cell::If { given, then, otherwise } => {
                // The condition may be a string. A string has no shape, so the whole value is read. Strings
                // in conditions are short.
                add_path(&[], given, false, reads);
                then.add_reads(reads);
                otherwise.add_reads(reads);
            }
            Cell::Call(function, arguments) => {
                if !function.reads.is_empty() {
                    reads.select(function.reads);
                }
                if let Some(parents) = function.reads_member_of {
                    for name in arguments.iter().filter_map(Cell::literal) {
                        reads.path(parents.iter().copied().chain([name]), false);
                    }
                }
                for argument in arguments {
                    match argument {
                        Cell::Path(path) if function.shape_only => add_path(&[], path, true, reads),
                        argument => argument.add_reads(reads),
                    }
                }
            }
        }
    }

    /// Returns the text, if the cell is a literal.
    pub fn literal(&self) -> Option<&str> {
        match self {
            Cell::Text(template) => template.literal(),
            _ => None,
        }
    }
}

fn template_reads(base: &[CellStep], parts: &[TemplatePart], reads: &mut Reads) {
    for part in parts {
        match part {
            TemplatePart::Literal(_) => {}
            TemplatePart::Fill { path, .. } => add_path(base, path, false, reads),
            TemplatePart::Optional(parts) => template_reads(base, parts, reads),
        }
    }
}

fn add_path(base: &[CellStep], path: &[CellStep], shape: bool, reads: &mut Reads) {
    let names = base.iter().chain(path).filter_map(|step| match step {
        CellStep::Member(name) => Some(name.as_str()),
        CellStep::Index(_) | CellStep::Each => None,
    });
    reads.path(names, shape);
}
