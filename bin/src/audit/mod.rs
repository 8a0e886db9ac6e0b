//! The audit log: from its flags to the sink of events (docs/api/audit.md#log).
//!
//! ```text
//! blocking:  event ─► Encoder ─► RotatingFile
//! batch:     event ─► Encoder ─► queue ─► writer thread ─► RotatingFile
//! ```
//!
//! Writing is not waiting for the disk: a line is in the system's cache when it is written.

mod batch;
mod file;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use api::audit::{Auditor, Encoder, Format, Policy, Sink};
use api::json::Object;
use parking_lot::Mutex;

use self::batch::{Batching, Queue, Throttle};
use self::file::{RotatingFile, Rotation};
use crate::files;
use crate::flags::{AuditFlags, Profile};

/// What is audited, and where to.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    policy: Arc<Policy>,
    log: LogConfig,
}

/// How events get into the log.
#[derive(Clone, Debug)]
struct LogConfig {
    path: PathBuf,
    mode: Mode,
    encoder: Encoder,
    rotation: Rotation,
}

/// When an event is written, and what its loss means.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// At once; a lost event is only logged.
    Blocking,
    /// At once; a request whose first event is lost is refused.
    BlockingStrict,
    /// Later, together with others.
    Batch(Batching),
}

impl AuditConfig {
    /// Reads the policy. Without a policy nothing is audited, and without a log there is nowhere to record it.
    ///
    /// # Errors
    /// The policy cannot be read or is wrong, or settings of the log are.
    pub fn from_flags(naming: Profile, flags: &AuditFlags) -> anyhow::Result<Option<AuditConfig>> {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        let log = given(&flags.audit_log_path).map(|path| LogConfig::from_flags(path, flags)).transpose()?;
        let Some(path) = given(&flags.audit_policy_file) else { return Ok(None) };
        let shown = path.display();
        let text = std::fs::read(&path).map_err(|error| {
            anyhow!("loading audit policy file: failed to read file path {:?}: {error}", shown.to_string())
        })?;
        let policy = Policy::parse(&text, naming)
            .map_err(|why| anyhow!("loading audit policy file: {why}: from file {shown}"))?;
        Ok(log.map(|log| AuditConfig { policy: Arc::new(policy), log }))
    }
}

impl LogConfig {
    fn from_flags(path: PathBuf, flags: &AuditFlags) -> anyhow::Result<LogConfig> {
        let mode = match flags.audit_log_mode.as_str() {
            "blocking" => Mode::Blocking,
            "blocking-strict" => Mode::BlockingStrict,
            "batch" => Mode::Batch(batching(flags)?),
            mode => {
                bail!("invalid audit log mode {mode}, allowed modes are \"batch,blocking,blocking-strict\"")
            }
        };
        let event_bytes_max = flags.audit_log_truncate_enabled.then(|| longest_event(flags)).transpose()?;
        let version = &flags.audit_log_version;
        if version != "audit.k8s.io/v1" {
            bail!("invalid audit log version {version}, allowed versions are \"audit.k8s.io/v1\"");
        }
        let format = match flags.audit_log_format.as_str() {
            "json" => Format::Json,
            "legacy" => Format::Legacy,
            format => bail!("invalid audit log format {format}, allowed formats are \"legacy,json\""),
        };
        let count = |name: &str, value: i64| {
            u64::try_from(value).map_err(|_| anyhow!("--audit-log-{name} {value} can't be a negative number"))
        };
        let rotation = Rotation {
            age_max: Duration::from_secs(count("maxage", flags.audit_log_maxage)?.saturating_mul(86_400)),
            backups_max: count("maxbackup", flags.audit_log_maxbackup)?,
            bytes_max: match count("maxsize", flags.audit_log_maxsize)? {
                0 => file::BYTES_MAX,
                megabytes => megabytes.saturating_mul(1 << 20),
            },
            compresses: flags.audit_log_compress,
        };
        Ok(LogConfig { path, mode, encoder: Encoder { format, event_bytes_max }, rotation })
    }
}

fn positive(value: i64, name: &str) -> anyhow::Result<usize> {
    let value_positive = usize::try_from(value).ok().filter(|value| *value > 0);
    value_positive.ok_or_else(|| anyhow!("invalid audit batch log {name} {value}, must be a positive number"))
}

fn batching(flags: &AuditFlags) -> anyhow::Result<Batching> {
    let buffer_len = positive(flags.audit_log_batch_buffer_size, "buffer size")?;
    if buffer_len > batch::BUFFER_LEN_MAX {
        bail!("invalid audit batch log buffer size {buffer_len}, must be at most {}", batch::BUFFER_LEN_MAX);
    }
    let batch_len = positive(flags.audit_log_batch_max_size, "max batch size")?;
    let qps = flags.audit_log_batch_throttle_qps;
    let throttle = if flags.audit_log_batch_throttle_enable {
        if !(qps > 0.0 && qps.is_finite()) {
            bail!("invalid audit batch log throttle QPS {qps}, must be a positive number");
        }
        let burst = positive(flags.audit_log_batch_throttle_burst, "throttle burst")?;
        Some(Throttle { per_second: qps.into(), burst: burst as f64 })
    } else {
        None
    };
    Ok(Batching { buffer_len, batch_len, wait_max: flags.audit_log_batch_max_wait, throttle })
}

fn longest_event(flags: &AuditFlags) -> anyhow::Result<usize> {
    let (event, batch) = (flags.audit_log_truncate_max_event_size, flags.audit_log_truncate_max_batch_size);
    let Some(bytes) = usize::try_from(event).ok().filter(|bytes| *bytes > 0) else {
        bail!("invalid audit truncate log max event size {event}, must be a positive number");
    };
    if batch < event {
        bail!(
            "invalid audit truncate log max batch size {batch}, must be greater than max event size ({event})"
        );
    }
    Ok(bytes)
}

/// Opens the log.
///
/// # Errors
/// It cannot be opened.
pub fn auditor(config: &AuditConfig) -> anyhow::Result<Auditor> {
    let LogConfig { path, mode, encoder, rotation } = &config.log;
    let target = open(path, *rotation).with_context(|| format!("--audit-log-path {}", path.display()))?;
    let out = match mode {
        Mode::Blocking | Mode::BlockingStrict => Out::Direct(Mutex::new(target)),
        Mode::Batch(batching) => Out::Queued(Queue::start(*batching, target)?),
    };
    Ok(Auditor {
        policy: config.policy.clone(),
        sink: Arc::new(Log { encoder: *encoder, out }),
        strict: *mode == Mode::BlockingStrict,
    })
}

fn open(path: &Path, rotation: Rotation) -> anyhow::Result<Target> {
    if path == Path::new("-") {
        return Ok(Target::Stdout(io::stdout()));
    }
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        files::private_dir(directory)?;
    }
    Ok(Target::File(RotatingFile::open(path, rotation)?))
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

/// The log.
struct Log {
    encoder: Encoder,
    out: Out,
}

enum Out {
    /// The lock keeps lines whole.
    Direct(Mutex<Target>),
    Queued(Queue),
}

impl Sink for Log {
    fn record(&self, event: &Object) -> io::Result<()> {
        let too_long = || io::Error::other("the event is too long");
        let mut line = self.encoder.encode(event).ok_or_else(too_long)?;
        line.push(b'\n');
        match &self.out {
            Out::Direct(target) => target.lock().write(&line),
            Out::Queued(queue) => queue.push(line),
        }
    }

    fn close(&self) {
        if let Out::Queued(queue) = &self.out {
            queue.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::files::scratch::Scratch;
    use crate::flags;

    fn config(dir: &Path, arguments: &str) -> Result<Option<AuditConfig>, String> {
        let arguments = arguments.replace("DIR", &dir.display().to_string());
        let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
        let flags = flags::parse(words.map(OsString::from)).unwrap().flags();
        AuditConfig::from_flags(&api::naming::KUBERNETES, &flags.audit).map_err(|error| error.to_string())
    }

    fn event() -> Object {
        let mut event = Object::new();
        event.push("kind", "Event".into());
        event
    }

    const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

    #[test]
    fn events_are_lines_of_a_private_file_and_policies_are_checked() {
        let dir = Scratch::new();
        std::fs::write(dir.join("policy"), POLICY).unwrap();
        let arguments = "--audit-policy-file=DIR/policy --audit-log-path=DIR/new/audit.log";
        let want = "loading audit policy file: loaded illegal policy with 0 rules: from file ";
        let policy = dir.join("policy");
        assert_eq!(config(&dir, arguments).unwrap_err(), format!("{want}{}", policy.display()));
        std::fs::write(&policy, format!("{POLICY}rules: [{{level: Metadata}}]")).unwrap();
        let log = dir.join("new/audit.log");
        for (round, mode) in
            ["", " --audit-log-mode=blocking-strict", " --audit-log-mode=batch"].into_iter().enumerate()
        {
            let config = config(&dir, &format!("{arguments}{mode}")).unwrap().unwrap();
            let auditor = auditor(&config).unwrap();
            assert_eq!(auditor.strict, mode.ends_with("strict"));
            auditor.sink.record(&event()).unwrap();
            auditor.sink.close();
            assert_eq!(std::fs::read_to_string(&log).unwrap(), "{\"kind\":\"Event\"}\n".repeat(round + 1));
        }
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn settings_of_a_log_are_checked_once_there_is_one() {
        let dir = Scratch::new();
        for (arguments, want) in [
            ("--audit-log-format=xml", Ok(())),
            (
                "--audit-log-path=- --audit-log-format=xml",
                Err("invalid audit log format xml, allowed formats are \"legacy,json\""),
            ),
            (
                "--audit-log-path=- --audit-log-mode=never",
                Err("invalid audit log mode never, allowed modes are \"batch,blocking,blocking-strict\""),
            ),
            (
                "--audit-log-path=- --audit-log-maxsize=-1",
                Err("--audit-log-maxsize -1 can't be a negative number"),
            ),
            ("--audit-log-path=- --audit-log-batch-max-size=0", Ok(())),
            (
                "--audit-log-path=- --audit-log-mode=batch --audit-log-batch-max-size=0",
                Err("invalid audit batch log max batch size 0, must be a positive number"),
            ),
            (
                "--audit-log-path=- --audit-log-mode=batch --audit-log-batch-buffer-size=0",
                Err("invalid audit batch log buffer size 0, must be a positive number"),
            ),
            (
                "--audit-log-path=- --audit-log-mode=batch --audit-log-batch-throttle-enable",
                Err("invalid audit batch log throttle QPS 0, must be a positive number"),
            ),
            (
                "--audit-log-path=- --audit-log-truncate-enabled --audit-log-truncate-max-event-size=10 \
                 --audit-log-truncate-max-batch-size=5",
                Err("invalid audit truncate log max batch size 5, must be greater than max event size (10)"),
            ),
        ] {
            let got = config(&dir, arguments).map(drop);
            assert_eq!(
                got.as_ref().map_err(String::as_str),
                want.as_ref().map_err(|why| *why),
                "{arguments}"
            );
        }
    }
}
