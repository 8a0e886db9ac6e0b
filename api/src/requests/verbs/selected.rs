//! The objects of a range that a selection matches, in key order, each in the version of the resource.
//!
//! ```text
//! scan ─► in this version, or of a built-in type ─► selected by attributes ─► SelectedItem::Entry
//!      └► in another version ─► converted together with the next objects ─► selected ─► SelectedItem::Record
//! ```
//!
//! Entries are returned before their values are read, so a caller that only counts objects reads no values.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{Entry, FilteredScan, Revision};

use objects::conversion::{BYTES_AT_ONCE, Converter, RECORDS_AT_ONCE, is_current};
use objects::store::{self, Stored};
use types::attributes::Selection;
use types::schema::registry::Resource;
use values::status::Status;

/// Maximum number of objects that are checked without a yield. The checks take well under a millisecond, so
/// a selector without matches does not delay other requests.
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
pub enum SelectedItem {
    /// A selected object that was not read yet. The object is in the version of the resource, unless only
    /// locations were requested.
    Entry(Entry),
    /// A selected object that was read and converted.
    Record(Stored),
    /// The iterator has examined many objects and selected no object. The caller should yield to other tasks.
    Pause,
}

/// The data that the caller needs of each object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// The caller needs only the locations of the objects.
    Places,
    /// The caller needs at most this many objects with their contents.
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

    /// Returns `objects` before the objects of the scan.
    #[must_use]
    pub fn after(mut self, objects: impl Iterator<Item = Stored>) -> Selected {
        self.ahead.extend(objects);
        self
    }

    /// Returns the next item; `None` at the end.
    ///
    /// # Errors
    /// An object cannot be read or converted.
    pub async fn next(&mut self, need: Need) -> Result<Option<SelectedItem>, Status> {
        loop {
            if let Some(stored) = self.ahead.pop_front() {
                return Ok(Some(SelectedItem::Record(stored)));
            }
            if self.looked_at == LOOKED_AT_ONCE {
                self.looked_at = 0;
                return Ok(Some(SelectedItem::Pause));
            }
            self.looked_at += 1;
            let Some(entry) = self.scan.next() else { return Ok(None) };
            let Some(entry) = entry else { return Ok(Some(SelectedItem::Pause)) };
            let needs_no_form = need == Need::Places && self.selection.is_everything();
            if needs_no_form || self.is_current(&entry)? {
                if store::selects(&self.resource, &self.selection, &entry)? {
                    return Ok(Some(SelectedItem::Entry(entry)));
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

    /// Converts an object together with the objects that follow it, and keeps the selected objects. If
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

impl SelectedItem {
    /// Returns the approximate size of the object.
    pub fn record_bytes(&self) -> usize {
        match self {
            SelectedItem::Entry(entry) => entry.stored_len(),
            SelectedItem::Record(stored) => stored.record.value.len(),
            SelectedItem::Pause => 0,
        }
    }

    /// Returns the result of `show` for the stored object, without keeping the object; `None` if `self` is a pause.
    ///
    /// # Errors
    /// The object cannot be read, or `show` failed.
    pub fn show<T>(&self, show: impl FnOnce(&[u8]) -> Result<T, Status>) -> Result<Option<T>, Status> {
        match self {
            SelectedItem::Entry(entry) => entry.with_value(show).map_err(store::damaged)?.map(Some),
            SelectedItem::Record(stored) => show(&stored.record.value).map(Some),
            SelectedItem::Pause => Ok(None),
        }
    }

    /// Returns the revision of the write of the object; `None` if `self` is a pause.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            SelectedItem::Entry(entry) => Some(entry.revision()),
            SelectedItem::Record(stored) => Some(stored.entry.revision()),
            SelectedItem::Pause => None,
        }
    }

    /// Reads the object. Returns `None` if `self` is a pause.
    ///
    /// # Errors
    /// The object cannot be read.
    pub fn read(self) -> Result<Option<Stored>, Status> {
        match self {
            SelectedItem::Entry(entry) => store::read(entry).map(Some),
            SelectedItem::Record(stored) => Ok(Some(stored)),
            SelectedItem::Pause => Ok(None),
        }
    }
}
