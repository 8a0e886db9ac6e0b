//! Flags of audit: the policy, the log and the webhook (docs/api/audit.md).

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use api::state::audit::AuditPolicy;
use clap::Args;
use wire::outgoing::Egress;

use crate::audit::AuditSettings;
use crate::config::audit_log::AuditLogFlags;
use crate::config::audit_webhook::AuditWebhookFlags;
use crate::flags::problems::Problems;
use crate::flags::profile::Profile;
use crate::host::files::{self, opening};

// This struct has no documentation comment, because clap would use the comment as the description of the whole command
// line.
#[derive(Clone, Debug, Default, Args)]
pub struct AuditFlags {
    /// Audit policy (YAML or JSON): which requests are recorded, and in how much detail. Has no effect
    /// without --audit-log-path or --audit-webhook-config-file.
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,

    #[command(flatten)]
    pub log: AuditLogFlags,

    #[command(flatten)]
    pub webhook: AuditWebhookFlags,
}

impl AuditFlags {
    /// Reads the policy and the kubeconfig file, and returns the settings, or `None` if nothing is audited. A log
    /// without a policy stays empty. A policy without a log or a webhook has no effect. Adds an error for each value
    /// and file that cannot be used.
    pub fn settings(
        &self,
        naming: Profile,
        egress: &Egress,
        problems: &mut Problems,
    ) -> Option<Option<AuditSettings>> {
        let log = self.log.settings(problems);
        let Some(path) = self.audit_policy_file.clone().filter(|path| !path.as_os_str().is_empty()) else {
            self.webhook.check(problems);
            return Some(log?.map(|log| AuditSettings { policy: None, log: Some(log), webhook: None }));
        };
        let webhook = self.webhook.settings(naming, egress, problems);
        let policy = problems.take_for("audit-policy-file", path.display(), read_policy(&path, naming));
        let (log, webhook, policy) = (log?, webhook?, Arc::new(policy?));
        let is_recorded = log.is_some() || webhook.is_some();
        Some(is_recorded.then_some(AuditSettings { policy: Some(policy), log, webhook }))
    }
}

fn read_policy(path: &std::path::Path, naming: Profile) -> anyhow::Result<AuditPolicy> {
    let displayed_path = path.display();
    let text = files::read(path).map_err(|error| {
        anyhow!(
            "loading audit policy file: failed to read file path {:?}: {}",
            displayed_path.to_string(),
            opening(path, &error)
        )
    })?;
    AuditPolicy::parse(&text, naming)
        .map_err(|why| anyhow!("loading audit policy file: {why}: from file {displayed_path}"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use super::*;
    use crate::cli::line;
    use crate::host::files::scratch::Scratch;

    const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

    fn config(dir: &Path, arguments: &str) -> Result<Option<AuditSettings>, String> {
        let arguments = arguments.replace("DIR", &dir.display().to_string());
        let words = std::iter::once("cluster-apiserver").chain(arguments.split_whitespace());
        let flags = line::parse(words.map(OsString::from)).unwrap().flags();
        let mut problems = Problems::default();
        let settings = flags.audit.settings(&values::naming::KUBERNETES, &Egress::default(), &mut problems);
        problems.finish(settings).map_err(|errors| errors.to_string())
    }

    #[test]
    fn audit_log_settings_are_checked_only_if_a_log_is_configured() {
        let dir = Scratch::new();
        std::fs::write(dir.join("policy"), format!("{POLICY}rules: [{{level: Metadata}}]")).unwrap();
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
            ("--audit-webhook-mode=x", Ok(())),
            (
                "--audit-webhook-config-file=DIR/none --audit-webhook-mode=x",
                Err("invalid audit webhook mode x, allowed modes are \"batch,blocking,blocking-strict\""),
            ),
            (
                "--audit-webhook-config-file=DIR/none --audit-webhook-batch-throttle-burst=0",
                Err("invalid audit batch webhook throttle burst 0, must be a positive number"),
            ),
            ("--audit-webhook-config-file=DIR/none", Ok(())),
            (
                "--audit-webhook-config-file=DIR/none --audit-policy-file=DIR/policy",
                Err("initializing audit webhook: stat DIR/none: no such file or directory"),
            ),
        ] {
            let got = config(&dir, arguments).map(drop);
            let got = got.map_err(|why| why.replace(&dir.display().to_string(), "DIR"));
            assert_eq!(got, want.map_err(str::to_owned), "{arguments}");
        }
    }
}
