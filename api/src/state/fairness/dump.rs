//! What an operator can see of levels and queues: tables under `/debug/api_priority_and_fairness/`
//! (docs/api/fairness.md#tables-of-flow-control).

use std::fmt::Write;

use http::StatusCode;

use super::Fairness;
use super::seats::{Manner, Report};
use crate::values::clock;
use crate::wire::response::{Response, respond_text};

/// Beginning of the paths.
const BELOW: &str = "/debug/api_priority_and_fairness/";

/// Cells have at least this many characters.
const CELL_MIN: usize = 8;

/// The answer to a path; `None` if it is none of these.
pub fn respond(fairness: &Fairness, path: &str) -> Option<Response> {
    let reports = || -> Vec<Report> {
        fairness.plan.load().levels.values().map(|planned| planned.level.report()).collect()
    };
    let rows = match path.strip_prefix(BELOW).filter(|_| fairness.is_shared())? {
        "dump_priority_levels" => levels(&reports()),
        "dump_queues" => queues(&reports()),
        "dump_requests" => requests(&reports()),
        _ => return None,
    };
    Some(respond_text(StatusCode::OK, aligned(&rows)))
}

type Row = Vec<String>;

fn row<const N: usize>(cells: [&str; N]) -> Row {
    cells.map(str::to_owned).into()
}

fn levels(reports: &[Report]) -> Vec<Row> {
    let mut rows = vec![row([
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ])];
    rows.extend(reports.iter().map(|report| {
        let active = report.queues.iter().filter(|queue| queue.executing > 0 || !queue.waiting.is_empty());
        vec![
            report.name.clone(),
            active.count().to_string(),
            (report.executing == 0 && report.waiting == 0).to_string(),
            false.to_string(),
            report.waiting.to_string(),
            report.executing.to_string(),
            report.counts.dispatched.to_string(),
            report.counts.rejected.to_string(),
            report.counts.timed_out.to_string(),
            report.counts.cancelled.to_string(),
        ]
    }));
    rows
}

fn queues(reports: &[Report]) -> Vec<Row> {
    let mut rows = vec![row([
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ])];
    for report in reports.iter().filter(|report| matches!(report.manner, Manner::Queue(_))) {
        rows.extend(report.queues.iter().enumerate().map(|(index, queue)| {
            let seats: u32 = queue.waiting.iter().map(|waiter| waiter.seats).sum();
            vec![
                report.name.clone(),
                index.to_string(),
                queue.waiting.len().to_string(),
                queue.executing.to_string(),
                queue.in_use.to_string(),
                format!("{:.8}ss", queue.next),
                seats.to_string(),
                seats.to_string(),
                format!("{:.8}ss", f64::from(seats) * 0.003),
            ]
        }));
    }
    rows
}

fn requests(reports: &[Report]) -> Vec<Row> {
    let mut rows = vec![row([
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ])];
    for report in reports {
        for (queue, waiting) in report.queues.iter().enumerate() {
            rows.extend(waiting.waiting.iter().enumerate().map(|(at, waiter)| {
                vec![
                    report.name.clone(),
                    waiter.schema.clone(),
                    queue.to_string(),
                    at.to_string(),
                    waiter.flow.clone(),
                    clock::format_seconds(clock::now_seconds() - waiter.waited.as_secs() as i64),
                    waiter.seats.to_string(),
                    "0".to_owned(),
                    "0s".to_owned(),
                    "0001-01-01T00:00:00Z".to_owned(),
                ]
            }));
        }
    }
    rows
}

/// Cells that end with a comma and stand below each other.
fn aligned(rows: &[Row]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let longest = rows.iter().map(|row| row[column].chars().count() + ", ".len()).max();
        longest.unwrap_or_default().max(CELL_MIN)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row[..columns - 1].iter().zip(&widths) {
            let _ = write!(text, "{:<width$}", format!("{cell},"));
        }
        text.push_str(row.last().map_or("", String::as_str));
        text.push('\n');
    }
    text
}
