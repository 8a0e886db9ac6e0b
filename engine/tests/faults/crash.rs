//! Power losses and killed processes: at every operation that can matter, and at random operations in long
//! simulated runs.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Durability;
use engine::fault::{Kind, Verdict};

use crate::fixture::{Fixture, Rates, Setup, live};
use crate::history::Checked;

/// Total number of crashes and openings in the random runs, unless `FAULT_CYCLES` gives another number.
const CYCLES: u64 = 14_000;

/// Seeds of later runs that found two bugs: a deleted key came back, because rewritten segments that were
/// lost in a crash were removed in arbitrary order; and a segment that was left without records, before a
/// rewritten one, counted as missing.
const FOUND: [u64; 2] = [13_516, 1_367];

/// Number of actions in one run.
const ACTS: u64 = 400;

fn number_from(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?} and must be a number")))
}

/// Panics with everything that is needed to reproduce a violation.
#[track_caller]
fn expect<T>(checked: Checked<T>, setup: &Setup) -> T {
    checked.unwrap_or_else(|violation| panic!("{violation}\n  in {setup:?}"))
}

/// Returns the setup of a seed; different seeds get different faults.
fn setup_of(seed: u64) -> Setup {
    let failing = Rates { sync_fails: 40, write_fails: 60, ..Rates::default() };
    let rates = match seed % 4 {
        0 | 1 => Rates::default(),
        2 => Rates { read_fails: 50, ..failing },
        _ => Rates { write_full: 30, disk_full: 2, ..failing },
    };
    let durability = if seed % 5 == 4 { Durability::Relaxed } else { Durability::Sync };
    let retention = match seed % 3 {
        0 => Duration::MAX,
        1 => Duration::from_secs(30),
        _ => Duration::ZERO,
    };
    let damage = seed % 7 == 6;
    Setup { rates, durability, retention, damage, ..Setup::new(seed) }
}

/// `FAULT_SEED` runs a single seed, to reproduce a failure; `FAULT_CYCLES` requests more cycles.
#[test]
fn simulated_runs_with_crashes_violate_no_guarantee() {
    if let Some(seed) = number_from("FAULT_SEED") {
        let setup = setup_of(seed);
        expect(live(setup, ACTS), &setup);
        return;
    }
    let cycles_max = number_from("FAULT_CYCLES").unwrap_or(CYCLES);
    let (mut cycles, mut seed) = (0, 0);
    for seed in FOUND {
        let setup = setup_of(seed);
        cycles += expect(live(setup, ACTS), &setup);
    }
    while cycles < cycles_max {
        let setup = setup_of(seed);
        cycles += expect(live(setup, ACTS), &setup);
        seed += 1;
    }
    eprintln!("{cycles} cycles in {seed} lives");
}

/// Does a short run in which the power is lost at one operation. Returns that operation (`None` if the run
/// ended before it), and the number of openings.
fn cut_life(setup: Setup) -> Checked<(Option<(Kind, String)>, u64)> {
    let mut fixture = Fixture::new(setup)?;
    for _ in 0..110 {
        fixture.act()?;
        // The store was already checked after the cut; it only continues for a few more actions.
        if fixture.cycles > 3 {
            break;
        }
    }
    fixture.finish()?;
    Ok((fixture.disk.cut(), fixture.cycles))
}

/// Removes the number from a file name, so that files of one kind count together.
fn sort((kind, name): (Kind, String)) -> (Kind, String) {
    (kind, name.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned())
}

#[test]
fn a_power_loss_at_any_operation_violates_no_guarantee() {
    let (mut cycles, mut cuts) = (0, BTreeMap::new());
    for life in 0..8 {
        let durability = if life % 3 == 2 { Durability::Relaxed } else { Durability::Sync };
        let retention = if life % 2 == 0 { Duration::MAX } else { Duration::from_secs(life) };
        let base = Setup { durability, retention, ..Setup::new(1_000 + life) };
        for at in 0.. {
            let mut cut = None;
            // In seven of eight rounds the opening itself is interrupted by a second power loss, at each of
            // its steps in turn.
            for again in 0..8 {
                let how = if again % 2 == 0 { Verdict::LosePower } else { Verdict::LosePowerAfter };
                let setup = Setup { cut: Some((at, how)), again, fate: again, ..base };
                let (what, opened) = expect(cut_life(setup), &setup);
                cycles += opened;
                cut = cut.or(what.clone());
                // The returned operation may belong to the second power loss.
                what.into_iter().for_each(|what| *cuts.entry(sort(what)).or_insert(0) += 1);
            }
            if cut.is_none() {
                break;
            }
        }
    }
    eprintln!("{cycles} cycles, {cuts:?}");
    for (kind, name) in [
        (Kind::Create, "next.segment"),
        (Kind::Write, "next.segment"),
        (Kind::Sync, "next.segment"),
        (Kind::Rename, ".segment"),
        (Kind::Write, ".segment"),
        (Kind::Sync, ".segment"),
        (Kind::Remove, "next.segment"),
        (Kind::Write, "next.checkpoint"),
        (Kind::Sync, "next.checkpoint"),
        (Kind::Rename, ".checkpoint"),
        (Kind::Remove, ".checkpoint"),
        (Kind::Write, "rewrite.segment"),
        (Kind::Sync, "rewrite.segment"),
        (Kind::Remove, ".segment"),
        (Kind::SyncDir, ""),
    ] {
        let count = cuts.get(&(kind, name.to_owned())).copied().unwrap_or(0);
        assert!(count >= 2, "the power never went at a {kind:?} of {name:?}");
    }
}
