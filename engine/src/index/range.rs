//! Walks over a range of keys at one root, and counts of such ranges.
//!
//! A walk with a query tests the slots of each leaf one after the other. The walk reads the key and the
//! history of a slot only if the slot passes the test.

use std::sync::Arc;

use bytes::Bytes;

use super::Tree;
use super::node::{KeySlot, Leaf, Node};
use crate::bloom::BloomQuery;
use crate::history::{self, Version};
use crate::types::Revision;

/// An iterator in key order that holds only the nodes on its path.
pub(crate) struct Cursor {
    /// Branches from the root down, each with the position of the next child.
    path: Vec<(Arc<Node>, usize)>,
    leaf: Option<LeafAt>,
    /// The first key behind the range; `None` if the range has no end.
    end: Option<Bytes>,
}

struct LeafAt {
    node: Arc<Node>,
    /// Copy of the leaf's keys, so that each returned key is a slice of the copy. Made when the first key is
    /// returned.
    keys: Bytes,
    next: usize,
    /// Position in this leaf at which the walk ends.
    stop: usize,
}

/// Result of a step of a walk with a query.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum FilterStep {
    /// A key that passes, with its version, which is not a delete.
    Match(Bytes, Version),
    /// The maximum number of keys was skipped without a match.
    Skipped,
}

impl Cursor {
    /// Returns the next key and its version at `revision`, which may be a delete. Skips keys created after
    /// `revision`.
    pub fn next(&mut self, revision: Revision) -> Option<(Bytes, Version)> {
        self.next_that(|slot| history::at(&slot.newest, &slot.older, revision))
    }

    /// Returns the slot of the key that is `ahead` keys after the next one, if that key is in the same leaf.
    pub fn peek(&self, ahead: usize) -> Option<&KeySlot> {
        let at = self.leaf.as_ref()?;
        let Node::Leaf(leaf) = &*at.node else { return None };
        leaf.slots()[at.next..at.stop].get(ahead)
    }

    /// Returns the next key that passes `query` and exists at `revision`. Returns [`FilterStep::Skipped`] after
    /// skipping `most` other keys.
    pub fn next_match(&mut self, revision: Revision, query: &BloomQuery, most: usize) -> Option<FilterStep> {
        let mut left = most;
        let found = self.next_that(|slot| {
            // The Bloom filter describes only the newest version.
            if (slot.newest.revision > revision || query.matches(slot.bloom))
                && let Some(version) = history::at(&slot.newest, &slot.older, revision)
                && !version.is_delete()
            {
                return Some(Some(version));
            }
            left = left.saturating_sub(1);
            (left == 0).then_some(None)
        });
        let (key, version) = found?;
        Some(version.map_or(FilterStep::Skipped, |version| FilterStep::Match(key, version)))
    }

    /// Returns the next key and all its versions.
    pub fn next_slot(&mut self) -> Option<(Bytes, KeySlot)> {
        self.next_that(|slot| Some(slot.clone()))
    }

    /// Returns the next key for which `pick` returns a value.
    fn next_that<T>(&mut self, mut pick: impl FnMut(&KeySlot) -> Option<T>) -> Option<(Bytes, T)> {
        loop {
            if let Some(at) = &mut self.leaf {
                if let Node::Leaf(leaf) = &*at.node {
                    let slots = leaf.slots()[at.next..at.stop].iter();
                    let picked = slots.enumerate().find_map(|(n, slot)| Some((at.next + n, pick(slot)?)));
                    if let Some((slot, picked)) = picked {
                        at.next = slot + 1;
                        if at.keys.is_empty() {
                            at.keys = Bytes::copy_from_slice(leaf.keys().bytes());
                        }
                        let (start, end) = leaf.keys().span(slot);
                        return Some((at.keys.slice(start..end), picked));
                    }
                    if at.stop < leaf.slots().len() {
                        self.path.clear();
                    }
                }
                self.leaf = None;
            }
            let (node, next) = self.path.last_mut()?;
            let Node::Branch(branch) = &**node else { return None };
            match branch.children().get(*next) {
                Some(child) => {
                    *next += 1;
                    let child = child.node.clone();
                    self.enter(child, |_| 0);
                }
                None => {
                    self.path.pop();
                }
            }
        }
    }

    fn enter(&mut self, node: Arc<Node>, first: impl FnOnce(&Leaf) -> usize) {
        match &*node {
            Node::Branch(_) => self.path.push((node, 0)),
            Node::Leaf(leaf) => {
                let len = leaf.slots().len();
                let next = first(leaf);
                let stop = match &self.end {
                    // Most leaves lie before the end of the range: a comparison with the last key suffices.
                    Some(end) if len > 0 && leaf.keys().get(len - 1) >= &end[..] => {
                        leaf.search(end).unwrap_or_else(|at| at).max(next)
                    }
                    _ => len,
                };
                self.leaf = Some(LeafAt { node, keys: Bytes::new(), next, stop });
            }
        }
    }
}

impl Tree {
    /// Calls `visit` with the slot of each key, in order.
    pub fn visit_slots(&self, visit: &mut impl FnMut(&KeySlot)) {
        fn walk(node: &Node, visit: &mut impl FnMut(&KeySlot)) {
            match node {
                Node::Branch(branch) => branch.children().iter().for_each(|child| walk(&child.node, visit)),
                Node::Leaf(leaf) => leaf.slots().iter().for_each(visit),
            }
        }
        walk(&self.root, visit);
    }

    /// Returns a cursor over the keys from `start` on.
    pub fn cursor(&self, start: &[u8]) -> Cursor {
        self.range(start, None)
    }

    /// Returns a cursor over the keys from `start` on that are smaller than `end`.
    pub fn range(&self, start: &[u8], end: Option<Bytes>) -> Cursor {
        let mut cursor = Cursor { path: Vec::new(), leaf: None, end };
        let mut node = self.root.clone();
        while let Node::Branch(branch) = &*node {
            let child = branch.child_for(start);
            let below = branch.children()[child].node.clone();
            cursor.path.push((std::mem::replace(&mut node, below), child + 1));
        }
        cursor.enter(node, |leaf| leaf.search(start).unwrap_or_else(|at| at));
        cursor
    }

    /// Returns the number of live keys smaller than `key`, in one step per level.
    pub fn live_before(&self, key: &[u8]) -> u64 {
        let mut before = 0;
        let mut node = &*self.root;
        loop {
            match node {
                Node::Branch(branch) => {
                    let at = branch.child_for(key);
                    before += branch.children()[..at].iter().map(|child| child.live).sum::<u64>();
                    node = branch.child(at);
                }
                Node::Leaf(leaf) => {
                    let at = leaf.search(key).unwrap_or_else(|at| at);
                    let live = leaf.slots()[..at].iter().filter(|slot| !slot.newest.is_delete()).count();
                    return before + live as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bloom::BloomFilter;
    use crate::history::RecordLocation;
    use crate::testing::Random;

    fn version(revision: Revision, deleted: bool) -> Version {
        let location = RecordLocation::new(revision.get() * 8, 80, deleted);
        Version {
            revision,
            created: Revision::new(1),
            segment: crate::types::SegmentNumber::NONE,
            expires_s: 0,
            location,
        }
    }

    fn bloom(revision: Revision) -> BloomFilter {
        BloomFilter::from_bits(1 << (revision.get() % 8))
    }

    /// Returns keys of several lengths with long common prefixes; some keys are prefixes of others.
    fn key(n: u64) -> Vec<u8> {
        let name = format!("/group/resources/space-{}/name-{:x}", n % 7, n * 7919 % 4099);
        name.as_bytes()[..name.len() - (n % 3) as usize].to_vec()
    }

    type Model = BTreeMap<Vec<u8>, Vec<(Revision, bool)>>;

    fn walk(tree: &Tree, start: &[u8], at: Revision) -> Vec<(Vec<u8>, Revision, bool)> {
        let mut cursor = tree.cursor(start);
        std::iter::from_fn(|| cursor.next(at)).map(|(k, v)| (k.to_vec(), v.revision, v.is_delete())).collect()
    }

    fn model_walk(model: &Model, start: &[u8], at: Revision) -> Vec<(Vec<u8>, Revision, bool)> {
        let newest = |versions: &Vec<(Revision, bool)>| versions.iter().rfind(|(r, _)| *r <= at).copied();
        let from = model.range(start.to_vec()..);
        from.filter_map(|(k, vs)| newest(vs).map(|(r, d)| (k.clone(), r, d))).collect()
    }

    fn ranged(tree: &Tree, start: &[u8], end: &[u8], at: Revision) -> Vec<(Vec<u8>, Revision, bool)> {
        let mut cursor = tree.range(start, Some(Bytes::copy_from_slice(end)));
        std::iter::from_fn(|| cursor.next(at)).map(|(k, v)| (k.to_vec(), v.revision, v.is_delete())).collect()
    }

    /// Checks that a walk with a query returns every match in `expected`, returns no key that is not in
    /// `expected`, and pauses.
    fn sift(tree: &Tree, start: &[u8], end: &[u8], at: Revision, expected: &[(Vec<u8>, Revision, bool)]) {
        let mut query = BloomQuery::default();
        query.require(vec![BloomFilter::from_bits(1 << (at.get() % 8)), BloomFilter::from_bits(1)]);
        let must =
            expected.iter().filter(|(_, revision, deleted)| !deleted && query.matches(bloom(*revision)));
        let mut must = must.peekable();
        let mut cursor = tree.range(start, Some(Bytes::copy_from_slice(end)));
        let (mut passed, mut last) = (0, None);
        while let Some(filtered) = cursor.next_match(at, &query, 7) {
            match filtered {
                FilterStep::Skipped => passed += 7,
                FilterStep::Match(key, version) => {
                    assert!(last < Some(key.clone()));
                    must.next_if(|(k, r, _)| *k == key[..] && *r == version.revision);
                    let found = expected.binary_search_by(|(k, ..)| k[..].cmp(&key));
                    assert_eq!(
                        found.map(|at| (expected[at].1, expected[at].2)),
                        Ok((version.revision, false))
                    );
                    last = Some(key);
                }
            }
        }
        assert_eq!(must.next(), None);
        assert!(passed <= ranged(tree, start, end, Revision::MAX).len());
    }

    #[test]
    fn a_tree_equals_a_map_model_at_every_root_and_revision() {
        for seed in 0..4 {
            let mut random = Random(seed);
            let keys = [50, 600, 5_000, 5_000][seed as usize];
            let mut tree = Tree::default();
            let mut model = Model::new();
            let mut roots = Vec::new();
            for revision in 1..=8_000u64 {
                // The last seed inserts keys in ascending order, which splits nodes differently.
                let key = if seed == 3 { revision.to_be_bytes().to_vec() } else { key(random.below(keys)) };
                let deleted = random.below(4) == 0;
                let previous = tree.push(
                    &key,
                    version(Revision::new(revision), deleted),
                    bloom(Revision::new(revision)),
                );
                let previous = previous.map(|v| v.revision);
                let versions = model.entry(key).or_default();
                assert_eq!(previous, versions.last().map(|v| v.0));
                versions.push((Revision::new(revision), deleted));
                if random.below(1_000) == 0 {
                    roots.push((revision, tree.clone(), model.clone()));
                } else if random.below(30) == 0 {
                    // The clone of the root is dropped at once, so its nodes are shared only briefly.
                    drop(tree.clone());
                }
            }
            roots.push((8_000, tree, model));
            for (revision, tree, model) in &roots {
                let live = |to: Option<&[u8]>| {
                    let walked = model_walk(model, b"", Revision::new(*revision));
                    walked.iter().filter(|(k, _, d)| !d && to.is_none_or(|to| &k[..] < to)).count() as u64
                };
                assert_eq!(tree.live(), live(None));
                for n in 0..8 {
                    let at = if n == 0 { *revision } else { random.below(revision + 2) };
                    let start = if seed == 3 {
                        random.below(8_000).to_be_bytes().to_vec()
                    } else {
                        key(random.below(keys + 5))
                    };
                    assert_eq!(
                        walk(tree, &start, Revision::new(at)),
                        model_walk(model, &start, Revision::new(at)),
                        "seed {seed}"
                    );
                    assert_eq!(tree.live_before(&start), live(Some(&start)), "seed {seed}");
                    let end = if n % 2 == 0 { key(random.below(keys + 5)) } else { start.clone() };
                    let mut expected = model_walk(model, &start, Revision::new(at));
                    expected.retain(|(key, ..)| *key < end);
                    assert_eq!(ranged(tree, &start, &end, Revision::new(at)), expected, "seed {seed}");
                    sift(tree, &start, &end, Revision::new(at), &expected);
                    let expected =
                        model.get(&start).and_then(|vs| vs.iter().rfind(|(r, _)| *r <= Revision::new(at)));
                    assert_eq!(
                        tree.at(&start, Revision::new(at)).map(|v| (v.revision, v.is_delete())),
                        expected.copied()
                    );
                }
                assert_eq!(walk(tree, b"", Revision::new(*revision)).len(), model.len());
            }
        }
    }

    #[test]
    fn a_walk_with_a_query_pauses_at_keys_that_do_not_exist_at_its_revision() {
        let mut tree = Tree::default();
        for n in 0..20_u64 {
            // At revision 50, half of the keys are deleted, and the other half is not created yet.
            for (revision, deleted) in [(n + 1, false), (n + 25, true), (n + 100, false)] {
                if n % 2 == 0 || revision >= 100 {
                    let version = version(Revision::new(revision), deleted);
                    tree.push(&n.to_be_bytes(), version, BloomFilter::UNKNOWN);
                }
            }
        }
        let (mut cursor, query) = (tree.cursor(b""), BloomQuery::default());
        let steps: Vec<_> = std::iter::from_fn(|| cursor.next_match(Revision::new(50), &query, 5)).collect();
        assert_eq!(steps, [const { FilterStep::Skipped }; 4]);
    }

    #[test]
    fn an_empty_tree_has_nothing() {
        let tree = Tree::default();
        assert!(tree.newest(b"a").is_none());
        assert!(tree.cursor(b"").next(Revision::MAX).is_none());
        assert_eq!((tree.live(), tree.live_before(b"\xff")), (0, 0));
    }
}
