//! `stats`: prints the size of a store, of its resources and of its segments.

use engine::Revision;
use std::collections::BTreeMap;
use std::io::{self, Write};

use engine::offline::{Store, Survey, survey};
use serde::Serialize;

use crate::cli::args::Stats;
use crate::cli::output::{self, Outcome};
use crate::cli::progress::Progress;
use crate::cli::report::{self, bytes};
use crate::store::location::log_dir;

#[derive(Serialize)]
struct Report {
    revision: u64,
    time: Option<String>,
    oldest: u64,
    /// Revision of the newest checkpoint.
    checkpoint: Option<u64>,
    records: u64,
    keys: u64,
    live_bytes: u64,
    retained_bytes: u64,
    dead_bytes: u64,
    file_bytes: u64,
    resources: Vec<ResourceReport>,
    segments: Vec<SegmentReport>,
    /// Number of segments that other segments have replaced. The next open of the store deletes the files of
    /// these segments.
    superseded_segments: u32,
    damages: u64,
    /// Whether a server has the store open. The report then covers only records that are known to be durable.
    running: bool,
}

#[derive(Serialize)]
struct ResourceReport {
    /// Prefix of the keys of the resource.
    prefix: String,
    keys: u64,
    /// Bytes of the newest versions of all objects.
    bytes: u64,
}

#[derive(Serialize)]
struct SegmentReport {
    file: String,
    first_revision: u64,
    records: u64,
    record_bytes: u64,
    file_bytes: u64,
    rewritten: bool,
}

/// Runs the command and prints the report.
pub fn run(flags: &Stats, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let dir = log_dir(&flags.common.data_dir);
    let store = Store::open(&dir)?;
    let mut progress = Progress::new("stats", store.data_bytes());
    let survey = survey(&store, |_| (), |done| progress.update(done));
    drop(progress);
    let report = report_of(&store, survey);
    output::write(out, flags.common.output, &report, |out| write_text(&report, out))?;
    Ok(Outcome::Fine)
}

fn report_of(store: &Store, survey: Survey) -> Report {
    let mut resources: BTreeMap<&[u8], (u64, u64)> = BTreeMap::new();
    for (key, state) in survey.keys.iter().filter(|(_, state)| !state.deleted) {
        let (keys, bytes) = resources.entry(resource(key)).or_default();
        *keys += 1;
        *bytes += u64::from(state.stored_len);
    }
    let resources = resources.into_iter().map(|(prefix, (keys, bytes))| ResourceReport {
        prefix: String::from_utf8_lossy(prefix).into_owned(),
        keys,
        bytes,
    });
    let segments = survey.segments.iter().map(|segment| SegmentReport {
        file: segment.file.clone(),
        first_revision: segment.first_revision.get(),
        records: segment.records,
        record_bytes: segment.record_bytes,
        file_bytes: segment.file_bytes,
        rewritten: segment.rewritten,
    });
    Report {
        revision: survey.revision.get(),
        time: (survey.records > 0).then(|| report::time(survey.time_ms)),
        oldest: survey.oldest.get(),
        checkpoint: store.checkpoint().map(Revision::get),
        records: survey.records,
        keys: survey.live_keys(),
        live_bytes: survey.live_bytes,
        retained_bytes: survey.retained_bytes,
        dead_bytes: survey.dead_bytes,
        file_bytes: survey.segments.iter().map(|segment| segment.file_bytes).sum(),
        resources: resources.collect(),
        segments: segments.collect(),
        superseded_segments: survey.superseded,
        damages: survey.damages,
        running: store.in_use(),
    }
}

/// Returns the prefix of a key that names its resource: `/core/pods/` for `/core/pods/default/web`.
fn resource(key: &[u8]) -> &[u8] {
    let mut slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes.nth(2).map_or(key, |end| &key[..=end])
}

fn write_text(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let running = if report.running { " (of a running server)" } else { "" };
    writeln!(
        out,
        "revision   {}{}{running}",
        report.revision,
        match &report.time {
            Some(time) => format!(", {time}"),
            None => String::new(),
        }
    )?;
    writeln!(out, "oldest     {}", report.oldest)?;
    match report.checkpoint {
        Some(revision) => writeln!(out, "checkpoint {revision}")?,
        None => writeln!(out, "checkpoint none")?,
    }
    writeln!(out, "keys       {}", report.keys)?;
    writeln!(out, "records    {}", report.records)?;
    writeln!(out, "live       {}", bytes(report.live_bytes))?;
    writeln!(out, "retained   {}", bytes(report.retained_bytes))?;
    writeln!(out, "dead       {}", bytes(report.dead_bytes))?;
    writeln!(
        out,
        "files      {} in {}",
        bytes(report.file_bytes),
        report::count(report.segments.len() as u64, "segment", "segments")
    )?;
    if report.superseded_segments > 0 {
        writeln!(
            out,
            "superseded {}",
            report::count(report.superseded_segments.into(), "segment", "segments")
        )?;
    }
    match report.damages {
        0 => writeln!(out, "damage     none")?,
        n => writeln!(out, "damage     {n}, listed by verify")?,
    }
    if !report.resources.is_empty() {
        writeln!(out, "\n{:>10}  {:>10}  resource", "keys", "bytes")?;
    }
    for resource in &report.resources {
        let prefix = report::printable(resource.prefix.as_bytes());
        writeln!(out, "{:>10}  {:>10}  {prefix}", resource.keys, bytes(resource.bytes))?;
    }
    writeln!(out, "\n{:>10}  {:>10}  {:>10}  segment", "from", "records", "bytes")?;
    for segment in &report.segments {
        writeln!(
            out,
            "{:>10}  {:>10}  {:>10}  {}{}",
            segment.first_revision,
            segment.records,
            bytes(segment.record_bytes),
            segment.file,
            if segment.rewritten { ", rewritten" } else { "" }
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_by_resource() {
        for (key, want) in [
            ("/core/pods/default/web", "/core/pods/"),
            ("/core/namespaces/default", "/core/namespaces/"),
            ("/odd", "/odd"),
            ("", ""),
        ] {
            assert_eq!(resource(key.as_bytes()), want.as_bytes(), "{key}");
        }
    }
}
