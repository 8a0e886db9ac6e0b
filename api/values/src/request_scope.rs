//! The report of the layers below the request chain about the current request: where its time went, and which webhooks were
//! called. Log lines of these layers name the request by its audit id.
//!
//! The scope belongs to the task of the request. A task that a layer spawns is outside of it, and reports nothing.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;

/// Most calls of webhooks that one request names; further ones count in the sums only.
const CALLS_MAX: usize = 16;

tokio::task_local! {
    static CURRENT: Arc<RequestScope>;
}

/// A request under way.
#[derive(Debug)]
pub struct RequestScope {
    audit_id: HeaderValue,
    spent: Mutex<Spent>,
}

/// Where the time of a request went.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    /// Accesses to the store, one after the other.
    pub storage: Duration,
    /// Mutating webhooks, one after the other.
    pub mutating_webhooks: Duration,
    /// The slowest validating webhook: they are called at once.
    pub validating_webhooks: Duration,
    /// Encoding of the object in the answer.
    pub serialization: Duration,
    /// The calls of webhooks, in the order in which they ended: name and duration.
    pub calls: Vec<(String, Duration)>,
}

impl RequestScope {
    /// A request that has just been received.
    pub fn new(audit_id: HeaderValue) -> Arc<RequestScope> {
        Arc::new(RequestScope { audit_id, spent: Mutex::default() })
    }

    /// Runs a future inside of the scope.
    pub async fn within<F: Future>(self: Arc<Self>, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// Returns what was reported so far.
    pub fn spent(&self) -> Spent {
        self.spent.lock().clone()
    }
}

fn report(note: impl FnOnce(&mut Spent)) {
    // Controllers write outside of any request.
    let _ = CURRENT.try_with(|scope| note(&mut scope.spent.lock()));
}

/// Reports an access to the store.
pub fn stored(took: Duration) {
    report(|spent| spent.storage += took);
}

/// Reports that the object of an answer was encoded.
pub fn serialized(took: Duration) {
    report(|spent| spent.serialization += took);
}

/// Reports a call of a webhook, which may change the object (`mutating`) or judges it.
pub fn called_webhook(name: &str, mutating: bool, took: Duration) {
    report(|spent| {
        if mutating {
            spent.mutating_webhooks += took;
        } else {
            spent.validating_webhooks = spent.validating_webhooks.max(took);
        }
        if spent.calls.len() < CALLS_MAX {
            spent.calls.push((name.to_owned(), took));
        }
    });
}

/// Returns the audit id of the request under way; empty outside of a request.
pub fn audit_id() -> String {
    let id = CURRENT.try_with(|scope| String::from_utf8_lossy(scope.audit_id.as_bytes()).into_owned());
    id.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn layers_report_to_the_request_of_their_task() {
        let scope = RequestScope::new(HeaderValue::from_static("id"));
        let ms = Duration::from_millis;
        stored(ms(100));
        let inside = async {
            for at in 1..=20 {
                called_webhook("v", false, ms(at));
                called_webhook("m", true, ms(at));
            }
            stored(ms(1));
            stored(ms(2));
            audit_id()
        };
        assert_eq!(scope.clone().within(inside).await, "id");
        let spent = scope.spent();
        assert_eq!(
            (spent.storage, spent.validating_webhooks, spent.mutating_webhooks, spent.calls.len()),
            (ms(3), ms(20), ms(210), CALLS_MAX)
        );
        assert_eq!(audit_id(), "");
    }
}
