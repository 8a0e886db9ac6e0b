//! Follows etcd with one stream of all changes. Whenever the stream ends, it is restarted at the revision
//! after the newest revision of the engine.
//!
//! ```text
//! stream ─ events ─► whole revisions ─► engine
//!   ├ compacted ─► fill, and watches that missed something start over
//!   ├ broken, cancelled, silent ─► another member, after a pause
//!   └ another cluster, an older revision, changes that do not continue ours ─► the copy is broken
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{APPLIED_BYTES_MAX, APPLIED_RECORDS_MAX, ApplyError, Refusal, Revision};
use etcd::rpc::{EVENT_PUT, Event, WatchCreateRequest, WatchResponse};
use etcd::{Error, WatchEnd};
use futures_util::FutureExt;

use super::apply::{Batch, by_revision};
use super::compaction;
use super::fill::FillError;
use super::{Replica, number};

/// Minimum and maximum pause before a stream is restarted.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Start and end of the range of all keys.
const FIRST_KEY: &[u8] = b"\0";

/// The reason why the follower was interrupted or ended.
enum Trouble {
    Stream(WatchEnd),
    Apply(ApplyError),
    Silent,
}

impl Replica {
    /// Follows etcd until the copy is broken or the engine is closed.
    pub async fn follow(self: Arc<Self>) {
        let mut pause = PAUSE.0;
        loop {
            let before = self.engine.revision();
            let trouble = if self.is_to_be_filled() {
                // A fill was interrupted, and a stream cannot deliver the missing states.
                Trouble::Stream(WatchEnd::Compacted(number(before.next())))
            } else {
                self.follow_stream().await
            };
            if self.engine.revision() > before {
                pause = PAUSE.0;
            }
            match trouble {
                Trouble::Apply(ApplyError::Closed) => return,
                Trouble::Apply(ApplyError::Refused(Refusal::DiskFull)) => {
                    self.note("the disk of the copy is full");
                }
                Trouble::Apply(error) => {
                    return self.break_off(format!("etcd's changes do not continue the copy: {error}"));
                }
                Trouble::Stream(WatchEnd::Failed(error @ Error::OtherCluster { .. })) => {
                    return self.break_off(error.to_string());
                }
                Trouble::Stream(WatchEnd::Compacted(oldest)) => {
                    tracing::warn!(
                        oldest,
                        copy = number(before),
                        "watch of etcd is behind its compaction, filling the local copy again"
                    );
                    match self.fill().await {
                        Ok(_) => continue,
                        Err(FillError::Engine(ApplyError::Closed)) => return,
                        Err(FillError::Engine(error)) => {
                            return self.break_off(format!("the copy cannot be filled: {error}"));
                        }
                        Err(FillError::Etcd(error)) => self.note(&error.to_string()),
                    }
                }
                Trouble::Stream(end) => self.note(&end.to_string()),
                Trouble::Silent => self.note("etcd is ahead of its stream"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    fn note(&self, trouble: &str) {
        tracing::warn!(trouble, "watch of etcd interrupted, resuming");
        *self.trouble.lock() = Some(trouble.to_owned());
    }

    /// Follows one stream to its end.
    async fn follow_stream(&self) -> Trouble {
        let request = WatchCreateRequest {
            key: Bytes::from_static(FIRST_KEY),
            range_end: Bytes::from_static(FIRST_KEY),
            start_revision: number(self.engine.revision().next()),
            progress_notify: true,
            fragment: true,
        };
        let mut stream = match self.client.watch(request).await {
            Ok(stream) => stream,
            Err(error) => return Trouble::Stream(error.into()),
        };
        // The first response confirms that the stream was created.
        match tokio::time::timeout(self.client.deadline(), stream.next()).await {
            Ok(Ok(first)) => {
                if let Err(error) = self.take_in(&first).await {
                    return Trouble::Apply(error);
                }
            }
            Ok(Err(end)) => {
                stream.leave_member().await;
                return Trouble::Stream(end);
            }
            Err(_) => {
                stream.leave_member().await;
                return Trouble::Stream(Error::Lost("no stream in time".into()).into());
            }
        }
        *self.trouble.lock() = None;
        loop {
            let response = tokio::select! {
                response = stream.next() => response,
                () = self.stalled.notified() => {
                    stream.leave_member().await;
                    return Trouble::Silent;
                }
            };
            let (taken, end) = match response {
                Ok(first) => {
                    let (all, end) = with_waiting(first, || stream.next().now_or_never());
                    (Some(all), end)
                }
                Err(end) => (None, Some(end)),
            };
            if let Some(response) = taken
                && let Err(error) = self.take_in(&response).await
            {
                return Trouble::Apply(error);
            }
            if let Some(end) = end {
                stream.leave_member().await;
                return Trouble::Stream(end);
            }
        }
    }

    /// Applies the events of a response in order. Each revision is applied as a whole.
    async fn take_in(&self, response: &WatchResponse) -> Result<(), ApplyError> {
        let had = self.engine.revision();
        let revisions: BTreeMap<Revision, Vec<&Event>> = by_revision(&response.events);
        for event in &response.events {
            // Record a move before the engine has the revision. A reader that waits for the revision must not
            // regard the revision as the newest state.
            self.note_move(event);
        }
        let mut batch = Batch::new(self);
        for (at, events) in revisions.range(had.next()..) {
            batch.events(*at, events).await?;
        }
        batch.apply().await?;
        let compacted = response.events.iter().filter(|event| event.kind == EVENT_PUT);
        let compacted =
            compacted.filter_map(|event| compaction::compacted_revision(event.kv.as_ref()?)).max();
        if let Some(revision) = compacted {
            compaction::follow(&self.engine, revision);
        }
        Ok(())
    }
}

/// Combines a response with the responses that are already waiting. Returns the combined response, and the
/// reason why the stream ended, if it ended. `next` returns `None` if no response is waiting.
///
/// etcd sends a response for each revision. If the responses were applied one by one, the backlog would grow
/// under load. The HTTP/2 library would then close the connection because many small frames are queued.
fn with_waiting(
    first: WatchResponse,
    mut next: impl FnMut() -> Option<Result<WatchResponse, WatchEnd>>,
) -> (WatchResponse, Option<WatchEnd>) {
    let size = |events: &[Event]| -> usize {
        events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.value.len()).sum()
    };
    let mut all = first;
    let mut bytes = size(&all.events);
    while bytes < APPLIED_BYTES_MAX && all.events.len() < APPLIED_RECORDS_MAX {
        match next() {
            None => break,
            Some(Err(end)) => return (all, Some(end)),
            Some(Ok(more)) => {
                bytes += size(&more.events);
                all.events.extend(more.events);
                all.header = more.header;
            }
        }
    }
    (all, None)
}

#[cfg(test)]
mod tests {
    use etcd::rpc::KeyValue;

    use super::*;

    fn response(revisions: std::ops::Range<i64>, bytes: usize) -> WatchResponse {
        let event = |mod_revision| Event {
            kv: Some(KeyValue { mod_revision, value: vec![b'x'; bytes].into(), ..KeyValue::default() }),
            ..Event::default()
        };
        WatchResponse { events: revisions.map(event).collect(), ..WatchResponse::default() }
    }

    #[test]
    fn waiting_responses_are_applied_together_up_to_a_size_limit() {
        // The columns are: number of waiting responses with one revision each, bytes in each response,
        // whether the stream then ends, number of responses that are combined.
        let large = APPLIED_BYTES_MAX / 2;
        for (waiting, bytes, ended, taken) in [
            (0, 1, false, 1),
            (1000, 1, false, 1001),
            (1000, 1, true, 1001),
            (5, large, false, 2),
            (APPLIED_RECORDS_MAX, 0, false, APPLIED_RECORDS_MAX),
        ] {
            let mut at = 1;
            let next = || {
                at += 1;
                match usize::try_from(at - 2).unwrap() {
                    behind if behind < waiting => Some(Ok(response(at..at + 1, bytes))),
                    _ if ended => Some(Err(WatchEnd::Compacted(7))),
                    _ => None,
                }
            };
            let (all, end) = with_waiting(response(1..2, bytes), next);
            let revisions: Vec<i64> =
                all.events.iter().map(|e| e.kv.as_ref().unwrap().mod_revision).collect();
            assert_eq!(
                revisions,
                (1..=i64::try_from(taken).unwrap()).collect::<Vec<_>>(),
                "{waiting} {bytes}"
            );
            assert_eq!(end.is_some(), ended, "{waiting} {bytes}");
        }
    }
}
