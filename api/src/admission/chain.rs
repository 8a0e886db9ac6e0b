//! The plugins of a server in their order, and the two points at which a write meets them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::lookup::Lookup;
use super::plugin::{Plugin, Target};
use super::record::{Record, Review};
use super::settings::Settings;
use crate::json::Object;
use crate::status::Status;
#[cfg(test)]
use crate::write::{Stage, trace};

/// Plugins that are asked about one write; most writes concern fewer.
const ASKED_TYPICAL: usize = 12;

/// The plugins of a server, in order.
pub struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
}

/// The plugins that are asked about one write.
pub struct Asked<'c> {
    plugins: SmallVec<[&'c dyn Plugin; ASKED_TYPICAL]>,
}

impl Chain {
    /// Makes the plugins that `settings` select.
    pub fn new(settings: &Settings, lookup: &Lookup) -> Chain {
        Chain { plugins: settings.makes().map(|make| make(lookup)).collect() }
    }

    /// The plugins that are asked about a write.
    pub fn about(&self, target: &Target<'_>) -> Asked<'_> {
        Asked { plugins: self.plugins.iter().map(|plugin| &**plugin).filter(|p| p.handles(target)).collect() }
    }
}

impl Asked<'_> {
    /// Whether one of them looks at objects; otherwise none need be made for them.
    pub fn reads_objects(&self) -> bool {
        self.plugins.iter().any(|plugin| plugin.reads_objects())
    }

    /// The mutating point. Once more from the beginning where a plugin asks for it, which happens once at most. What
    /// plugins had to say counts whether one of them refused or not.
    ///
    /// # Errors
    /// The refusal of the first plugin that refuses.
    pub async fn mutate(&self, mut record: Record<'_, &mut Object>) -> (Review, Result<(), Status>) {
        #[cfg(test)]
        trace::note(Stage::Mutate);
        let mut review = Review::default();
        let mut outcome = self.mutate_once(&mut record, &mut review).await;
        if outcome.is_ok() && review.begin_reinvocation() {
            outcome = self.mutate_once(&mut record, &mut review).await;
        }
        (review, outcome)
    }

    async fn mutate_once(
        &self,
        record: &mut Record<'_, &mut Object>,
        review: &mut Review,
    ) -> Result<(), Status> {
        for plugin in &self.plugins {
            plugin.mutate(record, review).decision().await?;
        }
        Ok(())
    }

    /// The validating point, likewise.
    ///
    /// # Errors
    /// The refusal of the first plugin that refuses.
    pub async fn validate(&self, record: Record<'_, &Object>) -> (Review, Result<(), Status>) {
        #[cfg(test)]
        trace::note(Stage::Admit);
        let mut review = Review::default();
        for plugin in &self.plugins {
            if let Err(refusal) = plugin.validate(&record, &mut review).decision().await {
                return (review, Err(refusal));
            }
        }
        (review, Ok(()))
    }
}
