//! The members of a large object, with an index by name.
//!
//! Scanning a few names is faster than hashing one name, so objects of up to [`SCAN_MAX`] members have no
//! index. A larger object gets its index after [`SCANS_MAX`] scans, which together have cost about as much as
//! building the index. Most large objects are only read and written as a whole and never get an index.
//! Appending members and changing values keep the index; any other change drops it.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{Key, Value};

/// Maximum number of members for which a lookup scans the names.
pub const SCAN_MAX: usize = 32;

/// Number of scans of a larger object before it gets an index. Building the index hashes each name, and
/// hashing a name takes about as long as comparing the name a few times.
const SCANS_MAX: u8 = 4;

/// Returns the position of the member `name`.
#[inline]
pub fn position(members: &[(Key, Value)], name: &str) -> Option<usize> {
    members.iter().position(|(key, _)| key == name)
}

/// Members in writing order, which get an index by name after repeated lookups.
#[derive(Debug, Default)]
pub struct Members {
    list: Vec<(Key, Value)>,
    index: OnceLock<Index>,
    /// Scans since the index was dropped, up to [`SCANS_MAX`].
    scans: AtomicU8,
}

/// Positions of members by the hash of their names.
#[derive(Debug, Default)]
struct Index {
    positions: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Members {
    /// Returns the members in order.
    pub fn list(&self) -> &[(Key, Value)] {
        &self.list
    }

    /// Returns the members in order, by value.
    pub fn into_list(self) -> Vec<(Key, Value)> {
        self.list
    }

    /// Returns the members for any change, and drops the index.
    pub fn list_mut(&mut self) -> &mut Vec<(Key, Value)> {
        self.index = OnceLock::new();
        self.scans = AtomicU8::new(0);
        &mut self.list
    }

    /// Returns the members for changes of values only. The index stays.
    pub fn slots(&mut self) -> &mut [(Key, Value)] {
        &mut self.list
    }

    /// Appends a member, which must be absent.
    pub fn push(&mut self, name: Key, value: Value) {
        self.list.push((name, value));
        if let Some(index) = self.index.get_mut() {
            index.add(&self.list, self.list.len() - 1);
        }
    }

    /// Returns the position of the member `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        if self.list.len() <= SCAN_MAX {
            return position(&self.list, name);
        }
        if self.index.get().is_none() {
            let scans = self.scans.load(Ordering::Relaxed);
            if scans < SCANS_MAX {
                self.scans.store(scans + 1, Ordering::Relaxed);
                return position(&self.list, name);
            }
        }
        self.index.get_or_init(|| Index::new(&self.list)).find(&self.list, name)
    }
}

impl From<Vec<(Key, Value)>> for Members {
    fn from(list: Vec<(Key, Value)>) -> Self {
        Members { list, ..Members::default() }
    }
}

impl Clone for Members {
    /// The copy builds its own index when a lookup needs an index.
    fn clone(&self) -> Self {
        self.list.clone().into()
    }
}

impl Index {
    fn new(list: &[(Key, Value)]) -> Index {
        let mut index = Index { positions: HashTable::with_capacity(list.len()), ..Index::default() };
        (0..list.len()).for_each(|at| index.add(list, at));
        index
    }

    fn add(&mut self, list: &[(Key, Value)], at: usize) {
        let Index { positions, hasher } = self;
        // Request bodies are limited far below the range of 32 bits.
        positions.insert_unique(hasher.hash_one(&*list[at].0), at as u32, |&at| {
            hasher.hash_one(&*list[at as usize].0)
        });
    }

    fn find(&self, list: &[(Key, Value)], name: &str) -> Option<usize> {
        let is_named = |&at: &u32| list.get(at as usize).is_some_and(|(key, _)| key == name);
        self.positions.find(self.hasher.hash_one(name), is_named).map(|&at| at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Object;
    use super::*;

    fn many(count: usize) -> Object {
        (0..count).map(|at| (Key::Owned(format!("k{at}")), Value::Int(at as i64))).collect()
    }

    /// Checks that each member is found at its position, and that absent names are not found.
    fn is_consistent(object: &Object) {
        // Repeated lookups, so that the index is used.
        for _ in 0..3 {
            for (name, value) in object.iter() {
                assert_eq!(object.get(name), Some(value), "{name}");
            }
            assert_eq!((object.get("absent"), object.contains("k")), (None, false));
        }
    }

    #[test]
    fn members_are_found_after_every_kind_of_change() {
        type Change = fn(&mut Object);
        let changes: [(&str, Change); 10] = [
            ("push", |o| o.push("new", Value::Null)),
            ("insert a new one", |o| drop(o.insert("new", Value::Null))),
            ("insert an old one", |o| drop(o.insert("k7", Value::Null))),
            ("entry", |o| *o.entry("new") = Value::Bool(true)),
            ("remove", |o| drop(o.remove("k3"))),
            ("retain", |o| o.retain(|name, _| !name.ends_with('1'))),
            ("reverse", |o| o.members_mut().reverse()),
            ("rename", |o| o.members_mut()[5].0 = "renamed".into()),
            ("values", |o| o.iter_mut().for_each(|(_, value)| *value = Value::Null)),
            ("settle", |o| o.settle(bytes::Bytes::from_static(b"{}"))),
        ];
        for count in [1 + 8, SCAN_MAX, SCAN_MAX + 1, 1000] {
            for (what, change) in changes {
                let mut object = many(count);
                is_consistent(&object);
                change(&mut object);
                is_consistent(&object);
                is_consistent(&object.clone());
                object.push("last", Value::Null);
                is_consistent(&object);
                assert_eq!(object.iter().next_back(), Some(("last", &Value::Null)), "{what} of {count}");
            }
        }
    }

    #[test]
    fn an_object_that_grows_to_many_members_finds_them_by_hash() {
        let mut object = Object::new();
        for at in 0..200 {
            assert_eq!(object.insert(format!("k{at}"), Value::Int(at)), None);
            assert_eq!(object.insert(format!("k{at}"), Value::Int(-at)), Some(Value::Int(at)));
        }
        is_consistent(&object);
        assert_eq!(object.len(), 200);
    }

    #[test]
    fn looking_up_each_member_of_an_object_is_linear() {
        // 100 000 lookups by scanning would compare 5 * 10^9 names.
        let object = many(100_000);
        assert!((0..100_000).all(|at| object.get(&format!("k{at}")) == Some(&Value::Int(at))));
        let mut bulk = Object::new();
        bulk.members_mut().extend(object.clone().into_members());
        bulk.index_members();
        assert!((0..100_000).all(|at| bulk.contains(&format!("k{at}"))));
    }
}
