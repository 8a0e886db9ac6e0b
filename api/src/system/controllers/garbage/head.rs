//! The part of a stored object that the collector reads: its identity, its owners, and whether it waits for
//! its dependents.
//!
//! Stored objects begin with `kind`, `apiVersion` and `metadata`, so nothing after the metadata is read. Most
//! objects have no owner and do not wait for dependents; [`Head::of_interest`] detects this without parsing.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;

use crate::writes::write::deletion::{FOREGROUND, ORPHAN};
use types::attributes::Attributes;

/// Searches for the metadata member. Preparing a search takes as long as searching a small object, so the
/// search is prepared only once.
static METADATA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"metadata\":"));
static OWNERS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"ownerReferences\":"));

/// The fields of `metadata` that the collector needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Head {
    /// Uid of the object.
    pub uid: String,
    /// Owner references, in order.
    pub owner_references: Vec<OwnerReference>,
    finalizers: Vec<String>,
    deletion_timestamp: String,
}

/// An owner reference in `metadata`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner's kind.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner, which is in the namespace of its dependent or cluster-scoped.
    pub name: String,
    /// Uid of the owner.
    pub uid: String,
    /// Whether a foreground deletion of the owner waits for the dependent.
    pub block_owner_deletion: bool,
}

/// The reason why a deleted object waits for the collector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The object waits until its dependents no longer refer to it.
    Orphan,
    /// The object waits until its blocking dependents are deleted.
    Foreground,
}

impl Head {
    /// Reads a stored value; `None` if its metadata cannot be read.
    pub fn read(value: &[u8]) -> Option<Head> {
        let at = METADATA.find(value)? + METADATA.needle().len();
        // The stream deserializer stops after the first value, and the bytes after this value are not needed.
        serde_json::Deserializer::from_slice(&value[at..]).into_iter().next()?.ok()
    }

    /// Returns the head of a stored state that has owners or may wait for its dependents; `None` for all other
    /// states.
    pub fn of_interest(attributes: &[u8], value: &[u8]) -> Option<Head> {
        let attributes = Attributes::new(attributes);
        let may_wait = attributes.is_deleting() && attributes.has_finalizers();
        // The text may also occur in another member of the object. The head then has no owners, and the filter below
        // returns `None`.
        if !may_wait && OWNERS.find(value).is_none() {
            return None;
        }
        Head::read(value).filter(|head| !head.owner_references.is_empty() || head.ending().is_some())
    }

    /// Returns whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        !self.deletion_timestamp.is_empty()
    }

    /// Returns the reason why the object waits, if the object is being deleted. If the object has both
    /// finalizers, orphaning comes first.
    pub fn ending(&self) -> Option<Ending> {
        if !self.is_deleting() {
            return None;
        }
        [(ORPHAN, Ending::Orphan), (FOREGROUND, Ending::Foreground)]
            .into_iter()
            .find(|(name, _)| self.has_finalizer(name))
            .map(|(_, ending)| ending)
    }

    /// Returns whether the object has this finalizer.
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_an_object_is_read_without_the_rest() {
        for (text, want) in [
            (r#"{"kind":"K","metadata":{"uid":"u","finalizers":["orphan"]},"spec":"#, Some(("u", None))),
            (
                r#"{"metadata":{"uid":"u","deletionTimestamp":"2020-01-01T00:00:00Z","finalizers":["x","orphan"]}}"#,
                Some(("u", Some(Ending::Orphan))),
            ),
            (
                r#"{"metadata":{"deletionTimestamp":"t","finalizers":["foregroundDeletion"]}}"#,
                Some(("", Some(Ending::Foreground))),
            ),
            (r#"{"metadata":{}}"#, Some(("", None))),
            (r#"{"metadata":7}"#, None),
            (r#"{"metadata":{"uid":"#, None),
            ("", None),
        ] {
            let head = Head::read(text.as_bytes());
            let got = head.as_ref().map(|head| (head.uid.as_str(), head.ending()));
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn objects_without_owners_and_deletion_are_not_tracked() {
        for (text, interesting) in [
            (r#"{"metadata":{"uid":"u"},"spec":{}}"#, false),
            (r#"{"metadata":{"uid":"u"},"data":{"ownerReferences":"x"}}"#, false),
            (r#"{"metadata":{"uid":"u","ownerReferences":[{"uid":"o"}]}}"#, true),
        ] {
            assert_eq!(Head::of_interest(b"", text.as_bytes()).is_some(), interesting, "{text}");
        }
    }
}
