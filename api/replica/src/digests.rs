//! Digests of the contents of a store, which are used for comparing two stores after a move.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The digest of one resource: the number of its objects and a hash of their contents.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Digest {
    /// Number of objects of the resource.
    pub objects: u64,
    /// Hash of the keys and contents of the objects, in hexadecimal digits.
    pub sum: String,
}

/// Digests of a store by resource.
pub type Digests = BTreeMap<String, Digest>;

/// Computes the digests of a store.
#[derive(Default)]
pub struct Sums(BTreeMap<String, (u64, Sha256)>);

impl Sums {
    /// Adds an object of a resource. Objects of one resource must be added in the order of their keys.
    pub fn add(&mut self, resource: String, key: &[u8], content: &[u8]) {
        let (objects, sum) = self.0.entry(resource).or_default();
        *objects += 1;
        for part in [key, content] {
            sum.update((part.len() as u64).to_be_bytes());
            sum.update(part);
        }
    }

    /// Returns the digests of all added objects.
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
