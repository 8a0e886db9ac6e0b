//! Read-ahead for a fill: while the states of some steps are applied, the next states are requested and
//! converted.
//!
//! ```text
//! steps ─► windows ─► one read-only transaction each, at one revision ─► states in the engine's form ─► in the order of steps
//!                     └────────────── at most AHEAD_MAX of them at a time ──────────────┘
//! ```
//!
//! Memory: at most `AHEAD_MAX` responses of at most `ANSWER_BYTES_MAX` bytes, and the states that are made
//! from them. A window with larger values is read when its turn comes, one value after the other.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use engine::Revision;
use etcd::rpc::{RangeRequest, Request, RequestOp, Response, ResponseOp, TxnRequest};
use etcd::{Error, MESSAGE_BYTES_MAX};
use futures_util::FutureExt;
use tokio::task::JoinHandle;

use super::apply::State;
use super::{Replica, number};

/// Maximum number of keys in one transaction. etcd accepts 128 operations by default.
const KEYS_MAX: usize = 100;

/// Maximum number of windows that are being read or wait for their turn. Typically etcd reads one window, one
/// window is in transit, and two windows are being converted. The conversion takes most of the time.
const AHEAD_MAX: usize = 4;

/// Maximum response size for a window that is read ahead: 80 kB for each value.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A step of a fill at a revision.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Writes the state of an etcd key to the engine.
    Put(Bytes),
    /// Removes a key from the engine.
    Remove(Bytes),
}

/// A step with the data that it needs.
pub(super) enum Ready {
    Put(State),
    Remove(Bytes),
}

impl Ready {
    /// Returns the number of bytes that this step adds to a batch.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Ready::Put(state) => state.bytes(),
            Ready::Remove(_) => 0,
        }
    }
}

/// An iterator over windows of steps, which reads the next windows ahead.
pub(super) struct ReadAhead<'s> {
    replica: &'s Arc<Replica>,
    /// The revision at which all states are read.
    at: Revision,
    rest: &'s [(Revision, Step)],
    under_way: VecDeque<(&'s [(Revision, Step)], Reading)>,
    /// The rest of a window whose response was too large.
    large: &'s [(Revision, Step)],
}

impl<'s> ReadAhead<'s> {
    /// Returns an iterator over these steps, which must be in the order of revisions. The states are read at
    /// revision `at`.
    pub(super) fn new(
        replica: &'s Arc<Replica>,
        steps: &'s [(Revision, Step)],
        at: Revision,
    ) -> ReadAhead<'s> {
        ReadAhead { replica, at, rest: steps, under_way: VecDeque::new(), large: &[] }
    }

    /// Returns the next steps, including all steps of each of their revisions; `None` at the end.
    ///
    /// # Errors
    /// Fails if etcd does not respond, or has compacted the revision of the states.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<(Revision, Ready)>>, Error> {
        loop {
            if let Some(part) = cut(&mut self.large, 1) {
                return self.replica.read(part, self.at, 1, MESSAGE_BYTES_MAX).await.map(Some);
            }
            while self.under_way.len() < AHEAD_MAX
                && let Some(window) = cut(&mut self.rest, KEYS_MAX)
            {
                let (replica, at, steps) = (self.replica.clone(), self.at, window.to_vec());
                let reading = async move { replica.read(&steps, at, KEYS_MAX, ANSWER_BYTES_MAX).await };
                self.under_way.push_back((window, Reading(tokio::spawn(reading.boxed()))));
            }
            let Some((window, reading)) = self.under_way.pop_front() else { return Ok(None) };
            match reading.await {
                Err(Error::Malformed(_)) => self.large = window,
                read => return read.map(Some),
            }
        }
    }
}

impl Replica {
    /// Reads the data of the steps. The number of keys and the response size of each transaction are limited.
    async fn read(
        &self,
        steps: &[(Revision, Step)],
        at: Revision,
        keys_max: usize,
        answer_bytes_max: usize,
    ) -> Result<Vec<(Revision, Ready)>, Error> {
        let keys = steps.iter().filter_map(|(_, step)| match step {
            Step::Put(key) => Some(key.clone()),
            Step::Remove(_) => None,
        });
        let keys: Vec<Bytes> = keys.collect();
        let mut states = Vec::with_capacity(keys.len());
        for part in keys.chunks(keys_max) {
            let range = |key: &Bytes| {
                let range =
                    RangeRequest { key: key.clone(), revision: number(at), ..RangeRequest::default() };
                RequestOp::from(Request::Range(range))
            };
            let request = TxnRequest { success: part.iter().map(range).collect(), ..TxnRequest::default() };
            let answer = self.client.read(&request, answer_bytes_max).await?;
            if answer.responses.len() != part.len() {
                return Err(Error::Malformed("not as many answers as questions".to_owned()));
            }
            states.extend(answer.responses.into_iter().map(|response| self.first_of(response)));
        }
        let mut states = states.into_iter();
        let ready = steps.iter().filter_map(|(revision, step)| {
            let ready = match step {
                Step::Put(_) => Ready::Put(states.next()??),
                Step::Remove(key) => Ready::Remove(key.clone()),
            };
            Some((*revision, ready))
        });
        Ok(ready.collect())
    }

    fn first_of(&self, response: ResponseOp) -> Option<State> {
        let Some(Response::Range(range)) = response.response else { return None };
        range.kvs.first().map(|kv| self.state(kv))
    }
}

/// A window that a task is reading. Dropping the window aborts the task.
struct Reading(JoinHandle<Result<Vec<(Revision, Ready)>, Error>>);

impl Future for Reading {
    type Output = Result<Vec<(Revision, Ready)>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|ended| match ended {
            Ok(read) => read,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::Lost("the server stops".to_owned())),
            },
        })
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes the first `most` steps, and all further steps of the last revision among them, so that a revision is
/// never split.
fn cut<'s>(rest: &mut &'s [(Revision, Step)], most: usize) -> Option<&'s [(Revision, Step)]> {
    let all = *rest;
    let mut end = all.len().min(most);
    while (1..all.len()).contains(&end) && all[end].0 == all[end - 1].0 {
        end += 1;
    }
    let (window, after) = all.split_at(end);
    *rest = after;
    (!window.is_empty()).then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_window_never_splits_a_revision() {
        let steps = |revisions: Vec<u64>| -> Vec<(Revision, Step)> {
            revisions.into_iter().map(|at| (Revision::new(at), Step::Put(Bytes::new()))).collect()
        };
        for (revisions, most, want) in [
            (vec![], 100, vec![]),
            (vec![1], 100, vec![1]),
            ((0..250).collect(), 100, vec![100, 100, 50]),
            (vec![7; 250], 100, vec![250]),
            ([vec![1; 99], vec![2; 3], vec![3; 2]].concat(), 100, vec![102, 2]),
            (vec![1, 2, 2, 3], 1, vec![1, 2, 1]),
        ] {
            let steps = steps(revisions);
            let mut rest = &steps[..];
            let windows = std::iter::from_fn(|| cut(&mut rest, most));
            assert_eq!(windows.map(<[_]>::len).collect::<Vec<_>>(), want);
        }
    }
}
