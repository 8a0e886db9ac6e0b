//! Nodes of the tree, and the search within a node.

use std::sync::Arc;

use crate::bloom::BloomFilter;
use crate::history::{OlderVersions, Version};

/// Maximum number of keys in a leaf and of children in a branch. Copying a full leaf of typical keys copies 7
/// KiB, and a million keys take three levels.
pub(crate) const NODE_LEN_MAX: usize = 64;

/// A node. All leaves are at the same depth.
#[derive(Clone)]
pub(crate) enum Node {
    Leaf(Leaf),
    Branch(Branch),
}

impl Default for Node {
    fn default() -> Node {
        Node::Leaf(Leaf::default())
    }
}

/// Byte strings in ascending order, end to end in one buffer.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    /// End of each string in `bytes`; each string begins at the end of the previous one.
    ends: Vec<u32>,
}

impl Keys {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns start and end of string `at` in [`Keys::bytes`].
    pub fn span(&self, at: usize) -> (usize, usize) {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        (start, self.ends[at] as usize)
    }

    pub fn get(&self, at: usize) -> &[u8] {
        let (start, end) = self.span(at);
        &self.bytes[start..end]
    }

    /// Returns the buffer that contains all strings.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the position of `key` as `Ok`, or the position to insert it at as `Err`.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    pub fn insert(&mut self, at: usize, key: &[u8]) {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        // Reserves room for a few more keys of this length instead of doubling the capacity, because leaves
        // live long and unused capacity wastes memory.
        reserve(&mut self.ends, 1, 8);
        reserve(&mut self.bytes, key.len(), key.len() * 8);
        let old_len = self.bytes.len();
        self.bytes.resize(old_len + key.len(), 0);
        self.bytes.copy_within(start..old_len, start + key.len());
        self.bytes[start..start + key.len()].copy_from_slice(key);
        self.ends.insert(at, start as u32);
        for end in &mut self.ends[at..] {
            *end += key.len() as u32;
        }
    }

    pub fn remove(&mut self, at: usize) {
        let (start, end) = self.span(at);
        self.bytes.drain(start..end);
        self.ends.remove(at);
        for later in &mut self.ends[at..] {
            *later -= (end - start) as u32;
        }
    }

    /// Appends the strings of `other`, which must be greater than all strings of this value.
    pub fn append(&mut self, other: &Keys) {
        let len = self.bytes.len() as u32;
        self.bytes.reserve_exact(other.bytes.len());
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.reserve_exact(other.ends.len());
        self.ends.extend(other.ends.iter().map(|end| len + end));
    }

    /// Splits off the strings from `at` on and returns them.
    pub fn split_off(&mut self, at: usize) -> Keys {
        let cut = if at == 0 { 0 } else { self.ends[at - 1] };
        let bytes = self.bytes.split_off(cut as usize);
        let mut ends = self.ends.split_off(at);
        for end in &mut ends {
            *end -= cut;
        }
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
        Keys { bytes, ends }
    }
}

fn reserve<T>(vec: &mut Vec<T>, needed: usize, step: usize) {
    if vec.capacity() - vec.len() < needed {
        vec.reserve_exact(step.max(needed));
    }
}

impl Node {
    /// Returns the number of keys of a leaf or of children of a branch.
    pub fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.slots.len(),
            Node::Branch(branch) => branch.children.len(),
        }
    }
}

/// The versions of one key, and the Bloom filter of the newest one.
#[derive(Clone)]
pub(crate) struct KeySlot {
    pub newest: Version,
    pub older: Option<Arc<OlderVersions>>,
    /// Bloom filter of the newest version.
    pub bloom: BloomFilter,
}

/// A leaf: keys with their slots.
#[derive(Clone, Default)]
pub(crate) struct Leaf {
    keys: Keys,
    slots: Vec<KeySlot>,
}

impl Leaf {
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub fn slots(&self) -> &[KeySlot] {
        &self.slots
    }

    pub fn slots_mut(&mut self) -> &mut [KeySlot] {
        &mut self.slots
    }

    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.keys.search(key)
    }

    pub fn insert(&mut self, at: usize, key: &[u8], slot: KeySlot) {
        self.keys.insert(at, key);
        reserve(&mut self.slots, 1, 8);
        self.slots.insert(at, slot);
    }

    pub fn remove(&mut self, at: usize) {
        self.keys.remove(at);
        self.slots.remove(at);
    }

    /// Creates a leaf with room for exactly `slots` keys of `bytes` in total.
    pub fn with_capacity(slots: usize, bytes: usize) -> Leaf {
        let keys = Keys { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(slots) };
        Leaf { keys, slots: Vec::with_capacity(slots) }
    }

    pub fn split_off(&mut self, at: usize) -> Leaf {
        let right = Leaf { keys: self.keys.split_off(at), slots: self.slots.split_off(at) };
        self.slots.shrink_to_fit();
        right
    }

    /// Returns the number of live keys.
    pub fn live(&self) -> u64 {
        self.slots.iter().filter(|slot| !slot.newest.is_delete()).count() as u64
    }
}

/// A child and the number of live keys below it.
#[derive(Clone)]
pub(crate) struct Child {
    pub node: Arc<Node>,
    pub live: u64,
}

/// A branch: children, and a separator between each two of them. Keys on the left of a separator are smaller
/// than the separator; keys on the right are equal or greater.
#[derive(Clone)]
pub(crate) struct Branch {
    separators: Keys,
    children: Vec<Child>,
}

impl Branch {
    /// Creates a branch over two nodes.
    pub fn new(left: Child, separator: &[u8], right: Child) -> Branch {
        let mut separators = Keys::default();
        separators.insert(0, separator);
        Branch { separators, children: vec![left, right] }
    }

    /// Returns the position of the child that `key` belongs to.
    pub fn child_for(&self, key: &[u8]) -> usize {
        match self.separators.search(key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    pub fn child(&self, at: usize) -> &Node {
        &self.children[at].node
    }

    pub fn children(&self) -> &[Child] {
        &self.children
    }

    pub fn child_mut(&mut self, at: usize) -> &mut Child {
        &mut self.children[at]
    }

    /// Inserts `right` behind child `at`, from which it was split off.
    pub fn insert_after(&mut self, at: usize, separator: &[u8], right: Child) {
        self.separators.insert(at, separator);
        reserve(&mut self.children, 1, 8);
        self.children.insert(at + 1, right);
    }

    /// Splits off the children from `at` on; also returns the separator before them.
    pub fn split_off(&mut self, at: usize) -> (Vec<u8>, Branch) {
        let children = self.children.split_off(at);
        self.children.shrink_to_fit();
        let right = self.separators.split_off(at);
        // The last separator on the left now has no child on its right, so it moves up to the parent.
        let up = self.separators.split_off(at - 1);
        (up.bytes, Branch { separators: right, children })
    }

    /// Creates a branch over nodes, each with the separator before it; the first separator is ignored.
    pub fn over(nodes: Vec<(Vec<u8>, Child)>) -> Branch {
        let mut branch = Branch { separators: Keys::default(), children: Vec::with_capacity(nodes.len()) };
        for (separator, child) in nodes {
            if !branch.children.is_empty() {
                branch.separators.insert(branch.separators.len(), &separator);
            }
            branch.children.push(child);
        }
        branch
    }

    /// Removes child `at` and one of the separators next to it.
    pub fn remove(&mut self, at: usize) {
        self.children.remove(at);
        if self.separators.len() > 0 {
            self.separators.remove(at.saturating_sub(1));
        }
    }

    /// Merges children `at` and `at + 1` into one node.
    pub fn merge(&mut self, at: usize) {
        let right = self.children.remove(at + 1);
        let separator = self.separators.get(at).to_vec();
        self.separators.remove(at);
        let left = &mut self.children[at];
        left.live += right.live;
        match (Arc::make_mut(&mut left.node), &*right.node) {
            (Node::Leaf(left), Node::Leaf(right)) => {
                left.keys.append(&right.keys);
                left.slots.reserve_exact(right.slots.len());
                left.slots.extend_from_slice(&right.slots);
            }
            (Node::Branch(left), Node::Branch(right)) => {
                left.separators.insert(left.separators.len(), &separator);
                left.separators.append(&right.separators);
                left.children.extend_from_slice(&right.children);
            }
            _ => unreachable!("children of one branch are at the same depth"),
        }
    }

    /// Returns the child if the branch has exactly one.
    pub fn only_child(&self) -> Option<&Arc<Node>> {
        match &self.children[..] {
            [child] => Some(&child.node),
            _ => None,
        }
    }

    /// Returns the number of live keys below all children.
    pub fn live(&self) -> u64 {
        self.children.iter().map(|child| child.live).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_search_finds_keys_with_any_common_prefix() {
        let mut strings: Vec<Vec<u8>> =
            vec![vec![], vec![0], vec![0; 7], vec![0; 8], vec![0; 9], vec![0xff; 20]];
        for prefix in ["", "a", "pods/defa", "pods/default/web-00"] {
            for end in ["", "\0", "0", "00000000", "00000001", "0000000", "12345678", "123456789", "z"] {
                strings.push(format!("{prefix}{end}").into());
            }
        }
        strings.sort();
        strings.dedup();
        for step in 1..4 {
            let there: Vec<_> = strings.iter().step_by(step).collect();
            let mut keys = Keys::default();
            there.iter().enumerate().for_each(|(at, string)| keys.insert(at, string));
            for string in &strings {
                assert_eq!(keys.search(string), there.binary_search(&string), "{string:?} of every {step}");
            }
        }
    }
}
