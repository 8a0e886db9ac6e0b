//! Walking and counting a range of keys at one root.

use std::sync::Arc;

use bytes::Bytes;

use super::Tree;
use super::node::{Leaf, Node, Slot};
use crate::history::{self, Version};

/// A walk in key order. It holds on to the nodes on its path only.
pub(crate) struct Cursor {
    /// Branches from the root down, each with the child to go to next.
    path: Vec<(Arc<Node>, usize)>,
    leaf: Option<LeafAt>,
}

struct LeafAt {
    node: Arc<Node>,
    /// The leaf's keys, copied once so that each key handed out is a slice.
    keys: Bytes,
    next: usize,
}

impl Cursor {
    /// The next key and its version at `revision`, which may be a delete; keys younger than that are skipped.
    pub fn next(&mut self, revision: u64) -> Option<(Bytes, Version)> {
        self.next_that(|slot| history::at(&slot.newest, &slot.older, revision).copied())
    }

    /// The next key and all its versions.
    pub fn next_slot(&mut self) -> Option<(Bytes, Slot)> {
        self.next_that(|slot| Some(slot.clone()))
    }

    /// The next key of which `pick` makes something.
    fn next_that<T>(&mut self, pick: impl Fn(&Slot) -> Option<T>) -> Option<(Bytes, T)> {
        loop {
            if let Some(at) = &mut self.leaf {
                if let Node::Leaf(leaf) = &*at.node {
                    while at.next < leaf.slots().len() {
                        let slot = &leaf.slots()[at.next];
                        let (start, end) = leaf.keys().span(at.next);
                        at.next += 1;
                        if let Some(picked) = pick(slot) {
                            return Some((at.keys.slice(start..end), picked));
                        }
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
                let keys = Bytes::copy_from_slice(leaf.keys().bytes());
                let next = first(leaf);
                self.leaf = Some(LeafAt { node, keys, next });
            }
        }
    }
}

impl Tree {
    /// A walk over the keys from `start` on.
    pub fn cursor(&self, start: &[u8]) -> Cursor {
        let mut cursor = Cursor { path: Vec::new(), leaf: None };
        let mut node = self.root.clone();
        while let Node::Branch(branch) = &*node {
            let child = branch.child_for(start);
            let below = branch.children()[child].node.clone();
            cursor.path.push((std::mem::replace(&mut node, below), child + 1));
        }
        cursor.enter(node, |leaf| leaf.search(start).unwrap_or_else(|at| at));
        cursor
    }

    /// Live keys smaller than `key`, in one step per level.
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
    use crate::history::Place;
    use crate::testing::Random;

    fn version(revision: u64, deleted: bool) -> Version {
        let place = Place::new(revision * 8, 80, deleted);
        Version { revision, created: 1, segment: 0, expires_s: 0, place }
    }

    /// Keys of several lengths with long common prefixes, some a prefix of another.
    fn key(n: u64) -> Vec<u8> {
        let name = format!("/group/resources/space-{}/name-{:x}", n % 7, n * 7919 % 4099);
        name.as_bytes()[..name.len() - (n % 3) as usize].to_vec()
    }

    type Model = BTreeMap<Vec<u8>, Vec<(u64, bool)>>;

    fn walk(tree: &Tree, start: &[u8], at: u64) -> Vec<(Vec<u8>, u64, bool)> {
        let mut cursor = tree.cursor(start);
        std::iter::from_fn(|| cursor.next(at)).map(|(k, v)| (k.to_vec(), v.revision, v.is_delete())).collect()
    }

    fn model_walk(model: &Model, start: &[u8], at: u64) -> Vec<(Vec<u8>, u64, bool)> {
        let newest = |versions: &Vec<(u64, bool)>| versions.iter().rfind(|(r, _)| *r <= at).copied();
        let from = model.range(start.to_vec()..);
        from.filter_map(|(k, vs)| newest(vs).map(|(r, d)| (k.clone(), r, d))).collect()
    }

    #[test]
    fn a_tree_and_a_map_agree_at_every_root_and_revision() {
        for seed in 0..4 {
            let mut random = Random::new(seed);
            let keys = [50, 600, 5_000, 5_000][seed as usize];
            let mut tree = Tree::default();
            let mut model = Model::new();
            let mut roots = Vec::new();
            for revision in 1..=8_000u64 {
                // The last round inserts in ascending order, which splits differently.
                let key = if seed == 3 { revision.to_be_bytes().to_vec() } else { key(random.below(keys)) };
                let deleted = random.below(4) == 0;
                let previous = tree.push(&key, version(revision, deleted)).map(|v| v.revision);
                let versions = model.entry(key).or_default();
                assert_eq!(previous, versions.last().map(|v| v.0));
                versions.push((revision, deleted));
                if random.below(1_000) == 0 {
                    roots.push((revision, tree.clone(), model.clone()));
                } else if random.below(30) == 0 {
                    // A root that is dropped again: its nodes are shared for a while only.
                    drop(tree.clone());
                }
            }
            roots.push((8_000, tree, model));
            for (revision, tree, model) in &roots {
                let live = |to: Option<&[u8]>| {
                    let walked = model_walk(model, b"", *revision);
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
                    assert_eq!(walk(tree, &start, at), model_walk(model, &start, at), "seed {seed}");
                    assert_eq!(tree.live_before(&start), live(Some(&start)), "seed {seed}");
                    let expected = model.get(&start).and_then(|vs| vs.iter().rfind(|(r, _)| *r <= at));
                    assert_eq!(tree.at(&start, at).map(|v| (v.revision, v.is_delete())), expected.copied());
                }
                assert_eq!(walk(tree, b"", *revision).len(), model.len());
            }
        }
    }

    #[test]
    fn an_empty_tree_has_nothing() {
        let tree = Tree::default();
        assert!(tree.newest(b"a").is_none());
        assert!(tree.cursor(b"").next(u64::MAX).is_none());
        assert_eq!((tree.live(), tree.live_before(b"\xff")), (0, 0));
    }
}
