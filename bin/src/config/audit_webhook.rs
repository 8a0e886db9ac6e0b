//! Flags of the webhook to which audit events are sent.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use wire::outgoing::Egress;

use crate::audit::webhook::WebhookSettings;
use crate::config::audit_sink::SinkFlags;
use crate::flags::duration;
use crate::flags::problems::Problems;
use crate::flags::profile::Profile;
use crate::flags::value_parsers::{boolean, float32, integer};
use crate::remote::webhooks::Remote;

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuditWebhookFlags {
    /// Kubeconfig of the server to which audit events are sent. Requires --audit-policy-file.
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,

    /// When events are sent to the audit webhook. With blocking, a request waits until its event is sent, and
    /// continues even if sending fails. With blocking-strict, a request whose first event cannot be sent is
    /// refused. With batch, events are sent later, several at a time. Possible values: blocking,
    /// blocking-strict, batch.
    #[arg(long, value_name = "MODE", default_value = "batch")]
    pub audit_webhook_mode: String,

    /// How long the server waits before it sends events again after a failure. Each further wait is 50%
    /// longer.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse_clamped)]
    pub audit_webhook_initial_backoff: Duration,

    /// Largest number of events that wait to be sent; further events are lost. Only used with
    /// --audit-webhook-mode=batch.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_batch_buffer_size: i64,

    /// Largest number of events in a batch. Only used with --audit-webhook-mode=batch.
    #[arg(long, value_name = "COUNT", default_value_t = 400, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_batch_max_size: i64,

    /// How long an event waits for other events of its batch. Only used with --audit-webhook-mode=batch.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse_clamped)]
    pub audit_webhook_batch_max_wait: Duration,

    /// Limit the rate of batches. Only used with --audit-webhook-mode=batch.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_webhook_batch_throttle_enable: bool,

    /// Average number of batches per second, if --audit-webhook-batch-throttle-enable is set.
    #[arg(long, value_name = "NUMBER", default_value_t = 10.0, allow_hyphen_values = true,
          value_parser = float32)]
    pub audit_webhook_batch_throttle_qps: f32,

    /// Largest number of batches that are sent at once after an idle period, if
    /// --audit-webhook-batch-throttle-enable is set.
    #[arg(long, value_name = "COUNT", default_value_t = 15, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_batch_throttle_burst: i64,

    /// Cut events that are larger than --audit-webhook-truncate-max-event-size.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_webhook_truncate_enabled: bool,

    /// Largest size of an event as JSON, in bytes. A larger event is sent without the request object and the
    /// response object. An event that is still too large is lost.
    #[arg(long, value_name = "BYTES", default_value_t = 102_400, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_truncate_max_event_size: i64,

    /// Largest total size of the events in one request, in bytes, if --audit-webhook-truncate-enabled is set.
    #[arg(long, value_name = "BYTES", default_value_t = 10_485_760, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_truncate_max_batch_size: i64,

    /// API version of the events that are sent. Possible value: audit.k8s.io/v1.
    #[arg(long, value_name = "VERSION", default_value = "audit.k8s.io/v1")]
    pub audit_webhook_version: String,
}

impl AuditWebhookFlags {
    /// Adds an error for each invalid value, if a server is configured.
    pub fn check(&self, problems: &mut Problems) {
        if self.file().is_some() {
            let sink = self.sink();
            problems.take(sink.mode());
            problems.take(sink.truncation());
            problems.take(sink.check_version());
        }
    }

    /// Returns the settings, or `None` if no server is configured. Adds an error for each invalid value, or an error if
    /// the kubeconfig file cannot be used.
    pub fn settings(
        &self,
        naming: Profile,
        egress: &Egress,
        problems: &mut Problems,
    ) -> Option<Option<WebhookSettings>> {
        let Some(file) = self.file() else { return Some(None) };
        self.check(problems);
        let sink = self.sink();
        let (mode, truncation) = (sink.mode().ok()?, sink.truncation().ok()?);
        let remote = Remote::read(file, None, naming).context("initializing audit webhook");
        let remote = problems.take_for("audit-webhook-config-file", file.display(), remote)?.through(egress);
        let backoff = self.audit_webhook_initial_backoff;
        Some(Some(WebhookSettings { remote, mode, backoff, truncation }))
    }

    fn file(&self) -> Option<&PathBuf> {
        self.audit_webhook_config_file.as_ref().filter(|file| !file.as_os_str().is_empty())
    }

    /// Returns the flags that a log and a webhook have in common.
    fn sink(&self) -> SinkFlags<'_> {
        SinkFlags {
            name: "webhook",
            mode: &self.audit_webhook_mode,
            version: &self.audit_webhook_version,
            buffer_size: self.audit_webhook_batch_buffer_size,
            max_size: self.audit_webhook_batch_max_size,
            max_wait: self.audit_webhook_batch_max_wait,
            throttle_enable: self.audit_webhook_batch_throttle_enable,
            throttle_qps: self.audit_webhook_batch_throttle_qps,
            throttle_burst: self.audit_webhook_batch_throttle_burst,
            truncate_enabled: self.audit_webhook_truncate_enabled,
            truncate_max_event_size: self.audit_webhook_truncate_max_event_size,
            truncate_max_batch_size: self.audit_webhook_truncate_max_batch_size,
        }
    }
}
