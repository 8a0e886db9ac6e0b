//! `history log`: the versions of an object as a table.

use std::io::{self, Write};

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::colour::{self, Colour, ColouredCell};
use super::point::{Point, point};
use super::target::ObjectFlags;
use super::versions::{self, age, author};
use crate::cli::connect::block_on;
use crate::cli::output::{self, Format, Outcome, parse_format};
use crate::cli::report::printable;

/// Maximum number of versions in a page.
const PAGE: usize = 500;

/// Maximum length of the text of the changed fields in the table.
const FIELDS_CHARS_MAX: usize = 100;

/// The flags of the command `history log`.
#[derive(Clone, Debug, Args)]
pub struct HistoryLog {
    #[command(flatten)]
    pub target: ObjectFlags,

    /// List only versions after this point: a revision, a time, or a duration before now (2h).
    #[arg(long, value_name = "POINT", value_parser = point, allow_hyphen_values = true)]
    pub since: Option<Point>,

    /// Maximum number of versions.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub limit: usize,

    /// Output format. Possible values: text, json, yaml.
    #[arg(long, short, value_name = "FORMAT", default_value = "text", value_parser = parse_format)]
    pub output: Format,
}

/// Runs the command and prints the table.
pub fn run(flags: &HistoryLog, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let limit = flags.limit.max(1);
    let items = block_on(async {
        let found = flags.target.find(None).await?;
        let mut items = Vec::new();
        let query = format!("limit={}", limit.min(PAGE));
        versions::read(&found.client, &found.history(), &query, |item| {
            let is_after = |since: &Point| since.precedes(versions::revision(&item), versions::time(&item));
            if !flags.since.as_ref().is_none_or(is_after) {
                return false;
            }
            items.push(item);
            items.len() < limit
        })
        .await?;
        if items.is_empty() && flags.since.is_none() {
            bail!("no version of {} is retained", found.label);
        }
        Ok(items)
    })?;
    output::write(out, flags.output, &json!({"items": items}), |out| text(&items, out))?;
    Ok(Outcome::Fine)
}

fn text(items: &[Value], out: &mut impl Write) -> io::Result<()> {
    let now = Timestamp::now();
    let heading = ["REVISION", "AGE", "OPERATION", "AUTHOR", "FIELDS"];
    let mut rows = vec![heading.map(|name| ColouredCell::from(name.to_owned()))];
    for item in items {
        let operation = item["operation"].as_str().unwrap_or_default();
        let subresource = item["subresource"].as_str().unwrap_or_default();
        let colour = match operation {
            "Create" => Colour::Green,
            "Update" => Colour::Yellow,
            _ => Colour::Red,
        };
        let operation = match subresource {
            "" => operation.to_owned(),
            subresource => format!("{operation} {subresource}"),
        };
        rows.push([
            ColouredCell { text: versions::revision(item).to_string(), colour: Colour::Cyan },
            age(versions::time(item), now).into(),
            ColouredCell { text: operation, colour },
            author(item).into(),
            fields(item).into(),
        ]);
    }
    colour::table(out, colour::is_enabled(), &rows)
}

/// Formats the changed fields as a text that fits into the table.
fn fields(item: &Value) -> String {
    let Some(fields) = item["fields"].as_array() else { return "-".to_owned() };
    let mut text = String::new();
    for (at, field) in fields.iter().filter_map(Value::as_str).enumerate() {
        let field = printable(field.as_bytes());
        if at > 0 && text.chars().count() + field.chars().count() > FIELDS_CHARS_MAX {
            let more = if item["cut"].is_array() { "+" } else { "" };
            text.push_str(&format!(" and {}{more} more", fields.len() - at));
            break;
        }
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(&field);
    }
    if text.is_empty() { "(nothing but managed fields)".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_table_has_a_line_for_each_version() {
        let many: Vec<String> = (0..100).map(|n| format!("data.key-{n}")).collect();
        let items = [
            json!({"revision": "9", "operation": "Update", "subresource": "scale", "fields": ["spec.replicas"],
                   "author": {"user": "alice", "manager": "kubectl"}}),
            json!({"revision": "8", "operation": "Update", "fields": many, "cut": ["fields"]}),
            json!({"revision": "7", "operation": "Update", "fields": []}),
            json!({"revision": "6", "operation": "Create"}),
        ];
        let mut out = Vec::new();
        text(&items, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "REVISION   AGE   OPERATION      AUTHOR            FIELDS",
                "9          -     Update scale   alice (kubectl)   spec.replicas",
            ]
        );
        assert!(lines[2].ends_with("+ more") && lines[2].len() < 170, "{}", lines[2]);
        assert!(lines[3].ends_with("(nothing but managed fields)") && lines[4].ends_with('-'), "{text}");
    }
}
