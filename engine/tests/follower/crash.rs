//! Power losses at every operation of a follower's disk: acknowledged revisions stay, and revisions are
//! complete.

use std::time::Duration;

use engine::fault::{self, Disk, Kind, Random, Verdict, now};
use engine::{ApplyError, Durability, Options, Revision, Role};

use crate::script::Script;

fn options(durability: Durability) -> Options {
    Options {
        segment_bytes: 16 * 1024,
        durability,
        history_retention: Duration::MAX,
        role: Role::Follower,
        ..Options::new("simulated")
    }
}

/// Restores the power; from now on nothing fails.
fn come_back(disk: &Disk, random: &mut Random) {
    disk.restore_power(random.next());
    disk.behave();
}

/// Applies the script with a power loss at operation `cut`. Returns false if the run ended before that
/// operation.
fn run(seed: u64, script: &Script, cut: u64, durability: Durability) -> bool {
    let mut random = Random::new(seed ^ cut);
    let disk = Disk::new(seed);
    let verdict = if random.one_in(2) { Verdict::LosePower } else { Verdict::LosePowerAfter };
    disk.follow(move |operation| match operation.kind {
        Kind::Read => Verdict::Proceed,
        _ if operation.number == cut => verdict,
        _ => Verdict::Proceed,
    });
    let (mut acknowledged, mut crashes) = (Revision::ZERO, 0);
    while acknowledged < script.newest() {
        let (engine, mut stepper) = match fault::open(&disk, &options(durability)) {
            Ok(opened) => opened,
            Err(error) => {
                assert!(!disk.has_power(), "seed {seed}, cut {cut}: {error}");
                come_back(&disk, &mut random);
                crashes += 1;
                continue;
            }
        };
        let found = engine.revision();
        let what = format!("seed {seed}, cut {cut}: {found} after {acknowledged} was acknowledged");
        assert!(script.has(Revision::new(found.get())), "{what}");
        assert!(found >= Revision::new(acknowledged.get()) || durability != Durability::Sync, "{what}");
        assert_eq!(engine.stats().lost_revisions, 0, "{what}");
        if crashes > 0 {
            script.check(&engine, &mut random);
        }
        acknowledged = Revision::new(found.get());
        while acknowledged < Revision::new(script.newest().get()) && disk.has_power() {
            match stepper.apply(&engine, script.batch(Revision::new(engine.revision().get()), &mut random)) {
                Ok(revision) => {
                    assert_eq!(revision, engine.revision());
                    acknowledged = Revision::new(revision.get());
                }
                Err(ApplyError::Refused(_)) => {}
                Err(error) => panic!("seed {seed}, cut {cut}: {error}"),
            }
            match random.below(6) {
                0 => _ = stepper.keep(),
                1 | 2 => _ = stepper.maintain(),
                3 if random.one_in(3) => {
                    let oldest = engine.stats().oldest;
                    let to = Revision::new(oldest.get() + random.below(engine.revision().since(oldest) + 1));
                    let _ = now(engine.compact(to));
                }
                4 if random.one_in(4) => drop(now(engine.checkpoint())),
                _ => {}
            }
        }
        if disk.has_power() {
            for _ in 0..50 {
                stepper.maintain();
                stepper.commit();
            }
            script.check(&engine, &mut random);
            stepper.close();
        } else {
            drop((engine, stepper));
            come_back(&disk, &mut random);
            crashes += 1;
        }
    }
    if crashes == 0 {
        return false;
    }
    let (engine, _stepper) = fault::open(&disk, &options(durability)).unwrap();
    assert_eq!(engine.revision(), Revision::new(script.newest().get()), "seed {seed}, cut {cut}");
    script.check(&engine, &mut random);
    true
}

#[test]
fn a_power_loss_on_a_follower_loses_no_acknowledged_revision_and_splits_none() {
    for seed in 1..=4 {
        let durability = match seed {
            2 => Durability::Replicated,
            4 => Durability::Relaxed,
            _ => Durability::Sync,
        };
        let script = Script::new(seed, 300);
        let cuts = (0..).take_while(|&cut| run(seed, &script, cut, durability)).count();
        assert!(cuts > 60, "{cuts} operations");
    }
}
