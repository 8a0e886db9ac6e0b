//! The plugins of a server in their order, and the two points at which a write meets them.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::lookup::Lookup;
use super::plugin::{Plugin, Step, Target};
use super::record::{Operation, Record, Review};
use super::settings::Settings;
#[cfg(test)]
use crate::writes::stage::{Stage, trace};
use values::json::Object;
use values::status::Status;
use wire::metrics::Metrics;
use wire::metrics::family::{Histogram, micros};

/// Plugins that are asked about one write; most writes concern fewer.
const ASKED_TYPICAL: usize = 12;

/// The plugins of a server, in order.
pub struct Chain {
    plugins: Vec<Link>,
    metrics: Arc<Metrics>,
    steps: Timers,
}

/// A plugin, and how long it takes.
struct Link {
    name: &'static str,
    plugin: Arc<dyn Plugin>,
    timers: Timers,
}

/// A point of admission, as metrics name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Point {
    Mutating,
    Validating,
}

/// Histograms by point, operation and whether the write was refused; each is looked up at its first use.
#[derive(Default)]
struct Timers([OnceLock<Option<Arc<Histogram>>>; 2 * 2 * Operation::ALL.len()]);

impl Timers {
    /// Counts a time. `find` looks up a histogram by its labels operation, rejected and type.
    fn record(
        &self,
        (point, operation, refused): (Point, Operation, bool),
        took: Duration,
        find: impl FnOnce([&str; 3]) -> Option<Arc<Histogram>>,
    ) {
        let of_operation = Operation::ALL.iter().position(|known| *known == operation).unwrap_or_default();
        let at = (of_operation * 2 + usize::from(point == Point::Validating)) * 2 + usize::from(refused);
        let histogram = self.0[at].get_or_init(|| {
            let kind = if point == Point::Mutating { "admit" } else { "validate" };
            find([operation.as_str(), if refused { "true" } else { "false" }, kind])
        });
        if let Some(histogram) = histogram {
            histogram.record(micros(took));
        }
    }
}

/// The times of plugins one after the other: the end of one is the beginning of the next, so that the clock is read
/// once a plugin.
struct Laps(Instant);

impl Laps {
    fn begin() -> Laps {
        Laps(Instant::now())
    }

    /// The time since the last one.
    fn next(&mut self) -> Duration {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now))
    }
}

/// The plugins that are asked about one write.
pub struct Asked<'c> {
    chain: &'c Chain,
    plugins: SmallVec<[&'c Link; ASKED_TYPICAL]>,
}

impl Chain {
    /// Makes the plugins that `settings` select; how long they take is counted.
    pub fn new(settings: &Settings, lookup: &Lookup, metrics: Arc<Metrics>) -> Chain {
        let link = |(name, make): (&'static str, &super::settings::Make)| Link {
            name,
            plugin: make(lookup),
            timers: Timers::default(),
        };
        Chain { plugins: settings.makes().map(link).collect(), metrics, steps: Timers::default() }
    }

    /// The plugins that are asked about a write.
    pub fn about(&self, target: &Target<'_>) -> Asked<'_> {
        Asked {
            chain: self,
            plugins: self.plugins.iter().filter(|link| link.plugin.handles(target)).collect(),
        }
    }
}

impl Asked<'_> {
    /// Whether one of them looks at objects; otherwise none need be made for them.
    pub fn reads_objects(&self) -> bool {
        self.plugins.iter().any(|link| link.plugin.reads_objects())
    }

    /// The mutating point. Once more from the beginning where a plugin asks for it, which happens once at most. What
    /// plugins had to say counts whether one of them refused or not.
    ///
    /// # Errors
    /// The refusal of the first plugin that refuses.
    pub async fn mutate(&self, mut record: Record<'_, &mut Object>) -> (Review, Result<(), Status>) {
        #[cfg(test)]
        trace::note(Stage::Mutate);
        let began = Instant::now();
        let mut review = Review::default();
        let mut outcome = self.mutate_once(&mut record, &mut review).await;
        if outcome.is_ok() && review.begin_reinvocation() {
            outcome = self.mutate_once(&mut record, &mut review).await;
        }
        self.took((Point::Mutating, record.operation, outcome.is_err()), began);
        (review, outcome)
    }

    async fn mutate_once(
        &self,
        record: &mut Record<'_, &mut Object>,
        review: &mut Review,
    ) -> Result<(), Status> {
        let mut laps = Laps::begin();
        for link in &self.plugins {
            let operation = record.operation;
            let decision = match link.plugin.mutate(record, review) {
                Step::Pass => continue,
                Step::Done(decision) => decision,
                Step::Wait(decision) => decision.await,
            };
            self.decided(link, (Point::Mutating, operation), &mut laps, decision)?;
        }
        Ok(())
    }

    /// The decision of a plugin that had a part, which is timed.
    fn decided(
        &self,
        link: &Link,
        (point, operation): (Point, Operation),
        laps: &mut Laps,
        decision: Result<(), Status>,
    ) -> Result<(), Status> {
        link.timers.record(
            (point, operation, decision.is_err()),
            laps.next(),
            |[operation, rejected, kind]| {
                self.chain.metrics.plugins.of(&[link.name, operation, rejected, kind])
            },
        );
        decision
    }

    fn took(&self, what: (Point, Operation, bool), began: Instant) {
        self.chain.steps.record(what, began.elapsed(), |labels| self.chain.metrics.admission.of(&labels));
    }

    /// The validating point, likewise.
    ///
    /// # Errors
    /// The refusal of the first plugin that refuses.
    pub async fn validate(&self, record: Record<'_, &Object>) -> (Review, Result<(), Status>) {
        #[cfg(test)]
        trace::note(Stage::Admit);
        let began = Instant::now();
        let mut review = Review::default();
        let mut outcome = Ok(());
        let mut laps = Laps::begin();
        for link in &self.plugins {
            let decision = match link.plugin.validate(&record, &mut review) {
                Step::Pass => continue,
                Step::Done(decision) => decision,
                Step::Wait(decision) => decision.await,
            };
            outcome = self.decided(link, (Point::Validating, record.operation), &mut laps, decision);
            if outcome.is_err() {
                break;
            }
        }
        self.took((Point::Validating, record.operation, outcome.is_err()), began);
        (review, outcome)
    }
}
