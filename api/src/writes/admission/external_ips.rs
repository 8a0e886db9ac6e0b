//! The plugin DenyServiceExternalIPs: services may get no new external addresses. With an external address, a
//! writer of services could take over traffic.

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use objects::validation::StructView;
use values::json::Object;

/// The admission plugin DenyServiceExternalIPs.
pub struct DenyServiceExternalIps;

impl Plugin for DenyServiceExternalIps {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update) && target.is("", "services")
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        let addresses = |object: Option<&'p Object>| {
            let spec = object.map(|object| StructView::from_object(object).child("spec"));
            spec.into_iter().flat_map(|spec| spec.texts("externalIPs"))
        };
        // Addresses that a service already has may stay or be removed.
        let is_new = |address| addresses(record.old).all(|known| known != address);
        let refused = addresses(record.new).any(is_new);
        let why = "Use of external IPs is denied by admission control";
        if refused { Err(record.forbidden(why)) } else { Ok(()) }.into()
    }
}
