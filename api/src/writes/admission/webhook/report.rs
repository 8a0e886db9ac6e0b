//! Log lines about webhooks that refuse a write or fail, with a bounded rate. The lines are visible at the
//! default level. Otherwise an operator would not find out why writes are refused, or that calls of a webhook
//! fail.

use std::time::Duration;

use super::Write;
use types::schema::registry::Resource;
use values::log_limit::{LogLimit, shortened};
use values::request_scope::audit_id;
use values::status::Status;

/// Limits the rate of log lines about failed calls. The limit is global, because the process has one log.
static LINES: LogLimit = LogLimit::new();

/// The webhook call that a log line describes.
#[derive(Clone, Copy, Default)]
pub(super) struct LoggedCall<'w> {
    operation: &'w str,
    resource: Option<&'w Resource>,
    subresource: &'w str,
    namespace: &'w str,
    name: &'w str,
    user: &'w str,
    took: Duration,
}

impl<'w> LoggedCall<'w> {
    pub(super) fn new(write: &Write<'w>, took: Duration) -> LoggedCall<'w> {
        LoggedCall {
            operation: write.operation.as_str(),
            resource: Some(write.resource),
            subresource: write.subresource,
            namespace: write.namespace,
            name: super::review::request_name(write),
            user: &write.user.name,
            took,
        }
    }

    fn resource(&self) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let resource = self.resource.map(Resource::qualified).unwrap_or_default();
        format!("{resource}{slash}{}", self.subresource)
    }
}

macro_rules! line {
    ($level:ident, $about:expr, $webhook:expr, $reason:expr, $text:literal $(, $field:ident = $value:expr)*) => {
        if let Some(omitted) = LINES.admit() {
            tracing::$level!(
                webhook = $webhook,
                latency_ms = $about.took.as_millis() as u64,
                reason = shortened($reason),
                $($field = $value,)*
                operation = $about.operation,
                resource = $about.resource(),
                namespace = $about.namespace,
                name = $about.name,
                user = $about.user,
                audit_id = audit_id(),
                omitted,
                $text
            );
        }
    };
}

/// Logs that the webhook denied the write.
pub(super) fn denied(webhook: &str, about: &LoggedCall<'_>, status: &Status) {
    line!(info, about, webhook, &status.message, "webhook denied the request", code = status.code.as_u16());
}

/// Logs that the webhook failed and that the write continues, because the failure policy is `Ignore`.
pub(super) fn failed_open(webhook: &str, about: &LoggedCall<'_>, why: &str) {
    line!(warn, about, webhook, why, "failed calling webhook, failing open");
}

/// Logs that the webhook failed and the write is refused.
pub(super) fn failed_closed(webhook: &str, about: &LoggedCall<'_>, why: &str) {
    line!(warn, about, webhook, why, "failed calling webhook, failing closed");
}
