//! Building a tree from keys in ascending order.

use std::sync::Arc;

use super::edit::separator;
use super::node::{Branch, Child, KeySlot, Leaf, NODE_LEN_MAX, Node};
use super::{Tree, TreeSize};
use crate::history;

/// Number of keys in a leaf and of children in a branch. Some room is left, because otherwise the first
/// writes would split all nodes.
const FILL: usize = NODE_LEN_MAX * 7 / 8;

/// Builder of a tree; takes keys in ascending order.
#[derive(Default)]
pub(crate) struct Builder {
    /// The keys of the current leaf, end to end.
    key_bytes: Vec<u8>,
    slots: Vec<(usize, KeySlot)>,
    /// The last key of the previous leaf.
    last_key: Vec<u8>,
    /// Finished leaves, each with the separator before it.
    leaves: Vec<(Vec<u8>, Child)>,
    size: TreeSize,
}

impl Builder {
    /// Adds a key, which must be greater than all keys added before.
    pub fn push(&mut self, key: &[u8], slot: KeySlot) {
        if self.slots.len() == FILL {
            self.finish_leaf();
        }
        self.size.keys += 1;
        self.size.key_bytes += key.len() as u64;
        self.size.versions += history::len(&slot.older) as u64;
        self.key_bytes.extend_from_slice(key);
        self.slots.push((key.len(), slot));
    }

    /// Appends the keys of `other`, which must be greater than all keys added before.
    pub fn append(&mut self, mut other: Builder) {
        self.finish_leaf();
        other.finish_leaf();
        if !self.leaves.is_empty()
            && let Some((before, first)) = other.leaves.first_mut()
            && let Node::Leaf(leaf) = &*first.node
        {
            *before = separator(&self.last_key, leaf.keys().get(0));
        }
        if !other.leaves.is_empty() {
            self.last_key = other.last_key;
        }
        self.leaves.append(&mut other.leaves);
        self.size.keys += other.size.keys;
        self.size.key_bytes += other.size.key_bytes;
        self.size.versions += other.size.versions;
    }

    /// Returns the tree of all keys that were added.
    pub fn finish(mut self) -> Tree {
        self.finish_leaf();
        let mut nodes = self.leaves;
        while nodes.len() > 1 {
            let mut above = Vec::with_capacity(nodes.len().div_ceil(FILL));
            let mut rest = nodes.into_iter();
            loop {
                let children: Vec<_> = rest.by_ref().take(FILL).collect();
                let Some((first, _)) = children.first() else { break };
                let first = first.clone();
                let branch = Branch::over(children);
                above.push((first, Child { live: branch.live(), node: Arc::new(Node::Branch(branch)) }));
            }
            nodes = above;
        }
        let root = nodes.pop().map(|(_, child)| child);
        let live = root.as_ref().map_or(0, |root| root.live);
        Tree { root: root.map(|root| root.node).unwrap_or_default(), live, size: self.size }
    }

    fn finish_leaf(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        let mut leaf = Leaf::with_capacity(self.slots.len(), self.key_bytes.len());
        let mut start = 0;
        for (at, (len, slot)) in self.slots.drain(..).enumerate() {
            leaf.insert(at, &self.key_bytes[start..start + len], slot);
            start += len;
        }
        self.key_bytes.clear();
        let before =
            if self.leaves.is_empty() { Vec::new() } else { separator(&self.last_key, leaf.keys().get(0)) };
        self.last_key = leaf.keys().get(leaf.slots().len() - 1).to_vec();
        self.leaves.push((before, Child { live: leaf.live(), node: Arc::new(Node::Leaf(leaf)) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::BloomFilter;
    use crate::history::{RecordLocation, Version};
    use crate::types::Revision;

    #[test]
    fn a_tree_built_at_once_equals_a_tree_built_by_inserts() {
        for keys in [0, 1, 55, 56, 57, 56 * 56, 56 * 56 + 1, 20_000u64] {
            // Compares a tree that is built at once with one that is built in parts.
            let (mut builder, mut parts) = (Builder::default(), Builder::default());
            let mut part = Builder::default();
            let mut grown = Tree::default();
            for n in 0..keys {
                let location = RecordLocation::new(8 * n, 80, n % 5 == 0);
                let version = Version {
                    revision: Revision::new(n + 1),
                    created: Revision::new(1),
                    segment: crate::types::SegmentNumber::FIRST,
                    expires_s: 0,
                    location,
                };
                let key = format!("/key/{n:08}");
                let bloom = BloomFilter::from_bits(n.into());
                let slot = || KeySlot { newest: version, older: None, bloom };
                builder.push(key.as_bytes(), slot());
                part.push(key.as_bytes(), slot());
                if n % 1_000 == 7 {
                    parts.append(std::mem::take(&mut part));
                }
                grown.push(key.as_bytes(), version, bloom);
            }
            parts.append(part);
            let (built, parts) = (builder.finish(), parts.finish());
            assert_eq!((built.live(), built.size()), (grown.live(), grown.size()));
            assert_eq!((parts.live(), parts.size()), (grown.live(), grown.size()));
            let walk = |tree: &Tree| {
                let mut cursor = tree.cursor(b"");
                std::iter::from_fn(move || cursor.next_slot())
                    .map(|(key, slot)| (key, slot.newest, slot.bloom))
                    .collect::<Vec<_>>()
            };
            assert_eq!(walk(&built), walk(&grown), "{keys} keys");
            assert_eq!(walk(&parts), walk(&grown), "{keys} keys in parts");
            let mut signed = grown.clone();
            signed.set_blooms(&mut (0..keys).map(|n| BloomFilter::from_bits((2 * n).into())));
            let resigned = walk(&signed).into_iter().map(|(_, _, bloom)| bloom.bits() / 2);
            assert!(resigned.eq(walk(&grown).into_iter().map(|(_, _, bloom)| bloom.bits())));
            for n in (0..keys + 3).step_by(97) {
                let key = format!("/key/{n:08}");
                assert_eq!(built.newest(key.as_bytes()), grown.newest(key.as_bytes()));
                assert_eq!(parts.newest(key.as_bytes()), grown.newest(key.as_bytes()));
                assert_eq!(built.live_before(key.as_bytes()), grown.live_before(key.as_bytes()));
            }
        }
    }
}
