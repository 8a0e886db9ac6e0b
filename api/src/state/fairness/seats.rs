//! The seats of one priority level: the requests that have seats, the requests that wait for seats, and the
//! choice of the next request (docs/api/fairness.md#levels).
//!
//! ```text
//! enter ─ a seat is free and no request waits, or a reserved seat is free ─► Seat ─ drop ─► release ─► next request
//!    └─ queue of the least work among the flow's hand ─ full? ─ wait ───────────┘
//! ```
//!
//! Queues are served fairly in virtual time: the work done for a queue advances its position, and the next
//! request is the request that would end first in virtual time. Each level has a lock that protects the state. The lock
//! is held for a few comparisons, and never across an await.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::demand::{Demand, Load, Observed};
use super::executing::{Executing, Runner};
use super::reserve::Reserve;
use super::retry_after::RetryAfter;

/// Assumed duration of a request before it has run.
const SERVICE_SECONDS: f64 = 0.003;

/// The behavior of a level when it has no free seat for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    /// The level has a seat for every request.
    Exempt,
    /// The level refuses the request.
    Reject,
    /// The request waits in a queue.
    Queue(Queuing),
}

/// The queue settings of a level.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Queuing {
    /// Number of queues; at least 1.
    pub queues: usize,
    /// Number of queues that one flow may use; at most the number of queues.
    pub hand: usize,
    /// Maximum number of requests that wait in one queue.
    pub length: usize,
}

/// The seats and queues of one priority level.
#[derive(Debug)]
pub struct PriorityLevel {
    name: String,
    state: Mutex<State>,
    executing: Arc<Executing>,
}

#[derive(Debug)]
struct State {
    manner: Manner,
    limit: u32,
    executing: u32,
    in_use: u32,
    reserve: Reserve,
    queues: Vec<Queue>,
    /// Number of queues with waiting or running requests.
    active: usize,
    waiting: usize,
    waiting_seats: u32,
    /// Virtual time, in seconds of one seat.
    now: f64,
    read_at: Instant,
    /// The queue that was served last; queues with equal virtual time are served in turn.
    served: usize,
    ids: u64,
    demand: Demand,
    retry_after: RetryAfter,
    counts: Counts,
}

/// Numbers of requests by outcome.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Requests that got a seat.
    pub dispatched: u64,
    /// Requests that were refused immediately.
    pub rejected: u64,
    /// Requests that waited until their time limit.
    pub timed_out: u64,
    /// Requests that their clients cancelled while waiting.
    pub cancelled: u64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiter>,
    waiting_seats: u32,
    executing: u32,
    in_use: u32,
    /// Virtual time at which the first request of the queue may start.
    next: f64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    hash: u64,
    seats: u32,
    arrived: Instant,
    schema: String,
    flow: String,
    attributes_text: String,
    grant: oneshot::Sender<Seat>,
}

/// A request for seats.
#[derive(Clone, Copy, Debug)]
pub struct Entrant<'e> {
    /// Hash of the flow of the request.
    pub hash: u64,
    /// Name of the flow schema of the request.
    pub schema: &'e str,
    /// Name of the flow of the request within the flow schema.
    pub flow: &'e str,
    /// The attributes of the request, for display.
    pub attributes_text: &'e str,
    /// Number of seats that the request takes; at least 1.
    pub seats: u32,
    /// Maximum time for which the request waits.
    pub patience: Duration,
}

/// The reason why a request got no seat, and when to retry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SeatRefusal {
    /// The reason of the refusal.
    pub why: Why,
    /// Seconds after which the client may retry.
    pub retry_after_s: u32,
}

/// The reason why a request got no seat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// No seat is free, and the level has no queues.
    NoSeat,
    /// The queue is full.
    QueueFull,
    /// The request waited until its time limit.
    TimeOut,
}

impl Why {
    /// Returns the name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::NoSeat => "concurrency-limit",
            Why::QueueFull => "queue-full",
            Why::TimeOut => "time-out",
        }
    }
}

/// The seats of a request. Dropping the value frees the seats.
#[derive(Debug)]
pub struct Seat {
    /// `None` only while the value is being dropped.
    level: Option<Arc<PriorityLevel>>,
    taken: Taken,
    /// Number of seats of the flow of the request, including these seats; 0 in a level without queues.
    flow_seats: u32,
}

/// The seats of a request.
#[derive(Clone, Copy, Debug)]
struct Taken {
    queue: Option<usize>,
    /// Hash of the flow of the request.
    hash: u64,
    seats: u32,
    /// Whether the seats are reserved seats. The level reserves such seats for flows with few running
    /// requests.
    is_kept: bool,
    began: Instant,
}

impl Seat {
    /// Returns the queue of the request; `None` in a level without queues.
    pub(super) fn queue(&self) -> Option<usize> {
        self.taken.queue
    }

    /// Returns the number of seats.
    pub(super) fn count(&self) -> u32 {
        self.taken.seats
    }

    /// Returns the number of seats that the flow had when the request began, including the seats of the
    /// request. 0 in a level without queues, which does not distinguish flows.
    pub(super) fn flow_seats(&self) -> u32 {
        self.flow_seats
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(level) = self.level.take() {
            level.release(&self.taken);
        }
    }
}

impl PriorityLevel {
    /// Creates a level with this number of seats.
    pub fn new(name: &str, manner: Manner, limit: u32) -> PriorityLevel {
        let now = Instant::now();
        let mut state = State {
            manner,
            limit,
            executing: 0,
            in_use: 0,
            reserve: Reserve::default(),
            queues: Vec::new(),
            active: 0,
            waiting: 0,
            waiting_seats: 0,
            now: 0.0,
            read_at: now,
            served: 0,
            ids: 0,
            demand: Demand::new(now),
            retry_after: RetryAfter::new(now),
            counts: Counts::default(),
        };
        state.make_queues();
        PriorityLevel { name: name.to_owned(), state: Mutex::new(state), executing: Arc::default() }
    }

    /// Returns the name of the level.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the list of running requests.
    pub(super) fn executing(&self) -> &Arc<Executing> {
        &self.executing
    }

    /// Sets the behavior of the level for requests for which no seat is free. Waiting requests keep their
    /// positions.
    pub fn set_manner(self: &Arc<PriorityLevel>, manner: Manner) {
        let mut state = self.state.lock();
        if state.manner != manner {
            state.manner = manner;
            state.make_queues();
            self.serve(&mut state);
        }
    }

    /// Changes the number of seats.
    pub fn set_limit(self: &Arc<PriorityLevel>, limit: u32) {
        let mut state = self.state.lock();
        state.pass_time(Instant::now());
        state.limit = limit;
        self.serve(&mut state);
    }

    /// Returns the current number of seats.
    pub fn limit(&self) -> u32 {
        self.state.lock().limit
    }

    /// Returns the demand for seats since the previous call.
    pub fn observe(&self) -> Observed {
        self.state.lock().demand.take(Instant::now())
    }

    /// Returns the current load of the level.
    pub fn load(&self) -> Load {
        let state = self.state.lock();
        let room = match state.manner {
            Manner::Queue(queuing) => (queuing.queues as u64).saturating_mul(queuing.length as u64),
            Manner::Exempt | Manner::Reject => 0,
        };
        Load {
            executing: state.executing,
            waiting: u32::try_from(state.waiting).unwrap_or(u32::MAX),
            in_use: state.in_use,
            limit: state.limit,
            room,
        }
    }

    /// Waits for seats. `queued` is called with the length of the queue in which the request waits.
    ///
    /// # Errors
    /// Not enough seats became free in time, or the level refuses requests that must wait.
    pub async fn enter(
        self: &Arc<PriorityLevel>,
        entrant: Entrant<'_>,
        queued: impl FnOnce(usize),
    ) -> Result<Seat, SeatRefusal> {
        let arrived = Instant::now();
        let (mut granted, mut place) = {
            let mut state = self.state.lock();
            state.pass_time(arrived);
            let Entrant { hash, seats, .. } = entrant;
            let mut taken = Taken { queue: None, hash, seats, is_kept: false, began: arrived };
            let queuing = match state.manner {
                Manner::Queue(queuing) => queuing,
                Manner::Reject if !state.has_room(entrant.seats) => {
                    return Err(state.refuse(Why::NoSeat, arrived));
                }
                Manner::Reject | Manner::Exempt => {
                    return Ok(self.seat(&mut state, taken));
                }
            };
            let queue = state.choose(&queuing, hash);
            taken.queue = Some(queue);
            let is_room = state.waiting == 0 && state.has_room(seats);
            let kept = if is_room { None } else { state.reserve.room(state.limit, hash, seats) };
            if let Some(seats) = kept {
                (taken.seats, taken.is_kept) = (seats, true);
            }
            if is_room || taken.is_kept {
                state.begin_queue(queue);
                return Ok(self.seat(&mut state, taken));
            }
            if state.queues[queue].waiting.len() >= queuing.length {
                return Err(state.refuse(Why::QueueFull, arrived));
            }
            let (grant, granted) = oneshot::channel();
            let id = state.enqueue(queue, &entrant, arrived, grant);
            queued(state.queues[queue].waiting.len());
            // The level may have skipped this queue, because too few seats were free for its first request.
            self.serve(&mut state);
            (granted, Queued { level: self, queue, id, why: None })
        };
        match tokio::time::timeout(entrant.patience, &mut granted).await {
            Ok(Ok(seat)) => Ok(seat),
            // The channel is still open, so a seat may have arrived between the timeout and this check.
            Ok(Err(_)) | Err(_) => match granted.try_recv() {
                Ok(seat) => Ok(seat),
                Err(_) => {
                    place.why = Some(Why::TimeOut);
                    drop(place);
                    Err(self.state.lock().refused(Why::TimeOut, Instant::now()))
                }
            },
        }
    }

    /// Assigns seats to the next requests, as long as enough seats are free.
    fn serve(self: &Arc<PriorityLevel>, state: &mut State) {
        while let Some((queue, kept)) = state.next_served() {
            let Some(waiter) = state.leave_queue(queue, 0) else { return };
            if kept.is_none() {
                state.served = queue;
            }
            let Waiter { hash, seats, grant, .. } = waiter;
            let (seats, is_kept) = (kept.unwrap_or(seats), kept.is_some());
            let taken = Taken { queue: Some(queue), hash, seats, is_kept, began: Instant::now() };
            let seat = self.seat(state, taken);
            // The client no longer waits. The seats of the request are freed here, because the lock is
            // already held.
            if let Err(mut seat) = grant.send(seat) {
                seat.level = None;
                state.end(&seat.taken);
            }
        }
    }

    fn seat(self: &Arc<PriorityLevel>, state: &mut State, taken: Taken) -> Seat {
        state.begin(&taken);
        Seat { level: Some(self.clone()), taken, flow_seats: state.reserve.under_way(taken.hash) }
    }

    fn release(self: &Arc<PriorityLevel>, taken: &Taken) {
        let mut state = self.state.lock();
        state.end(taken);
        self.serve(&mut state);
    }

    /// Returns the state for display.
    pub fn report(&self) -> Report {
        let state = self.state.lock();
        Report {
            name: self.name.clone(),
            manner: state.manner,
            executing: state.executing,
            waiting: state.waiting,
            counts: state.counts,
            queues: state.queues.iter().map(Queue::report).collect(),
            runners: self.executing.all(),
        }
    }
}

/// The state of a level at one moment.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the level.
    pub name: String,
    /// The behavior of the level if no seat is free.
    pub manner: Manner,
    /// Number of running requests.
    pub executing: u32,
    /// Number of waiting requests.
    pub waiting: usize,
    /// Numbers of requests by outcome.
    pub counts: Counts,
    /// The queues of the level.
    pub queues: Vec<QueueReport>,
    /// The running requests of the level.
    pub(super) runners: Vec<Runner>,
}

/// The state of a queue at one moment.
#[derive(Clone, Debug)]
pub struct QueueReport {
    /// Number of running requests from this queue.
    pub executing: u32,
    /// Seats that these requests take.
    pub in_use: u32,
    /// Virtual time at which the first request of the queue may start.
    pub next: f64,
    /// The waiting requests, in their order.
    pub waiting: Vec<WaiterReport>,
}

/// A waiting request, for display.
#[derive(Clone, Debug)]
pub struct WaiterReport {
    /// Name of the flow schema of the request.
    pub schema: String,
    /// The name of the flow within the schema.
    pub flow: String,
    /// The request attributes as text.
    pub attributes_text: String,
    /// Time for which the request has been waiting.
    pub waited: Duration,
    /// Number of seats that the request needs.
    pub seats: u32,
}

impl Queue {
    fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }

    fn report(&self) -> QueueReport {
        let waiting = self.waiting.iter().map(|waiter| WaiterReport {
            schema: waiter.schema.clone(),
            flow: waiter.flow.clone(),
            attributes_text: waiter.attributes_text.clone(),
            waited: waiter.arrived.elapsed(),
            seats: waiter.seats,
        });
        QueueReport {
            executing: self.executing,
            in_use: self.in_use,
            next: self.next,
            waiting: waiting.collect(),
        }
    }
}

/// The position of a request in a queue. Dropping the value removes the request from the queue.
struct Queued<'l> {
    level: &'l Arc<PriorityLevel>,
    queue: usize,
    id: u64,
    /// The reason why the request leaves the queue; `None` if the client cancelled the request.
    why: Option<Why>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut state = self.level.state.lock();
        let Some(queue) = state.queues.get(self.queue) else { return };
        let Some(at) = queue.waiting.iter().position(|waiter| waiter.id == self.id) else { return };
        let _left = state.leave_queue(self.queue, at);
        match self.why {
            Some(_) => state.counts.timed_out += 1,
            None => state.counts.cancelled += 1,
        }
        // The removed request may have been the first of its queue, and too large for the free seats.
        self.level.serve(&mut state);
    }
}

impl State {
    /// Creates the configured number of queues. Queues in use are kept.
    fn make_queues(&mut self) {
        let configured = match self.manner {
            Manner::Queue(queuing) => queuing.queues,
            Manner::Exempt | Manner::Reject => 0,
        };
        let used = self.queues.iter().rposition(Queue::is_active).map_or(0, |last| last + 1);
        self.queues.resize_with(configured.max(used), Queue::default);
    }

    /// Returns whether enough seats are free in addition to the reserved seats. Only levels with queues reserve
    /// seats.
    fn has_room(&self, seats: u32) -> bool {
        let kept = if matches!(self.manner, Manner::Queue(_)) { Reserve::size(self.limit) } else { 0 };
        let in_use = self.in_use - self.reserve.in_use();
        in_use == 0 || in_use + seats <= self.limit - kept || self.manner == Manner::Exempt
    }

    /// Advances virtual time, at the rate at which the active queues share the seats in use.
    fn pass_time(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.read_at).as_secs_f64();
        self.read_at = self.read_at.max(now);
        if self.executing == 0 && self.waiting == 0 {
            return; // without requests, virtual time has no effect
        }
        if self.active > 0 {
            let seats = (self.in_use + self.waiting_seats).min(self.limit);
            self.now += passed * f64::from(seats) / self.active as f64;
        }
    }

    /// Returns the queue with the least work among the queues that the flow may use.
    fn choose(&self, queuing: &Queuing, hash: u64) -> usize {
        let load = |queue: &usize| self.queues[*queue].waiting_seats + self.queues[*queue].in_use;
        deal(hash, queuing.queues, queuing.hand).into_iter().min_by_key(load).unwrap_or_default()
    }

    /// Changes a queue, and updates the number of active queues. A queue with requests is never removed.
    fn change<T>(&mut self, queue: usize, change: impl FnOnce(&mut Queue) -> T) -> T {
        let queue = &mut self.queues[queue];
        let before = queue.is_active();
        let result = change(queue);
        match (before, queue.is_active()) {
            (false, true) => self.active += 1,
            (true, false) => self.active -= 1,
            _ => {}
        }
        result
    }

    fn begin_queue(&mut self, queue: usize) {
        if !self.queues[queue].is_active() {
            self.queues[queue].next = self.now;
        }
    }

    fn enqueue(
        &mut self,
        queue: usize,
        entrant: &Entrant<'_>,
        arrived: Instant,
        grant: oneshot::Sender<Seat>,
    ) -> u64 {
        self.begin_queue(queue);
        self.ids += 1;
        let Entrant { hash, schema, flow, attributes_text, seats, .. } = *entrant;
        let (schema, flow, attributes_text) =
            (schema.to_owned(), flow.to_owned(), attributes_text.to_owned());
        let waiter = Waiter { id: self.ids, hash, seats, arrived, schema, flow, attributes_text, grant };
        self.change(queue, |queue| {
            queue.waiting.push_back(waiter);
            queue.waiting_seats += seats;
        });
        self.waiting += 1;
        self.waiting_seats += seats;
        self.note_demand(arrived);
        self.ids
    }

    fn leave_queue(&mut self, queue: usize, at: usize) -> Option<Waiter> {
        let waiter = self.change(queue, |queue| {
            let waiter = queue.waiting.remove(at)?;
            queue.waiting_seats -= waiter.seats;
            Some(waiter)
        })?;
        self.waiting -= 1;
        self.waiting_seats -= waiter.seats;
        Some(waiter)
    }

    /// Returns the queue whose first request can get seats now, and the number of reserved seats that this request
    /// takes; `None` if the request takes no reserved seats.
    fn next_served(&self) -> Option<(usize, Option<u32>)> {
        let next = self.next_queue(|_| true)?;
        if self.queues[next].waiting.front().is_some_and(|first| self.has_room(first.seats)) {
            return Some((next, None));
        }
        if self.reserve.in_use() >= Reserve::size(self.limit) {
            return None;
        }
        let room = |waiter: &Waiter| self.reserve.room(self.limit, waiter.hash, waiter.seats);
        let next = self.next_queue(|waiter| room(waiter).is_some())?;
        Some((next, self.queues[next].waiting.front().and_then(room)))
    }

    /// Returns the queue whose first request satisfies `is_such` and would end first in virtual time. If
    /// several queues are equal, returns the next queue after the queue that was served last.
    fn next_queue(&self, is_such: impl Fn(&Waiter) -> bool) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let count = self.queues.len();
        let in_turn = (1..=count).map(|i| (self.served + i) % count);
        let end = |queue: usize| {
            let first = self.queues[queue].waiting.front().filter(|waiter| is_such(waiter))?;
            Some(self.queues[queue].next + SERVICE_SECONDS * f64::from(first.seats))
        };
        let waiting = in_turn.filter_map(|queue| Some((queue, end(queue)?)));
        waiting.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(queue, _)| queue)
    }

    fn begin(&mut self, taken: &Taken) {
        let Taken { queue, hash, seats, is_kept, began } = *taken;
        if let Some(queue) = queue {
            self.change(queue, |queue| {
                queue.executing += 1;
                queue.in_use += seats;
                queue.next += SERVICE_SECONDS * f64::from(seats);
            });
            self.reserve.begin(hash, seats, is_kept);
        }
        self.executing += 1;
        self.in_use += seats;
        self.counts.dispatched += 1;
        self.note_demand(began);
    }

    fn end(&mut self, taken: &Taken) {
        let Taken { queue, hash, seats, is_kept, began } = *taken;
        let now = Instant::now();
        self.pass_time(now);
        if let Some(queue) = queue {
            let took = now.saturating_duration_since(began).as_secs_f64();
            self.change(queue, |queue| {
                queue.executing -= 1;
                queue.in_use -= seats;
                queue.next += (took - SERVICE_SECONDS) * f64::from(seats);
            });
            self.reserve.end(hash, seats, is_kept);
        }
        self.executing -= 1;
        self.in_use -= seats;
        self.note_demand(now);
    }

    fn note_demand(&mut self, now: Instant) {
        self.demand.set(self.in_use + self.waiting_seats, now);
    }

    fn refuse(&mut self, why: Why, now: Instant) -> SeatRefusal {
        self.counts.rejected += 1;
        self.refused(why, now)
    }

    fn refused(&mut self, why: Why, now: Instant) -> SeatRefusal {
        SeatRefusal { why, retry_after_s: self.retry_after.dropped(now) }
    }
}

/// Returns the queues that a flow may use: `hand` different queues of `queues`. The hash of the flow selects
/// the queues, like cards that are drawn from a deck.
fn deal(mut hash: u64, queues: usize, hand: usize) -> Vec<usize> {
    // Each draw is a position among the remaining cards.
    let mut draws: Vec<usize> = Vec::with_capacity(hand);
    for i in 0..hand.min(queues) {
        let left = (queues - i) as u64;
        draws.push((hash % left) as usize);
        hash /= left;
    }
    // Convert each draw to a position in the whole deck by going back over the earlier draws. Convert the
    // last draws first, because their conversion needs the unconverted earlier draws.
    for i in (1..draws.len()).rev() {
        for j in (0..i).rev() {
            if draws[i] >= draws[j] {
                draws[i] += 1;
            }
        }
    }
    draws
}

#[cfg(test)]
#[path = "seats_test.rs"]
mod tests;
