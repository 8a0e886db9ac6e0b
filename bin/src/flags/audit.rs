//! Flags of the audit log: the policy, the file, its rotation, and the mode of writing.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::forms::{boolean, float32, integer};
use crate::flags::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuditFlags {
    /// Audit policy (YAML or JSON): which requests are recorded, and in how much detail. Has no effect
    /// without --audit-log-path or --audit-webhook-config-file.
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,

    /// File to which audit events are appended, one per line. - means standard output. Nothing is recorded
    /// without --audit-policy-file.
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,

    /// Format of the lines of the audit log. Possible values: json, legacy.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub audit_log_format: String,

    /// When events are written to the audit log. With blocking, before the request continues, even if writing
    /// fails. With blocking-strict, a request whose first event cannot be written is refused. With batch,
    /// later, several events at a time. Possible values: blocking, blocking-strict, batch.
    #[arg(long, value_name = "MODE", default_value = "blocking")]
    pub audit_log_mode: String,

    /// Size in megabytes at which the audit log is rotated. 0 means 100.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_maxsize: i64,

    /// Largest number of rotated audit log files to keep. 0 keeps all.
    #[arg(long, value_name = "COUNT", default_value_t = 100, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_maxbackup: i64,

    /// How many days rotated audit log files are kept. 0 keeps them forever.
    #[arg(long, value_name = "DAYS", default_value_t = 366, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_maxage: i64,

    /// Compress rotated audit log files with gzip.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_log_compress: bool,

    /// Largest number of events that wait to be written; further events are lost. Only used with
    /// --audit-log-mode=batch.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_batch_buffer_size: i64,

    /// Largest number of events in a batch. Only used with --audit-log-mode=batch.
    #[arg(long, value_name = "COUNT", default_value_t = 1, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_batch_max_size: i64,

    /// How long an event waits for other events of its batch. Only used with --audit-log-mode=batch.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::kept)]
    pub audit_log_batch_max_wait: Duration,

    /// Limit the rate of batches. Only used with --audit-log-mode=batch.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_log_batch_throttle_enable: bool,

    /// Average number of batches per second if --audit-log-batch-throttle-enable is set.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, allow_hyphen_values = true,
          value_parser = float32)]
    pub audit_log_batch_throttle_qps: f32,

    /// Largest number of batches at once after an idle period if --audit-log-batch-throttle-enable is set.
    #[arg(long, value_name = "COUNT", default_value_t = 0, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_batch_throttle_burst: i64,

    /// Cut events that are larger than --audit-log-truncate-max-event-size.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_log_truncate_enabled: bool,

    /// Largest size of an event as JSON, in bytes. A larger event is recorded without the objects of request
    /// and response. If it is still too large, it is lost.
    #[arg(long, value_name = "BYTES", default_value_t = 102_400, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_truncate_max_event_size: i64,

    /// Largest size of a batch, in bytes. The audit log does not use this limit, but the value must exceed
    /// --audit-log-truncate-max-event-size.
    #[arg(long, value_name = "BYTES", default_value_t = 10_485_760, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_truncate_max_batch_size: i64,

    /// API version of the events in the audit log. Possible value: audit.k8s.io/v1.
    #[arg(long, value_name = "VERSION", default_value = "audit.k8s.io/v1")]
    pub audit_log_version: String,
}
