//! `verify`: checks every record and the consistency of the index, checkpoints and segments.

use std::cell::RefCell;
use std::io::Write;

use engine::offline::{Damage, Store, survey};
use serde::Serialize;

use crate::cli::args::{Format, Verify};
use crate::cli::output::{self, Outcome};
use crate::cli::progress::Progress;
use crate::cli::report::{self, DamageReport};
use crate::store::location::log_dir;

/// The members of the report after `damage`.
#[derive(Serialize)]
struct Summary {
    damages: u64,
    revision: u64,
    oldest: u64,
    records: u64,
    keys: u64,
    segments: usize,
    /// Whether a server has the store open. The check of an open store covers only records that are known
    /// durable.
    running: bool,
    torn: Option<Torn>,
}

#[derive(Serialize)]
struct Torn {
    file: String,
    offset: u64,
}

/// Runs the command and prints the report.
pub fn run(flags: &Verify, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let dir = log_dir(&flags.common.data_dir);
    let store = Store::open(&dir)?;
    let format = flags.common.output;
    let progress = RefCell::new(Progress::new("verify", store.data_bytes()));
    // Report each damage when it is found, because the whole list may not fit in memory.
    let mut failed = None;
    let mut first = true;
    if format == Format::Json {
        write!(out, "{{\"damage\":[")?;
    }
    let report = |damage: &Damage| {
        progress.borrow_mut().clear();
        let is_first = std::mem::take(&mut first);
        if let Err(error) = write_damage(damage, format, is_first, out) {
            failed.get_or_insert(error);
        }
    };
    let survey = survey(&store, report, |done| progress.borrow_mut().update(done));
    drop(progress);
    if let Some(error) = failed {
        return Err(error.into());
    }
    let summary = Summary {
        damages: survey.damages,
        revision: survey.revision.get(),
        oldest: survey.oldest.get(),
        records: survey.records,
        keys: survey.live_keys(),
        segments: survey.segments.len(),
        running: store.in_use(),
        torn: survey.torn.clone().map(|(file, offset)| Torn { file, offset }),
    };
    match format {
        Format::Text => write_text(&dir.display().to_string(), &summary, out)?,
        Format::Json => {
            let members = serde_json::to_string(&summary)?;
            writeln!(out, "],{}", &members[1..])?;
        }
        Format::Yaml => {
            if first {
                writeln!(out, "damage: []")?;
            }
            out.write_all(&output::yaml_of(&summary)?)?;
        }
    }
    Ok(if survey.damages > 0 { Outcome::Damaged } else { Outcome::Fine })
}

/// Writes a damage as an element of the list `damage` of the report, or as a line of text.
fn write_damage(
    damage: &Damage,
    format: Format,
    is_first: bool,
    out: &mut impl Write,
) -> std::io::Result<()> {
    match format {
        Format::Text => return writeln!(out, "damage: {damage}"),
        Format::Json if is_first => {}
        Format::Json => write!(out, ",")?,
        Format::Yaml if is_first => write!(out, "damage:\n- ")?,
        Format::Yaml => write!(out, "- ")?,
    }
    // A line of JSON is also a valid element of a list in YAML.
    serde_json::to_writer(&mut *out, &DamageReport::from(damage))?;
    if format == Format::Yaml { writeln!(out) } else { Ok(()) }
}

fn write_text(dir: &str, summary: &Summary, out: &mut impl Write) -> std::io::Result<()> {
    if let Some(torn) = &summary.torn {
        writeln!(
            out,
            "{} ends at byte {} with writes that were under way at a crash and never acknowledged; no damage",
            torn.file, torn.offset
        )?;
    }
    writeln!(
        out,
        "{dir}: {}, {}, {} up to revision {}{}: {}",
        report::count(summary.segments as u64, "segment", "segments"),
        report::count(summary.records, "record", "records"),
        report::count(summary.keys, "key", "keys"),
        summary.revision,
        if summary.running { " (of a running server)" } else { "" },
        match summary.damages {
            0 => "sound".to_owned(),
            n => format!("{} found", report::count(n, "damage", "damages")),
        }
    )
}
