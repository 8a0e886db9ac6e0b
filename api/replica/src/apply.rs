//! Converts etcd events to records of the engine: the meaning of an event for the copy, and batches of whole
//! revisions.
//!
//! If a revision changes only keys that are not objects, or values that cannot be read, its record is a mark.
//! An object that cannot be read is hidden, and an error is logged.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use engine::{APPLIED_BYTES_MAX, APPLIED_RECORDS_MAX, Applied, ApplyError, Change, Payload, Revision};
use etcd::rpc::{EVENT_DELETE, Event, KeyValue};

use super::keys::KeyMeaning;
use super::{Replica, revision};

/// The key of the marks. The key prefixes of resources differ from this key.
const MARK: &[u8] = b"(etcd)revision";

/// The key whose value is the target revision of the last fill of the copy.
const FILLED: &[u8] = b"(etcd)filled";

/// The state of an etcd key in the engine's form.
pub(super) struct State {
    /// The key of the engine; `None` if the etcd key is not an object.
    key: Option<Bytes>,
    /// The payload; `None` if the value cannot be read.
    payload: Option<Payload>,
    created: Revision,
}

impl State {
    /// Returns the number of bytes that this state adds to a batch.
    pub(super) fn bytes(&self) -> usize {
        self.payload.as_ref().map_or(0, |payload| payload.value.len() + payload.attributes.len())
    }
}

/// Records of ascending revisions that the engine will apply to its state.
pub(super) struct Batch<'r> {
    replica: &'r Replica,
    /// Creation revisions of the keys that the batch has changed; `None` for deleted keys.
    changed: HashMap<Bytes, Option<Revision>>,
    records: Vec<Applied>,
    bytes: usize,
}

impl<'r> Batch<'r> {
    pub(super) fn new(replica: &'r Replica) -> Batch<'r> {
        Batch { replica, changed: HashMap::new(), records: Vec::new(), bytes: 0 }
    }

    /// Adds the events of one revision.
    pub(super) async fn events(&mut self, at: Revision, events: &[&Event]) -> Result<(), ApplyError> {
        let records = events.len();
        let bytes = events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| 2 * kv.value.len()).sum();
        self.make_room(records + 1, bytes).await?;
        let mut has_record = false;
        for event in events {
            let Some(kv) = &event.kv else { continue };
            let place = self.replica.keys.place(&kv.key);
            self.replica.count_change(&place);
            has_record |= match event.kind {
                EVENT_DELETE => place.key().is_some_and(|key| self.remove(at, key.clone())),
                _ => self.take(at, self.replica.state_at(&place, kv)),
            };
        }
        if !has_record {
            self.mark(at);
        }
        Ok(())
    }

    /// Adds the state of a key at a revision. Returns whether a record was added.
    pub(super) fn put(&mut self, at: Revision, kv: &KeyValue) -> bool {
        self.take(at, self.replica.state(kv))
    }

    /// Adds a state that is already in the engine's form. Returns whether a record was added.
    pub(super) fn take(&mut self, at: Revision, state: State) -> bool {
        let Some(key) = state.key else { return false };
        // A value that cannot be read hides the previous value.
        let Some(payload) = state.payload else { return self.remove(at, key) };
        let created = self.created(&key).unwrap_or_else(|| state.created.min(at));
        self.push(Applied { revision: at, created, key, change: Change::Put(payload) });
        true
    }

    /// Adds the deletion of a key of the engine. Returns false if the key did not exist.
    pub(super) fn remove(&mut self, at: Revision, key: Bytes) -> bool {
        let Some(created) = self.created(&key) else { return false };
        self.push(Applied { revision: at, created, key, change: Change::Delete(None) });
        true
    }

    /// Adds a mark for a revision at which no object changed.
    pub(super) fn mark(&mut self, at: Revision) {
        let key = Bytes::from_static(MARK);
        let created = self.created(&key).unwrap_or(at);
        self.push(Applied { revision: at, created, key, change: Change::Put(Payload::default()) });
    }

    /// Records that the records up to `until` are states and not a complete history.
    pub(super) fn filling(&mut self, at: Revision, until: Revision) {
        let key = Bytes::from_static(FILLED);
        let created = self.created(&key).unwrap_or(at);
        let value = until.to_string().into();
        let change = Change::Put(Payload { value, ..Payload::default() });
        self.push(Applied { revision: at, created, key, change });
    }

    fn push(&mut self, record: Applied) {
        let exists = matches!(record.change, Change::Put(_));
        self.bytes += match &record.change {
            Change::Put(payload) => payload.value.len() + payload.attributes.len(),
            Change::Delete(_) | Change::DeleteStored(_) => 0,
        };
        self.changed.insert(record.key.clone(), exists.then_some(record.created));
        self.records.push(record);
    }

    fn created(&self, key: &Bytes) -> Option<Revision> {
        match self.changed.get(key) {
            Some(created) => *created,
            None => self.replica.engine.snapshot().get(key).map(|entry| entry.created()),
        }
    }

    /// Applies the batch if further `records` and `bytes` would exceed its limits.
    pub(super) async fn make_room(&mut self, records: usize, bytes: usize) -> Result<(), ApplyError> {
        let is_full =
            self.records.len() + records > APPLIED_RECORDS_MAX || self.bytes + bytes > APPLIED_BYTES_MAX;
        if is_full && !self.records.is_empty() {
            self.apply().await?;
        }
        Ok(())
    }

    /// Applies the records of the batch.
    pub(super) async fn apply(&mut self) -> Result<(), ApplyError> {
        if self.records.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.records);
        self.changed.clear();
        self.bytes = 0;
        self.replica.engine.apply(records).await.map(drop)
    }
}

/// Groups the events of a response by revision.
pub(super) fn by_revision(events: &[Event]) -> BTreeMap<Revision, Vec<&Event>> {
    let mut revisions: BTreeMap<Revision, Vec<&Event>> = BTreeMap::new();
    for event in events {
        let at = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        revisions.entry(revision(at)).or_default().push(event);
    }
    revisions
}

impl Replica {
    /// Returns the target revision of the last fill that was begun.
    pub(super) fn filled_until(&self) -> Revision {
        let noted = self.engine.snapshot().get(FILLED).and_then(|entry| entry.read().ok());
        let until = noted.and_then(|record| std::str::from_utf8(&record.value).ok()?.parse().ok());
        until.unwrap_or(Revision::ZERO)
    }

    /// Converts the state of a key into the engine's form.
    pub(super) fn state(&self, kv: &KeyValue) -> State {
        self.state_at(&self.keys.place(&kv.key), kv)
    }

    fn state_at(&self, place: &KeyMeaning, kv: &KeyValue) -> State {
        let payload = self.payload(place, kv);
        State { key: place.key().cloned(), payload, created: revision(kv.create_revision) }
    }

    /// Returns the payload of an object; `None` if the key is not an object or the value cannot be read.
    fn payload(&self, place: &KeyMeaning, kv: &KeyValue) -> Option<Payload> {
        let own = self.own.payload(kv);
        if let Some(own) = own.filter(|own| place.key().is_some_and(|key| is_within_limits(key, own))) {
            if cfg!(debug_assertions) {
                let read =
                    self.read_payload(place, kv).map(|read| (read.value, read.attributes, read.stamp_at));
                assert_eq!(read, Some((own.value.clone(), own.attributes.clone(), own.stamp_at)));
            }
            return Some(Payload { ttl: self.ttl_of(kv), ..own });
        }
        self.read_payload(place, kv)
    }

    /// Returns the time to live of an object, if it is limited. The value is needed if the copy becomes a
    /// separate store.
    fn ttl_of(&self, kv: &KeyValue) -> Option<Duration> {
        self.lease_ttl.filter(|_| kv.lease != 0)
    }

    fn read_payload(&self, place: &KeyMeaning, kv: &KeyValue) -> Option<Payload> {
        let opened = self.opened(&kv.key, &kv.value);
        let value = match &opened {
            Ok(value) => value,
            Err(error) => {
                self.hidden(kv, error);
                return None;
            }
        };
        let (key, payload) = match place {
            KeyMeaning::Other => return None,
            KeyMeaning::Builtin(resource, key) => (key, self.values.decode(resource, value)),
            KeyMeaning::Custom(key) => {
                let served = self.serving.get().map(|serving| serving.types.now());
                (key, self.values.decode_custom(served.as_deref(), value))
            }
        };
        match payload {
            Ok(payload) if is_within_limits(key, &payload) => {
                Some(Payload { ttl: self.ttl_of(kv), ..payload })
            }
            Ok(_) => {
                self.hidden(kv, &"it is larger than the server takes");
                None
            }
            Err(error) => {
                self.hidden(kv, &error);
                None
            }
        }
    }

    fn hidden(&self, kv: &KeyValue, why: &dyn std::fmt::Display) {
        let key = String::from_utf8_lossy(&kv.key);
        tracing::error!(%key, revision = kv.mod_revision, %why, "object in etcd cannot be read and is not served");
    }
}

fn is_within_limits(key: &[u8], payload: &Payload) -> bool {
    key.len() <= engine::KEY_BYTES_MAX
        && payload.value.len() <= engine::VALUE_BYTES_MAX
        && payload.attributes.len() <= engine::ATTRIBUTES_BYTES_MAX
}
