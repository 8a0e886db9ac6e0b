//! The end of the process: signals, the shutdown deadline, and the forced exit of a process that misses it
//! (docs/api/operations.md#shutdown).
//!
//! ```text
//! signal ─► Leaving ─┬─► shutdown delay ─► drain ─► controllers ─► store, audit log, spans ─► exit 0    (assemble)
//!                    └─► delay + deadline: close the stores, log what is lost ─► exit 3                 (this file)
//! ```
//!
//! When the time for requests is over, the computations of all requests and controllers are cancelled. A separate
//! thread with its own runtime supervises the shutdown. The separate thread is necessary because computations
//! that do not check their cancellation token can occupy every thread of the server's runtime. An occupied
//! runtime does not fire timers or handle signals.

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

/// Exit code of a process whose shutdown did not finish before the deadline.
const DEADLINE_PASSED: i32 = 3;

/// Exit code after a second signal.
const SECOND_SIGNAL: i32 = 1;

/// Maximum time for the closing steps of the shutdown (controllers, store, audit log, spans). If a fourth of the
/// deadline is shorter, the maximum is a fourth of the deadline.
const CLOSING_MAX: Duration = Duration::from_secs(10);

/// Maximum time for closing the stores after the deadline. The stores sync their queued writes. The sync
/// takes milliseconds if the disk works.
const LAST_CLOSE_MAX: Duration = Duration::from_secs(1);

/// Deadline that represents an unlimited shutdown.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Limits of the shutdown, from the flags.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long the server serves requests after the signal, while it reports that it is not ready.
    pub delay: Duration,
    /// Maximum time of the shutdown after `delay`, even if some steps hang.
    pub deadline: Duration,
}

/// The supervisor of the end of the process. The supervising thread and the run of the server share this
/// value.
#[derive(Clone)]
pub struct ProcessEnd(Arc<Shared>);

struct Shared {
    settings: Settings,
    /// The time at which the process ends at the latest; `None` until the shutdown begins.
    ends_at: watch::Sender<Option<Instant>>,
    run: Mutex<Run>,
}

/// The components of the current run that a forced exit needs.
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
    /// Time after which the exit no longer waits for controllers.
    pub controllers: Instant,
    /// Time after which the exit no longer waits for the store, the audit log and the spans.
    pub last: Instant,
}

impl Phases {
    /// Returns the deadlines of a shutdown that ends at `ends_at` and takes at most `deadline`.
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

impl ProcessEnd {
    /// Starts the thread that listens for signals and enforces the deadline.
    ///
    /// # Errors
    /// The system cannot start a thread or install the signal handlers.
    pub fn watch(settings: Settings) -> anyhow::Result<ProcessEnd> {
        let run = Mutex::new(Run::default());
        let ending = ProcessEnd(Arc::new(Shared { settings, ends_at: watch::Sender::new(None), run }));
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

    /// Registers the lifecycle of a new run. A shutdown that has already begun applies to the run at once.
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

    /// Registers the audit sink and the span exporter. Events and spans that are still queued at the deadline are
    /// counted as lost.
    pub fn attach_outlets(&self, sink: Option<Arc<dyn Sink>>, spans: Option<Waiting>) {
        let mut run = self.0.run.lock();
        (run.sink, run.spans) = (sink, spans);
    }

    /// Begins the shutdown without a signal and without the delay. Has no effect if a shutdown has begun.
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
            // Cancel the computations in this thread, because they may occupy all threads of the server.
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Environment variable that makes the process of this test hang.
    const HUNG: &str = "ENDING_TEST_IS_HUNG";

    #[test]
    fn a_process_whose_threads_all_hang_ends_at_the_deadline() {
        if std::env::var_os(HUNG).is_some() {
            hang();
        }
        let name = "host::process_end::tests::a_process_whose_threads_all_hang_ends_at_the_deadline";
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

    /// Occupies all threads of a runtime with tasks that never wait, and sends SIGTERM to this process.
    fn hang() -> ! {
        let ending = ProcessEnd::watch(Settings {
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
        let occupied = Arc::new(AtomicUsize::new(0));
        for _ in 0..4 {
            let occupied = occupied.clone();
            runtime.spawn(async move {
                occupied.fetch_add(1, Ordering::Relaxed);
                loop {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        // A free thread would let the timer below fire.
        while occupied.load(Ordering::Relaxed) < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        runtime.block_on(async move {
            lifecycle.reached(LifecycleStage::Leaving).await;
            // Wait for the shutdown delay, as a server does. The timer never fires, because all threads are
            // occupied.
            tokio::time::sleep(Duration::from_millis(200)).await;
        });
        unreachable!("the timer fired");
    }

    #[test]
    fn shutdown_phases_end_one_after_another_before_the_deadline() {
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
