//! `inspect`: reads the log and prints its records.

use engine::Revision;
use std::borrow::Cow;
use std::io::Write;

use engine::offline::{Damage, LogItem, LogRecord, RecordKind, Store};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::cli::args::{Format, Inspect};
use crate::cli::output::{self, Outcome};
use crate::cli::report::{self, DamageReport, printable};
use crate::store::location::log_dir;

/// A record in the JSON output.
#[derive(Serialize)]
struct Line<'a> {
    revision: u64,
    time: String,
    kind: &'static str,
    key: Cow<'a, str>,
    /// Revision of the put that created the key.
    created: u64,
    /// Bytes of the value.
    value_bytes: usize,
    /// Bytes of the record.
    stored_bytes: usize,
    expires: Option<String>,
    file: String,
    offset: u64,
    damaged: bool,
    /// The value, if `--values` is given: as JSON, or as text if the value is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Json(&'a RawValue),
    Text(Cow<'a, str>),
}

/// Runs the command and prints the records.
pub fn run(flags: &Inspect, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let store = Store::open(&log_dir(&flags.common.data_dir))?;
    let format = flags.common.output;
    for damage in store.damage() {
        write_damage(damage, format, out)?;
    }
    for found in store.records() {
        match found {
            LogItem::Record(record) if flags.to.is_some_and(|to| record.revision() > Revision::new(to)) => {
                break;
            }
            LogItem::Record(record) => match format {
                _ if !flags.selects(&record) => {}
                Format::Text => write_text(flags, &record, out)?,
                Format::Json | Format::Yaml => write_document(flags, &record, out)?,
            },
            // The key of a damaged record is unknown, so filters do not apply.
            LogItem::Damage(damage) => write_damage(&damage, format, out)?,
            LogItem::Torn { file, offset } if format == Format::Text => {
                writeln!(out, "torn: {file} ends at byte {offset}")?;
            }
            LogItem::Torn { file, offset } => {
                output::document(out, format, &json!({"torn": {"file": file, "offset": offset}}))?;
            }
        }
    }
    Ok(Outcome::Fine)
}

impl Inspect {
    fn selects(&self, record: &LogRecord) -> bool {
        let key = record.key();
        self.from.is_none_or(|from| record.revision() >= Revision::new(from))
            && self.key.as_ref().is_none_or(|selected| key == selected.as_bytes())
            && self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_bytes()))
    }
}

fn kind(record: &LogRecord) -> &'static str {
    match record.kind() {
        RecordKind::Put => "put",
        RecordKind::Delete => "delete",
        RecordKind::Tombstone => "tombstone",
    }
}

fn expires(record: &LogRecord) -> Option<String> {
    record.expires_s().map(|second| report::time(u64::from(second) * 1000))
}

fn write_text(flags: &Inspect, record: &LogRecord, out: &mut impl Write) -> std::io::Result<()> {
    write!(
        out,
        "{:>12}  {}  {:<9}  {:>8}  {}",
        record.revision(),
        report::time(record.time_ms()),
        kind(record),
        record.value_len(),
        printable(&record.key())
    )?;
    if let Some(expires) = expires(record) {
        write!(out, "  expires {expires}")?;
    }
    if !record.is_sound() {
        write!(out, "  DAMAGED, {} at byte {}", record.file(), record.offset())?;
    }
    writeln!(out)?;
    match record.value() {
        Some(value) if flags.values && !value.is_empty() => writeln!(out, "{}", printable(&value)),
        _ => Ok(()),
    }
}

fn write_document(flags: &Inspect, record: &LogRecord, out: &mut impl Write) -> anyhow::Result<()> {
    let (key, bytes) = (record.key(), record.value().filter(|_| flags.values));
    let value = bytes.as_deref().map(|bytes| match serde_json::from_slice(bytes) {
        Ok(json) => Value::Json(json),
        Err(_) => Value::Text(String::from_utf8_lossy(bytes)),
    });
    let line = Line {
        revision: record.revision().get(),
        time: report::time(record.time_ms()),
        kind: kind(record),
        key: String::from_utf8_lossy(&key),
        created: record.created().get(),
        value_bytes: record.value_len(),
        stored_bytes: record.stored_len(),
        expires: expires(record),
        file: record.file(),
        offset: record.offset(),
        damaged: !record.is_sound(),
        value,
    };
    output::document(out, flags.common.output, &line)
}

fn write_damage(damage: &Damage, format: Format, out: &mut impl Write) -> anyhow::Result<()> {
    match format {
        Format::Text => Ok(writeln!(out, "damage: {damage}")?),
        _ => output::document(out, format, &json!({"damage": DamageReport::from(damage)})),
    }
}
