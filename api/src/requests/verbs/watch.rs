//! The verb watch. A watch is a cursor into the committed log: the server renders events as the cursor moves
//! (docs/api/watches.md#watch-start, #watch-events, #watch-transport).
//!
//! ```text
//! snapshot ──synthetic ADDED──► initial-events-end bookmark ──► tail of the log ──► events · bookmarks ──► end
//! ```
//!
//! A watch at an earlier point sends only the state at that point (`start.rs`).
//!
//! There is no queue per watcher: the tail of a client that reads slowly is polled later. The attributes before
//! and after a change determine the type of the event for a watcher, so filtering does not parse objects. The
//! rendered event is shared by all watchers with the same representation (`representation::shared`).

mod counts;
mod start;
mod tested;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use engine::{Event, EventKind, Record, Revision, Tail, TailError};
use futures_util::{FutureExt, Stream};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use tokio::time::{Instant, Sleep};

use self::counts::{WatchCounts, count};
use super::Call;
use super::chunks::{CHUNK_BYTES, ChunkFill, FORM_MULTIPLE, LARGE_BYTES};
use super::parallel_render::ParallelRender;
use super::schedule::Schedule;
use super::selected::{Need, Selected, SelectedItem};
use crate::state::testing::WatchProbe;
use crate::writes::accesses;
use objects::conversion::{Converter, is_current};
use objects::negotiate::Encoding;
use objects::representation::shared::{self, WatchedChange};
use objects::representation::{self, EventType, Renderer, with_revision};
use objects::store;
use types::attributes::Selection;
use types::bloom;
use types::options::{ListOptions, version_number};
use values::memory::Charge;
use values::status::{Status, StatusReason};
use wire::metrics::Metrics;
use wire::response::Response;
use wire::server::poll_gate::PollGate;
use wire::server::websocket::{MessageType, Upgrade};
use wire::server::{Aborted, Body, LifecycleStage};

/// Maximum number of events taken from the tail at once. The stream of a client that stops reading holds
/// these events and their shared renderings, of at most [`shared::KEPT_BYTES_MAX`] each.
const EVENTS_MAX: usize = 64;

/// Pause of a watch after a delivery, for each watcher of the same change. This time is about as long as the
/// delivery to one watcher, so the whole pause is about as long as the delivery to all watchers. Events during
/// the pause are delivered together. Without the pause, many watchers with many writes would cost one system
/// call for each event and watcher. The timer wakes the task at the end of a pause only if an event arrived
/// during the previous pause, because an event is then likely in this pause too. Otherwise the next event wakes
/// the task.
const REST_EACH: Duration = Duration::from_micros(20);

/// Shorter pauses are skipped, because timers have this resolution. Therefore a change with fewer than fifty
/// watchers causes no pause.
const REST_MIN: Duration = Duration::from_millis(1);

/// Maximum pause. A client that waits for a change does not notice a delay of this length.
const REST_MAX: Duration = Duration::from_millis(50);

/// Time that a watch with initial events waits for a future revision (docs/api/watches.md#watch-start).
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// Returns a stream of events.
pub async fn watch(call: &mut Call<'_>) -> Result<Response, Status> {
    if !call.resource.table.verbs.contains(&"watch") {
        return Err(Status::not_supported("watch", call.subject("")));
    }
    let meta_group = call.server().types.naming.meta_group();
    let options = ListOptions::from_query(&call.request.query, call.selection()?, true, &meta_group)?;
    let revision = version_number(&options.resource_version)?;
    let renderer = call.renderer()?;
    let state = begin(call, renderer, options, revision).await?;
    if let Some(upgrade) = call.upgrade.take() {
        return Ok(over_websocket(upgrade, state, call.output.encoding));
    }
    let media_type = HeaderValue::from_str(&state.renderer.watch_media_type()).map_err(Status::internal)?;
    let mut response = http::Response::new(Body::stream(state.into_stream()));
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    Ok(response)
}

/// Returns the state of a watch that begins after `revision`, or with the newest state. If the watch cannot
/// start, the first event is the error.
async fn begin(
    call: &Call<'_>,
    renderer: Renderer,
    options: ListOptions,
    revision: Revision,
) -> Result<State, Status> {
    let store = call.store();
    let namespace = call.info.namespace_of(call.resource).to_owned();
    let prefix = store::collection(call.resource, &namespace);
    let initial = options.send_initial_events == Some(true);

    let mut pending_error = start::not_reached(call, &store, revision, initial).await;
    let began = Instant::now();
    let view = call.view()?;
    let single_scope = !namespace.is_empty() || !call.resource.namespaced();
    let is_one = single_scope && options.selection.field().exact_name().is_some();
    if let Some(access) = accesses::watch_access(call.resource, &options, is_one) {
        call.server().watched(call.resource, access, began.elapsed());
    }
    let from_newest = matches!(options.resource_version.as_str(), "" | "0");
    let start = if initial || from_newest { view.revision() } else { revision };
    let tail = match store.tail(start, prefix.clone()) {
        _ if call.request.past.is_some() => None,
        Ok(tail) => Some(tail),
        Err(error) => {
            pending_error.get_or_insert(broken(start, &error));
            None
        }
    };
    let initial_objects = initial.then(|| {
        let scan = view.prefix(&prefix).filtered(bloom::query(&options.selection));
        let converter = call.server().outgoing.converter.clone();
        Selected::new(scan, options.selection.clone(), call.resource.clone(), converter)
    });
    let duration = duration(options.timeout_seconds, call.server().operations.limits.min_request_timeout);
    let schedule = Schedule::new(Instant::now(), duration, options.allow_bookmarks);
    let lifecycle = call.server().operations.lifecycle.clone();
    let grace = call.server().operations.limits.watch_grace.mul_f64(random_part());
    Ok(State {
        renderer,
        selection: options.selection,
        converter: call.server().outgoing.converter.clone(),
        initial_objects,
        tail,
        events: Vec::new().into_iter(),
        pending_error,
        initial_marker: options.allow_bookmarks && initial,
        initial_revision: view.revision(),
        start_revision: start,
        sent_revision: start,
        alarm: Box::pin(tokio::time::sleep_until(schedule.wake_at())),
        schedule,
        rests_until: Instant::now(),
        is_busy: false,
        shutdown: Box::pin(async move {
            lifecycle.reached(LifecycleStage::Refusing).await;
            tokio::time::sleep(grace).await;
        }),
        gate: PollGate::new(),
        retired: start::end_of_type(call),
        is_still: call.request.past.is_some(),
        is_last: false,
        counts: WatchCounts::new(
            &call.server().operations.metrics,
            call.resource,
            &call.info.version,
            scope_of(call),
        ),
        metrics: call.server().operations.metrics.clone(),
        chunk_bytes: CHUNK_BYTES,
        buffer: Vec::new(),
        charge: Charge::default(),
        waiting: None,
        ahead: None,
        rendered: None,
        ended: false,
        probe: tested::probe(call),
    })
}

/// Sends each event as one WebSocket message. A JSON event is a text message. A protobuf event is sent without
/// its length prefix (docs/api/watches.md#watch-transport).
fn over_websocket(upgrade: Upgrade, mut state: State, encoding: Encoding) -> Response {
    state.chunk_bytes = 1; // so that each chunk has one event
    let form = if encoding == Encoding::Json { MessageType::Text } else { MessageType::Binary };
    let framed = if encoding == Encoding::Protobuf { representation::FRAME_BYTES } else { 0 };
    let messages = futures_util::StreamExt::map(state.into_stream(), move |chunk| {
        chunk.map(|event| event.slice(framed..))
    });
    upgrade.accept(form, messages)
}

/// Maximum duration of a watch: a year, which the clock can still add to the current time.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Returns the duration that the client requested, or a random duration between the server's minimum and twice
/// the minimum, so that watches end at different times.
fn duration(seconds: i64, minimum: Duration) -> Duration {
    match seconds {
        0 => minimum.mul_f64(1.0 + random_part()),
        seconds => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(DURATION_MAX),
    }
}

/// Returns a random number between 0 and 1.
fn random_part() -> f64 {
    f64::from(u16::from_le_bytes(values::names::random::<2>())) / f64::from(u16::MAX)
}

/// Returns the pause of a watch after a change that concerned `audience` watchers.
fn pause_after(audience: u32) -> Duration {
    let rest = REST_EACH.saturating_mul(audience).min(REST_MAX);
    if rest < REST_MIN { Duration::ZERO } else { rest }
}

/// Returns the error for the client if the tail of the watch cannot continue after `seen`.
fn broken(seen: Revision, error: &TailError) -> Status {
    match error {
        TailError::Compacted { oldest } => {
            Status::expired(format!("too old resource version: {seen} ({})", oldest.before()))
        }
        TailError::Damaged { .. } => Status::new(StatusReason::StorageReadError, error.to_string()),
        TailError::Closed => Status::new(StatusReason::ServiceUnavailable, "apiserver is shutting down"),
    }
}

/// A future that resolves when the watch must end.
type Ends = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An occurrence that [`State::next_occurrence`] waits for.
enum Occurrence {
    Shutdown,
    /// The type is no longer served.
    Retired,
    Alarm,
    /// The test features have sent a command to the watch.
    Command,
    /// Changes; `None` if the changes arrived during a pause.
    Changes(Option<Result<Vec<Arc<Event>>, TailError>>),
}

/// Returns the scope of the watch as a metric label.
fn scope_of(call: &Call<'_>) -> &'static str {
    match (call.info.name.is_empty(), call.info.namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    }
}

/// The state of one watch.
struct State {
    counts: WatchCounts,
    renderer: Renderer,
    selection: Selection,
    converter: Arc<Converter>,
    /// Objects whose synthetic initial events are still to be sent.
    initial_objects: Option<Selected>,
    /// `None` if the watch could not start at its revision, and for a watch at an earlier point.
    tail: Option<Tail>,
    /// Whether the watch is at an earlier point; such a watch sends no events after its initial events.
    is_still: bool,
    /// Changes taken from the tail that are still to be sent.
    events: std::vec::IntoIter<Arc<Event>>,
    pending_error: Option<Status>,
    initial_marker: bool,
    initial_revision: Revision,
    /// Revision after which changes are sent.
    start_revision: Revision,
    /// Newest revision that was sent to the client, in an event or a bookmark.
    sent_revision: Revision,
    schedule: Schedule,
    /// Timer of the schedule and of the pause. The timer and `shutdown` are created once and not at each
    /// wait, because a busy watch waits a hundred times a second.
    alarm: Pin<Box<Sleep>>,
    /// End of the pause after a delivery.
    rests_until: Instant,
    /// Whether an event arrived in the last pause.
    is_busy: bool,
    /// Polls `shutdown`, `retired` and `alarm` only when they are due.
    gate: PollGate,
    /// Resolves when the server begins to shut down.
    shutdown: Ends,
    /// Resolves when the type is no longer served.
    retired: Option<Ends>,
    /// Whether the watch ends after the changes that have already happened.
    is_last: bool,
    metrics: Arc<Metrics>,
    /// Number of bytes that are gathered before they are passed to the connection.
    chunk_bytes: usize,
    buffer: Vec<u8>,
    /// Memory charge for the gathered bytes.
    charge: Charge,
    /// An initial object that waits until the gathered bytes are sent.
    waiting: Option<SelectedItem>,
    /// The initial objects, if several threads render the initial objects.
    ahead: Option<ParallelRender>,
    /// A chunk that the threads of `ahead` rendered.
    rendered: Option<Bytes>,
    ended: bool,
    /// The connection of the watch to the test features; `None` on a server without test features. The value is boxed,
    /// like the futures of the test features, so that watches on servers without these features do not need more
    /// memory.
    probe: Option<Box<WatchProbe>>,
}

impl State {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes, Aborted>> + Send {
        futures_util::stream::unfold(self, |mut state| async move {
            let chunk = state.next_chunk().await?;
            Some((chunk, state))
        })
    }

    /// Returns the next bytes for the client, or `None` at the end of the watch.
    async fn next_chunk(&mut self) -> Option<Result<Bytes, Aborted>> {
        while self.buffer.is_empty() {
            if self.probe.is_some()
                && !self.ended
                && let Some(broken) = Box::pin(self.next_command()).await
            {
                return Some(Err(broken));
            }
            if self.ended {
                if self.buffer.is_empty() {
                    return None;
                }
                break;
            }
            let filled = if let Some(status) = self.pending_error.take() {
                Err(status)
            } else if self.ahead.is_some() {
                self.fill_ahead().await
            } else if self.initial_objects.is_some() || self.waiting.is_some() {
                self.fill_initial().await
            } else if self.events.as_slice().is_empty() {
                self.follow().await;
                Ok(())
            } else {
                self.fill_changes().await
            };
            if let Err(status) = filled {
                if status.reason == StatusReason::TooManyRequests {
                    // If there is no memory for the events, there is no memory for an error event. The client continues
                    // where the stream broke off.
                    self.ended = true;
                    return Some(Err(Aborted));
                }
                self.fail(&status);
            }
            if let Some(rendered) = self.rendered.take() {
                return Some(Ok(rendered));
            }
            if self.buffer.is_empty() {
                // The loop never waits while it skips events that do not concern this watcher. Therefore the
                // loop must yield to other tasks on the thread.
                tokio::task::consume_budget().await;
            }
        }
        let charge = std::mem::take(&mut self.charge);
        let chunk = charge.hold(std::mem::take(&mut self.buffer));
        self.go_ahead();
        Some(Ok(chunk))
    }

    fn fail(&mut self, status: &Status) {
        self.renderer.error_event(status, &mut self.buffer);
        self.ended = true;
    }

    /// Charges memory for one more object of `stored_bytes` in addition to the gathered bytes. Returns
    /// `false` if the gathered bytes must be sent first.
    async fn has_room(&mut self, stored_bytes: usize) -> Result<bool, Status> {
        let needed = if stored_bytes < LARGE_BYTES {
            self.chunk_bytes + 2 * LARGE_BYTES
        } else if self.buffer.is_empty() {
            FORM_MULTIPLE * stored_bytes
        } else {
            return Ok(false);
        };
        if self.charge.bytes() < needed {
            // The charge is released first, so that two streams do not wait for each other's memory. The
            // gathered bytes have at most the size of a chunk.
            drop(std::mem::take(&mut self.charge));
            self.charge = self.renderer.account().answer(needed).await.map_err(Status::no_memory)?;
        }
        Ok(true)
    }

    /// Starts rendering the initial events after the first chunk on several threads. Does nothing if the events
    /// are stored bytes or separate messages.
    fn go_ahead(&mut self) {
        let is_made_here = self.renderer.is_as_stored() || self.chunk_bytes < CHUNK_BYTES;
        if is_made_here || self.waiting.is_some() || self.initial_objects.is_none() {
            return;
        }
        let counts = self.counts.clone();
        let show = move |renderer: &mut Renderer, stored: &[u8], out: &mut Vec<u8>| {
            let before = out.len();
            renderer.event(EventType::Added, stored, out)?;
            counts.event(out.len() - before);
            Ok(())
        };
        self.ahead = ParallelRender::new(&self.renderer, &mut self.initial_objects, u64::MAX, Arc::new(show));
    }

    /// Takes one chunk that several threads rendered. After the last chunk, adds the marker.
    async fn fill_ahead(&mut self) -> Result<(), Status> {
        let Some(ahead) = &mut self.ahead else { return Ok(()) };
        match ahead.next(&self.renderer).await {
            Ok(Some(chunk)) => self.rendered = Some(chunk),
            Ok(None) => {
                self.ahead = None;
                if self.initial_marker {
                    self.renderer.bookmark(self.initial_revision, true, &mut self.buffer);
                }
            }
            Err(status) => {
                self.ahead = None;
                return Err(status);
            }
        }
        Ok(())
    }

    /// Fills one chunk with synthetic ADDED events. After the last event, adds the marker.
    async fn fill_initial(&mut self) -> Result<(), Status> {
        if let Some(found) = self.waiting.take() {
            return self.show_initial(found).await;
        }
        let mut filling = ChunkFill::up_to(self.chunk_bytes);
        while let Some(objects) = &mut self.initial_objects
            && filling.takes_more(self.buffer.len())
        {
            let Some(found) = objects.next(Need::Objects(u64::MAX)).await? else {
                self.initial_objects = None;
                self.counts.record_initial_list();
                if self.initial_marker {
                    count(self.counts.bookmarks.as_ref());
                    self.renderer.bookmark(self.initial_revision, true, &mut self.buffer);
                }
                break;
            };
            if matches!(found, SelectedItem::Pause) {
                break;
            }
            self.show_initial(found).await?;
            if self.waiting.is_some() {
                break;
            }
        }
        Ok(())
    }

    async fn show_initial(&mut self, found: SelectedItem) -> Result<(), Status> {
        if !self.has_room(found.record_bytes()).await? {
            self.waiting = Some(found);
            return Ok(());
        }
        let before = self.buffer.len();
        found.show(|stored| self.renderer.event(EventType::Added, stored, &mut self.buffer))?;
        self.counts.event(self.buffer.len() - before);
        count(self.counts.initial.as_ref());
        Ok(())
    }

    /// Fills one chunk with changes that were taken from the tail.
    async fn fill_changes(&mut self) -> Result<(), Status> {
        while self.buffer.len() < self.chunk_bytes
            && !self.probe.as_ref().is_some_and(|probe| probe.is_due())
            && let Some(next) = self.events.as_slice().first()
        {
            let previous_bytes = next.previous.as_ref().map_or(0, |entry| entry.stored_len());
            if !self.has_room(next.entry.stored_len().max(previous_bytes)).await? {
                break;
            }
            let Some(event) = self.events.next() else { break };
            if self.is_as_served(&event)? {
                self.render(&event)?;
            } else {
                self.render_converted(&event).await?;
            }
        }
        Ok(())
    }

    /// Waits for events, the next bookmark, or the end.
    async fn follow(&mut self) {
        if self.is_last {
            return self.follow_to_end();
        }
        if self.is_still {
            return self.stand_still().await;
        }
        let occurrence = if self.probe.is_some() {
            Box::pin(self.next_tested_occurrence()).await
        } else {
            self.next_occurrence(self.schedule.wake_at()).await
        };
        match occurrence {
            Occurrence::Shutdown => self.ended = true,
            Occurrence::Retired => self.is_last = true,
            Occurrence::Alarm => {
                if Instant::now() >= self.rests_until {
                    self.is_busy = self.tail.as_ref().is_some_and(Tail::has_news);
                }
                self.keep_time(self.now());
            }
            Occurrence::Command => self.keep_time(self.now()),
            Occurrence::Changes(None) => self.is_busy = true,
            Occurrence::Changes(Some(Ok(events))) => {
                // If a full batch is available at once, there is no pause.
                if events.len() < EVENTS_MAX {
                    let audience = events.last().map_or(0, |event| event.audience());
                    self.rests_until = Instant::now() + pause_after(audience);
                }
                self.events = events.into_iter();
            }
            Occurrence::Changes(Some(Err(error))) => self.fail(&broken(self.sent_revision, &error)),
        }
    }

    /// Takes the changes that have already happened. The watch ends if no such change is left.
    fn follow_to_end(&mut self) {
        let next = self.tail.as_mut().and_then(|tail| tail.next(EVENTS_MAX).now_or_never());
        match next {
            Some(Ok(events)) if !events.is_empty() => self.events = events.into_iter(),
            Some(Err(error)) => self.fail(&broken(self.sent_revision, &error)),
            _ => self.ended = true,
        }
    }

    /// Waits for the next event, at most until `wake_at`. A watch without a tail ends as if the server shut
    /// down.
    async fn next_occurrence(&mut self, wake_at: Instant) -> Occurrence {
        let rests = Instant::now() < self.rests_until;
        let Some(tail) = &mut self.tail else { return Occurrence::Shutdown };
        let alarm_at = if rests && self.is_busy { wake_at.min(self.rests_until) } else { wake_at };
        if self.alarm.deadline() != alarm_at {
            self.alarm.as_mut().reset(alarm_at);
            self.gate.make_due();
        }
        let rests_until = self.rests_until;
        // Resolves to the changes, or to `None` if the changes arrive during a pause.
        let changes = async {
            if rests {
                tail.announced().await;
                if Instant::now() < rests_until {
                    return None;
                }
            }
            Some(tail.next(EVENTS_MAX).await)
        };
        let mut changes = pin!(changes);
        poll_fn(|cx| {
            // Signals are polled before the events; otherwise a watch that always has events would never end.
            let signal = self.gate.poll(cx, |cx| {
                if self.shutdown.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Occurrence::Shutdown);
                }
                if self.retired.as_mut().is_some_and(|retired| retired.as_mut().poll(cx).is_ready()) {
                    return Poll::Ready(Occurrence::Retired);
                }
                self.alarm.as_mut().poll(cx).map(|()| Occurrence::Alarm)
            });
            if signal.is_ready() || (rests && self.is_busy) {
                return signal;
            }
            changes.as_mut().poll(cx).map(Occurrence::Changes)
        })
        .await
    }

    /// Ends the watch if its time is over, or sends a bookmark if one is due. A bookmark is sent even if its
    /// revision is unchanged, so that the client can detect that the server is alive. No bookmark has a revision
    /// before the start of the watch.
    fn keep_time(&mut self, now: Instant) {
        let progress = self.tail.as_ref().map_or(Revision::ZERO, Tail::progress);
        if self.schedule.is_over(now) {
            self.ended = true;
        } else if self.schedule.take_bookmark(now) && progress > self.start_revision {
            count(self.counts.bookmarks.as_ref());
            self.renderer.bookmark(progress, false, &mut self.buffer);
            self.sent_revision = self.sent_revision.max(progress);
        }
    }

    /// Returns whether both states of a change are in the version of the resource. For built-in types the
    /// result is always `true`.
    fn is_as_served(&self, event: &Event) -> Result<bool, Status> {
        let resource = self.renderer.resource();
        if resource.versions.is_none() {
            return Ok(true);
        }
        let is_so = |record: &Record| is_current(resource, &record.attributes);
        Ok(is_so(&shared::current(event)?) && shared::previous(event)?.as_ref().is_none_or(is_so))
    }

    /// Renders the watch event of a change for this watcher: ADDED, MODIFIED or DELETED, depending on
    /// whether the object entered, stayed in, or left the selection (docs/api/watches.md#watch-events).
    fn render(&mut self, event: &Event) -> Result<(), Status> {
        let resource = self.renderer.resource().clone();
        let is_selected = |record: &Record| store::is_selected(&resource, &self.selection, record);
        let is_put = event.kind == EventKind::Put;
        let (was_in, is_in) = if self.selection.is_everything() {
            (event.previous.is_some(), is_put)
        } else {
            let was_in = shared::previous(event)?.map(|record| is_selected(&record)).transpose()?;
            (was_in.unwrap_or(false), is_put && is_selected(&shared::current(event)?)?)
        };
        let Some(seen) = meaning(was_in, is_in, is_put) else { return Ok(()) };
        let before = self.buffer.len();
        self.renderer.change(event, seen, &mut self.buffer)?;
        self.counts.event(self.buffer.len() - before);
        self.record_sent(event);
        Ok(())
    }

    /// Does the same as [`State::render`] for a change with a state in another version.
    async fn render_converted(&mut self, event: &Event) -> Result<(), Status> {
        let resource = self.renderer.resource().clone();
        let is_put = event.kind == EventKind::Put;
        let is_everything = self.selection.is_everything();
        let mut records = vec![shared::current(event)?];
        if !is_everything {
            // The previous state is needed only for a watch with selectors.
            records.extend(shared::previous(event)?);
        }
        self.converter.convert_records(&resource, &mut records).await?;
        let is_selected = |record: &Record| store::is_selected(&resource, &self.selection, record);
        let (was_in, is_in) = match &*records {
            _ if is_everything => (event.previous.is_some(), is_put),
            [current, previous] => (is_selected(previous)?, is_put && is_selected(current)?),
            [current, ..] => (false, is_put && is_selected(current)?),
            [] => (false, false),
        };
        let Some(seen) = meaning(was_in, is_in, is_put) else { return Ok(()) };
        let value = match (seen, &*records) {
            (WatchedChange::Left, [_, previous]) => with_revision(&previous.value, event.revision),
            (_, [current, ..]) => current.value.clone(),
            (_, []) => return Ok(()),
        };
        let before = self.buffer.len();
        self.renderer.event(seen.event_type(), &value, &mut self.buffer)?;
        self.counts.event(self.buffer.len() - before);
        self.metrics.watch_events_rendered.add(1);
        self.record_sent(event);
        Ok(())
    }

    fn record_sent(&mut self, event: &Event) {
        self.metrics.watch_events_sent.add(1);
        if let Some(probe) = &self.probe {
            probe.sent_change();
        }
        count(self.counts.changes.as_ref());
        self.sent_revision = event.revision;
    }
}

/// Returns the type of the watch event for a change; `None` if no event is sent. `was_in` and `is_in` say
/// whether the selection of the watcher contained the object before the change, and contains it after the
/// change.
fn meaning(was_in: bool, is_in: bool, is_put: bool) -> Option<WatchedChange> {
    match (was_in, is_in) {
        (false, true) => Some(WatchedChange::Entered),
        (true, true) => Some(WatchedChange::Changed),
        (true, false) if is_put => Some(WatchedChange::Left),
        (true, false) => Some(WatchedChange::Deleted),
        (false, false) => None,
    }
}
