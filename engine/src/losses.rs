//! Losses: revisions and records of the store that cannot be read. An operator can accept losses.
//!
//! ```text
//! recovery, readers ─► LossRegistry ─► Engine::losses, Engine::watch_losses
//!                        ▲      │
//!   opening: its ledger ─┘      └─► Engine::note_losses, Engine::accept_losses ─► a record under LEDGER_KEY
//! ```
//!
//! A store with losses that are not accepted cannot prove that a key is absent: the record that created the
//! key may be lost. Callers that delete something because a key is absent must ask the registry first. The
//! registry only grows: an accepted loss stays in the registry, and later damage is a new loss that is not
//! accepted.
//!
//! There are two kinds of losses. The record of a *lost* revision is so damaged that its key is unknown: the key has
//! its previous state, or seems absent. A *damaged* revision has a known key whose state cannot be read. Accepting a
//! lost revision also accepts the same revision as damaged. Accepting a damaged revision does not accept it as lost.
//!
//! The ledger is an ordinary record of the log, so backups, restores and reclamation copy the ledger, and
//! releases that do not support ledgers ignore its key. The ledger is needed when the damage itself is no
//! longer in the log (a restored store) or is not read again (before a checkpoint). `docs/format.md`
//! describes the layout.

use std::fmt::Write as _;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::types::{REVISION_END, Revision};

/// Key of the record that lists the known and the accepted losses. Callers must not use this key.
pub const LEDGER_KEY: &[u8] = b"store/losses";

/// Maximum number of ranges of one kind in a ledger, so that the ledger fits into a value. If there are more
/// ranges, neighbouring ranges are joined.
const RANGES_MAX: usize = 50_000;

/// First line of a ledger: its name and the version of its layout.
const TITLE: &str = "losses 1";

/// A set of revisions as inclusive ranges, in ascending order. Between two ranges there is at least one revision
/// that does not belong to the set.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RevisionSet(Vec<(Revision, Revision)>);

impl RevisionSet {
    /// Adds the revisions from `first` to `last`.
    pub fn insert(&mut self, first: Revision, last: Revision) {
        if first > last {
            return;
        }
        let begin = self.0.partition_point(|range| range.1.next() < first);
        let end = self.0.partition_point(|range| range.0 <= last.next());
        let touched = &self.0[begin..end.max(begin)];
        let merged = touched
            .iter()
            .fold((first, last), |merged, range| (merged.0.min(range.0), merged.1.max(range.1)));
        self.0.splice(begin..end.max(begin), [merged]);
    }

    /// Returns the ranges, both ends included.
    pub fn ranges(&self) -> &[(Revision, Revision)] {
        &self.0
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of revisions in the set.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|&(first, last)| last.since(first) + 1).fold(0, u64::saturating_add)
    }

    /// Returns whether `revision` is in the set.
    pub fn contains(&self, revision: Revision) -> bool {
        let at = self.0.partition_point(|range| range.1 < revision);
        self.0.get(at).is_some_and(|range| range.0 <= revision)
    }

    /// Returns the highest revision in the set.
    pub fn last(&self) -> Option<Revision> {
        self.0.last().map(|range| range.1)
    }

    /// Adds all revisions of `other`.
    pub fn extend(&mut self, other: &RevisionSet) {
        other.0.iter().for_each(|&(first, last)| self.insert(first, last));
    }

    /// Joins neighbouring ranges until there are at most `ranges_max`.
    fn joined(mut self, ranges_max: usize) -> RevisionSet {
        while self.0.len() > ranges_max {
            let pairs = self.0.chunks(2).map(|pair| (pair[0].0, pair[pair.len() - 1].1));
            self.0 = pairs.collect();
        }
        self
    }

    /// Returns the revisions that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &RevisionSet) -> RevisionSet {
        let mut left = Vec::new();
        for &(first, last) in &self.0 {
            let mut next = first;
            let begin = other.0.partition_point(|range| range.1 < first);
            for &(from, to) in other.0[begin..].iter().take_while(|range| range.0 <= last) {
                if from > next {
                    left.push((next, from.before()));
                }
                next = next.max(to.next());
            }
            if next <= last {
                left.push((next, last));
            }
        }
        RevisionSet(left)
    }
}

/// Revisions that cannot be read, by kind.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Losses {
    /// Revisions whose records are so damaged that their keys are unknown. In a segment that reclamation or a
    /// restore wrote, revisions are missing on purpose; a range in such a segment contains at least one lost
    /// record.
    pub lost: RevisionSet,
    /// Revisions of known keys whose states cannot be read.
    pub damaged: RevisionSet,
}

impl Losses {
    /// Returns whether there are no losses.
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.damaged.is_empty()
    }

    /// Adds all losses of `other`.
    pub fn extend(&mut self, other: &Losses) {
        self.lost.extend(&other.lost);
        self.damaged.extend(&other.damaged);
    }

    /// Returns the losses that `accepted` does not cover.
    #[must_use]
    pub fn beyond(&self, accepted: &Losses) -> Losses {
        Losses {
            lost: self.lost.without(&accepted.lost),
            damaged: self.damaged.without(&accepted.damaged).without(&accepted.lost),
        }
    }

    fn joined(self) -> Losses {
        Losses { lost: self.lost.joined(RANGES_MAX), damaged: self.damaged.joined(RANGES_MAX) }
    }

    /// Returns the number of losses of each kind.
    pub fn counts(&self) -> LossCounts {
        LossCounts { lost: self.lost.count(), damaged: self.damaged.count() }
    }
}

/// Numbers of losses by kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LossCounts {
    /// Revisions whose keys are unknown.
    pub lost: u64,
    /// Revisions whose states cannot be read.
    pub damaged: u64,
}

impl LossCounts {
    /// Returns whether both numbers are 0.
    pub fn is_empty(self) -> bool {
        self == LossCounts::default()
    }
}

/// The known losses of a store, and the accepted ones among them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LossReport {
    /// All losses that were found, now or earlier.
    pub known: Losses,
    /// Losses that an operator accepted.
    pub accepted: Losses,
    /// Number of lost revisions whose numbers are unknown. The count is from the checkpoint of a release
    /// without a ledger.
    pub unnamed: u64,
}

impl LossReport {
    /// Returns the known losses that are not accepted.
    pub fn unaccepted(&self) -> Losses {
        self.known.beyond(&self.accepted)
    }

    /// Returns the number of losses that are not accepted.
    pub fn unaccepted_counts(&self) -> LossCounts {
        let counts = self.unaccepted().counts();
        LossCounts { lost: counts.lost.saturating_add(self.unnamed), ..counts }
    }

    /// Returns the report with joined ranges, so that it fits into a ledger.
    fn joined(self) -> LossReport {
        LossReport { known: self.known.joined(), accepted: self.accepted.joined(), unnamed: 0 }
    }

    /// Encodes the report as the value of a ledger.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!("{TITLE}\n");
        for (name, set) in [
            ("known lost", &self.known.lost),
            ("known damaged", &self.known.damaged),
            ("accepted lost", &self.accepted.lost),
            ("accepted damaged", &self.accepted.damaged),
        ] {
            for (first, last) in set.ranges() {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{name} {first} {last}");
            }
        }
        text.into_bytes()
    }

    /// Decodes the value of a ledger; `None` if `value` is not a ledger or has a later layout.
    pub(crate) fn decode(value: &[u8]) -> Option<LossReport> {
        let mut lines = std::str::from_utf8(value).ok()?.lines();
        lines.next().filter(|title| *title == TITLE)?;
        let mut report = LossReport::default();
        for line in lines {
            let [whose, kind, first, last] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let losses = match whose {
                "known" => &mut report.known,
                "accepted" => &mut report.accepted,
                _ => return None,
            };
            let set = match kind {
                "lost" => &mut losses.lost,
                "damaged" => &mut losses.damaged,
                _ => return None,
            };
            let (first, last): (Revision, Revision) = (first.parse().ok()?, last.parse().ok()?);
            (Revision::FIRST <= first && first <= last && last < REVISION_END).then_some(())?;
            set.insert(first, last);
        }
        Some(report)
    }
}

/// The ledger as found in a store.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct StoredLedger {
    /// Content of the ledger; empty if the store has no ledger.
    pub report: LossReport,
    /// Revision of the ledger, if it cannot be read.
    pub unreadable: Option<Revision>,
}

/// The losses of an open store.
#[derive(Debug)]
pub(crate) struct LossRegistry {
    state: Mutex<State>,
    /// Number of losses that are not accepted.
    unaccepted: watch::Sender<LossCounts>,
}

#[derive(Debug)]
struct State {
    report: LossReport,
    /// Content of the newest ledger in the log.
    noted: LossReport,
    before: LostBefore,
}

/// Losses in the part of the log that opening did not read, according to the checkpoint that it began with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostBefore {
    /// Number of lost revisions.
    pub count: u64,
    /// Revision up to which lost revisions are counted.
    pub until: Revision,
}

impl LossRegistry {
    /// Creates the registry of a store in which opening found the losses `found` and the ledger `ledger`.
    pub fn new(found: Losses, ledger: StoredLedger, before: LostBefore) -> LossRegistry {
        let mut report = ledger.report.clone();
        report.unnamed = before.count.saturating_sub(report.known.lost.count());
        report.known.extend(&found);
        if let Some(revision) = ledger.unreadable {
            report.known.damaged.insert(revision, revision);
        }
        let unaccepted = watch::Sender::new(report.unaccepted_counts());
        LossRegistry { state: Mutex::new(State { report, noted: ledger.report, before }), unaccepted }
    }

    /// Returns the known and the accepted losses.
    pub fn report(&self) -> LossReport {
        self.state.lock().report.clone()
    }

    /// Returns a receiver of the number of losses that are not accepted.
    pub fn watch(&self) -> watch::Receiver<LossCounts> {
        self.unaccepted.subscribe()
    }

    /// Adds the damaged state that `revision` wrote to a known key. Readers call this function when they
    /// find the damage.
    pub fn note_damaged(&self, revision: Revision) {
        let mut state = self.state.lock();
        let known = &state.report.known;
        if known.damaged.contains(revision) || known.lost.contains(revision) {
            return;
        }
        state.report.known.damaged.insert(revision, revision);
        self.publish(&state.report);
    }

    /// Returns the revision from which on expiry is certain. A lost record may have replaced a state that an
    /// earlier revision wrote, so it is uncertain whether the time to live of that state has passed.
    pub fn expiry_is_certain_from(&self) -> Revision {
        if self.unaccepted.borrow().lost == 0 {
            return Revision::ZERO;
        }
        let state = self.state.lock();
        let unnamed = if state.report.unnamed > 0 { state.before.until } else { Revision::ZERO };
        state.report.unaccepted().lost.last().unwrap_or(Revision::ZERO).max(unnamed)
    }

    /// Returns the ledger that must be written so that the log lists all losses; `None` if the log already
    /// lists them.
    pub fn to_note(&self) -> Option<LossReport> {
        let state = self.state.lock();
        let ledger = LossReport { unnamed: 0, ..state.report.clone() };
        (ledger != state.noted).then(|| ledger.joined())
    }

    /// Returns the ledger that must be written so that `found` and all known losses are accepted; `None` if
    /// they are accepted already.
    pub fn to_accept(&self, found: &Losses) -> Option<LossReport> {
        let mut report = self.report();
        report.known.extend(found);
        let LostBefore { count, until } = self.state.lock().before;
        if report.known.lost.count() < count {
            // It is unknown which revisions are lost, because neither the ledger nor the log lists them, so
            // all revisions up to `until` count as lost.
            report.known.lost.insert(Revision::FIRST, until);
        }
        report.unnamed = 0;
        let LossReport { known, accepted, .. } = &mut report;
        accepted.extend(known);
        let report = report.joined();
        (report != self.state.lock().noted).then_some(report)
    }

    /// Notes that the log contains this ledger, which accepts all known losses.
    pub fn accepted(&self, ledger: LossReport) {
        self.state.lock().report.unnamed = 0;
        self.noted(ledger);
    }

    /// Notes that the log contains this ledger.
    pub fn noted(&self, ledger: LossReport) {
        let mut state = self.state.lock();
        state.report.known.extend(&ledger.known);
        state.report.accepted.extend(&ledger.accepted);
        self.publish(&state.report);
        state.noted = ledger;
    }

    /// Publishes the counts. The caller holds the lock of the state, so that the counts are published in the
    /// order of the changes.
    fn publish(&self, report: &LossReport) {
        let counts = report.unaccepted_counts();
        self.unaccepted.send_if_modified(|before| std::mem::replace(before, counts) != counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> RevisionSet {
        let mut set = RevisionSet::default();
        for range in text.split_whitespace() {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            set.insert(first.parse().unwrap(), last.parse().unwrap());
        }
        set
    }

    fn losses(lost: &str, damaged: &str) -> Losses {
        Losses { lost: set(lost), damaged: set(damaged) }
    }

    #[test]
    fn revision_ranges_are_merged_and_subtracted() {
        for (inserted, want) in [
            ("", ""),
            ("5 7 6", "5-7"),
            ("1-3 9-12 4", "1-4 9-12"),
            ("9-12 1-3 2-10", "1-12"),
            ("5-6 1-2 9 20-30 8-19", "1-2 5-6 8-30"),
            ("3-1", ""),
        ] {
            assert_eq!(set(inserted), set(want), "{inserted}");
            let ranges = set(inserted);
            let numbers: Vec<u64> = (0..40).filter(|&n| ranges.contains(Revision::new(n))).collect();
            assert_eq!(numbers.len() as u64, ranges.count(), "{inserted}");
        }
        for (all, other, want) in [
            ("1-10", "", "1-10"),
            ("1-10", "1-10", ""),
            ("1-10", "3-4 7", "1-2 5-6 8-10"),
            ("1-10 20-30", "0-4 25-40", "5-10 20-24"),
            ("5", "1-4 6-9", "5"),
            ("5 9", "1-20", ""),
        ] {
            assert_eq!(set(all).without(&set(other)), set(want), "{all} without {other}");
        }
    }

    #[test]
    fn joining_many_ranges_omits_no_revision() {
        let many = set("1 3 5-6 9 12");
        assert_eq!(many.clone().joined(5), many);
        assert_eq!(many.clone().joined(4), set("1-3 5-9 12"));
        assert_eq!(many.clone().joined(2), set("1-9 12"));
        assert_eq!(many.joined(1), set("1-12"));
    }

    #[test]
    fn a_version_accepted_as_damaged_is_not_accepted_as_lost() {
        let accepted = losses("10-12", "5");
        for (known, unaccepted) in [
            (losses("", "5"), losses("", "")),
            (losses("5", ""), losses("5", "")),
            (losses("", "11"), losses("", "")),
            (losses("9-12", ""), losses("9", "")),
            (losses("10-12", "5 6"), losses("", "6")),
        ] {
            assert_eq!(known.beyond(&accepted), unaccepted, "{known:?}");
        }
    }

    #[test]
    fn a_loss_ledger_is_decoded_completely_or_not_at_all() {
        let report = LossReport { known: losses("5 9-12", "3"), accepted: losses("9-12", ""), unnamed: 0 };
        let text = String::from_utf8(report.encode()).unwrap();
        assert_eq!(
            text,
            "losses 1\nknown lost 5 5\nknown lost 9 12\nknown damaged 3 3\naccepted lost 9 12\n"
        );
        assert_eq!(LossReport::decode(text.as_bytes()), Some(report));
        for wrong in [
            "",
            "losses 2\n",
            "losses 1\nknown lost 5\n",
            "losses 1\nknown gone 5 5\n",
            "losses 1\nknown lost 6 5\n",
            "losses 1\nknown lost 0 5\n",
            "losses 1\nknown lost 5 18446744073709551615\n",
        ] {
            assert_eq!(LossReport::decode(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn accepted_losses_remain_accepted_and_later_losses_are_not() {
        let ledger = StoredLedger { report: LossReport::default(), unreadable: None };
        let none = LostBefore::default();
        let registry = LossRegistry::new(losses("5", "7"), ledger, none);
        let mut counts = registry.watch();
        assert_eq!(*counts.borrow_and_update(), LossCounts { lost: 1, damaged: 1 });
        assert_eq!(registry.expiry_is_certain_from(), Revision::new(5));
        registry.noted(registry.to_note().unwrap());
        assert_eq!(registry.to_note(), None);
        assert!(!counts.has_changed().unwrap(), "to note a loss does not accept it");
        registry.accepted(registry.to_accept(&losses("", "8")).unwrap());
        assert!(counts.borrow_and_update().is_empty());
        assert_eq!(registry.expiry_is_certain_from(), Revision::ZERO);
        assert_eq!(registry.to_accept(&losses("5", "8")), None, "once is enough");
        registry.note_damaged(Revision::new(8));
        assert!(counts.borrow().is_empty(), "it is accepted");
        registry.note_damaged(Revision::new(9));
        assert_eq!(*counts.borrow(), LossCounts { lost: 0, damaged: 1 });
        // The same store is opened again.
        let noted = registry.to_note().unwrap();
        let again =
            LossRegistry::new(losses("5", ""), StoredLedger { report: noted, unreadable: None }, none);
        assert_eq!(*again.watch().borrow(), LossCounts { lost: 0, damaged: 1 });
        let unreadable = StoredLedger { report: LossReport::default(), unreadable: Some(Revision::new(20)) };
        let without = LossRegistry::new(losses("5", "7"), unreadable, none);
        assert_eq!(*without.watch().borrow(), LossCounts { lost: 1, damaged: 2 });
    }

    #[test]
    fn losses_that_a_checkpoint_only_counts_are_accepted_only_after_a_search() {
        let before = LostBefore { count: 3, until: Revision::new(50) };
        for (found, accepted) in [("5 7-9", "5 7-9"), ("5", "1-50"), ("", "1-50")] {
            let registry = LossRegistry::new(losses("", ""), StoredLedger::default(), before);
            assert_eq!(*registry.watch().borrow(), LossCounts { lost: 3, damaged: 0 });
            assert_eq!(registry.expiry_is_certain_from(), Revision::new(50));
            assert_eq!(registry.to_note(), None, "there is nothing to say yet");
            registry.accepted(registry.to_accept(&losses(found, "")).unwrap());
            assert!(registry.watch().borrow().is_empty(), "{found}");
            let ledger = StoredLedger { report: registry.state.lock().noted.clone(), unreadable: None };
            assert_eq!(ledger.report.accepted.lost, set(accepted), "{found}");
            assert!(LossRegistry::new(losses("", ""), ledger, before).watch().borrow().is_empty(), "{found}");
        }
    }
}
