//! Checks of the records that a follower receives. Another store assigned the revisions of these records.
//! All functions are pure.
//!
//! The first revision of a batch is greater than the newest revision of the store, and within a batch the
//! revisions never decrease. There may be gaps, and several records may share one revision. Records of one
//! revision form one transaction: they become durable and visible together, and each has a different key.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use crate::error::ApplyError;
use crate::history::Version;
use crate::types::{
    APPLIED_BYTES_MAX, APPLIED_RECORDS_MAX, ATTRIBUTES_BYTES_MAX, Applied, Change, KEY_BYTES_MAX, Payload,
    Revision, VALUE_BYTES_MAX,
};

/// Checks the rules that do not depend on the contents of the store.
pub(crate) fn check_form(batch: &[Applied]) -> Result<(), ApplyError> {
    let bytes = batch.iter().map(Applied::payload_bytes).sum();
    if batch.is_empty() || batch.len() > APPLIED_RECORDS_MAX || bytes > APPLIED_BYTES_MAX {
        return Err(ApplyError::Size { records: batch.len(), bytes });
    }
    let mut keys: HashSet<&Bytes> = HashSet::new();
    let mut newest = Revision::ZERO;
    for (at, applied) in batch.iter().enumerate() {
        if applied.revision < newest {
            return Err(ApplyError::Order { at });
        }
        if applied.revision > newest {
            keys.clear();
        }
        newest = applied.revision;
        if !keys.insert(&applied.key) {
            return Err(ApplyError::KeyTwice { at });
        }
        if !is_within_limits(applied) {
            return Err(ApplyError::Limits { at });
        }
    }
    Ok(())
}

fn is_within_limits(applied: &Applied) -> bool {
    let payload_is = match &applied.change {
        Change::Put(payload) | Change::Delete(Some(payload)) => payload_is_within_limits(payload),
        Change::Delete(None) => true,
        Change::DeleteStored(attributes) => attributes.len() <= ATTRIBUTES_BYTES_MAX,
    };
    let revisions = Revision::FIRST..crate::types::REVISION_END;
    (1..=KEY_BYTES_MAX).contains(&applied.key.len())
        && revisions.contains(&applied.revision)
        && (Revision::FIRST..=applied.revision).contains(&applied.created)
        && payload_is
}

fn payload_is_within_limits(payload: &Payload) -> bool {
    payload.attributes.len() <= ATTRIBUTES_BYTES_MAX
        && payload.value.len() <= VALUE_BYTES_MAX
        && payload.stamp_at.is_none_or(|at| at as usize <= payload.value.len())
}

/// Checks whether a store with the newest revision `newest` can continue with `batch`, which [`check_form`]
/// must have accepted. `version` returns the newest version of a key.
pub(crate) fn check_continuation<'v>(
    batch: &[Applied],
    newest: Revision,
    version: impl Fn(&[u8]) -> Option<&'v Version>,
) -> Result<(), ApplyError> {
    if batch.first().is_some_and(|first| first.revision <= newest) {
        return Err(ApplyError::NotNewer { newest });
    }
    // The keys that the batch has changed so far, each with its created revision, or with `None` if the batch
    // deleted it.
    let mut changed: HashMap<&Bytes, Option<Revision>> = HashMap::new();
    for (at, applied) in batch.iter().enumerate() {
        let stored = || version(&applied.key).filter(|version| !version.is_delete()).map(|it| it.created);
        let created = changed.get(&applied.key).copied().unwrap_or_else(stored);
        match (&applied.change, created) {
            (Change::Delete(_) | Change::DeleteStored(_), None) => {
                return Err(ApplyError::NothingToDelete { at });
            }
            (_, Some(created)) if created != applied.created => {
                return Err(ApplyError::Created { at, created });
            }
            _ => {}
        }
        let exists = matches!(applied.change, Change::Put(_));
        changed.insert(&applied.key, exists.then_some(applied.created));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::RecordLocation;

    /// Parses records of the form `key@revision` or `key@revision<created`, with `-` in front for a delete.
    fn batch(text: &str) -> Vec<Applied> {
        text.split_whitespace()
            .map(|word| {
                let (key, revisions) = word.trim_start_matches('-').split_once('@').unwrap();
                let (revision, created) = revisions.split_once('<').unwrap_or((revisions, revisions));
                let change = if word.starts_with('-') {
                    Change::Delete(None)
                } else {
                    Change::Put(Payload::default())
                };
                let key = Bytes::copy_from_slice(key.as_bytes());
                let (revision, created) = (revision.parse().unwrap(), created.parse().unwrap());
                Applied { revision, created, key, change }
            })
            .collect()
    }

    #[test]
    fn applied_batches_need_nondecreasing_revisions_and_known_keys() {
        let live = Version {
            revision: Revision::new(7),
            created: Revision::new(3),
            segment: crate::types::SegmentNumber::FIRST,
            expires_s: 0,
            location: RecordLocation::new(8, 80, false),
        };
        let deleted = Version { location: RecordLocation::new(8, 80, true), ..live };
        // The store is at revision 9; `l` was created at 3, and `d` is deleted.
        for (text, outcome) in [
            ("a@10", "ok"),
            ("a@10 b@10 c@500 -a@501<10 a@502", "ok"),
            ("l@10<3 -l@11<3 l@12", "ok"),
            ("d@10 -l@10<3", "ok"),
            ("a@10<2", "ok"),
            ("", "Size { records: 0, bytes: 0 }"),
            ("a@9", "NotNewer { newest: Revision(9) }"),
            ("a@11 b@10", "Order { at: 1 }"),
            ("a@10 b@10 a@10", "KeyTwice { at: 2 }"),
            ("a@10<11", "Limits { at: 0 }"),
            ("a@0", "Limits { at: 0 }"),
            ("@10", "Limits { at: 0 }"),
            ("a@4611686018427387904", "Limits { at: 0 }"),
            ("l@10", "Created { at: 0, created: Revision(3) }"),
            ("a@10 a@11", "Created { at: 1, created: Revision(10) }"),
            ("-a@10", "NothingToDelete { at: 0 }"),
            ("-d@10", "NothingToDelete { at: 0 }"),
            ("-l@10<3 -l@11<3", "NothingToDelete { at: 1 }"),
        ] {
            let batch = batch(text);
            let version = |key: &[u8]| match key {
                b"l" => Some(&live),
                b"d" => Some(&deleted),
                _ => None,
            };
            let outcome_is =
                check_form(&batch).and_then(|()| check_continuation(&batch, Revision::new(9), version));
            let got = outcome_is.map_or_else(|error| format!("{error:?}"), |()| "ok".to_owned());
            assert_eq!(got, outcome, "{text}");
        }
    }
}
