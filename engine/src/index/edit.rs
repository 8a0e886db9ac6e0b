//! Changes of a tree: new versions, new keys, splits.

use std::sync::Arc;

use super::Tree;
use super::node::{Branch, Child, KeySlot, NODE_LEN_MAX, Node};
use crate::bloom::BloomFilter;
use crate::history::{self, Version};

/// Result of a split of a node: the new right half, and the separator, which is greater than all keys on the
/// left and not greater than any key on the right.
struct Split {
    separator: Vec<u8>,
    right: Child,
}

/// Result of an edit below a node.
struct Edited {
    /// The newest version before the edit.
    previous: Option<Version>,
    /// Change of the number of live keys.
    live: i64,
    split: Option<Split>,
}

impl Tree {
    /// Makes `version`, with its Bloom filter, the newest version of `key`, and returns the previous newest
    /// one. Versions of a key must come in ascending order of revision. Nodes that other trees share are
    /// copied, all others are changed in place.
    pub fn push(&mut self, key: &[u8], version: Version, bloom: BloomFilter) -> Option<Version> {
        let edited = push(&mut self.root, key, version, bloom);
        self.live = self.live.wrapping_add_signed(edited.live);
        self.size.versions += 1;
        if edited.previous.is_none() {
            self.size.keys += 1;
            self.size.key_bytes += key.len() as u64;
        }
        if let Some(split) = edited.split {
            let left = Child { live: self.live - split.right.live, node: std::mem::take(&mut self.root) };
            self.root = Arc::new(Node::Branch(Branch::new(left, &split.separator, split.right)));
        }
        edited.previous
    }

    /// Sets the Bloom filters of all keys. `blooms` has one filter for each key, in ascending order of the
    /// keys.
    pub fn set_blooms(&mut self, blooms: &mut dyn Iterator<Item = BloomFilter>) {
        set_blooms(&mut self.root, blooms);
    }
}

fn set_blooms(node: &mut Arc<Node>, blooms: &mut dyn Iterator<Item = BloomFilter>) {
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => {
            for (slot, bloom) in leaf.slots_mut().iter_mut().zip(blooms) {
                slot.bloom = bloom;
            }
        }
        Node::Branch(branch) => {
            for at in 0..branch.children().len() {
                set_blooms(&mut branch.child_mut(at).node, blooms);
            }
        }
    }
}

fn push(node: &mut Arc<Node>, key: &[u8], version: Version, bloom: BloomFilter) -> Edited {
    // If another tree shares the node, `make_mut` copies the node first.
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => {
            let at = match leaf.search(key) {
                Ok(at) => {
                    let slot = &mut leaf.slots_mut()[at];
                    let previous = std::mem::replace(&mut slot.newest, version);
                    slot.bloom = bloom;
                    history::push(&mut slot.older, previous);
                    let live = i64::from(!version.is_delete()) - i64::from(!previous.is_delete());
                    return Edited { previous: Some(previous), live, split: None };
                }
                Err(at) => at,
            };
            leaf.insert(at, key, KeySlot { newest: version, older: None, bloom });
            let split = (leaf.slots().len() > NODE_LEN_MAX).then(|| {
                // Keys often come in ascending order. A split that leaves one key on the right then fills the
                // nodes, while an even split would leave them half empty.
                let middle = if at + 1 == leaf.slots().len() { at } else { leaf.slots().len() / 2 };
                let separator = separator(leaf.keys().get(middle - 1), leaf.keys().get(middle));
                let right = leaf.split_off(middle);
                Split { separator, right: Child { live: right.live(), node: Arc::new(Node::Leaf(right)) } }
            });
            Edited { previous: None, live: i64::from(!version.is_delete()), split }
        }
        Node::Branch(branch) => {
            let at = branch.child_for(key);
            let child = branch.child_mut(at);
            let mut edited = push(&mut child.node, key, version, bloom);
            child.live = child.live.wrapping_add_signed(edited.live);
            if let Some(split) = edited.split.take() {
                child.live -= split.right.live;
                let at_end = at + 1 == branch.children().len();
                branch.insert_after(at, &split.separator, split.right);
                let len = branch.children().len();
                if len > NODE_LEN_MAX {
                    let middle = if at_end { len - 2 } else { len / 2 };
                    let (separator, right) = branch.split_off(middle);
                    let right = Child { live: right.live(), node: Arc::new(Node::Branch(right)) };
                    edited.split = Some(Split { separator, right });
                }
            }
            edited
        }
    }
}

/// Returns the shortest byte string greater than `left` and not greater than `right`.
pub(super) fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    let common = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    right[..(common + 1).min(right.len())].to_vec()
}
