//! Cancellation of the work for a request whose result is no longer needed.
//!
//! ```text
//! server ─► Token ◄── shutdown
//!             └─ child per request ◄── deadline (pipeline), connection lost (wire/server)
//!                    │ within(token, future): current token of the thread while the future is polled
//!                    ▼
//!        decoding, defaulting, validation, conversion, apply, expressions, rendering: step() for each node
//!                    │ token cancelled
//!                    ▼
//!        unwinds to `within`, which returns `Cancelled`
//! ```
//!
//! A timeout that drops a future takes effect only between two polls, and the work on one object never
//! yields. Each loop over a tree that a client sent therefore counts its nodes with [`step`], which checks
//! the token from time to time. The token is not a function parameter. The current token is the token of the
//! future that this thread polls, and tasks that are spawned for a request inherit it ([`following`]).
//!
//! A cancelled computation unwinds, without the panic hook, up to the enclosing [`within`]. The rejected
//! alternative is that every function between a request and its innermost loop returns an error. Such errors
//! would change about a hundred signatures, and most of these functions cannot fail today. Unwinding is safe
//! here. The loops that count steps hold no locks and change only values of their own request. Locks do not
//! poison (`clippy.toml`), and a `OnceLock` stays empty if its initialization unwinds. Unwinding drops
//! charges and reservations and so releases them, as when the future of a request is dropped. Code that
//! changes shared state counts no steps.
//!
//! A long computation also keeps its runtime thread from running timers, signals and other requests. After a
//! poll has taken `HAND_OVER_AFTER`, the thread therefore hands its other tasks over to another thread.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Steps between two checks of the token. A step takes from some tens of nanoseconds to one microsecond. A
/// check takes about fifty nanoseconds.
const STEPS_PER_LOOK: u32 = 512;

/// Duration of a poll after which the thread hands its other tasks over to another thread. A typical request
/// takes less than a tenth of this time.
const HAND_OVER_AFTER: Duration = Duration::from_millis(10);

/// Factor by which the poll must become longer before the next attempt to hand tasks over. The attempt is
/// repeated because the runtime does not report whether another thread took over, and because all processors
/// may be busy for a while.
const HAND_OVER_BACKOFF: u32 = 3;

/// Divisor of the poll's duration so far. The quotient is how long the thread sleeps so that another thread
/// can take the tasks over.
const HAND_OVER_WAIT_PART: u32 = 20;

/// Reason why a computation was cancelled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CancellationReason {
    /// The deadline of the request has passed.
    Deadline,
    /// The client closed its connection.
    Gone,
    /// The server is shutting down.
    Shutdown,
}

/// The error of a computation that was cancelled.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the computation was cancelled: {0:?}")]
pub struct Cancelled(pub CancellationReason);

/// The error of a future whose panic was caught.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Panicked;

/// A cancellation token for the computations of one request or of the server. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct CancellationToken(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// A [`CancellationReason`], or [`GOES_ON`].
    reason: AtomicU8,
    deadline: Mutex<Option<Instant>>,
    parent: Option<CancellationToken>,
}

const GOES_ON: u8 = 0;
const DEADLINE: u8 = 1;
const GONE: u8 = 2;
const SHUTDOWN: u8 = 3;

impl CancellationToken {
    /// Creates a child of this token. Cancelling this token also cancels the child, but not the reverse.
    pub fn child(&self) -> CancellationToken {
        CancellationToken(Arc::new(State { parent: Some(self.clone()), ..State::default() }))
    }

    /// Cancels the computations. If the token is already cancelled, the first reason stays.
    pub fn cancel(&self, reason: CancellationReason) {
        let code = match reason {
            CancellationReason::Deadline => DEADLINE,
            CancellationReason::Gone => GONE,
            CancellationReason::Shutdown => SHUTDOWN,
        };
        let _ = self.0.reason.compare_exchange(GOES_ON, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Cancels the computations at `deadline`.
    pub fn cancel_at(&self, deadline: Instant) {
        *self.0.deadline.lock() = Some(deadline);
    }

    /// Returns the reason of the cancellation, or `None` if the computations may continue.
    pub fn reason(&self) -> Option<CancellationReason> {
        match self.0.reason.load(Ordering::Relaxed) {
            GOES_ON => {}
            DEADLINE => return Some(CancellationReason::Deadline),
            GONE => return Some(CancellationReason::Gone),
            _ => return Some(CancellationReason::Shutdown),
        }
        if let Some(reason) = self.0.parent.as_ref().and_then(CancellationToken::reason) {
            return Some(reason);
        }
        if self.0.deadline.lock().is_some_and(|deadline| Instant::now() >= deadline) {
            self.cancel(CancellationReason::Deadline);
            return Some(CancellationReason::Deadline);
        }
        None
    }

    /// Returns an error if the token is cancelled.
    ///
    /// # Errors
    /// [`Cancelled`] with the reason of the cancellation.
    pub fn check(&self) -> Result<(), Cancelled> {
        self.reason().map_or(Ok(()), |reason| Err(Cancelled(reason)))
    }
}

/// The computation that is polled on a thread.
struct Running {
    token: CancellationToken,
    /// Start of the current poll.
    began: Instant,
    /// Duration of the poll at which the thread next hands its other tasks over.
    hand_over_after: Duration,
}

// A thread polls one computation at a time, so the current computation is a property of the thread.
thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Guard that sets the current computation of the thread. Dropping the guard restores the previous
/// computation.
struct Scope(Option<Running>);

impl Scope {
    fn enter(token: &CancellationToken) -> Scope {
        let running =
            Running { token: token.clone(), began: Instant::now(), hand_over_after: HAND_OVER_AFTER };
        Scope(RUNNING.with(|place| place.replace(Some(running))))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let before = self.0.take();
        // The thread-local value is already gone while a thread exits.
        let _ = RUNNING.try_with(|place| place.replace(before));
    }
}

/// Runs `future` with `token` as the token of its computations.
///
/// # Errors
/// [`Cancelled`] if the token was cancelled and a computation noticed it.
pub async fn within<F: Future>(token: CancellationToken, future: F) -> Result<F::Output, Cancelled> {
    let mut future = pin!(future);
    poll_fn(move |cx| {
        let scope = Scope::enter(&token);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        drop(scope);
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(cancelled(payload))),
        }
    })
    .await
}

/// Wraps a `future` that will run in a task of its own, so that it runs with the token of the current
/// computation.
///
/// # Errors
/// The same errors as [`within`].
pub fn following<F: Future>(future: F) -> impl Future<Output = Result<F::Output, Cancelled>> {
    within(current().unwrap_or_default(), future)
}

/// Runs `future` and catches its panics. A cancellation is not a panic: it continues to unwind to [`within`].
///
/// # Errors
/// [`Panicked`] if the future panicked. The panic hook has already logged the message and the location.
pub async fn catching_panics<F: Future>(future: F) -> Result<F::Output, Panicked> {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(output) => Ok(output),
        Err(payload) if payload.is::<Cancelled>() => resume_unwind(payload),
        Err(_) => Err(Panicked),
    }
}

/// Returns the token of the computation that runs on this thread.
pub fn current() -> Option<CancellationToken> {
    RUNNING.try_with(|place| place.borrow().as_ref().map(|running| running.token.clone())).ok().flatten()
}

/// Returns the [`Cancelled`] value with which a computation unwound. Resumes unwinding for any other payload.
fn cancelled(payload: Box<dyn Any + Send>) -> Cancelled {
    match payload.downcast::<Cancelled>() {
        Ok(cancelled) => *cancelled,
        Err(payload) => resume_unwind(payload),
    }
}

/// Counts one step of a loop over client input. Does not return if the token turns out to be cancelled.
#[inline]
pub fn step() {
    let is_due = STEPS.with(|steps| {
        let taken = steps.get().wrapping_add(1);
        steps.set(taken);
        taken.is_multiple_of(STEPS_PER_LOOK)
    });
    if is_due {
        check();
    }
}

/// Unwinds if the token of the current computation is cancelled. Callers use this function before an
/// operation that takes long without counting steps, or that cannot be undone.
pub fn check() {
    // A destructor that runs while the thread unwinds must not unwind again.
    if let Some(reason) = look()
        && !std::thread::panicking()
    {
        resume_unwind(Box::new(Cancelled(reason)));
    }
}

/// Returns whether the current computation is cancelled, for code that reports cancellation as an error of
/// its own.
pub fn is_over() -> bool {
    look().is_some()
}

#[cold]
fn look() -> Option<CancellationReason> {
    let (reason, long) = RUNNING
        .try_with(|place| {
            let mut running = place.try_borrow_mut().ok()?;
            let running = running.as_mut()?;
            #[cfg(any(test, feature = "testing"))]
            observed::look(&running.token);
            let taken = running.began.elapsed();
            let is_long = taken > running.hand_over_after;
            if is_long {
                running.hand_over_after = taken * HAND_OVER_BACKOFF;
            }
            Some((running.token.reason(), is_long.then_some(taken)))
        })
        .ok()??;
    if let Some(taken) = long {
        hand_over(taken / HAND_OVER_WAIT_PART);
    }
    reason
}

/// Lets another thread of the runtime run the tasks and timers that this thread blocks, and sleeps for `wait`
/// so that the other thread can start. The current poll continues on this thread. If the tasks were already
/// handed over, the call only sleeps.
#[expect(
    clippy::disallowed_methods,
    reason = "the sleep delays no other future: the futures of this task wait for this poll in any case"
)]
fn hand_over(wait: Duration) {
    let is_shared =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_shared {
        // This thread keeps its tasks if it leaves the call before another thread has taken over.
        tokio::task::block_in_place(|| std::thread::sleep(wait));
    }
}

/// Counts the checks of a token and cancels the token at a chosen check, for tests that interrupt a
/// computation at a certain point. The count is per thread, so such a test must run the whole server on one
/// thread.
#[cfg(any(test, feature = "testing"))]
pub mod observed {
    use std::cell::RefCell;
    use std::sync::Arc;

    use super::{CancellationReason, CancellationToken};

    struct Observed {
        token: CancellationToken,
        looks: u64,
        cancel_at: u64,
    }

    thread_local! {
        static OBSERVED: RefCell<Option<Observed>> = const { RefCell::new(None) };
    }

    /// Starts to count the checks of `token`, which is cancelled at check number `cancel_at`.
    pub fn begin(token: &CancellationToken, cancel_at: u64) {
        OBSERVED.set(Some(Observed { token: token.clone(), looks: 0, cancel_at }));
    }

    /// Stops counting and returns the number of checks.
    pub fn end() -> u64 {
        OBSERVED.take().map_or(0, |observed| observed.looks)
    }

    pub(super) fn look(token: &CancellationToken) {
        OBSERVED.with_borrow_mut(|observed| {
            let Some(observed) = observed.as_mut().filter(|seen| Arc::ptr_eq(&seen.token.0, &token.0)) else {
                return;
            };
            observed.looks += 1;
            if observed.looks == observed.cancel_at {
                token.cancel(CancellationReason::Gone);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Counts steps in an endless loop.
    async fn endless() -> u64 {
        let mut sum = 0_u64;
        loop {
            sum = std::hint::black_box(sum.wrapping_add(1));
            step();
        }
    }

    #[tokio::test]
    async fn a_cancelled_computation_ends_with_the_first_reason() {
        let server = CancellationToken::default();
        let (late, gone, stopped) = (server.child(), server.child(), server.child());
        late.cancel_at(Instant::now() + Duration::from_millis(20));
        gone.cancel(CancellationReason::Gone);
        assert_eq!(within(late.clone(), endless()).await, Err(Cancelled(CancellationReason::Deadline)));
        assert_eq!(within(gone, endless()).await, Err(Cancelled(CancellationReason::Gone)));
        assert_eq!(within(stopped.clone(), async { 7 }).await, Ok(7));
        server.cancel(CancellationReason::Shutdown);
        assert_eq!(within(stopped, endless()).await, Err(Cancelled(CancellationReason::Shutdown)));
        // The first reason stays.
        assert_eq!(late.reason(), Some(CancellationReason::Deadline));
    }

    #[tokio::test]
    async fn code_outside_of_requests_is_never_cancelled() {
        (0..10 * STEPS_PER_LOOK).for_each(|_| step());
        check();
        assert!(!is_over() && current().is_none());
        let token = CancellationToken::default();
        token.cancel(CancellationReason::Gone);
        // The scope ends when the future pauses.
        let paused = within(token, async {
            tokio::task::yield_now().await;
            is_over()
        });
        let (over, ()) = tokio::join!(paused, async { check() });
        assert_eq!(over, Ok(true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn spawned_tasks_inherit_the_cancellation_token() {
        let token = CancellationToken::default();
        let mut task = None;
        let spawning = within(token.clone(), async { task = Some(tokio::spawn(following(endless()))) });
        spawning.await.unwrap();
        token.cancel(CancellationReason::Gone);
        let ended = task.unwrap().await.unwrap();
        assert_eq!(ended, Err(Cancelled(CancellationReason::Gone)));
    }

    #[tokio::test]
    async fn a_cancellation_is_not_caught_as_a_panic() {
        let token = CancellationToken::default();
        token.cancel(CancellationReason::Shutdown);
        let ended = within(token, catching_panics(endless())).await;
        assert_eq!(ended, Err(Cancelled(CancellationReason::Shutdown)));
        let failing = async { std::panic::resume_unwind(Box::new("a panic")) };
        let failed: Result<Result<(), Panicked>, Cancelled> =
            within(CancellationToken::default(), catching_panics(failing)).await;
        assert_eq!(failed, Ok(Err(Panicked)));
    }

    #[tokio::test]
    async fn cancellation_runs_destructors_and_lets_other_panics_pass() {
        struct Held<'h>(&'h AtomicBool);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                // Destructors count steps too.
                check();
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let given_back = AtomicBool::new(false);
        let token = CancellationToken::default();
        token.cancel(CancellationReason::Gone);
        let holding = within(token.clone(), async {
            let _held = Held(&given_back);
            check();
        });
        assert_eq!(holding.await, Err(Cancelled(CancellationReason::Gone)));
        assert!(given_back.load(Ordering::Relaxed));
        let failing = AssertUnwindSafe(within(CancellationToken::default(), async {
            resume_unwind(Box::new("defect"))
        }));
        let payload = FutureExt::catch_unwind(failing).await.map(|_: Result<(), _>| ()).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"defect"));
        assert!(current().is_none());
    }

    #[test]
    fn a_long_computation_does_not_delay_timers() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let ended = runtime.block_on(async {
            let token = CancellationToken::default();
            let task = tokio::spawn(within(token.clone(), endless()));
            // The task keeps the only thread busy for ever unless it hands the timer over.
            let timer = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                token.cancel(CancellationReason::Gone);
            });
            timer.await.unwrap();
            task.await.unwrap()
        });
        assert_eq!(ended, Err(Cancelled(CancellationReason::Gone)));
    }
}
