//! Digests of what a store holds, by which two stores are compared after a move.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// What is of one resource: how many objects, and what they are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Digest {
    /// Objects.
    pub objects: u64,
    /// The sum of their keys and contents, in hexadecimal digits.
    pub sum: String,
}

/// By resource.
pub type Digests = BTreeMap<String, Digest>;

/// Digests in the making.
#[derive(Default)]
pub struct Sums(BTreeMap<String, (u64, Sha256)>);

impl Sums {
    /// Adds an object of a resource. Objects of one resource come in the order of their keys.
    pub fn add(&mut self, resource: String, key: &[u8], content: &[u8]) {
        let (objects, sum) = self.0.entry(resource).or_default();
        *objects += 1;
        for part in [key, content] {
            sum.update((part.len() as u64).to_be_bytes());
            sum.update(part);
        }
    }

    /// The digests of all that was added.
    pub fn finish(self) -> Digests {
        let digest = |(objects, sum): (u64, Sha256)| {
            let sum = sum.finalize().iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            Digest { objects, sum }
        };
        self.0.into_iter().map(|(resource, sums)| (resource, digest(sums))).collect()
    }
}
