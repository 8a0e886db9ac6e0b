//! The annotations `apiserver.latency.k8s.io/…` of slow requests, which say where the time was spent. The
//! annotations are added when the response has been sent, for requests that are not streams and took more than
//! 500 ms, as in kube-apiserver 1.36. A layer without a measured duration has no annotation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use go::duration;

use values::request_scope::RequestScope;

/// Duration above which a request gets annotations.
const SLOW: Duration = Duration::from_millis(500);

/// The measurements from which the latency annotations of one request are computed.
#[derive(Debug)]
pub struct Latency {
    /// The group of the annotations.
    pub group: String,
    /// Time when the request was received.
    pub received: Instant,
    /// Time when the head of the response was known.
    pub answered: Instant,
    /// Durations of the stages before the request was served, by the name of their annotation.
    pub stages: Vec<(&'static str, Duration)>,
    /// The durations and webhook calls that the layers reported.
    pub scope: Arc<RequestScope>,
}

impl Latency {
    /// Returns the annotations of a request whose response was sent at `now`; empty if the request was not
    /// slow.
    pub(super) fn annotations(&self, now: Instant) -> Vec<(String, String)> {
        let total = now.saturating_duration_since(self.received);
        if total <= SLOW {
            return Vec::new();
        }
        let spent = self.scope.spent();
        let layers = [
            ("etcd", spent.storage),
            ("mutating-webhook", spent.mutating_webhooks),
            ("validating-webhook", spent.validating_webhooks),
            ("serialize-response-object", spent.serialization),
            ("response-write", now.saturating_duration_since(self.answered)),
            ("total", total),
        ];
        let all = self.stages.iter().copied().chain(layers).filter(|(_, took)| !took.is_zero());
        let text = |took: Duration| duration::to_text(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX));
        all.map(|(layer, took)| (format!("{}/{layer}", self.group), text(took))).collect()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use values::request_scope::{ClientOrigin, called_webhook, stored};

    #[tokio::test]
    async fn audit_events_of_slow_requests_have_the_latency_of_each_layer() {
        let ms = Duration::from_millis;
        let received = Instant::now();
        let scope = RequestScope::new(ClientOrigin {
            audit_id: HeaderValue::from_static("id"),
            user_agent: None,
            source: [192, 0, 2, 7].into(),
        });
        let latency = Latency {
            group: "apiserver.latency.k8s.io".to_owned(),
            received,
            answered: received + ms(499),
            stages: vec![("authentication", Duration::from_micros(3)), ("apf-queue-wait", Duration::ZERO)],
            scope: scope.clone(),
        };
        let work = async {
            stored(ms(2));
            called_webhook("w", false, ms(480));
        };
        scope.within(work).await;
        assert!(latency.annotations(received + ms(500)).is_empty());
        let annotations = latency.annotations(received + ms(501));
        let shown: Vec<String> = annotations.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let want = [
            "authentication=3µs",
            "etcd=2ms",
            "validating-webhook=480ms",
            "response-write=2ms",
            "total=501ms",
        ];
        assert_eq!(shown, want.map(|text| format!("apiserver.latency.k8s.io/{text}")));
    }
}
