//! Removal of versions that no reader can reach, and moves of records.
//!
//! Both operations search first and copy only the nodes of keys that change. Nodes that have become small are
//! merged with a neighbour, so that a tree that shrinks frees memory.

use std::sync::Arc;

use super::Tree;
use super::build::Builder;
use super::node::{KeySlot, NODE_LEN_MAX, Node};
use crate::history::{self, Version};
use crate::types::Revision;

/// A node with fewer entries than this is merged with a neighbour if possible.
const SMALL: usize = NODE_LEN_MAX / 4;
/// Maximum number of entries in a merged node, so that the next few keys do not split it again.
const MERGED_MAX: usize = NODE_LEN_MAX * 3 / 4;
/// A history that keeps more than `SHORT` versions is shortened only if at least one version is removed for each
/// `LONG_SHARE` kept versions, because shortening copies the links of the kept versions.
const SHORT: usize = 64;
const LONG_SHARE: usize = 8;

impl Tree {
    /// Removes the versions of `key` that are not needed to read at `oldest` and later, and calls `freed` for each of
    /// them. A long history may keep one unneeded version for each eight needed versions.
    pub fn prune(&mut self, key: &[u8], oldest: Revision, freed: &mut dyn FnMut(&Version)) {
        self.shorten(key, oldest, SHORT, freed);
    }

    /// Prunes `key` as [`Tree::prune`] does, but removes all unneeded versions even of a long history.
    pub fn prune_fully(&mut self, key: &[u8], oldest: Revision, freed: &mut dyn FnMut(&Version)) {
        self.shorten(key, oldest, usize::MAX, freed);
    }

    fn shorten(&mut self, key: &[u8], oldest: Revision, short: usize, freed: &mut dyn FnMut(&Version)) {
        let Some((leaf, at)) = self.find(key) else { return };
        let slot = &leaf.slots()[at];
        let needed = history::needed(&slot.newest, &slot.older, oldest);
        let all = history::len(&slot.older);
        if needed == all || (needed > short && (all - needed) * LONG_SHARE < needed) {
            return;
        }
        history::iter(&slot.newest, &slot.older).skip(needed).for_each(|version| freed(&version));
        let (bloom, shortened) = (slot.bloom, history::truncated(&slot.newest, &slot.older, needed));
        self.size.versions -= (all - needed) as u64;
        match shortened {
            Some((newest, older)) => {
                replace(&mut self.root, key, &KeySlot { newest, older, bloom });
            }
            None => {
                // If the only version of a key is not needed, it is a delete, so no live key is removed.
                self.size.keys -= 1;
                self.size.key_bytes -= key.len() as u64;
                remove(&mut self.root, key);
                self.lower_root();
            }
        }
    }

    /// Returns a newly built tree without the versions that are not needed to read at `oldest` and later.
    pub fn pruned(&self, oldest: Revision) -> Tree {
        let mut builder = Builder::default();
        let mut cursor = self.cursor(b"");
        while let Some((key, slot)) = cursor.next_slot() {
            let needed = history::needed(&slot.newest, &slot.older, oldest);
            if let Some((newest, older)) = history::truncated(&slot.newest, &slot.older, needed) {
                builder.push(&key, KeySlot { newest, older, bloom: slot.bloom });
            }
        }
        builder.finish()
    }

    /// Replaces the version `from` of `key` by `to`, which stores the same state in another location. Returns
    /// false if the version does not exist any more.
    pub fn relocate(&mut self, key: &[u8], from: &Version, to: Version) -> bool {
        let Some((leaf, at)) = self.find(key) else { return false };
        let slot = &leaf.slots()[at];
        if slot.newest == *from {
            let slot = KeySlot { newest: to, ..slot.clone() };
            replace(&mut self.root, key, &slot);
            return true;
        }
        let Some(older) = history::replaced(&slot.older, from, to) else { return false };
        let slot = KeySlot { older, ..slot.clone() };
        replace(&mut self.root, key, &slot);
        true
    }

    /// Removes levels at the root that have a single child.
    fn lower_root(&mut self) {
        while let Node::Branch(branch) = &*self.root {
            match branch.only_child().cloned() {
                Some(child) => self.root = child,
                None if branch.children().is_empty() => self.root = Arc::default(),
                None => return,
            }
        }
    }
}

/// Replaces the slot of `key`, which must exist. A live key must stay live, and a deleted key must stay
/// deleted.
fn replace(node: &mut Arc<Node>, key: &[u8], slot: &KeySlot) {
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => {
            if let Ok(at) = leaf.search(key) {
                leaf.slots_mut()[at] = slot.clone();
            }
        }
        Node::Branch(branch) => {
            let at = branch.child_for(key);
            replace(&mut branch.child_mut(at).node, key, slot);
        }
    }
}

/// Removes `key`, which must not be live.
fn remove(node: &mut Arc<Node>, key: &[u8]) {
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => {
            if let Ok(at) = leaf.search(key) {
                leaf.remove(at);
            }
        }
        Node::Branch(branch) => {
            let at = branch.child_for(key);
            remove(&mut branch.child_mut(at).node, key);
            let len = |at: usize| branch.children().get(at).map(|child| child.node.len());
            match len(at) {
                Some(0) => branch.remove(at),
                Some(small) if small < SMALL => {
                    let before = at.checked_sub(1);
                    let fits = |neighbour: usize| len(neighbour).is_some_and(|l| l + small <= MERGED_MAX);
                    if fits(at + 1) {
                        branch.merge(at);
                    } else if let Some(before) = before.filter(|&before| fits(before)) {
                        branch.merge(before);
                    }
                }
                _ => {}
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
            segment: crate::types::SegmentNumber::FIRST,
            expires_s: 0,
            location,
        }
    }

    /// Adds a version. The bits of the Bloom filter are the revision of the version.
    fn push(tree: &mut Tree, key: &[u8], version: Version) {
        tree.push(key, version, BloomFilter::from_bits(version.revision.get().into()));
    }

    type Model = BTreeMap<Vec<u8>, Vec<Version>>;

    /// Returns the versions of each key, oldest first.
    fn content(tree: &Tree) -> Model {
        let mut cursor = tree.cursor(b"");
        let mut content = Model::new();
        while let Some((key, slot)) = cursor.next_slot() {
            assert_eq!(slot.bloom.bits(), u128::from(slot.newest.revision.get()));
            let mut versions: Vec<_> = history::iter(&slot.newest, &slot.older).collect();
            versions.reverse();
            content.insert(key.to_vec(), versions);
        }
        content
    }

    fn prune_model(model: &mut Model, oldest: Revision) {
        model.retain(|_, versions| {
            let needed = history::needed_count(versions.iter().rev().copied(), oldest);
            versions.drain(..versions.len() - needed);
            needed > 0
        });
    }

    #[test]
    fn a_pruned_tree_equals_the_model_and_old_roots_do_not_change() {
        for seed in 0..4 {
            let mut random = Random(seed);
            let keys = [30, 400, 3_000, 20_000][seed as usize];
            let (mut tree, mut model) = (Tree::default(), Model::new());
            let mut old = Vec::new();
            let mut touched = Vec::new();
            let mut freed = 0u64;
            for revision in 1..=12_000u64 {
                let key = format!("/k/{:x}", random.below(keys) * 7919 % 65_537).into_bytes();
                let version = version(Revision::new(revision), random.below(2) == 0);
                push(&mut tree, &key, version);
                model.entry(key.clone()).or_default().push(version);
                touched.push(key);
                if random.below(600) == 0 {
                    old.push((tree.clone(), content(&tree)));
                }
                if random.below(1_000) == 0 {
                    let oldest = revision - random.below(50).min(revision);
                    prune_model(&mut model, Revision::new(oldest));
                    for key in touched.iter().chain(std::iter::once(&b"/none".to_vec())) {
                        tree.prune(key, Revision::new(oldest), &mut |_| freed += 1);
                    }
                    assert_eq!(content(&tree), model, "seed {seed} at {oldest}");
                    let live = model.values().filter(|v| !v.last().unwrap().is_delete()).count();
                    let versions: usize = model.values().map(Vec::len).sum();
                    let key_bytes: usize = model.keys().map(Vec::len).sum();
                    let size = tree.size();
                    assert_eq!((tree.live(), tree.live_before(b"\xff")), (live as u64, live as u64));
                    assert_eq!((size.keys, size.versions), (model.len() as u64, versions as u64));
                    assert_eq!(size.key_bytes, key_bytes as u64);
                    assert_eq!(freed + size.versions, revision);
                    assert_eq!(content(&tree.pruned(Revision::new(oldest))), model);
                    assert_eq!(tree.pruned(Revision::new(oldest)).size(), size);
                }
            }
            for (tree, expected) in old {
                assert_eq!(content(&tree), expected, "seed {seed}");
            }
            // All keys are deleted and all versions are pruned.
            let mut revision = 12_000;
            for key in model.keys() {
                revision += 1;
                push(&mut tree, key, version(Revision::new(revision), true));
            }
            for key in model.keys() {
                tree.prune(key, Revision::MAX, &mut |_| ());
            }
            assert_eq!(
                (content(&tree).len(), tree.size(), tree.live()),
                (0, super::super::TreeSize::default(), 0)
            );
            assert!(matches!(&*tree.root, Node::Leaf(_)));
        }
    }

    #[test]
    fn a_long_history_is_pruned_in_large_steps() {
        let mut tree = Tree::default();
        for revision in 1..=1_000 {
            push(&mut tree, b"k", version(Revision::new(revision), false));
        }
        let mut sizes = Vec::new();
        for oldest in [100, 400, 440, 500, 970, 1_000] {
            tree.prune(b"k", Revision::new(oldest), &mut |_| ());
            sizes.push(tree.size().versions);
        }
        assert_eq!(sizes, [1_000, 601, 601, 501, 31, 1]);
        for revision in 1_001..=2_000 {
            push(&mut tree, b"k", version(Revision::new(revision), false));
        }
        tree.prune_fully(b"k", Revision::new(1_010), &mut |_| ());
        assert_eq!(tree.size().versions, 991);
    }

    #[test]
    fn a_moved_record_is_relocated_at_every_depth_of_the_history() {
        let mut tree = Tree::default();
        for revision in 1..=40 {
            push(&mut tree, b"k", version(Revision::new(revision), false));
        }
        let before = tree.clone();
        for revision in [40, 39, 17, 1] {
            let to = Version {
                segment: crate::types::SegmentNumber::new(2),
                ..version(Revision::new(revision), false)
            };
            assert!(tree.relocate(b"k", &version(Revision::new(revision), false), to));
            assert!(
                !tree.relocate(b"k", &version(Revision::new(revision), false), to),
                "it is not there any more"
            );
            assert_eq!(tree.exact(b"k", Revision::new(revision)), Some(to));
            assert_eq!(
                before.exact(b"k", Revision::new(revision)),
                Some(version(Revision::new(revision), false))
            );
            assert_eq!(tree.slot(b"k").map(|slot| slot.bloom.bits()), Some(40));
        }
        assert_eq!(tree.exact(b"k", Revision::new(38)), Some(version(Revision::new(38), false)));
        assert!(!tree.relocate(
            b"other",
            &version(Revision::new(1), false),
            version(Revision::new(1), false)
        ));
    }
}
