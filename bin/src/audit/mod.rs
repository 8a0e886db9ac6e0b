//! Audit: the sinks of events (docs/api/audit.md#log, docs/api/audit.md#audit-webhook).
//!
//! ```text
//! blocking:  event ─► Encoder ─► file · webhook
//! batch:     event ─► Encoder ─► queue ─► thread ─► file · webhook
//! ```
//!
//! A write to the log does not wait for the disk. The line is then in the page cache of the operating system.

pub mod batch;
pub mod file;
pub mod log;
pub mod mode;
pub mod webhook;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use api::state::audit::{AuditPolicy, Auditor, Event, Sink};
use wire::metrics::Metrics;

use self::log::LogSettings;
use self::mode::Mode;
use self::webhook::WebhookSettings;

/// The audit policy, and the sinks of events.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// The audit policy. Without a policy, no events are recorded.
    pub policy: Option<Arc<AuditPolicy>>,
    /// The audit log, if configured.
    pub log: Option<LogSettings>,
    /// The audit webhook, if configured.
    pub webhook: Option<WebhookSettings>,
}

/// Counts and logs lost events.
#[derive(Clone)]
pub struct Losses(Arc<Metrics>);

impl Losses {
    /// Counts and logs `count` lost events. `plugin` is the metrics label of the sink that lost the events.
    fn note(&self, plugin: &'static str, count: usize, error: &io::Error) {
        self.0.audit.errors.add(&[plugin], count as u64);
        tracing::error!(%error, plugin, count, "audit events lost");
    }
}

/// Opens the log and prepares the webhook; `None` without a policy. Must be called within the server's
/// runtime. Lost events are counted in `metrics`.
///
/// # Errors
/// The log cannot be opened.
pub fn auditor(settings: &AuditSettings, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Auditor>> {
    let Some(policy) = &settings.policy else {
        settings.log.iter().try_for_each(LogSettings::make)?;
        return Ok(None);
    };
    let losses = Losses(metrics.clone());
    let mut sinks: Vec<Named> = Vec::new();
    let mut add = |sink: Box<dyn Sink>, mode: Mode, name: &'static str| {
        // If a queue is full, events are lost before they reach the log or the webhook.
        let plugin = if matches!(mode, Mode::Batch(_)) { BUFFERED } else { name };
        sinks.push(Named { sink, plugin, is_strict: mode == Mode::BlockingStrict });
    };
    if let Some(log) = &settings.log {
        add(Box::new(log.open(losses.clone())?), log.mode, log::PLUGIN);
    }
    if let Some(webhook) = &settings.webhook {
        add(Box::new(webhook.open(losses.clone())?), webhook.mode, webhook::PLUGIN);
    }
    let strict = sinks.iter().any(|sink| sink.is_strict);
    Ok(Some(Auditor { policy: policy.clone(), sink: Arc::new(Sinks { sinks, losses }), strict }))
}

/// Value of the label `plugin` for events that the queue of a log or webhook lost.
const BUFFERED: &str = "buffered";

/// A sink, its name in metrics, and whether the loss of an event refuses the request.
struct Named {
    sink: Box<dyn Sink>,
    plugin: &'static str,
    is_strict: bool,
}

/// All configured sinks of a server.
struct Sinks {
    sinks: Vec<Named>,
    losses: Losses,
}

impl Sink for Sinks {
    fn record(&self, event: &Event) -> io::Result<()> {
        let mut outcome = Ok(());
        for Named { sink, plugin, is_strict } in &self.sinks {
            match sink.record(event) {
                // The caller counts this loss.
                Err(error) if *is_strict => outcome = outcome.and(Err(error)),
                Err(error) => self.losses.note(plugin, 1, &error),
                Ok(()) => {}
            }
        }
        outcome
    }

    fn waiting(&self) -> usize {
        self.sinks.iter().map(|named| named.sink.waiting()).sum()
    }

    fn close(&self, until: Instant) -> usize {
        let close = |named: &Named| {
            let lost = named.sink.close(until);
            if lost > 0 {
                let ended = io::Error::other("the process ends before they are written");
                self.losses.note(named.plugin, lost, &ended);
            }
            lost
        };
        // The sinks close concurrently, so that a sink that hangs does not delay the other sinks.
        let close = &close;
        std::thread::scope(|scope| {
            let closing: Vec<_> = self.sinks.iter().map(|named| scope.spawn(move || close(named))).collect();
            closing.into_iter().map(|closed| closed.join().unwrap_or_default()).sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use wire::outgoing::Egress;

    use super::*;
    use crate::cli::line;
    use crate::flags::problems::Problems;
    use crate::host::files::scratch::Scratch;

    fn config(dir: &Path, arguments: &str) -> Result<Option<AuditSettings>, String> {
        let arguments = arguments.replace("DIR", &dir.display().to_string());
        let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
        let flags = line::parse(words.map(OsString::from)).unwrap().flags();
        let mut problems = Problems::default();
        let settings = flags.audit.settings(&values::naming::KUBERNETES, &Egress::default(), &mut problems);
        problems.finish(settings).map_err(|errors| errors.to_string())
    }

    fn event() -> Event {
        let mut event = Event::default();
        event.members.push("kind", "Event".into());
        event
    }

    const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

    #[test]
    fn audit_events_are_written_to_a_private_file_and_invalid_policies_are_refused() {
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
            let auditor = auditor(&config, &Arc::default()).unwrap().unwrap();
            assert_eq!(auditor.strict, mode.ends_with("strict"));
            auditor.sink.record(&event()).unwrap();
            assert_eq!(auditor.sink.close(Instant::now() + std::time::Duration::from_secs(60)), 0);
            assert_eq!(std::fs::read_to_string(&log).unwrap(), "{\"kind\":\"Event\"}\n".repeat(round + 1));
        }
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_audit_log_file_is_created_even_without_a_policy() {
        use std::os::unix::fs::PermissionsExt;
        let dir = Scratch::new();
        std::fs::write(dir.join("file"), "").unwrap();
        for (path, want) in [
            ("new/deep/audit.log", ""),
            ("", "ensureLogFile: open DIR/: is a directory"),
            ("file/audit.log", "ensureLogFile: mkdir DIR/file: not a directory"),
            ("file/deep/audit.log", "ensureLogFile: mkdir DIR/file: not a directory"),
        ] {
            let config = config(&dir, &format!("--audit-log-path=DIR/{path}")).unwrap().unwrap();
            let got = auditor(&config, &Arc::default()).map(|auditor| auditor.is_none());
            let got =
                got.map_or_else(|error| format!("{error:#}"), |is_none| is_none.then(String::new).unwrap());
            assert_eq!(got.replace(&dir.display().to_string(), "DIR"), want, "{path}");
        }
        let mode = |path: &str| std::fs::metadata(dir.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("new"), mode("new/deep"), mode("new/deep/audit.log")), (0o700, 0o700, 0o600));
    }
}
