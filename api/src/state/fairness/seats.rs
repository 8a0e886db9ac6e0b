//! The seats of one priority level: who has one, who waits for one, and who is next (docs/api/fairness.md#levels).
//!
//! ```text
//! enter ─ a seat is free and no request waits, or one is kept for it ───────► Seat ─ drop ─► release ─► the next one
//!    └─ queue of the least work among the flow's hand ─ full? ─ wait ───────┘
//! ```
//!
//! Queues are served fairly in virtual time: each is behind by the work that it has had done, and the one whose first
//! request would end first in virtual time is next. The state is behind one lock per level, held for a few
//! comparisons; nothing is awaited under it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::demand::{Demand, Observed};
use super::executing::{Executing, Runner};
use super::meter::Load;
use super::reserve::Reserve;
use super::retry_after::RetryAfter;

/// What a request is assumed to take before it was seen.
const SERVICE_SECONDS: f64 = 0.003;

/// What a level does with a request for which it has no seat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    /// It has a seat for every request.
    Exempt,
    /// Refuse it.
    Reject,
    /// Let it wait in a queue.
    Queue(Queuing),
}

/// The queues of a level.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Queuing {
    /// Their number; at least 1.
    pub queues: usize,
    /// How many of them one flow may use; at most their number.
    pub hand: usize,
    /// Most requests that wait in one queue.
    pub length: usize,
}

/// Seats for requests of one priority level.
#[derive(Debug)]
pub struct Level {
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
    /// Queues with requests, waiting or under way.
    active: usize,
    waiting: usize,
    waiting_seats: u32,
    /// Virtual time, in seconds of one seat.
    now: f64,
    read_at: Instant,
    /// The queue that was served last; equals are served in turn.
    served: usize,
    ids: u64,
    demand: Demand,
    retry_after: RetryAfter,
    counts: Counts,
}

/// How many requests ended in which way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Had a seat.
    pub dispatched: u64,
    /// Were refused at once.
    pub rejected: u64,
    /// Waited in vain.
    pub timed_out: u64,
    /// Were given up by their clients.
    pub cancelled: u64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiter>,
    waiting_seats: u32,
    executing: u32,
    in_use: u32,
    /// Virtual time at which its first request may start.
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
    asked: String,
    grant: oneshot::Sender<Seat>,
}

/// A request that wants a seat.
#[derive(Clone, Copy, Debug)]
pub struct Entrant<'e> {
    /// Number of its flow.
    pub hash: u64,
    /// Name of its flow schema.
    pub schema: &'e str,
    /// Its flow within the schema.
    pub flow: &'e str,
    /// What it asks for, for those who look.
    pub asked: &'e str,
    /// How many seats it takes; at least 1.
    pub seats: u32,
    /// Longest time that it waits.
    pub patience: Duration,
}

/// Why a request has no seat, and when to try again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refused {
    /// Why.
    pub why: Why,
    /// Seconds after which it may be tried again.
    pub retry_after_s: u32,
}

/// Why a request has no seat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// No seat is free, and the level has no queues.
    NoSeat,
    /// The queue is full.
    QueueFull,
    /// Its time is up.
    TimeOut,
}

impl Why {
    /// As metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::NoSeat => "concurrency-limit",
            Why::QueueFull => "queue-full",
            Why::TimeOut => "time-out",
        }
    }
}

/// The seats of a request. They are free again when this is dropped.
#[derive(Debug)]
pub struct Seat {
    /// `None` only while it is taken apart.
    level: Option<Arc<Level>>,
    taken: Taken,
    /// Seats that its flow has, with these; 0 in a level without queues.
    flow_seats: u32,
}

/// Which seats a request has.
#[derive(Clone, Copy, Debug)]
struct Taken {
    queue: Option<usize>,
    /// Number of its flow.
    hash: u64,
    seats: u32,
    /// Whether they are of those that are kept for flows with little under way.
    is_kept: bool,
    began: Instant,
}

impl Seat {
    /// The queue that its request came through.
    pub(super) fn queue(&self) -> Option<usize> {
        self.taken.queue
    }

    /// How many they are.
    pub(super) fn count(&self) -> u32 {
        self.taken.seats
    }

    /// Seats that its flow had when it began, with these; 0 in a level without queues, which tells no flows apart.
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

impl Level {
    /// A level with this number of seats.
    pub fn new(name: &str, manner: Manner, limit: u32) -> Level {
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
        Level { name: name.to_owned(), state: Mutex::new(state), executing: Arc::default() }
    }

    /// Name of the level.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its requests that run.
    pub(super) fn executing(&self) -> &Arc<Executing> {
        &self.executing
    }

    /// Changes what it does without a free seat. Requests that wait keep their place.
    pub fn set_manner(self: &Arc<Level>, manner: Manner) {
        let mut state = self.state.lock();
        if state.manner != manner {
            state.manner = manner;
            state.make_queues();
            self.serve(&mut state);
        }
    }

    /// Changes the number of seats.
    pub fn set_limit(self: &Arc<Level>, limit: u32) {
        let mut state = self.state.lock();
        state.pass_time(Instant::now());
        state.limit = limit;
        self.serve(&mut state);
    }

    /// Its seats now.
    pub fn limit(&self) -> u32 {
        self.state.lock().limit
    }

    /// How many seats were wanted since this was asked last.
    pub fn observe(&self) -> Observed {
        self.state.lock().demand.take(Instant::now())
    }

    /// What it has to do now.
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

    /// Waits for seats; `queued` is told the length of the queue in which it waits.
    ///
    /// # Errors
    /// There are none, now or in time.
    pub async fn enter(
        self: &Arc<Level>,
        entrant: Entrant<'_>,
        queued: impl FnOnce(usize),
    ) -> Result<Seat, Refused> {
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
            // The queue may have been passed over while the first one had no room.
            self.serve(&mut state);
            (granted, Queued { level: self, queue, id, why: None })
        };
        match tokio::time::timeout(entrant.patience, &mut granted).await {
            Ok(Ok(seat)) => Ok(seat),
            // The sender of a waiting request is not dropped; and a seat may have come with the last moment.
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

    /// Gives seats to those who are next, as long as there is room.
    fn serve(self: &Arc<Level>, state: &mut State) {
        while let Some((queue, kept)) = state.next_served() {
            let Some(waiter) = state.leave_queue(queue, 0) else { return };
            if kept.is_none() {
                state.served = queue;
            }
            let Waiter { hash, seats, grant, .. } = waiter;
            let (seats, is_kept) = (kept.unwrap_or(seats), kept.is_some());
            let taken = Taken { queue: Some(queue), hash, seats, is_kept, began: Instant::now() };
            let seat = self.seat(state, taken);
            // A request whose client no longer waits: its seats are given back here, as the lock is held.
            if let Err(mut seat) = grant.send(seat) {
                seat.level = None;
                state.end(&seat.taken);
            }
        }
    }

    fn seat(self: &Arc<Level>, state: &mut State, taken: Taken) -> Seat {
        state.begin(&taken);
        Seat { level: Some(self.clone()), taken, flow_seats: state.reserve.under_way(taken.hash) }
    }

    fn release(self: &Arc<Level>, taken: &Taken) {
        let mut state = self.state.lock();
        state.end(taken);
        self.serve(&mut state);
    }

    /// Its state, to be shown.
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

/// A level at one moment.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name.
    pub name: String,
    /// What it does without a free seat.
    pub manner: Manner,
    /// Requests under way.
    pub executing: u32,
    /// Requests that wait.
    pub waiting: usize,
    /// How requests ended.
    pub counts: Counts,
    /// Its queues.
    pub queues: Vec<QueueReport>,
    /// Its requests that run.
    pub(super) runners: Vec<Runner>,
}

/// A queue at one moment.
#[derive(Clone, Debug)]
pub struct QueueReport {
    /// Its requests under way.
    pub executing: u32,
    /// Seats that they take.
    pub in_use: u32,
    /// Virtual time at which its first request may start.
    pub next: f64,
    /// Those who wait, the first one first.
    pub waiting: Vec<WaiterReport>,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub struct WaiterReport {
    /// Its flow schema.
    pub schema: String,
    /// Its flow.
    pub flow: String,
    /// What it asks for.
    pub asked: String,
    /// How long it has been waiting.
    pub waited: Duration,
    /// Seats that it wants.
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
            asked: waiter.asked.clone(),
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

/// The place of a request in a queue; it leaves the queue with this.
struct Queued<'l> {
    level: &'l Arc<Level>,
    queue: usize,
    id: u64,
    /// Why it leaves, unless its client went away.
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
        // It may have been the first one, and too wide.
        self.level.serve(&mut state);
    }
}

impl State {
    /// As many queues as are wanted now; those that are in use stay.
    fn make_queues(&mut self) {
        let wanted = match self.manner {
            Manner::Queue(queuing) => queuing.queues,
            Manner::Exempt | Manner::Reject => 0,
        };
        let used = self.queues.iter().rposition(Queue::is_active).map_or(0, |last| last + 1);
        self.queues.resize_with(wanted.max(used), Queue::default);
    }

    /// Whether there are as many seats besides those that are kept, which only queues need.
    fn has_room(&self, seats: u32) -> bool {
        let kept = if matches!(self.manner, Manner::Queue(_)) { Reserve::size(self.limit) } else { 0 };
        let in_use = self.in_use - self.reserve.in_use();
        in_use == 0 || in_use + seats <= self.limit - kept || self.manner == Manner::Exempt
    }

    /// Virtual time runs as fast as the seats in use are shared by the active queues.
    fn pass_time(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.read_at).as_secs_f64();
        self.read_at = self.read_at.max(now);
        if self.executing == 0 && self.waiting == 0 {
            return; // virtual time orders no request
        }
        if self.active > 0 {
            let seats = (self.in_use + self.waiting_seats).min(self.limit);
            self.now += passed * f64::from(seats) / self.active as f64;
        }
    }

    /// The queue of the flow's hand that has the least to do.
    fn choose(&self, queuing: &Queuing, hash: u64) -> usize {
        let load = |queue: &usize| self.queues[*queue].waiting_seats + self.queues[*queue].in_use;
        deal(hash, queuing.queues, queuing.hand).into_iter().min_by_key(load).unwrap_or_default()
    }

    /// Changes a queue, and counts it as active or not. A queue with requests is never removed.
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
        let Entrant { hash, schema, flow, asked, seats, .. } = *entrant;
        let (schema, flow, asked) = (schema.to_owned(), flow.to_owned(), asked.to_owned());
        let waiter = Waiter { id: self.ids, hash, seats, arrived, schema, flow, asked, grant };
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

    /// The queue whose first request has room now, and how many kept seats it takes, if it takes such.
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

    /// Among the queues whose first request is such a one, that whose first request would end first in virtual time; of
    /// equals, the one after that served last.
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

    fn refuse(&mut self, why: Why, now: Instant) -> Refused {
        self.counts.rejected += 1;
        self.refused(why, now)
    }

    fn refused(&mut self, why: Why, now: Instant) -> Refused {
        Refused { why, retry_after_s: self.retry_after.dropped(now) }
    }
}

/// The queues that a flow may use: `hand` different ones of `queues`, drawn by its number as cards from a deck.
fn deal(mut hash: u64, queues: usize, hand: usize) -> Vec<usize> {
    // Each draw is a place among the cards that are left.
    let mut draws: Vec<usize> = Vec::with_capacity(hand);
    for i in 0..hand.min(queues) {
        let left = (queues - i) as u64;
        draws.push((hash % left) as usize);
        hash /= left;
    }
    // Going back over the draws before it, it becomes a place in the whole deck. The last ones are settled first, as
    // the draws before them are needed as they are.
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
