//! `compact`: drops the history of a stopped store, and deletes the files that the store no longer needs. A
//! running server does this work in the background (`--history-retention`).

use std::io::Write;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use engine::{CompactError, Engine, OpenError, Options, Revision};
use serde::Serialize;

use crate::cli::args::Compact;
use crate::cli::output::{self, Outcome};
use crate::cli::report::bytes;
use crate::store::location::log_dir;

#[derive(Serialize)]
struct Report {
    /// The newest revision.
    revision: u64,
    /// The oldest readable revision.
    oldest: u64,
    /// Bytes of all records before the compaction.
    before_bytes: u64,
    after_bytes: u64,
}

/// Runs the command and prints the report.
pub fn run(flags: &Compact, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let dir = log_dir(&flags.common.data_dir);
    // Fail if there is no store, because opening the engine would create one.
    engine::offline::Store::open(&dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = runtime.context("cannot start the runtime")?.block_on(compact(flags, Options::new(dir)))?;
    output::write(out, flags.common.output, &report, |out| {
        writeln!(
            out,
            "the oldest readable revision is {} of {}; records take {}, {} before",
            report.oldest,
            report.revision,
            bytes(report.after_bytes),
            bytes(report.before_bytes)
        )
    })?;
    Ok(Outcome::Fine)
}

async fn compact(flags: &Compact, options: Options) -> anyhow::Result<Report> {
    let opened = Engine::open(Options {
        history_retention: Duration::MAX,
        bloom_scheme: types::bloom::SCHEME,
        ..options
    });
    let engine = opened.map_err(|error| match error {
        OpenError::InUse { dir } => anyhow!(
            "{} is in use: a running server compacts by itself (--history-retention); stop it to do so by hand",
            dir.display()
        ),
        error => error.into(),
    })?;
    let before = engine.stats();
    let revision = match (flags.revision, flags.keep) {
        (Some(revision), _) => revision,
        (None, Some(keep)) => {
            let time = SystemTime::now().checked_sub(keep).unwrap_or(SystemTime::UNIX_EPOCH);
            engine.revision_at(time).get()
        }
        (None, None) => before.revision.get(),
    };
    match engine.compact(Revision::new(revision)).await {
        Ok(()) => {}
        Err(error @ CompactError::Future { .. }) => bail!("revision {revision}: {error}"),
        // The history is already dropped, but there may be files to rewrite.
        Err(CompactError::Compacted { .. }) if flags.revision.is_none() => {}
        Err(error) => bail!("revision {revision}: {error}"),
    }
    engine.settled().await;
    engine.checkpoint().await;
    let after = engine.stats();
    let refused = engine.health();
    engine.close().await;
    refused?;
    Ok(Report {
        revision: after.revision.get(),
        oldest: after.oldest.get(),
        before_bytes: before.record_bytes,
        after_bytes: after.record_bytes,
    })
}
