//! Flags about the server that audit events are sent to.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::forms::{boolean, float32, integer};
use crate::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuditWebhookFlags {
    /// Kubeconfig of the server that audit events are sent to. Needs --audit-policy-file.
    #[arg(long, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,

    /// How events get to that server. blocking: before the request goes on, also if the event is lost; blocking-strict: a
    /// request whose first event is lost is refused; batch: later, many at a time.
    #[arg(long, value_name = "MODE", default_value = "batch")]
    pub audit_webhook_mode: String,

    /// How long to wait before events are sent a second time; each further time, half as long again.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::kept)]
    pub audit_webhook_initial_backoff: Duration,

    /// Mode batch: most events that wait to be sent; further ones are lost.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_batch_buffer_size: i64,

    /// Mode batch: most events sent at once.
    #[arg(long, value_name = "COUNT", default_value_t = 400, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_batch_max_size: i64,

    /// Mode batch: how long events wait for others to be sent with.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::kept)]
    pub audit_webhook_batch_max_wait: Duration,

    /// Mode batch: limit the rate of batches.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_webhook_batch_throttle_enable: bool,

    /// Mode batch: batches per second, where their rate is limited.
    #[arg(long, value_name = "NUMBER", default_value_t = 10.0, allow_hyphen_values = true,
          value_parser = float32)]
    pub audit_webhook_batch_throttle_qps: f32,

    /// Mode batch: most batches at once after a time without any, where their rate is limited.
    #[arg(long, value_name = "COUNT", default_value_t = 15, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_batch_throttle_burst: i64,

    /// Cut events that are longer than --audit-webhook-truncate-max-event-size.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_webhook_truncate_enabled: bool,

    /// Longest event as JSON, in bytes: a longer one loses the objects of the request and the answer, or is lost.
    #[arg(long, value_name = "BYTES", default_value_t = 102_400, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_truncate_max_event_size: i64,

    /// Most bytes of events in one request, where events are cut.
    #[arg(long, value_name = "BYTES", default_value_t = 10_485_760, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_webhook_truncate_max_batch_size: i64,

    /// Version of the events that are sent. Only v1 exists.
    #[arg(long, value_name = "VERSION", default_value = "audit.k8s.io/v1")]
    pub audit_webhook_version: String,
}
