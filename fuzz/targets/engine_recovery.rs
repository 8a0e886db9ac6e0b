//! Recovery: with any contents of the store's directory, the store opens or reports the reason in one line.
//! An opened store has the same states when it is opened again.
//!
//! ```text
//! nothing, an intact store, or one after maintenance
//!                           ─► edits from the bytes: overwrite, cut, move, forge with valid checksums
//!                           ─► open ─► read everything, follow everything, write ─► open again: the same
//! ```

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk, Stepper};
use engine::{Change, Engine, EventKind, Expected, KeyRange, OpenError, Options, Payload, Revision, Write};

use crate::input::Input;

/// Maximum number of edits of one input.
const EDITS_MAX: usize = 24;

/// Start of the records, their alignment and the bytes before their keys (docs/format.md).
const RECORDS_START: usize = 4096;
const ALIGN: usize = 8;
const HEAD_BYTES: usize = 72;

/// File names that the store uses, and some other file names.
const NAMES: &[&str] = &[
    "0000000001.segment",
    "0000000002.segment",
    "0000000003.segment",
    "0000000004.segment",
    "0000000000.segment",
    "4294967295.segment",
    "next.segment",
    "rewrite.segment",
    "next.checkpoint",
    "00000000000000000060.checkpoint",
    "00000000000000000103.checkpoint",
    "notes.txt",
];

pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Edits the files of a store by the bytes, opens it, reads everything, writes, and opens it again.
pub fn engine_recovery(data: &[u8]) {
    let mut input = Input::new(data);
    let mut files = match input.byte() & 3 {
        1 => sound().clone(),
        3 => looked_after().clone(),
        _ => Files::new(),
    };
    for _ in 0..EDITS_MAX {
        if input.is_empty() {
            break;
        }
        edit(&mut files, &mut input);
    }
    check(&Disk::with_files(1, &files));
}

/// Opens a store with small segments.
pub(super) fn open(disk: &Disk) -> Result<(Engine, Stepper), OpenError> {
    fault::open(disk, &Options { segment_bytes: 32 * 1024, ..Options::new("/simulated") })
}

/// Checks the invariants of a store on `disk`, which may have any contents.
pub(super) fn check(disk: &Disk) {
    let (engine, mut stepper) = match open(disk) {
        Ok(opened) => opened,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            assert!(text.contains("/simulated"), "{text:?} does not name the path");
            return;
        }
    };
    let shown = everything(&engine);
    let events = follow(&engine);
    let (before, oldest) = (engine.revision(), engine.stats().oldest);
    let write = Write {
        key: Bytes::from_static(b"/after"),
        expected: Expected::Any,
        change: Change::Put(Payload { value: vec![b'v'; 5000].into(), ..Payload::default() }),
    };
    let done = stepper.write(&engine, write).expect("an open store takes writes");
    assert_eq!((done.revision, engine.health()), (before.next(), Ok(())));
    stepper.close();
    drop(engine);

    disk.restart();
    let (engine, _stepper) = open(disk).expect("what was open opens again");
    assert_eq!(engine.revision(), before.next());
    let mut again = everything(&engine);
    assert!(
        again
            .remove(&b"/after"[..])
            .is_some_and(|(revision, value)| revision == before.next() && value.is_some())
    );
    let mut shown = shown;
    shown.remove(&b"/after"[..]);
    assert_eq!(again, shown, "the store shows other states than before");
    // A forged number may place the compaction in the future; the history then ends with the newest revision.
    if engine.stats().oldest == oldest {
        assert_eq!(follow(&engine), events.map(|count| count + 1));
    }
}

/// Returns every key with its revision and, if readable, its value.
fn everything(engine: &Engine) -> BTreeMap<Vec<u8>, (Revision, Option<Bytes>)> {
    let newest = engine.snapshot();
    let mut found = BTreeMap::new();
    for entry in newest.range(KeyRange::all()) {
        assert!(entry.revision() <= newest.revision() && entry.created() <= entry.revision());
        let value = entry.read().ok().map(|record| {
            assert_eq!(&record.key, entry.key());
            record.value
        });
        assert!(found.insert(entry.key().to_vec(), (entry.revision(), value)).is_none(), "a key twice");
    }
    let stats = engine.stats();
    assert_eq!((newest.count(&KeyRange::all()), stats.keys), (found.len() as u64, found.len() as u64));
    assert_eq!(stats.revision, newest.revision());
    let step = (newest.revision().get() / 16).max(1);
    for revision in (stats.oldest.get()..newest.revision().get()).step_by(step as usize).take(20) {
        let revision = Revision::new(revision);
        let past = engine.snapshot_at(revision).expect("every revision from the oldest on is kept");
        assert_eq!(past.count(&KeyRange::all()), past.range(KeyRange::all()).count() as u64);
        for entry in past.range(KeyRange::all()) {
            assert!(
                entry.revision() <= revision && entry.read().map_or(true, |record| record.key == entry.key())
            );
        }
    }
    found
}

/// Returns the number of events of a tail from the oldest revision; `None` if an event is damaged.
fn follow(engine: &Engine) -> Option<usize> {
    let oldest = engine.stats().oldest;
    let mut tail = engine.tail(oldest, Bytes::new()).expect("what is kept can be followed");
    let (mut seen, mut last) = (0, Revision::ZERO);
    loop {
        let Some(next) = fault::now(tail.next(64)) else { return Some(seen) };
        let Ok(events) = next else { return None };
        for event in events {
            assert!(event.revision > last && event.revision <= engine.revision());
            assert!(matches!(event.kind, EventKind::Put | EventKind::Delete));
            let _ = event.entry.read();
            last = event.revision;
            seen += 1;
        }
    }
}

/// Returns the files of a store with three segments, puts, deletes and stamps.
pub(super) fn sound() -> &'static Files {
    static SOUND: OnceLock<Files> = OnceLock::new();
    SOUND.get_or_init(|| {
        let disk = Disk::new(1);
        let (engine, mut stepper) = open(&disk).expect("a new store opens");
        write_some(&engine, &mut stepper, 120);
        stepper.close();
        let files = disk.files();
        assert!(files.len() >= 3, "three segments");
        files
    })
}

/// Returns the files of a store with rewritten segments, a checkpoint, and a log that continues after it.
pub(super) fn looked_after() -> &'static Files {
    static LOOKED_AFTER: OnceLock<Files> = OnceLock::new();
    LOOKED_AFTER.get_or_init(|| {
        let disk = Disk::new(2);
        let (engine, mut stepper) = open(&disk).expect("a new store opens");
        write_some(&engine, &mut stepper, 200);
        let _ = fault::now(engine.compact(Revision::new(engine.revision().get() - 20)));
        for _ in 0..2 {
            for _ in 0..10_000 {
                if !stepper.maintain() {
                    stepper.commit();
                    disk.pass(Duration::from_millis(10));
                }
            }
            write_some(&engine, &mut stepper, 10);
            // Write the checkpoint once more, while the original segments are still next to the rewritten
            // segments.
            let _ = fault::now(engine.checkpoint());
        }
        stepper.close();
        let files = disk.files();
        let rewritten =
            files.values().any(|content| content[..8] == *b"REVLOG\r\n" && content[40..48] != [0; 8]);
        assert!(rewritten && files.keys().any(|name| name.ends_with(".checkpoint")), "{:?}", files.keys());
        files
    })
}

/// Writes puts and deletes of forty keys, with stamps and attributes.
fn write_some(engine: &Engine, stepper: &mut Stepper, count: usize) {
    for at in 0..count {
        let key = Bytes::from(format!("/k/{:02}", at % 40));
        let value = format!("{{\"v\":\"\",\"x\":\"{}\"}}", "x".repeat(at * 37 % 1450)).into();
        let payload = Payload { attributes: key.clone(), value, stamp_at: Some(6), ..Payload::default() };
        let change = if at % 7 == 6 { Change::Delete(None) } else { Change::Put(payload) };
        // A delete of an absent key is refused, which is also valid.
        let _ = stepper.write(engine, Write { key, expected: Expected::Any, change });
    }
}

fn edit(files: &mut Files, input: &mut Input) {
    let name = match usize::from(input.byte()) {
        number @ 128.. if !files.is_empty() => {
            files.keys().nth(number % files.len()).cloned().unwrap_or_default()
        }
        number => NAMES[number % NAMES.len()].to_owned(),
    };
    let kind = input.below(13);
    if kind == 0 {
        let len = input.below(512);
        let bytes = input.take(len).to_vec();
        files.insert(name, bytes);
        return;
    }
    let Some(content) = files.get_mut(&name).filter(|content| !content.is_empty()) else {
        files.entry(name).or_insert_with(|| vec![0; 8192]);
        return;
    };
    // A position is a number of two bytes, doubled or not, so most positions are near a record.
    let at = (input.below(1 << 16) << (input.byte() & 1)) % content.len();
    match kind {
        1 => content[at] ^= 1 << input.below(8),
        2 => {
            let len = input.below(64);
            let bytes = input.take(len);
            let end = (at + bytes.len()).min(content.len());
            content[at..end].copy_from_slice(&bytes[..end - at]);
        }
        3 => content[at..].fill(0),
        4 => content.truncate(at),
        5 => {
            files.remove(&name);
        }
        6 => {
            let to = (input.pick(NAMES)).to_owned();
            let content = content.clone();
            files.insert(to, content);
        }
        7 => {
            // Copy a block from another position, as after a misdirected write.
            let (from, to) = (at & !511, (input.below(1 << 16) & !511) % content.len());
            let len = (512 * (1 + input.below(8))).min(content.len() - from.max(to));
            content.copy_within(from..from + len, to);
        }
        8 => content.resize(content.len() + input.below(1 << 16), input.byte()),
        9 => forge_header(content, input),
        12 => forge_checkpoint(content, input),
        _ => forge_record(content, input),
    }
}

/// Returns a number that is likely to be at a limit.
fn number(input: &mut Input) -> u64 {
    match input.below(6) {
        0 => input.u64(),
        // Revisions end at 2^62. Some revisions are left for the writes of this test.
        1 => (1 << 62) - 10 - input.below(4) as u64,
        2 => u64::MAX - input.below(4) as u64,
        _ => input.below(300) as u64,
    }
}

/// Changes a field of the segment's header in both copies, and corrects their checksums.
fn forge_header(content: &mut [u8], input: &mut Input) {
    let field = input.pick(&[24, 8, 12, 16, 32, 40, 48, 56, 64, 72, 0]);
    let number = number(input).to_le_bytes();
    for copy in [0, 2048] {
        let Some(header) = content.get_mut(copy..copy + 128) else { return };
        header[field..field + 8].copy_from_slice(&number);
        let crc = crc32fast::hash(&header[..124]);
        header[124..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Changes a number in a checkpoint, in its header or in its blocks, and corrects all checksums.
fn forge_checkpoint(content: &mut [u8], input: &mut Input) {
    if content.len() < 128 || content[..8] != *b"REVCKPT\n" {
        return;
    }
    let size = content.len();
    let at = match input.below(3) {
        0 => 8 + 4 * input.below(20),
        1 => RECORDS_START + 4 * input.below(64),
        _ => RECORDS_START + 4 * input.below(1 << 12),
    };
    let len = if input.below(2) == 0 { 8 } else { 4 };
    let number = number(input).to_le_bytes();
    if let Some(field) = content.get_mut(at.min(size)..(at + len).min(size)) {
        field.copy_from_slice(&number[..field.len()]);
    }
    let salt = content[24..32].to_vec();
    let mut at = RECORDS_START;
    while let Some(len) = content.get(at + 4..at + 8) {
        let end = at + 8 + u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let Some(block) = content.get(at + 4..end) else { break };
        let mut crc = crc32fast::Hasher::new();
        crc.update(&salt);
        crc.update(&(at as u64).to_le_bytes());
        crc.update(block);
        let crc = crc.finalize().to_le_bytes();
        content[at..at + 4].copy_from_slice(&crc);
        at = end;
    }
    let crc = crc32fast::hash(&content[..124]).to_le_bytes();
    content[124..128].copy_from_slice(&crc);
}

/// Changes a field of a record's header, and corrects its checksum.
fn forge_record(content: &mut [u8], input: &mut Input) {
    let Some(salt) = content.get(32..40).map(<[u8]>::to_vec) else { return };
    let mut at = RECORDS_START;
    let count = input.below(40);
    let u32_at = |content: &[u8], at: usize| {
        u32::from_le_bytes([content[at], content[at + 1], content[at + 2], content[at + 3]])
    };
    let key_len =
        |content: &[u8], at: usize| usize::from(u16::from_le_bytes([content[at + 68], content[at + 69]]));
    for _ in 0..count {
        if at + HEAD_BYTES > content.len() {
            return;
        }
        let lens = u32_at(content, at + 48) as usize + u32_at(content, at + 52) as usize;
        let next = (at + HEAD_BYTES + lens + key_len(content, at)).next_multiple_of(ALIGN);
        if next + HEAD_BYTES > content.len() || content[next + 71] == 0 {
            break;
        }
        at = next;
    }
    if at + HEAD_BYTES > content.len() {
        return;
    }
    // The expiry is excluded, because the store would delete the key during the reads.
    let (field, size) = input.pick(&[
        (8, 8),
        (16, 8),
        (24, 8),
        (32, 8),
        (40, 8),
        (48, 4),
        (52, 4),
        (56, 4),
        (60, 4),
        (68, 2),
        (70, 1),
        (71, 1),
    ]);
    let number = number(input).to_le_bytes();
    content[at + field..at + field + size].copy_from_slice(&number[..size]);
    let end = at + HEAD_BYTES + key_len(content, at);
    let Some(head) = content.get(at + 4..end) else { return };
    let mut crc = crc32fast::Hasher::new();
    crc.update(&salt);
    crc.update(&(at as u64).to_le_bytes());
    crc.update(head);
    let crc = crc.finalize().to_le_bytes();
    content[at..at + 4].copy_from_slice(&crc);
}
