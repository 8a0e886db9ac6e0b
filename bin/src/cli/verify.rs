//! `verify`: checks every record and the consistency of the index, checkpoints and segments.

use std::cell::RefCell;
use std::io::Write;

use engine::offline::{Damage, Store, survey};
use serde::Serialize;

use crate::cli::args::{Format, Verify};
use crate::cli::output::Outcome;
use crate::cli::progress::Progress;
use crate::cli::report::{self, DamageReport};
use crate::store::location::log_dir;

/// Members of the report that follow `damage`.
#[derive(Serialize)]
struct Summary {
    damages: u64,
    revision: u64,
    oldest: u64,
    records: u64,
    keys: u64,
    segments: usize,
    /// Whether a server has the store open: the check then covers only what is known durable.
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
    let json = flags.common.output == Format::Json;
    let progress = RefCell::new(Progress::new("verify", store.data_bytes()));
    // Damage is reported as it is found, because the whole list may not fit in memory.
    let mut failed = None;
    let mut first = true;
    if json {
        write!(out, "{{\"damage\":[")?;
    }
    let report = |damage: &Damage| {
        progress.borrow_mut().clear();
        let written = if json {
            let comma = if std::mem::take(&mut first) { "" } else { "," };
            write!(out, "{comma}")
                .and_then(|()| Ok(serde_json::to_writer(&mut *out, &DamageReport::from(damage))?))
        } else {
            writeln!(out, "damage: {damage}")
        };
        if let Err(error) = written {
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
    if json {
        let members = serde_json::to_string(&summary)?;
        writeln!(out, "],{}", &members[1..])?;
    } else {
        write_text(&dir.display().to_string(), &summary, out)?;
    }
    Ok(if survey.damages > 0 { Outcome::Damaged } else { Outcome::Fine })
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
