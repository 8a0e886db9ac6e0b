//! A store that another release wrote: which defaults its objects have is remembered in a file beside the log.

use std::path::Path;

use anyhow::Context;
use api::backfill;
use api::pipeline::Api;

use crate::files;

/// Where a store remembers which release's defaults its objects have.
const DEFAULTS_FILE: &str = "defaults";

/// Gives what is stored this release's defaults, unless the store says that it has them.
///
/// # Errors
/// The store or the file cannot be read or written.
pub async fn bring_up(data_dir: &Path, api: &Api) -> anyhow::Result<()> {
    let path = data_dir.join(DEFAULTS_FILE);
    let mark = format!("{:016x}\n", backfill::MARK);
    if files::read_if_there(&path)?.is_some_and(|bytes| bytes == mark.as_bytes()) {
        return Ok(());
    }
    let outcome =
        backfill::apply_defaults(api).await.context("cannot bring stored objects up to this release")?;
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
