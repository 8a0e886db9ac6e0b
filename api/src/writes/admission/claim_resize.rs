//! The plugin PersistentVolumeClaimResize: a claim may grow only if the claim is bound and its storage class
//! allows expansion.

use std::sync::Arc;

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::object::at;
use values::status::Status;

/// The admission plugin PersistentVolumeClaimResize.
pub struct ClaimResize {
    store: Arc<ObjectStorage>,
    classes: Arc<Resource>,
    /// The annotation that named the class before the field existed.
    annotation: String,
}

impl ClaimResize {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> ClaimResize {
        ClaimResize {
            classes: server.types.resource("storage", "v1", "storageclasses"),
            annotation: format!("volume.beta.{}/storage-class", server.types.naming.domain),
            store: server.store.clone(),
        }
    }

    fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let (Some(new), Some(old)) = (record.new, record.old) else { return Ok(()) };
        let size = |claim: &Object| at(claim, "spec.resources.requests.storage").and_then(pod::quantity);
        let grows = match (size(new), size(old)) {
            (Some(new), Some(old)) => new > old,
            (Some(new), None) => !new.is_zero(),
            (None, _) => false,
        };
        if !grows {
            return Ok(());
        }
        if at(old, "status.phase").and_then(Value::as_str) != Some("Bound") {
            return Err(record.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = self.class(new);
        if class.is_empty() || class != self.class(old) || !self.allows(class)? {
            return Err(record.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                 support resize",
            ));
        }
        Ok(())
    }

    fn class<'c>(&self, claim: &'c Object) -> &'c str {
        pod::annotation(claim, &self.annotation).unwrap_or_else(|| pod::text(claim, "storageClassName"))
    }

    fn allows(&self, class: &str) -> Result<bool, Status> {
        let class = self.store.get(&self.classes, "", class)?;
        let allows = class.as_ref().and_then(|class| class.get("allowVolumeExpansion"));
        Ok(allows.and_then(Value::as_bool).unwrap_or(false))
    }
}

impl Plugin for ClaimResize {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.operation == Operation::Update && target.is("", "persistentvolumeclaims")
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        self.check(record).into()
    }
}
