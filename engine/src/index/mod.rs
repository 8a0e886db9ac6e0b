//! The index: key → where its states are stored, as a copy-on-write B-tree.
//!
//! ```text
//! root ─ branch ─┬─ branch ─┬─ leaf   keys packed in one buffer, one slot (56 bytes) each
//!                │          └─ leaf
//!                └─ …                 a branch knows how many live keys lie below each child
//! ```
//!
//! Readers hold a root and see it unchanged for as long as they like. The writer edits its own copy: a node that
//! only its tree refers to is edited in place, a shared one is copied first. Publishing a root shares all its
//! nodes, so that a batch copies each node it touches once, however many of its writes land there.
//!
//! A deleted key stays in the tree as long as its history is retained; it is not counted among the live ones.
//! Compaction takes out what no reader can reach, key by key, under the same rules as any other edit.

mod build;
mod edit;
mod node;
mod prune;
mod range;

use std::sync::Arc;

pub(crate) use build::Builder;
pub(crate) use node::{Node, Slot};
pub(crate) use range::{Cursor, Filtered};

use crate::history::{self, Version};
use crate::types::Revision;

/// One state of the whole index. Cloning is cheap and gives an independent tree.
#[derive(Clone, Default)]
pub(crate) struct Tree {
    root: Arc<Node>,
    live: u64,
    size: Size,
}

/// What a tree holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Size {
    /// Keys, deleted ones included.
    pub keys: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Versions of all keys.
    pub versions: u64,
}

impl Tree {
    /// Keys that exist in the newest state.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// What it holds.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The newest version of `key`, which may be a delete.
    pub fn newest(&self, key: &[u8]) -> Option<&Version> {
        let (leaf, slot) = self.find(key)?;
        Some(&leaf.slots()[slot].newest)
    }

    /// The version of `key` that was the newest at `revision`; it may be a delete.
    pub fn at(&self, key: &[u8], revision: Revision) -> Option<&Version> {
        let (leaf, slot) = self.find(key)?;
        let slot = &leaf.slots()[slot];
        history::at(&slot.newest, &slot.older, revision)
    }

    /// All that is known of `key`.
    pub fn slot(&self, key: &[u8]) -> Option<&Slot> {
        self.find(key).map(|(leaf, slot)| &leaf.slots()[slot])
    }

    /// The version of `key` that `revision` wrote, if it is retained.
    pub fn exact(&self, key: &[u8], revision: Revision) -> Option<&Version> {
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
