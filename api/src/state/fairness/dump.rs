//! Debugging tables of levels, queues and requests under `/debug/api_priority_and_fairness/`
//! (docs/api/fairness.md#tables-of-flow-control).

use std::fmt::Write;
use std::time::Duration;

use http::StatusCode;

use super::Fairness;
use super::executing::{BETWEEN, Runner};
use super::seats::{Manner, Report, WaiterReport};
use values::clock;
use values::query::Query;
use wire::response::{Response, respond_text};

/// Prefix of the paths.
const BELOW: &str = "/debug/api_priority_and_fairness/";

/// Minimum width of a cell in characters.
const CELL_MIN: usize = 8;

/// Returns the response for a path; `None` for other paths.
pub fn respond(fairness: &Fairness, path: &str, query: &Query) -> Option<Response> {
    let reports = || -> Vec<Report> {
        fairness.plan.load().levels.values().map(|planned| planned.level.report()).collect()
    };
    let rows = match path.strip_prefix(BELOW).filter(|_| fairness.is_shared())? {
        "dump_priority_levels" => levels(&reports()),
        "dump_queues" => queues(&reports()),
        "dump_requests" => {
            let has_details = query.first("includeRequestDetails").is_some_and(|value| !value.is_empty());
            requests(&reports(), has_details)
        }
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
        // kube-apiserver counts the queues in which requests wait.
        let active = report.queues.iter().filter(|queue| !queue.waiting.is_empty());
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

/// Columns of requests.
const COLUMNS: [&str; 10] = [
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
];

/// Further columns of requests: the request attributes.
const DETAILS: [&str; 8] =
    ["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"];

fn requests(reports: &[Report], has_details: bool) -> Vec<Row> {
    let mut rows = vec![row(COLUMNS)];
    if has_details {
        rows[0].extend(row(DETAILS));
    }
    for report in reports {
        let runners = |queue: Option<usize>| {
            let of_queue = report.runners.iter().filter(move |runner| runner.queue == queue);
            of_queue.map(move |runner| {
                let Runner { schema, flow, attributes_text, seats, arrived, began, .. } = runner;
                let position = Position { queue, at: None };
                let ages = Ages { arrived: arrived.elapsed(), began: Some(began.elapsed()) };
                detailed(request(report, position, schema, flow, *seats, ages), attributes_text, has_details)
            })
        };
        for (queue, waiting) in report.queues.iter().enumerate() {
            rows.extend(waiting.waiting.iter().enumerate().map(|(at, waiter)| {
                let WaiterReport { schema, flow, attributes_text, waited, seats } = waiter;
                let position = Position { queue: Some(queue), at: Some(at) };
                let ages = Ages { arrived: *waited, began: None };
                detailed(request(report, position, schema, flow, *seats, ages), attributes_text, has_details)
            }));
            rows.extend(runners(Some(queue)));
        }
        rows.extend(runners(None));
    }
    rows
}

/// The position of a request at its level.
struct Position {
    /// The queue to which the flow of the request belongs, if the level has queues.
    queue: Option<usize>,
    /// Index in the queue while the request waits.
    at: Option<usize>,
}

/// Times since events of a request.
struct Ages {
    arrived: Duration,
    /// Time since the request began to run, if it runs.
    began: Option<Duration>,
}

/// Returns the row of a request.
fn request(report: &Report, position: Position, schema: &str, flow: &str, seats: u32, ages: Ages) -> Row {
    let index = |index: Option<usize>| index.map_or("-1".to_owned(), |index| index.to_string());
    vec![
        report.name.clone(),
        schema.to_owned(),
        index(position.queue),
        index(position.at),
        flow.to_owned(),
        clock::ago(ages.arrived),
        seats.to_string(),
        "0".to_owned(),
        "0s".to_owned(),
        ages.began.map_or(NEVER.to_owned(), clock::ago),
    ]
}

/// Adds the request attributes to the row of a request if `has_details` is true.
fn detailed(mut row: Row, attributes_text: &str, has_details: bool) -> Row {
    if has_details {
        row.extend(attributes_text.splitn(DETAILS.len(), BETWEEN).map(str::to_owned));
    }
    row
}

/// The time that is displayed for an event that has not happened.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Formats cells that end with a comma and are aligned in columns.
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
