//! `history who`: the change that gave a field of an object its value.

use std::io::Write;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use super::path::{FieldPath, field_path};
use super::target::ObjectFlags;
use super::versions::{self, age, author};
use crate::cli::connect::block_on;
use crate::cli::output::{self, Format, Outcome, parse_format};
use crate::cli::report::printable;

/// Number of versions in a page. The number is small, because each version contains the whole object.
const PAGE: usize = 50;

/// Maximum length of a value in the text for people.
const VALUE_CHARS_MAX: usize = 200;

/// The flags of the command `history who`.
#[derive(Clone, Debug, Args)]
pub struct HistoryWho {
    #[command(flatten)]
    pub target: ObjectFlags,

    /// The field: spec.replicas, spec.containers[0].image, metadata.annotations["a.b/c"].
    #[allow(rustdoc::broken_intra_doc_links, reason = "clap shows the brackets of the help as they are")]
    #[arg(long, value_name = "PATH", value_parser = field_path)]
    pub field: FieldPath,

    /// Output format. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

/// A search for the newest change of a field, from the newest version to the oldest.
struct Search<'p> {
    field: &'p FieldPath,
    /// The version that was read last, and the value of the field in this version.
    newer: Option<(Value, Option<Value>)>,
    found: Option<Change>,
}

/// The change of a field.
struct Change {
    item: Value,
    from: Option<Value>,
    to: Option<Value>,
}

impl Search<'_> {
    /// Reads the next older version. Returns whether the search continues.
    fn wants(&mut self, mut item: Value) -> bool {
        let object = item["object"].take();
        let is_delete = matches!(item["operation"].as_str(), Some("Delete" | "Expire"));
        let value = if is_delete { None } else { self.field.value_in(&object).cloned() };
        if let Some((newer, to)) = self.newer.take() {
            // A create begins a new object, so the value in an earlier version is the value of another
            // object.
            let from = if newer["operation"] == "Create" { None } else { value.clone() };
            if to != from {
                self.found = Some(Change { item: newer, from, to });
                return false;
            }
        }
        self.newer = Some((item, value));
        true
    }

    /// Returns the change that was found. If there is no change, the oldest version is the change, provided
    /// that it created the object with the field.
    fn finish(self) -> Option<Change> {
        self.found.or_else(|| {
            let (item, to) = self.newer?;
            let is_create = item["operation"] == "Create" && to.is_some();
            is_create.then_some(Change { item, from: None, to })
        })
    }
}

/// Runs the command and prints the change.
pub fn run(flags: &HistoryWho, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let (label, change) = block_on(async {
        let found = flags.target.find(None).await?;
        let mut search = Search { field: &flags.field, newer: None, found: None };
        let query = format!("include=object&limit={PAGE}");
        versions::read(&found.client, &found.history(), &query, |item| search.wants(item)).await?;
        match search.finish() {
            Some(change) => Ok((found.label, change)),
            None => bail!("no retained version of {} changes the field", found.label),
        }
    })?;
    let Change { item, from, to } = &change;
    let mut report = item.clone();
    if let Some(members) = report.as_object_mut() {
        members.retain(|name, _| !["object", "fields", "cut"].contains(&name.as_str()));
    }
    (report["from"], report["to"]) = (json!(from), json!(to));
    output::write(out, flags.output, &report, |out| {
        let now = jiff::Timestamp::now();
        writeln!(out, "{}: {} -> {}", printable(label.as_bytes()), value(from.as_ref()), value(to.as_ref()))?;
        writeln!(
            out,
            "{} by {}, {} ago ({}), revision {}",
            item["operation"].as_str().unwrap_or_default(),
            author(item),
            age(versions::time(item), now),
            item["time"].as_str().unwrap_or_default(),
            versions::revision(item)
        )
    })?;
    Ok(Outcome::Fine)
}

/// Formats a value on one line.
fn value(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(absent)".to_owned() };
    let text = printable(value.to_string().as_bytes());
    if text.chars().count() <= VALUE_CHARS_MAX {
        return text;
    }
    text.chars().take(VALUE_CHARS_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_who_finds_the_newest_change_of_a_field() {
        let item = |revision: u32, operation: &str, replicas: Value| json!({"revision": revision.to_string(), "operation": operation, "object": {"replicas": replicas, "n": revision}});
        let found = |items: &[Value]| {
            let field = field_path("replicas").unwrap();
            let mut search = Search { field: &field, newer: None, found: None };
            let _ = items.iter().all(|item| search.wants(item.clone()));
            search.finish().map(|change| {
                format!("{} {} {}", versions::revision(&change.item), json!(change.from), json!(change.to))
            })
        };
        for (items, want) in [
            (
                vec![item(3, "Update", json!(2)), item(2, "Update", json!(2)), item(1, "Create", json!(1))],
                Some("2 1 2"),
            ),
            (vec![item(3, "Update", json!(1)), item(1, "Create", json!(1))], Some("1 null 1")),
            (vec![item(3, "Update", json!(1)), item(1, "Update", json!(1))], None),
            (vec![item(3, "Delete", json!(1)), item(1, "Create", json!(1))], Some("3 1 null")),
            (
                vec![item(4, "Create", json!(1)), item(3, "Delete", json!(1)), item(1, "Create", json!(1))],
                Some("4 null 1"),
            ),
            (vec![item(2, "Update", json!(null)), item(1, "Create", json!(1))], Some("2 1 null")),
            (vec![], None),
        ] {
            assert_eq!(found(&items).as_deref(), want, "{items:?}");
        }
    }
}
