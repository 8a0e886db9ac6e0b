//! The chain of admission plugins of a server, and the two points at which a write runs them.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::record::{AdmissionRecord, Review};
use super::target::{Operation, Target};
use super::{Plugin, Step};
use crate::writes::stage::{Stage, trace};
use values::json::Object;
use values::status::Status;
use wire::metrics::Metrics;
use wire::metrics::family::micros;
use wire::metrics::histogram::Histogram;

/// Number of handling plugins for which no memory is allocated. For most writes, the number of handling
/// plugins is smaller.
const HANDLING_PLUGINS_TYPICAL: usize = 12;

/// The admission plugins of a server, in order.
pub struct Chain {
    plugins: Vec<Link>,
    metrics: Arc<Metrics>,
    steps: Timers,
}

/// A plugin with its name and timers.
struct Link {
    name: &'static str,
    plugin: Arc<dyn Plugin>,
    timers: Timers,
}

/// A point of admission, for metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Point {
    Mutating,
    Validating,
}

/// The labels of a duration of admission.
#[derive(Clone, Copy)]
struct DurationLabels {
    point: Point,
    operation: Operation,
    is_refused: bool,
}

/// Histograms by point, by operation, and by whether the write was refused. Each histogram is looked up on
/// first use.
#[derive(Default)]
struct Timers([OnceLock<Option<Arc<Histogram>>>; 2 * 2 * Operation::ALL.len()]);

impl Timers {
    /// Records a duration. `find` looks up a histogram by the labels `operation`, `rejected` and `type`.
    fn record(
        &self,
        DurationLabels { point, operation, is_refused }: DurationLabels,
        took: Duration,
        find: impl FnOnce([&str; 3]) -> Option<Arc<Histogram>>,
    ) {
        let of_operation = Operation::ALL.iter().position(|known| *known == operation).unwrap_or_default();
        let at = (of_operation * 2 + usize::from(point == Point::Validating)) * 2 + usize::from(is_refused);
        let histogram = self.0[at].get_or_init(|| {
            let kind = if point == Point::Mutating { "admit" } else { "validate" };
            find([operation.as_str(), if is_refused { "true" } else { "false" }, kind])
        });
        if let Some(histogram) = histogram {
            histogram.record(micros(took));
        }
    }
}

/// A clock for consecutive plugins: the end of one plugin is the start of the next, so the clock is read once
/// per plugin.
struct Laps(Instant);

impl Laps {
    fn begin() -> Laps {
        Laps(Instant::now())
    }

    /// Returns the time since the previous call.
    fn next(&mut self) -> Duration {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now))
    }
}

/// The plugins that handle one write.
pub struct HandlingPlugins<'c> {
    chain: &'c Chain,
    plugins: SmallVec<[&'c Link; HANDLING_PLUGINS_TYPICAL]>,
}

impl Chain {
    /// Creates a chain without plugins. `metrics` receives the durations of plugins.
    pub fn new(metrics: Arc<Metrics>) -> Chain {
        Chain { plugins: Vec::new(), metrics, steps: Timers::default() }
    }

    /// Adds a plugin at the end of the chain.
    pub fn push(&mut self, name: &'static str, plugin: Arc<dyn Plugin>) {
        self.plugins.push(Link { name, plugin, timers: Timers::default() });
    }

    /// Returns the plugins that handle a write.
    pub fn about(&self, target: &Target<'_>) -> HandlingPlugins<'_> {
        HandlingPlugins {
            chain: self,
            plugins: self.plugins.iter().filter(|link| link.plugin.handles(target)).collect(),
        }
    }
}

impl HandlingPlugins<'_> {
    /// Returns whether any plugin reads objects. If no plugin reads objects, the caller need not provide
    /// objects.
    pub fn reads_objects(&self) -> bool {
        self.plugins.iter().any(|link| link.plugin.reads_objects())
    }

    /// Runs the mutating point. If a plugin requests reinvocation, the point runs a second time from the
    /// start. There is no third run. If a plugin refuses the write, the returned review contains the output
    /// of all plugins that ran.
    ///
    /// # Errors
    /// Returns the refusal of the first plugin that refuses.
    pub async fn mutate(&self, mut record: AdmissionRecord<'_, &mut Object>) -> (Review, Result<(), Status>) {
        trace::note(Stage::Mutate);
        let began = Instant::now();
        let mut review = Review::default();
        let mut outcome = self.mutate_once(&mut record, &mut review).await;
        if outcome.is_ok() && review.begin_reinvocation() {
            outcome = self.mutate_once(&mut record, &mut review).await;
        }
        let is_refused = outcome.is_err();
        self.record_duration(
            DurationLabels { point: Point::Mutating, operation: record.write.operation, is_refused },
            began,
        );
        (review, outcome)
    }

    async fn mutate_once(
        &self,
        record: &mut AdmissionRecord<'_, &mut Object>,
        review: &mut Review,
    ) -> Result<(), Status> {
        let mut laps = Laps::begin();
        for link in &self.plugins {
            let operation = record.write.operation;
            let decision = match link.plugin.mutate(record, review) {
                Step::Pass => continue,
                Step::Done(decision) => decision,
                Step::Wait(decision) => decision.await,
            };
            self.decided(link, Point::Mutating, operation, &mut laps, decision)?;
        }
        Ok(())
    }

    /// Records the duration of a plugin, and returns the decision of the plugin.
    fn decided(
        &self,
        link: &Link,
        point: Point,
        operation: Operation,
        laps: &mut Laps,
        decision: Result<(), Status>,
    ) -> Result<(), Status> {
        link.timers.record(
            DurationLabels { point, operation, is_refused: decision.is_err() },
            laps.next(),
            |[operation, rejected, kind]| {
                self.chain.metrics.plugins.series(&[link.name, operation, rejected, kind])
            },
        );
        decision
    }

    fn record_duration(&self, labels: DurationLabels, began: Instant) {
        self.chain
            .steps
            .record(labels, began.elapsed(), |labels| self.chain.metrics.admission.series(&labels));
    }

    /// Runs the validating point and returns the review and the outcome, as [`HandlingPlugins::mutate`] does.
    ///
    /// # Errors
    /// Returns the refusal of the first plugin that refuses.
    pub async fn validate(&self, record: AdmissionRecord<'_, &Object>) -> (Review, Result<(), Status>) {
        trace::note(Stage::Admit);
        let began = Instant::now();
        let mut review = Review::default();
        let operation = record.write.operation;
        let mut outcome = Ok(());
        let mut laps = Laps::begin();
        for link in &self.plugins {
            let decision = match link.plugin.validate(&record, &mut review) {
                Step::Pass => continue,
                Step::Done(decision) => decision,
                Step::Wait(decision) => decision.await,
            };
            outcome = self.decided(link, Point::Validating, operation, &mut laps, decision);
            if outcome.is_err() {
                break;
            }
        }
        let is_refused = outcome.is_err();
        self.record_duration(DurationLabels { point: Point::Validating, operation, is_refused }, began);
        (review, outcome)
    }
}
