//! The audit log: a file, or standard output, with a line for each event.

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use api::state::audit::{Encoder, Event, Format, Sink};
use parking_lot::Mutex;

use super::Losses;
use super::batch::Queue;
use super::file::{self, RotatingFile, Rotation};
use super::settings::{Given, Mode};
use crate::flags::AuditFlags;

/// Value of the label `plugin` in metrics.
pub const PLUGIN: &str = "log";

/// Settings of the audit log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    path: PathBuf,
    /// When events are written.
    pub mode: Mode,
    encoder: Encoder,
    rotation: Rotation,
}

impl LogConfig {
    /// Reads the flags of the log.
    ///
    /// # Errors
    /// A flag has an invalid value.
    pub fn from_flags(path: PathBuf, flags: &AuditFlags) -> anyhow::Result<LogConfig> {
        let given = given(flags);
        let mode = given.mode()?;
        let event_bytes_max = given.truncation()?.map(|truncation| truncation.event_bytes_max);
        given.check_version()?;
        let format = format(flags)?;
        let [age, backups, size] = bounds(flags).map(|(name, value)| bound(name, value));
        let rotation = Rotation {
            age_max: Duration::from_secs(age?.saturating_mul(86_400)),
            backups_max: backups?,
            bytes_max: match size? {
                0 => file::BYTES_MAX,
                megabytes => megabytes.saturating_mul(1 << 20),
            },
            compresses: flags.audit_log_compress,
        };
        Ok(LogConfig { path, mode, encoder: Encoder { format, event_bytes_max }, rotation })
    }

    /// Creates the file if it is missing.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn make(&self) -> anyhow::Result<()> {
        open(&self.path, self.rotation).map(drop)
    }

    /// Opens the log.
    ///
    /// # Errors
    /// The file cannot be opened, or the writer thread cannot start.
    pub fn open(&self, losses: Losses) -> anyhow::Result<Log> {
        let LogConfig { path, mode, encoder, rotation } = self;
        let mut target = open(path, *rotation)?;
        let out = match mode {
            Mode::Blocking | Mode::BlockingStrict => Out::Direct(Mutex::new(target)),
            Mode::Batch(batching) => {
                let write = move |lines: Vec<Vec<u8>>| {
                    if let Err(error) = target.write(&lines.concat()) {
                        losses.note(PLUGIN, lines.len(), &error);
                    }
                };
                Out::Queued(Queue::start(*batching, write)?)
            }
        };
        Ok(Log { encoder: *encoder, out })
    }
}

/// Returns the flags that a log and a webhook have in common.
pub fn given(flags: &AuditFlags) -> Given<'_> {
    Given {
        name: "log",
        mode: &flags.audit_log_mode,
        version: &flags.audit_log_version,
        buffer_size: flags.audit_log_batch_buffer_size,
        max_size: flags.audit_log_batch_max_size,
        max_wait: flags.audit_log_batch_max_wait,
        throttle_enable: flags.audit_log_batch_throttle_enable,
        throttle_qps: flags.audit_log_batch_throttle_qps,
        throttle_burst: flags.audit_log_batch_throttle_burst,
        truncate_enabled: flags.audit_log_truncate_enabled,
        truncate_max_event_size: flags.audit_log_truncate_max_event_size,
        truncate_max_batch_size: flags.audit_log_truncate_max_batch_size,
    }
}

/// Returns the format of the lines.
///
/// # Errors
/// The format is unknown.
pub fn format(flags: &AuditFlags) -> anyhow::Result<Format> {
    match flags.audit_log_format.as_str() {
        "json" => Ok(Format::Json),
        "legacy" => Ok(Format::Legacy),
        format => bail!("invalid audit log format {format}, allowed formats are \"legacy,json\""),
    }
}

/// Returns the limits of rotation with the suffixes of their flags: days, files, megabytes.
pub fn bounds(flags: &AuditFlags) -> [(&'static str, i64); 3] {
    [
        ("maxage", flags.audit_log_maxage),
        ("maxbackup", flags.audit_log_maxbackup),
        ("maxsize", flags.audit_log_maxsize),
    ]
}

/// Checks one of these limits.
///
/// # Errors
/// The value is negative.
pub fn bound(name: &str, value: i64) -> anyhow::Result<u64> {
    u64::try_from(value).map_err(|_| anyhow!("--audit-log-{name} {value} can't be a negative number"))
}

fn open(path: &Path, rotation: Rotation) -> anyhow::Result<Target> {
    if path == Path::new("-") {
        return Ok(Target::Stdout(io::stdout()));
    }
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| not_made(directory, &error))?;
    }
    let file = RotatingFile::open(path, rotation).map_err(|error| {
        let why = if path.is_dir() { "is a directory".to_owned() } else { reason(&error) };
        anyhow!("ensureLogFile: open {}: {why}", path.display())
    })?;
    Ok(Target::File(file))
}

/// Returns why a directory could not be created: often a file has its name, or that of one of its parents.
fn not_made(directory: &Path, error: &io::Error) -> anyhow::Error {
    match directory.ancestors().find(|above| above.exists()) {
        Some(above) if !above.is_dir() => {
            anyhow!("ensureLogFile: mkdir {}: not a directory", above.display())
        }
        _ => anyhow!("ensureLogFile: mkdir {}: {}", directory.display(), reason(error)),
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "read-only file system".to_owned(),
        _ => error.to_string(),
    }
}

enum Target {
    File(RotatingFile),
    Stdout(io::Stdout),
}

impl Target {
    /// Writes whole lines.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Target::File(file) => file.write(lines),
            Target::Stdout(stdout) => stdout.write_all(lines).and_then(|()| stdout.flush()),
        }
    }
}

/// An open audit log.
pub struct Log {
    encoder: Encoder,
    out: Out,
}

enum Out {
    /// The lock keeps lines from mixing.
    Direct(Mutex<Target>),
    Queued(Queue),
}

impl Sink for Log {
    fn record(&self, event: &Event) -> io::Result<()> {
        let mut line = self.encoder.encode(event).map_err(io::Error::other)?;
        line.push(b'\n');
        match &self.out {
            Out::Direct(target) => target.lock().write(&line),
            Out::Queued(queue) => queue.push(line),
        }
    }

    fn waiting(&self) -> usize {
        match &self.out {
            Out::Direct(_) => 0,
            Out::Queued(queue) => queue.waiting(),
        }
    }

    fn close(&self, until: Instant) -> usize {
        match &self.out {
            Out::Direct(_) => 0,
            Out::Queued(queue) => queue.close(until),
        }
    }
}
