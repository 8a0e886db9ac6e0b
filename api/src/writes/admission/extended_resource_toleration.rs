//! The plugin ExtendedResourceToleration: a pod that requests an extended resource tolerates the taint with
//! the name of the resource.

use std::collections::BTreeSet;

use super::toleration;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::Server;
use values::json::{Object, Value};

/// The admission plugin ExtendedResourceToleration.
pub struct ExtendedResourceToleration {
    domain: &'static str,
}

impl ExtendedResourceToleration {
    /// Returns the plugin with the names of the naming profile.
    pub fn new(server: &Server) -> ExtendedResourceToleration {
        ExtendedResourceToleration { domain: server.types.naming.domain }
    }

    fn complete(&self, new: &mut Object) {
        let mut names = BTreeSet::new();
        for container in [pod::MAIN, pod::INIT].iter().flat_map(|list| pod::list(new, list)) {
            let requests = container.at(&["resources", "requests"]).and_then(Value::as_object);
            let requested = requests.into_iter().flat_map(Object::iter).map(|(name, _)| name);
            names.extend(requested.filter(|name| pod::is_extended(self.domain, name)).map(str::to_owned));
        }
        for name in names {
            let toleration: Value = toleration::exists(&name, "NoSchedule").into();
            let is_there = pod::list(new, "tolerations").iter().any(|other| {
                ["key", "operator", "value", "effect"]
                    .iter()
                    .all(|member| other.str_at(&[member]) == toleration.str_at(&[member]))
            });
            if !is_there {
                pod::append(new.object_entry("spec"), "tolerations", toleration);
            }
        }
    }
}

impl Plugin for ExtendedResourceToleration {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update) && target.is("", "pods")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        if let Some(new) = &mut record.new {
            self.complete(new);
        }
        Ok(()).into()
    }
}
