//! Encodes a watch event once for all watchers with the same representation.
//!
//! ```text
//! event.memo:  slot 0 new object · slot 1 previous object · slot 2… one per representation with a cell per `WatchedChange`
//! ```
//!
//! The bytes for a watcher depend on the event, on the representation, and on the meaning of the event for
//! the watcher's selector. A representation that many watchers use has a slot in the event: the first watcher
//! encodes the event, and the other watchers copy the bytes. Three kinds of watchers encode events for
//! themselves: watchers of tables (because ages change), of versions other than the stored version, and of
//! other naming profiles. A slot exists as long as the engine keeps the event.

use std::sync::OnceLock;

use bytes::Bytes;
use engine::{Event, MEMO_SLOTS, ReadError, Record};

use super::{EventType, Renderer, with_revision};
use crate::negotiate::{self, Transform};
use types::table::MetaVersion;
use values::status::{Status, StatusReason};

const CURRENT_SLOT: u8 = 0;
const PREVIOUS_SLOT: u8 = 1;
const FORMS_SLOT: u8 = 2;

const ENCODINGS: u8 = 4;
const SHAPES: u8 = 2;
const _: () = assert!((FORMS_SLOT + ENCODINGS * SHAPES) as usize <= MEMO_SLOTS);

/// Maximum size of a stored change whose encoded events are kept. Longer changes are rare, and copying their
/// events costs about as much as encoding them again. If large events were kept, a watcher that stops reading
/// would occupy much memory.
pub const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The meaning of a change for a watcher (docs/api/watches.md#watch-events).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchedChange {
    /// The object was created, or begins to match the selector.
    Entered,
    /// The object matched before and still matches.
    Changed,
    /// The object matched and was deleted.
    Deleted,
    /// The object matched before and no longer matches. The watcher gets a deletion with the last version
    /// that matched.
    Left,
}

impl WatchedChange {
    const COUNT: usize = 4;

    /// Returns the type of the watch event for this meaning.
    pub fn event_type(self) -> EventType {
        match self {
            WatchedChange::Entered => EventType::Added,
            WatchedChange::Changed => EventType::Modified,
            WatchedChange::Deleted | WatchedChange::Left => EventType::Deleted,
        }
    }
}

/// Encoded events of one representation, indexed by `WatchedChange`; `None` if the encoding failed.
#[derive(Default)]
struct EncodedEvents([OnceLock<Option<Bytes>>; WatchedChange::COUNT]);

/// Returns the object after the change. The object is read and checked once for all watchers.
pub fn current(event: &Event) -> Result<Record, Status> {
    read(event.memo.get_or_make(CURRENT_SLOT, || event.entry.read()).as_ref())
}

/// Returns the object before the change; `None` if the object did not exist. The object is read and checked
/// once for all watchers.
pub fn previous(event: &Event) -> Result<Option<Record>, Status> {
    let Some(entry) = &event.previous else { return Ok(None) };
    read(event.memo.get_or_make(PREVIOUS_SLOT, || entry.read()).as_ref()).map(Some)
}

fn read(found: &Result<Record, ReadError>) -> Result<Record, Status> {
    found.clone().map_err(|error| Status::new(StatusReason::StorageReadError, error.to_string()))
}

impl Renderer {
    /// Appends the watch event of a change. `seen` is the meaning of the change for the watcher.
    pub fn change(&mut self, event: &Event, seen: WatchedChange, out: &mut Vec<u8>) -> Result<(), Status> {
        let is_small = event.entry.stored_len() <= KEPT_BYTES_MAX;
        let Some(slot) = self.shared_slot().filter(|_| is_small) else {
            return self.render(event, seen, out);
        };
        let events = event.memo.get_or_make(slot, EncodedEvents::default);
        let rendered = events.0[seen as usize].get_or_init(|| {
            let mut encoded = Vec::new();
            self.render(event, seen, &mut encoded).ok().map(|()| encoded.into())
        });
        match rendered {
            Some(bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            // The slot does not contain the error, because encoding again returns the same error.
            None => self.render(event, seen, out),
        }
    }

    fn render(&mut self, event: &Event, seen: WatchedChange, out: &mut Vec<u8>) -> Result<(), Status> {
        let value = match seen {
            WatchedChange::Entered | WatchedChange::Changed => current(event)?.value,
            // The record of the deletion contains the last version, with the revision of the deletion.
            WatchedChange::Deleted => current(event)?.value,
            WatchedChange::Left => {
                let last = previous(event)?.map(|record| record.value).unwrap_or_default();
                with_revision(&last, event.revision)
            }
        };
        self.metrics.watch_events_rendered.add(1);
        self.event(seen.event_type(), &value, out)
    }

    /// Returns the slot of this renderer's representation; `None` if its events have no slot.
    fn shared_slot(&self) -> Option<u8> {
        let encoding = match self.output.encoding {
            negotiate::Encoding::Json => 0,
            negotiate::Encoding::Yaml => 1,
            negotiate::Encoding::Protobuf => 2,
            negotiate::Encoding::Cbor => 3,
        };
        let own_words = self.output.words.profile == self.naming.profile;
        let shape = match self.output.transform {
            Transform::None => 0,
            Transform::PartialObject | Transform::PartialObjectList
                if own_words && self.output.meta_version == MetaVersion::V1 =>
            {
                1
            }
            _ => return None,
        };
        self.resource.is_stored_form().then_some(FORMS_SLOT + encoding * SHAPES + shape)
    }
}
