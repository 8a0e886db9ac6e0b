//! Field selectors: the query grammar, the selectable fields of a resource, and matching
//! (docs/api/selectors.md#field-selectors).
//!
//! ```text
//! text ─► FieldTerms (label, =|!=, value) ─► resolve(resource, stored) ─► FieldSelector (name, namespace, slots)
//!          exact("metadata.name") for routing                          matches(name, namespace, value of slot)
//! ```
//!
//! A *slot* is the position of a selectable value among an object's selector attributes: see [`slots`]. A slot is
//! a path in the stored form, so several labels, and several resources that share one storage, can map to the
//! same slot.

use std::borrow::Cow;
use std::fmt;

use crate::schema::table::{ResourceTable, Scope, Selectable};
use values::field::go_quote;
use values::status::Status;

/// Field label that every resource has.
pub const NAME: &str = "metadata.name";

/// Field label of namespaced resources, and of resources that declare no selectable fields.
pub const NAMESPACE: &str = "metadata.namespace";

/// A parsed field selector with unresolved labels. The terms are in the order of upstream.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldTerms(Vec<Term>);

/// A condition on one field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Term {
    /// Label as written by the client.
    pub label: String,
    /// Whether the operator is `=` or `==`; otherwise the operator is `!=`.
    pub equals: bool,
    /// Unescaped value with which the field is compared.
    pub value: String,
}

/// A resolved field selector: conditions on name, namespace and slots.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldSelector(Vec<Condition>);

#[derive(Clone, Debug, Eq, PartialEq)]
struct Condition {
    source: Source,
    term: Term,
}

/// The source of a condition's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Source {
    Name,
    Namespace,
    /// A slot of the selector attributes.
    Slot(usize),
    /// A label that is accepted, and whose value is always empty.
    Empty,
}

/// Returns the distinct paths among a resource's selectable fields, in table order: the slots of its
/// attributes.
pub fn slots(stored: &ResourceTable) -> impl Iterator<Item = &Selectable> {
    let selectable = &stored.selectable;
    selectable.iter().enumerate().filter_map(move |(at, field)| {
        let is_new = !selectable[..at].iter().any(|earlier| earlier.path == field.path);
        (is_new && !field.path.is_empty()).then_some(field)
    })
}

impl FieldTerms {
    /// Parses the query form; an empty text has no terms.
    ///
    /// # Errors
    /// 400 with the texts of upstream. Source: docs/api/selectors.md#field-selectors.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let term = |part: &&str| {
            let (label, equals, value) = split_operator(part).ok_or_else(|| {
                Status::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            Ok(Term { label: label.to_owned(), equals, value: unescape(value)?.into_owned() })
        };
        parts.iter().filter(|part| !part.is_empty()).map(term).collect::<Result<_, _>>().map(FieldTerms)
    }

    /// Returns the terms, sorted by their text.
    pub fn terms(&self) -> &[Term] {
        &self.0
    }

    /// Returns the value that the field `label` must have, if the terms require a single value. With such a
    /// value for the name, a list reads a single key, and authorization uses the value as the name of the
    /// request (docs/api/paths-and-verbs.md#request-info, docs/api/selectors.md#selectable-fields).
    pub fn exact(&self, label: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equals && term.label == label).map(|term| term.value.as_str())
    }

    /// Resolves the labels for `resource`, whose storage is described by `stored`.
    ///
    /// # Errors
    /// 400 for a label that the resource does not have, in one of two wordings
    /// (docs/api/selectors.md#field-selectors).
    pub fn resolve(self, resource: &ResourceTable, stored: &ResourceTable) -> Result<FieldSelector, Status> {
        let condition = |term: Term| Ok(Condition { source: source(&term.label, resource, stored)?, term });
        self.0.into_iter().map(condition).collect::<Result<_, _>>().map(FieldSelector)
    }
}

impl fmt::Display for FieldTerms {
    /// Writes the canonical query form: terms are sorted, `==` is written as `=`, and values are escaped.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (at, term) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{term}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let operator = if self.equals { "=" } else { "!=" };
        write!(f, "{}{operator}{}", self.label, escape(&self.value))
    }
}

impl FieldSelector {
    /// Creates a selector that selects every object.
    pub const fn everything() -> Self {
        FieldSelector(Vec::new())
    }

    /// Parses and resolves the query form for `resource`, whose storage is described by `stored`.
    ///
    /// # Errors
    /// The same errors as [`FieldTerms::parse`] and [`FieldTerms::resolve`].
    pub fn parse(text: &str, resource: &ResourceTable, stored: &ResourceTable) -> Result<Self, Status> {
        FieldTerms::parse(text)?.resolve(resource, stored)
    }

    /// Returns whether every object is selected.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether values other than name and namespace are compared.
    pub fn needs_slots(&self) -> bool {
        self.0.iter().any(|condition| matches!(condition.source, Source::Slot(_)))
    }

    /// Returns the slots that must equal a text, each with this text.
    pub fn required_texts(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.iter().filter(|condition| condition.term.equals).filter_map(|condition| {
            match condition.source {
                Source::Slot(slot) => Some((slot, condition.term.value.as_str())),
                Source::Name | Source::Namespace | Source::Empty => None,
            }
        })
    }

    /// Returns the name that objects must have, if the selector requires a name.
    pub fn exact_name(&self) -> Option<&str> {
        self.exact(Source::Name)
    }

    /// Returns the namespace of the objects, if the selector requires a namespace.
    pub fn exact_namespace(&self) -> Option<&str> {
        self.exact(Source::Namespace)
    }

    /// Returns whether the object with this name and namespace is selected; `slot` returns the value of a
    /// slot of the object.
    pub fn matches<'s>(&self, name: &str, namespace: &str, slot: impl Fn(usize) -> &'s str) -> bool {
        self.0.iter().all(|condition| condition.holds(name, namespace, &slot))
    }

    /// Returns whether an object with this name and namespace may be selected, regardless of its slots.
    pub fn may_match(&self, name: &str, namespace: &str) -> bool {
        let mut known = self.0.iter().filter(|condition| !matches!(condition.source, Source::Slot(_)));
        known.all(|condition| condition.holds(name, namespace, |_| ""))
    }

    fn exact(&self, source: Source) -> Option<&str> {
        let mut conditions = self.0.iter();
        conditions
            .find(|condition| condition.source == source && condition.term.equals)
            .map(|condition| condition.term.value.as_str())
    }
}

impl Condition {
    fn holds<'s>(&self, name: &str, namespace: &str, slot: impl Fn(usize) -> &'s str) -> bool {
        let value = match self.source {
            Source::Name => name,
            Source::Namespace => namespace,
            Source::Slot(at) => slot(at),
            Source::Empty => "",
        };
        (value == self.term.value) == self.term.equals
    }
}

/// Returns the source of the value of `label`, if the resource has this label.
fn source(label: &str, resource: &ResourceTable, stored: &ResourceTable) -> Result<Source, Status> {
    if label == NAME {
        return Ok(Source::Name);
    }
    // Kinds without selectable fields of their own accept the namespace even if they are cluster-scoped. The
    // namespace of a cluster-scoped object is empty.
    if label == NAMESPACE && (resource.selectable_refusal.is_none() || resource.scope == Scope::Namespaced) {
        return Ok(Source::Namespace);
    }
    match resource.selectable.iter().find(|field| field.label == label) {
        Some(field) => {
            Ok(slots(stored).position(|slot| slot.path == field.path).map_or(Source::Empty, Source::Slot))
        }
        None => Err(Status::bad_request(refusal(label, resource.selectable_refusal.as_deref()))),
    }
}

/// Returns the message for a label that the resource does not have.
fn refusal(label: &str, own: Option<&str>) -> String {
    match own.map(|own| own.split_once("%q").ok_or(own)) {
        Some(Ok((before, after))) => format!("{before}{}{after}", go_quote(label)),
        Some(Err(before)) => format!("{before}{label}"),
        None => {
            format!("{} is not a known field selector: only \"{NAME}\", \"{NAMESPACE}\"", go_quote(label))
        }
    }
}

/// Splits the text at commas that are not escaped by a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits a term at its first operator. Returns the label, whether the operator is equality, and the raw
/// value.
fn split_operator(term: &str) -> Option<(&str, bool, &str)> {
    let at = term
        .bytes()
        .enumerate()
        .position(|(at, byte)| byte == b'=' || term.as_bytes()[at..].starts_with(b"!="))?;
    let (label, rest) = term.split_at(at);
    let operators = [("!=", false), ("==", true), ("=", true)];
    operators.into_iter().find_map(|(operator, equals)| Some((label, equals, rest.strip_prefix(operator)?)))
}

/// Resolves `\\`, `\,` and `\=`; unescaped `,` and `=` are errors.
fn unescape(value: &str) -> Result<Cow<'_, str>, Status> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(value.into());
    }
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(Status::bad_request(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            ',' | '=' => {
                return Err(Status::bad_request(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                )));
            }
            c => plain.push(c),
        }
    }
    Ok(plain.into())
}

fn escape(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', ',', '=']) {
        return value.into();
    }
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=").into()
}

#[cfg(test)]
#[path = "field_test.rs"]
mod tests;
