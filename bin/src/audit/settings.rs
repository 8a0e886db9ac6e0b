//! Settings that the log and the webhook have in common: modes, batches, the size of events.

use std::time::Duration;

use anyhow::{anyhow, bail};

use super::batch::{self, Batching, Throttle};
use crate::config::checks::Flaws;

/// When an event is written, and the effect of its loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// The request waits for the write; a lost event is only logged.
    Blocking,
    /// The request waits for the write; a request whose first event is lost is refused.
    BlockingStrict,
    /// A thread writes events later, in batches.
    Batch(Batching),
}

/// The flags of a log or of a webhook.
pub struct Given<'f> {
    /// The name in the flags, for error messages: `log` or `webhook`.
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

/// Sizes in bytes above which events are truncated and batches divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncation {
    /// Maximum size of an event.
    pub event_bytes_max: usize,
    /// Maximum size of a batch.
    pub batch_bytes_max: usize,
}

impl Given<'_> {
    /// Adds the problems of these flags.
    pub fn check(&self, flaws: &mut Flaws) {
        flaws.take(self.mode());
        flaws.take(self.truncation());
        flaws.take(self.check_version());
    }

    /// Returns the mode with its batch settings.
    ///
    /// # Errors
    /// The mode is unknown, or batches would have no events.
    pub fn mode(&self) -> anyhow::Result<Mode> {
        Ok(match self.mode {
            "blocking" => Mode::Blocking,
            "blocking-strict" => Mode::BlockingStrict,
            "batch" => Mode::Batch(self.batching()?),
            mode => {
                let name = self.name;
                bail!(
                    "invalid audit {name} mode {mode}, allowed modes are \"batch,blocking,blocking-strict\""
                )
            }
        })
    }

    /// Returns the size limits, if truncation is enabled.
    ///
    /// # Errors
    /// The limits contradict each other, whether enabled or not.
    pub fn truncation(&self) -> anyhow::Result<Option<Truncation>> {
        let (event, batch) = (self.truncate_max_event_size, self.truncate_max_batch_size);
        let name = self.name;
        let Some(bytes) = usize::try_from(event).ok().filter(|bytes| *bytes > 0) else {
            bail!("invalid audit truncate {name} max event size {event}, must be a positive number");
        };
        if batch < event {
            bail!(
                "invalid audit truncate {name} max batch size {batch}, must be greater than max event size ({event})"
            );
        }
        let batch_bytes_max = usize::try_from(batch).unwrap_or(usize::MAX);
        let truncation = Truncation { event_bytes_max: bytes, batch_bytes_max };
        Ok(self.truncate_enabled.then_some(truncation))
    }

    /// Checks the version of events.
    ///
    /// # Errors
    /// The version is not supported.
    pub fn check_version(&self) -> anyhow::Result<()> {
        const ONLY: &str = "audit.k8s.io/v1";
        match self.version {
            ONLY => Ok(()),
            version if version.matches('/').count() > 1 => bail!("unexpected GroupVersion string: {version}"),
            _ => bail!("invalid group version, allowed versions are [{ONLY:?}]"),
        }
    }

    fn batching(&self) -> anyhow::Result<Batching> {
        let name = self.name;
        let buffer_len = self.positive(self.buffer_size, "buffer size")?;
        if buffer_len > batch::BUFFER_LEN_MAX {
            let most = batch::BUFFER_LEN_MAX;
            bail!("invalid audit batch {name} buffer size {buffer_len}, must be at most {most}");
        }
        let batch_len = self.positive(self.max_size, "max batch size")?;
        let qps = self.throttle_qps;
        let throttle = if self.throttle_enable {
            if !(qps > 0.0 && qps.is_finite()) {
                bail!("invalid audit batch {name} throttle QPS {qps}, must be a positive number");
            }
            let burst = self.positive(self.throttle_burst, "throttle burst")?;
            Some(Throttle { per_second: qps.into(), burst: burst as f64 })
        } else {
            None
        };
        Ok(Batching { buffer_len, batch_len, wait_max: self.max_wait, throttle })
    }

    fn positive(&self, value: i64, what: &str) -> anyhow::Result<usize> {
        let name = self.name;
        usize::try_from(value)
            .ok()
            .filter(|value| *value > 0)
            .ok_or_else(|| anyhow!("invalid audit batch {name} {what} {value}, must be a positive number"))
    }
}
