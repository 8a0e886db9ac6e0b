//! Deletes the contents of a namespace, or of a custom type, that is being deleted.

use futures_util::{StreamExt, stream};
use http::StatusCode;

use super::WRITES_MAX;
use crate::writes::loopback::Loopback;
use objects::store;
use types::attributes::Attributes;
use types::options::{DeleteOptions, Propagation};
use types::schema::registry::Resource;

/// Maximum number of failures that a condition lists.
const FAILURES_REPORTED_MAX: usize = 10;

/// The number of objects that could not be deleted, and the reasons of the first failures.
#[derive(Default)]
pub struct Failures {
    /// Number of failures so far.
    pub count: u64,
    reasons: Vec<String>,
}

impl Failures {
    /// Adds a failure with its reason.
    pub fn note(&mut self, why: String) {
        self.count += 1;
        if self.reasons.len() < FAILURES_REPORTED_MAX {
            self.reasons.push(why);
        }
    }

    /// Returns the reasons as text; `None` without any failure.
    pub fn text(&self) -> Option<String> {
        go::join_errors(&self.reasons)
    }
}

/// Deletes all objects of a resource in a namespace, or in all namespaces if `namespace` is empty, like a
/// deletecollection request. With `again`, objects that are already being deleted are skipped.
pub async fn delete_all(
    loopback: &Loopback<'_>,
    resource: &Resource,
    namespace: &str,
    again: bool,
    failures: &mut Failures,
) {
    let snapshot = loopback.server().store.engine_of(resource).snapshot();
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    let options = &options;
    let deletions = snapshot.prefix(&store::collection(resource, namespace)).map(|entry| async move {
        let stored = store::read(entry)?;
        if again && Attributes::new(&stored.record.attributes).is_deleting() {
            return Ok(());
        }
        let object = store::object_name(resource, &stored.record.key);
        match loopback.delete_of_collection(resource, object, options).await {
            Err(error) if error.code != StatusCode::NOT_FOUND => Err(error),
            _ => Ok(()),
        }
    });
    let mut outcomes = stream::iter(deletions).buffer_unordered(WRITES_MAX);
    while let Some(outcome) = outcomes.next().await {
        if let Err(error) = outcome {
            failures.note(error.into_message());
        }
    }
}
