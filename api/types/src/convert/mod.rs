//! Conversion between the versions of a kind that share one storage.
//!
//! ```text
//! autoscaling/v1 HorizontalPodAutoscaler ──to_stored──► autoscaling/v2 HorizontalPodAutoscaler
//! events v1 Event                        ◄─to_served──  core/v1 Event
//! networking/v1beta1 IPAddress           ◄───same────►  networking/v1 IPAddress
//! resource/v1beta1 ResourceClaim         ◄─to_served──  resource/v1 ResourceClaim
//! ```
//!
//! An object is stored in one version and served in each version. Values without a field in a version are
//! stored in annotations, so that a round trip loses nothing. Usually the served version is the stored version, and the
//! conversion is the identity. The resulting tree is canonical for its type, regardless of the order in the input. This
//! module depends on neither requests nor encodings. The module `conversion` converts between versions of custom types.

pub mod autoscaling;
mod devices;
mod events;
pub mod ingress;

#[cfg(test)]
mod convert_test;

use crate::schema::conform::conform;
use crate::schema::registry::{Resource, Storage};
use crate::schema::table::Message;
use values::json::{Object, Value};
use values::naming::Naming;
use values::status::Status;

include!(concat!(env!("OUT_DIR"), "/conversions.rs"));

/// The conversion between a served version and the stored version, if the versions differ in more than their
/// names.
struct Conversion {
    to_served: fn(Object, &Naming) -> Object,
    to_stored: fn(Object, &Naming) -> Object,
}

/// Conversion between autoscaling/v1 and v2.
const AUTOSCALER: Conversion = Conversion { to_served: autoscaling::to_v1, to_stored: autoscaling::to_v2 };

/// Conversion between the Event of the events group and the Event of the core group.
const EVENT: Conversion = Conversion {
    to_served: |event, _| events::from_core(event),
    to_stored: |event, _| events::to_core(event),
};

/// Conversion between versions whose types have the same members.
const SAME: Conversion = Conversion { to_served: |object, _| object, to_stored: |object, _| object };

/// The difference between a served version and the stored version.
enum Step<'r> {
    /// The versions are equal.
    Identity,
    /// Only the `apiVersion` differs: one type under two names.
    Rename(&'r Storage),
    /// The members of the objects also differ.
    Convert(&'static Conversion, &'r Storage),
}

/// Converts an object from its stored form to the version of `resource`.
///
/// # Errors
/// 500 if the object does not have the stored type, or if there is no conversion between the two versions. A
/// missing conversion is a mistake in the schema; the tests detect it.
pub fn to_served(resource: &Resource, object: Object, naming: &Naming) -> Result<Object, Status> {
    let converted = match step(resource)? {
        Step::Identity => return Ok(object),
        Step::Rename(_) => object,
        Step::Convert(conversion, _) => (conversion.to_served)(object, naming),
    };
    finish(&resource.table.message, &resource.api_version, converted)
}

/// Converts an object from the version of `resource` to its stored form.
///
/// # Errors
/// The same errors as [`to_served`].
pub fn to_stored(resource: &Resource, object: Object, naming: &Naming) -> Result<Object, Status> {
    let (storage, converted) = match step(resource)? {
        Step::Identity => return Ok(object),
        Step::Rename(storage) => (storage, object),
        Step::Convert(conversion, storage) => (storage, (conversion.to_stored)(object, naming)),
    };
    finish(&storage.message, &storage.api_version, converted)
}

fn step(resource: &Resource) -> Result<Step<'_>, Status> {
    let Some(storage) = &resource.storage else { return Ok(Step::Identity) };
    if resource.is_stored_form() {
        return Ok(Step::Identity);
    }
    let number = usize::from(resource.table.behavior.conversion);
    if let Some(conversion) = number.checked_sub(1).and_then(|at| CONVERSIONS.get(at)) {
        return Ok(Step::Convert(conversion, storage));
    }
    if resource.table.message.is(&storage.message) {
        return Ok(Step::Rename(storage));
    }
    let (kind, version) = (&resource.table.kind, &resource.api_version);
    Err(Status::internal(format!("no conversion between {version} {kind} and its stored version")))
}

/// Sets the version, and converts the members to the form and order of the type.
fn finish(message: &Message, api_version: &str, mut object: Object) -> Result<Object, Status> {
    object.insert("apiVersion", api_version.into());
    let decoded = conform(message, Value::Object(object)).map_err(Status::internal)?;
    Ok(decoded.object)
}
