//! The audit log: a file to which every event is appended as one line (docs/api/audit.md#log).
//!
//! Writing is not waiting for the disk: a line is in the system's cache when `record` returns.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use api::audit::{Auditor, Policy, Sink};
use parking_lot::Mutex;

use crate::files;
use crate::flags::{AuditMode, Profile};

/// What is audited, and where to.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    policy: Arc<Policy>,
    log: PathBuf,
    mode: AuditMode,
}

impl AuditConfig {
    /// Reads the policy. Without a policy nothing is audited, and without a log there is nowhere to record it.
    ///
    /// # Errors
    /// The policy cannot be read, or is wrong.
    pub fn from_files(
        naming: Profile,
        policy: Option<PathBuf>,
        log: Option<PathBuf>,
        mode: AuditMode,
    ) -> anyhow::Result<Option<AuditConfig>> {
        let Some(path) = policy.filter(|path| !path.as_os_str().is_empty()) else { return Ok(None) };
        let shown = path.display();
        let text = std::fs::read(&path).map_err(|error| {
            anyhow!("loading audit policy file: failed to read file path {:?}: {error}", shown.to_string())
        })?;
        let policy = Policy::parse(&text, naming)
            .map_err(|why| anyhow!("loading audit policy file: {why}: from file {shown}"))?;
        let log = log.filter(|log| !log.as_os_str().is_empty());
        Ok(log.map(|log| AuditConfig { policy: Arc::new(policy), log, mode }))
    }
}

/// Opens the log.
///
/// # Errors
/// It cannot be opened.
pub fn auditor(config: &AuditConfig) -> anyhow::Result<Auditor> {
    let open = || open(&config.log).with_context(|| format!("--audit-log-path {}", config.log.display()));
    Ok(Auditor {
        policy: config.policy.clone(),
        sink: Arc::new(Log(Mutex::new(open()?))),
        strict: config.mode == AuditMode::BlockingStrict,
    })
}

fn open(path: &Path) -> anyhow::Result<Target> {
    if path == Path::new("-") {
        return Ok(Target::Stdout(io::stdout()));
    }
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        files::private_dir(directory)?;
    }
    Ok(Target::File(OpenOptions::new().append(true).create(true).mode(0o600).open(path)?))
}

enum Target {
    File(File),
    Stdout(io::Stdout),
}

/// The log; the lock keeps lines whole.
struct Log(Mutex<Target>);

impl Sink for Log {
    fn record(&self, event: &[u8]) -> io::Result<()> {
        let mut line = Vec::with_capacity(event.len() + 1);
        line.extend_from_slice(event);
        line.push(b'\n');
        match &mut *self.0.lock() {
            Target::File(file) => file.write_all(&line),
            Target::Stdout(stdout) => stdout.write_all(&line).and_then(|()| stdout.flush()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::scratch::Scratch;

    #[test]
    fn events_are_lines_of_a_private_file_and_policies_are_checked() {
        let dir = Scratch::new();
        let (policy, log) = (dir.join("policy"), dir.join("new/audit.log"));
        let config = |text: &str| {
            std::fs::write(&policy, text).unwrap();
            let paths = (Some(policy.clone()), Some(log.clone()));
            AuditConfig::from_files(&api::naming::KUBERNETES, paths.0, paths.1, AuditMode::Blocking)
        };
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        let error = config(head).unwrap_err().to_string();
        let want = "loading audit policy file: loaded illegal policy with 0 rules: from file ";
        assert_eq!(error, format!("{want}{}", policy.display()));
        for round in 1..=2 {
            let config = config(&format!("{head}rules: [{{level: Metadata}}]")).unwrap().unwrap();
            auditor(&config).unwrap().sink.record(b"{}").unwrap();
            assert_eq!(std::fs::read_to_string(&log).unwrap(), "{}\n".repeat(round));
        }
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
