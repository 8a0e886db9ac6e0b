//! Flags that the audit log and the audit webhook have in common: modes, batches, and the size of events.

use std::fmt::Display;
use std::time::Duration;

use crate::audit::batch::{self, Batching, Throttle};
use crate::audit::mode::{Mode, Truncation};
use crate::flags::problems::FlagError;

/// The flags of a log or of a webhook.
pub struct SinkFlags<'f> {
    /// The word in the names of the flags, `log` or `webhook`, for error messages.
    pub name: &'f str,
    pub mode: &'f str,
    pub version: &'f str,
    pub buffer_size: i64,
    pub max_size: i64,
    pub max_wait: Duration,
    pub throttle_enable: bool,
    pub throttle_qps: f32,
    pub throttle_burst: i64,
    pub truncate_enabled: bool,
    pub truncate_max_event_size: i64,
    pub truncate_max_batch_size: i64,
}

impl SinkFlags<'_> {
    /// Returns the mode. The mode `batch` includes the settings of batches.
    ///
    /// # Errors
    /// The mode is unknown, or a setting of batches is out of range.
    pub fn mode(&self) -> Result<Mode, FlagError> {
        match self.mode {
            "blocking" => Ok(Mode::Blocking),
            "blocking-strict" => Ok(Mode::BlockingStrict),
            "batch" => self.batching().map(Mode::Batch),
            mode => {
                let name = self.name;
                let text = format!(
                    "invalid audit {name} mode {mode}, allowed modes are \"batch,blocking,blocking-strict\""
                );
                Err(self.wrong("mode", mode, text))
            }
        }
    }

    /// Returns the size limits, if truncation is enabled.
    ///
    /// # Errors
    /// A limit is not positive, or a batch would be smaller than an event. The limits are checked even if
    /// truncation is disabled.
    pub fn truncation(&self) -> Result<Option<Truncation>, FlagError> {
        let (event, batch) = (self.truncate_max_event_size, self.truncate_max_batch_size);
        let name = self.name;
        let Some(event_bytes_max) = usize::try_from(event).ok().filter(|bytes| *bytes > 0) else {
            let text =
                format!("invalid audit truncate {name} max event size {event}, must be a positive number");
            return Err(self.wrong("truncate-max-event-size", event, text));
        };
        if batch < event {
            let text = format!(
                "invalid audit truncate {name} max batch size {batch}, must be greater than max event size ({event})"
            );
            return Err(self.wrong("truncate-max-batch-size", batch, text));
        }
        let batch_bytes_max = usize::try_from(batch).unwrap_or(usize::MAX);
        Ok(self.truncate_enabled.then_some(Truncation { event_bytes_max, batch_bytes_max }))
    }

    /// Checks the version of events.
    ///
    /// # Errors
    /// The version is not supported.
    pub fn check_version(&self) -> Result<(), FlagError> {
        const ONLY: &str = "audit.k8s.io/v1";
        let text = match self.version {
            ONLY => return Ok(()),
            version if version.matches('/').count() > 1 => {
                format!("unexpected GroupVersion string: {version}")
            }
            _ => format!("invalid group version, allowed versions are [{ONLY:?}]"),
        };
        Err(self.wrong("version", self.version, text))
    }

    fn batching(&self) -> Result<Batching, FlagError> {
        let name = self.name;
        let buffer_len = self.positive(self.buffer_size, "buffer size")?;
        if buffer_len > batch::BUFFER_LEN_MAX {
            let most = batch::BUFFER_LEN_MAX;
            let text = format!("invalid audit batch {name} buffer size {buffer_len}, must be at most {most}");
            return Err(self.wrong("batch-buffer-size", buffer_len, text));
        }
        let batch_len = self.positive(self.max_size, "max batch size")?;
        let qps = self.throttle_qps;
        let throttle = if self.throttle_enable {
            if !(qps > 0.0 && qps.is_finite()) {
                let text =
                    format!("invalid audit batch {name} throttle QPS {qps}, must be a positive number");
                return Err(self.wrong("batch-throttle-qps", qps, text));
            }
            let burst = self.positive(self.throttle_burst, "throttle burst")?;
            Some(Throttle { per_second: qps.into(), burst: burst as f64 })
        } else {
            None
        };
        Ok(Batching { buffer_len, batch_len, wait_max: self.max_wait, throttle })
    }

    /// Checks that a setting of batches is positive. `property` is the name of the flag in the messages of
    /// kube-apiserver.
    fn positive(&self, value: i64, property: &str) -> Result<usize, FlagError> {
        usize::try_from(value).ok().filter(|value| *value > 0).ok_or_else(|| {
            let name = self.name;
            let text = format!("invalid audit batch {name} {property} {value}, must be a positive number");
            let flag = match property {
                "max batch size" => "batch-max-size".to_owned(),
                property => format!("batch-{}", property.replace(' ', "-")),
            };
            self.wrong(&flag, value, text)
        })
    }

    /// Returns the error of a flag. `flag` is the name without `audit-log-` or `audit-webhook-`.
    fn wrong(&self, flag: &str, value: impl Display, text: String) -> FlagError {
        FlagError::worded(&format!("audit-{}-{flag}", self.name), value, text)
    }
}
