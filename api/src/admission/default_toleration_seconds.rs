//! The plugin DefaultTolerationSeconds: a pod that does not say so tolerates a node that fails for five minutes.

use super::{Lookup, Operation, Plugin, Record, Review, Step, Target, pod, toleration};
use crate::json::{Object, Value};

/// How long.
const SECONDS: i64 = 300;

/// The effect that evicts pods.
const EVICTS: &str = "NoExecute";

/// The plugin.
pub struct DefaultTolerationSeconds {
    /// Taints of nodes that fail.
    taints: [String; 2],
}

impl DefaultTolerationSeconds {
    /// The plugin.
    pub fn new(lookup: &Lookup) -> DefaultTolerationSeconds {
        let domain = lookup.naming.domain;
        DefaultTolerationSeconds {
            taints: [toleration::not_ready(domain), format!("node.{domain}/unreachable")],
        }
    }

    fn complete(&self, new: &mut Object) {
        let tolerates = |toleration: &Value, taint: &str| {
            ["", taint].contains(&toleration.str_at(&["key"]))
                && ["", EVICTS].contains(&toleration.str_at(&["effect"]))
        };
        let given = pod::list(new, "tolerations");
        let missing =
            self.taints.iter().filter(|taint| !given.iter().any(|toleration| tolerates(toleration, taint)));
        let missing: Vec<&String> = missing.collect();
        for taint in missing {
            let mut toleration = toleration::exists(taint, EVICTS);
            toleration.push("tolerationSeconds", Value::Int(SECONDS));
            pod::append(new.object_entry("spec"), "tolerations", toleration.into());
        }
    }
}

impl Plugin for DefaultTolerationSeconds {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update) && target.is("", "pods")
    }

    fn mutate<'p>(&'p self, record: &'p mut Record<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        if let Some(new) = &mut record.new {
            self.complete(new);
        }
        Ok(()).into()
    }
}
