//! The decision on a proposed write: the condition of the write is compared with the newest version of its
//! key. The result is a draft record or a conflict.
//!
//! All functions are pure: they use neither I/O nor a clock, and they assign no revision (`commit.rs` does,
//! when it applies the draft). The functions read no stored bytes. The draft of a delete may only note that
//! the stored state is the final state; the sequencer then reads that state.

use std::time::Duration;

use bytes::Bytes;

use crate::history::Version;
use crate::record::EventKind;
use crate::sabotage;
use crate::types::{Change, Expected, Payload, Revision};

/// A record without its revision, its time and its position in the log.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub kind: EventKind,
    /// The revision of the put that created the key; `None` if this record creates it.
    pub created: Option<Revision>,
    /// The live version that the record replaces.
    pub previous: Option<Version>,
    pub state: DraftState,
    /// Time after the commit at which the key expires.
    pub ttl: Option<Duration>,
}

/// The state that a draft stores.
#[derive(Clone, Debug)]
pub(crate) enum DraftState {
    /// The given state, with its revision to be inserted at `stamp_at` of the value.
    Given { attributes: Bytes, value: Bytes, stamp_at: Option<u32> },
    /// The state of `previous`, with its stamp replaced, and with these attributes if there are any.
    Stored { attributes: Option<Bytes> },
    /// No state: readers find the state of `previous` in its own record. The variant needs constant memory.
    Absent,
}

impl DraftState {
    fn from_payload(payload: Payload) -> DraftState {
        DraftState::Given { attributes: payload.attributes, value: payload.value, stamp_at: payload.stamp_at }
    }
}

impl Draft {
    /// Returns this draft. If the draft is a delete, the result has no final state.
    pub fn without_final_state(self) -> Draft {
        match self.kind {
            EventKind::Delete => Draft { state: DraftState::Absent, ..self },
            EventKind::Put => self,
        }
    }

    /// Returns whether the record carries no state.
    pub fn is_without_state(&self) -> bool {
        matches!(self.state, DraftState::Absent)
    }
}

/// The condition of a write does not hold, or the key to delete does not exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Conflict;

/// Returns the draft of `change` to a key whose newest version is `newest`, if that version meets the
/// condition `expected`.
pub(crate) fn decide(
    expected: Expected,
    change: Change,
    newest: Option<&Version>,
) -> Result<Draft, Conflict> {
    let current = newest.filter(|version| !version.is_delete()).copied();
    let as_expected = match expected {
        _ if sabotage::expectation_skipped() => true,
        Expected::Any => true,
        Expected::Absent => current.is_none(),
        Expected::Revision(revision) => current.is_some_and(|version| version.revision == revision),
    };
    if !as_expected {
        return Err(Conflict);
    }
    draft(change, current, current.map(|version| version.created))
}

/// Returns the draft of `change` to a key whose live version is `current`. A delete needs a live version.
pub(crate) fn draft(
    change: Change,
    current: Option<Version>,
    created: Option<Revision>,
) -> Result<Draft, Conflict> {
    let (kind, ttl, state) = match change {
        Change::Put(payload) => (EventKind::Put, payload.ttl, DraftState::from_payload(payload)),
        Change::Delete(_) | Change::DeleteStored(_) if current.is_none() => return Err(Conflict),
        Change::Delete(Some(payload)) => (EventKind::Delete, None, DraftState::from_payload(payload)),
        Change::Delete(None) => (EventKind::Delete, None, DraftState::Stored { attributes: None }),
        Change::DeleteStored(attributes) => {
            (EventKind::Delete, None, DraftState::Stored { attributes: Some(attributes) })
        }
    };
    Ok(Draft { kind, created, previous: current, state, ttl })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::RecordLocation;

    fn version(text: &str) -> Version {
        let (revision, deleted) = match text.strip_suffix('d') {
            Some(revision) => (revision, true),
            None => (text, false),
        };
        let location = RecordLocation::new(8, 80, deleted);
        Version {
            revision: revision.parse().unwrap(),
            created: Revision::new(2),
            segment: crate::types::SegmentNumber::FIRST,
            expires_s: 0,
            location,
        }
    }

    #[test]
    fn a_write_is_drafted_if_its_condition_holds_for_the_newest_version() {
        use Expected::{Absent, Any};
        let at = |revision| Expected::Revision(Revision::new(revision));
        let put = || Change::Put(Payload { ttl: Some(Duration::from_secs(5)), ..Payload::default() });
        let delete = || Change::Delete(Some(Payload { ttl: Some(Duration::MAX), ..Payload::default() }));
        let delete_stored = || Change::Delete(None);
        // The newest version (`d` for a delete), the condition, and the outcomes of a put, a delete with a
        // state, and a delete without a state.
        for (newest, expected, outcomes) in [
            ("", Any, ["put", "conflict", "conflict"]),
            ("", Absent, ["put", "conflict", "conflict"]),
            ("", at(7), ["conflict"; 3]),
            ("7", Any, ["put after 7", "delete after 7", "delete of 7"]),
            ("7", Absent, ["conflict"; 3]),
            ("7", at(7), ["put after 7", "delete after 7", "delete of 7"]),
            ("7", at(6), ["conflict"; 3]),
            ("7d", Any, ["put", "conflict", "conflict"]),
            ("7d", Absent, ["put", "conflict", "conflict"]),
            ("7d", at(7), ["conflict"; 3]),
        ] {
            let newest = (!newest.is_empty()).then(|| version(newest));
            for (change, outcome) in [put(), delete(), delete_stored()].into_iter().zip(outcomes) {
                let is_put = matches!(change, Change::Put(_));
                let got = match decide(expected, change, newest.as_ref()) {
                    Err(Conflict) => "conflict".to_owned(),
                    Ok(draft) => {
                        assert_eq!(draft.created, draft.previous.map(|_| Revision::new(2)));
                        assert_eq!(draft.ttl.is_some(), is_put, "a delete does not expire");
                        let verb = if draft.kind == EventKind::Put { "put" } else { "delete" };
                        match (draft.previous, draft.state) {
                            (None, _) => verb.to_owned(),
                            (Some(previous), DraftState::Stored { .. }) => {
                                format!("{verb} of {}", previous.revision)
                            }
                            (Some(previous), _) => format!("{verb} after {}", previous.revision),
                        }
                    }
                };
                assert_eq!(got, outcome, "{newest:?} {expected:?}");
            }
        }
    }
}
