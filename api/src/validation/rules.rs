//! The rules of single kinds, in one table: by kind, what is always checked, what an update may not do, and what is
//! normalised first. A kind without a line here has only the general checks.

mod config;
mod pod;
mod pod_update;
mod rbac;
mod selector;
mod service;
mod storage;
mod various;
mod workload;

use super::path::Path;
use crate::field::FieldError;
use crate::json::{Object, Value};
use crate::naming::Naming;
use crate::schema::scalars::quantity::Quantity;
use crate::schema::table::Message;

/// What a rule sees, and where it puts what is wrong.
pub(super) struct Check<'c> {
    pub(super) naming: &'c Naming,
    pub(super) object: &'c Object,
    pub(super) errors: &'c mut Vec<FieldError>,
}

/// The rules of one kind.
#[derive(Default)]
pub(super) struct Rules {
    /// Before validation.
    pub(super) prepare: Option<fn(&mut Object, Option<&Object>)>,
    /// On create and on update.
    pub(super) always: &'static [fn(&mut Check)],
    /// On update, beside the stored object.
    pub(super) update: &'static [fn(&mut Check, &Object)],
}

/// The rules of a kind, by the package and name of its type.
pub(super) fn of(message: &Message) -> Rules {
    let none = Rules::default();
    match (message.package, message.name) {
        ("api.core.v1", "ConfigMap") => {
            Rules { always: &[config::config_map], update: &[config::config_map_update], ..none }
        }
        ("api.core.v1", "Secret") => Rules {
            prepare: Some(config::merge_string_data),
            always: &[config::secret],
            update: &[config::secret_update],
        },
        ("api.core.v1", "Pod") => Rules { always: &[pod::pod], update: &[pod_update::pod], ..none },
        ("api.core.v1", "PodTemplate") => Rules { always: &[workload::pod_template], ..none },
        ("api.core.v1", "ReplicationController") => {
            Rules { always: &[workload::replication_controller], ..none }
        }
        ("api.core.v1", "Service") => {
            Rules { always: &[service::service], update: &[service::service_update], ..none }
        }
        ("api.core.v1", "Event") => Rules { always: &[various::event], ..none },
        ("api.core.v1", "LimitRange") => Rules { always: &[various::limit_range], ..none },
        ("api.core.v1", "ResourceQuota") => Rules { always: &[various::resource_quota], ..none },
        ("api.core.v1", "Node") => {
            Rules { always: &[various::node], update: &[various::node_update], ..none }
        }
        ("api.core.v1", "PersistentVolume") => {
            Rules { always: &[storage::volume], update: &[storage::volume_update], ..none }
        }
        ("api.core.v1", "PersistentVolumeClaim") => {
            Rules { always: &[storage::claim], update: &[storage::claim_update], ..none }
        }
        ("api.apps.v1", "Deployment") => Rules { always: &[workload::deployment], ..none },
        ("api.apps.v1", "ReplicaSet") => Rules { always: &[workload::replica_set], ..none },
        ("api.apps.v1", "DaemonSet") => Rules { always: &[workload::daemon_set], ..none },
        ("api.apps.v1", "StatefulSet") => {
            Rules { always: &[workload::stateful_set], update: &[workload::stateful_set_update], ..none }
        }
        ("api.batch.v1", "Job") => {
            Rules { always: &[workload::job], update: &[workload::job_update], ..none }
        }
        ("api.batch.v1", "CronJob") => Rules { always: &[workload::cron_job], ..none },
        ("api.autoscaling.v2", "HorizontalPodAutoscaler") => Rules { always: &[various::autoscaler], ..none },
        ("api.coordination.v1", "Lease") => Rules { always: &[various::lease], ..none },
        ("api.networking.v1", "Ingress") => Rules { always: &[various::ingress], ..none },
        ("api.networking.v1", "NetworkPolicy") => Rules { always: &[various::network_policy], ..none },
        ("api.policy.v1", "PodDisruptionBudget") => Rules { always: &[various::disruption_budget], ..none },
        ("api.scheduling.v1", "PriorityClass") => Rules { always: &[various::priority_class], ..none },
        ("api.rbac.v1", "Role") => Rules { always: &[rbac::role], ..none },
        ("api.rbac.v1", "ClusterRole") => Rules { always: &[rbac::cluster_role], ..none },
        ("api.rbac.v1", "RoleBinding") => {
            Rules { always: &[rbac::role_binding], update: &[rbac::binding_update], ..none }
        }
        ("api.rbac.v1", "ClusterRoleBinding") => {
            Rules { always: &[rbac::cluster_role_binding], update: &[rbac::binding_update], ..none }
        }
        (package, "APIService") if package.ends_with(".apiregistration.v1") => {
            Rules { always: &[various::api_service], ..none }
        }
        _ => none,
    }
}

/// Paths among the tables' `immutable` that the reference server refuses in other words.
pub(super) fn other_words(message: &Message, path: &str) -> Option<&'static str> {
    Some(match (message.name, path) {
        ("StorageClass", "parameters") => "updates to parameters are forbidden.",
        ("StorageClass", "provisioner") => "updates to provisioner are forbidden.",
        ("StorageClass", "reclaimPolicy") => "updates to reclaimPolicy are forbidden.",
        ("PriorityClass", "value") => "may not be changed in an update.",
        _ => return None,
    })
}

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// A top-level member that is there.
fn top<'o>(object: &'o Object, name: &str) -> Option<&'o Value> {
    object.get(name).filter(|value| !value.is_null())
}

fn not_negative(path: &Path, value: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let Some(value @ Value::Int(..0)) = value {
        errors.push(FieldError::invalid(path, value, NOT_NEGATIVE));
    }
}

/// Refuses negative quantities in a resource list.
fn no_negative_quantities(path: &Path, list: Option<&Value>, errors: &mut Vec<FieldError>) {
    for (name, text) in members(list) {
        if text.as_str().and_then(|text| Quantity::parse(text).ok()).is_some_and(Quantity::is_negative) {
            errors.push(FieldError::invalid(path.key(name), text, NOT_NEGATIVE));
        }
    }
}

/// The members of a map, none if it is absent.
fn members(map: Option<&Value>) -> impl Iterator<Item = (&str, &Value)> {
    map.and_then(Value::as_object).into_iter().flat_map(Object::iter)
}

/// The elements of a list member, none if it is absent.
fn items<'v>(value: Option<&'v Value>, name: &str) -> &'v [Value] {
    value.and_then(|value| value.get(name)).and_then(Value::as_array).unwrap_or_default()
}

/// The text of a member, empty if it is absent.
fn text<'v>(value: Option<&'v Value>, name: &str) -> &'v str {
    value.and_then(|value| value.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// A member that is there.
fn given<'v>(value: Option<&'v Value>, name: &str) -> Option<&'v Value> {
    value.and_then(|value| value.get(name)).filter(|value| !value.is_null())
}

/// A quantity member.
fn quantity(value: Option<&Value>) -> Option<Quantity> {
    Quantity::parse(value?.as_str()?).ok()
}

/// `Unsupported value` with the supported ones in this order.
fn not_supported(path: &Path, value: &Value, supported: &[&str]) -> FieldError {
    FieldError::not_supported(path, value, supported)
}
