//! Flags about the audit log: the policy, the file, its rotation, and how events get there.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::forms::{boolean, float32, integer};
use crate::duration;

// Not a documentation comment: clap would use it as the description of the whole command line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuditFlags {
    /// Audit policy (YAML or JSON): which requests are recorded, and how much of them. Needs --audit-log-path.
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,

    /// File that audit events are appended to, one line each; - for standard output.
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,

    /// Form of the lines of the audit log. One of: json, legacy.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub audit_log_format: String,

    /// How events get into the audit log. blocking: before the request goes on, also if the event is lost;
    /// blocking-strict: a request whose first event is lost is refused; batch: later, many at a time.
    #[arg(long, value_name = "MODE", default_value = "blocking")]
    pub audit_log_mode: String,

    /// Size in megabytes at which the audit log is rotated. 0: 100.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_maxsize: i64,

    /// Most rotated files of the audit log that are kept. 0: all.
    #[arg(long, value_name = "COUNT", default_value_t = 100, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_maxbackup: i64,

    /// Days for which rotated files of the audit log are kept. 0: forever.
    #[arg(long, value_name = "DAYS", default_value_t = 366, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_maxage: i64,

    /// Compress rotated files of the audit log with gzip.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_log_compress: bool,

    /// Mode batch: most events that wait to be written; further ones are lost.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_batch_buffer_size: i64,

    /// Mode batch: most events written at once.
    #[arg(long, value_name = "COUNT", default_value_t = 1, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_batch_max_size: i64,

    /// Mode batch: how long events wait for others to be written with.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::kept)]
    pub audit_log_batch_max_wait: Duration,

    /// Mode batch: limit the rate of batches.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_log_batch_throttle_enable: bool,

    /// Mode batch: batches per second, where their rate is limited.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, allow_hyphen_values = true,
          value_parser = float32)]
    pub audit_log_batch_throttle_qps: f32,

    /// Mode batch: most batches at once after a time without any, where their rate is limited.
    #[arg(long, value_name = "COUNT", default_value_t = 0, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_batch_throttle_burst: i64,

    /// Cut events that are longer than --audit-log-truncate-max-event-size.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_log_truncate_enabled: bool,

    /// Longest event as JSON, in bytes: a longer one loses the objects of the request and the answer, or is lost.
    #[arg(long, value_name = "BYTES", default_value_t = 102_400, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_truncate_max_event_size: i64,

    /// Longest batch in bytes; the log is written in one piece and needs none, but it must exceed the longest event.
    #[arg(long, value_name = "BYTES", default_value_t = 10_485_760, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_truncate_max_batch_size: i64,

    /// Version of the events in the audit log. Only v1 exists.
    #[arg(long, value_name = "VERSION", default_value = "audit.k8s.io/v1")]
    pub audit_log_version: String,
}
