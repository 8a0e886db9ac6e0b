//! Backfill of defaults into stores of another release: a file beside the log records which defaults the objects
//! have.

use std::path::Path;

use anyhow::Context;
use api::writes::backfill;
use api::writes::context::Context as Api;

use crate::files;

/// File that records the defaults of a store's objects.
const DEFAULTS_FILE: &str = "defaults";

/// Writes this release's defaults into stored objects, unless the store records that they are there.
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
            "stored objects have this release's defaults"
        );
    }
    files::write_private(&path, mark.as_bytes())?;
    Ok(())
}
