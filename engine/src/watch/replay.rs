//! Events read back from the log, for a tail whose next events are no longer in the ring.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bytes::Bytes;

use crate::entry::Entry;
use crate::error::TailError;
use crate::event::{Event, Memo};
use crate::header::Numbering;
use crate::sabotage;
use crate::segment::{FoundRecord, Segment};
use crate::snapshot::Root;
use crate::types::Revision;

/// Maximum number of events or records that a tail examines before it yields to other tasks.
pub(super) const EXAMINED_MAX: usize = 1024;

/// The revisions that a tail examines.
pub(super) struct Unexamined<'t> {
    /// Prefix of the keys whose events the tail returns.
    pub prefix: &'t [u8],
    /// Every revision up to this one was examined.
    pub looked: Revision,
    /// The last revision to examine.
    pub until: Revision,
}

impl Unexamined<'_> {
    /// Examines some of the revisions in the log, and advances `looked` to the last examined one. Returns at most `max`
    /// events, or a few more to complete a revision.
    pub fn examine(&mut self, root: &Root, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        if self.looked < root.oldest {
            return Err(TailError::Compacted { oldest: root.oldest });
        }
        let mut found = Vec::new();
        let mut budget = EXAMINED_MAX;
        for segment in root.segments.starting_at(self.looked.next()) {
            // No revision may be missing between two consecutive segments, even where revisions may be
            // missing within a segment.
            if segment.header.first_revision > self.looked.next() && !sabotage::hole_passed_over() {
                return self.events_or_damage(found, segment.header.first_revision.before());
            }
            let missing = TailError::Damaged { revision: self.looked.next() };
            let mut walk = segment.walk_from(self.looked.next()).map_err(|_| missing)?;
            // The events of a revision whose records are not all read yet.
            let mut part: Option<(Revision, Vec<Arc<Event>>)> = None;
            while let Some(record) = walk.next() {
                let revision = record.head.revision;
                if revision <= self.looked {
                    continue;
                }
                if revision > self.until {
                    return self.events_or_damage(found, self.until);
                }
                let is_missing = match segment.header.numbering {
                    Numbering::Dense => revision != self.looked.next(),
                    Numbering::Sparse => {
                        record.skipped > 0 || part.as_ref().is_some_and(|(part, _)| *part != revision)
                    }
                };
                if is_missing && !sabotage::hole_passed_over() {
                    // Opening has reported this revision as lost, unless the record became unreadable later.
                    segment.note_damaged(self.looked.next());
                    return self.events_or_damage(found, revision.max(self.looked.next().next()).before());
                }
                let (_, events) = part.get_or_insert_with(|| (revision, Vec::new()));
                if record.head.key(&record.bytes).starts_with(self.prefix) {
                    events.extend(event(root, segment.clone(), &record));
                }
                budget = budget.saturating_sub(1);
                if record.head.more {
                    continue;
                }
                found.extend(part.take().into_iter().flat_map(|(_, events)| events));
                self.looked = revision;
                if found.len() >= max || budget == 0 || revision == self.until {
                    return Ok(found);
                }
            }
        }
        // The log ends although later revisions were published: its last records are unreadable.
        self.events_or_damage(found, self.until)
    }

    /// Returns the events found before the unreadable revisions up to `until`, or an error if the unreadable
    /// revisions come next.
    fn events_or_damage(
        &self,
        found: Vec<Arc<Event>>,
        until: Revision,
    ) -> Result<Vec<Arc<Event>>, TailError> {
        if found.is_empty() && self.looked < until {
            return Err(TailError::Damaged { revision: self.looked.next() });
        }
        Ok(found)
    }
}

/// Returns the event of a record read from the log.
fn event(root: &Root, segment: Arc<Segment>, record: &FoundRecord) -> Option<Arc<Event>> {
    let head = &record.head;
    let key = Bytes::copy_from_slice(head.key(&record.bytes));
    let version = record.version(segment.header.number);
    let previous = root.tree.at(&key, head.revision.before()).filter(|previous| !previous.is_delete());
    let previous = previous.and_then(|previous| root.entry(key.clone(), previous));
    Some(Arc::new(Event {
        revision: head.revision,
        kind: head.kind,
        entry: Entry::new(key.clone(), version, segment).ending(previous.as_ref()),
        previous,
        key,
        memo: Memo::default(),
        audience: AtomicU32::new(0),
    }))
}
