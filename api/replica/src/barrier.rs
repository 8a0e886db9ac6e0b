//! The quorum read: which revision etcd is at, asked once for all that wait.
//!
//! A caller is answered by a question that is sent after it came, so that everything that was acknowledged before it came is
//! in the answer. While as many questions are under way as there may be, later callers gather for the next one.
//!
//! ```text
//! callers ─► gathering ─ turn ─► sent ─► answer ─► all of them at once
//!                └ others join    └ no one joins any more
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
use values::status::{Reason, Status};

/// A key that no object has: the question reads nothing but the revision.
const ABSENT: &[u8] = b"\0";

/// How long the engine may be behind, with nothing coming, before the stream is begun anew.
const STALL: Duration = Duration::from_secs(3);

/// Questions that are under way at the same time: who comes while one is does not wait for it first. With more of them fewer
/// callers would share each.
const QUESTIONS_MAX: usize = 2;

pub(super) struct Barrier {
    /// Turns of the questions that are under way.
    turns: Semaphore,
    /// The question that waits for its turn, for as long as someone waits for its answer.
    gathering: Mutex<Option<WeakShared<Asking>>>,
}

type Asking = Pin<Box<dyn Future<Output = Result<Seen, Error>> + Send>>;

/// What a question found.
#[derive(Clone, Copy)]
struct Seen {
    /// What the engine had when it was sent.
    had: Revision,
    newest: Revision,
}

impl Barrier {
    pub(super) fn new() -> Arc<Barrier> {
        Arc::new(Barrier { turns: Semaphore::new(QUESTIONS_MAX), gathering: Mutex::default() })
    }

    /// A question that is not sent yet: the one that gathers, or `ask`, which is sent in its turn.
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
            // Never closed.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    /// Questions in the order in which they are sent, and the ends by which they are answered.
    #[derive(Default)]
    struct Etcd {
        sent: AtomicU64,
        answers: Mutex<Vec<oneshot::Sender<()>>>,
    }

    /// A caller: what it is answered is which question that was.
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
        // One of those who wait is enough to send it; who comes then waits for the next.
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
