//! The members of one object during a patch.
//!
//! `Object` → `OpenMembers` → changes by name → `Object`. A changed member keeps its position, a new member
//! is appended, and a removed member leaves no gap. Small objects are searched linearly. If an object and its
//! patch are both large, a hash index reduces the cost of merging from the product of their sizes to the sum
//! of their sizes.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use values::json::{Key, Object, Value};

/// Maximum number of members without an index.
const SCAN_MAX: usize = 32;

/// Minimum number of look-ups for an index. Building an index costs about as much as this many searches.
const LOOKUPS_MIN: usize = 8;

/// An object that is opened for many changes by name.
pub(super) struct OpenMembers {
    /// Members in order; `None` for a removed member.
    slots: Vec<Option<(Key, Value)>>,
    /// Positions in `slots`, by hash of the name. Entries of removed members stay in the index, and look-ups
    /// skip such entries.
    index: Option<HashTable<usize>>,
    hasher: DefaultHashBuilder,
    lookups: usize,
}

impl OpenMembers {
    /// Opens `object`. `lookups` is the expected number of look-ups.
    pub fn open(object: Object, lookups: usize) -> Self {
        let slots: Vec<_> = object.into_members().into_iter().map(Some).collect();
        let mut members = OpenMembers { slots, index: None, hasher: DefaultHashBuilder::default(), lookups };
        members.index_if_large();
        members
    }

    /// Returns the member `name` for modification.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let at = self.find(name)?;
        self.slots[at].as_mut().map(|(_, value)| value)
    }

    /// Removes the member `name`.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.find(name)?;
        self.slots[at].take().map(|(_, value)| value)
    }

    /// Sets the member `name`. An existing member keeps its position; a new member is appended.
    pub fn set(&mut self, name: Key, value: Value) {
        if let Some(slot) = self.get_mut(&name) {
            *slot = value;
            return;
        }
        let at = self.slots.len();
        if let Some(index) = &mut self.index {
            let (slots, hasher) = (&self.slots, &self.hasher);
            index.insert_unique(hasher.hash_one(&*name), at, |&at| hash_slot(hasher, &slots[at]));
        }
        self.slots.push(Some((name, value)));
        self.index_if_large();
    }

    /// Removes the members for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|(key, _)| !keep(key)) {
                *slot = None;
            }
        }
    }

    /// Returns the members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.slots.iter().flatten().map(|(key, value)| (&**key, value))
    }

    /// Returns the members by value.
    pub fn into_members(self) -> impl Iterator<Item = (Key, Value)> {
        self.slots.into_iter().flatten()
    }

    /// Returns the changed object.
    pub fn close(self) -> Object {
        self.into_members().collect()
    }

    fn find(&self, name: &str) -> Option<usize> {
        let is_it = |at: &usize| matches!(&self.slots[*at], Some((key, _)) if key == name);
        match &self.index {
            Some(index) => index.find(self.hasher.hash_one(name), is_it).copied(),
            None => (0..self.slots.len()).find(is_it),
        }
    }

    fn index_if_large(&mut self) {
        if self.index.is_some() || self.slots.len() <= SCAN_MAX || self.lookups < LOOKUPS_MIN {
            return;
        }
        let (slots, hasher) = (&self.slots, &self.hasher);
        let mut index = HashTable::with_capacity(slots.len());
        for (at, slot) in slots.iter().enumerate() {
            if slot.is_some() {
                index.insert_unique(hash_slot(hasher, slot), at, |&at| hash_slot(hasher, &slots[at]));
            }
        }
        self.index = Some(index);
    }
}

/// Returns the hash of the name of a member. For a removed member any value is correct, because look-ups skip
/// it.
fn hash_slot(hasher: &DefaultHashBuilder, slot: &Option<(Key, Value)>) -> u64 {
    slot.as_ref().map_or(0, |(key, _)| hasher.hash_one(&**key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_members_keep_their_order_whether_scanned_or_indexed() {
        for (count, lookups) in [(3, 1), (100, 1), (100, 100), (3, 1000)] {
            let object: Object = (0..count).map(|n| (format!("k{n}").into(), Value::Int(n))).collect();
            let mut members = OpenMembers::open(object, lookups);
            assert_eq!(members.take("k1"), Some(Value::Int(1)));
            assert_eq!(members.take("k1"), None);
            members.set("k0".into(), Value::Int(-1));
            for n in 0..50 {
                members.set(format!("n{n}").into(), Value::Int(n));
            }
            members.set("k1".into(), Value::Bool(true));
            assert_eq!(members.get_mut("n49"), Some(&mut Value::Int(49)));
            members.retain(|name| name != "k2");
            let names: Vec<String> = members.iter().map(|(name, _)| name.to_owned()).collect();
            let kept = (3..count).map(|n| format!("k{n}"));
            let want: Vec<String> = std::iter::once("k0".to_owned())
                .chain(kept)
                .chain((0..50).map(|n| format!("n{n}")))
                .chain(["k1".to_owned()])
                .collect();
            assert_eq!(names, want);
            assert_eq!(members.close().get("k0"), Some(&Value::Int(-1)));
        }
    }
}
