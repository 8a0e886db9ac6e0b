//! Checks that are functions. Types refer to these functions in the schema files (options `rule`,
//! `update_rule`, `normalization`). Each file contains one topic. Checks that a schema can declare are not
//! repeated here.

mod admission;
mod autoscaling;
mod certificates;
mod common;
mod config;
mod container;
mod cron;
pub(super) mod definition;
mod devices;
mod endpoints;
mod environment;
mod event;
mod extension;
mod flow;
mod job;
mod job_status;
mod matched_requests;
mod networking;
mod placement;
mod pod;
mod pod_profiles;
mod pod_status;
mod pod_subresource;
mod pod_update;
mod quota;
mod rbac;
mod resources;
mod security;
mod selector;
mod service;
mod status;
mod storage;
mod storage_class;
mod time_zone;
mod various;
pub(super) mod view;
mod volume;
mod workload;

use view::StructView;

use super::path::FieldPath;
use super::{Validator, scalar_formats};
use types::schema::table::{Message, ResourceTable};
use values::json::Object;

/// Check of a struct at a path. The members of the struct are checked before.
pub(super) type StructCheck = fn(&mut Validator, &FieldPath, StructView);

/// Check of the new version of an object against the stored version.
pub(super) type UpdateRule = fn(&mut Validator, StructView, StructView);

include!(concat!(env!("SCHEMA_TABLES"), "/rules.rs"));

/// Function that converts a new object to the form that validation and the store expect. On an update, the
/// second object is the stored object.
pub(super) type Normalization = fn(&mut Object, Option<&Object>);

/// Returns the rule that a type declares, if there is one.
pub(super) fn check_of(message: &Message) -> Option<StructCheck> {
    named(RULES, message.rule)
}

/// Returns the normalization that a kind declares, if there is one.
pub(super) fn normalization(resource: &ResourceTable) -> Option<Normalization> {
    named(NORMALIZATIONS, resource.behavior.normalization)
}

/// Returns the rule of a kind for updates through a subresource. An empty `subresource` is the resource
/// itself.
pub(super) fn on_update(resource: &ResourceTable, subresource: &str) -> Option<UpdateRule> {
    if subresource.is_empty() {
        return named(UPDATE_RULES, resource.behavior.update_rule);
    }
    let table = resource.subresources.iter().find(|table| table.name == subresource)?;
    named(UPDATE_RULES, table.update_rule)
}

fn named<T: Copy>(list: &[T], number: u16) -> Option<T> {
    list.get(usize::from(number.checked_sub(1)?)).copied()
}
