//! The plugin OwnerReferencesPermissionEnforcement. The owners of an object decide when garbage collection
//! removes the object, so a user who sets owners must be allowed to delete the object. A user who blocks the
//! deletion of an owner must be allowed to update the finalizers of that owner.

use std::sync::Arc;

use auth::Attributes;

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use crate::writes::server::access::AccessControl;
use crate::writes::server::types::TypeCatalog;
use objects::validation::StructView;
use values::json::Object;
use values::status::Status;

/// The admission plugin OwnerReferencesPermissionEnforcement.
pub struct OwnerReferencesPermissionEnforcement {
    types: Arc<TypeCatalog>,
    access: Arc<AccessControl>,
}

impl OwnerReferencesPermissionEnforcement {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> OwnerReferencesPermissionEnforcement {
        OwnerReferencesPermissionEnforcement { types: server.types.clone(), access: server.access.clone() }
    }

    async fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        // A create needs no additional permission, because the creator of an object may set its owners.
        if record.write.operation != Operation::Create {
            let attributes = Attributes {
                verb: "delete",
                resource_request: true,
                group: &record.write.resource.group,
                version: &record.write.resource.version,
                resource: &record.write.resource.table.plural,
                subresource: record.subresource,
                namespace: record.write.namespace,
                name: record.write.name,
                ..Attributes::path(record.write.user, "", "")
            };
            let decision = self.access.authorizer.decide(&attributes).await.decision;
            if !decision.is_allowed() {
                let reason = decision.reason();
                return Err(record.forbidden(&format!(
                    "cannot set an ownerRef on a resource you can't delete: {reason}, <nil>"
                )));
            }
        }
        for owner in newly_blocking(record) {
            self.check_blocking(record, owner).await?;
        }
        Ok(())
    }

    /// Checks that the user may block the deletion of an owner. The user needs the permission to set a
    /// finalizer on the owner.
    async fn check_blocking(
        &self,
        record: &AdmissionRecord<'_, &Object>,
        owner: StructView<'_>,
    ) -> Result<(), Status> {
        let (api_version, kind) = (owner.text("apiVersion"), owner.text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let served = self.types.now();
        let Some(resource) = served.registry().by_kind(group, version, kind) else {
            return Err(record.forbidden(&format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} \
                 Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
            )));
        };
        let attributes = Attributes {
            verb: "update",
            resource_request: true,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.table.plural,
            subresource: "finalizers",
            namespace: if resource.namespaced() { record.write.namespace } else { "" },
            name: owner.text("name"),
            ..Attributes::path(record.write.user, "", "")
        };
        let decision = self.access.authorizer.decide(&attributes).await.decision;
        if decision.is_allowed() {
            return Ok(());
        }
        let reason = decision.reason();
        Err(record.forbidden(&format!(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: \
             {reason}, <nil>"
        )))
    }
}

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn handles(&self, target: &Target<'_>) -> bool {
        // The status of pods is exempt, because node agents write the status and may not delete pods.
        let is_pod_status = target.resource.is_of("", "pods") && target.subresource == "status";
        matches!(target.operation, Operation::Create | Operation::Update) && !is_pod_status
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        if owners(record.new) == owners(record.old) {
            return Ok(()).into();
        }
        Step::wait(self.check(record))
    }
}

fn owners(object: Option<&Object>) -> &[values::json::Value] {
    object.map_or(&[], |object| StructView::from_object(object).child("metadata").items("ownerReferences"))
}

/// Returns the owners whose deletion is blocked by the new object but not by the old object.
fn newly_blocking<'r>(record: &AdmissionRecord<'r, &'r Object>) -> Vec<StructView<'r>> {
    let blocking = |object: Option<&'r Object>| {
        let owners = owners(object).iter().map(|owner| StructView::from(Some(owner)));
        owners.filter(|owner| owner.is_true("blockOwnerDeletion"))
    };
    let was = |uid: &str| blocking(record.old).any(|owner| owner.text("uid") == uid);
    blocking(record.new).filter(|owner| !was(owner.text("uid"))).collect()
}
