//! The simulated disk keeps only the promises that a real disk keeps.

use std::collections::BTreeSet;

use super::*;

fn files(disk: &Disk) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
    disk.files().into_iter().map(|(name, bytes)| (name, text(bytes))).collect()
}

fn after_power_loss(disk: &Disk, seed: u64) -> Vec<(String, String)> {
    disk.lose_power();
    assert!(disk.sync_dir().is_err());
    disk.restore_power(seed);
    files(disk)
}

#[test]
fn after_a_power_loss_synced_bytes_remain_and_others_may_be_lost_or_torn() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let disk = Disk::new(seed);
        let file = disk.create("a", 3 * 512).unwrap();
        file.write_at(0, b"synced").unwrap();
        file.sync_data().unwrap();
        disk.sync_dir().unwrap();
        file.write_at(512, b"one").unwrap();
        file.write_at(1024, b"two").unwrap();
        file.write_at(512, b"ONE").unwrap();
        assert_eq!(&file.read(512, 3).unwrap()[..], b"ONE");
        disk.lose_power();
        disk.restore_power(seed);
        let bytes = disk.files().remove("a").unwrap();
        assert_eq!(&bytes[..6], b"synced");
        let text = |at: usize| String::from_utf8_lossy(&bytes[at..at + 3]).trim_end_matches('\0').to_owned();
        seen.insert((text(512), text(1024)));
        // The handle belongs to a process that has ended.
        assert!(file.write_at(0, b"late").is_err() && file.sync_data().is_err());
    }
    for (one, two) in [
        ("", ""),
        ("one", ""),
        ("ONE", ""),
        ("", "two"),
        ("one", "two"),
        ("ONE", "two"),
        ("ONe", "two"),
        ("one", "tw"),
    ] {
        assert!(seen.contains(&(one.into(), two.into())), "{one:?} {two:?} in {seen:?}");
    }
}

#[test]
fn a_renamed_file_may_have_either_name_until_its_directory_is_synced() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let disk = Disk::new(seed);
        for name in ["a", "b"] {
            let file = disk.create(name, 8).unwrap();
            file.write_at(0, name.as_bytes()).unwrap();
            file.sync_data().unwrap();
        }
        disk.sync_dir().unwrap();
        disk.rename("a", "c").unwrap();
        disk.remove("b").unwrap();
        assert_eq!(files(&disk), [("c".into(), "a".into())]);
        let left: Vec<String> = after_power_loss(&disk, seed).into_iter().map(|(name, _)| name).collect();
        seen.insert(left.concat());
    }
    assert_eq!(seen, ["ab", "a", "bc", "c"].map(String::from).into());
}

#[test]
fn a_later_sync_does_not_restore_pages_that_a_failed_sync_dropped() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = Disk::new(seed);
        let file = disk.create("a", 4096).unwrap();
        disk.sync_dir().unwrap();
        file.sync_data().unwrap();
        disk.follow(|operation| match operation.kind {
            Kind::Sync => Verdict::Fail,
            _ => Verdict::Proceed,
        });
        file.write_at(0, b"dropped").unwrap();
        assert!(file.sync_data().is_err());
        disk.behave();
        file.sync_data().unwrap();
        assert_eq!(&file.read(0, 7).unwrap()[..], b"dropped");
        file.write_at(1000, b"again").unwrap();
        file.sync_data().unwrap();
        disk.lose_power();
        disk.restore_power(seed);
        let bytes = disk.files().remove("a").unwrap();
        assert_eq!(&bytes[1000..1005], b"again");
        lost += u32::from(bytes[0] == 0);
    }
    assert!((1..100).contains(&lost), "{lost}");
}

#[test]
fn a_full_simulated_disk_accepts_only_writes_to_allocated_space() {
    let disk = Disk::new(1);
    let file = disk.create("a", 8 * PAGE_BYTES).unwrap();
    file.write_at(0, &[1; 5000]).unwrap();
    assert_eq!(file.written(0).unwrap(), Some(0..8192));
    disk.limit_free_pages(Some(1));
    let error = file.write_at(6000, &[2; 10_000]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    // As many bytes as fit were written.
    assert_eq!(file.read(12_287, 2).unwrap()[..], [2, 0]);
    file.write_at(0, &[3; 12_000]).unwrap();
    assert!(file.write_at(20_000, &[1]).is_err());
    disk.remove("a").unwrap();
    let other = disk.create("b", 8 * PAGE_BYTES).unwrap();
    other.write_at(PAGE_BYTES, &[1; 3 * PAGE_BYTES as usize]).unwrap();
    assert!(other.write_at(0, &[1]).is_err());
    assert_eq!(other.written(0).unwrap(), Some(PAGE_BYTES..4 * PAGE_BYTES));
    assert_eq!(other.written(4 * PAGE_BYTES).unwrap(), None);
}

#[test]
fn the_simulated_disk_leaves_the_same_bytes_for_the_same_seed() {
    let run = |seed| {
        let disk = Disk::new(3);
        let file = disk.create("a", 1 << 16).unwrap();
        disk.sync_dir().unwrap();
        (0..50).for_each(|n| file.write_at(n * 1000, &[n as u8 + 1; 1500]).unwrap());
        after_power_loss(&disk, seed)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_fault_plan_receives_every_operation_with_number_and_name() {
    let disk = Disk::new(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    disk.follow(move |operation| {
        noted.lock().push((operation.number, operation.kind, operation.name.to_owned()));
        Verdict::Proceed
    });
    let file = disk.create("a", 10).unwrap();
    disk.rename("a", "b").unwrap();
    file.write_at(0, b"x").unwrap();
    file.read(0, 1).unwrap();
    disk.sync_dir().unwrap();
    let expected = [
        (0, Kind::Create, "a"),
        (1, Kind::Rename, "b"),
        (2, Kind::Write, "b"),
        (3, Kind::Read, "b"),
        (3, Kind::SyncDir, ""),
    ];
    assert_eq!(*seen.lock(), expected.map(|(number, kind, name)| (number, kind, name.to_owned())));
    assert_eq!(disk.operations(), 4);
}
