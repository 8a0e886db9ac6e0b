//! Assembly of an engine: the components of a recovered store, and the workers that share them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::commit::{Sequencer, SequencerParts};
use crate::error::OpenError;
use crate::expiry::Expiry;
use crate::header::Numbering;
use crate::high_water::HighWater;
use crate::io::{Clock, FunctionClock, Storage};
use crate::ledger;
use crate::log::{Keeper, Log, Numbers};
use crate::losses::{LossRegistry, LostBefore};
use crate::maintenance::{Maintenance, Requests, Tools};
use crate::options::Options;
use crate::queue::Queue;
use crate::recovery::{self, Recovered};
use crate::reserve::Reserve;
use crate::stages::Stages;
use crate::status::StoreStatus;
use crate::time::Times;
use crate::turns::Turns;
use crate::types::{Revision, Role};
use crate::watch::Hub;
use crate::workers::Workers;
use crate::{Engine, Inner};

/// The components that the workers of a store share.
struct Components {
    storage: Arc<dyn Storage>,
    /// The clock for the pace of the background work.
    clock: Arc<dyn Clock>,
    /// The clock for commit times, expiry and retention.
    time_of_day: Arc<dyn Clock>,
    queue: Arc<Queue>,
    turns: Arc<Turns>,
    hub: Arc<Hub>,
    status: Arc<StoreStatus>,
    keeper: Arc<Keeper>,
    reserve: Arc<Reserve>,
    numbers: Arc<Numbers>,
    expiry: Arc<Expiry>,
    requests: Arc<Requests>,
    losses: Arc<LossRegistry>,
    high_water: Arc<HighWater>,
}

impl Engine {
    /// Recovers the store and assembles its components without starting them. New segments have exactly the
    /// size in `options`, even if that size is outside of the limits.
    pub(crate) fn assemble(
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        options: &Options,
        ring_events_max: usize,
    ) -> Result<(Engine, Workers), OpenError> {
        let segment_bytes = options.segment_bytes;
        let numbering = match options.role {
            Role::Leader => Numbering::Dense,
            Role::Follower => Numbering::Sparse,
        };
        let found = recovery::recover(&*storage, segment_bytes, options.bloom_scheme, numbering)?;
        let losses = connect_segments(&found, options);
        let Recovered { root, position, time, lost_revisions, checkpoint, .. } = found;
        let checkpointed = checkpoint.as_ref().map_or(Revision::ZERO, |used| used.revision);
        let stages = Stages::at_opening(&root, checkpointed, options.durability);
        let segments = root.segments.clone();
        let largest = segments.all().iter().map(|segment| segment.record_bytes()).max().unwrap_or(0);
        let expiry = match options.role {
            Role::Leader => Expiry::new(found.expiring),
            Role::Follower => Expiry::for_follower(),
        };
        let hub = Hub::new(root, ring_events_max);
        let reserve =
            Reserve::open(storage.clone(), clock.clone(), options.reserve_bytes, segment_bytes, largest);
        let parts = Components {
            queue: Arc::new(Queue::new()),
            turns: Arc::new(Turns::new()),
            hub: Arc::new(hub),
            status: Arc::new(StoreStatus::new(stages, time)),
            keeper: Arc::new(Keeper::new()),
            reserve: Arc::new(reserve),
            numbers: Arc::new(Numbers::new(found.numbers_given)),
            expiry: Arc::new(expiry),
            requests: Arc::new(Requests::new()),
            losses,
            high_water: Arc::new(found.high_water),
            storage,
            time_of_day: options.clock.map_or_else(|| clock.clone(), |now| Arc::new(FunctionClock(now))),
            clock,
        };
        let log = Log::new(
            parts.storage.clone(),
            segment_bytes,
            segments,
            position,
            parts.high_water.clone(),
            parts.numbers.clone(),
            numbering,
        );
        let times = Times::new(parts.time_of_day.clone(), time, parts.expiry.clone());
        let sequencer = parts.sequencer(log, times, options);
        let maintenance = Maintenance::new(parts.tools(options, lost_revisions), checkpoint);
        let (closing, closed) = watch::channel(false);
        let engine = parts.engine(options, lost_revisions, closed);
        Ok((engine, parts.workers(sequencer, maintenance, segment_bytes, closing)))
    }
}

impl Components {
    fn sequencer(&self, log: Log, times: Times, options: &Options) -> Sequencer {
        Sequencer::new(SequencerParts {
            queue: self.queue.clone(),
            hub: self.hub.clone(),
            status: self.status.clone(),
            keeper: self.keeper.clone(),
            reserve: self.reserve.clone(),
            log,
            durability: options.durability,
            times,
        })
    }

    fn tools(&self, options: &Options, lost_revisions: u64) -> Tools {
        Tools {
            queue: self.queue.clone(),
            hub: self.hub.clone(),
            status: self.status.clone(),
            storage: self.storage.clone(),
            clock: self.clock.clone(),
            time_of_day: self.time_of_day.clone(),
            numbers: self.numbers.clone(),
            expiry: self.expiry.clone(),
            requests: self.requests.clone(),
            retention: options.history_retention,
            history_bytes_max: options.history_bytes_max,
            segment_bytes: options.segment_bytes,
            lost_revisions,
            losses: self.losses.clone(),
            high_water: self.high_water.clone(),
            bloom_kind: options.bloom_scheme.kind,
            reserve: self.reserve.clone(),
        }
    }

    fn engine(&self, options: &Options, lost_revisions: u64, closed: watch::Receiver<bool>) -> Engine {
        Engine(Arc::new(Inner {
            queue: self.queue.clone(),
            turns: self.turns.clone(),
            hub: self.hub.clone(),
            status: self.status.clone(),
            expiry: self.expiry.clone(),
            requests: self.requests.clone(),
            has_reserve: self.reserve.is_used(),
            lost_revisions,
            losses: self.losses.clone(),
            high_water: self.high_water.clone(),
            durability: options.durability,
            bloom_scheme: options.bloom_scheme,
            role: options.role,
            closed,
            thread: Mutex::new(None),
        }))
    }

    fn workers(
        self,
        sequencer: Sequencer,
        maintenance: Maintenance,
        segment_bytes: u64,
        closing: watch::Sender<bool>,
    ) -> Workers {
        Workers {
            sequencer,
            turns: self.turns,
            keeper: self.keeper,
            maintenance,
            requests: self.requests,
            storage: self.storage,
            segment_bytes,
            queue: self.queue,
            hub: self.hub,
            status: self.status,
            closing,
        }
    }
}

/// Connects the recovered segments with the seal of the store and with a new registry of losses. Returns the registry.
fn connect_segments(found: &Recovered, options: &Options) -> Arc<LossRegistry> {
    let segments = found.root.segments.all();
    let before =
        found.checkpoint.as_ref().map(|used| LostBefore { count: used.lost_revisions, until: used.revision });
    let ledger = ledger::read(&found.root.tree, segments);
    let registry = LossRegistry::new(found.losses.clone(), ledger, before.unwrap_or_default());
    let registry = Arc::new(registry);
    for segment in segments {
        // Recovery may have mapped every byte of the log. Later reads get the bytes from the page cache.
        segment.file.release_pages();
        segment.report_losses_to(&registry);
        if let Some(seal) = &options.seal {
            segment.seal_with(seal);
        }
    }
    registry
}
