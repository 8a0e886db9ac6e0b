//! Admission: plugins that may change or refuse what authorization allowed.
//!
//! ```text
//! write path ─► mutating point ─► … ─► validation ─► validating point ─► … ─► commit
//! connects, reviews, subresources that store nothing ─► both points, one after the other
//! ```
//!
//! A [`Chain`] is a value: the plugins in the order in which they are asked, each with both points. A plugin is told
//! everything about the write in a [`Record`], in the version of the request. Objects of the stored version are
//! converted for it, and old ones read, only where [`Chain::reads_objects`] says that a plugin looks at them.

pub mod namespace_lifecycle;
mod record;

pub use record::{Operation, Options, Record, Review};

use crate::json::Object;
use crate::status::Status;
#[cfg(test)]
use crate::write::{Stage, trace};

/// One kind of plugin. A list of kinds, not of trait objects: asking a plugin allocates nothing.
pub enum Plugin {
    /// Namespaced objects need a namespace that stays.
    NamespaceLifecycle,
    /// Notes what it is asked, for tests.
    #[cfg(test)]
    Probe(std::sync::Arc<tests::Probe>),
}

impl Plugin {
    /// Whether it looks at objects.
    fn reads_objects(&self) -> bool {
        match self {
            Plugin::NamespaceLifecycle => false,
            #[cfg(test)]
            Plugin::Probe(_) => true,
        }
    }

    async fn mutate(&self, record: &mut Record<'_, &mut Object>, _review: &mut Review) -> Result<(), Status> {
        match self {
            Plugin::NamespaceLifecycle => namespace_lifecycle::admit(record),
            #[cfg(test)]
            Plugin::Probe(probe) => probe.mutate(record, _review).await,
        }
    }

    async fn validate(&self, _record: &Record<'_, &Object>, _review: &mut Review) -> Result<(), Status> {
        match self {
            Plugin::NamespaceLifecycle => Ok(()),
            #[cfg(test)]
            Plugin::Probe(probe) => probe.validate(_record, _review).await,
        }
    }
}

/// The plugins of a server, in order.
pub struct Chain {
    plugins: Vec<Plugin>,
}

impl Chain {
    /// A chain of `plugins`, asked in this order.
    pub fn new(plugins: Vec<Plugin>) -> Chain {
        Chain { plugins }
    }

    /// Whether a plugin looks at objects; otherwise none need be made for it.
    pub fn reads_objects(&self) -> bool {
        self.plugins.iter().any(Plugin::reads_objects)
    }

    /// The mutating point.
    ///
    /// # Errors
    /// The refusal of the first plugin that refuses.
    pub async fn mutate(&self, mut record: Record<'_, &mut Object>) -> Result<Review, Status> {
        #[cfg(test)]
        trace::note(Stage::Mutate);
        let mut review = Review::default();
        for plugin in &self.plugins {
            plugin.mutate(&mut record, &mut review).await?;
        }
        Ok(review)
    }

    /// The validating point.
    ///
    /// # Errors
    /// The refusal of the first plugin that refuses.
    pub async fn validate(&self, record: Record<'_, &Object>) -> Result<Review, Status> {
        #[cfg(test)]
        trace::note(Stage::Admit);
        let mut review = Review::default();
        for plugin in &self.plugins {
            plugin.validate(&record, &mut review).await?;
        }
        Ok(review)
    }
}

/// The plugins of every server.
impl Default for Chain {
    fn default() -> Chain {
        Chain::new(vec![Plugin::NamespaceLifecycle])
    }
}

#[cfg(test)]
#[path = "admission_test.rs"]
mod tests;
