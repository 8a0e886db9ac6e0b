//! Conversion between the versions of a kind that share one storage.
//!
//! ```text
//! autoscaling/v1 HorizontalPodAutoscaler ──to_stored──► autoscaling/v2 HorizontalPodAutoscaler
//! events v1 Event                        ◄─to_served──  core/v1 Event
//! ```
//!
//! An object is stored in one version and served in each; values without a field in a version are kept in annotations,
//! so that a round trip loses nothing. If the served version is the stored one, the usual case, conversion is the
//! identity. The resulting tree is canonical for its type, whatever order the input had. Nothing here knows requests or
//! bytes.

mod autoscaling;
mod events;

#[cfg(test)]
mod convert_test;

use crate::json::{Object, Value};
use crate::naming::Naming;
use crate::schema::conform::conform;
use crate::schema::registry::{Resource, Storage};
use crate::schema::table::Message;
use crate::status::Status;

/// How a served version differs from the stored one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    /// No difference.
    Identity,
    /// Only the `apiVersion`: one type under two names.
    Rename,
    /// autoscaling/v1 and v2.
    Autoscaler,
    /// The Event of the events group and that of the core group.
    Event,
}

impl Rule {
    fn of(resource: &Resource) -> Option<Rule> {
        let Some(storage) = &resource.storage else { return Some(Rule::Identity) };
        if resource.is_stored_form() {
            return Some(Rule::Identity);
        }
        match (&*resource.table.kind, &*resource.version) {
            ("HorizontalPodAutoscaler", "v1") if resource.group == storage.group => Some(Rule::Autoscaler),
            ("Event", "v1") if resource.group != storage.group => Some(Rule::Event),
            _ => resource.table.message.is(&storage.message).then_some(Rule::Rename),
        }
    }
}

/// Converts an object from its stored form to the version of `resource`.
///
/// # Errors
/// 500 if the object does not have the stored type, or if no conversion between the two versions exists, which is a
/// mistake in the schema that the tests detect.
pub fn to_served(resource: &Resource, object: Object, naming: &Naming) -> Result<Object, Status> {
    let Some((rule, _)) = step(resource)? else { return Ok(object) };
    let converted = match rule {
        Rule::Identity | Rule::Rename => object,
        Rule::Autoscaler => autoscaling::to_v1(object, naming),
        Rule::Event => events::from_core(object),
    };
    finish(&resource.table.message, &resource.api_version, converted)
}

/// Converts an object in the version of `resource` to its stored form.
///
/// # Errors
/// As [`to_served`].
pub fn to_stored(resource: &Resource, object: Object, naming: &Naming) -> Result<Object, Status> {
    let Some((rule, storage)) = step(resource)? else { return Ok(object) };
    let converted = match rule {
        Rule::Identity | Rule::Rename => object,
        Rule::Autoscaler => autoscaling::to_v2(object, naming),
        Rule::Event => events::to_core(object),
    };
    finish(&storage.message, &storage.api_version, converted)
}

/// The rule between the versions; `None` if there is nothing to do.
fn step(resource: &Resource) -> Result<Option<(Rule, &Storage)>, Status> {
    match (Rule::of(resource), &resource.storage) {
        (Some(Rule::Identity), _) | (Some(_), None) => Ok(None),
        (Some(rule), Some(storage)) => Ok(Some((rule, storage))),
        (None, _) => {
            let (kind, version) = (&resource.table.kind, &resource.api_version);
            Err(Status::internal(format!("no conversion between {version} {kind} and its stored version")))
        }
    }
}

/// Sets the version and brings the members into the form and order of the type.
fn finish(message: &Message, api_version: &str, mut object: Object) -> Result<Object, Status> {
    object.insert("apiVersion", api_version.into());
    let decoded = conform(message, Value::Object(object)).map_err(Status::internal)?;
    Ok(decoded.object)
}
