//! `history diff`: the difference between two states of an object, as a unified diff of YAML.

use std::io::{self, Write};

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use similar::TextDiff;

use super::colour::{self, Colour};
use super::point::{Point, point};
use super::show;
use super::target::{FoundObject, ObjectFlags};
use super::versions;
use crate::cli::connect::block_on;
use crate::cli::output::{self, Format, Outcome, parse_format, yaml_of};

/// The flags of the command `history diff`.
#[derive(Clone, Debug, Args)]
pub struct HistoryDiff {
    #[command(flatten)]
    pub target: ObjectFlags,

    /// The earlier point: a revision, a time, or a duration before now (10m). Default: the state before the newest
    /// change, or before the last change until --to.
    #[arg(long, value_name = "POINT", value_parser = point, allow_hyphen_values = true)]
    pub from: Option<Point>,

    /// The later point. Default: now.
    #[arg(long, value_name = "POINT", value_parser = point, allow_hyphen_values = true)]
    pub to: Option<Point>,

    /// Output format. Possible values: text (the diff), json, yaml (both states, and the diff).
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

/// Runs the command and prints the difference. Prints nothing if the states are equal.
pub fn run(flags: &HistoryDiff, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let (found, before, after) = block_on(async {
        let found = flags.target.find(flags.from.as_ref()).await?;
        let after = match &flags.to {
            Some(point) => show::at(&found, point).await?,
            None => found.client.find(&found.path).await?,
        };
        let before = match &flags.from {
            Some(point) => show::at(&found, point).await?,
            None => previous(&found, flags.to.as_ref()).await?,
        };
        if before.is_none() && after.is_none() {
            bail!("{} exists at neither point", found.label);
        }
        Ok((found, before, after))
    })?;
    let [old, new] = [&before, &after].map(|state| text_of(state.as_ref()));
    let names = [("from", &flags.from), ("to", &flags.to)].map(|(side, point)| {
        let point = point.as_ref().map_or_else(|| side_default(side).to_owned(), Point::text);
        format!("{} ({point})", found.label)
    });
    let text = unified([&old?, &new?], [&names[0], &names[1]]);
    let report = json!({"from": before, "to": after, "diff": text});
    output::write(out, flags.output, &report, |out| write(&text, out))?;
    Ok(Outcome::Fine)
}

fn side_default(side: &str) -> &'static str {
    if side == "from" { "previous version" } else { "now" }
}

/// Returns the state before the newest change at or before a point, or `None` if this change created the
/// object.
async fn previous(found: &FoundObject, until: Option<&Point>) -> anyhow::Result<Option<Value>> {
    let mut newest = None;
    versions::read(&found.client, &found.history(), "limit=100", |item| {
        let is_after = |point: &Point| point.precedes(versions::revision(&item), versions::time(&item));
        if until.is_some_and(is_after) {
            return true;
        }
        newest = Some(item);
        false
    })
    .await?;
    match newest.as_ref().map(versions::revision).and_then(|revision| revision.checked_sub(1)) {
        Some(revision) if revision > 0 => show::at(found, &Point::Revision(revision)).await,
        _ => Ok(None),
    }
}

/// Returns a state as YAML, without the metadata that changes with every write. The text is empty if the object does
/// not exist.
///
/// # Errors
/// The state cannot be written as YAML.
pub fn text_of(state: Option<&Value>) -> anyhow::Result<String> {
    let Some(state) = state else { return Ok(String::new()) };
    let mut state = state.clone();
    if let Some(metadata) = state.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    Ok(String::from_utf8_lossy(&yaml_of(&state)?).into_owned())
}

/// Returns the unified diff of two texts with their names. The diff is empty if the texts are equal.
pub fn unified([old, new]: [&str; 2], [old_name, new_name]: [&str; 2]) -> String {
    let diff = TextDiff::from_lines(old, new);
    diff.unified_diff().context_radius(3).header(old_name, new_name).to_string()
}

/// Writes a unified diff, in colours on a terminal.
pub fn write(text: &str, out: &mut impl Write) -> io::Result<()> {
    let coloured = colour::is_enabled();
    for line in text.lines() {
        let colour = match line.as_bytes() {
            [b'@', ..] => Colour::Cyan,
            [b'+', ..] => Colour::Green,
            [b'-', ..] => Colour::Red,
            _ => Colour::Plain,
        };
        colour::write(out, coloured, colour, line)?;
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_omits_fields_that_every_write_changes() {
        let state = |replicas: u32, version: &str| {
            json!({
                "kind": "Deployment",
                "metadata": {"name": "web", "resourceVersion": version, "managedFields": [version]},
                "spec": {"replicas": replicas},
            })
        };
        let [old, new] = [state(1, "5"), state(3, "6")].map(|state| text_of(Some(&state)).unwrap());
        let text = unified([&old, &new], ["a", "b"]);
        assert_eq!(
            text,
            "--- a\n+++ b\n@@ -2,4 +2,4 @@\n metadata:\n   name: web\n spec:\n-  replicas: 1\n+  replicas: 3\n"
        );
        assert_eq!(unified([&old, &old], ["a", "b"]), "");
        let gone = text_of(None).unwrap();
        assert!(unified([&old, &gone], ["a", "b"]).lines().skip(3).all(|line| line.starts_with('-')));
    }
}
