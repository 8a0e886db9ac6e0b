//! The quality of service class of a pod.

use crate::json::{Object, Value};

/// Returns the quality of service class of a pod. The class follows from the pod-level requests and limits if
/// the pod has any, and from the requests and limits of its containers otherwise.
pub fn qos_class(pod: &Object) -> &'static str {
    let mut guaranteed = true;
    let mut any = false;
    let spec = pod.get("spec");
    let lists = ["containers", "initContainers"]
        .map(|list| spec.and_then(|spec| spec.get(list)).and_then(Value::as_array).unwrap_or_default());
    let whole = spec.filter(|spec| {
        let lists =
            ["requests", "limits"].map(|list| spec.at(&["resources", list]).and_then(Value::as_object));
        let mut names = lists.into_iter().flatten().flat_map(Object::iter).map(|(name, _)| name);
        names.any(|name| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-"))
    });
    let containers = lists.into_iter().flatten().filter(|_| whole.is_none());
    for container in whole.into_iter().chain(containers) {
        let amounts =
            |which: &str, name: &str| container.at(&["resources", which, name]).filter(|q| !is_zero(q));
        let mut counted = 0;
        for name in ["cpu", "memory"] {
            let (request, limit) = (amounts("requests", name), amounts("limits", name));
            any |= request.is_some() || limit.is_some();
            if limit.is_some() && request.is_none_or(|request| Some(request) == limit) {
                counted += 1;
            }
        }
        guaranteed &= counted == 2;
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn is_zero(quantity: &Value) -> bool {
    match quantity {
        Value::String(text) => {
            text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_matches(['0', '.']).is_empty()
        }
        Value::Int(n) => *n == 0,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        for (containers, want) in [
            (r#"[{}]"#, "BestEffort"),
            (r#"[{"resources":{"requests":{"cpu":"0"}}}]"#, "BestEffort"),
            (r#"[{"resources":{"requests":{"cpu":"1"}}}]"#, "Burstable"),
            (r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]"#, "Guaranteed"),
            (
                r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"500m","memory":"1Gi"}}}]"#,
                "Burstable",
            ),
            (r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}},{}]"#, "Burstable"),
            // Pod-level resources take precedence over the resources of the containers.
            (r#"[{}],"resources":{"limits":{"cpu":"1","memory":"1Gi"}}"#, "Guaranteed"),
            (r#"[{}],"resources":{"requests":{"cpu":"1"}}"#, "Burstable"),
            (
                r#"[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}],"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2","memory":"2Gi"}}"#,
                "Burstable",
            ),
            (r#"[{"resources":{"requests":{"cpu":"1"}}}],"resources":{}"#, "Burstable"),
        ] {
            let pod = parse(format!(r#"{{"spec":{{"containers":{containers}}}}}"#).as_bytes()).unwrap();
            assert_eq!(qos_class(pod.as_object().unwrap()), want, "{containers}");
        }
    }
}
