//! The plugin StorageObjectInUseProtection: new volume claims, volumes and attribute classes get a finalizer.
//! The controller with the same name removes the finalizer when the object is no longer used.

use crate::writes::plugin::{AdmissionRecord, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::Server;
use values::json::Object;
use values::naming::Naming;
use values::object::{finalizers, metadata_mut};

/// The protected resources: group, resource, and the name of the finalizer.
pub const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumeclaims", "pvc-protection"),
    ("", "persistentvolumes", "pv-protection"),
    ("storage", "volumeattributesclasses", "vac-protection"),
];

/// The admission plugin StorageObjectInUseProtection.
pub struct StorageProtection {
    naming: &'static Naming,
}

impl StorageProtection {
    /// Returns the plugin with the names of the naming profile.
    pub fn new(server: &Server) -> StorageProtection {
        StorageProtection { naming: server.types.naming }
    }
}

impl Plugin for StorageProtection {
    fn handles(&self, target: &Target<'_>) -> bool {
        PROTECTED.iter().any(|(group, plural, _)| target.creates(group, plural))
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        let protected =
            PROTECTED.iter().find(|(group, plural, _)| record.write.resource.is_of(group, plural));
        if let (Some((_, _, name)), Some(new)) = (protected, &mut record.new) {
            let finalizer = self.naming.label(name);
            if !finalizers(new).contains(&&*finalizer) {
                pod::append(metadata_mut(new), "finalizers", finalizer.into());
            }
        }
        Ok(()).into()
    }
}
