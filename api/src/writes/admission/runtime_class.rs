//! The plugin RuntimeClass: a pod gets the overhead, the node selector and the tolerations of its runtime
//! class.

use std::sync::Arc;

use super::toleration;
use crate::writes::plugin::{AdmissionRecord, Plugin, Review, Step, Target};
use crate::writes::pod::{self, pairs};
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::object::at;
use values::status::Status;

/// The admission plugin RuntimeClass.
pub struct RuntimeClass {
    store: Arc<ObjectStorage>,
    classes: Arc<Resource>,
}

impl RuntimeClass {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> RuntimeClass {
        RuntimeClass {
            store: server.store.clone(),
            classes: server.types.resource("node", "v1", "runtimeclasses"),
        }
    }

    /// Returns the runtime class that a pod names.
    fn class(&self, pod: &Object) -> Result<Option<Object>, String> {
        let Some(name) = at(pod, "spec.runtimeClassName").and_then(Value::as_str) else { return Ok(None) };
        match self.store.get(&self.classes, "", name) {
            Ok(Some(class)) => Ok(Some(class)),
            Ok(None) => Err(format!("pod rejected: RuntimeClass {name:?} not found")),
            Err(status) => Err(status.into_message()),
        }
    }

    fn complete(&self, new: &mut Object) -> Result<(), String> {
        let Some(class) = self.class(new)? else { return Ok(()) };
        if let Some(fixed) = overhead(&class) {
            let given = pod::amounts(at(new, "spec.overhead"));
            if !given.is_empty() && given != pod::amounts(Some(fixed)) {
                return Err(MISMATCH.to_owned());
            }
            let fixed = fixed.clone();
            new.object_entry("spec").insert("overhead", fixed);
        }
        let Some(scheduling) = class.get("scheduling").filter(|scheduling| !scheduling.is_null()) else {
            return Ok(());
        };
        for (key, required) in pairs(scheduling.get("nodeSelector")) {
            let selector = at(new, "spec.nodeSelector");
            let given = selector.and_then(|selector| selector.get(key)).and_then(Value::as_str);
            if let Some(given) = given.filter(|given| *given != required) {
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {required}; pod.spec.nodeSelector[{key}] = \
                     {given}"
                ));
            }
            new.object_entry("spec").object_entry("nodeSelector").insert(key.to_owned(), required.into());
        }
        let more = scheduling.get("tolerations").and_then(Value::as_array).unwrap_or_default();
        let tolerations = toleration::merged(pod::list(new, "tolerations"), more);
        if !tolerations.is_empty() {
            new.object_entry("spec").insert("tolerations", Value::Array(tolerations));
        }
        Ok(())
    }

    fn check(&self, new: &Object) -> Result<(), String> {
        let class = self.class(new)?;
        let given = at(new, "spec.overhead").filter(|overhead| !overhead.is_null());
        match class.as_ref().and_then(|class| class.get("overhead")).filter(|overhead| !overhead.is_null()) {
            Some(overhead) => {
                let fixed = pod::amounts(overhead.get("podFixed"));
                if pod::amounts(given) == fixed { Ok(()) } else { Err(MISMATCH.to_owned()) }
            }
            None if given.is_some() => {
                Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                    .to_owned())
            }
            None => Ok(()),
        }
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn overhead(class: &Object) -> Option<&Value> {
    let fixed = class.get("overhead")?.get("podFixed")?;
    fixed.as_object().filter(|fixed| !fixed.is_empty()).map(|_| fixed)
}

impl Plugin for RuntimeClass {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.creates("", "pods")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        let completed = record.new.as_deref_mut().map_or(Ok(()), |new| self.complete(new));
        completed.map_err(|why| record.forbidden(&why)).into()
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        let checked: Result<(), Status> =
            record.new.map_or(Ok(()), |new| self.check(new)).map_err(|why| record.forbidden(&why));
        checked.into()
    }
}
