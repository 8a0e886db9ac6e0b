//! Checks in code, which types name in the schema files (options `rule`, `update_rule`, `normalization`). One topic a
//! file; what a line in a schema can say is not here.

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

use view::View;

use super::path::Path;
use super::{Validator, forms};
use crate::types::schema::table::{Message, ResourceTable};
use crate::values::json::Object;

/// Checks a struct at a path. Its members were checked before.
pub(super) type Rule = fn(&mut Validator, &Path, View);

/// Checks the new state of an object beside the stored one.
pub(super) type UpdateRule = fn(&mut Validator, View, View);

include!(concat!(env!("OUT_DIR"), "/rules.rs"));

/// Brings a new object, or one that replaces the second, into the form that validation and the store know.
pub(super) type Normalization = fn(&mut Object, Option<&Object>);

/// Returns the check that a type names.
pub(super) fn of(message: &Message) -> Option<Rule> {
    named(RULES, message.rule)
}

/// Returns the normalization that a kind names.
pub(super) fn normalization(resource: &ResourceTable) -> Option<Normalization> {
    named(NORMALIZATIONS, resource.behavior.normalization)
}

/// Returns the check that a kind names for updates through a subresource; through the resource itself when it
/// is empty.
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
