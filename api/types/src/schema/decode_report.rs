//! Findings of decoding, in addition to the tree: unknown and duplicate fields, and the error that stops
//! decoding, with their paths.

use std::cell::{Cell, RefCell};
use std::fmt::Write;

use super::decoded::{DecodeError, Decoded};
use super::raw_tree::RAW;
use super::table::{Field, Kind, Message};
use super::text_types::text_type;
use values::json::{Object, Tree};

/// Maximum number of unknown and duplicate fields that are reported for one document
/// (docs/api/encodings.md#strict-decoding).
const STRICT_MAX: usize = 100;

/// The findings of decoding one document. The fields have interior mutability, because all visitors of the
/// recursive descent share the report.
#[derive(Default)]
pub(super) struct Report {
    /// Whether the source is JSON text instead of a tree.
    is_text: bool,
    /// Whether invalid kind, version and metadata of an object inside a custom object are dropped.
    is_lenient: bool,
    /// Whether a rejected text is read again to find the reason for the rejection.
    is_careful: bool,
    /// Whether a value without a schema has two members of the same name.
    has_repeated: Cell<bool>,
    /// Whether a struct, list or map occurs twice for one field.
    has_merged: Cell<bool>,
    strict: RefCell<Vec<String>>,
    failure: RefCell<Option<DecodeError>>,
}

/// Returns the sort key of a finding for types made at run time. Duplicate fields come first, then unknown
/// fields of metadata, both in document order; all other unknown fields follow, sorted.
fn pass(found: &str) -> (u8, &str) {
    match found.strip_prefix("unknown field ") {
        None => (0, ""),
        Some(path) if path.starts_with("\"metadata.") => (1, ""),
        Some(path) => (2, path),
    }
}

impl Report {
    /// Creates a report for decoding text.
    pub(super) fn of_text() -> Self {
        Report { is_text: true, ..Report::default() }
    }

    /// Creates a report for decoding text that was accepted under another schema.
    pub(super) fn of_record() -> Self {
        Report { is_lenient: true, ..Report::of_text() }
    }

    /// Creates a report for reading the same source again in careful mode.
    pub(super) fn careful(&self) -> Self {
        Report { is_careful: true, ..self.part() }
    }

    /// Creates a report for reading a part of the same source.
    pub(super) fn part(&self) -> Self {
        let Report { is_text, is_lenient, is_careful, .. } = *self;
        Report { is_text, is_lenient, is_careful, ..Report::default() }
    }

    /// Returns a reader of values without a schema that records repeated members.
    pub(super) fn raw(&self) -> Tree<'_> {
        RAW.noting_repeated(&self.has_repeated)
    }

    /// Records that a field whose values are merged occurs twice.
    pub(super) fn note_merged(&self) {
        self.has_merged.set(true);
    }

    pub(super) fn has_merged(&self) -> bool {
        self.has_merged.get()
    }

    /// Returns whether the document may contain repeated members, including members in values that were not
    /// examined, such as unknown fields.
    pub(super) fn may_have_repeated(&self) -> bool {
        self.has_repeated.get() || !self.strict.borrow().is_empty()
    }

    pub(super) fn is_lenient(&self) -> bool {
        self.is_lenient
    }

    pub(super) fn is_careful(&self) -> bool {
        self.is_careful
    }

    /// Adds the findings in `part`, except the error, and returns the error in `part`.
    pub(super) fn absorb(&self, part: Report) -> Option<DecodeError> {
        self.has_repeated.set(self.has_repeated.get() || part.has_repeated.get());
        let mut strict = self.strict.borrow_mut();
        for text in part.strict.into_inner() {
            if strict.len() < STRICT_MAX && !strict.contains(&text) {
                strict.push(text);
            }
        }
        part.failure.into_inner()
    }

    pub(super) fn is_text(&self) -> bool {
        self.is_text
    }

    /// Returns whether there are no findings.
    pub(super) fn is_empty(&self) -> bool {
        self.strict.borrow().is_empty() && self.failure.borrow().is_none()
    }

    /// Returns the result of decoding. An error that is stored in the report takes precedence over the error
    /// that passed through serde.
    pub(super) fn finish<E>(
        self,
        message: &Message,
        read: Result<Object, E>,
        sentence: impl FnOnce(E) -> String,
    ) -> Result<Decoded, DecodeError> {
        match (read, self.failure.into_inner()) {
            (_, Some(failure)) => Err(failure),
            (Ok(object), None) => {
                let mut strict = self.strict.into_inner();
                if message.custom {
                    strict.sort_by(|a, b| pass(a).cmp(&pass(b)));
                }
                Ok(Decoded { object, strict })
            }
            (Err(error), None) => Err(DecodeError { message: sentence(error), path: String::new() }),
        }
    }

    pub(super) fn note(&self, what: &str, path: Option<&DecodePath>, name: &str) {
        let mut strict = self.strict.borrow_mut();
        if strict.len() >= STRICT_MAX {
            return;
        }
        let mut full = path.map(DecodePath::text).unwrap_or_default();
        if !full.is_empty() {
            full.push('.');
        }
        full.push_str(name);
        let text = finding(what, &full);
        if !strict.contains(&text) {
            strict.push(text);
        }
    }

    /// Returns the error of decoding, if there is one.
    pub(super) fn into_failure(self) -> Option<DecodeError> {
        self.failure.into_inner()
    }

    /// Stores `message` at `path` as the error of decoding, unless an earlier error exists.
    pub(super) fn save(&self, path: Option<&DecodePath>, message: String) {
        let mut failure = self.failure.borrow_mut();
        failure.get_or_insert_with(|| DecodeError {
            message,
            path: path.map(DecodePath::text).unwrap_or_default(),
        });
    }

    /// Stores the error that a value has the wrong type.
    pub(super) fn mismatch(&self, path: At, found: &str, expected: &str) {
        self.save(path, mismatched(path, found, expected));
    }

    /// Stops decoding with the error `message` at `path`. This error replaces an earlier error.
    pub(super) fn fail<E: serde::de::Error>(&self, path: Option<&DecodePath>, message: String) -> E {
        let path = path.map(DecodePath::text).unwrap_or_default();
        *self.failure.borrow_mut() = Some(DecodeError { message, path });
        E::custom("")
    }
}

/// Returns the error message for a value of the wrong type at `path`.
pub(super) fn mismatched(path: At, found: &str, expected: &str) -> String {
    match path.and_then(|path| Some((path.holder()?, path.fields()))) {
        Some((holder, fields)) if !fields.is_empty() => {
            go::json::unfit_member(found, &format!("{}.{fields}", holder.name), expected)
        }
        // Metadata is read separately, so paths inside metadata do not begin with `metadata`.
        _ => go::json::unfit(found, expected),
    }
}

/// Returns the text of a finding of strict decoding about the field at a path.
fn finding(what: &str, path: &str) -> String {
    format!("{what} field {}", values::field::go_quote(path))
}

/// Returns the findings of strict decoding for an object of a custom type: all repeated members, then the
/// other findings.
pub(super) fn with_repeated(repeated: &[String], found: Vec<String>) -> Vec<String> {
    let repeated = repeated.iter().map(|path| finding("duplicate", path));
    let others = found.into_iter().filter(|found| !found.starts_with("duplicate field "));
    repeated.chain(others).take(STRICT_MAX).collect()
}

/// Current path of the decoder: a list on the stack, which is formatted only for a report.
pub(super) struct DecodePath<'p> {
    pub(super) parent: Option<&'p DecodePath<'p>>,
    pub(super) step: DecodeStep<'p>,
}

/// A step of a path.
pub(super) enum DecodeStep<'p> {
    Field(&'p Message, &'p Field),
    Index(usize),
    Key(&'p str),
}

impl DecodePath<'_> {
    /// Formats the path like `spec.containers[0].env`; map keys are formatted like fields.
    fn text(&self) -> String {
        let mut out = self.parent.map(DecodePath::text).unwrap_or_default();
        let name = match self.step {
            DecodeStep::Index(at) => {
                let _ = write!(out, "[{at}]");
                return out;
            }
            DecodeStep::Field(_, field) => &*field.name,
            DecodeStep::Key(name) => name,
        };
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
        out
    }

    /// Formats the path as field errors do: keys of maps are in brackets.
    pub(super) fn place(&self) -> String {
        let mut out = self.parent.map(DecodePath::place).unwrap_or_default();
        let _ = match self.step {
            DecodeStep::Index(at) => write!(out, "[{at}]"),
            DecodeStep::Key(key) => write!(out, "[{key}]"),
            DecodeStep::Field(_, field) if out.is_empty() => write!(out, "{}", field.name),
            DecodeStep::Field(_, field) => write!(out, ".{}", field.name),
        };
        out
    }

    /// Formats the field names without indices and keys, as type errors do: `spec.containers.env`,
    /// `spec.volumes.VolumeSource.hostPath`.
    fn fields(&self) -> String {
        let mut out = self.parent.map(DecodePath::fields).unwrap_or_default();
        if let DecodeStep::Field(message, field) = self.step {
            // The metadata of custom objects is read separately.
            if message.custom && &*field.name == "metadata" {
                return String::new();
            }
            let mut push = |name: &str| {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            };
            // An embedded struct is a step, although its members are among the members of the outer struct.
            let (mut holder, mut inner) = (message, field);
            while let Some(embedded) = inner.inlined.and_then(|at| holder.inlined.get(usize::from(at))) {
                push(&embedded.message.name);
                holder = &embedded.message;
                let Some(field) = holder.field(&field.name) else { break };
                inner = field;
            }
            push(&field.name);
        }
        out
    }

    /// Returns the name that error messages use for the type of a text at this path: the type of a field, or
    /// of an element of a list.
    pub(super) fn text_type(&self) -> &'static str {
        match (&self.step, self.parent) {
            (DecodeStep::Field(message, field), _) => text_type(message, field),
            (DecodeStep::Index(_), Some(list)) => list.text_type(),
            _ => "string",
        }
    }

    /// Returns the struct that contains the innermost field.
    fn holder(&self) -> Option<&Message> {
        match self.step {
            DecodeStep::Field(message, _) => Some(message),
            _ => self.parent.and_then(DecodePath::holder),
        }
    }
}

/// Path of a value, as the visitors pass it; `None` if the path is empty.
pub(super) type At<'p> = Option<&'p DecodePath<'p>>;

/// Returns the type's name for error messages: the last element of its package, and its name.
pub(super) fn type_name(kind: &Kind) -> String {
    match kind {
        Kind::Bool => "bool".to_owned(),
        Kind::Int32 => "int32".to_owned(),
        Kind::Int64 => "int64".to_owned(),
        Kind::Double => "float64".to_owned(),
        Kind::String | Kind::Time | Kind::MicroTime | Kind::Duration | Kind::Quantity => "string".to_owned(),
        Kind::Bytes => "[]uint8".to_owned(),
        Kind::IntOrString => "int32".to_owned(),
        Kind::RawExtension | Kind::FieldsV1 | Kind::Json => "interface {}".to_owned(),
        Kind::Message(message)
        | Kind::SchemaOrArray(message)
        | Kind::SchemaOrBool(message)
        | Kind::SchemaOrStrings(message) => message_name(message),
        Kind::List(list) => format!("[]{}", type_name(&list.item.kind)),
        Kind::Map(map) => format!("map[string]{}", type_name(&map.value.kind)),
    }
}

/// Returns the name of a struct for error messages.
pub(super) fn message_name(message: &Message) -> String {
    let package = message.package.rsplit('.').next().unwrap_or_default();
    format!("{package}.{}", message.name)
}
