//! `backup`: copies the store of a data directory or of a running server into a separate directory. The copy
//! has the state at one revision.
//!
//! The backup has the layout of a data directory: `log` (the store), `profile` (the naming profile of the
//! store), and with `--with-pki` the certificates, the keys and the administrator's kubeconfig.

use std::fs::{self, DirEntry};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use engine::offline::{BackupSummary, Damage};
use serde::Serialize;

use crate::cli::args::{Backup, Format};
use crate::cli::output::{self, Outcome};
use crate::cli::progress::Progress;
use crate::cli::receive::receive;
use crate::cli::report::{self, DamageReport, bytes};
use crate::host::files;
use crate::host::pki::PKI_DIR;
use crate::remote::kubeconfig::KUBECONFIG_FILE;
use crate::store::identity::PROFILE_FILE;
use crate::store::last_backup::LastBackup;
use crate::store::location::log_dir;

#[derive(Serialize)]
struct Report {
    revision: u64,
    oldest: u64,
    copied_segments: u64,
    copied_bytes: u64,
    kept_segments: u64,
    kept_bytes: u64,
    /// Whether the backup includes certificates and keys.
    pki: bool,
    damage: Vec<DamageReport>,
    damages: u64,
}

/// Maximum number of damages in the report. `verify` lists all damages.
const LISTED_MAX: usize = 100;

/// Runs the command and prints the report.
pub fn run(flags: &Backup, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let to = &flags.to;
    must_take_a_backup(to)?;
    if flags.with_pki {
        must_have_pki(&flags.common.data_dir)?;
    }
    let mut listed = Vec::new();
    let on_damage = |damage: &Damage| {
        if listed.len() < LISTED_MAX {
            listed.push(damage.clone());
        }
    };
    let (ready, profile) = match &flags.kubeconfig {
        Some(kubeconfig) => {
            let (ready, profile) = receive(kubeconfig, flags.server.as_deref(), &log_dir(to), on_damage)?;
            (ready, Some(format!("{profile}\n").into_bytes()))
        }
        None => {
            let data_dir = &flags.common.data_dir;
            let profile = files::read_if_there(&data_dir.join(PROFILE_FILE))?;
            let mut progress = Progress::new("backup", 0);
            let update = |done, total| progress.update_of(done, total);
            (engine::offline::backup(&log_dir(data_dir), &log_dir(to), on_damage, update)?, profile)
        }
    };
    // The profile is written before the store, so that a complete backup always has it.
    if let Some(profile) = profile {
        files::write_private(&to.join(PROFILE_FILE), &profile)?;
    }
    if flags.with_pki {
        copy_pki(&flags.common.data_dir, to)?;
    }
    files::sync_dir(to)?;
    let done = ready.place()?;
    // A server itself records the backups that it sends. If the user may only read the data directory, the backup
    // succeeds without this record.
    if flags.kubeconfig.is_none()
        && let Err(error) = LastBackup::in_data_dir(&flags.common.data_dir).write()
    {
        eprintln!("the time of the backup is not recorded in {}: {error}", flags.common.data_dir.display());
    }
    print_report(flags, done, &listed, out)
}

fn print_report(
    flags: &Backup,
    done: BackupSummary,
    listed: &[Damage],
    out: &mut impl Write,
) -> anyhow::Result<Outcome> {
    let outcome = if done.damages > 0 { Outcome::Damaged } else { Outcome::Fine };
    let BackupSummary { revision, oldest, copied, kept, damages } = done;
    if flags.common.output != Format::Text {
        let damage = listed.iter().map(DamageReport::from).collect();
        let report = Report {
            revision: revision.get(),
            oldest: oldest.get(),
            copied_segments: copied.0,
            copied_bytes: copied.1,
            kept_segments: kept.0,
            kept_bytes: kept.1,
            pki: flags.with_pki,
            damage,
            damages,
        };
        output::write(out, flags.common.output, &report, |_| Ok(()))?;
        return Ok(outcome);
    }
    for damage in listed {
        writeln!(out, "damage: {damage}")?;
    }
    let segments = |count| report::count(count, "segment", "segments");
    write!(
        out,
        "{}: revision {revision}, {} copied ({})",
        flags.to.display(),
        segments(copied.0),
        bytes(copied.1)
    )?;
    if kept.0 > 0 {
        write!(out, ", {} there already ({})", segments(kept.0), bytes(kept.1))?;
    }
    if damages > 0 {
        write!(out, ", {} copied as they are", report::count(damages, "damaged record", "damaged records"))?;
    }
    writeln!(out)?;
    match flags.kubeconfig {
        Some(_) => writeln!(out, "certificates and keys are not included: they stay on the server")?,
        None if flags.with_pki => {}
        None => {
            writeln!(out, "certificates, keys and kubeconfig are not included; --with-pki includes them")?
        }
    }
    Ok(outcome)
}

/// Copies the certificates, the keys and the administrator's kubeconfig. Replaces each file in one step.
pub fn copy_pki(from: &Path, to: &Path) -> anyhow::Result<()> {
    let pki = must_have_pki(from)?;
    files::private_dir(&to.join(PKI_DIR))?;
    let list = fs::read_dir(&pki).with_context(|| format!("cannot read {}", pki.display()))?;
    for entry in list {
        let entry = entry.with_context(|| format!("cannot read {}", pki.display()))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if let Some(bytes) = files::read_if_there(&entry.path())?.filter(|_| is_file) {
            files::write_private(&to.join(PKI_DIR).join(entry.file_name()), &bytes)?;
        }
    }
    if let Some(bytes) = files::read_if_there(&from.join(KUBECONFIG_FILE))? {
        files::write_private(&to.join(KUBECONFIG_FILE), &bytes)?;
    }
    files::sync_dir(&to.join(PKI_DIR))
}

/// Checks the target of a backup. A backup replaces files, so the target must be absent, empty, or an earlier
/// backup.
fn must_take_a_backup(to: &Path) -> anyhow::Result<()> {
    let list = match fs::read_dir(to) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            bail!("{} is not a directory", to.display())
        }
        list => list.with_context(|| format!("cannot read {}", to.display()))?,
    };
    // These names belong to an earlier or an interrupted backup.
    let is_ours = |entry: &DirEntry| {
        let name = entry.file_name();
        let is_store = name.to_str().is_some_and(|name| name == "log" || name.starts_with("log."));
        is_store && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let entries: Vec<DirEntry> = list.filter_map(Result::ok).collect();
    if entries.is_empty() || entries.iter().any(is_ours) {
        return Ok(());
    }
    bail!("{} is not empty and has no backup: choose an empty or new directory", to.display())
}

/// Returns the directory of the certificates, or fails if it does not exist.
fn must_have_pki(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let pki = data_dir.join(PKI_DIR);
    if pki.is_dir() { Ok(pki) } else { bail!("there are no certificates in {}", pki.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn backup_replaces_only_a_backup_or_an_empty_directory() {
        let dir = Scratch::new();
        fs::create_dir_all(dir.join("earlier/log")).unwrap();
        fs::create_dir_all(dir.join("cut/log.next")).unwrap();
        fs::create_dir_all(dir.join("empty")).unwrap();
        fs::create_dir_all(dir.join("foreign")).unwrap();
        fs::write(dir.join("foreign/log"), "lines").unwrap();
        for (name, why) in [
            ("absent", ""),
            ("empty", ""),
            ("earlier", ""),
            ("cut", ""),
            ("foreign", "is not empty and has no backup: choose an empty or new directory"),
            ("foreign/log", "is not a directory"),
        ] {
            let path = dir.join(name);
            let want = if why.is_empty() { String::new() } else { format!("{} {why}", path.display()) };
            let got = must_take_a_backup(&path).map_or_else(|error| error.to_string(), |()| String::new());
            assert_eq!(got, want, "{name}");
        }
    }
}
