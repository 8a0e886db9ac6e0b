//! Backfill of default values into stores of another release. A file next to the log records which defaults
//! the objects have.

use std::path::Path;

use anyhow::{Context, bail};
use api::writes::backfill;
use api::writes::server::Server as Api;

use crate::host::files;

/// Name of the file that records which defaults the objects of the store have.
const DEFAULTS_FILE: &str = "defaults";

/// Refuses a directory whose store is missing. The store is missing if a server has used the directory, but
/// the directory of the log has no segment.
///
/// # Errors
/// The store is missing. The message tells the operator what to do.
pub fn check_for_store(data_dir: &Path, log_dir: &Path) -> anyhow::Result<()> {
    let mark = data_dir.join(DEFAULTS_FILE);
    let is_segment = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".segment");
    let has_segments = std::fs::read_dir(log_dir).is_ok_and(|entries| entries.flatten().any(is_segment));
    if has_segments || files::read_if_there(&mark)?.is_none() {
        return Ok(());
    }
    bail!(
        "the store is missing: {} has no segment, but {} says that there was one: put the files back, or restore the store \
         from a backup, or remove the latter to begin with an empty store",
        log_dir.display(),
        mark.display()
    )
}

/// Writes the default values of this release into stored objects, unless the file records that the objects
/// already have them.
///
/// # Errors
/// The store or the file cannot be read or written.
pub async fn bring_up(data_dir: &Path, api: &Api) -> anyhow::Result<()> {
    let path = data_dir.join(DEFAULTS_FILE);
    let mark = format!("{:016x}\n", backfill::MARK);
    if files::read_if_there(&path)?.is_some_and(|bytes| bytes == mark.as_bytes()) {
        return Ok(());
    }
    let outcome = backfill::apply_defaults(api)
        .await
        .context("cannot add this release's defaults to stored objects")?;
    if outcome.seen > 0 {
        tracing::info!(
            seen = outcome.seen,
            written = outcome.written,
            "stored objects updated with the defaults of this release"
        );
    }
    files::write_private(&path, mark.as_bytes())?;
    Ok(())
}
