//! Deletes the contents of what goes away: a namespace, or a custom type.

use futures_util::{StreamExt, stream};
use http::StatusCode;

use super::WRITES_MAX;
use crate::writes::loopback::Loopback;
use objects::store;
use types::attributes::Attributes;
use types::options::{DeleteOptions, Propagation};
use types::schema::registry::Resource;

/// Most failures told in a condition.
const FAILURES_TOLD_MAX: usize = 10;

/// How much could not be deleted, and why in the first cases.
#[derive(Default)]
pub struct Failures {
    /// How many.
    pub count: u64,
    told: Vec<String>,
}

impl Failures {
    /// Notes one more.
    pub fn note(&mut self, why: String) {
        self.count += 1;
        if self.told.len() < FAILURES_TOLD_MAX {
            self.told.push(why);
        }
    }

    /// What is told of them; `None` without any.
    pub fn text(&self) -> Option<String> {
        go::join_errors(&self.told)
    }
}

/// Deletes all objects of a resource in a namespace, or everywhere if that is empty, as a request for the collection would. `again`: what is
/// being deleted already was told so before.
pub async fn delete_all(
    loopback: &Loopback<'_>,
    resource: &Resource,
    namespace: &str,
    again: bool,
    failures: &mut Failures,
) {
    let snapshot = loopback.api().engine_of(resource).snapshot();
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    let options = &options;
    let deletions = snapshot.prefix(&store::collection(resource, namespace)).map(|entry| async move {
        let stored = store::read(entry)?;
        if again && Attributes::new(&stored.record.attributes).is_deleting() {
            return Ok(());
        }
        let (namespace, name) = store::identity(resource, &stored.record.key);
        match loopback.delete_of_collection(resource, (namespace, name), options).await {
            Err(error) if error.code != StatusCode::NOT_FOUND => Err(error),
            _ => Ok(()),
        }
    });
    let mut outcomes = stream::iter(deletions).buffer_unordered(WRITES_MAX);
    while let Some(outcome) = outcomes.next().await {
        if let Err(error) = outcome {
            failures.note(error.message);
        }
    }
}
