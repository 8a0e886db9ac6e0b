//! The keys in which two versions of the tree differ.
//!
//! Versions share all nodes that no write between them has changed. Only the keys in the other nodes are compared. In
//! addition, the addresses of all nodes of both versions are collected in sets.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::Tree;
use super::node::Node;
use crate::history::Version;

/// A key in which two versions of a tree differ, with its live state in each of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Difference {
    pub key: Bytes,
    pub before: Option<Version>,
    pub after: Option<Version>,
}

impl Tree {
    /// Returns the keys whose newest live state has different revisions in this tree and in `after`, in ascending
    /// order.
    pub fn differences(&self, after: &Tree) -> Vec<Difference> {
        if Arc::ptr_eq(&self.root, &after.root) {
            return Vec::new();
        }
        let before_only = unshared(self, &addresses(after));
        let after_only = unshared(after, &addresses(self));
        let mut differences = Vec::new();
        let (mut before, mut after) = (before_only.into_iter().peekable(), after_only.into_iter().peekable());
        loop {
            let order = match (before.peek(), after.peek()) {
                (Some((one, _)), Some((other, _))) => one.cmp(other),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return differences,
            };
            let before = if order.is_le() { before.next() } else { None };
            let after = if order.is_ge() { after.next() } else { None };
            let key = before.as_ref().or(after.as_ref()).map(|(key, _)| key.clone()).unwrap_or_default();
            let live = |found: Option<(Bytes, Version)>| {
                found.map(|(_, version)| version).filter(|version| !version.is_delete())
            };
            let (before, after) = (live(before), live(after));
            let revision = |version: &Option<Version>| version.as_ref().map(|version| version.revision);
            if revision(&before) != revision(&after) {
                differences.push(Difference { key, before, after });
            }
        }
    }
}

/// Returns the addresses of all nodes of a tree.
fn addresses(tree: &Tree) -> HashSet<*const Node> {
    fn walk(node: &Arc<Node>, found: &mut HashSet<*const Node>) {
        found.insert(Arc::as_ptr(node));
        if let Node::Branch(branch) = &**node {
            branch.children().iter().for_each(|child| walk(&child.node, found));
        }
    }
    let mut found = HashSet::new();
    walk(&tree.root, &mut found);
    found
}

/// Returns the keys of a tree with their newest versions, without the keys in `shared` nodes.
fn unshared(tree: &Tree, shared: &HashSet<*const Node>) -> Vec<(Bytes, Version)> {
    fn walk(node: &Arc<Node>, shared: &HashSet<*const Node>, found: &mut Vec<(Bytes, Version)>) {
        if shared.contains(&Arc::as_ptr(node)) {
            return;
        }
        match &**node {
            Node::Branch(branch) => {
                branch.children().iter().for_each(|child| walk(&child.node, shared, found))
            }
            Node::Leaf(leaf) => {
                let keys = Bytes::copy_from_slice(leaf.keys().bytes());
                let slots = leaf.slots().iter().enumerate();
                found.extend(slots.map(|(at, slot)| {
                    let (start, end) = leaf.keys().span(at);
                    (keys.slice(start..end), slot.newest)
                }));
            }
        }
    }
    let mut found = Vec::new();
    walk(&tree.root, shared, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bloom::BloomFilter;
    use crate::history::RecordLocation;
    use crate::testing::Random;
    use crate::types::{Revision, SegmentNumber};

    fn write(tree: &mut Tree, state: &mut BTreeMap<Bytes, u64>, key: &str, revision: u64, deletes: bool) {
        let version = Version {
            revision: Revision::new(revision),
            created: Revision::new(1),
            segment: SegmentNumber::NONE,
            expires_s: 0,
            location: RecordLocation::new(revision * 8, 80, deletes),
        };
        tree.push(key.as_bytes(), version, BloomFilter::NONE);
        let key = Bytes::copy_from_slice(key.as_bytes());
        if deletes {
            state.remove(&key);
        } else {
            state.insert(key, revision);
        }
    }

    #[test]
    fn tree_differences_equal_those_of_the_live_states() {
        let mut random = Random(7);
        for keys in [1, 10, 100, 3000] {
            let (mut tree, mut state, mut revision) = (Tree::default(), BTreeMap::new(), 0);
            let mut step = |tree: &mut Tree, state: &mut BTreeMap<Bytes, u64>, writes| {
                for _ in 0..writes {
                    revision += 1;
                    let key = format!("key/{:05}", random.below(keys));
                    let deletes = state.contains_key(key.as_bytes()) && random.below(3) == 0;
                    write(tree, state, &key, revision, deletes);
                }
            };
            step(&mut tree, &mut state, keys * 2);
            for writes in [0, 1, 5, keys] {
                let (before, known) = (tree.clone(), state.clone());
                step(&mut tree, &mut state, writes);
                let all: std::collections::BTreeSet<_> = known.keys().chain(state.keys()).cloned().collect();
                let expected: Vec<_> = all
                    .into_iter()
                    .map(|key| (known.get(&key).copied(), state.get(&key).copied(), key))
                    .filter(|(before, after, _)| before != after)
                    .collect();
                let found: Vec<_> = before
                    .differences(&tree)
                    .into_iter()
                    .map(|found| {
                        let revision =
                            |version: Option<Version>| version.map(|version| version.revision.get());
                        (revision(found.before), revision(found.after), found.key)
                    })
                    .collect();
                assert_eq!(found, expected, "{keys} keys, {writes} writes");
            }
        }
    }
}
