//! The versions of a custom type: the storage version, and the conversion between versions.
//!
//! The server decodes, validates and serves the objects of each version by the schema of the version.
//! `objects::conversion` converts objects between this form and the stored form.

use super::table::{Ref, ResourceTable, Slot};

/// The versions of a type and the conversion between them.
#[derive(Debug)]
pub struct Versions {
    all: Vec<VersionedTable>,
    stored: usize,
    /// The conversion webhook; only `custom` uses it. If the slot is empty, only the `apiVersion` changes.
    pub webhook: Slot,
}

/// A version of a custom type. The version may be served or not.
#[derive(Clone, Debug)]
pub struct VersionedTable {
    /// `apiVersion` of the objects.
    pub api_version: String,
    /// Description of the version's objects.
    pub table: Ref<ResourceTable>,
}

impl Versions {
    /// Creates the set of versions `all`; `stored` is the position of the storage version. Returns `None` if
    /// that position does not exist.
    pub fn new(all: Vec<VersionedTable>, stored: usize, webhook: Slot) -> Option<Versions> {
        (stored < all.len()).then_some(Versions { all, stored, webhook })
    }

    /// Returns the version in which objects are written to the store.
    pub fn stored(&self) -> &VersionedTable {
        &self.all[self.stored]
    }

    /// Returns whether a webhook converts objects.
    pub fn has_webhook(&self) -> bool {
        self.webhook.is_filled()
    }

    /// Returns the position of a version in the order of the definition; an unknown version comes after all
    /// others.
    pub fn place(&self, api_version: &str) -> usize {
        let place = self.all.iter().position(|version| version.api_version == api_version);
        place.unwrap_or(self.all.len())
    }

    /// Returns the version with this `apiVersion`.
    pub fn get(&self, api_version: &str) -> Option<&VersionedTable> {
        self.all.iter().find(|version| version.api_version == api_version)
    }
}
