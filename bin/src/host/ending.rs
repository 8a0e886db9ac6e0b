//! The end of the process: signals, the shutdown deadline, and the forced exit of a process that misses it
//! (docs/api/operations.md#shutdown).
//!
//! ```text
//! signal ─► Leaving ─┬─► shutdown delay ─► drain ─► controllers ─► store, audit log, spans ─► exit 0    (assemble)
//!                    └─► delay + deadline: close the stores, log what is lost ─► exit 3                 (this file)
//! ```
//!
//! When the time for requests is over, the computations of all requests and controllers are cancelled. A
//! thread with a runtime of its own supervises all this: computations that do not check their cancellation
//! token can occupy every thread of the server's runtime; then no timer of that runtime fires, and it notices
//! no signal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::state::audit::Sink;
use engine::Engine;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use values::cancellation::CancellationReason;
use wire::server::{DrainLimit, Lifecycle, LifecycleStage};
use wire::traces::export::Waiting;

use crate::host::logging;

/// Exit code of a process that was ended at the deadline, because the orderly shutdown did not finish in
/// time.
const DEADLINE_PASSED: i32 = 3;

/// Exit code after a second signal.
const SECOND_SIGNAL: i32 = 1;

/// Maximum time for the closing steps of the shutdown (controllers, store, audit log, spans); if a fourth of
/// the whole time is less, they get that.
const CLOSING_MAX: Duration = Duration::from_secs(10);

/// Maximum time for closing the stores after the deadline. They sync what is queued, which takes milliseconds
/// unless the disk hangs.
const LAST_CLOSE_MAX: Duration = Duration::from_secs(1);

/// Deadline that represents an unlimited shutdown.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Limits of the shutdown, from the flags.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long requests are served after the signal, while the server is not ready.
    pub delay: Duration,
    /// Maximum time of the shutdown after `delay`, whatever hangs.
    pub deadline: Duration,
}

/// The end of the process, shared by the supervising thread and the run that carries it out.
#[derive(Clone)]
pub struct Ending(Arc<Shared>);

struct Shared {
    settings: Settings,
    /// Latest end of the process; `None` until the shutdown begins.
    ends_at: watch::Sender<Option<Instant>>,
    run: Mutex<Run>,
}

/// The components of the present run that the forced exit needs.
#[derive(Default)]
struct Run {
    lifecycle: Option<Lifecycle>,
    engines: Vec<Engine>,
    sink: Option<Arc<dyn Sink>>,
    spans: Option<Waiting>,
}

/// Deadlines of the phases of a shutdown.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// Deadlines for ending connections and requests.
    pub drain: DrainLimit,
    /// Time after which controllers are no longer waited for.
    pub controllers: Instant,
    /// Time after which the store, audit log and spans are no longer waited for.
    pub last: Instant,
}

impl Phases {
    /// Returns the phases for a process that ends at `ends_at` and whose shutdown takes at most `deadline`.
    fn until(ends_at: Instant, deadline: Duration) -> Phases {
        let closing = (deadline / 4).min(CLOSING_MAX);
        let before_end = |share: u32| ends_at.checked_sub(closing * share / 8).unwrap_or(ends_at);
        Phases {
            drain: DrainLimit { cut_at: before_end(8), ended_at: before_end(6) },
            controllers: before_end(5),
            last: before_end(1),
        }
    }
}

impl Ending {
    /// Starts the thread that listens for signals and enforces the deadline.
    ///
    /// # Errors
    /// The system refuses a thread or the signal handlers.
    pub fn watch(settings: Settings) -> anyhow::Result<Ending> {
        let run = Mutex::new(Run::default());
        let ending = Ending(Arc::new(Shared { settings, ends_at: watch::Sender::new(None), run }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime of the signals")?;
        let signals = {
            let _within = runtime.enter();
            let open = |kind| signal(kind).context("cannot listen to signals");
            [open(SignalKind::terminate())?, open(SignalKind::interrupt())?, open(SignalKind::hangup())?]
        };
        let watching = ending.clone();
        let work = move || runtime.block_on(watching.keep_watch(signals));
        let spawned = std::thread::Builder::new().name("signals".to_owned()).spawn(work);
        spawned.context("cannot start the thread of the signals")?;
        Ok(ending)
    }

    /// Registers the lifecycle of a new run. A shutdown that has already begun applies to it at once.
    pub fn attach(&self, lifecycle: &Lifecycle) {
        let mut run = self.0.run.lock();
        *run = Run { lifecycle: Some(lifecycle.clone()), ..Run::default() };
        if self.0.ends_at.borrow().is_some() {
            lifecycle.advance(LifecycleStage::Leaving);
        }
    }

    /// Registers the stores that a forced exit closes.
    pub fn attach_stores(&self, engines: Vec<Engine>) {
        self.0.run.lock().engines = engines;
    }

    /// Registers the audit sink and the span exporter. Events and spans that they hold at the deadline are counted as lost.
    pub fn attach_outlets(&self, sink: Option<Arc<dyn Sink>>, spans: Option<Waiting>) {
        let mut run = self.0.run.lock();
        (run.sink, run.spans) = (sink, spans);
    }

    /// Begins the shutdown without a signal and without its delay. Has no effect if a shutdown has begun.
    pub fn begin(&self) {
        self.begin_after(Duration::ZERO);
    }

    fn begin_after(&self, delay: Duration) {
        let ends_at = Instant::now() + delay + self.0.settings.deadline;
        self.0.ends_at.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(ends_at);
            is_first
        });
    }

    /// Returns the phases of the shutdown. If no shutdown has begun, the deadlines are practically unlimited.
    pub fn phases(&self) -> Phases {
        match *self.0.ends_at.borrow() {
            Some(ends_at) => Phases::until(ends_at, self.0.settings.deadline),
            None => Phases::until(Instant::now() + FOR_EVER, FOR_EVER),
        }
    }

    async fn keep_watch(self, mut signals: [Signal; 3]) {
        let mut begun = self.0.ends_at.subscribe();
        tokio::select! {
            () = any(&mut signals) => {
                self.begin_after(self.0.settings.delay);
                if let Some(lifecycle) = &self.0.run.lock().lifecycle {
                    lifecycle.advance(LifecycleStage::Leaving);
                }
            }
            // The sender lives as long as `self`.
            _ = begun.wait_for(Option::is_some) => {}
        }
        let ends_at = self.0.ends_at.borrow().unwrap_or_else(Instant::now);
        let cut_at = self.phases().drain.cut_at;
        let until_the_end = async {
            tokio::time::sleep_until(cut_at.into()).await;
            // This thread cancels the computations, as they may occupy all threads of the server.
            if let Some(lifecycle) = &self.0.run.lock().lifecycle {
                lifecycle.computations().cancel(CancellationReason::Shutdown);
            }
            tokio::time::sleep_until(ends_at.into()).await;
        };
        tokio::select! {
            () = any(&mut signals) => {
                tracing::warn!("second signal, exiting without waiting");
                exit(SECOND_SIGNAL);
            }
            () = until_the_end => self.end_now().await,
        }
    }

    /// Ends a process whose orderly shutdown did not finish in time.
    async fn end_now(&self) {
        let Run { lifecycle, engines, sink, spans } = std::mem::take(&mut *self.0.run.lock());
        let closing_max = LAST_CLOSE_MAX.min(self.0.settings.deadline / 2);
        let closed = tokio::time::timeout(closing_max, join_all(engines.iter().map(Engine::close))).await;
        let requests_cut = lifecycle.map_or(0, |lifecycle| lifecycle.requests_under_way());
        let audit_events_lost = sink.map_or(0, |sink| sink.waiting());
        let spans_lost = spans.map_or(0, |spans| spans.count());
        tracing::error!(
            deadline_s = self.0.settings.deadline.as_secs_f32(),
            requests_cut,
            audit_events_lost,
            spans_lost,
            store_closed = closed.is_ok(),
            "the shutdown deadline has passed, exiting without waiting"
        );
        exit(DEADLINE_PASSED);
    }
}

fn exit(code: i32) {
    logging::flush();
    #[expect(clippy::disallowed_methods, reason = "threads that hang must not be waited for")]
    std::process::exit(code);
}

async fn any([terminate, interrupt, hangup]: &mut [Signal; 3]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Environment variable that tells a copy of this test to be the process that hangs.
    const HUNG: &str = "ENDING_TEST_IS_HUNG";

    #[test]
    fn a_process_of_which_every_thread_computes_ends_at_the_deadline() {
        if std::env::var_os(HUNG).is_some() {
            hang();
        }
        let name = "host::ending::tests::a_process_of_which_every_thread_computes_ends_at_the_deadline";
        let begun = Instant::now();
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        let process = process.args(["--exact", name, "--nocapture"]).env(HUNG, "1");
        let mut process = process.stdout(std::process::Stdio::null()).spawn().unwrap();
        let ended = loop {
            if let Some(ended) = process.try_wait().unwrap() {
                break ended;
            }
            if begun.elapsed() > Duration::from_secs(60) {
                process.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.code(), Some(DEADLINE_PASSED));
        assert!(begun.elapsed() >= Duration::from_millis(400), "the delay and the deadline count");
    }

    /// Runs a server whose threads are all occupied by tasks that never wait, and sends itself SIGTERM.
    fn hang() -> ! {
        let ending = Ending::watch(Settings {
            delay: Duration::from_millis(200),
            deadline: Duration::from_millis(200),
        })
        .unwrap();
        let lifecycle = Lifecycle::new();
        ending.attach(&lifecycle);
        let directory = crate::host::files::scratch::Scratch::new();
        let store = Engine::open(engine::Options::new(directory.join("log"))).unwrap();
        ending.attach_stores(vec![store]);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        for _ in 0..4 {
            runtime.spawn(async {
                loop {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        runtime.block_on(async move {
            lifecycle.reached(LifecycleStage::Leaving).await;
            // As in `assemble::run`, but no timer fires.
            tokio::time::sleep(Duration::from_millis(200)).await;
        });
        unreachable!("the timer fired");
    }

    #[test]
    fn every_phase_ends_before_the_next_one_and_the_last_before_the_deadline() {
        for (deadline_ms, closing_ms) in [(2_000, 500), (8_000, 2_000), (70_000, 10_000), (600_000, 10_000)] {
            let deadline = Duration::from_millis(deadline_ms);
            let ends_at = Instant::now() + deadline;
            let phases = Phases::until(ends_at, deadline);
            let Phases { drain: DrainLimit { cut_at, ended_at }, controllers, last } = phases;
            assert_eq!(ends_at - cut_at, Duration::from_millis(closing_ms));
            assert!(cut_at < ended_at && ended_at < controllers && controllers < last && last < ends_at);
        }
    }
}
