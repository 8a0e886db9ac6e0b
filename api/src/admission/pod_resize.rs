//! The plugin PodResizeValidator: a pod that has a node is resized only while the node is known.

use std::sync::Arc;

use super::{Lookup, Operation, Plugin, Record, Review, Step, Target};
use crate::field::go_quote;
use crate::json::Object;
use crate::schema::registry::Resource;
use crate::status::Status;
use crate::validation::View;

/// The plugin.
pub struct PodResizeValidator {
    lookup: Lookup,
    nodes: Arc<Resource>,
}

impl PodResizeValidator {
    /// The plugin over this store.
    pub fn new(lookup: &Lookup) -> PodResizeValidator {
        PodResizeValidator { lookup: lookup.clone(), nodes: lookup.resource("", "v1", "nodes") }
    }

    fn check(&self, record: &Record<'_, &Object>) -> Result<(), Status> {
        let Some(new) = record.new else { return Ok(()) };
        let node = View::of(new).child("spec").text("nodeName");
        if node.is_empty() || self.lookup.get(&self.nodes, "", node)?.is_some() {
            return Ok(());
        }
        Err(record.forbidden(&format!("node {} not found", go_quote(node))))
    }
}

impl Plugin for PodResizeValidator {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.operation == Operation::Update
            && target.resource.is_of("", "pods")
            && target.subresource == "resize"
    }

    fn validate<'p>(&'p self, record: &'p Record<'_, &Object>, _: &'p mut Review) -> Step<'p> {
        self.check(record).into()
    }
}
