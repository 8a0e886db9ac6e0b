//! The quorum read: which revision etcd is at, asked once for all that wait.
//!
//! A caller is answered by a question that was sent after it came, so that everything that was acknowledged before it came is
//! in the answer. While one question is under way, later callers gather for the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::Revision;
use etcd::Error;
use etcd::rpc::RangeRequest;
use tokio::sync::Mutex;

use super::{FOLLOW_WAIT, Replica, number, revision};
use crate::values::status::{Reason, Status};

/// A key that no object has: the question reads nothing but the revision.
const ABSENT: &[u8] = b"\0";

/// How long the engine may be behind, with nothing coming, before the stream is begun anew.
const STALL: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct Barrier {
    arrivals: AtomicU64,
    last: Mutex<Option<Answer>>,
}

struct Answer {
    /// Arrivals before the question was sent.
    arrivals: u64,
    outcome: Result<Revision, Error>,
}

impl Replica {
    /// Waits until the engine has everything that was acknowledged by any server before the call.
    ///
    /// # Errors
    /// 504 when etcd, or the stream, does not answer in time; 503 when etcd cannot be reached.
    pub async fn current(&self) -> Result<(), Status> {
        let newest = self.newest().await.map_err(|error| self.unanswered(&error))?;
        self.follow_to(newest).await?;
        match self.has_left() {
            true => Err(self.moved()),
            false => Ok(()),
        }
    }

    /// The answer to what this etcd cannot say any more.
    pub(super) fn moved(&self) -> Status {
        let message =
            "the store is moved to another place, or is being filled: ask the server that serves it now";
        Status::new(Reason::ServiceUnavailable, message)
    }

    /// Etcd's revision, from a question sent after the call.
    pub(super) async fn newest(&self) -> Result<Revision, Error> {
        let arrival = self.barrier.arrivals.fetch_add(1, Ordering::AcqRel);
        let mut last = self.barrier.last.lock().await;
        if let Some(answer) = last.as_ref().filter(|answer| answer.arrivals > arrival) {
            return answer.outcome.clone();
        }
        let arrivals = self.barrier.arrivals.load(Ordering::Acquire);
        let outcome = self.ask().await;
        *last = Some(Answer { arrivals, outcome: outcome.clone() });
        outcome
    }

    async fn ask(&self) -> Result<Revision, Error> {
        let had = self.engine.revision();
        let request = RangeRequest { key: ABSENT.into(), limit: 1, ..RangeRequest::default() };
        let answer = self.client.range(&request).await;
        if let Err(error @ Error::OtherCluster { .. }) = &answer {
            self.break_off(error.to_string());
        }
        let newest = revision(answer?.header.unwrap_or_default().revision);
        if newest < had {
            self.break_off(format!(
                "etcd is at revision {newest}, before {had}, which this server has seen: it was restored"
            ));
        }
        Ok(newest)
    }

    /// Waits until the engine has `wanted`.
    pub(super) async fn follow_to(&self, wanted: Revision) -> Result<(), Status> {
        if self.engine.revision() >= wanted {
            return Ok(());
        }
        let began = tokio::time::Instant::now();
        let reached = self.engine.reached(wanted);
        tokio::pin!(reached);
        loop {
            let wait = STALL.min(FOLLOW_WAIT.saturating_sub(began.elapsed()));
            if tokio::time::timeout(wait, &mut reached).await.is_ok() && self.engine.revision() >= wanted {
                return Ok(());
            }
            if began.elapsed() >= FOLLOW_WAIT || self.engine.revision() >= wanted {
                break;
            }
            self.stalled.notify_one();
        }
        if self.engine.revision() >= wanted {
            return Ok(());
        }
        let (at, wanted) = (number(self.engine.revision()), number(wanted));
        let message = format!("Timeout: this server is at revision {at} of etcd, which is at {wanted}");
        Err(Status::new(Reason::Timeout, message))
    }

    /// The answer to a read that etcd did not answer.
    pub(super) fn unanswered(&self, error: &Error) -> Status {
        tracing::warn!(%error, "etcd does not answer");
        match error {
            Error::Lost(_) => Status::new(Reason::Timeout, format!("Timeout: {error}")),
            Error::Unreachable(_) | Error::OtherCluster { .. } => {
                Status::new(Reason::ServiceUnavailable, error.to_string())
            }
            Error::Answered { .. } if error.outcome_is_unknown() => {
                Status::new(Reason::Timeout, format!("Timeout: {error}"))
            }
            Error::Answered { .. } | Error::Malformed(_) => Status::internal(error),
        }
    }
}
