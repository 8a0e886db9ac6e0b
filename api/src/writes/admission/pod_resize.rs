//! The plugin PodResizeValidator: a pod on a node may be resized only if the node supports resizing and has
//! enough capacity for the requests of the pod.

use std::sync::Arc;

use quantity::Quantity;

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod::{self, AmountKind};
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use types::schema::registry::Resource;
use values::json::Object;
use values::object::{at, meta};
use values::status::{Cause, Status};

/// The admission plugin PodResizeValidator.
pub struct PodResizeValidator {
    store: Arc<ObjectStorage>,
    nodes: Arc<Resource>,
    /// The label that names the operating system of a node.
    system: String,
}

impl PodResizeValidator {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> PodResizeValidator {
        PodResizeValidator {
            nodes: server.types.resource("", "v1", "nodes"),
            system: server.types.naming.label("os"),
            store: server.store.clone(),
        }
    }

    fn check(&self, record: &AdmissionRecord<'_, &Object>) -> Result<(), Status> {
        let (Some(pod), Some(old)) = (record.new, record.old) else { return Ok(()) };
        let node = pod::text(pod, "nodeName");
        let generation = |pod: &Object| at(pod, "metadata.generation").cloned();
        // If the generation is the same, the specification has not changed.
        if node.is_empty() || generation(pod) == generation(old) {
            return Ok(());
        }
        let Some(node) = self.store.get(&self.nodes, "", node).map_err(|cause| record.forbidden_by(cause))?
        else {
            return Err(record.forbidden(&format!("node {} not found", values::field::go_quote(node))));
        };
        let lacking = lacking(pod, &node);
        if !lacking.is_empty() {
            let why = format!("Node didn't have enough allocatable resources: {}", lacking.join("; "));
            return Err(refusal(record, &why, "NodeCapacity"));
        }
        let system = at(&node, "metadata.labels").map_or("", |labels| labels.str_at(&[&self.system]));
        if system != "linux" {
            let [name, system] = [meta(&node, "name"), system].map(values::field::go_quote);
            let why = format!("pod resize is only supported on linux nodes, node {name} is {system}");
            return Err(refusal(record, &why, "UnsupportedPlatform"));
        }
        Ok(())
    }
}

/// Returns a 403. The cause in the status shows clients whether a retry on another node can succeed.
fn refusal(record: &AdmissionRecord<'_, &Object>, why: &str, cause: &str) -> Status {
    let mut status = record.forbidden(why);
    let details = status.details.get_or_insert_default();
    details.causes.push(Cause { reason: cause.to_owned(), ..Cause::default() });
    status
}

/// Returns a text for each resource of which the pod requests more than the total amount that the node has
/// for pods. CPU is in thousandths of a core, memory in bytes.
fn lacking(pod: &Object, node: &Object) -> Vec<String> {
    let requests = pod::of_pod(pod, AmountKind::Requests);
    let zero = Quantity::whole(0);
    let mut lacking = Vec::new();
    for (name, unit) in [("cpu", 1000.0), ("memory", 1.0)] {
        let requested = requests.get(name).copied().unwrap_or(zero);
        let allocatable = at(node, "status.allocatable").and_then(|amounts| amounts.get(name));
        let allocatable = allocatable.and_then(pod::quantity).unwrap_or(zero);
        let [requested, allocatable] = [requested, allocatable].map(|amount| (amount.to_f64() * unit).ceil());
        if requested > allocatable {
            lacking.push(format!("{name}, requested: {requested:.0}, allocatable: {allocatable:.0}"));
        }
    }
    lacking
}

impl Plugin for PodResizeValidator {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.operation == Operation::Update
            && target.subresource == "resize"
            && target.resource.is_of("", "pods")
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        self.check(record).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::{Value, parse};

    #[test]
    fn a_resize_needs_a_node_with_enough_allocatable_resources() {
        let of = |text: &str| match parse(text.as_bytes()) {
            Ok(Value::Object(object)) => object,
            other => panic!("{text}: {other:?}"),
        };
        let pod = of(r#"{"spec":{"containers":[
            {"resources":{"requests":{"cpu":"1500m","memory":"1Gi"}}},{"resources":{"requests":{"cpu":"1"}}}]}}"#);
        for (allocatable, lacks) in [
            (r#"{"cpu":"2500m","memory":"1Gi"}"#, ""),
            (r#"{"cpu":"2","memory":"2Gi"}"#, "cpu, requested: 2500, allocatable: 2000"),
            (
                r#"{"cpu":"2499m","memory":"1000Mi"}"#,
                "cpu, requested: 2500, allocatable: 2499 memory, requested: 1073741824, allocatable: 1048576000",
            ),
            ("{}", "cpu, requested: 2500, allocatable: 0 memory, requested: 1073741824, allocatable: 0"),
        ] {
            let node = of(&format!(r#"{{"status":{{"allocatable":{allocatable}}}}}"#));
            assert_eq!(lacking(&pod, &node).join(" "), lacks, "{allocatable}");
        }
    }
}
