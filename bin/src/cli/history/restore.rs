//! `history restore`: restores the state that an object had at an earlier point.

use std::io::Write;

use anyhow::bail;
use clap::{Args, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::MANAGER;
use super::diff::{self, text_of, unified};
use super::point::{Point, point};
use super::show;
use super::target::ObjectFlags;
use crate::cli::connect::block_on;
use crate::cli::output::{self, Format, Outcome, parse_format};

/// Whether a command only simulates its changes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum DryRun {
    /// The command changes objects.
    #[default]
    None,
    /// The server does everything except storing the result.
    Server,
}

/// The flags of the command `history restore`.
#[derive(Clone, Debug, Args)]
pub struct HistoryRestore {
    #[command(flatten)]
    pub target: ObjectFlags,

    /// The point: a revision, a time, or a duration before now (10m).
    #[arg(long, value_name = "POINT", value_parser = point, allow_hyphen_values = true)]
    pub to: Point,

    /// With "server", the server checks the restore but stores nothing.
    #[arg(long, value_name = "none|server", value_enum, default_value = "none", num_args = 0..=1,
        default_missing_value = "server", require_equals = true)]
    pub dry_run: DryRun,

    /// Output format. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

/// Runs the command: prints the difference, restores the state, and prints the result.
pub fn run(flags: &HistoryRestore, out: &mut impl Write) -> anyhow::Result<Outcome> {
    block_on(async {
        let found = flags.target.find(None).await?;
        let Some(then) = show::at(&found, &flags.to).await? else {
            bail!("{} did not exist at {}", found.label, flags.to.text());
        };
        let now = found.client.find(&found.path).await?;
        let names = [format!("{} (now)", found.label), format!("{} ({})", found.label, flags.to.text())];
        let texts = [text_of(now.as_ref())?, text_of(Some(&then))?];
        let text = unified([&texts[0], &texts[1]], [&names[0], &names[1]]);
        if flags.output == Format::Text {
            diff::write(&text, out)?;
            out.flush()?;
        }
        // The newest version at or before the point has the state at the point.
        let revision = then["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let mut path = format!("{}/restore?revision={revision}&fieldManager={MANAGER}", found.history());
        if let Some(version) = now.as_ref().and_then(|now| now["metadata"]["resourceVersion"].as_str()) {
            path.push_str(&format!("&resourceVersion={version}"));
        }
        if flags.dry_run == DryRun::Server {
            path.push_str("&dryRun=All");
        }
        let response = found.client.exchange(Method::POST, &path, Some(&json!({}))).await?;
        if !response.code.is_success() {
            return Err(found.client.refused(&response));
        }
        let restored = response.json()?;
        let warnings = &response.warnings;
        let report = json!({"object": restored, "diff": text, "warnings": warnings});
        output::write(out, flags.output, &report, |out| {
            for warning in warnings {
                writeln!(out, "warning: {warning}")?;
            }
            let is_same =
                text.is_empty() || flags.dry_run == DryRun::None && is_same(now.as_ref(), &restored);
            let done = match &now {
                None => "created again",
                Some(_) if is_same => "unchanged",
                Some(_) => "restored",
            };
            let end = if flags.dry_run == DryRun::Server { " (server dry run)" } else { "" };
            writeln!(out, "{} {done}{end}", found.label)
        })?;
        Ok(Outcome::Fine)
    })
}

/// Returns whether a write left an object unchanged.
fn is_same(before: Option<&Value>, after: &Value) -> bool {
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    before.is_some_and(|before| version(before) == version(after))
}
