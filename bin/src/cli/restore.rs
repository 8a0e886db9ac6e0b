//! `restore`: creates a data directory from a backup, with the state at the newest revision or an earlier
//! revision.

use engine::Revision;
use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use engine::offline::{OfflineError, RestorePoint, RestoreSummary};
use serde::Serialize;

use crate::cli::args::{Format, Restore};
use crate::cli::backup::copy_pki;
use crate::cli::output::{self, Outcome};
use crate::cli::progress::Progress;
use crate::cli::report::{self, bytes};
use crate::host::files;
use crate::host::pki::PKI_DIR;
use crate::store::identity::PROFILE_FILE;
use crate::store::location::log_dir;
use crate::store::losses;

#[derive(Serialize)]
struct Report {
    /// The revision whose state was restored.
    from_revision: u64,
    /// The first revision of the new store.
    revision: u64,
    keys: u64,
    bytes: u64,
    /// Whether the backup had certificates and keys.
    pki: bool,
    damages: u64,
    /// Revisions that are lost in the new store, and that no `accept-loss` has accepted.
    unaccepted_lost: u64,
    unaccepted_damaged: u64,
}

/// Runs the command and prints the report.
pub fn run(flags: &Restore, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let (from, to) = (&flags.from, &flags.data_dir);
    let point = match (flags.revision, flags.time) {
        (Some(revision), _) => RestorePoint::Revision(Revision::new(revision)),
        (None, Some(time)) => RestorePoint::Time(u64::try_from(time.as_millisecond()).unwrap_or(0)),
        (None, None) => RestorePoint::Newest,
    };
    must_be_empty(to)?;
    let is_text = flags.output == Format::Text;
    let target = Target::begin(to)?;
    // Write the profile before the store, so that no server with another profile can create a store in the
    // directory.
    if let Some(profile) = files::read_if_there(&from.join(PROFILE_FILE))? {
        files::write_private(&to.join(PROFILE_FILE), &profile)?;
    }
    let progress = RefCell::new(Progress::new("restore", 0));
    let mut failed = None;
    let restored = engine::offline::restore(
        &log_dir(from),
        &log_dir(to),
        point,
        flags.skip_damaged,
        |damage| {
            progress.borrow_mut().clear();
            if flags.skip_damaged && is_text {
                failed = failed.take().or(writeln!(out, "left out: {damage}").err());
            }
        },
        |done, total| progress.borrow_mut().update_of(done, total),
    );
    drop(progress);
    let restored = restored.map_err(explained)?;
    target.keep();
    if let Some(error) = failed {
        return Err(error.into());
    }
    let pki = from.join(PKI_DIR).is_dir();
    if pki {
        copy_pki(from, to)?;
    }
    files::sync_dir(to)?;
    let RestoreSummary { from_revision, revision, keys, bytes: stored, damages, unaccepted } = restored;
    if !is_text {
        let report = Report {
            from_revision: from_revision.get(),
            revision: revision.get(),
            keys,
            bytes: stored,
            pki,
            damages,
            unaccepted_lost: unaccepted.lost.count(),
            unaccepted_damaged: unaccepted.damaged.count(),
        };
        output::write(out, flags.output, &report, |_| Ok(()))?;
    } else {
        writeln!(
            out,
            "{}: {} ({}) as of revision {from_revision}; the store continues from revision {revision}",
            to.display(),
            report::count(keys, "key", "keys"),
            bytes(stored)
        )?;
        if !unaccepted.is_empty() {
            writeln!(
                out,
                "missing: {}. Controllers that delete because something is absent stay off until the loss is accepted with \
                 accept-loss --data-dir={}",
                losses::described(&unaccepted),
                to.display()
            )?;
        }
        if !pki {
            writeln!(
                out,
                "certificates and keys are not in the backup: the server will create new ones, and clients need the new kubeconfig"
            )?;
        }
    }
    Ok(if damages > 0 && !unaccepted.is_empty() { Outcome::Damaged } else { Outcome::Fine })
}

/// The data directory of a restore. If the restore fails, its files are removed when this value is dropped.
struct Target<'d> {
    dir: &'d Path,
    /// Whether the directory existed before.
    is_old: bool,
    is_kept: bool,
}

impl Target<'_> {
    fn begin(dir: &Path) -> anyhow::Result<Target<'_>> {
        let is_old = dir.exists();
        files::private_dir(dir)?;
        Ok(Target { dir, is_old, is_kept: false })
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // The directory contained at most the files of an interrupted restore, so the removal affects no
        // other file.
        let _ = fs::remove_file(self.dir.join(PROFILE_FILE));
        if !self.is_old {
            let _ = fs::remove_dir(self.dir);
        }
    }
}

/// Converts an error, and formats its times as text.
fn explained(error: OfflineError) -> anyhow::Error {
    match error {
        OfflineError::BeforeFirst { first, time_ms, .. } => {
            let time = i64::try_from(time_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
            let time = time.map_or_else(|| format!("{time_ms} ms since 1970"), |time| time.to_string());
            anyhow!("the backup begins at {time}, with revision {first}: nothing was written before")
        }
        error => error.into(),
    }
}

/// Checks that a directory is missing, is empty, or has only the files of an interrupted restore.
fn must_be_empty(to: &Path) -> anyhow::Result<()> {
    if !to.exists() {
        return Ok(());
    }
    let list = fs::read_dir(to).with_context(|| format!("cannot read {}", to.display()))?;
    for entry in list {
        let entry = entry.with_context(|| format!("cannot read {}", to.display()))?;
        if entry.file_name() != "log.next" && entry.file_name() != PROFILE_FILE {
            bail!("{} is not empty: restore into a new directory", to.display());
        }
    }
    Ok(())
}
