//! Renders items of a list, or initial events of a watch, on several threads at the same time, and returns
//! them in order (docs/decisions/0016-every-representation-at-the-speed-of-json.md).
//!
//! ```text
//! objects ─┬─► batch ─► task ─┐
//!          └─► batch ─► task ─┴─► chunks, in the order of the objects
//! ```
//!
//! A task renders one chunk. For each processor, one task runs, up to `TASKS_MAX` tasks in total. The memory for a
//! chunk is charged before the task of the chunk begins. If no memory is left, one task runs at a time. Therefore a
//! client that stops reading holds at most `TASKS_MAX` chunks. The size of a batch is chosen so that the rendered items
//! probably fill one chunk. Items that do not fit are rendered into the next chunk.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::chunks::{CHUNK_BYTES, ChunkFill, FORM_MULTIPLE, ITEM_BYTES, LARGE_BYTES};
use super::selected::{Need, Selected, SelectedItem};
use objects::codec::protobuf::MEMO_BYTES;
use objects::representation::{ListSize, Renderer};
use values::cancellation::{self, Cancelled, following};
use values::memory::Charge;
use values::status::Status;

/// Maximum number of tasks that work for one list.
const TASKS_MAX: usize = 4;

/// Maximum number of objects in a batch.
const BATCH_MAX: usize = 512;

/// Expected size of a rendered batch. The size is smaller than a chunk, so that the objects of most batches fit into
/// one chunk.
const EXPECTED_BYTES: usize = CHUNK_BYTES / 8 * 7;

/// Number of stored bytes that one task measures.
const MEASURED_BYTES: usize = 4 * CHUNK_BYTES;

/// Number of tasks that work for one list on this machine.
static TASKS: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, NonZero::get).min(TASKS_MAX));

/// A function that appends the rendered form of an object. The object is never the first object of the list.
pub type Show = Arc<dyn Fn(&mut Renderer, &[u8], &mut Vec<u8>) -> Result<(), Status> + Send + Sync>;

/// The rest of a list after its first chunk.
pub struct ParallelRender {
    show: Show,
    /// The remaining objects; `None` when all objects are in batches.
    objects: Option<Selected>,
    /// Number of objects that are still to be taken.
    left: u64,
    jobs: VecDeque<Job>,
    /// Renderers of tasks that are not running.
    idle: Vec<Renderer>,
    /// Average number of rendered bytes for each 256 bytes of a record.
    growth: usize,
    /// Charge for the caches of the renderers.
    _charge: Charge,
}

/// A part of the list, in order.
enum Job {
    /// A chunk that is being rendered.
    Task(JoinHandle<Result<RenderedChunk, Cancelled>>),
    /// Objects that did not fit into the previous chunk.
    Rest(Vec<SelectedItem>),
    /// A large object, which has its own chunk.
    Large(Box<SelectedItem>),
}

/// The result of a task.
struct RenderedChunk {
    renderer: Renderer,
    chunk: Vec<u8>,
    charge: Charge,
    /// Total size of the records in the chunk.
    record_bytes: usize,
    rest: Vec<SelectedItem>,
    result: Result<(), Status>,
}

impl ParallelRender {
    /// Creates a renderer of the next `left` objects, which must not include the first object of the list.
    /// Returns `None` if there is no memory for the rendered chunk, and leaves `objects` unchanged.
    pub fn new(
        renderer: &Renderer,
        objects: &mut Option<Selected>,
        left: u64,
        show: Show,
    ) -> Option<ParallelRender> {
        let charge = renderer.account().try_answer(*TASKS * MEMO_BYTES).ok()?;
        let objects = Some(objects.take()?);
        let (jobs, idle) = (VecDeque::new(), Vec::new());
        Some(ParallelRender { show, objects, left, jobs, idle, growth: 256, _charge: charge })
    }

    /// Returns the next items; `None` at the end of the list.
    ///
    /// # Errors
    /// An object cannot be read or rendered, or there is no memory.
    pub async fn next(&mut self, renderer: &Renderer) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(Job::Rest(_)) = self.jobs.front()
                && let Some(Job::Rest(rest)) = self.jobs.pop_front()
            {
                let charge = charge(renderer).await?;
                let task = self.start(renderer, rest, charge);
                self.jobs.push_front(Job::Task(task));
            }
            self.start_tasks(renderer).await?;
            match self.jobs.pop_front() {
                None => return Ok(None),
                Some(Job::Large(found)) => return self.large(renderer, *found).await.map(Some),
                Some(Job::Rest(rest)) => self.jobs.push_front(Job::Rest(rest)),
                Some(Job::Task(task)) => {
                    let rendered = task.await.map_err(Status::internal)?.map_err(Status::internal)?;
                    rendered.result?;
                    self.idle.push(rendered.renderer);
                    if !rendered.rest.is_empty() {
                        self.jobs.push_front(Job::Rest(rendered.rest));
                    }
                    if rendered.chunk.is_empty() {
                        continue;
                    }
                    let growth = rendered.chunk.len() * 256 / rendered.record_bytes.max(1);
                    self.growth = growth.clamp(1, 256 * FORM_MULTIPLE);
                    let mut chunk = rendered.chunk;
                    if chunk.capacity() > chunk.len() + ITEM_BYTES {
                        chunk.shrink_to_fit();
                    }
                    return Ok(Some(rendered.charge.hold(chunk)));
                }
            }
        }
    }

    /// Starts as many tasks as may run.
    async fn start_tasks(&mut self, renderer: &Renderer) -> Result<(), Status> {
        while self.jobs.len() < *TASKS && self.objects.is_some() {
            // A large object waits for more memory, so it must be the last job: a waiting stream should not
            // hold memory for other chunks.
            if matches!(self.jobs.back(), Some(Job::Large(_))) {
                break;
            }
            let charge = if self.jobs.is_empty() {
                charge(renderer).await?
            } else {
                let Ok(charge) = renderer.account().try_answer(CHUNK_BYTES + ITEM_BYTES) else { break };
                charge
            };
            let Some(objects) = &mut self.objects else { break };
            let bytes_max = EXPECTED_BYTES * 256 / self.growth;
            let batch = take(objects, &mut self.left, bytes_max).await?;
            if batch.is_over {
                self.objects = None;
            }
            if !batch.found.is_empty() {
                let task = self.start(renderer, batch.found, charge);
                self.jobs.push_back(Job::Task(task));
            }
            if let Some(large) = batch.large {
                self.jobs.push_back(Job::Large(Box::new(large)));
            }
        }
        Ok(())
    }

    fn start(
        &mut self,
        renderer: &Renderer,
        batch: Vec<SelectedItem>,
        charge: Charge,
    ) -> JoinHandle<Result<RenderedChunk, Cancelled>> {
        let renderer = self.idle.pop().unwrap_or_else(|| renderer.fork());
        let show = self.show.clone();
        tokio::spawn(following(async move { make(renderer, &show, batch, charge) }))
    }

    async fn large(&mut self, renderer: &Renderer, found: SelectedItem) -> Result<Bytes, Status> {
        let mut chunk = Vec::new();
        let Some(stored) = found.read()? else { return Ok(Bytes::new()) };
        let value = &stored.record.value;
        let charge = renderer.account().answer(FORM_MULTIPLE * value.len().max(ITEM_BYTES)).await;
        let charge = charge.map_err(Status::no_memory)?;
        let mut maker = self.idle.pop().unwrap_or_else(|| renderer.fork());
        (self.show)(&mut maker, value, &mut chunk)?;
        self.idle.push(maker);
        chunk.shrink_to_fit();
        Ok(charge.hold(chunk))
    }
}

async fn charge(renderer: &Renderer) -> Result<Charge, Status> {
    renderer.account().answer(CHUNK_BYTES + ITEM_BYTES).await.map_err(Status::no_memory)
}

/// Renders a chunk from a batch.
fn make(mut renderer: Renderer, show: &Show, mut batch: Vec<SelectedItem>, charge: Charge) -> RenderedChunk {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES + ITEM_BYTES);
    let mut record_bytes = 0;
    let mut taken = 0;
    let mut result = Ok(());
    let mut filling = ChunkFill::up_to(CHUNK_BYTES);
    while filling.takes_more(chunk.len())
        && result.is_ok()
        && let Some(found) = batch.get(taken)
    {
        taken += 1;
        cancellation::check();
        record_bytes += found.record_bytes();
        result = found.show(|stored| show(&mut renderer, stored, &mut chunk)).map(|_| ());
    }
    // Drop all entries at once: separate drops would compete with the other tasks for the reference count of a
    // segment.
    let rest = batch.split_off(taken);
    drop(batch);
    RenderedChunk { renderer, chunk, charge, record_bytes, rest, result }
}

/// Consecutive objects that one task renders.
struct Batch {
    found: Vec<SelectedItem>,
    /// The object that follows the batch, if the object is so large that it is rendered alone.
    large: Option<SelectedItem>,
    /// Whether no further objects follow.
    is_over: bool,
}

/// Takes objects until the total size of their records reaches `bytes_max`.
async fn take(objects: &mut Selected, left: &mut u64, bytes_max: usize) -> Result<Batch, Status> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    while *left > 0 && found.len() < BATCH_MAX && bytes < bytes_max {
        let Some(next) = objects.next(Need::Objects(*left)).await? else {
            *left = 0;
            break;
        };
        if matches!(next, SelectedItem::Pause) {
            tokio::task::yield_now().await;
            continue;
        }
        *left -= 1;
        let size = next.record_bytes();
        if size >= LARGE_BYTES {
            return Ok(Batch { found, large: Some(next), is_over: *left == 0 });
        }
        bytes += size;
        found.push(next);
    }
    Ok(Batch { found, large: None, is_over: *left == 0 })
}

/// Adds the lengths of the next `left` objects to `size`, measured by several tasks. Lengths that the renderer
/// remembers are not measured again.
///
/// # Errors
/// An object cannot be read or rendered.
pub async fn measure(
    renderer: &Renderer,
    mut objects: Selected,
    mut left: u64,
    size: &mut ListSize,
) -> Result<(), Status> {
    let memory = renderer.account().answer(*TASKS * (MEMO_BYTES + ITEM_BYTES)).await;
    let _charge = memory.map_err(Status::no_memory)?;
    let mut tasks: VecDeque<JoinHandle<Result<Measured, Cancelled>>> = VecDeque::new();
    let mut idle: Vec<Renderer> = Vec::new();
    let mut is_over = false;
    while !is_over || !tasks.is_empty() {
        if !is_over && tasks.len() < *TASKS {
            let mut batch = take(&mut objects, &mut left, MEASURED_BYTES).await?;
            is_over = batch.is_over;
            batch.found.extend(batch.large);
            let known = |found: &SelectedItem| match found {
                SelectedItem::Entry(entry) => renderer.known_item_len(entry.revision()),
                SelectedItem::Record(_) | SelectedItem::Pause => None,
            };
            batch.found.retain(|found| {
                let len = known(found);
                size.items += u64::from(len.is_some());
                size.bytes += len.unwrap_or(0);
                len.is_none()
            });
            if batch.found.is_empty() {
                tokio::task::consume_budget().await;
                continue;
            }
            let maker = idle.pop().unwrap_or_else(|| renderer.fork());
            tasks.push_back(tokio::spawn(following(async move { measure_batch(maker, batch.found) })));
            continue;
        }
        let Some(task) = tasks.pop_front() else { break };
        let (maker, more) = task.await.map_err(Status::internal)?.map_err(Status::internal)??;
        idle.push(maker);
        size.items += more.items;
        size.bytes += more.bytes;
    }
    Ok(())
}

/// A renderer and the size that it measured.
type Measured = Result<(Renderer, ListSize), Status>;

fn measure_batch(mut renderer: Renderer, batch: Vec<SelectedItem>) -> Measured {
    let mut size = ListSize::default();
    let mut scratch = Vec::with_capacity(ITEM_BYTES);
    // Iterate by reference, for the same reason as in `make`.
    for found in &batch {
        let Some(revision) = found.revision() else { continue };
        cancellation::check();
        scratch.clear();
        found.show(|stored| renderer.list_item(stored, false, &mut scratch))?;
        renderer.remember_item_len(revision, scratch.len());
        size.items += 1;
        size.bytes += scratch.len() as u64;
    }
    Ok((renderer, size))
}
