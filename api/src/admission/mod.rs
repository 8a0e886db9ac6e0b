//! Admission: what may refuse (later: change) a write that authorization allowed. The order of the plugins is
//! the order of the calls below; each plugin has its own file.

pub mod namespace_lifecycle;

use crate::json::Object;
use crate::status::Status;
use crate::verbs::Call;

/// Runs the plugins for an object about to be created; `object` has its name (unless generated) and namespace.
pub fn create(call: &Call<'_>, object: &Object) -> Result<(), Status> {
    namespace_lifecycle::create(call, object)
}

/// Runs the plugins for an object about to be updated.
pub fn update(call: &Call<'_>) -> Result<(), Status> {
    namespace_lifecycle::update(call)
}

/// Runs the plugins for an object about to be deleted.
pub fn delete(call: &Call<'_>, name: &str) -> Result<(), Status> {
    namespace_lifecycle::delete(call, name)
}
