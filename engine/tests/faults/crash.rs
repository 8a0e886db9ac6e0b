//! Power losses and killed processes: at every operation that can matter, and at random ones in long lives.

use engine::Durability;
use engine::fault::Verdict;

use crate::history::Checked;
use crate::world::{Rates, Setup, World, live};

/// Cycles of crash and opening that the random lives go through together, unless `FAULT_CYCLES` says otherwise.
const CYCLES: u64 = 14_000;

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

/// The worlds of a seed: what goes wrong in them differs.
fn world_of(seed: u64) -> Setup {
    let often = Rates { sync_fails: 40, write_fails: 60, write_full: 30, disk_full: 2 };
    let rates = match seed % 4 {
        0 | 1 => Rates::default(),
        2 => Rates { sync_fails: 40, write_fails: 60, ..Rates::default() },
        _ => often,
    };
    let durability = if seed % 5 == 4 { Durability::Relaxed } else { Durability::Sync };
    Setup { rates, durability, ..Setup::new(seed) }
}

/// `FAULT_SEED` lives one life only, to see a failure again; `FAULT_CYCLES` asks for more of them.
#[test]
fn no_life_full_of_crashes_breaks_a_promise() {
    if let Some(seed) = number_from("FAULT_SEED") {
        let setup = world_of(seed);
        expect(live(setup, ACTS), &setup);
        return;
    }
    let wanted = number_from("FAULT_CYCLES").unwrap_or(CYCLES);
    let (mut cycles, mut seed) = (0, 0);
    while cycles < wanted {
        let setup = world_of(seed);
        cycles += expect(live(setup, ACTS), &setup);
        seed += 1;
    }
    eprintln!("{cycles} cycles in {seed} lives");
}

/// A short life that is cut at its operation number `at`; how often the store was opened, `None` when it was over
/// before.
fn cut_life(base: Setup, at: u64, how: Verdict) -> Checked<Option<u64>> {
    let setup = Setup { cut: Some((at, how)), ..base };
    let mut world = World::new(setup)?;
    let mut left = 30;
    for _ in 0..60 {
        world.act()?;
        // A few more acts after the cut, and that is it.
        left -= i32::from(world.cycles > 1);
        if left == 0 {
            break;
        }
    }
    world.finish()?;
    Ok((world.disk.operations() > at).then_some(world.cycles))
}

#[test]
fn the_power_may_go_at_every_operation() {
    let (mut cycles, mut points) = (0, 0);
    for life in 0..4 {
        let durability = if life == 3 { Durability::Relaxed } else { Durability::Sync };
        let base = Setup { durability, ..Setup::new(1_000 + life) };
        for at in 0.. {
            let mut reached = false;
            for how in [Verdict::LosePower, Verdict::LosePowerAfter] {
                let done = expect(cut_life(base, at, how), &Setup { cut: Some((at, how)), ..base });
                cycles += done.unwrap_or(0);
                reached |= done.is_some();
            }
            if !reached {
                points += at;
                break;
            }
        }
    }
    eprintln!("{points} operations, {cycles} cycles");
    assert!(points > 300, "{points}");
}
