//! The plugin DefaultTolerationSeconds: a pod without its own tolerations for failing nodes tolerates failing
//! nodes for a limited time.

use super::toleration;
use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::pod;
use crate::writes::server::Server;
use values::json::{Object, Value};

/// Default time in seconds that a pod tolerates a failing node; flags may override the default.
const SECONDS: i64 = 300;

/// The effect of taints that evict pods.
const EVICTS: &str = "NoExecute";

/// The admission plugin DefaultTolerationSeconds.
pub struct DefaultTolerationSeconds {
    /// Taints of failing nodes, with the seconds for which a pod tolerates each taint.
    taints: [(String, i64); 2],
}

impl DefaultTolerationSeconds {
    /// Name of the plugin in flags.
    pub const NAME: &'static str = "DefaultTolerationSeconds";

    /// Returns the plugin with its default times.
    pub fn usual(server: &Server) -> DefaultTolerationSeconds {
        DefaultTolerationSeconds::new(server, [SECONDS; 2])
    }

    /// Returns the plugin with these times in seconds: for nodes that are not ready, and for nodes that are
    /// unreachable.
    pub fn new(server: &Server, [not_ready, unreachable]: [i64; 2]) -> DefaultTolerationSeconds {
        let domain = server.types.naming.domain;
        DefaultTolerationSeconds {
            taints: [
                (toleration::not_ready(domain), not_ready),
                (format!("node.{domain}/unreachable"), unreachable),
            ],
        }
    }

    fn complete(&self, new: &mut Object) {
        let tolerates = |toleration: &Value, taint: &str| {
            ["", taint].contains(&toleration.str_at(&["key"]))
                && ["", EVICTS].contains(&toleration.str_at(&["effect"]))
        };
        let given = new.get("spec").and_then(Value::as_object).and_then(|spec| spec.member("tolerations"));
        let given = given.as_deref().and_then(Value::as_array).unwrap_or_default();
        let missing = self
            .taints
            .iter()
            .filter(|(taint, _)| !given.iter().any(|toleration| tolerates(toleration, taint)));
        let missing: Vec<&(String, i64)> = missing.collect();
        for (taint, seconds) in missing {
            let mut toleration = toleration::exists(taint, EVICTS);
            toleration.push("tolerationSeconds", Value::Int(*seconds));
            pod::append(new.object_entry("spec"), "tolerations", toleration.into());
        }
    }
}

impl Plugin for DefaultTolerationSeconds {
    fn handles(&self, target: &Target<'_>) -> bool {
        matches!(target.operation, Operation::Create | Operation::Update) && target.is("", "pods")
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        if let Some(new) = &mut record.new {
            self.complete(new);
        }
        Ok(()).into()
    }
}
