//! The quorum read: asks etcd for its newest revision, with one request for all waiting callers.
//!
//! The result for a caller comes from a request that is sent after the call, so it includes everything that
//! was acknowledged before the call. While the maximum number of requests is under way, further callers wait
//! for the next request together.
//!
//! ```text
//! callers ─► gathering ─ turn ─► sent ─► response ─► all of them at once
//!                └ others join    └ no caller joins any more
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use engine::Revision;
use etcd::Error;
use etcd::rpc::RangeRequest;
use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{FOLLOW_WAIT, Replica, number, revision};
use values::status::{Status, StatusReason};

/// A key without an object, so that the response contains only the revision.
const ABSENT: &[u8] = b"\0";

/// How long the engine may lag without receiving any change before the stream is restarted.
const STALL: Duration = Duration::from_secs(3);

/// Maximum number of concurrent requests. With a second request, a caller need not wait for the end of a
/// request that was sent before the call. With more requests, fewer callers would share each request.
const QUESTIONS_MAX: usize = 2;

pub(super) struct Barrier {
    /// Limits the number of concurrent requests.
    turns: Semaphore,
    /// The request that was not sent yet. The request exists as long as a caller waits for it.
    gathering: Mutex<Option<WeakShared<Asking>>>,
}

type Asking = Pin<Box<dyn Future<Output = Result<Seen, Error>> + Send>>;

/// The result of a request.
#[derive(Clone, Copy)]
struct Seen {
    /// The revision of the engine when the request was sent.
    had: Revision,
    newest: Revision,
}

impl Barrier {
    pub(super) fn new() -> Arc<Barrier> {
        Arc::new(Barrier { turns: Semaphore::new(QUESTIONS_MAX), gathering: Mutex::default() })
    }

    /// Returns a request that was not sent yet. Creates a request from `ask` if every request was already
    /// sent.
    fn question(
        self: &Arc<Self>,
        ask: impl Future<Output = Result<Seen, Error>> + Send + 'static,
    ) -> Shared<Asking> {
        let mut gathering = self.gathering.lock();
        if let Some(question) = gathering.as_ref().and_then(WeakShared::upgrade) {
            return question;
        }
        let barrier = self.clone();
        let asking: Asking = Box::pin(async move {
            // The semaphore is never closed.
            let _turn = barrier.turns.acquire().await;
            *barrier.gathering.lock() = None;
            ask.await
        });
        let question = asking.shared();
        *gathering = question.downgrade();
        question
    }
}

impl Replica {
    /// Waits until the engine has everything that any server acknowledged before the call.
    ///
    /// # Errors
    /// 504 if etcd or the stream does not respond in time, and 503 if etcd cannot be reached.
    pub async fn current(&self) -> Result<(), Status> {
        let newest = self.newest().await.map_err(|error| self.unanswered(&error))?;
        self.follow_to(newest).await?;
        if self.has_left() { Err(self.moved()) } else { Ok(()) }
    }

    /// Returns the error for requests that this etcd no longer serves.
    pub(super) fn moved(&self) -> Status {
        let message = "the store is being moved to another location, or its local copy is being filled: ask the server that serves it now";
        Status::new(StatusReason::ServiceUnavailable, message)
    }

    /// Returns the revision of etcd from a request that is sent after the call.
    pub(super) async fn newest(&self) -> Result<Revision, Error> {
        let (client, engine) = (self.client.clone(), self.engine.clone());
        let ask = async move {
            let had = engine.revision();
            let request = RangeRequest { key: ABSENT.into(), limit: 1, ..RangeRequest::default() };
            let answer = client.range(&request).await?;
            Ok(Seen { had, newest: revision(answer.header.unwrap_or_default().revision) })
        };
        let seen = self.barrier.question(ask).await;
        if let Err(error @ Error::OtherCluster { .. }) = &seen {
            self.break_off(error.to_string());
        }
        let Seen { had, newest } = seen?;
        if newest < had {
            self.break_off(format!(
                "etcd is at revision {newest}, before {had}, which this server has seen: it was restored"
            ));
        }
        Ok(newest)
    }

    /// Waits until the engine has reached `target`.
    pub(super) async fn follow_to(&self, target: Revision) -> Result<(), Status> {
        if self.engine.revision() >= target {
            return Ok(());
        }
        let began = tokio::time::Instant::now();
        let reached = self.engine.reached(target);
        tokio::pin!(reached);
        loop {
            let wait = STALL.min(FOLLOW_WAIT.saturating_sub(began.elapsed()));
            if tokio::time::timeout(wait, &mut reached).await.is_ok() && self.engine.revision() >= target {
                return Ok(());
            }
            if began.elapsed() >= FOLLOW_WAIT || self.engine.revision() >= target {
                break;
            }
            self.stalled.notify_one();
        }
        if self.engine.revision() >= target {
            return Ok(());
        }
        let (at, target) = (number(self.engine.revision()), number(target));
        let message = format!("Timeout: this server is at revision {at} of etcd, which is at {target}");
        Err(Status::new(StatusReason::Timeout, message))
    }

    /// Returns the error for a read to which etcd did not respond.
    pub(super) fn unanswered(&self, error: &Error) -> Status {
        tracing::warn!(%error, "etcd does not respond");
        match error {
            Error::Lost(_) => Status::new(StatusReason::Timeout, format!("Timeout: {error}")),
            Error::Unreachable(_) | Error::OtherCluster { .. } => {
                Status::new(StatusReason::ServiceUnavailable, error.to_string())
            }
            Error::Answered { .. } if error.outcome_is_unknown() => {
                Status::new(StatusReason::Timeout, format!("Timeout: {error}"))
            }
            Error::Answered { .. } | Error::Malformed(_) => Status::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    /// A fake etcd that numbers requests in the order in which they are sent, and responds to a request on
    /// command.
    #[derive(Default)]
    struct Etcd {
        sent: AtomicU64,
        answers: Mutex<Vec<oneshot::Sender<()>>>,
    }

    /// Starts a caller. The result of a call is the number of the request that answered it.
    fn call(barrier: &Arc<Barrier>, etcd: &Arc<Etcd>) -> Shared<Asking> {
        let etcd = etcd.clone();
        let mut question = barrier.question(async move {
            let newest = Revision::new(etcd.sent.fetch_add(1, Ordering::Relaxed) + 1);
            let (answer, answered) = oneshot::channel();
            etcd.answers.lock().push(answer);
            let _ = answered.await;
            Ok(Seen { had: Revision::ZERO, newest })
        });
        assert!((&mut question).now_or_never().is_none());
        question
    }

    fn answered(caller: &mut Shared<Asking>) -> Option<u64> {
        caller.now_or_never().map(|seen| seen.unwrap().newest.get())
    }

    #[test]
    fn callers_that_arrive_while_reads_are_in_flight_share_a_later_read() {
        let (barrier, etcd) = (Barrier::new(), Arc::new(Etcd::default()));
        let sent = || etcd.sent.load(Ordering::Relaxed);
        let mut first: Vec<_> = (0..QUESTIONS_MAX).map(|_| call(&barrier, &etcd)).collect();
        assert_eq!(sent(), QUESTIONS_MAX as u64);
        let mut gathered: Vec<_> = (0..5).map(|_| call(&barrier, &etcd)).collect();
        assert_eq!(sent(), QUESTIONS_MAX as u64);
        assert!(etcd.answers.lock().remove(0).send(()).is_ok());
        assert_eq!(answered(&mut first[0]), Some(1));
        // A single waiting caller is enough for sending a request. A later caller waits for the next request.
        assert_eq!(answered(&mut gathered[3]), None);
        assert_eq!(sent(), QUESTIONS_MAX as u64 + 1);
        let mut late = call(&barrier, &etcd);
        for answer in std::mem::take(&mut *etcd.answers.lock()) {
            assert!(answer.send(()).is_ok());
        }
        assert!(gathered.iter_mut().all(|caller| answered(caller) == Some(QUESTIONS_MAX as u64 + 1)));
        assert_eq!(answered(&mut first[1]), Some(2));
        assert_eq!(answered(&mut late), None);
        assert_eq!(sent(), QUESTIONS_MAX as u64 + 2);
    }

    #[test]
    fn a_barrier_does_not_wait_for_callers_that_were_dropped() {
        let (barrier, etcd) = (Barrier::new(), Arc::new(Etcd::default()));
        let under_way: Vec<_> = (0..QUESTIONS_MAX).map(|_| call(&barrier, &etcd)).collect();
        let gathering = call(&barrier, &etcd);
        drop((under_way, gathering));
        let callers: Vec<_> = (0..QUESTIONS_MAX).map(|_| call(&barrier, &etcd)).collect();
        assert_eq!(etcd.sent.load(Ordering::Relaxed), 2 * QUESTIONS_MAX as u64);
        drop(callers);
    }
}
