//! Cell functions of nodes, volumes, admission policies, certificates, roles, quotas, device claims and
//! events.

use super::cell::{Cell, Function};
use super::duration::UNKNOWN;
use super::functions::text;
use super::row::{Output, Row, text_of};
use values::json::Value;

/// Functions of all kinds except pods, workloads and networking.
pub static FUNCTIONS: &[Function] = &[
    Function::reading("nodeStatus", "spec.unschedulable,status.conditions{type,status}", node_status),
    Function::reading("nodeRoles", "metadata.labels", node_roles),
    Function::reading("nodeAddress", "status.addresses{type,address}", node_address),
    Function::reading("nodeKernel", "status.nodeInfo{kernelVersion,architecture}", node_kernel),
    Function::reading_annotations("nameIfDefault", "metadata.name", name_if_default),
    Function::reading("csrCondition", "status{conditions.type,certificate?}", csr_condition),
    Function::reading("lastCondition", "status.conditions{type,status}", |row, names| {
        last_condition(row, names, false)
    }),
    Function::reading("lastTrueCondition", "status.conditions{type,status}", |row, names| {
        last_condition(row, names, true)
    }),
    Function::reading("available", "status.conditions{type,status,reason}", available),
    Function::reading("subjects", "subjects{kind,name,namespace}", subjects),
    Function::reading("quotaRequests", "status{hard,used}", |row, _| quota_list(row, false)),
    Function::reading("quotaLimits", "status{hard,used}", |row, _| quota_list(row, true)),
    Function::reading("paramRef", "spec.paramRef", param_ref),
    Function::reading(
        "claimState",
        "metadata.deletionTimestamp,status{allocation?,reservedFor?}",
        claim_state,
    ),
    Function::reading("podGroupStatus", "status.conditions{type,status,reason}", pod_group_status),
    Function::reading(
        "poolRequestStatus",
        "status{poolCount,pools?,conditions{type,status}}",
        pool_request_status,
    ),
    Function::reading(
        "poolDevices",
        "status{pools{totalDevices,availableDevices,allocatedDevices,unavailableDevices},conditions{type,status}}",
        pool_devices,
    ),
    Function::reading("poolErrors", "status{pools.validationError,conditions{type,status}}", pool_errors),
    Function::reading("eventLastSeen", EVENT_TIMES, event_last_seen),
    Function::reading("eventFirstSeen", EVENT_TIMES, |row, _| Output::text(event_first_seen(row))),
    Function::reading("eventCount", "count,series.count", event_count),
    Function::reading(
        "eventSource",
        "source.component,source.host,reportingComponent,reportingInstance",
        |row, _| Output::text(event_source(row)),
    ),
];

const EVENT_TIMES: &str = "series.lastObservedTime,firstTimestamp,lastTimestamp,eventTime";

/// Computes whether the node is ready, and whether pods may be scheduled on it.
fn node_status<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let word = match row.condition("Ready") {
        Some(ready) if ready.str_at(&["status"]) == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if row.at(&["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true) {
        Output::text(format!("{word},SchedulingDisabled"))
    } else {
        Output::text(word)
    }
}

/// `nodeRoles("prefix of role labels", "label whose value is a role")`: the roles, sorted and unique; unset
/// if the node has no roles.
fn node_roles<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let (prefix, label) = (text(row, arguments, 0), text(row, arguments, 1));
    let labels = row.at(&["metadata", "labels"]).and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flat_map(|labels| labels.iter())
        .filter_map(|(name, value)| match name.strip_prefix(&*prefix) {
            Some(role) => Some(role),
            None if name == label => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    Output::text(roles.join(","))
}

/// `nodeAddress("InternalIP")`: the first address of the given type.
fn node_address<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let kind = text(row, arguments, 0);
    let addresses = row.list(&["status", "addresses"]);
    let found = addresses.iter().find(|address| address.str_at(&["type"]) == kind);
    found.map_or(Output::Unset, |address| Output::text(address.str_at(&["address"])))
}

/// Computes the kernel version with the architecture in parentheses.
fn node_kernel<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let version = match row.str(&["status", "nodeInfo", "kernelVersion"]) {
        "" => UNKNOWN,
        version => version,
    };
    match row.str(&["status", "nodeInfo", "architecture"]) {
        "" => Output::text(version),
        architecture => Output::text(format!("{version} ({architecture})")),
    }
}

/// `nameIfDefault("annotation", …)`: the name, with a mark if one of the annotations makes the object the
/// default.
fn name_if_default<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let name = row.str(&["metadata", "name"]);
    let marks = |annotation: &str| row.str(&["metadata", "annotations", annotation]) == "true";
    if arguments.iter().filter_map(Cell::literal).any(marks) {
        Output::text(format!("{name} (default)"))
    } else {
        Output::text(name)
    }
}

/// Computes the text of the condition column: the decision, then `Failed` and `Issued`, if these states apply.
fn csr_condition<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let decision = ["Denied", "Approved"].into_iter().find(|kind| row.condition(kind).is_some());
    let mut text = decision.unwrap_or("Pending").to_owned();
    if row.condition("Failed").is_some() {
        text.push_str(",Failed");
    }
    // Only the presence of a certificate is read, because an empty certificate is not stored.
    if row.at(&["status", "certificate"]).is_some() {
        text.push_str(",Issued");
    }
    Output::text(text)
}

/// Computes the last condition whose type is among the arguments; unset if no condition matches.
fn last_condition<'r>(row: &Row<'r>, names: &'r [Cell], only_true: bool) -> Output<'r> {
    let listed = |kind: &str| names.iter().filter_map(Cell::literal).any(|name| name == kind);
    let conditions = row.list(&["status", "conditions"]).iter().rev();
    conditions
        .filter(|condition| !only_true || condition.str_at(&["status"]) == "True")
        .map(|condition| condition.str_at(&["type"]))
        .find(|kind| listed(kind))
        .map_or(Output::Unset, Output::text)
}

/// Computes `True`, or the condition's status and reason.
fn available<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let Some(condition) = row.condition("Available") else { return Output::text("Unknown") };
    let (status, reason) = (condition.str_at(&["status"]), condition.str_at(&["reason"]));
    if status == "True" || reason.is_empty() {
        Output::text(status)
    } else {
        Output::text(format!("{status} ({reason})"))
    }
}

/// `subjects("User")`: the names of the subjects of a kind. The name of a service account includes the
/// namespace.
fn subjects<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let kind = text(row, arguments, 0);
    let names: Vec<String> = row
        .list(&["subjects"])
        .iter()
        .filter(|subject| subject.str_at(&["kind"]) == kind)
        .map(|subject| match kind.as_ref() {
            "ServiceAccount" => format!("{}/{}", subject.str_at(&["namespace"]), subject.str_at(&["name"])),
            _ => subject.str_at(&["name"]).to_owned(),
        })
        .collect();
    Output::text(names.join(", "))
}

/// Computes `pods: 3/10` for each limit (`limits`) or request, sorted by name.
fn quota_list<'r>(row: &Row<'r>, limits: bool) -> Output<'r> {
    let hard = row.at(&["status", "hard"]).and_then(Value::as_object);
    let mut lines: Vec<(&str, String)> = hard
        .into_iter()
        .flat_map(|hard| hard.iter())
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = row.at(&["status", "used", name]).map_or("0".into(), text_of);
            (name, format!("{name}: {used}/{}", text_of(hard)))
        })
        .collect();
    lines.sort_unstable();
    Output::text(lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join(", "))
}

/// Computes the parameter object or selector of an admission policy binding.
fn param_ref<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let unset = Output::text("<unset>");
    let Some(reference) = row.at(&["spec", "paramRef"]) else { return unset };
    match (reference.str_at(&["name"]), reference.get("selector").filter(|it| !it.is_null())) {
        ("", None) => unset,
        ("", Some(selector)) => Output::text(printed_selector(selector)),
        (name, _) => {
            let namespace = match reference.str_at(&["namespace"]) {
                "" => "*",
                namespace => namespace,
            };
            Output::text(format!("{namespace}/{name}"))
        }
    }
}

/// Formats a label selector as a printed Go structure, as the reference server does in this cell.
fn printed_selector(selector: &Value) -> String {
    let mut labels: Vec<String> = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|labels| labels.iter())
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or("")))
        .collect();
    labels.sort_unstable();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).unwrap_or_default();
    let expressions = expressions.iter().map(|expression| {
        let values = expression.get("values").and_then(Value::as_array).unwrap_or_default();
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            expression.str_at(&["key"]),
            expression.str_at(&["operator"]),
            values.join(" ")
        )
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.collect::<String>()
    )
}

/// Computes the states of deletion, allocation and reservation of a claim.
fn claim_state<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let allocated = row.at(&["status", "allocation"]).is_some_and(|it| !it.is_null());
    let reserved = !row.list(&["status", "reservedFor"]).is_empty();
    Output::text(match (row.is_deleted(), allocated, reserved) {
        (true, false, _) => "deleted",
        (true, true, false) => "deleted,allocated",
        (true, true, true) => "deleted,allocated,reserved",
        (false, false, _) => "pending",
        (false, true, false) => "allocated",
        (false, true, true) => "allocated,reserved",
    })
}

/// Computes whether the group is scheduled, or why it is disrupted.
fn pod_group_status<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    if let Some(disruption) = row.condition("DisruptionTarget") {
        return Output::text(disruption.str_at(&["reason"]));
    }
    Output::text(match row.condition("PodGroupScheduled") {
        None => "Pending",
        Some(_) if row.condition_is_true("PodGroupScheduled") => "Scheduled",
        Some(_) => "Unschedulable",
    })
}

fn pool_request_status<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    if row.condition_is_true("Failed") {
        return Output::text("Failed");
    }
    if !row.condition_is_true("Complete") {
        return Output::text("Pending");
    }
    let listed = i64::try_from(row.list(&["status", "pools"]).len()).unwrap_or(i64::MAX);
    let all = row.int(&["status", "poolCount"]);
    if all > listed {
        Output::text(format!("Complete ({listed}/{all} pools)"))
    } else {
        Output::text("Complete")
    }
}

/// Returns the pools of a request, if they were counted.
fn pools<'r>(row: &Row<'r>) -> Option<&'r [Value]> {
    let known =
        row.at(&["status"]).is_some_and(|status| !status.is_null()) && !row.condition_is_true("Failed");
    known.then(|| row.list(&["status", "pools"]))
}

/// `poolDevices("totalDevices")`: the sum over the pools.
fn pool_devices<'r>(row: &Row<'r>, arguments: &'r [Cell]) -> Output<'r> {
    let Some(pools) = pools(row) else { return Output::text("-") };
    let member = text(row, arguments, 0);
    let sum = pools
        .iter()
        .filter_map(|pool| pool.get(&member)?.as_i64())
        .fold(0_i64, |sum, devices| sum.saturating_add(devices));
    Output::text(sum.to_string())
}

/// Computes the number of pools that could not be counted.
fn pool_errors<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let Some(pools) = pools(row) else { return Output::text("-") };
    let failed = pools.iter().filter(|pool| !pool.str_at(&["validationError"]).is_empty()).count();
    Output::text(failed.to_string())
}

fn event_first_seen(row: &Row) -> String {
    let times = ["firstTimestamp", "eventTime"];
    times.iter().find_map(|name| row.age(row.str(&[name]))).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Computes the age of the last observation of the series. Without a series, computes the age of
/// `lastTimestamp`, or else of the first time.
fn event_last_seen<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    if row.at(&["series"]).is_some_and(|series| !series.is_null()) {
        let last = row.age(row.str(&["series", "lastObservedTime"]));
        return Output::text(last.unwrap_or_else(|| UNKNOWN.to_owned()));
    }
    Output::text(row.age(row.str(&["lastTimestamp"])).unwrap_or_else(|| event_first_seen(row)))
}

/// Computes the number of occurrences; 1 if the event has no count.
fn event_count<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    match row.at(&["series"]).filter(|series| !series.is_null()) {
        Some(_) => Output::Int(row.int(&["series", "count"])),
        None => match row.int(&["count"]) {
            0 => Output::Int(1),
            count => Output::Int(count),
        },
    }
}

/// Returns component and instance of the source of the event. Each value is taken from the older field, or
/// from the newer field if the older field is empty.
fn event_source(row: &Row) -> String {
    let first = |older: &[&str], newer: &[&str]| match row.str(older) {
        "" => row.str(newer),
        text => text,
    };
    let component = first(&["source", "component"], &["reportingComponent"]);
    match first(&["source", "host"], &["reportingInstance"]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
