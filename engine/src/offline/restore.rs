//! Restore: creates a new store with the states that another store had at one revision.
//!
//! ```text
//! records up to the revision ─► newest state of each key ─► rewritten segments (docs/format.md), and nothing else
//! ```
//!
//! Every state keeps its revision, so the stored bytes stay unchanged. But the new store continues far above
//! all revisions that the old store, or another store restored from it, can have assigned. No older revision
//! is readable, so a client with an old revision gets the error that the revision is compacted, and reads
//! again.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::header::{Header, Numbering, RECORDS_START, Rewritten};
use crate::io::{Dir, File, Storage};
use crate::losses::{LEDGER_KEY, LossReport, Losses};
use crate::offline::creation::NewDirectory;
use crate::offline::damage::{Damage, Problem};
use crate::offline::records::{LogItem, LogRecord, RecordKind, tail};
use crate::offline::{OfflineError, Store};
use crate::record::{self, EventKind, Head, NewRecord};
use crate::segment::Segment;
use crate::types::{CommitTime, REVISION_END, Revision, SEGMENT_BYTES_DEFAULT, SegmentNumber};

/// The state of the old store that is restored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RestorePoint {
    /// The newest state of the store.
    Newest,
    /// The state right after this revision was committed.
    Revision(Revision),
    /// The newest state at this time, in milliseconds since 1970.
    Time(u64),
}

impl RestorePoint {
    /// Returns whether the point is before `record`.
    fn is_before(self, record: &LogRecord) -> bool {
        match self {
            RestorePoint::Newest => false,
            RestorePoint::Revision(until) => record.revision() > until,
            RestorePoint::Time(until) => record.time_ms() > until,
        }
    }
}

/// Result of a restore.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RestoreSummary {
    /// The revision of the old store whose state was restored.
    pub from_revision: Revision,
    /// The first revision of the new store, which is also its oldest readable one.
    pub revision: Revision,
    /// Number of restored keys.
    pub keys: u64,
    /// Bytes of the records in the new store.
    pub bytes: u64,
    /// Number of reported damages: states and revisions that are not in the new store.
    pub damages: u64,
    /// Losses of the old store that are not accepted, as listed in the new store.
    pub unaccepted: Losses,
}

/// Location of the state of a key.
struct StateLocation {
    segment: Arc<Segment>,
    offset: u64,
    len: usize,
    revision: Revision,
    sound: bool,
}

/// Creates a store in `target`, which must not exist, with the states that the store in `source` had at
/// `point`.
///
/// If damage makes these states uncertain, the function creates a store only if `skip_damaged` is set or the operator
/// has accepted all of the damage. In these cases `on_damage` is called for each damage, and the damaged states are
/// left out. The new store gets a ledger of the losses that are not accepted (`losses.rs`), including those that the
/// old store listed, because the damaged records are not in the new store. `on_progress` is called with the bytes done
/// and the total bytes.
pub fn restore(
    source: &Path,
    target: &Path,
    point: RestorePoint,
    skip_damaged: bool,
    mut on_damage: impl FnMut(&Damage),
    mut on_progress: impl FnMut(u64, u64),
) -> Result<RestoreSummary, OfflineError> {
    if target.exists() {
        return Err(OfflineError::NotEmpty { dir: target.to_owned() });
    }
    let store = Store::open(source)?;
    let mut first_damage = None;
    let (mut damages, mut losses, mut is_end_unknown) = (0, Losses::default(), false);
    let mut report = |damage: &Damage| {
        damages += 1;
        is_end_unknown |= !damage.add_to(&mut losses);
        first_damage.get_or_insert_with(|| damage.clone());
        on_damage(damage);
    };
    store.damage().iter().filter(|damage| damage.problem != Problem::HeaderCopy).for_each(&mut report);
    let total = store.data_bytes();
    let States { revision: from_revision, mut states, time, ledger } =
        states(&store, point, &mut report, |done| on_progress(done, total * 2))?;
    for (key, location) in states.iter().filter(|(_, location)| !location.sound) {
        report(&Damage {
            file: Segment::name(location.segment.header.number),
            offset: Some(location.offset),
            revisions: Some((location.revision, location.revision)),
            key: Some(key.clone()),
            problem: Problem::Body,
        });
    }
    states.remove(LEDGER_KEY);
    losses.extend(&ledger.known);
    let mut unaccepted = losses.beyond(&ledger.accepted);
    let is_uncertain = !unaccepted.is_empty() || is_end_unknown;
    if let Some(damage) = first_damage.filter(|_| !skip_damaged && is_uncertain) {
        return Err(OfflineError::Damaged { dir: source.to_owned(), damages, damage: Box::new(damage) });
    }
    let mut locations: Vec<StateLocation> = states.into_values().filter(|location| location.sound).collect();
    locations.sort_unstable_by_key(|location| location.revision);

    let newest = tail(&store, Revision::MAX).0.max(from_revision);
    let revision = bump(newest, SystemTime::now());
    if revision >= REVISION_END.before() {
        return Err(OfflineError::NoRevisionsLeft { dir: source.to_owned() });
    }
    if is_end_unknown {
        unaccepted.lost.insert(newest.next(), revision.before());
    }
    let ledger = LossReport { known: unaccepted, ..LossReport::default() };
    let text = (!ledger.known.is_empty()).then(|| (ledger.encode(), time));
    let making = NewDirectory::begin(target)?;
    let numbering = store.segments.iter().map(|segment| segment.header.numbering).max().unwrap_or_default();
    let bytes = write(&making, &locations, text.as_ref(), revision, numbering, |done| {
        on_progress(total + done, total * 2)
    })?;
    making.finish()?;
    let (keys, unaccepted) = (locations.len() as u64, ledger.known);
    Ok(RestoreSummary { from_revision, revision, keys, bytes, damages, unaccepted })
}

/// Result of a walk over the old store.
#[derive(Default)]
struct States {
    /// The revision that is restored.
    revision: Revision,
    /// Location of the state of each key that exists at that revision.
    states: HashMap<Bytes, StateLocation>,
    /// The highest time of a record up to that revision.
    time: CommitTime,
    /// The newest ledger of losses; it applies to every revision that may be restored, because an earlier loss
    /// affects every state.
    ledger: LossReport,
}

impl States {
    /// Adds the next record of the old store.
    fn add(&mut self, record: LogRecord) {
        self.time = self.time.max(CommitTime::from_ms(record.time_ms()));
        self.revision = record.revision();
        let key = Bytes::copy_from_slice(&record.key());
        match record.kind() {
            RecordKind::Put => self.states.insert(
                key,
                StateLocation {
                    offset: record.offset(),
                    len: record.stored_len(),
                    revision: record.revision(),
                    sound: record.is_sound(),
                    segment: record.into_segment(),
                },
            ),
            RecordKind::Delete | RecordKind::Tombstone => self.states.remove(&key),
        };
    }
}

/// Walks over `store` and returns the states at `point`.
fn states(
    store: &Store,
    point: RestorePoint,
    report: &mut impl FnMut(&Damage),
    mut on_progress: impl FnMut(u64),
) -> Result<States, OfflineError> {
    // The revision of the states is the newest one at or before the requested point.
    let mut states = States::default();
    let mut records = store.records();
    let mut reached = false;
    let mut is_first = true;
    while let Some(found) = records.next() {
        match found {
            LogItem::Record(record) => {
                if record.key() == LEDGER_KEY
                    && let Some(newer) = record.value().and_then(|value| LossReport::decode(&value))
                {
                    states.ledger = newer;
                }
                if reached {
                    continue;
                }
                reached = point.is_before(&record);
                if reached && is_first {
                    let (first, time_ms) = (record.revision(), record.time_ms());
                    return Err(OfflineError::BeforeFirst { dir: store.dir().to_owned(), first, time_ms });
                }
                if reached {
                    continue;
                }
                is_first = false;
                states.add(record);
                on_progress(records.bytes_done());
            }
            LogItem::Damage(damage) => {
                let behind = match (point, damage.revisions) {
                    (RestorePoint::Revision(until), Some((first, _))) => first > until,
                    _ => false,
                };
                if !behind && !reached && damage.problem == Problem::Lost {
                    report(&damage);
                }
            }
            LogItem::Torn { .. } => {}
        }
    }
    states.revision = match point {
        RestorePoint::Revision(asked) if reached || asked <= records.revision() => asked,
        RestorePoint::Revision(asked) => {
            return Err(OfflineError::Future { asked, newest: records.revision() });
        }
        RestorePoint::Newest => records.revision(),
        RestorePoint::Time(_) if !reached => records.revision(),
        RestorePoint::Time(_) => states.revision,
    };
    if states.revision < store.oldest() {
        return Err(OfflineError::Compacted { asked: states.revision, oldest: store.oldest() });
    }
    Ok(states)
}

/// Returns a revision that is higher than all revisions of the old store and of all other stores restored
/// from it.
///
/// The revision is the number of microseconds since 1970, rounded up to full seconds. A store assigns fewer than a
/// million revisions per second. So the newest revision of the old store is lower than this number, whether that store
/// began at revision 1 or at the number of an earlier restore. The old store can have a higher revision only if a clock
/// was wrong; the new store then begins ten billion revisions above that revision, which leaves room for the writes
/// since the backup. The numbers stay below 2⁵³ until the year 2255, for clients that do not support higher numbers.
fn bump(newest: Revision, now: SystemTime) -> Revision {
    let micros = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    let least = if micros > newest.get() { micros } else { newest.get().saturating_add(10_000_000_000) };
    Revision::new(least.checked_next_multiple_of(1_000_000).unwrap_or(u64::MAX))
}

/// Writes the records at `locations`, ascending by revision, and the ledger, if any, as the whole log up to
/// `revision`. Returns the number of bytes of these records.
fn write(
    making: &NewDirectory,
    locations: &[StateLocation],
    ledger: Option<&(Vec<u8>, CommitTime)>,
    revision: Revision,
    numbering: Numbering,
    mut on_progress: impl FnMut(u64),
) -> Result<u64, OfflineError> {
    let dir = making.dir();
    let store = dir.entropy();
    // The ledger is the last record. The store continues with the revision of the ledger.
    let ledger = ledger.map(|(value, time)| NewRecord {
        revision,
        created: revision,
        previous: Revision::ZERO,
        synced: Revision::ZERO,
        time: *time,
        expires_s: 0,
        kind: EventKind::Put,
        key: LEDGER_KEY,
        attributes: b"",
        value,
        value_after_stamp: None,
        more: false,
        tombstone: false,
    });
    let (mut after, mut first_revision, mut done) = (SegmentNumber::NONE, Revision::FIRST, 0);
    let mut rest = locations;
    loop {
        let number = after.next();
        let (now, later) = rest.split_at(fitting(rest));
        let last_revision = match now.last() {
            Some(last) if !later.is_empty() => last.revision,
            _ => revision,
        };
        let ledger = ledger.as_ref().filter(|_| later.is_empty());
        let record_bytes = now.iter().map(|location| location.len as u64).sum::<u64>();
        let ledger_bytes = ledger.map_or(0, NewRecord::record_len) as u64;
        let rewritten = Rewritten {
            last_revision,
            oldest: revision,
            records: now.len() as u32 + u32::from(ledger.is_some()),
            end: RECORDS_START + record_bytes + ledger_bytes,
            tombstone_bytes: 0,
            tombstones_since: Revision::ZERO,
        };
        let header = Header {
            number,
            after,
            first_revision,
            salt: dir.entropy(),
            store,
            numbering,
            rewritten: Some(rewritten),
        };
        write_segment(dir, &header, now, ledger, |copied| on_progress(done + copied))?;
        done += record_bytes + ledger_bytes;
        if later.is_empty() {
            return Ok(done);
        }
        (rest, after, first_revision) = (later, number, last_revision.next());
    }
}

/// Returns how many of the records fit into one segment: at least one, if there are any records.
fn fitting(locations: &[StateLocation]) -> usize {
    let mut bytes = 0;
    let fit = locations.iter().take_while(|location| {
        bytes += location.len as u64;
        bytes <= SEGMENT_BYTES_DEFAULT - RECORDS_START
    });
    let mut count = fit.count().max(1).min(locations.len());
    // Records of one revision must be in one segment.
    while count < locations.len() && locations[count].revision == locations[count - 1].revision {
        count += 1;
    }
    count
}

/// Writes and syncs a segment with the records at `locations`, followed by the ledger, if any.
fn write_segment(
    dir: &Dir,
    header: &Header,
    locations: &[StateLocation],
    ledger: Option<&NewRecord<'_>>,
    on_progress: impl FnMut(u64),
) -> Result<(), OfflineError> {
    let name = Segment::name(header.number);
    let records_end = RECORDS_START + locations.iter().map(|location| location.len as u64).sum::<u64>();
    let ledger_bytes = ledger.map_or(0, NewRecord::record_len);
    let create = || {
        let file = dir.create(&name, records_end + ledger_bytes as u64)?;
        file.write_at(0, &header.block())?;
        Ok(file)
    };
    let file = create().map_err(OfflineError::io(&dir.path(&name), "create"))?;
    write_records(&*file, header.salt, locations, on_progress)
        .and_then(|()| {
            let mut bytes = Vec::with_capacity(ledger_bytes);
            if let Some(ledger) = ledger {
                record::append(&mut bytes, ledger, header.salt, records_end);
            }
            file.write_at(records_end, &bytes)
        })
        .and_then(|()| file.sync_data())
        .map_err(OfflineError::io(&dir.path(&name), "write"))
}

fn write_records(
    file: &dyn File,
    salt: u64,
    locations: &[StateLocation],
    mut on_progress: impl FnMut(u64),
) -> std::io::Result<()> {
    /// Number of bytes written at a time.
    const BATCH_BYTES: usize = 1024 * 1024;
    let mut batch = Vec::new();
    let mut start = RECORDS_START;
    for location in locations {
        let bytes = location.segment.file.read(location.offset, location.len)?;
        // The record was sound when it was found.
        let head = Head::read(&bytes, location.segment.header.salt, location.offset)
            .filter(|head| head.body_is_sound(&bytes))
            .ok_or(std::io::ErrorKind::InvalidData)?;
        let offset = start + batch.len() as u64;
        record::append_copy(&mut batch, &bytes, &head, salt, offset);
        if batch.len() >= BATCH_BYTES {
            file.write_at(start, &batch)?;
            start += batch.len() as u64;
            batch.clear();
            on_progress(start - RECORDS_START);
        }
    }
    file.write_at(start, &batch)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_restore_assigns_revisions_above_all_revisions_that_were_ever_used() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (newest, now, want) in [
            (12_345, at(1_795_000_000), 1_795_000_000_000_000),
            // The store is restored again a second later, from the same backup.
            (12_345, at(1_795_000_001), 1_795_000_001_000_000),
            // The backup is of a store that was itself restored.
            (1_795_000_000_000_500, at(1_795_003_600), 1_795_003_600_000_000),
            // The clock shows 1970 or an earlier time.
            (12_345, at(0), 10_000_012_345_u64.next_multiple_of(1_000_000)),
            (12_345, UNIX_EPOCH - Duration::from_secs(9), 10_000_012_345_u64.next_multiple_of(1_000_000)),
        ] {
            let got = bump(Revision::new(newest), now);
            assert_eq!(got, Revision::new(want), "{newest}");
            assert!(got > Revision::new(newest) && got.get().is_multiple_of(1_000_000));
        }
    }
}
