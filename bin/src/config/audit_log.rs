//! Flags of the audit log: the file, its rotation, and the mode of writing.

use std::path::PathBuf;
use std::time::Duration;

use api::state::audit::{Encoder, Format};
use clap::Args;

use crate::audit::file::{self, Rotation};
use crate::audit::log::LogSettings;
use crate::config::audit_sink::SinkFlags;
use crate::flags::duration;
use crate::flags::problems::{FlagError, Problems};
use crate::flags::value_parsers::{boolean, float32, integer};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuditLogFlags {
    /// File to which audit events are appended, one event per line. - means standard output. Without
    /// --audit-policy-file, the file stays empty.
    #[arg(long, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,

    /// Format of the lines of the audit log. Possible values: json, legacy.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub audit_log_format: String,

    /// When events are written to the audit log. With blocking, a request waits for the write of its event,
    /// and continues even if the write fails. With blocking-strict, a request whose first event cannot be
    /// written is refused. With batch, events are written later, several at a time. Possible values:
    /// blocking, blocking-strict, batch.
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
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse_clamped)]
    pub audit_log_batch_max_wait: Duration,

    /// Limit the rate of batches. Only used with --audit-log-mode=batch.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_log_batch_throttle_enable: bool,

    /// Average number of batches per second, if --audit-log-batch-throttle-enable is set.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, allow_hyphen_values = true,
          value_parser = float32)]
    pub audit_log_batch_throttle_qps: f32,

    /// Largest number of batches that are written at once after an idle period, if
    /// --audit-log-batch-throttle-enable is set.
    #[arg(long, value_name = "COUNT", default_value_t = 0, allow_hyphen_values = true,
          value_parser = integer::<i64>)]
    pub audit_log_batch_throttle_burst: i64,

    /// Cut events that are larger than --audit-log-truncate-max-event-size.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true", value_parser = boolean, action = clap::ArgAction::Set)]
    pub audit_log_truncate_enabled: bool,

    /// Largest size of an event as JSON, in bytes. A larger event is recorded without the request object and
    /// the response object. An event that is still too large is lost.
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

impl AuditLogFlags {
    /// Returns the settings, or `None` if no file is configured. Adds an error for each invalid value.
    pub fn settings(&self, problems: &mut Problems) -> Option<Option<LogSettings>> {
        let path = self.audit_log_path.clone().filter(|path| !path.as_os_str().is_empty());
        let Some(path) = path else { return Some(None) };
        let sink = self.sink();
        let mode = problems.take(sink.mode());
        let truncation = problems.take(sink.truncation());
        problems.take(sink.check_version());
        let format = problems.take(self.format());
        let age = problems.take(not_negative("audit-log-maxage", self.audit_log_maxage));
        let backups = problems.take(not_negative("audit-log-maxbackup", self.audit_log_maxbackup));
        let size = problems.take(not_negative("audit-log-maxsize", self.audit_log_maxsize));
        let rotation = Rotation {
            age_max: Duration::from_secs(age?.saturating_mul(86_400)),
            backups_max: backups?,
            bytes_max: match size? {
                0 => file::BYTES_MAX,
                megabytes => megabytes.saturating_mul(1 << 20),
            },
            compresses: self.audit_log_compress,
        };
        let event_bytes_max = truncation?.map(|truncation| truncation.event_bytes_max);
        let encoder = Encoder { format: format?, event_bytes_max };
        Some(Some(LogSettings { path, mode: mode?, encoder, rotation }))
    }

    /// Returns the flags that a log and a webhook have in common.
    fn sink(&self) -> SinkFlags<'_> {
        SinkFlags {
            name: "log",
            mode: &self.audit_log_mode,
            version: &self.audit_log_version,
            buffer_size: self.audit_log_batch_buffer_size,
            max_size: self.audit_log_batch_max_size,
            max_wait: self.audit_log_batch_max_wait,
            throttle_enable: self.audit_log_batch_throttle_enable,
            throttle_qps: self.audit_log_batch_throttle_qps,
            throttle_burst: self.audit_log_batch_throttle_burst,
            truncate_enabled: self.audit_log_truncate_enabled,
            truncate_max_event_size: self.audit_log_truncate_max_event_size,
            truncate_max_batch_size: self.audit_log_truncate_max_batch_size,
        }
    }

    /// Returns the format of the lines in the log.
    fn format(&self) -> Result<Format, FlagError> {
        match self.audit_log_format.as_str() {
            "json" => Ok(Format::Json),
            "legacy" => Ok(Format::Legacy),
            format => {
                let text = format!("invalid audit log format {format}, allowed formats are \"legacy,json\"");
                Err(FlagError::worded("audit-log-format", format, text))
            }
        }
    }
}

fn not_negative(flag: &str, value: i64) -> Result<u64, FlagError> {
    let negative =
        |_| FlagError::worded(flag, value, format_args!("--{flag} {value} can't be a negative number"));
    u64::try_from(value).map_err(negative)
}
