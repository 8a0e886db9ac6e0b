//! What is decided about checkpoints and speed, as tables.

use super::*;

#[test]
fn a_checkpoint_is_due_after_much_log_or_when_it_sets_space_free() {
    let none = CheckpointDue {
        asked: false,
        log_bytes: 0,
        image_bytes: 0,
        retired_bytes: 0,
        live_bytes: 1_000,
        reclaiming: false,
    };
    for (due, expected) in [
        (CheckpointDue { ..none }, false),
        (CheckpointDue { asked: true, ..none }, true),
        (CheckpointDue { log_bytes: 99, ..none }, false),
        (CheckpointDue { log_bytes: 100, ..none }, true),
        // A large image is not written for a little log.
        (CheckpointDue { log_bytes: 100, image_bytes: 300, ..none }, false),
        (CheckpointDue { log_bytes: 300, image_bytes: 300, ..none }, true),
        // Nothing more will be retired soon.
        (CheckpointDue { retired_bytes: 1, ..none }, true),
        (CheckpointDue { retired_bytes: 100, reclaiming: true, ..none }, false),
        (CheckpointDue { retired_bytes: 101, reclaiming: true, ..none }, true),
        (CheckpointDue { retired_bytes: 99, live_bytes: 10, reclaiming: true, ..none }, false),
    ] {
        let told = (due.log_bytes, due.image_bytes, due.retired_bytes, due.reclaiming);
        assert_eq!(due.is_due(100), expected, "{told:?}");
    }
}

#[test]
fn reclaim_hurries_when_most_is_dead() {
    let usual = RECLAIM_BYTES_PER_SECOND;
    for (bytes, live, expected) in [
        (0, 0, usual),
        (100, 100, usual),
        (124, 100, usual),
        (125, 100, 2 * usual),
        (150, 100, 8 * usual),
        (175, 100, u64::MAX / 1_000),
        (300, 100, u64::MAX / 1_000),
    ] {
        assert_eq!(rate(bytes, live), expected, "{live} of {bytes}");
    }
}
