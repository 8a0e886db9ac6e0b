//! The definitions of the metrics of flow control (docs/api/operations.md#metrics).

use wire::metrics::definition::Definition;
use wire::metrics::definition::Stability::{self, Alpha, Beta, Own};

/// Returns the definition of a metric family.
pub(super) const fn definition(
    name: &'static str,
    stability: Stability,
    labels: &'static [&'static str],
    help: &'static str,
) -> Definition {
    Definition { name, stability, help, labels }
}

const FLOW: &[&str] = &["flow_schema", "priority_level"];
const LEVEL: &[&str] = &["priority_level"];
const PHASE: &[&str] = &["phase", "priority_level"];

pub(super) const DISPATCHED: Definition =
    definition("apiserver_flowcontrol_dispatched_requests_total", Beta, FLOW, "Requests that ran.");

pub(super) const REJECTED: Definition = definition(
    "apiserver_flowcontrol_rejected_requests_total",
    Beta,
    &["flow_schema", "priority_level", "reason"],
    "Requests that were refused.",
);

pub(super) const WAITING: Definition =
    definition("apiserver_flowcontrol_current_inqueue_requests", Beta, FLOW, "Requests that wait.");

pub(super) const EXECUTING: Definition =
    definition("apiserver_flowcontrol_current_executing_requests", Beta, FLOW, "Requests that run.");

pub(super) const SEATS: Definition = definition(
    "apiserver_flowcontrol_current_executing_seats",
    Beta,
    FLOW,
    "Seats of the requests that run.",
);

pub(super) const WAITING_SEATS: Definition = definition(
    "apiserver_flowcontrol_current_inqueue_seats",
    Alpha,
    FLOW,
    "Seats that waiting requests are going to take.",
);

pub(super) const ESTIMATES: Definition =
    definition("apiserver_flowcontrol_work_estimated_seats", Alpha, FLOW, "Seats that requests take.");

pub(super) const LENGTHS: Definition = definition(
    "apiserver_flowcontrol_request_queue_length_after_enqueue",
    Alpha,
    FLOW,
    "Requests in the queue of one that waits, itself included.",
);

pub(super) const DEMANDS: Definition = definition(
    "apiserver_flowcontrol_demand_seats",
    Own,
    LEVEL,
    "Seats that a level wants as parts of its own, once in a period.",
);

pub(super) const FILLED: Definition = definition(
    "apiserver_flowcontrol_priority_level_request_utilization",
    Own,
    PHASE,
    "Requests of a level as parts of what it has room for, once in a period.",
);

pub(super) const SEATED: Definition = definition(
    "apiserver_flowcontrol_priority_level_seat_utilization",
    Own,
    PHASE,
    "Seats in use as parts of those of a level, once in a period.",
);

pub(super) const KINDS: Definition = definition(
    "apiserver_flowcontrol_read_vs_write_current_requests",
    Own,
    &["phase", "request_kind"],
    "Requests that read and write as parts of how many may, once in a period.",
);

pub(super) const WAITS: Definition = definition(
    "apiserver_flowcontrol_request_wait_duration_seconds",
    Beta,
    &["execute", "flow_schema", "priority_level"],
    "Time that requests wait.",
);

pub(super) const EXECUTIONS: Definition = definition(
    "apiserver_flowcontrol_request_execution_seconds",
    Alpha,
    &["flow_schema", "priority_level", "type"],
    "Time that requests run.",
);
