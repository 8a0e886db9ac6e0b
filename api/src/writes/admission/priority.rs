//! The plugin Priority: a pod gets the priority of its priority class, and only one class may be the default.

use std::sync::Arc;

use super::Parsed;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use values::json::{Object, Value};
use values::object::meta;
use values::status::Status;

/// The preemption policy of pods whose class has no preemption policy.
const PREEMPTS: &str = "PreemptLowerPriority";

/// The admission plugin Priority.
pub struct Priority {
    store: Arc<ObjectStorage>,
    classes: Parsed<Class>,
}

struct Class {
    name: String,
    value: i64,
    is_default: bool,
    preemption: Option<String>,
}

impl Class {
    fn parse(object: &Object) -> Class {
        Class {
            name: meta(object, "name").to_owned(),
            value: object.get("value").and_then(Value::as_i64).unwrap_or(0),
            is_default: object.get("globalDefault").and_then(Value::as_bool).unwrap_or(false),
            preemption: object.get("preemptionPolicy").and_then(Value::as_str).map(str::to_owned),
        }
    }
}

impl Priority {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> Priority {
        let classes = Parsed::new(
            &server.store,
            server.types.resource("scheduling", "v1", "priorityclasses"),
            Class::parse,
        );
        Priority { store: server.store.clone(), classes }
    }

    /// Returns the class for pods that name no class. If concurrent writes created several default classes,
    /// the class with the lowest value is used.
    fn default_class(&self) -> Result<Option<Arc<Class>>, Status> {
        let classes = self.classes.list(&self.store, "")?;
        let defaults = classes.iter().filter(|class| class.is_default);
        Ok(defaults.min_by_key(|class| class.value).cloned())
    }

    fn resolve(&self, record: &mut AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let Some(new) = record.new.as_deref() else { return Ok(()) };
        let named = pod::text(new, "priorityClassName");
        let class = if named.is_empty() {
            self.default_class()?
        } else {
            let class = self.classes.get(&self.store, "", named)?;
            let why = || format!("no PriorityClass with name {named} was found");
            Some(class.ok_or_else(|| record.forbidden(&why()))?)
        };
        let priority = class.as_ref().map_or(0, |class| class.value);
        let preemption = match &class {
            Some(class) => class.preemption.clone(),
            None => Some(PREEMPTS.to_owned()),
        };
        let spec = new.get("spec");
        let given = spec.and_then(|spec| spec.get("priority")).and_then(Value::as_i64);
        if let Some(given) = given.filter(|given| *given != priority) {
            return Err(record.forbidden(&format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
                 controller computed {priority} from the given PriorityClass name"
            )));
        }
        let given = pod::text(new, "preemptionPolicy");
        if let Some(policy) = preemption.as_deref().filter(|policy| !given.is_empty() && given != *policy) {
            return Err(record.forbidden(&format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority \
                 admission controller computed {policy} from the given PriorityClass name"
            )));
        }
        let Some(new) = &mut record.new else { return Ok(()) };
        let spec = new.object_entry("spec");
        if let Some(class) = class {
            spec.insert("priorityClassName", class.name.as_str().into());
        }
        spec.insert("priority", Value::Int(priority));
        if let Some(policy) = preemption {
            spec.insert("preemptionPolicy", policy.into());
        }
        Ok(())
    }

    /// Checks that at most one class is the default.
    fn check_default(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        if !record.new.is_some_and(|new| Class::parse(new).is_default) {
            return Ok(());
        }
        match self.default_class()? {
            Some(other) if record.write.operation == Operation::Create || other.name != record.write.name => {
                Err(record.forbidden(&format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    other.name
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Copies the fields that an update leaves out from the old object. Validation refuses changes of these
/// fields.
fn keep(new: &mut Object, old: &Object) {
    fn spec(object: &Object) -> Option<&Object> {
        object.get("spec").and_then(Value::as_object)
    }
    if new.shares("spec", old) {
        return;
    }
    let Some(old) = spec(old) else { return };
    for name in ["priority", "preemptionPolicy"] {
        let is_given = spec(new).and_then(|new| new.get(name)).is_some_and(|value| !value.is_null());
        if is_given {
            continue;
        }
        if let Some(kept) = old.member(name).filter(|value| !value.is_null()) {
            new.object_entry("spec").insert(name, kept.into_owned());
        }
    }
}

impl Plugin for Priority {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update)
            && (target.is("", "pods") || target.is("scheduling", "priorityclasses"))
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        if !record.target().is("", "pods") {
            return Ok(()).into();
        }
        match (record.write.operation, &mut record.new, record.old) {
            (Operation::Update, Some(new), Some(old)) => {
                keep(new, old);
                Ok(())
            }
            (Operation::Create, ..) => self.resolve(record),
            _ => Ok(()),
        }
        .into()
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        if record.target().is("", "pods") { Ok(()).into() } else { self.check_default(record).into() }
    }
}
