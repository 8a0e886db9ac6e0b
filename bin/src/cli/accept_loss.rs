//! `accept-loss`: accepts that the unreadable records of a stopped store are lost, so that all controllers of
//! the server run again.
//!
//! `read every record ─► print the losses that are not accepted yet ─► accept them by a record in the log`

use std::cell::RefCell;
use std::io::Write;

use anyhow::{Context, anyhow, bail};
use engine::offline::{Damage, OfflineError, Store};
use engine::{Engine, Losses, OpenError, Options, RevisionSet};
use serde::Serialize;

use crate::cli::args::{AcceptLoss, Format};
use crate::cli::output::{self, Outcome};
use crate::cli::progress::Progress;
use crate::cli::report::DamageReport;
use crate::store::location::log_dir;
use crate::store::location::{self, StoreLocation};

/// Maximum number of damages in the report. `verify` lists all damages.
const LISTED_MAX: usize = 1_000;

#[derive(Serialize)]
struct Report {
    /// Revisions that this run accepted as lost, as ranges of the first and the last revision.
    lost: Vec<(u64, u64)>,
    /// Revisions whose records this run accepted as unreadable.
    unreadable: Vec<(u64, u64)>,
    /// Damage in the log that causes these losses.
    damage: Vec<DamageReport>,
}

/// Runs the command and prints the report.
pub fn run(flags: &AcceptLoss, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let data_dir = &flags.common.data_dir;
    if location::recorded(data_dir)? == Some(StoreLocation::Etcd) {
        bail!(
            "{}: the objects are in etcd, and the next start replaces a damaged local copy",
            data_dir.display()
        );
    }
    let dir = log_dir(data_dir);
    let store = Store::open(&dir)?;
    let in_use = || {
        anyhow!("{} is in use: stop the server, and start it again after the loss is accepted", dir.display())
    };
    if store.in_use() {
        return Err(in_use());
    }
    let progress = RefCell::new(Progress::new("accept-loss", store.data_bytes()));
    let mut damages = Vec::new();
    let found = store.losses(
        |damage| {
            if damages.len() < LISTED_MAX {
                damages.push(damage.clone());
            }
        },
        |done| progress.borrow_mut().update(done),
    );
    drop(progress);
    let found = found.map_err(|error| match error {
        error @ OfflineError::Incomplete { .. } => anyhow!(
            "{error}: put the file back, or make a store of the rest with restore --skip-damaged, and accept the loss there"
        ),
        error => error.into(),
    })?;
    drop(store);
    let opened = Engine::open(Options { bloom_scheme: types::bloom::SCHEME, ..Options::new(&dir) });
    let engine = opened.map_err(|error| match error {
        OpenError::InUse { .. } => in_use(),
        error => error.into(),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let accepted = runtime.context("cannot start the runtime")?.block_on(async {
        let before = engine.losses();
        let mut known = before.known.clone();
        known.extend(&found);
        let accepted = engine.accept_losses(&found).await.map(|_| known.beyond(&before.accepted));
        engine.close().await;
        accepted
    })?;
    damages.retain(|damage| is_of(damage, &accepted));
    print_report(flags, &accepted, &damages, out)?;
    Ok(Outcome::Fine)
}

/// Returns whether a damage causes at least one of these losses.
fn is_of(damage: &Damage, losses: &Losses) -> bool {
    let Some((first, last)) = damage.revisions else { return false };
    let mut revisions = RevisionSet::default();
    revisions.insert(first, last);
    let left = revisions.without(&losses.lost).without(&losses.damaged);
    left != revisions
}

fn print_report(
    flags: &AcceptLoss,
    accepted: &Losses,
    damages: &[Damage],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if flags.common.output != Format::Text {
        let numbers =
            |set: &RevisionSet| set.ranges().iter().map(|(first, last)| (first.get(), last.get())).collect();
        let report = Report {
            lost: numbers(&accepted.lost),
            unreadable: numbers(&accepted.damaged),
            damage: damages.iter().map(DamageReport::from).collect(),
        };
        return output::write(out, flags.common.output, &report, |_| Ok(()));
    }
    let dir = flags.common.data_dir.display();
    if accepted.is_empty() {
        writeln!(out, "{dir}: there is no loss to accept")?;
        return Ok(());
    }
    for damage in damages {
        writeln!(out, "accepted: {damage}")?;
    }
    for (kind, set) in
        [("lost revisions", &accepted.lost), ("unreadable records of revisions", &accepted.damaged)]
    {
        for (first, last) in set.ranges() {
            writeln!(out, "accepted: {kind} {first} to {last}")?;
        }
    }
    writeln!(
        out,
        "{dir}: the loss is accepted; from the next start on, controllers delete what depends on absent objects",
    )?;
    Ok(())
}
