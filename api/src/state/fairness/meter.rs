//! The metrics of flow control (docs/api/operations.md#metrics).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Fairness;
use super::definitions::{self, definition};
use super::demand::{Load, Observed};
use super::seats::Why;
use wire::metrics::buckets::{
    DEMAND_MILLIS, ESTIMATES, FILLED_MILLIS, KINDS_MILLIS, QUEUES, SEATED_MILLIS, SEATS_US,
};
use wire::metrics::definition::{Kind, Stability};
use wire::metrics::family::{Counters, Family, Gauges, Histograms, labels_text, micros};
use wire::metrics::histogram::Histogram;
use wire::metrics::page::Page;

/// The metric families whose values are counted. The values of the other families are computed from the levels.
#[derive(Debug)]
pub(super) struct Families {
    dispatched: Counters,
    rejected: Counters,
    waiting: Gauges,
    executing: Gauges,
    seats: Gauges,
    waiting_seats: Gauges,
    waits: Histograms,
    executions: Histograms,
    estimates: Histograms,
    lengths: Histograms,
    demands: Histograms,
    filled: Histograms,
    seated: Histograms,
    kinds: Histograms,
}

/// The metrics of one flow schema at its level.
#[derive(Debug)]
pub(super) struct Meter {
    dispatched: Option<Arc<AtomicU64>>,
    rejected: [Option<Arc<AtomicU64>>; 3],
    waiting: Option<Arc<AtomicI64>>,
    executing: Option<Arc<AtomicI64>>,
    seats: Option<Arc<AtomicI64>>,
    waiting_seats: Option<Arc<AtomicI64>>,
    estimates: Option<Arc<Histogram>>,
    lengths: Option<Arc<Histogram>>,
    /// Waiting times, by whether the request was executed.
    waits: [Option<Arc<Histogram>>; 2],
    executions: Option<Arc<Histogram>>,
}

const REASONS: [Why; 3] = [Why::NoSeat, Why::QueueFull, Why::TimeOut];

impl Default for Families {
    fn default() -> Self {
        Families {
            dispatched: Counters::new(definitions::DISPATCHED),
            rejected: Counters::new(definitions::REJECTED),
            waiting: Gauges::new(definitions::WAITING),
            executing: Gauges::new(definitions::EXECUTING),
            seats: Gauges::new(definitions::SEATS),
            waiting_seats: Gauges::new(definitions::WAITING_SEATS),
            estimates: Histograms::of_sizes(definitions::ESTIMATES, ESTIMATES),
            lengths: Histograms::of_sizes(definitions::LENGTHS, QUEUES),
            demands: Histograms::of_shares(definitions::DEMANDS, DEMAND_MILLIS),
            filled: Histograms::of_shares(definitions::FILLED, FILLED_MILLIS),
            seated: Histograms::of_shares(definitions::SEATED, SEATED_MILLIS),
            kinds: Histograms::of_shares(definitions::KINDS, KINDS_MILLIS),
            waits: Histograms::of_durations(definitions::WAITS, SEATS_US),
            executions: Histograms::of_durations(definitions::EXECUTIONS, SEATS_US),
        }
    }
}

/// Returns `part` of `whole`, in thousandths.
fn millis(part: u64, whole: u64) -> u64 {
    (part * 1_000).checked_div(whole).unwrap_or_default()
}

impl Families {
    fn all(&self) -> [&dyn Family; 14] {
        [
            &self.dispatched,
            &self.rejected,
            &self.waiting,
            &self.waiting_seats,
            &self.executing,
            &self.seats,
            &self.waits,
            &self.executions,
            &self.estimates,
            &self.lengths,
            &self.demands,
            &self.filled,
            &self.seated,
            &self.kinds,
        ]
    }

    /// Records the load of a level, and its average demand relative to its nominal seats.
    pub(super) fn sample(&self, level: &str, load: Load, demand: f64, nominal: f64) {
        let share = if nominal > 0.0 { demand / nominal * 1e3 } else { 0.0 };
        self.demands.record(&[level], share as u64);
        let (limit, room) = (u64::from(load.limit), load.room);
        self.filled.record(&["executing", level], millis(load.executing.into(), limit));
        self.filled.record(&["waiting", level], millis(load.waiting.into(), room));
        self.seated.record(&["executing", level], millis(load.in_use.into(), limit));
    }

    /// Records how many requests of a kind wait, relative to the limit of running requests.
    pub(super) fn sample_kind(&self, kind: &str, waiting: u64, bound: u64) {
        self.kinds.record(&["waiting", kind], millis(waiting, bound));
    }

    /// Returns the meter of a flow schema at a level.
    pub(super) fn meter(&self, schema: &str, level: &str) -> Meter {
        let labels = [schema, level];
        Meter {
            dispatched: self.dispatched.series(&labels),
            rejected: REASONS.map(|why| self.rejected.series(&[schema, level, why.as_str()])),
            waiting: self.waiting.series(&labels),
            executing: self.executing.series(&labels),
            seats: self.seats.series(&labels),
            waiting_seats: self.waiting_seats.series(&labels),
            estimates: self.estimates.series(&labels),
            lengths: self.lengths.series(&labels),
            waits: ["false", "true"].map(|execute| self.waits.series(&[execute, schema, level])),
            executions: self.executions.series(&[schema, level, "regular"]),
        }
    }
}

/// Counts a running request until the value is dropped.
#[derive(Debug)]
pub(super) struct Running {
    meter: Arc<Meter>,
    seats: u32,
    began: Instant,
}

/// Counts a waiting request until the value is dropped.
pub(super) struct Waiting<'m> {
    meter: &'m Meter,
    seats: u32,
}

fn add<T>(number: Option<&Arc<AtomicI64>>, more: T)
where
    i64: From<T>,
{
    if let Some(number) = number {
        number.fetch_add(more.into(), Ordering::Relaxed);
    }
}

impl Meter {
    /// Records that a request for this number of seats begins to wait.
    pub(super) fn waits(&self, seats: u32) -> Waiting<'_> {
        if let Some(estimates) = &self.estimates {
            estimates.record(seats.into());
        }
        add(self.waiting.as_ref(), 1);
        add(self.waiting_seats.as_ref(), seats);
        Waiting { meter: self, seats }
    }

    /// Records the length of the queue in which a request waits.
    pub(super) fn queued(&self, length: usize) {
        if let Some(lengths) = &self.lengths {
            lengths.record(length as u64);
        }
    }

    /// Records that a request begins to run after waiting for `waited`.
    pub(super) fn runs(self: &Arc<Self>, seats: u32, waited: Duration) -> Running {
        self.waited(true, waited);
        if let Some(dispatched) = &self.dispatched {
            dispatched.fetch_add(1, Ordering::Relaxed);
        }
        add(self.executing.as_ref(), 1);
        add(self.seats.as_ref(), seats);
        Running { meter: self.clone(), seats, began: Instant::now() }
    }

    /// Records that a request was refused after waiting for `waited`.
    pub(super) fn refused(&self, why: Why, waited: Duration) {
        self.waited(false, waited);
        let at = REASONS.iter().position(|reason| *reason == why);
        if let Some(rejected) = at.and_then(|at| self.rejected[at].as_ref()) {
            rejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waited(&self, ran: bool, waited: Duration) {
        if let Some(waits) = &self.waits[usize::from(ran)] {
            waits.record(micros(waited));
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        add(self.meter.waiting.as_ref(), -1);
        add(self.meter.waiting_seats.as_ref(), -i64::from(self.seats));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Running { meter, seats, began } = self;
        add(meter.executing.as_ref(), -1);
        add(meter.seats.as_ref(), -i64::from(*seats));
        if let Some(executions) = &meter.executions {
            executions.record(micros(began.elapsed()));
        }
    }
}

impl Fairness {
    /// Writes the metric families of flow control.
    pub fn write(&self, page: &mut Page<'_>) {
        self.families.all().into_iter().for_each(|family| family.write(page));
        let help = "Requests that wait, and that read or write.";
        let name = "apiserver_current_inqueue_requests";
        let mut inqueue = page.family(&definition(name, Stability::Alpha, &[], help), Kind::Gauge);
        for (kind, count) in [("mutating", &self.waiting[1]), ("readOnly", &self.waiting[0])] {
            inqueue.number(&format!("request_kind=\"{kind}\""), count.load(Ordering::Relaxed));
        }
        let name = "apiserver_flowcontrol_request_concurrency_in_use";
        let labels = &["flow_schema", "priority_level"];
        let help = "Seats of the requests that run, under an older name.";
        self.families.seats.write_as(&definition(name, Stability::Alpha, labels, help), page);
        self.write_levels(page);
    }

    fn write_levels(&self, page: &mut Page<'_>) {
        let plan = self.plan.load();
        let smoothed = self.smoothed.lock();
        let mut of_levels = |name, stability, help, value: &dyn Fn(&str, &super::Planned) -> f64| {
            let mut numbers = page.family(&definition(name, stability, &[], help), Kind::Gauge);
            for (level, planned) in &plan.levels {
                let labels = labels_text([("priority_level", &**level)].into_iter());
                numbers.number(&labels, value(level, planned));
            }
        };
        use Stability::{Alpha, Beta};
        of_levels(
            "apiserver_flowcontrol_nominal_limit_seats",
            Beta,
            "Seats of a level when no level lends or borrows.",
            &|_, planned| planned.entitled.nominal,
        );
        of_levels(
            "apiserver_flowcontrol_request_concurrency_limit",
            Alpha,
            "The same under an older name.",
            &|_, planned| planned.entitled.nominal,
        );
        of_levels(
            "apiserver_flowcontrol_lower_limit_seats",
            Alpha,
            "Seats that a level keeps when others borrow.",
            &|_, planned| planned.entitled.least,
        );
        of_levels(
            "apiserver_flowcontrol_upper_limit_seats",
            Alpha,
            "Seats that a level has at most when it borrows.",
            &|_, planned| planned.entitled.most,
        );
        of_levels(
            "apiserver_flowcontrol_current_limit_seats",
            Alpha,
            "Seats that a level has now.",
            &|_, planned| f64::from(planned.level.limit()),
        );
        of_levels(
            "apiserver_flowcontrol_demand_seats_smoothed",
            Alpha,
            "Seats that a level wants, over many periods.",
            &|level, _| smoothed.get(level).copied().unwrap_or_default(),
        );
        let observation = |level: &str| plan.levels.get(level).map(|planned| *planned.observed.lock());
        for (name, help, value) in [
            (
                "apiserver_flowcontrol_demand_seats_average",
                "Seats that a level wanted in the last period, on average.",
                (|observed| observed.average) as fn(Observed) -> f64,
            ),
            (
                "apiserver_flowcontrol_demand_seats_stdev",
                "Standard deviation of the seats that a level wanted in the last period.",
                |observed| observed.deviation,
            ),
            (
                "apiserver_flowcontrol_demand_seats_high_watermark",
                "Most seats that a level wanted at once in the last period.",
                |observed| observed.highest,
            ),
        ] {
            of_levels(name, Alpha, help, &|level, _| observation(level).map(value).unwrap_or_default());
        }
        of_levels(
            "apiserver_flowcontrol_target_seats",
            Alpha,
            "Seats that a level should have: what it wants, and no less than it keeps.",
            &|level, planned| {
                let smoothed = smoothed.get(level).copied().unwrap_or_default();
                planned.entitled.least.max(smoothed)
            },
        );
    }
}
