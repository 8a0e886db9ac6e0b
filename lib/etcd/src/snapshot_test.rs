//! Tests with handmade snapshots, valid and broken. The end-to-end tests read real snapshots.

use std::io::Write;

use super::*;

const PAGE: usize = 4096;

/// `main, key, value`; without a value, the key is deleted.
type State = (i64, &'static str, Option<&'static str>);

fn header(page: &mut [u8], number: u64, flags: u16, count: u16, overflow: u32) {
    page[..8].copy_from_slice(&number.to_le_bytes());
    page[8..10].copy_from_slice(&flags.to_le_bytes());
    page[10..12].copy_from_slice(&count.to_le_bytes());
    page[12..16].copy_from_slice(&overflow.to_le_bytes());
}

fn leaf(number: u64, elements: &[(u32, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut page = vec![0; HEADER_BYTES + elements.len() * ELEMENT_BYTES];
    for (at, (flags, name, value)) in elements.iter().enumerate() {
        let element = HEADER_BYTES + at * ELEMENT_BYTES;
        let pos = (page.len() - element) as u32;
        for (word, at) in [(*flags, 0), (pos, 4), (name.len() as u32, 8), (value.len() as u32, 12)] {
            page[element + at..element + at + 4].copy_from_slice(&word.to_le_bytes());
        }
        page.extend_from_slice(name);
        page.extend_from_slice(value);
    }
    let pages = page.len().div_ceil(PAGE);
    page.resize(pages * PAGE, 0);
    header(&mut page, number, LEAF, elements.len() as u16, pages as u32 - 1);
    page
}

fn branch(number: u64, children: &[u64]) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    header(&mut page, number, BRANCH, children.len() as u16, 0);
    for (at, child) in children.iter().enumerate() {
        let element = HEADER_BYTES + at * ELEMENT_BYTES;
        page[element + 8..element + 16].copy_from_slice(&child.to_le_bytes());
    }
    page
}

fn meta(number: u64, root: u64, transaction: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    header(&mut page, number, 4, 0, 0);
    let meta = &mut page[HEADER_BYTES..];
    meta[..4].copy_from_slice(&MAGIC.to_le_bytes());
    meta[4..8].copy_from_slice(&VERSION.to_le_bytes());
    meta[8..12].copy_from_slice(&(PAGE as u32).to_le_bytes());
    meta[16..24].copy_from_slice(&root.to_le_bytes());
    meta[48..56].copy_from_slice(&transaction.to_le_bytes());
    let sum = fnv1a(&meta[..56]);
    meta[56..64].copy_from_slice(&sum.to_le_bytes());
    page
}

fn states(states: &[State]) -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let element = |(main, key, value): &State| {
        let mut name = [&main.to_be_bytes()[..], b"_", &[0; 8]].concat();
        let mut kv = KeyValue { key: (*key).into(), ..KeyValue::default() };
        match value {
            Some(value) => kv = KeyValue { value: (*value).into(), mod_revision: *main, ..kv },
            None => name.push(b't'),
        }
        (0, name, kv.encode_to_vec())
    };
    states.iter().map(element).collect()
}

/// Returns a valid snapshot: two metas, a root bucket, a branch, two leaves of keys.
fn sound() -> Vec<u8> {
    let head = [6_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    let large = "l".repeat(5000).leak();
    [
        meta(0, 3, 8),
        meta(1, 2, 9),
        leaf(2, &[(IS_BUCKET, b"key".to_vec(), head)]),
        leaf(3, &[]),
        leaf(4, &states(&[(2, "/a", Some("old")), (3, "/b", Some("b")), (4, "/a", Some("new"))])),
        leaf(5, &states(&[(5, "/b", None), (6, "/c", Some("c"))])),
        branch(6, &[4, 5, 7]),
        leaf(7, &states(&[(9, "/large", Some(large)), (10, "/c", None), (11, "/c", Some("again"))])),
    ]
    .concat()
}

fn open(bytes: &[u8]) -> Result<Snapshot, String> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("etcd-snapshot-{}-{count}", std::process::id()));
    File::create(&path).unwrap().write_all(bytes).unwrap();
    let opened = Snapshot::open(&path).map_err(|error| error.to_string());
    std::fs::remove_file(path).unwrap();
    opened
}

#[test]
fn the_newest_state_of_each_key_is_read_from_an_etcd_snapshot() {
    let bytes = sound();
    let with_digest = [&bytes[..], &Sha256::digest(&bytes)].concat();
    for (bytes, has_digest) in [(&bytes, false), (&with_digest, true)] {
        let snapshot = open(bytes).unwrap();
        assert_eq!((snapshot.revision(), snapshot.has_digest()), (11, has_digest));
        let read = |key: &Key| {
            let kv = snapshot.read(key).unwrap();
            (String::from_utf8(kv.key.to_vec()).unwrap(), kv.mod_revision, kv.value.len())
        };
        let states: Vec<_> = snapshot.keys().iter().map(read).collect();
        assert_eq!(states, [("/a".into(), 4, 3), ("/large".into(), 9, 5000), ("/c".into(), 11, 5)]);
    }
}

#[test]
fn a_file_that_is_not_a_snapshot_is_refused_with_a_reason() {
    let change = |at: usize, bytes: &[u8]| {
        let mut file = sound();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let mut digested = sound();
    digested.extend_from_slice(&[7; 32]);
    for (file, want) in [
        (Vec::new(), "no valid meta page"),
        (b"SQLite format 3\0".repeat(1000), "no valid meta page"),
        (digested, "its digest does not match its content"),
        (sound()[..4 * PAGE].to_vec(), "page 6 is not in the file"),
        // The root has no bucket of keys, or a bucket without a page.
        (change(2 * PAGE + 32, b"kex"), "there is no bucket of keys"),
        (change(2 * PAGE + 35, &u64::MAX.to_le_bytes()), "is not in the file"),
        // A branch contains itself; a page has another number, an unknown type, or is too large.
        (change(6 * PAGE + 16 + 8, &6_u64.to_le_bytes()), "page 6 is used twice"),
        (change(6 * PAGE + 16 + 8, &5_u64.to_le_bytes()), "page 5 is used twice"),
        (change(4 * PAGE, &9_u64.to_le_bytes()), "page 4 has another number"),
        (change(4 * PAGE + 8, &[0x10, 0]), "a page of an unknown form (0x10)"),
        (change(4 * PAGE + 12, &u32::MAX.to_le_bytes()), "page 4 is larger than the file"),
        // Elements lie outside of their page.
        (change(4 * PAGE + 10, &u16::MAX.to_le_bytes()), "an element is not in its page"),
        (change(4 * PAGE + 16 + 4, &u32::MAX.to_le_bytes()), "an element is not in its page"),
        (change(4 * PAGE + 16 + 12, &u32::MAX.to_le_bytes()), "an element is not in its page"),
        (change(4 * PAGE + 16, &IS_BUCKET.to_le_bytes()), "a bucket has no head"),
        (change(4 * PAGE + 16 + 8, &3_u32.to_le_bytes()), "a key is not a revision"),
    ] {
        let error = open(&file).map(|snapshot| snapshot.revision()).unwrap_err();
        assert!(error.contains(want), "{error}, not {want}");
    }
}

#[test]
fn a_changed_or_truncated_snapshot_never_causes_a_panic() {
    let file = sound();
    for at in (0..file.len()).step_by(31) {
        let mut changed = file.clone();
        for byte in [0, 0xff, changed[at] ^ 1, changed[at] ^ 0x80] {
            changed[at] = byte;
            let _ = open(&changed);
        }
    }
    for len in (0..file.len()).step_by(509) {
        let _ = open(&file[..len]);
    }
}
