//! The plugin TaintNodesByCondition: a new node accepts no pods until it is ready.

use super::{AdmissionRecord, Lookup, Plugin, Review, Step, Target, pod, toleration};
use values::json::Object;

/// The effect of taints that keep pods away.
const EFFECT: &str = "NoSchedule";

/// The admission plugin TaintNodesByCondition.
pub struct NodeTaint {
    taint: String,
}

impl NodeTaint {
    /// Returns the plugin with the names of the naming profile.
    pub fn new(lookup: &Lookup) -> NodeTaint {
        NodeTaint { taint: toleration::not_ready(lookup.naming.domain) }
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
