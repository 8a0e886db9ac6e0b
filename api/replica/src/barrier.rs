//! The quorum read: asks etcd for its revision, with one request for all callers that wait.
//!
//! A caller is answered by a request that is sent after the call, so the answer includes everything that was
//! acknowledged before the call. While the maximum number of requests is under way, later callers join the
//! next one.
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

/// A key that no object has, so that the request reads only the revision.
const ABSENT: &[u8] = b"\0";

/// How long the engine may lag without receiving any change before the stream is restarted.
const STALL: Duration = Duration::from_secs(3);

/// Maximum number of concurrent requests. A caller that arrives during one request need not wait for its end.
/// With more requests, fewer callers would share each of them.
const QUESTIONS_MAX: usize = 2;

pub(super) struct Barrier {
    /// Limits the number of concurrent requests.
    turns: Semaphore,
    /// The request that waits for its turn, as long as a caller waits for it.
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

    /// Returns a request that has not been sent yet: the gathering one, or else `ask`, which is sent in its
    /// turn.
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
    /// Waits until the engine has everything that was acknowledged by any server before the call.
    ///
    /// # Errors
    /// 504 if etcd or the stream does not answer in time; 503 if etcd cannot be reached.
    pub async fn current(&self) -> Result<(), Status> {
        let newest = self.newest().await.map_err(|error| self.unanswered(&error))?;
        self.follow_to(newest).await?;
        if self.has_left() { Err(self.moved()) } else { Ok(()) }
    }

    /// Returns the error for requests that this etcd can no longer serve.
    pub(super) fn moved(&self) -> Status {
        let message =
            "the store is moved to another place, or is being filled: ask the server that serves it now";
        Status::new(StatusReason::ServiceUnavailable, message)
    }

    /// Returns etcd's revision, from a request sent after the call.
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

    /// Waits until the engine has reached `wanted`.
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
        Err(Status::new(StatusReason::Timeout, message))
    }

    /// Returns the error for a read that etcd did not answer.
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

    /// A fake etcd that numbers requests in the order in which they are sent, and answers them on command.
    #[derive(Default)]
    struct Etcd {
        sent: AtomicU64,
        answers: Mutex<Vec<oneshot::Sender<()>>>,
    }

    /// Starts a caller. Its result is the number of the request that answered it.
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
    fn who_comes_while_questions_are_under_way_gathers_for_one_that_is_sent_later() {
        let (barrier, etcd) = (Barrier::new(), Arc::new(Etcd::default()));
        let sent = || etcd.sent.load(Ordering::Relaxed);
        let mut first: Vec<_> = (0..QUESTIONS_MAX).map(|_| call(&barrier, &etcd)).collect();
        assert_eq!(sent(), QUESTIONS_MAX as u64);
        let mut gathered: Vec<_> = (0..5).map(|_| call(&barrier, &etcd)).collect();
        assert_eq!(sent(), QUESTIONS_MAX as u64);
        assert!(etcd.answers.lock().remove(0).send(()).is_ok());
        assert_eq!(answered(&mut first[0]), Some(1));
        // A single waiting caller is enough to send the request; a later caller waits for the next one.
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
    fn callers_that_go_away_keep_no_one_waiting() {
        let (barrier, etcd) = (Barrier::new(), Arc::new(Etcd::default()));
        let under_way: Vec<_> = (0..QUESTIONS_MAX).map(|_| call(&barrier, &etcd)).collect();
        let gathering = call(&barrier, &etcd);
        drop((under_way, gathering));
        let callers: Vec<_> = (0..QUESTIONS_MAX).map(|_| call(&barrier, &etcd)).collect();
        assert_eq!(etcd.sent.load(Ordering::Relaxed), 2 * QUESTIONS_MAX as u64);
        drop(callers);
    }
}
