//! Ends the computation of a request that nobody waits for any more.
//!
//! ```text
//! server ─► Token ◄── shutdown
//!             └─ child per request ◄── deadline (pipeline), connection lost (wire/server)
//!                    │ within(token, future): current token of the thread while the future is polled
//!                    ▼
//!        decoding, defaulting, validation, conversion, apply, expressions, rendering: step() for each node
//!                    │ over
//!                    ▼
//!        unwinds to `within`, which returns `Cancelled`
//! ```
//!
//! A timeout that drops a future acts between two polls, and the work on one object has no pause between its stages. So each loop
//! over a tree that a client sent counts its nodes with [`step`], which looks at the token from time to time. The token is not a
//! parameter: it is that of the future which is polled on this thread, and tasks that are spawned for a request take it along
//! ([`following`]).
//!
//! A computation that is over ends by unwinding, without the panic hook, and no further than [`within`]. The rejected alternative
//! is an error of every function between a request and its innermost loop: about a hundred signatures, of which most cannot fail
//! today. Unwinding is safe here because the loops that count steps work on values of their own request: they hold no lock while
//! they do, locks do not poison (`clippy.toml`), cells that are filled once stay empty, and charges and reservations are given back
//! when they are dropped, as they are when the future of a request is dropped. Code that changes shared state counts no steps.
//!
//! A long computation also keeps a thread of the runtime from timers, signals and other requests. A poll that has taken
//! `HAND_OVER_AFTER` therefore hands the other tasks of its thread over to another one.

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

/// Steps between two looks at the token: a step takes some tens of nanoseconds to a microsecond, a look about fifty nanoseconds.
const STEPS_PER_LOOK: u32 = 512;

/// Duration of a poll after which the other tasks of the thread go to another thread. A typical request takes less than a tenth of that.
const HAND_OVER_AFTER: Duration = Duration::from_millis(10);

/// How much longer a poll takes until the next attempt. No attempt tells whether another thread took over, which may find no free
/// processor for a while.
const HAND_OVER_BACKOFF: u32 = 3;

/// How long the thread waits for another one to take its tasks over: this part of the duration of the poll so far.
const HAND_OVER_WAIT_PART: u32 = 20;

/// Why a computation ends early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The time of the request is over.
    Deadline,
    /// The client is gone.
    Gone,
    /// The server ends.
    Shutdown,
}

/// The computation was ended before it was done.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the computation was cancelled: {0:?}")]
pub struct Cancelled(pub Reason);

/// The error of a future whose panic was caught.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Panicked;

/// Tells computations that they are over. Clones are one token.
#[derive(Clone, Debug, Default)]
pub struct Token(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// A [`Reason`], or [`GOES_ON`].
    reason: AtomicU8,
    deadline: Mutex<Option<Instant>>,
    parent: Option<Token>,
}

const GOES_ON: u8 = 0;
const DEADLINE: u8 = 1;
const GONE: u8 = 2;
const SHUTDOWN: u8 = 3;

impl Token {
    /// A token that is over when this one is, or earlier.
    pub fn child(&self) -> Token {
        Token(Arc::new(State { parent: Some(self.clone()), ..State::default() }))
    }

    /// Ends the computations. The first reason stays.
    pub fn cancel(&self, reason: Reason) {
        let code = match reason {
            Reason::Deadline => DEADLINE,
            Reason::Gone => GONE,
            Reason::Shutdown => SHUTDOWN,
        };
        let _ = self.0.reason.compare_exchange(GOES_ON, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Ends the computations at `deadline`.
    pub fn cancel_at(&self, deadline: Instant) {
        *self.0.deadline.lock() = Some(deadline);
    }

    /// Why the computations are over, if they are.
    pub fn reason(&self) -> Option<Reason> {
        match self.0.reason.load(Ordering::Relaxed) {
            GOES_ON => {}
            DEADLINE => return Some(Reason::Deadline),
            GONE => return Some(Reason::Gone),
            _ => return Some(Reason::Shutdown),
        }
        if let Some(reason) = self.0.parent.as_ref().and_then(Token::reason) {
            return Some(reason);
        }
        if self.0.deadline.lock().is_some_and(|deadline| Instant::now() >= deadline) {
            self.cancel(Reason::Deadline);
            return Some(Reason::Deadline);
        }
        None
    }

    /// The error of computations that are over.
    ///
    /// # Errors
    /// They are.
    pub fn check(&self) -> Result<(), Cancelled> {
        self.reason().map_or(Ok(()), |reason| Err(Cancelled(reason)))
    }
}

/// The computation that is polled on a thread.
struct Running {
    token: Token,
    /// When this poll began.
    began: Instant,
    /// Duration of the poll after which the thread's other tasks are handed over next.
    hand_over_after: Duration,
}

thread_local! {
    static STEPS: Cell<u32> = const { Cell::new(0) };
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Puts a computation in place of the one that runs, and that one back.
struct Scope(Option<Running>);

impl Scope {
    fn enter(token: &Token) -> Scope {
        let running =
            Running { token: token.clone(), began: Instant::now(), hand_over_after: HAND_OVER_AFTER };
        Scope(RUNNING.with(|place| place.replace(Some(running))))
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let before = self.0.take();
        // A thread that ends has no computation.
        let _ = RUNNING.try_with(|place| place.replace(before));
    }
}

/// Runs `future` with `token` as the token of its computations.
///
/// # Errors
/// The token was over, and a computation noticed.
pub async fn within<F: Future>(token: Token, future: F) -> Result<F::Output, Cancelled> {
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

/// Runs `future`, which a task of its own is going to poll, with the token of the computation that makes the task.
///
/// # Errors
/// As for [`within`].
pub fn following<F: Future>(future: F) -> impl Future<Output = Result<F::Output, Cancelled>> {
    within(current().unwrap_or_default(), future)
}

/// Runs `future`, and catches a panic of it. A cancellation is not a panic: it unwinds further, to [`within`].
///
/// # Errors
/// [`Panicked`] if the future panicked. The panic hook has logged the text and the place by then.
pub async fn catching_panics<F: Future>(future: F) -> Result<F::Output, Panicked> {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(output) => Ok(output),
        Err(payload) if payload.is::<Cancelled>() => resume_unwind(payload),
        Err(_) => Err(Panicked),
    }
}

/// The token of the computation that runs on this thread.
pub fn current() -> Option<Token> {
    RUNNING.try_with(|place| place.borrow().as_ref().map(|running| running.token.clone())).ok().flatten()
}

/// Returns why a computation unwound; continues to unwind for any other reason.
fn cancelled(payload: Box<dyn Any + Send>) -> Cancelled {
    match payload.downcast::<Cancelled>() {
        Ok(cancelled) => *cancelled,
        Err(payload) => resume_unwind(payload),
    }
}

/// Counts one step of a loop over what a client sent. Does not return once the token is over.
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

/// Ends the computation if its token is over: before what is long by itself or cannot be undone.
pub fn check() {
    // A destructor that runs while a computation unwinds goes on.
    if let Some(reason) = look()
        && !std::thread::panicking()
    {
        resume_unwind(Box::new(Cancelled(reason)));
    }
}

/// Whether the computation that runs on this thread is over, for code that has an error of its own for that.
pub fn is_over() -> bool {
    look().is_some()
}

#[cold]
fn look() -> Option<Reason> {
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

/// Has another thread of the runtime run the tasks and timers that this one is kept from, and waits so long for that thread. The poll
/// goes on here. Without effect where the tasks were handed over before.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing is waited for in place: the other futures of the task wait for this poll in any case"
)]
fn hand_over(wait: Duration) {
    let is_shared =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_shared {
        // A thread that gets through the call before another one has taken over keeps its tasks.
        tokio::task::block_in_place(|| std::thread::sleep(wait));
    }
}

/// Counts the looks at a token and cancels it at one of them, for tests that end a computation at a chosen place. The count is per
/// thread: such a test runs the whole server on one thread.
#[cfg(any(test, feature = "testing"))]
pub mod observed {
    use std::cell::RefCell;
    use std::sync::Arc;

    use super::{Reason, Token};

    struct Observed {
        token: Token,
        looks: u64,
        cancel_at: u64,
    }

    thread_local! {
        static OBSERVED: RefCell<Option<Observed>> = const { RefCell::new(None) };
    }

    /// Counts the looks at `token` from now on, and cancels it at this one.
    pub fn begin(token: &Token, cancel_at: u64) {
        OBSERVED.set(Some(Observed { token: token.clone(), looks: 0, cancel_at }));
    }

    /// How many there were.
    pub fn end() -> u64 {
        OBSERVED.take().map_or(0, |observed| observed.looks)
    }

    pub(super) fn look(token: &Token) {
        OBSERVED.with_borrow_mut(|observed| {
            let Some(observed) = observed.as_mut().filter(|seen| Arc::ptr_eq(&seen.token.0, &token.0)) else {
                return;
            };
            observed.looks += 1;
            if observed.looks == observed.cancel_at {
                token.cancel(Reason::Gone);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Steps without end.
    async fn endless() -> u64 {
        let mut sum = 0_u64;
        loop {
            sum = std::hint::black_box(sum.wrapping_add(1));
            step();
        }
    }

    #[tokio::test]
    async fn a_loop_ends_for_each_reason() {
        let server = Token::default();
        let (late, gone, stopped) = (server.child(), server.child(), server.child());
        late.cancel_at(Instant::now() + Duration::from_millis(20));
        gone.cancel(Reason::Gone);
        assert_eq!(within(late.clone(), endless()).await, Err(Cancelled(Reason::Deadline)));
        assert_eq!(within(gone, endless()).await, Err(Cancelled(Reason::Gone)));
        assert_eq!(within(stopped.clone(), async { 7 }).await, Ok(7));
        server.cancel(Reason::Shutdown);
        assert_eq!(within(stopped, endless()).await, Err(Cancelled(Reason::Shutdown)));
        // The first reason stays.
        assert_eq!(late.reason(), Some(Reason::Deadline));
    }

    #[tokio::test]
    async fn code_outside_of_requests_is_never_cancelled() {
        (0..10 * STEPS_PER_LOOK).for_each(|_| step());
        check();
        assert!(!is_over() && current().is_none());
        let token = Token::default();
        token.cancel(Reason::Gone);
        // The scope ends when the future pauses.
        let paused = within(token, async {
            tokio::task::yield_now().await;
            is_over()
        });
        let (over, ()) = tokio::join!(paused, async { check() });
        assert_eq!(over, Ok(true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tasks_take_the_token_along() {
        let token = Token::default();
        let mut task = None;
        let spawning = within(token.clone(), async { task = Some(tokio::spawn(following(endless()))) });
        spawning.await.unwrap();
        token.cancel(Reason::Gone);
        let ended = task.unwrap().await.unwrap();
        assert_eq!(ended, Err(Cancelled(Reason::Gone)));
    }

    #[tokio::test]
    async fn a_cancellation_passes_where_panics_are_caught() {
        let token = Token::default();
        token.cancel(Reason::Shutdown);
        let ended = within(token, catching_panics(endless())).await;
        assert_eq!(ended, Err(Cancelled(Reason::Shutdown)));
        let failing = async { std::panic::resume_unwind(Box::new("a panic")) };
        let failed: Result<Result<(), Panicked>, Cancelled> =
            within(Token::default(), catching_panics(failing)).await;
        assert_eq!(failed, Ok(Err(Panicked)));
    }

    #[tokio::test]
    async fn what_is_held_is_given_back_and_other_panics_go_on() {
        struct Held<'h>(&'h AtomicBool);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                // Destructors count steps too.
                check();
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let given_back = AtomicBool::new(false);
        let token = Token::default();
        token.cancel(Reason::Gone);
        let holding = within(token.clone(), async {
            let _held = Held(&given_back);
            check();
        });
        assert_eq!(holding.await, Err(Cancelled(Reason::Gone)));
        assert!(given_back.load(Ordering::Relaxed));
        let failing = AssertUnwindSafe(within(Token::default(), async { resume_unwind(Box::new("defect")) }));
        let payload = FutureExt::catch_unwind(failing).await.map(|_: Result<(), _>| ()).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"defect"));
        assert!(current().is_none());
    }

    #[test]
    fn a_long_poll_does_not_keep_the_thread_from_timers() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let ended = runtime.block_on(async {
            let token = Token::default();
            let task = tokio::spawn(within(token.clone(), endless()));
            // The only thread is busy with the task, for ever, unless it hands over.
            let timer = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                token.cancel(Reason::Gone);
            });
            timer.await.unwrap();
            task.await.unwrap()
        });
        assert_eq!(ended, Err(Cancelled(Reason::Gone)));
    }
}
