//! The plugins AlwaysAdmit and AlwaysDeny.

use super::plugin::{Plugin, Step, Target};
use super::record::{Record, Review};
use values::json::Object;

/// Allows everything, and so is never asked.
pub struct Admit;

impl Plugin for Admit {
    fn handles(&self, _: &Target<'_>) -> bool {
        false
    }
}

/// Refuses every write.
pub struct Deny;

impl Plugin for Deny {
    fn handles(&self, _: &Target<'_>) -> bool {
        true
    }

    fn reads_objects(&self) -> bool {
        false
    }

    fn mutate<'p>(&'p self, record: &'p mut Record<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        Err(record.forbidden("admission control is denying all modifications")).into()
    }
}
