//! Measurements that lower layers report about the current request: the time of each kind of work, and the
//! calls of webhooks. Log lines of these layers identify the request by its audit id.
//!
//! The scope belongs to the task of the request. A task that a layer spawns is outside of the scope, and its
//! reports are ignored.

use std::borrow::Cow;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;

/// Maximum number of webhook calls that are listed for one request. Further calls count only in the sums.
const CALLS_MAX: usize = 16;

tokio::task_local! {
    static CURRENT: Arc<RequestScope>;
}

/// The origin of a request.
#[derive(Clone, Debug)]
pub struct ClientOrigin {
    /// The audit id of the request.
    pub audit_id: HeaderValue,
    /// The user agent of the client, if it sent one.
    pub user_agent: Option<HeaderValue>,
    /// The IP address of the client.
    pub source: IpAddr,
}

/// The measurements of a request in progress.
#[derive(Debug)]
pub struct RequestScope {
    origin: ClientOrigin,
    spent: Mutex<RequestTimes>,
}

/// Time that a request spent in each kind of work.
#[derive(Clone, Debug, Default)]
pub struct RequestTimes {
    /// Time of accesses to the store, which run one after another.
    pub storage: Duration,
    /// Time of mutating webhooks, which run one after another.
    pub mutating_webhooks: Duration,
    /// Time of the slowest validating webhook; the calls run concurrently.
    pub validating_webhooks: Duration,
    /// Time to encode the object of the response.
    pub serialization: Duration,
    /// Webhook calls in the order of their completion: name and duration.
    pub calls: Vec<(String, Duration)>,
}

impl RequestScope {
    /// Creates the scope of a request that was just received.
    pub fn new(origin: ClientOrigin) -> Arc<RequestScope> {
        Arc::new(RequestScope { origin, spent: Mutex::default() })
    }

    /// Runs a future inside the scope.
    pub async fn within<F: Future>(self: Arc<Self>, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// Returns the measurements so far.
    pub fn spent(&self) -> RequestTimes {
        self.spent.lock().clone()
    }
}

fn report(note: impl FnOnce(&mut RequestTimes)) {
    // Outside of a request, as in controllers, there is no scope.
    let _ = CURRENT.try_with(|scope| note(&mut scope.spent.lock()));
}

/// Adds the duration of an access to the store.
pub fn stored(took: Duration) {
    report(|spent| spent.storage += took);
}

/// Adds the duration of encoding the object of a response.
pub fn serialized(took: Duration) {
    report(|spent| spent.serialization += took);
}

/// Adds a call of a mutating (`mutating`) or validating webhook.
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

/// Returns the audit id of the current request; empty outside of a request.
pub fn audit_id() -> String {
    with_origin(|origin| origin.map_or_else(String::new, |origin| text(&origin.audit_id).into_owned()))
}

/// Calls `look` with the origin of the current request; with `None` outside of a request.
pub fn with_origin<T>(look: impl FnOnce(Option<&ClientOrigin>) -> T) -> T {
    let scope = CURRENT.try_with(Arc::clone).ok();
    look(scope.as_ref().map(|scope| &scope.origin))
}

/// Returns a header value as text; bytes that are not UTF-8 become U+FFFD.
pub fn text(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn layers_report_latency_to_the_request_of_their_task() {
        let origin = ClientOrigin {
            audit_id: HeaderValue::from_static("id"),
            user_agent: None,
            source: IpAddr::from([192, 0, 2, 7]),
        };
        let scope = RequestScope::new(origin);
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
