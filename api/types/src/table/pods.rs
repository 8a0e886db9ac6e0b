//! Cell functions of pods: ready containers, status reason, restarts.
//!
//! A pod first runs its init containers in sequence. Init containers with restart policy `Always` continue to
//! run while the containers run. Until the other init containers have finished, the pod is *initializing*,
//! and only init containers are considered.

use std::borrow::Cow;

use jiff::Timestamp;

use super::cell::{Cell, Function};
use super::duration;
use super::row::{Output, Row};
use values::json::Value;

const READS: &str = "metadata.deletionTimestamp,spec{containers?,initContainers{name,restartPolicy}},\
    status{phase,reason,conditions{type,status,reason},\
    initContainerStatuses{name,ready,started,restartCount,lastState.terminated.finishedAt,\
        state{running?,waiting.reason,terminated{reason,exitCode,signal}}},\
    containerStatuses{name,ready,restartCount,lastState.terminated.finishedAt,\
        state{running?,waiting.reason,terminated{reason,exitCode,signal}}}}";

/// Functions for the cells of pods.
pub static FUNCTIONS: &[Function] = &[
    Function::reading("podReady", READS, |row, _| {
        let pod = Summary::from_row(row);
        Output::text(format!("{}/{}", pod.ready, pod.total))
    }),
    Function::reading("podStatusReason", READS, |row, _| Output::Text(Summary::from_row(row).reason)),
    Function::reading("restarts", READS, restarts),
    Function::reading(
        "readinessGates",
        "spec.readinessGates.conditionType,status.conditions{type,status}",
        readiness_gates,
    ),
];

/// The summary from which the cells of a pod are computed.
struct Summary<'r> {
    ready: usize,
    total: usize,
    reason: Cow<'r, str>,
    restarts: Restarts,
}

/// Number of restarts, and the time at which the most recently restarted container had stopped.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(int(container, &["restartCount"]));
        let finished = duration::time(container.str_at(&["lastState", "terminated", "finishedAt"]));
        self.last = self.last.max(finished);
    }
}

/// The progress of the init containers.
struct Init<'r> {
    /// Reason why the pod waits; `None` if all init containers are done.
    pending: Option<Cow<'r, str>>,
    /// Number of restartable init containers that are ready.
    ready: usize,
    /// Restarts of all init containers up to the pending container.
    restarts: Restarts,
    /// Restarts of the restartable init containers up to the pending container.
    restartable_restarts: Restarts,
}

impl<'r> Summary<'r> {
    fn from_row(row: &Row<'r>) -> Self {
        let init_containers = row.list(&["spec", "initContainers"]);
        let restartable =
            |name: &str| init_containers.iter().any(|it| it.str_at(&["name"]) == name && is_restartable(it));
        let total = row.list(&["spec", "containers"]).len()
            + init_containers.iter().filter(|container| is_restartable(container)).count();

        let phase = row.str(&["status", "phase"]);
        let status_reason = row.str(&["status", "reason"]);
        let mut reason = Cow::Borrowed(if status_reason.is_empty() { phase } else { status_reason });
        let scheduled = row.condition("PodScheduled");
        if scheduled.is_some_and(|condition| condition.str_at(&["reason"]) == "SchedulingGated") {
            reason = Cow::Borrowed("SchedulingGated");
        }

        let init = Init::from_row(row, init_containers.len(), &restartable);
        let mut ready = init.ready;
        let mut restarts = init.restarts;
        let initializing = init.pending.is_some();
        if let Some(pending) = init.pending {
            reason = pending;
        }
        if !initializing || row.condition_is_true("Initialized") {
            restarts = init.restartable_restarts;
            let containers = Containers::from_row(row, &mut restarts);
            ready += containers.ready;
            if let Some(word) = containers.reason {
                reason = word;
            }
            // A pod is not complete while a container runs. A failure takes precedence over completed
            // containers.
            if reason == "Completed" {
                if containers.ready > 0 && row.condition_is_true("Ready") {
                    reason = Cow::Borrowed("Running");
                } else if let Some(failure) = containers.failure {
                    reason = failure;
                } else if containers.ready > 0 {
                    reason = Cow::Borrowed("NotReady");
                }
            }
        }
        if row.is_deleted() {
            if status_reason == "NodeLost" {
                reason = Cow::Borrowed("Unknown");
            } else if !matches!(phase, "Succeeded" | "Failed") {
                reason = Cow::Borrowed("Terminating");
            }
        }
        Summary { ready, total, reason, restarts }
    }
}

impl<'r> Init<'r> {
    fn from_row(row: &Row<'r>, count: usize, restartable: &dyn Fn(&str) -> bool) -> Self {
        let mut init = Init {
            pending: None,
            ready: 0,
            restarts: Restarts::default(),
            restartable_restarts: Restarts::default(),
        };
        for (at, container) in row.list(&["status", "initContainerStatuses"]).iter().enumerate() {
            let restartable = restartable(container.str_at(&["name"]));
            init.restarts.add(container);
            if restartable {
                init.restartable_restarts.add(container);
            }
            let terminated = present(container, &["state", "terminated"]);
            if terminated.is_some_and(|end| int(end, &["exitCode"]) == 0) {
                continue;
            }
            if restartable && is_true(container, "started") {
                init.ready += usize::from(is_true(container, "ready"));
                continue;
            }
            let waiting = container.str_at(&["state", "waiting", "reason"]);
            let word = match terminated {
                Some(end) => end_of(end),
                None if !waiting.is_empty() && waiting != "PodInitializing" => Cow::Borrowed(waiting),
                None => Cow::Owned(format!("{at}/{count}")),
            };
            init.pending = Some(Cow::Owned(format!("Init:{word}")));
            break;
        }
        init
    }
}

/// The summary of the containers' statuses.
struct Containers<'r> {
    /// Number of containers that are ready and running.
    ready: usize,
    /// First reason of a container.
    reason: Option<Cow<'r, str>>,
    /// First reason of a container that failed.
    failure: Option<Cow<'r, str>>,
}

impl<'r> Containers<'r> {
    fn from_row(row: &Row<'r>, restarts: &mut Restarts) -> Self {
        let mut found = Containers { ready: 0, reason: None, failure: None };
        for container in row.list(&["status", "containerStatuses"]) {
            restarts.add(container);
            let waiting = container.str_at(&["state", "waiting", "reason"]);
            if !waiting.is_empty() {
                found.reason.get_or_insert(Cow::Borrowed(waiting));
            } else if let Some(end) = present(container, &["state", "terminated"]) {
                let word = end_of(end);
                if int(end, &["exitCode"]) != 0 {
                    found.failure.get_or_insert_with(|| word.clone());
                }
                found.reason.get_or_insert(word);
            } else if is_true(container, "ready") && present(container, &["state", "running"]).is_some() {
                found.ready += 1;
            }
        }
        found
    }
}

/// Returns the reason of a terminated container.
fn end_of(terminated: &Value) -> Cow<'_, str> {
    let reason = terminated.str_at(&["reason"]);
    let signal = int(terminated, &["signal"]);
    if !reason.is_empty() {
        Cow::Borrowed(reason)
    } else if signal != 0 {
        Cow::Owned(format!("Signal:{signal}"))
    } else {
        Cow::Owned(format!("ExitCode:{}", int(terminated, &["exitCode"])))
    }
}

/// Computes `3` or `3 (5m ago)`.
fn restarts<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let Restarts { count, last } = Summary::from_row(row).restarts;
    match last {
        Some(last) if count > 0 => {
            let age = duration::human(duration::seconds_between(last, row.now));
            Output::text(format!("{count} ({age} ago)"))
        }
        _ => Output::text(count.to_string()),
    }
}

/// Computes the number of readiness gates of the pod that are true; unset if the pod has no gates.
fn readiness_gates<'r>(row: &Row<'r>, _: &'r [Cell]) -> Output<'r> {
    let gates = row.list(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return Output::Unset;
    }
    let open = gates.iter().filter(|gate| row.condition_is_true(gate.str_at(&["conditionType"]))).count();
    Output::text(format!("{open}/{}", gates.len()))
}

fn is_restartable(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == "Always"
}

fn is_true(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool) == Some(true)
}

fn int(value: &Value, path: &[&str]) -> i64 {
    value.at(path).and_then(Value::as_i64).unwrap_or(0)
}

fn present<'r>(value: &'r Value, path: &[&str]) -> Option<&'r Value> {
    value.at(path).filter(|value| !value.is_null())
}
