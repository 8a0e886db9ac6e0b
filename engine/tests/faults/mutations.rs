//! A test of the tests: each protection is disabled in turn, and a guarantee must fail.

use std::time::Duration;

use engine::Durability;
use engine::fault::{Sabotage, Sabotaged};

use crate::damage;
use crate::fixture::{Rates, Setup, live};
use crate::history::{Checked, Guarantee};

/// Number of fixtures that are tried before a mutation counts as unnoticed.
const FIXTURES: u64 = 400;

fn crashes(seed: u64) -> Checked {
    live(Setup::new(seed), 150).map(drop)
}

fn failing_syncs(seed: u64) -> Checked {
    let rates = Rates { sync_fails: 15, ..Rates::default() };
    live(Setup { rates, ..Setup::new(seed) }, 150).map(drop)
}

fn copy_on_write(seed: u64) -> Checked {
    let rates = Rates { write_full: 5, ..Rates::default() };
    live(Setup { rates, ..Setup::new(seed) }, 150).map(drop)
}

fn relaxed(seed: u64) -> Checked {
    live(Setup { durability: Durability::Relaxed, ..Setup::new(seed) }, 150).map(drop)
}

fn forgetful(seed: u64) -> Checked {
    let retention = Duration::from_secs(seed % 2 * 20);
    live(Setup { retention, ..Setup::new(seed) }, 250).map(drop)
}

fn damaged(seed: u64) -> Checked {
    let retention = Duration::from_secs(seed % 2 * 20);
    live(Setup { retention, damage: true, ..Setup::new(seed) }, 250).map(drop)
}

fn damaged_relaxed(seed: u64) -> Checked {
    let (durability, retention) = (Durability::Relaxed, Duration::from_secs(seed % 2 * 20));
    live(Setup { durability, retention, damage: true, ..Setup::new(seed) }, 250).map(drop)
}

fn forgetful_relaxed(seed: u64) -> Checked {
    let durability = Durability::Relaxed;
    live(Setup { durability, retention: Duration::from_secs(20), ..Setup::new(seed) }, 250).map(drop)
}

#[test]
fn disabling_any_protection_makes_a_test_fixture_fail() {
    use Guarantee::{Atomic, Durable, ExactVersion, Filtered, NoGhost, Ordered, QuickOpen, Resumable};
    type Fixture = fn(u64) -> Checked;
    let mutations: &[(Sabotage, Fixture, &[Guarantee])] = &[
        (Sabotage::AckBeforeSync, crashes, &[Durable]),
        (Sabotage::WritesAfterFailedSync, failing_syncs, &[Durable, Ordered, NoGhost, Atomic]),
        (Sabotage::ExpectationSkipped, crashes, &[ExactVersion]),
        (Sabotage::RefusedWriteLeft, copy_on_write, &[NoGhost, Durable, ExactVersion, Resumable]),
        (Sabotage::CrcIgnored, crashes, &[Atomic]),
        (Sabotage::SaltIgnored, damage::record_in_a_value, &[NoGhost, ExactVersion]),
        (Sabotage::RollWithoutSync, relaxed, &[Durable]),
        (Sabotage::HighWaterNotRaised, damaged, &[Durable]),
        (Sabotage::HighWaterNotNoted, damage::cut_after_a_kill, &[Durable]),
        (Sabotage::RenameBeforeSync, crashes, &[Durable]),
        (Sabotage::NoDirSync, crashes, &[Durable]),
        (Sabotage::TornTailKept, crashes, &[Durable]),
        (Sabotage::TornTailNotCleared, crashes, &[NoGhost, Ordered, Atomic, ExactVersion, Durable]),
        (Sabotage::RecoveryWithoutSync, crashes, &[Durable]),
        (Sabotage::TailNotRewritten, failing_syncs, &[Durable]),
        (Sabotage::SecondHeaderIgnored, damaged, &[Durable]),
        (Sabotage::SyncedMarksIgnored, damaged, &[Durable]),
        (Sabotage::BloomKindIgnored, forgetful, &[Filtered]),
        (Sabotage::WitnessIgnored, damaged, &[Durable]),
        (Sabotage::ForgottenForUnsynced, damaged_relaxed, &[Durable, ExactVersion]),
        (Sabotage::ExpiryUnconditional, forgetful, &[NoGhost, ExactVersion, Ordered]),
        (Sabotage::RewriteNamedBeforeSync, forgetful, &[Durable]),
        (Sabotage::CheckpointNamedBeforeSync, forgetful, &[QuickOpen]),
        (Sabotage::CheckpointNameNotSynced, forgetful, &[QuickOpen]),
        (Sabotage::CheckpointWhileMoving, forgetful, &[QuickOpen]),
        (Sabotage::CheckpointOfUnsynced, forgetful_relaxed, &[Durable]),
        (Sabotage::RetiredBeforeCheckpoint, forgetful, &[QuickOpen]),
        (Sabotage::TombstoneDropped, damaged, &[NoGhost, ExactVersion, Durable]),
        (Sabotage::UnreadableEndCut, damage::unreadable_end, &[Durable]),
        (Sabotage::HolePassedOver, damage::hole_in_the_log, &[Resumable]),
    ];
    for &sabotage in Sabotage::ALL {
        let row = mutations.iter().find(|(known, _, _)| *known == sabotage);
        let (_, fixture, guarantees) = row.unwrap_or_else(|| panic!("no row checks {sabotage:?}"));
        let sabotaged = Sabotaged::with(sabotage);
        let noticed = (0..FIXTURES).find_map(|seed| Some((seed, fixture(seed).err()?)));
        drop(sabotaged);
        let Some((seed, violation)) = noticed else { panic!("{sabotage:?} was not noticed") };
        assert!(guarantees.contains(&violation.guarantee), "{sabotage:?}, seed {seed}: {violation}");
        eprintln!("{sabotage:?}, seed {seed}: {violation}");
        // With the protection enabled, the same fixture succeeds.
        assert!(fixture(seed).is_ok(), "seed {seed} does not need {sabotage:?} to fail");
    }
}
