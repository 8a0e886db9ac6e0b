//! The plugin StorageObjectInUseProtection: new claims, volumes and attribute classes have a finalizer, which the
//! controller of the same name takes away once nothing uses them.

use super::{Lookup, Plugin, Record, Review, Step, Target, pod};
use values::json::Object;
use values::naming::Naming;
use values::object::{finalizers, metadata_mut};

/// What is protected: group, resource, and the name of its finalizer.
pub const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumeclaims", "pvc-protection"),
    ("", "persistentvolumes", "pv-protection"),
    ("storage", "volumeattributesclasses", "vac-protection"),
];

/// The plugin.
pub struct StorageProtection {
    naming: &'static Naming,
}

impl StorageProtection {
    /// The plugin.
    pub fn new(lookup: &Lookup) -> StorageProtection {
        StorageProtection { naming: lookup.naming }
    }
}

impl Plugin for StorageProtection {
    fn handles(&self, target: &Target<'_>) -> bool {
        PROTECTED.iter().any(|(group, plural, _)| target.creates(group, plural))
    }

    fn mutate<'p>(&'p self, record: &'p mut Record<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        let protected = PROTECTED.iter().find(|(group, plural, _)| record.resource.is_of(group, plural));
        if let (Some((_, _, name)), Some(new)) = (protected, &mut record.new) {
            let finalizer = self.naming.label(name);
            if !finalizers(new).contains(&&*finalizer) {
                pod::append(metadata_mut(new), "finalizers", finalizer.into());
            }
        }
        Ok(()).into()
    }
}
