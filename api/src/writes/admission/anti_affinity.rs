//! The plugin LimitPodHardAntiAffinityTopology: the required anti-affinity of a pod may use only the topology
//! key for host names. With a wider topology, a pod could keep all other pods out of a zone.

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use values::json::{Object, Value};
use values::object::{at, meta};
use values::status::{Status, Subject};

/// The admission plugin LimitPodHardAntiAffinityTopology.
pub struct AntiAffinity {
    /// The node label that contains the host name of the node.
    hostname: String,
}

impl AntiAffinity {
    /// Returns the plugin with the label of the naming profile.
    pub fn new(server: &Server) -> AntiAffinity {
        AntiAffinity { hostname: server.types.naming.label("hostname") }
    }

    fn check(&self, pod: &Object) -> Result<(), Status> {
        const TERMS: &str = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        let terms = at(pod, TERMS).and_then(Value::as_array).unwrap_or_default();
        let keys = terms.iter().map(|term| term.str_at(&["topologyKey"]));
        let Some(key) = keys.into_iter().find(|key| *key != self.hostname) else { return Ok(()) };
        let subject = Subject { group: "", kind: "pods", name: meta(pod, "name") };
        let why = format!(
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {} is allowed",
            self.hostname
        );
        Err(Status::forbidden(subject, &why))
    }
}

impl Plugin for AntiAffinity {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update) && target.is("", "pods")
    }

    fn validate<'p>(&'p self, record: &'p AdmissionRecord<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        record.new.map_or(Ok(()), |new| self.check(new)).into()
    }
}
