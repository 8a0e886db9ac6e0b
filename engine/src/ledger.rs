//! Reads the ledger: the record of the store that lists its losses (`losses.rs`).

use std::sync::Arc;

use crate::entry::Entry;
use crate::index::Tree;
use crate::losses::{LEDGER_KEY, LossReport, StoredLedger};
use crate::segment::Segment;
use crate::types::Revision;

/// Reads the ledger in `tree`, the index of a store with these segments.
pub(crate) fn read(tree: &Tree, segments: &[Arc<Segment>]) -> StoredLedger {
    let newest = tree.at(LEDGER_KEY, Revision::MAX).filter(|version| !version.is_delete());
    let Some(version) = newest else { return StoredLedger::default() };
    let segment = segments.iter().find(|segment| segment.header.number == version.segment);
    let entry = segment.map(|segment| Entry::new(LEDGER_KEY.into(), version, segment.clone()));
    let value = entry.and_then(|entry| entry.read().ok()).map(|record| record.value);
    match value.and_then(|value| LossReport::decode(&value)) {
        Some(report) => StoredLedger { report, unreadable: None },
        None => StoredLedger { report: LossReport::default(), unreadable: Some(version.revision) },
    }
}
