//! The plugin TaintNodesByCondition: a new node accepts no pods until it is ready.

use super::toleration;
use crate::writes::plugin::{AdmissionRecord, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::Server;
use values::json::Object;

/// The effect of taints that keep pods away.
const EFFECT: &str = "NoSchedule";

/// The admission plugin TaintNodesByCondition.
pub struct NodeTaint {
    taint: String,
}

impl NodeTaint {
    /// Returns the plugin with the names of the naming profile.
    pub fn new(server: &Server) -> NodeTaint {
        NodeTaint { taint: toleration::not_ready(server.types.naming.domain) }
    }
}

impl Plugin for NodeTaint {
    fn handles(&self, target: &Target<'_>) -> bool {
        target.creates("", "nodes")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        if let Some(new) = &mut record.new {
            let taints = pod::list(new, "taints");
            let is_there = taints
                .iter()
                .any(|taint| taint.str_at(&["key"]) == self.taint && taint.str_at(&["effect"]) == EFFECT);
            if !is_there {
                let taint = Object::from_iter([
                    ("key".into(), self.taint.as_str().into()),
                    ("effect".into(), EFFECT.into()),
                ]);
                pod::append(new.object_entry("spec"), "taints", taint.into());
            }
        }
        Ok(()).into()
    }
}
