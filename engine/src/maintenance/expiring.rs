//! Expiry: deletes keys whose time to live has passed, by conditional writes through the queue.
//!
//! The expiry of a key is certain only if its newest record is known. If revisions are lost and the loss is
//! not accepted, a lost record may have extended the time to live of an older key. So older keys stay until
//! the loss is accepted and the store is opened again. Keys written after the last lost revision expire
//! normally.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::{NAP_MAX, RETRY, Tools, Turn};
use crate::error::CommitError;
use crate::expiry::DueVersion;
use crate::queue::Committed;
use crate::sabotage;
use crate::snapshot::Root;
use crate::types::{Change, Expected, Revision, Write};

/// Maximum number of deletes of expired keys in progress.
const DELETES_MAX: usize = 64;

/// The deletes in progress.
#[derive(Default)]
pub(super) struct Expiring {
    deletes: Vec<(DueVersion, oneshot::Receiver<Result<Committed, CommitError>>)>,
}

impl Expiring {
    /// Returns whether no delete is in progress.
    pub fn is_at_rest(&self) -> bool {
        self.deletes.is_empty()
    }

    /// Deletes expired keys, through the sequencer like all other writes.
    pub fn turn(&mut self, tools: &Tools, now_ms: u64) -> Turn {
        let mut again = Vec::new();
        let mut worked = false;
        self.deletes.retain_mut(|(due, outcome)| match outcome.try_recv() {
            Err(TryRecvError::Empty) => true,
            Ok(Ok(_)) => {
                tools.status.expired.fetch_add(1, Ordering::Relaxed);
                worked = true;
                false
            }
            Ok(Err(CommitError::Refused(_) | CommitError::OutcomeUnknown(_))) => {
                again.push(*due);
                false
            }
            Ok(Err(CommitError::Damaged(error))) => {
                tracing::error!("cannot delete an expired key: {error}");
                false
            }
            // The key was written or deleted in the meantime, or the store is closed.
            Ok(Err(_)) | Err(TryRecvError::Closed) => false,
        });
        let retry_s = u32::try_from(now_ms / 1_000 + RETRY.as_secs()).unwrap_or(u32::MAX);
        again.into_iter().for_each(|due| tools.expiry.add(DueVersion { at_s: retry_s, ..due }));

        let now_s = u32::try_from(now_ms / 1_000).unwrap_or(u32::MAX);
        let due = tools.expiry.take_due(now_s, DELETES_MAX - self.deletes.len());
        let root = tools.hub.root();
        let certain_from = tools.losses.expiry_is_certain_from();
        for due in due {
            worked = true;
            if due.revision < certain_from {
                continue;
            }
            let key = match read_key(&root, due.revision) {
                Ok(Some(key)) => key,
                // The record is damaged; its readers get an error.
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!("cannot delete an expired key, trying again later: {error}");
                    tools.expiry.add(DueVersion { at_s: retry_s, ..due });
                    continue;
                }
            };
            let expected = if sabotage::expiry_unconditional() {
                Expected::Any
            } else {
                Expected::Revision(due.revision)
            };
            let write = Write { key, expected, change: Change::Delete(None) };
            match tools.queue.try_submit(write) {
                Some(outcome) => self.deletes.push((due, outcome)),
                None => tools.expiry.add(DueVersion { at_s: retry_s, ..due }),
            }
        }
        match (worked, self.deletes.is_empty()) {
            (true, _) => Turn::Worked,
            // The answers arrive after the sequencer's next turn.
            (false, false) => Turn::Idle(Duration::from_millis(5)),
            (false, true) => Turn::Idle(NAP_MAX),
        }
    }
}

/// Returns the key that `revision` wrote, if its record can be found.
fn read_key(root: &Root, revision: Revision) -> io::Result<Option<Bytes>> {
    let Some(segment) = root.segments.starting_at(revision).first() else { return Ok(None) };
    let mut walk = segment.walk_from(revision)?;
    let found = std::iter::from_fn(|| walk.next()).find(|found| found.head.revision >= revision);
    let found = found.filter(|found| found.head.revision == revision);
    Ok(found.map(|found| Bytes::copy_from_slice(found.head.key(&found.bytes))))
}
