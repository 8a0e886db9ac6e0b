//! Validation rules written in code: those that types name in the schema (option `rule`), and update rules per kind.
//!
//! One topic per file. Checks that the schema can declare are not here.

mod admission;
mod autoscaling;
mod certificates;
mod common;
mod config;
mod container;
mod cron;
mod devices;
mod endpoints;
mod environment;
mod extension;
mod flow;
mod job;
mod job_status;
mod networking;
mod placement;
mod pod;
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
mod various;
pub(super) mod view;
mod volume;
mod workload;

use view::View;

use super::path::Path;
use super::{Validator, forms};
use crate::json::Object;
use crate::schema::table::Message;

/// Checks a struct at a path. Its members were checked before.
pub(super) type Rule = fn(&mut Validator, &Path, View);

/// Checks the new state of an object beside the stored one.
pub(super) type UpdateRule = fn(&mut Validator, View, View);

include!(concat!(env!("OUT_DIR"), "/rules.rs"));

/// The check that a type names.
pub(super) fn of(message: &Message) -> Option<Rule> {
    RULES.get(usize::from(message.rule.checked_sub(1)?)).copied()
}

/// The normalisation of a type's objects before validation.
pub(super) fn preparation(message: &Message) -> Option<fn(&mut Object, Option<&Object>)> {
    match (&*message.package, &*message.name) {
        ("api.core.v1", "Secret") => Some(config::merge_string_data),
        _ => None,
    }
}

/// The update rule of a kind for a subresource; for the resource itself when it is empty.
pub(super) fn on_update(message: &Message, subresource: &str) -> &'static [UpdateRule] {
    if !subresource.is_empty() {
        return match (&*message.package, &*message.name, subresource) {
            ("api.core.v1", "Pod", "ephemeralcontainers") => &[pod_subresource::ephemeral_containers],
            ("api.certificates.v1", "CertificateSigningRequest", "approval") => &[certificates::approval],
            ("api.core.v1", "Pod", "resize") => &[pod_subresource::resize],
            _ => &[],
        };
    }
    match (&*message.package, &*message.name) {
        ("api.core.v1", "ConfigMap") => &[config::config_map_update],
        ("api.core.v1", "Secret") => &[config::secret_update],
        ("api.core.v1", "Pod") => &[pod_update::pod],
        ("api.core.v1", "Service") => &[service::service_update],
        ("api.core.v1", "Node") => &[various::node_update],
        ("api.core.v1", "PersistentVolume") => &[storage::volume_update],
        ("api.core.v1", "PersistentVolumeClaim") => &[storage::claim_update],
        ("api.apps.v1", "StatefulSet") => &[workload::stateful_set_update],
        ("api.batch.v1", "Job") => &[job::job_update],
        ("api.networking.v1", "ServiceCIDR") => &[networking::service_networks_update],
        ("api.storage.v1", "CSINode") => &[storage_class::node_drivers_update],
        (package, "CustomResourceDefinition") if package.ends_with(".apiextensions.v1") => {
            &[extension::definition_update]
        }
        ("api.rbac.v1", "RoleBinding" | "ClusterRoleBinding") => &[rbac::binding_update],
        _ => &[],
    }
}

/// How the reference server refuses a change of some paths among the tables' `immutable`.
pub(super) enum Words {
    /// `Forbidden`, with this detail.
    Forbidden(&'static str),
    /// As an update rule of the kind has it.
    Code,
}

/// Paths among the tables' `immutable` that are refused with another message than usual.
pub(super) fn other_words(message: &Message, path: &str) -> Option<Words> {
    Some(match (&*message.name, path) {
        ("StorageClass", "parameters") => Words::Forbidden("updates to parameters are forbidden."),
        ("StorageClass", "provisioner") => Words::Forbidden("updates to provisioner are forbidden."),
        ("StorageClass", "reclaimPolicy") => Words::Forbidden("updates to reclaimPolicy are forbidden."),
        ("PriorityClass", "value") => Words::Forbidden("may not be changed in an update."),
        ("RoleBinding" | "ClusterRoleBinding", "roleRef")
        | ("PersistentVolume" | "PersistentVolumeClaim", "spec.volumeMode") => Words::Code,
        _ => return None,
    })
}
