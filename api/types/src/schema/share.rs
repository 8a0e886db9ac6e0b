//! Deduplication of equal parts of types made at run time.
//!
//! ```text
//! Message ─ fields ─► List ─► Message ─► Limits        from the leaves up: nested parts are shared already,
//!    └──────────────► the pool: equal part? ─► reuse    so two parts are compared only by their own members
//! ```
//!
//! Definitions contain many equal parts: dozens of definitions contain a pod template, and each pod template
//! contains many selectors. The pool keeps no part alive: a part is dropped with the last type that contains
//! it. Values that are derived from a part (`compiled`) are shared together with the part. Built-in types are
//! not changed.
//!
//! The recursion is as deep as the schema of the type. The reader of the schema limits this depth.

use std::hash::{BuildHasher, Hash, Hasher};
use std::mem::discriminant;
use std::sync::{Arc, Weak};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::handle::{Ref, Slice};
use super::kind::{Element, Kind, List, ListType, Map};
use super::limits::{Limits, Schemas};
use super::table::{Field, Message};
use values::json::{self, Value};

/// Minimum number of entries at which entries of dropped parts are removed. A larger pool removes these
/// entries whenever the number of entries has doubled since the last removal.
const SWEPT_MIN: usize = 1024;

/// The parts of all types that were passed to [`share`](Pool::share). A part stays in the pool as long as a
/// type uses the part.
#[derive(Debug, Default)]
pub struct Pool {
    messages: Shelf<Message>,
    lists: Shelf<List>,
    maps: Shelf<Map>,
    limits: Shelf<Limits>,
}

impl Pool {
    /// Replaces parts of a new type by equal known parts, and adds the other parts to the pool.
    pub fn share(&mut self, message: &mut Ref<Message>) {
        self.share_part(message);
    }

    fn kind(&mut self, kind: &mut Kind) {
        match kind {
            Kind::Message(message) => self.share_part(message),
            Kind::List(list) => self.share_part(list),
            Kind::Map(map) => self.share_part(map),
            _ => {}
        }
    }

    fn limits(&mut self, limits: &mut Option<Ref<Limits>>) {
        if let Some(limits) = limits {
            self.share_part(limits);
        }
    }

    fn element(&mut self, element: &mut Element) {
        self.kind(&mut element.kind);
        self.limits(&mut element.limits);
    }

    fn share_part<T: Part>(&mut self, part: &mut Ref<T>) {
        let Ref::Shared(made) = part else { return };
        // A part with other owners was shared before.
        let Some(own) = Arc::get_mut(made) else { return };
        own.share(self);
        T::shelf(self).take(made);
    }
}

/// Parts of one Rust type, by their hash.
#[derive(Debug)]
struct Shelf<T> {
    known: HashTable<(u64, Weak<T>)>,
    hasher: DefaultHashBuilder,
    /// Number of entries at which entries of dropped parts are removed.
    full: usize,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Shelf { known: HashTable::new(), hasher: DefaultHashBuilder::default(), full: SWEPT_MIN }
    }
}

impl<T: Part> Shelf<T> {
    /// Replaces `part` by an equal known part. If there is no equal part, adds `part` to the shelf.
    fn take(&mut self, part: &mut Arc<T>) {
        let mut hasher = self.hasher.build_hasher();
        part.hash(&mut hasher);
        let hash = hasher.finish();
        let mut known = None;
        self.known.find(hash, |(other, weak)| {
            *other == hash && {
                known = weak.upgrade().filter(|known| known.is_same(part));
                known.is_some()
            }
        });
        if let Some(known) = known {
            *part = known;
            return;
        }
        if self.known.len() >= self.full {
            self.known.retain(|(_, weak)| weak.strong_count() > 0);
            self.full = (self.known.len() * 2).max(SWEPT_MIN);
            self.known.shrink_to(self.full, |(hash, _)| *hash);
        }
        self.known.insert_unique(hash, (hash, Arc::downgrade(part)), |(hash, _)| *hash);
    }
}

/// A part of a type.
trait Part: Sized + 'static {
    /// Returns the parts of this Rust type in the pool.
    fn shelf(pool: &mut Pool) -> &mut Shelf<Self>;

    /// Shares the nested parts, and frees excess capacity.
    fn share(&mut self, pool: &mut Pool);

    /// Hashes the properties that equal parts have in common. Nested parts are hashed by identity, because
    /// they are shared already.
    fn hash(&self, to: &mut impl Hasher);

    /// Returns whether both parts are equal. Nested parts are compared by identity.
    fn is_same(&self, other: &Self) -> bool;
}

impl Part for Message {
    fn shelf(pool: &mut Pool) -> &mut Shelf<Self> {
        &mut pool.messages
    }

    fn share(&mut self, pool: &mut Pool) {
        if let Slice::Owned(fields) = &mut self.fields {
            fields.shrink_to_fit();
            for field in fields {
                pool.kind(&mut field.kind);
                pool.limits(&mut field.limits);
            }
        }
        pool.limits(&mut self.limits);
    }

    fn hash(&self, to: &mut impl Hasher) {
        (&self.name, &self.package, self.unknown as u8, self.atomic, self.embedded).hash(to);
        address(self.limits.as_ref()).hash(to);
        for field in &*self.fields {
            (&field.name, field.required, &field.assigned, field.empty as u8).hash(to);
            hash_kind(&field.kind, to);
            address(field.limits.as_ref()).hash(to);
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let Message { name, package, description, fields, unknown, atomic, embedded, custom, limits, .. } =
            self;
        // The comparison omits fields that types made at run time do not use.
        *custom
            && other.custom
            && (name, package, description) == (&other.name, &other.package, &other.description)
            && (unknown, atomic, embedded) == (&other.unknown, &other.atomic, &other.embedded)
            && is_one(limits.as_ref(), other.limits.as_ref())
            && fields.len() == other.fields.len()
            && fields.iter().zip(&*other.fields).all(|(field, other)| is_same_field(field, other))
    }
}

fn is_same_field(field: &Field, other: &Field) -> bool {
    let Field { name, kind, empty, description, required, pointer, default, assigned, format, .. } = field;
    (name, description, format) == (&other.name, &other.description, &other.format)
        && (empty, required, pointer) == (&other.empty, &other.required, &other.pointer)
        && (default, assigned) == (&other.default, &other.assigned)
        && (field.omit_empty, field.atomic) == (other.omit_empty, other.atomic)
        && is_same_kind(kind, &other.kind)
        && is_one(field.limits.as_ref(), other.limits.as_ref())
}

impl Part for List {
    fn shelf(pool: &mut Pool) -> &mut Shelf<Self> {
        &mut pool.lists
    }

    fn share(&mut self, pool: &mut Pool) {
        pool.element(&mut self.item);
    }

    fn hash(&self, to: &mut impl Hasher) {
        discriminant(&self.merge).hash(to);
        if let ListType::Map(keys) = &self.merge {
            keys.hash(to);
        }
        hash_element(&self.item, to);
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.merge, self.wrapped) == (&other.merge, other.wrapped)
            && is_same_element(&self.item, &other.item)
    }
}

impl Part for Map {
    fn shelf(pool: &mut Pool) -> &mut Shelf<Self> {
        &mut pool.maps
    }

    fn share(&mut self, pool: &mut Pool) {
        pool.element(&mut self.value);
    }

    fn hash(&self, to: &mut impl Hasher) {
        self.atomic.hash(to);
        hash_element(&self.value, to);
    }

    fn is_same(&self, other: &Self) -> bool {
        self.atomic == other.atomic && is_same_element(&self.value, &other.value)
    }
}

impl Part for Limits {
    fn shelf(pool: &mut Pool) -> &mut Shelf<Self> {
        &mut pool.limits
    }

    fn share(&mut self, _: &mut Pool) {
        self.required.shrink_to_fit();
        self.enumeration.shrink_to_fit();
    }

    /// Hashes all constraints, including the nested schemas. Without the nested schemas, all limits that differ only in
    /// these schemas would have the same hash, and every limit would be compared with all other limits.
    fn hash(&self, to: &mut impl Hasher) {
        let number =
            |bound: Option<(f64, bool)>| bound.map(|(bound, is_excluded)| (bound.to_bits(), is_excluded));
        (number(self.min), number(self.max), self.multiple_of.map(f64::to_bits)).hash(to);
        (self.length, self.items, self.members).hash(to);
        (self.unique, self.any_type, &self.default, self.enumeration.len()).hash(to);
        self.enumeration.iter().for_each(|value| hash_value(value, to));
        (self.pattern.as_ref().map(|pattern| pattern.as_str()), &self.format, &self.required).hash(to);
        self.rules.len().hash(to);
        self.rules.iter().for_each(|rule| (&rule.rule, &rule.message, &rule.field_path).hash(to));
        let Some(schemas) = self.schemas.as_deref() else { return false.hash(to) };
        let Schemas { all_of, any_of, one_of, not, kind, properties, items } = schemas;
        (all_of.len(), any_of.len(), one_of.len(), properties.len()).hash(to);
        (not.is_some(), items.is_some(), kind).hash(to);
        properties.iter().for_each(|(name, _)| name.hash(to));
        let lists = all_of.iter().chain(any_of).chain(one_of).chain(not);
        let parts = lists.chain(properties.iter().map(|(_, part)| part)).chain(items);
        parts.for_each(|part| part.hash(to));
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

/// Hashes a value as text with sorted members, so that equal values have equal hashes.
fn hash_value(value: &Value, to: &mut impl Hasher) {
    let mut text = Vec::new();
    json::write_sorted(value, &mut text);
    text.hash(to);
}

fn is_same_element(element: &Element, other: &Element) -> bool {
    element.empty == other.empty
        && is_same_kind(&element.kind, &other.kind)
        && is_one(element.limits.as_ref(), other.limits.as_ref())
}

fn is_same_kind(kind: &Kind, other: &Kind) -> bool {
    match (kind, other) {
        (Kind::List(list), Kind::List(other)) => list.is(other),
        (Kind::Map(map), Kind::Map(other)) => map.is(other),
        _ => match (kind.message(), other.message()) {
            (Some(message), Some(other_message)) => {
                discriminant(kind) == discriminant(other) && message.is(other_message)
            }
            _ => discriminant(kind) == discriminant(other),
        },
    }
}

fn is_one<T>(part: Option<&Ref<T>>, other: Option<&Ref<T>>) -> bool {
    match (part, other) {
        (Some(part), Some(other)) => part.is(other),
        (part, other) => part.is_none() && other.is_none(),
    }
}

fn hash_element(element: &Element, to: &mut impl Hasher) {
    (element.empty as u8).hash(to);
    hash_kind(&element.kind, to);
    address(element.limits.as_ref()).hash(to);
}

fn hash_kind(kind: &Kind, to: &mut impl Hasher) {
    discriminant(kind).hash(to);
    match kind {
        Kind::List(list) => address(Some(list)).hash(to),
        Kind::Map(map) => address(Some(map)).hash(to),
        _ => address(kind.message()).hash(to),
    }
}

/// Returns the address of a part as a number; 0 for `None`.
fn address<T>(part: Option<&Ref<T>>) -> usize {
    part.map_or(0, |part| std::ptr::from_ref::<T>(part).addr())
}

#[cfg(test)]
#[path = "share_test.rs"]
mod tests;
