//! The index: a copy-on-write B-tree from keys to the locations of their states.
//!
//! ```text
//! root ─ branch ─┬─ branch ─┬─ leaf   keys packed in one buffer, one slot (56 bytes) each
//!                │          └─ leaf
//!                └─ …                 a branch stores the number of live keys below each child
//! ```
//!
//! Readers hold a root, which never changes. The writer edits its own copy: it edits a node in place if only
//! its own tree refers to it, and copies a shared node first. Publishing a root shares all its nodes, so a
//! batch copies each node that it changes once, however many of its writes change it.
//!
//! A deleted key stays in the tree as long as its history is retained; it does not count as live. Compaction
//! removes versions that no reader can reach, key by key, under the same rules as any other edit.

mod build;
mod difference;
mod edit;
mod node;
mod prune;
mod range;

use std::sync::Arc;

pub(crate) use build::Builder;
pub(crate) use node::{KeySlot, Node};
pub(crate) use range::{Cursor, FilterStep};

use crate::history::{self, Version};
use crate::types::Revision;

/// A version of the whole index. Cloning is cheap and gives an independent tree.
#[derive(Clone, Default)]
pub(crate) struct Tree {
    root: Arc<Node>,
    live: u64,
    size: TreeSize,
}

/// Numbers of keys and versions in a tree.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TreeSize {
    /// Number of keys, including deleted keys.
    pub keys: u64,
    /// Total length of all keys, in bytes.
    pub key_bytes: u64,
    /// Number of versions of all keys.
    pub versions: u64,
}

impl Tree {
    /// Returns the number of live keys.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Returns the numbers of keys and versions.
    pub fn size(&self) -> TreeSize {
        self.size
    }

    /// Returns the newest version of `key`, which may be a delete.
    pub fn newest(&self, key: &[u8]) -> Option<&Version> {
        let (leaf, slot) = self.find(key)?;
        Some(&leaf.slots()[slot].newest)
    }

    /// Returns the version of `key` that was the newest at `revision`; it may be a delete.
    pub fn at(&self, key: &[u8], revision: Revision) -> Option<Version> {
        let (leaf, slot) = self.find(key)?;
        let slot = &leaf.slots()[slot];
        history::at(&slot.newest, &slot.older, revision)
    }

    /// Returns the slot of `key`, with all its versions.
    pub fn slot(&self, key: &[u8]) -> Option<&KeySlot> {
        self.find(key).map(|(leaf, slot)| &leaf.slots()[slot])
    }

    /// Returns the version of `key` that `revision` wrote, if it is retained.
    pub fn exact(&self, key: &[u8], revision: Revision) -> Option<Version> {
        self.at(key, revision).filter(|version| version.revision == revision)
    }

    fn find(&self, key: &[u8]) -> Option<(&node::Leaf, usize)> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Branch(branch) => node = branch.child(branch.child_for(key)),
                Node::Leaf(leaf) => return leaf.search(key).ok().map(|slot| (leaf, slot)),
            }
        }
    }
}
