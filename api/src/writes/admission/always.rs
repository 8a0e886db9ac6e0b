//! The plugins AlwaysAdmit and AlwaysDeny.

use crate::writes::plugin::Target;
use crate::writes::plugin::{AdmissionRecord, Review};
use crate::writes::plugin::{Plugin, Step};
use values::json::Object;

/// The admission plugin AlwaysAdmit, which allows all writes and therefore handles no write.
pub struct Admit;

impl Plugin for Admit {
    fn handles(&self, _: &Target<'_>) -> bool {
        false
    }
}

/// The admission plugin AlwaysDeny, which refuses every write.
pub struct Deny;

impl Plugin for Deny {
    fn handles(&self, _: &Target<'_>) -> bool {
        true
    }

    fn reads_objects(&self) -> bool {
        false
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        Err(record.forbidden("admission control is denying all modifications")).into()
    }
}
