//! What decoding finds beside the tree: unknown and duplicate fields, and the error that ends it, with their places.

use std::cell::{Cell, RefCell};
use std::fmt::Write;

use super::decode::{DecodeError, Decoded};
use super::decode_raw::RAW;
use super::table::{Field, Kind, Message};
use super::text_types::text_type;
use values::json::{Object, Tree};

/// Most unknown and duplicate fields reported for one document (docs/api/encodings.md#strict-decoding).
const STRICT_MAX: usize = 100;

/// What decoding finds beside the tree. Interior mutability, because every visitor of the recursion shares it.
#[derive(Default)]
pub(super) struct Report {
    /// Whether the source is JSON text, and not a tree.
    is_text: bool,
    /// Whether kind, version and metadata of an object inside a custom one are left out where they are wrong.
    is_lenient: bool,
    /// Whether a text that was refused is read again, to find out what is wrong with it.
    is_careful: bool,
    /// Whether a value without a schema has two members of one name.
    has_repeated: Cell<bool>,
    /// Whether a struct, a list or a map was given twice for one field.
    has_merged: Cell<bool>,
    strict: RefCell<Vec<String>>,
    failure: RefCell<Option<DecodeError>>,
}

/// The order in which objects of types made at run time are read: duplicate fields of the text come first, then unknown
/// fields of metadata, both in document order, then all other unknown fields, sorted.
fn pass(found: &str) -> (u8, &str) {
    match found.strip_prefix("unknown field ") {
        None => (0, ""),
        Some(path) if path.starts_with("\"metadata.") => (1, ""),
        Some(path) => (2, path),
    }
}

impl Report {
    /// For decoding text.
    pub(super) fn of_text() -> Self {
        Report { is_text: true, ..Report::default() }
    }

    /// For decoding text that was accepted under another schema.
    pub(super) fn of_record() -> Self {
        Report { is_lenient: true, ..Report::of_text() }
    }

    /// For reading the same again with care.
    pub(super) fn careful(&self) -> Self {
        Report { is_careful: true, ..self.part() }
    }

    /// For reading a part of the same source.
    pub(super) fn part(&self) -> Self {
        let Report { is_text, is_lenient, is_careful, .. } = *self;
        Report { is_text, is_lenient, is_careful, ..Report::default() }
    }

    /// The reader of values without a schema, which notes whether a member is repeated in them.
    pub(super) fn raw(&self) -> Tree<'_> {
        RAW.noting_repeated(&self.has_repeated)
    }

    /// Notes that a field whose values are merged was given twice.
    pub(super) fn note_merged(&self) {
        self.has_merged.set(true);
    }

    pub(super) fn has_merged(&self) -> bool {
        self.has_merged.get()
    }

    /// Whether members may be repeated somewhere: also in values that were not looked into, such as unknown fields.
    pub(super) fn may_have_repeated(&self) -> bool {
        self.has_repeated.get() || !self.strict.borrow().is_empty()
    }

    pub(super) fn is_lenient(&self) -> bool {
        self.is_lenient
    }

    pub(super) fn is_careful(&self) -> bool {
        self.is_careful
    }

    /// Takes over what was found in a part, but for its failure, which is given back.
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

    /// Whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.strict.borrow().is_empty() && self.failure.borrow().is_none()
    }

    /// The outcome: an error of ours wins over the text that carried it through serde.
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

    pub(super) fn note(&self, what: &str, path: Option<&Path>, name: &str) {
        let mut strict = self.strict.borrow_mut();
        if strict.len() >= STRICT_MAX {
            return;
        }
        let mut full = path.map(Path::text).unwrap_or_default();
        if !full.is_empty() {
            full.push('.');
        }
        full.push_str(name);
        let text = finding(what, &full);
        if !strict.contains(&text) {
            strict.push(text);
        }
    }

    /// The error of decoding, if there is one.
    pub(super) fn into_failure(self) -> Option<DecodeError> {
        self.failure.into_inner()
    }

    /// Keeps `message` at `path` as the error of decoding, unless there is one before it.
    pub(super) fn save(&self, path: Option<&Path>, message: String) {
        let mut failure = self.failure.borrow_mut();
        failure
            .get_or_insert_with(|| DecodeError { message, path: path.map(Path::text).unwrap_or_default() });
    }

    /// Keeps the error that a value is of the wrong type.
    pub(super) fn mismatch(&self, path: At, found: &str, wanted: &str) {
        self.save(path, mismatched(path, found, wanted));
    }

    /// Ends decoding with `message` at `path`, which replaces an error that was kept before.
    pub(super) fn fail<E: serde::de::Error>(&self, path: Option<&Path>, message: String) -> E {
        let path = path.map(Path::text).unwrap_or_default();
        *self.failure.borrow_mut() = Some(DecodeError { message, path });
        E::custom("")
    }
}

/// The error that the value at a path is of the wrong type.
pub(super) fn mismatched(path: At, found: &str, wanted: &str) -> String {
    match path.and_then(|path| Some((path.holder()?, path.fields()))) {
        Some((holder, fields)) if !fields.is_empty() => {
            go::json::unfit_member(found, &format!("{}.{fields}", holder.name), wanted)
        }
        // Metadata is read on its own, so as a whole it is no field.
        _ => go::json::unfit(found, wanted),
    }
}

/// How strict decoding words what is wrong with the field at a path.
fn finding(what: &str, path: &str) -> String {
    format!("{what} field {}", values::field::go_quote(path))
}

/// Returns the findings of strict decoding for an object of a custom type: all repeated members, then the other findings.
pub(super) fn with_repeated(repeated: &[String], found: Vec<String>) -> Vec<String> {
    let repeated = repeated.iter().map(|path| finding("duplicate", path));
    let others = found.into_iter().filter(|found| !found.starts_with("duplicate field "));
    repeated.chain(others).take(STRICT_MAX).collect()
}

/// Where the decoder is: a list on the stack, made into text only when something is to be reported.
pub(super) struct Path<'p> {
    pub(super) parent: Option<&'p Path<'p>>,
    pub(super) step: Step<'p>,
}

/// One step of a path.
pub(super) enum Step<'p> {
    Field(&'p Message, &'p Field),
    Index(usize),
    Key(&'p str),
}

impl Path<'_> {
    /// `spec.containers[0].env`; map keys are steps like fields.
    fn text(&self) -> String {
        let mut out = self.parent.map(Path::text).unwrap_or_default();
        let name = match self.step {
            Step::Index(at) => {
                let _ = write!(out, "[{at}]");
                return out;
            }
            Step::Field(_, field) => &*field.name,
            Step::Key(name) => name,
        };
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
        out
    }

    /// The place as field errors name it: keys of maps in brackets.
    pub(super) fn place(&self) -> String {
        let mut out = self.parent.map(Path::place).unwrap_or_default();
        let _ = match self.step {
            Step::Index(at) => write!(out, "[{at}]"),
            Step::Key(key) => write!(out, "[{key}]"),
            Step::Field(_, field) if out.is_empty() => write!(out, "{}", field.name),
            Step::Field(_, field) => write!(out, ".{}", field.name),
        };
        out
    }

    /// Field names without indices and keys, as type errors print them: `spec.containers.env`,
    /// `spec.volumes.VolumeSource.hostPath`.
    fn fields(&self) -> String {
        let mut out = self.parent.map(Path::fields).unwrap_or_default();
        if let Step::Field(message, field) = self.step {
            // The metadata of custom objects is read on its own.
            if message.custom && &*field.name == "metadata" {
                return String::new();
            }
            let mut push = |name: &str| {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            };
            // A struct that another one embeds is a step, although its members stand among those of the other.
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

    /// The name in error sentences of the type of a text that stands here: of a field, or of an element of its list.
    pub(super) fn text_type(&self) -> &'static str {
        match (&self.step, self.parent) {
            (Step::Field(message, field), _) => text_type(message, field),
            (Step::Index(_), Some(list)) => list.text_type(),
            _ => "string",
        }
    }

    /// The struct that holds the innermost field.
    fn holder(&self) -> Option<&Message> {
        match self.step {
            Step::Field(message, _) => Some(message),
            _ => self.parent.and_then(Path::holder),
        }
    }
}

/// Where a value stands, as the visitors pass it on.
pub(super) type At<'p> = Option<&'p Path<'p>>;

/// The type's name in error sentences: the last element of its package and its name.
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

/// The name of a struct in error sentences.
pub(super) fn message_name(message: &Message) -> String {
    let package = message.package.rsplit('.').next().unwrap_or_default();
    format!("{package}.{}", message.name)
}
