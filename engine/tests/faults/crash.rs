//! Power losses and killed processes: at every operation that can matter, and at random ones in long lives.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Durability;
use engine::fault::{Kind, Verdict};

use crate::fixture::{Fixture, Rates, Setup, live};
use crate::history::Checked;

/// Cycles of crash and opening that the random lives go through together, unless `FAULT_CYCLES` says otherwise.
const CYCLES: u64 = 14_000;

/// Lives further on in which something was found: a deleted key came back when what reclaim had written in vain was
/// removed in any order; a segment counted as missing that had been left without records, before one that was written
/// anew.
const FOUND: [u64; 2] = [13_516, 1_367];

/// Acts in one life.
const ACTS: u64 = 400;

fn number_from(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?} and must be a number")))
}

/// Panics with all that is needed to see a violation again.
#[track_caller]
fn expect<T>(checked: Checked<T>, setup: &Setup) -> T {
    checked.unwrap_or_else(|violation| panic!("{violation}\n  in {setup:?}"))
}

/// The fixtures of a seed: what goes wrong in them differs.
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

/// `FAULT_SEED` lives one life only, to see a failure again; `FAULT_CYCLES` asks for more of them.
#[test]
fn no_life_full_of_crashes_breaks_a_promise() {
    if let Some(seed) = number_from("FAULT_SEED") {
        let setup = setup_of(seed);
        expect(live(setup, ACTS), &setup);
        return;
    }
    let wanted = number_from("FAULT_CYCLES").unwrap_or(CYCLES);
    let (mut cycles, mut seed) = (0, 0);
    for seed in FOUND {
        let setup = setup_of(seed);
        cycles += expect(live(setup, ACTS), &setup);
    }
    while cycles < wanted {
        let setup = setup_of(seed);
        cycles += expect(live(setup, ACTS), &setup);
        seed += 1;
    }
    eprintln!("{cycles} cycles in {seed} lives");
}

/// A short life with a cut: what was cut, `None` when the life was over before; and how often it was opened.
fn cut_life(setup: Setup) -> Checked<(Option<(Kind, String)>, u64)> {
    let mut fixture = Fixture::new(setup)?;
    for _ in 0..110 {
        fixture.act()?;
        // What was left has been looked through; a few acts more, and that is it.
        if fixture.cycles > 3 {
            break;
        }
    }
    fixture.finish()?;
    Ok((fixture.disk.cut(), fixture.cycles))
}

/// Files of one sort count as one.
fn sort((kind, name): (Kind, String)) -> (Kind, String) {
    (kind, name.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned())
}

#[test]
fn the_power_may_go_at_every_operation() {
    let (mut cycles, mut cuts) = (0, BTreeMap::new());
    for life in 0..8 {
        let durability = if life % 3 == 2 { Durability::Relaxed } else { Durability::Sync };
        let retention = if life % 2 == 0 { Duration::MAX } else { Duration::from_secs(life) };
        let base = Setup { durability, retention, ..Setup::new(1_000 + life) };
        for at in 0.. {
            let mut cut = None;
            // Seven times the power goes once more, at each step of the opening.
            for again in 0..8 {
                let how = if again % 2 == 0 { Verdict::LosePower } else { Verdict::LosePowerAfter };
                let setup = Setup { cut: Some((at, how)), again, fate: again, ..base };
                let (what, opened) = expect(cut_life(setup), &setup);
                cycles += opened;
                cut = cut.or(what.clone());
                // What was cut last may be the second of them.
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
