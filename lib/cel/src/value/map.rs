//! Maps: entries of the evaluation and maps of the host.
//!
//! Keys of different types are different keys, even equal numbers: `{1: 'a', 1u: 'b'}` has two entries. If a
//! lookup finds no key of the same type, the lookup tries the integer types: an int finds the equal uint, a
//! uint finds the equal int, and a double finds both.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::identifier::unescape;
use crate::number;
use crate::value::Text;
use crate::value::Value;
use crate::value::host::{HostMap, HostRef};

/// Number of entries above which a map has a hash table; scanning fewer entries is faster.
const SCAN_LEN_MAX: usize = 8;

/// A map, owned or from the host.
#[derive(Clone, Debug)]
pub enum Map<'v> {
    /// Entries created by the evaluation.
    Shared(Arc<OwnedMap<'v>>),
    /// A map of the host, read without copying.
    Host(HostRef<'v, dyn HostMap>),
}

/// The entries in insertion order, with an index by key.
#[derive(Clone, Debug, Default)]
pub struct OwnedMap<'v> {
    entries: Vec<(Value<'v>, Value<'v>)>,
    /// Positions in `entries` by the hash of the key, for keys that a lookup can find. The index of a map
    /// with at most [`SCAN_LEN_MAX`] entries is empty.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Whether selections use identifiers ([`OwnedMap::with_identifiers`]).
    has_identifiers: bool,
}

impl<'v> Map<'v> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self {
            Self::Shared(map) => map.entries.len(),
            Self::Host(host) => host.node.len(host.view),
        }
    }

    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value under `key`, or under the equal integer of another type.
    pub fn get(&self, key: &Value<'v>) -> Option<Value<'v>> {
        match (self, key) {
            (Self::Shared(map), key) => map.get(key).cloned(),
            (Self::Host(host), Value::String(key)) => host.node.get(host.view, key),
            (Self::Host(_), _) => None,
        }
    }

    /// Returns the value for a selection or an index: the value under `key`, or, in a map with identifiers,
    /// under the key whose identifier is `key`.
    pub fn select(&self, key: &Value<'v>) -> Option<Value<'v>> {
        if let (Self::Shared(map), Value::String(identifier)) = (self, key)
            && map.has_identifiers
            && let Some(name) = unescape(identifier)
        {
            return map.get(&Value::string(name)).cloned();
        }
        self.get(key)
    }

    /// Returns the key of the entry at `index`, in the map's own order.
    pub fn key_at(&self, index: usize) -> Option<Value<'v>> {
        match self {
            Self::Shared(map) => map.entries.get(index).map(|(key, _)| key.clone()),
            Self::Host(host) => (index < self.len())
                .then(|| Value::String(Text::Borrowed(host.node.key_at(host.view, index)))),
        }
    }

    /// Returns the entry at `index`, in the map's own order.
    pub fn entry_at(&self, index: usize) -> Option<(Value<'v>, Value<'v>)> {
        match self {
            Self::Shared(map) => map.entries.get(index).cloned(),
            Self::Host(_) => Some((self.key_at(index)?, self.value_at(index)?)),
        }
    }

    /// Returns the value of the entry at `index`, in the map's own order.
    pub fn value_at(&self, index: usize) -> Option<Value<'v>> {
        match self {
            Self::Shared(map) => map.entries.get(index).map(|(_, value)| value.clone()),
            Self::Host(host) if index < self.len() => host.node.value_at(host.view, index),
            Self::Host(_) => None,
        }
    }

    /// Iterates over the entries, in the map's own order.
    pub fn iter(&self) -> impl Iterator<Item = (Value<'v>, Value<'v>)> {
        (0..self.len()).filter_map(|index| self.entry_at(index))
    }
}

impl<'v> OwnedMap<'v> {
    /// Makes selections and indexes use the identifiers of the keys. `in` and loops still use the keys
    /// themselves.
    #[must_use]
    pub fn with_identifiers(self) -> Self {
        Self { has_identifiers: true, ..self }
    }

    /// Adds an entry. Returns false and leaves the map unchanged if the map already has the key, or an equal
    /// integer key of another type.
    pub fn insert(&mut self, key: Value<'v>, value: Value<'v>) -> bool {
        if self.get(&key).is_some() {
            return false;
        }
        self.push(key, value);
        true
    }

    /// Sets the value under exactly this key, as a map literal does.
    pub fn set(&mut self, key: Value<'v>, value: Value<'v>) {
        match self.place(&key) {
            Some(place) => self.entries[place].1 = value,
            None => self.push(key, value),
        }
    }

    /// Returns the value under `key`, or under the equal integer of another type.
    pub fn get(&self, key: &Value<'v>) -> Option<&Value<'v>> {
        let exact = |key: &Value<'v>| self.get_exact(key);
        exact(key).or_else(|| match key {
            Value::Int(int) => exact(&Value::Uint(u64::try_from(*int).ok()?)),
            Value::Uint(uint) => exact(&Value::Int(i64::try_from(*uint).ok()?)),
            Value::Double(double) => number::double_to_int_exact(*double)
                .and_then(|int| exact(&Value::Int(int)))
                .or_else(|| exact(&Value::Uint(number::double_to_uint_exact(*double)?))),
            _ => None,
        })
    }

    /// Returns the value under exactly this key.
    pub fn get_exact(&self, key: &Value<'v>) -> Option<&Value<'v>> {
        self.place(key).map(|place| &self.entries[place].1)
    }

    /// Returns the entries in insertion order.
    pub fn entries(&self) -> &[(Value<'v>, Value<'v>)] {
        &self.entries
    }

    fn push(&mut self, key: Value<'v>, value: Value<'v>) {
        self.entries.push((key, value));
        let Self { entries, index, hasher, .. } = self;
        let first_new = match entries.len() {
            len if len <= SCAN_LEN_MAX => return,
            len if len == SCAN_LEN_MAX + 1 => 0..len,
            len => len - 1..len,
        };
        for place in first_new {
            if !is_identifiable(&entries[place].0) {
                continue;
            }
            index.insert_unique(hash(hasher, &entries[place].0), place as u32, |&place| {
                hash(hasher, &entries[place as usize].0)
            });
        }
    }

    /// Returns the position of exactly this key.
    fn place(&self, key: &Value<'v>) -> Option<usize> {
        if !is_identifiable(key) {
            return None;
        }
        if self.entries.len() <= SCAN_LEN_MAX {
            return self.entries.iter().position(|(other, _)| same_key(other, key));
        }
        let found =
            self.index.find(hash(&self.hasher, key), |&place| same_key(&self.entries[place as usize].0, key));
        found.map(|&place| place as usize)
    }
}

impl<'v> FromIterator<(Value<'v>, Value<'v>)> for OwnedMap<'v> {
    fn from_iter<I: IntoIterator<Item = (Value<'v>, Value<'v>)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.set(key, value);
        }
        map
    }
}

/// Returns whether a lookup can find a value as a key. The index leaves out all other values, because they
/// would all have the same hash.
fn is_identifiable(key: &Value<'_>) -> bool {
    !matches!(key, Value::List(_) | Value::Map(_) | Value::Object(_) | Value::Optional(_) | Value::Opaque(_))
}

/// Returns whether a value can be used as a key.
pub fn is_key(value: &Value<'_>) -> bool {
    matches!(value, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_))
}

/// Returns whether two values are the same key. Lists, maps and other values that cannot be keys are never
/// the same key.
pub(crate) fn same_key(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Uint(a), Value::Uint(b)) => a == b,
        (Value::Double(a), Value::Double(b)) => a == b,
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Bytes(a), Value::Bytes(b)) => **a == **b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a.runtime_name() == b.runtime_name(),
        _ => false,
    }
}

/// Returns the hash of a key. Keys that are the same have the same hash.
fn hash(hasher: &DefaultHashBuilder, key: &Value<'_>) -> u64 {
    match key {
        Value::Bool(b) => hasher.hash_one(b),
        Value::Int(i) => hasher.hash_one(i),
        Value::Uint(u) => hasher.hash_one(u),
        // Positive and negative zero are the same key.
        Value::Double(d) => hasher.hash_one((d + 0.0).to_bits()),
        Value::String(text) => hasher.hash_one(&**text),
        Value::Bytes(bytes) => hasher.hash_one(&**bytes),
        Value::Duration(d) => hasher.hash_one(d),
        Value::Timestamp(t) => hasher.hash_one(t),
        Value::Type(of) => hasher.hash_one(of.runtime_name()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_keys_of_different_number_types_are_found_by_equal_numbers() {
        let mut map = OwnedMap::default();
        for (i, key) in
            [Value::Int(1), Value::Uint(2), Value::Double(1.5), Value::Double(3.0)].into_iter().enumerate()
        {
            map.set(key, Value::Int(i as i64));
        }
        for (key, found) in [
            (Value::Int(1), Some(0)),
            (Value::Uint(1), Some(0)),
            (Value::Double(1.0), Some(0)),
            (Value::Int(2), Some(1)),
            (Value::Double(2.0), Some(1)),
            (Value::Double(1.5), Some(2)),
            (Value::Double(3.0), Some(3)),
            (Value::Int(3), None),
            (Value::Int(-1), None),
            (Value::Bool(true), None),
        ] {
            let got = map.get(&key).map(|value| match value {
                Value::Int(i) => *i,
                other => panic!("{other:?}"),
            });
            assert_eq!(got, found, "{key:?}");
        }
    }

    #[test]
    fn large_maps_find_all_their_keys() {
        let mut map = OwnedMap::default();
        for i in 0..1000 {
            assert!(map.insert(Value::Int(i), Value::Int(-i)));
        }
        for i in 0..1000 {
            assert!(matches!(map.get(&Value::Int(i)), Some(Value::Int(found)) if *found == -i));
            assert!(!map.insert(Value::Uint(i as u64), Value::Null));
        }
        assert!(map.get(&Value::Int(1000)).is_none());
    }
}
