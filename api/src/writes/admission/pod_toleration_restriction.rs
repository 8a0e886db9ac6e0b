//! The plugin PodTolerationRestriction: pods get the tolerations of their namespace, and may have only
//! tolerations that the namespace allows.

use std::sync::Arc;

use super::{namespace_lifecycle, toleration};
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::MakePlugin;
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use types::schema::registry::Resource;
use values::json::{Object, Value, parse};
use values::qos::qos_class;
use values::status::{Status, StatusReason};

/// The annotation of a namespace with the tolerations that its pods get.
const DEFAULT: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";

/// The annotation of a namespace with the tolerations that its pods may have.
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// The admission plugin PodTolerationRestriction.
pub struct PodTolerationRestriction {
    store: Arc<ObjectStorage>,
    namespaces: Arc<Resource>,
    /// The tolerations that pods get in a namespace without the annotation.
    default: Vec<Value>,
    allowed: Vec<Value>,
    memory_pressure: Value,
}

/// Reads the configuration: the lists `default` and `whitelist`.
///
/// # Errors
/// This function never fails. All plugins have the same signature.
pub fn configure(config: Option<&Value>) -> Result<MakePlugin, String> {
    let list = |name: &str| -> Vec<Value> {
        let tolerations = config.and_then(|config| config.get(name)).and_then(Value::as_array);
        tolerations.unwrap_or_default().to_vec()
    };
    let (default, allowed) = (list("default"), list("whitelist"));
    Ok(Arc::new(move |server: &Server| {
        let pressure = format!("node.{}/memory-pressure", server.types.naming.domain);
        Arc::new(PodTolerationRestriction {
            store: server.store.clone(),
            namespaces: server.types.resource("", "v1", "namespaces"),
            default: default.clone(),
            allowed: allowed.clone(),
            memory_pressure: toleration::exists(&pressure, "NoSchedule").into(),
        })
    }))
}

impl PodTolerationRestriction {
    /// Returns the tolerations in an annotation of a namespace; `None` if the annotation is missing.
    fn annotated(&self, namespace: &str, annotation: &str) -> Result<Option<Vec<Value>>, Status> {
        let found = self.store.get(&self.namespaces, "", namespace)?;
        let found = found.ok_or_else(|| namespace_lifecycle::missing(namespace))?;
        let Some(text) = pod::annotation(&found, annotation).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let list = parse(text.as_bytes()).ok().and_then(|value| Some(value.as_array()?.to_vec()));
        list.map(Some).ok_or_else(|| {
            Status::new(StatusReason::Unknown, format!("{annotation}: not a list of tolerations"))
        })
    }

    fn complete(&self, record: &mut AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let defaults = match record.write.operation {
            Operation::Create => {
                self.annotated(record.write.namespace, DEFAULT)?.unwrap_or_else(|| self.default.clone())
            }
            _ => Vec::new(),
        };
        let Some(new) = record.new.as_deref_mut() else { return Ok(()) };
        let given = pod::list(new, "tolerations");
        let mut tolerations = match (defaults.is_empty(), given.is_empty()) {
            (true, _) => given.to_vec(),
            (false, true) => defaults,
            (false, false) => toleration::merged(&defaults, given),
        };
        if qos_class(new) != "BestEffort" {
            tolerations = toleration::merged(&tolerations, std::slice::from_ref(&self.memory_pressure));
        }
        if !tolerations.is_empty() {
            new.object_entry("spec").insert("tolerations", Value::Array(tolerations));
        }
        Ok(())
    }

    fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let given = record.new.map_or(&[][..], |new| pod::list(new, "tolerations"));
        if given.is_empty() {
            return Ok(());
        }
        let (allowed, scope) = match self.annotated(record.write.namespace, ALLOWED)? {
            Some(allowed) => (allowed, "namespace"),
            None => (self.allowed.clone(), "cluster"),
        };
        let is_allowed = |given: &Value| allowed.iter().any(|allowed| toleration::covers(allowed, given));
        if allowed.is_empty() || given.iter().all(is_allowed) {
            return Ok(());
        }
        let why = "pod tolerations (possibly merged with namespace default tolerations) conflict with its";
        Err(Status::new(StatusReason::Unknown, format!("{why} {scope} whitelist")))
    }
}

impl Plugin for PodTolerationRestriction {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update) && target.is("", "pods")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        self.complete(record).into()
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        self.check(record).into()
    }
}
