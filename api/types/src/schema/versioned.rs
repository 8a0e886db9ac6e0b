//! The versions of a custom type: which one its objects are written to the store in, and how one becomes another.
//!
//! The server works with each version in its own form: objects are decoded, validated and shown by its schema. Between
//! that and the store stands a conversion (`objects::conversion`).

use super::table::{Ref, ResourceTable, Slot};

/// The versions of a type, and what converts objects between them.
#[derive(Debug)]
pub struct Versions {
    all: Vec<Version>,
    stored: usize,
    /// The webhook that converts, the business of `custom`; empty: only the `apiVersion` changes.
    pub webhook: Slot,
}

/// One version, whether it is served or not.
#[derive(Clone, Debug)]
pub struct Version {
    /// `apiVersion` of its objects.
    pub api_version: String,
    /// The type of its objects.
    pub table: Ref<ResourceTable>,
}

impl Versions {
    /// These versions, of which that at `stored` is the one to store objects in; `None` if there is none there.
    pub fn new(all: Vec<Version>, stored: usize, webhook: Slot) -> Option<Versions> {
        (stored < all.len()).then_some(Versions { all, stored, webhook })
    }

    /// The version that objects are written to the store in.
    pub fn stored(&self) -> &Version {
        &self.all[self.stored]
    }

    /// Whether a webhook converts.
    pub fn has_webhook(&self) -> bool {
        self.webhook.is_filled()
    }

    /// The place of a version among all, in the order of the definition; behind all of them for another one.
    pub fn place(&self, api_version: &str) -> usize {
        let place = self.all.iter().position(|version| version.api_version == api_version);
        place.unwrap_or(self.all.len())
    }

    /// The version of this `apiVersion`.
    pub fn get(&self, api_version: &str) -> Option<&Version> {
        self.all.iter().find(|version| version.api_version == api_version)
    }
}
