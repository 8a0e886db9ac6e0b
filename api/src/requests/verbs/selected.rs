//! The objects of a range that a selection matches, in key order, each in the version of the resource.
//!
//! ```text
//! scan ─► in this version, or of a built-in type ─► selected by attributes ─► Found::Entry
//!      └► in another version ─► ahead: the following ones too, converted together ─► selected ─► Found::Record
//! ```
//!
//! A caller that only counts does not read values: entries are returned unread.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Entry, FilteredScan, Revision};

use objects::conversion::{BYTES_AT_ONCE, Converter, RECORDS_AT_ONCE, is_current};
use objects::store::{self, Stored};
use types::attributes::Selection;
use types::schema::registry::Resource;
use values::status::Status;

/// Number of objects that are checked in one go if none of them matches: well under a millisecond, so that a
/// selector that matches nothing delays no other request on the same thread.
const LOOKED_AT_ONCE: usize = 1024;

/// An iterator over the selected objects in a range of one snapshot.
pub struct Selected {
    scan: FilteredScan,
    selection: Selection,
    resource: Arc<Resource>,
    converter: Arc<Converter>,
    /// Objects that were converted together and are still to be returned.
    ahead: VecDeque<Stored>,
    /// Number of objects examined since the last pause.
    looked_at: usize,
}

/// An item of the iteration.
pub enum Found {
    /// A selected object that was not read yet. It is in the version of the resource, unless only locations
    /// were requested.
    Entry(Entry),
    /// A selected object that was read and converted.
    Record(Stored),
    /// No object was found for a while: the caller should yield to other tasks.
    Pause,
}

/// The data that the caller needs of each object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Only the locations of the objects.
    Places,
    /// At most this many objects with their contents.
    Objects(u64),
}

impl Selected {
    /// Creates an iterator over the matching objects in `scan`.
    pub fn new(
        scan: FilteredScan,
        selection: Selection,
        resource: Arc<Resource>,
        converter: Arc<Converter>,
    ) -> Selected {
        Selected { scan, selection, resource, converter, ahead: VecDeque::new(), looked_at: 0 }
    }

    /// Puts these objects before those of the scan.
    #[must_use]
    pub fn after(mut self, objects: impl Iterator<Item = Stored>) -> Selected {
        self.ahead.extend(objects);
        self
    }

    /// Returns the next item; `None` at the end.
    ///
    /// # Errors
    /// An object cannot be read or converted.
    pub async fn next(&mut self, need: Need) -> Result<Option<Found>, Status> {
        loop {
            if let Some(stored) = self.ahead.pop_front() {
                return Ok(Some(Found::Record(stored)));
            }
            if self.looked_at == LOOKED_AT_ONCE {
                self.looked_at = 0;
                return Ok(Some(Found::Pause));
            }
            self.looked_at += 1;
            let Some(entry) = self.scan.next() else { return Ok(None) };
            let Some(entry) = entry else { return Ok(Some(Found::Pause)) };
            let needs_no_form = need == Need::Places && self.selection.is_everything();
            if needs_no_form || self.is_current(&entry)? {
                if store::selects(&self.resource, &self.selection, &entry)? {
                    return Ok(Some(Found::Entry(entry)));
                }
                continue;
            }
            let most = match need {
                Need::Places => u64::MAX,
                Need::Objects(most) => most,
            };
            self.convert(entry, usize::try_from(most).unwrap_or(usize::MAX)).await?;
        }
    }

    fn is_current(&self, entry: &Entry) -> Result<bool, Status> {
        if self.resource.versions.is_none() {
            return Ok(true);
        }
        let attributes = entry.attributes().map_err(store::damaged)?;
        Ok(is_current(&self.resource, &attributes))
    }

    /// Converts an object together with the objects that follow it, and keeps the selected ones. If
    /// everything is selected, at most `most` objects are converted.
    async fn convert(&mut self, first: Entry, most: usize) -> Result<(), Status> {
        let is_everything = self.selection.is_everything();
        // Selectors are evaluated after conversion.
        let room = if is_everything { most.min(RECORDS_AT_ONCE) } else { RECORDS_AT_ONCE };
        let (mut records, mut entries, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        while let Some(entry) = next.take() {
            let stored = store::read(entry)?;
            bytes += stored.record.value.len();
            records.push(stored.record);
            entries.push(stored.entry);
            while records.len() < room && bytes < BYTES_AT_ONCE {
                match self.scan.next() {
                    None => break,
                    Some(None) => tokio::task::yield_now().await,
                    Some(Some(entry)) => {
                        next = Some(entry);
                        break;
                    }
                }
            }
        }
        self.converter.convert_records(&self.resource, &mut records).await?;
        for (entry, record) in entries.into_iter().zip(records) {
            if is_everything || store::is_selected(&self.resource, &self.selection, &record)? {
                self.ahead.push_back(Stored { entry, record });
            }
        }
        Ok(())
    }
}

impl Found {
    /// Returns the approximate size of the object.
    pub fn record_bytes(&self) -> usize {
        match self {
            Found::Entry(entry) => entry.stored_len(),
            Found::Record(stored) => stored.record.value.len(),
            Found::Pause => 0,
        }
    }

    /// Returns the result of `show` for the stored object, without keeping the object; `None` for a pause.
    ///
    /// # Errors
    /// The object cannot be read, or `show` failed.
    pub fn show<T>(&self, show: impl FnOnce(&[u8]) -> Result<T, Status>) -> Result<Option<T>, Status> {
        match self {
            Found::Entry(entry) => entry.with_value(show).map_err(store::damaged)?.map(Some),
            Found::Record(stored) => show(&stored.record.value).map(Some),
            Found::Pause => Ok(None),
        }
    }

    /// Returns the revision that wrote the object; `None` for a pause.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            Found::Entry(entry) => Some(entry.revision()),
            Found::Record(stored) => Some(stored.entry.revision()),
            Found::Pause => None,
        }
    }

    /// Reads the object. Returns `None` if `self` is a pause.
    ///
    /// # Errors
    /// The object cannot be read.
    pub fn read(self) -> Result<Option<Stored>, Status> {
        match self {
            Found::Entry(entry) => store::read(entry).map(Some),
            Found::Record(stored) => Ok(Some(stored)),
            Found::Pause => Ok(None),
        }
    }
}
