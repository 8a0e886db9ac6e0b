//! The plugin PodTopologyLabels: a pod gets the zone and region of its node as labels, so that the pod can
//! read these labels through the downward API.
//!
//! If a pod is created without a node, it gets the labels when it is bound. If the spec of a new pod names a
//! node, the pod gets the labels on creation.

use std::sync::Arc;

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use objects::strategy::sort_members;
use objects::validation::StructView;
use types::schema::registry::Resource;
use values::json::Object;
use values::object::metadata_mut;
use values::status::Status;

/// The admission plugin PodTopologyLabels.
pub struct PodTopologyLabels {
    store: Arc<ObjectStorage>,
    nodes: Arc<Resource>,
    labels: [String; 2],
}

impl PodTopologyLabels {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> PodTopologyLabels {
        let label = |name: &str| format!("topology.{}/{name}", server.types.naming.domain);
        PodTopologyLabels {
            store: server.store.clone(),
            nodes: server.types.resource("", "v1", "nodes"),
            labels: [label("region"), label("zone")],
        }
    }

    fn label(&self, record: &mut AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let is_binding = record.subresource == "binding";
        let Some(new) = &mut record.new else { return Ok(()) };
        let view = StructView::from_object(new);
        let node = if is_binding {
            let target = view.child("target");
            if target.text("kind") == "Node" { target.text("name") } else { "" }
        } else {
            view.child("spec").text("nodeName")
        };
        if node.is_empty() {
            return Ok(());
        }
        // A pod can be bound to a node that is not registered yet.
        let Some(node) = self.store.get(&self.nodes, "", node)? else { return Ok(()) };
        let of_node = StructView::from_object(&node).child("metadata").child("labels");
        let copied: Vec<_> =
            self.labels.iter().filter_map(|name| Some((name.clone(), of_node.get(name)?.clone()))).collect();
        if copied.is_empty() {
            return Ok(());
        }
        let labels = metadata_mut(new).object_entry("labels");
        for (name, value) in copied {
            labels.insert(name, value);
        }
        sort_members(labels);
        Ok(())
    }
}

impl Plugin for PodTopologyLabels {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.operation == Operation::Create
            && target.resource.is_of("", "pods")
            && matches!(target.subresource, "" | "binding")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        self.label(record).into()
    }
}
