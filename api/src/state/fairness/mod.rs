//! Priority and fairness: limits the number of concurrent requests, and decides which request is next if
//! there are too many (docs/api/fairness.md).
//!
//! ```text
//! request ─ matching: flow schema ─► level ─ seats: free? ─► Turn with a Seat ─ until the response ends ─► free again
//!                                      │             └─ queue, or 429
//! controllers/flow_control ─ objects ─► configure; every 10 s: demand ─► divide ─► seats of each level
//! ```
//!
//! The alternative is two limits without priorities, one for reads and one for writes. This module depends
//! on the attributes of requests and on the flow control objects, but not on resources or the store.

mod definitions;
mod demand;
mod dump;
mod executing;
mod matching;
mod meter;
mod reserve;
mod retry_after;
mod seats;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use auth::{Attributes, identity};
use http::HeaderValue;
use parking_lot::Mutex;

use self::demand::{Entitlement, Observed};
use self::executing::{ExecutingEntry, Runner};
use self::matching::Schema;
use self::meter::{Families, Meter, Running};
use self::seats::{Entrant, Manner, PriorityLevel, Queuing, SeatRefusal};
use values::json::Value;

pub use self::dump::respond;

/// Interval at which seats are divided again.
pub const PERIOD: Duration = Duration::from_secs(10);

/// Maximum time for which a request waits in a queue.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// Maximum number of seats of a list, and of a write.
const SEATS_MAX: (u32, u32) = (100, 10);

/// Maximum number of queues that a level keeps. A configuration may contain a larger number, which would use memory
/// without a benefit.
const QUEUES_MAX: i64 = 4096;

/// Maximum number of seats of a flow whose requests run without taking turns. If the number of such requests exceeded
/// the number of processors, the requests would only wait for each other.
const CROWD_SEATS: u32 = 4;

/// Maximum share of a level's seats that one request may take.
const PART_MAX: f64 = 0.15;

/// The settings of the operator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Whether priority levels share the capacity of the server. If the value is false, only the limits `reading` and
    /// `writing` apply.
    pub is_shared: bool,
    /// Maximum number of concurrent reads; 0 means unlimited.
    pub reading: u32,
    /// Maximum number of concurrent writes; 0 means unlimited.
    pub writing: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { is_shared: true, reading: 400, writing: 200 }
    }
}

/// Decides which requests run.
pub struct Fairness {
    settings: Settings,
    reading: Arc<AtomicU32>,
    writing: Arc<AtomicU32>,
    plan: ArcSwap<Plan>,
    /// The smoothed demand of each level. The lock is held while levels change.
    smoothed: Mutex<BTreeMap<String, f64>>,
    families: Families,
    /// Number of waiting requests: reads, and writes.
    waiting: [AtomicI64; 2],
}

/// The schemas in the order in which they are tried, and the levels.
#[derive(Debug, Default)]
struct Plan {
    flows: Vec<Flow>,
    levels: BTreeMap<String, Planned>,
}

/// A flow schema and the level that serves it.
#[derive(Debug)]
struct Flow {
    schema: Schema,
    ids: Arc<Ids>,
    level: Arc<PriorityLevel>,
    seats_max: u32,
    meter: Arc<Meter>,
}

/// UIDs of the flow schema and the priority level that flow control selected for a request.
#[derive(Debug)]
pub struct Ids {
    /// UID of the flow schema.
    pub schema: HeaderValue,
    /// UID of the priority level.
    pub level: HeaderValue,
}

#[derive(Debug)]
struct Planned {
    level: Arc<PriorityLevel>,
    entitled: Entitlement,
    is_limited: bool,
    /// The demand of the level in the last period.
    observed: Mutex<Observed>,
}

/// The result for a request that waited for its turn.
#[derive(Debug)]
pub struct Turn {
    /// The flow schema and priority level of the request; `None` if the request was not classified.
    pub ids: Option<Arc<Ids>>,
    /// The permit to run, or the seconds after which the client may retry.
    pub permit: Result<Permit, u32>,
}

/// The permit to run, which is valid until the value is dropped.
#[derive(Debug)]
pub struct Permit {
    seat: Option<(seats::Seat, Running, ExecutingEntry)>,
    counted: Option<Arc<AtomicU32>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(counted) = &self.counted {
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Permit {
    /// Returns whether the request is large or belongs to a flow with many running requests. Requests for which this
    /// method returns true take turns on the processor.
    pub fn is_crowded(&self) -> bool {
        self.seat.as_ref().is_some_and(|(seat, ..)| seat.flow_seats() > CROWD_SEATS)
    }

    const FREE: Permit = Permit { seat: None, counted: None };
}

/// The estimated size of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Work {
    /// A list of objects with this total size in bytes.
    List(u64),
    /// A write of any kind.
    Write,
    /// Any other request, such as a get.
    Other,
}

/// Number of bytes of a list for which one seat is charged.
const BYTES_PER_SEAT: u64 = 100_000;

impl Work {
    fn seats(self, most: u32) -> u32 {
        match self {
            Work::List(bytes) => {
                let seats = u32::try_from(bytes.div_ceil(BYTES_PER_SEAT)).unwrap_or(u32::MAX);
                seats.clamp(1, most.min(SEATS_MAX.0))
            }
            Work::Write | Work::Other => 1,
        }
    }
}

impl Fairness {
    /// Creates flow control without levels. Until the first configuration, only the limits for reads and for writes
    /// apply, if the operator has set them.
    pub fn new(settings: Settings) -> Fairness {
        Fairness {
            settings,
            reading: Arc::default(),
            writing: Arc::default(),
            plan: ArcSwap::default(),
            smoothed: Mutex::default(),
            families: Families::default(),
            waiting: Default::default(),
        }
    }

    /// Returns whether levels share the server.
    pub fn is_shared(&self) -> bool {
        self.settings.is_shared
    }

    /// Waits until a request may run. `work` is called only if flow control needs the estimate. `time_allowed`
    /// is the timeout of the request.
    pub async fn turn(
        &self,
        attributes: &Attributes<'_>,
        time_allowed: Duration,
        work: impl FnOnce() -> Work,
    ) -> Turn {
        if !self.settings.is_shared {
            return Turn { ids: None, permit: self.bounded(attributes, work) };
        }
        let plan = self.plan.load();
        let Some(flow) = plan.flows.iter().find(|flow| flow.schema.matches(attributes)) else {
            return Turn { ids: None, permit: Ok(Permit::FREE) };
        };
        let (ids, level, meter) = (flow.ids.clone(), flow.level.clone(), flow.meter.clone());
        let name = flow.schema.flow(attributes);
        let schema = flow.schema.name.clone();
        let seats = if flow.seats_max > 1 { work().seats(flow.seats_max) } else { 1 };
        // The plan may change while the request waits.
        drop(plan);
        let attributes_text = executing::format_attributes(attributes);
        let entrant = Entrant {
            hash: matching::hash(&schema, name),
            schema: &schema,
            flow: name,
            attributes_text: &attributes_text,
            seats,
            patience: (time_allowed / 4).min(PATIENCE_MAX),
        };
        let began = Instant::now();
        let entered = {
            let _waiting = meter.waits(seats);
            let _counted = Counted::in_(&self.waiting[usize::from(is_write(attributes))]);
            level.enter(entrant, |length| meter.queued(length)).await
        };
        let permit = match entered {
            Ok(seat) => {
                let now = Instant::now();
                let seats = seat.count();
                let running = meter.runs(seats, now.saturating_duration_since(began));
                let flow = name.to_owned();
                let queue = seat.queue();
                let runner =
                    Runner { schema, flow, attributes_text, queue, seats, arrived: began, began: now };
                let listed = level.executing().list(runner);
                Ok(Permit { seat: Some((seat, running, listed)), counted: None })
            }
            Err(SeatRefusal { why, retry_after_s }) => {
                meter.refused(why, began.elapsed());
                tracing::debug!(level = level.name(), schema, why = why.as_str(), "too many requests");
                Err(retry_after_s)
            }
        };
        Turn { ids: Some(ids), permit }
    }

    /// Applies the limits for reads and for writes. Members of `system:masters` are not limited.
    fn bounded(&self, attributes: &Attributes<'_>, work: impl FnOnce() -> Work) -> Result<Permit, u32> {
        let (counter, bound) = match work() {
            Work::Write => (&self.writing, self.settings.writing),
            Work::List(_) | Work::Other => (&self.reading, self.settings.reading),
        };
        if bound == 0 || attributes.user.groups.iter().any(|group| group == identity::MASTERS) {
            return Ok(Permit::FREE);
        }
        let before = counter.fetch_add(1, Ordering::Relaxed);
        let permit = Permit { seat: None, counted: Some(counter.clone()) };
        if before >= bound { Err(1) } else { Ok(permit) }
    }

    /// Sets the flow schemas and priority levels, given as objects. Existing levels keep their requests.
    pub fn configure(&self, schemas: &[Value], levels: &[Value]) {
        let mut smoothed = self.smoothed.lock();
        let before = self.plan.load_full();
        let total = f64::from(self.settings.reading + self.settings.writing);
        let specs: Vec<LevelSpec> = levels.iter().map(LevelSpec::read).collect();
        let all_shares: f64 = specs.iter().map(|spec| spec.shares).sum();
        let mut plan = Plan::default();
        let mut uids = BTreeMap::new();
        for spec in &specs {
            let entitled = spec.entitlement(total, all_shares);
            let level = match before.levels.get(&spec.name) {
                Some(planned) => planned.level.clone(),
                None => {
                    let limit = entitled.nominal - (entitled.nominal - entitled.least) / 2.0;
                    Arc::new(PriorityLevel::new(&spec.name, spec.manner, limit.round() as u32))
                }
            };
            level.set_manner(spec.manner);
            uids.insert(&*spec.name, (&*spec.uid, spec.seats_max(entitled.nominal)));
            let is_limited = spec.manner != Manner::Exempt;
            let observed = Mutex::default();
            plan.levels.insert(spec.name.clone(), Planned { level, entitled, is_limited, observed });
        }
        for object in schemas {
            let schema = Schema::read(object);
            let (Some(planned), Some((uid, seats_max))) =
                (plan.levels.get(&schema.level), uids.get(&*schema.level))
            else {
                continue; // the status of the schema reports this
            };
            let ids = Arc::new(Ids { schema: header(&schema.uid), level: header(uid) });
            let meter = Arc::new(self.families.meter(&schema.name, &schema.level));
            let level = planned.level.clone();
            plan.flows.push(Flow { schema, ids, level, seats_max: *seats_max, meter });
        }
        plan.flows.sort_by(|a, b| {
            (a.schema.precedence, &a.schema.name).cmp(&(b.schema.precedence, &b.schema.name))
        });
        smoothed.retain(|name, _| plan.levels.contains_key(name));
        divide(&plan, &smoothed, total, |_| 0.0);
        self.plan.store(Arc::new(plan));
    }

    /// Divides the seats again, by the demand of the levels since the previous call.
    pub fn divide_again(&self) {
        let mut smoothed = self.smoothed.lock();
        let plan = self.plan.load_full();
        let mut highest = BTreeMap::new();
        for (name, planned) in plan.levels.iter().filter(|(_, planned)| planned.is_limited) {
            let observed = planned.level.observe();
            let before = smoothed.entry(name.clone()).or_default();
            *before = demand::smooth(*before, &observed);
            highest.insert(name.clone(), observed.highest);
            *planned.observed.lock() = observed;
            let load = planned.level.load();
            self.families.sample(name, load, observed.average, planned.entitled.nominal);
        }
        let kinds = [("readOnly", self.settings.reading), ("mutating", self.settings.writing)];
        for ((kind, bound), waiting) in kinds.into_iter().zip(&self.waiting) {
            let waiting = u64::try_from(waiting.load(Ordering::Relaxed)).unwrap_or_default();
            self.families.sample_kind(kind, waiting, bound.into());
        }
        let total = f64::from(self.settings.reading + self.settings.writing);
        divide(&plan, &smoothed, total, |name| highest.get(name).copied().unwrap_or_default());
    }
}

/// Increments a counter until the value is dropped.
struct Counted<'n>(&'n AtomicI64);

impl<'n> Counted<'n> {
    fn in_(number: &'n AtomicI64) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Counted(number)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn is_write(attributes: &Attributes<'_>) -> bool {
    !matches!(attributes.verb, "get" | "list" | "watch" | "head" | "options")
}

/// Assigns seats to each level of a plan.
fn divide(plan: &Plan, smoothed: &BTreeMap<String, f64>, total: f64, highest: impl Fn(&str) -> f64) {
    let limited: Vec<(&String, &Planned)> =
        plan.levels.iter().filter(|(_, planned)| planned.is_limited).collect();
    let demands: Vec<(Entitlement, f64, f64)> = limited
        .iter()
        .map(|(name, planned)| {
            (planned.entitled, smoothed.get(*name).copied().unwrap_or_default(), highest(name))
        })
        .collect();
    for ((_, planned), seats) in limited.into_iter().zip(demand::divide(total, &demands)) {
        planned.level.set_limit(seats);
    }
}

/// The part of a PriorityLevelConfiguration that takes effect.
#[derive(Clone, Debug, PartialEq)]
struct LevelSpec {
    name: String,
    uid: String,
    manner: Manner,
    shares: f64,
    /// Share of the level's seats that other levels may borrow.
    lendable: f64,
    /// Maximum number of borrowed seats, as a share of the level's own seats; `None` means unlimited.
    borrowing: Option<f64>,
}

impl LevelSpec {
    fn read(object: &Value) -> LevelSpec {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let is_exempt = spec.str_at(&["type"]) == "Exempt";
        let limited = spec.get(if is_exempt { "exempt" } else { "limited" }).unwrap_or(&Value::Null);
        let number = |member: &str| limited.get(member).and_then(Value::as_i64).map(|number| number as f64);
        let queuing = limited.at(&["limitResponse", "queuing"]);
        let manner = match limited.str_at(&["limitResponse", "type"]) {
            _ if is_exempt => Manner::Exempt,
            "Queue" => Manner::Queue(read_queuing(queuing.unwrap_or(&Value::Null))),
            _ => Manner::Reject,
        };
        LevelSpec {
            name: object.str_at(&["metadata", "name"]).to_owned(),
            uid: object.str_at(&["metadata", "uid"]).to_owned(),
            manner,
            shares: number("nominalConcurrencyShares").unwrap_or(if is_exempt { 0.0 } else { 30.0 }),
            lendable: number("lendablePercent").unwrap_or_default() / 100.0,
            borrowing: number("borrowingLimitPercent").map(|percent| percent / 100.0),
        }
    }

    fn entitlement(&self, total: f64, all_shares: f64) -> Entitlement {
        let nominal = if all_shares > 0.0 { (total * self.shares / all_shares).ceil() } else { 0.0 };
        let lendable = (nominal * self.lendable).round();
        let borrowing = self.borrowing.map_or(total, |part| (nominal * part).round());
        Entitlement { nominal, least: nominal - lendable, most: nominal + borrowing }
    }

    /// Returns the maximum number of seats that one request takes in this level.
    fn seats_max(&self, nominal: f64) -> u32 {
        let part = (nominal * PART_MAX).ceil() as u32;
        match self.manner {
            Manner::Queue(Queuing { hand, .. }) => part.min(nominal as u32 / hand as u32).max(1),
            Manner::Reject => part.max(1),
            Manner::Exempt => 1,
        }
    }
}

/// Reads the queue settings of a level. Numbers outside of the range that validation permits are clamped.
fn read_queuing(queuing: &Value) -> Queuing {
    let number = |member: &str, default: i64, most: i64| {
        let number = queuing.get(member).and_then(Value::as_i64).unwrap_or(default);
        number.clamp(1, most) as usize
    };
    let queues = number("queues", 64, QUEUES_MAX);
    Queuing {
        queues,
        hand: number("handSize", 8, 60).min(queues),
        length: number("queueLengthLimit", 50, i64::MAX),
    }
}

fn header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
#[path = "fairness_test.rs"]
mod tests;
