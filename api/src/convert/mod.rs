//! Conversion between the versions of a kind that share one storage.
//!
//! ```text
//! autoscaling/v1 HorizontalPodAutoscaler ──to_stored──► autoscaling/v2 HorizontalPodAutoscaler
//! events v1 Event                        ◄─to_served──  core/v1 Event
//! ```
//!
//! An object is stored in one version and served in each; what a version has no field for is kept in annotations, so
//! that nothing is lost on the way there and back. Where the served version is the stored one, which is nearly
//! always, conversion is the identity. The tree that comes out is canonical for its type, whatever order it had.
//! Nothing here knows requests or bytes.

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

/// How a served version and the stored one differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    /// In nothing.
    Identity,
    /// In their `apiVersion` only: one type under two names.
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

/// The object in the version of `resource`, made from its stored form.
///
/// # Errors
/// 500 when the object is not of the stored type, or when there is no conversion between the two versions, which is
/// a slip in the schema that the tests find.
pub fn to_served(resource: &Resource, object: Object, naming: &Naming) -> Result<Object, Status> {
    let Some((rule, _)) = step(resource)? else { return Ok(object) };
    let converted = match rule {
        Rule::Identity | Rule::Rename => object,
        Rule::Autoscaler => autoscaling::to_v1(object, naming),
        Rule::Event => events::from_core(object),
    };
    finish(&resource.table.message, &resource.api_version, converted)
}

/// The stored form of an object in the version of `resource`.
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

/// The rule between the versions; `None` where there is nothing to do.
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

/// Names the version and brings the members into the form and order of the type.
fn finish(message: &Message, api_version: &str, mut object: Object) -> Result<Object, Status> {
    object.insert("apiVersion", api_version.into());
    let decoded = conform(message, Value::Object(object)).map_err(Status::internal)?;
    Ok(decoded.object)
}
