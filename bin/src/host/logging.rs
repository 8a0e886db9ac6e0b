//! Logging. Each event, including a panic, is one line on standard error. A thread that logs never waits for
//! the reader of standard error.
//!
//! ```text
//! any thread ─► line ─► Queue (1 MiB at most) ─► thread "log" ─► standard error
//!                         └ full: the line is dropped and counted
//! ```
//!
//! A request must not wait for the reader of standard error, and must not fail if the reader has ended. So a
//! full pipe, a closed pipe or a full disk can lose log lines, but has no other effect on the server. Dropped
//! lines are counted in `/metrics`. The server reports the number of dropped lines on standard error when it
//! can write again.

use std::io::{self, ErrorKind, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use wire::metrics::Metrics;

/// The format of log lines, set by `--log-format`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// A JSON object per line, for programs.
    Json,
}

/// Settings of the log, from the flags.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Format of the lines.
    pub format: LogFormat,
    /// Level of detail, from 0 to 6.
    pub verbosity: u8,
}

/// Maximum number of queued bytes. Some thousand lines fit, so that no line is lost if the reader pauses for
/// a short time.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// Maximum time that the exit waits for queued lines.
const FLUSH_MAX: Duration = Duration::from_millis(500);

/// Pause between two attempts to write if standard error is non-blocking and full.
const FULL_PIPE_PAUSE: Duration = Duration::from_millis(10);

/// Filter that removes the lines of libraries about single frames and handshakes.
const WITHOUT_FRAMES: &str = "h2=info,hyper=info,hyper_util=info,rustls=info,tokio_rustls=info";

/// The queue of the process, which [`start`] creates. The queue is global because the process has one
/// standard error, and because a panic and a forced exit must flush the queue without a reference to a
/// server.
static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// A function that changes the level of detail of the log.
pub type SetLevel = Arc<dyn Fn(i32) + Send + Sync>;

/// Returns the filter of a level of detail (docs/api/operations.md#the-log). Each level includes the lines of
/// all lower levels. The module of the request chain defines the targets of lines about requests.
fn filter(verbosity: i32) -> EnvFilter {
    EnvFilter::new(match verbosity {
        ..=0 => "info".to_owned(),
        1 => "info,request::failed=debug".to_owned(),
        2 => "info,request::failed=debug,request::write=debug".to_owned(),
        3 => "info,request=debug".to_owned(),
        4 => format!("debug,{WITHOUT_FRAMES}"),
        5 => "debug".to_owned(),
        _ => "trace".to_owned(),
    })
}

/// Starts logging for the whole process. RUST_LOG selects the lines. If this variable is not set, the
/// settings select the lines. `metrics` counts lines that cannot be written. The returned function changes
/// the level of detail, regardless of the settings and of RUST_LOG.
pub fn start(settings: Settings, metrics: Arc<Metrics>) -> SetLevel {
    let queue = QUEUE.get_or_init(|| Arc::new(Queue::new(metrics)));
    let worker = queue.clone();
    // If the thread cannot start, the queue fills and then drops lines, so the server runs without a log.
    let _ = std::thread::Builder::new().name("log".to_owned()).spawn(move || worker.run(&mut io::stderr()));
    let directives = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let selected =
        if directives.is_empty() { filter(settings.verbosity.into()) } else { EnvFilter::new(directives) };
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(selected).with_writer(LineWriter(queue.clone()));
    // If another subscriber is already installed, `try_init` fails, and the other subscriber remains in use.
    let set_level: SetLevel = match settings.format {
        LogFormat::Text => {
            let subscriber = subscriber.with_filter_reloading();
            let handle = subscriber.reload_handle();
            let _ = subscriber.try_init();
            Arc::new(move |verbosity| note_level(verbosity, handle.reload(filter(verbosity)).is_ok()))
        }
        LogFormat::Json => {
            let subscriber = subscriber.json().flatten_event(true).with_filter_reloading();
            let handle = subscriber.reload_handle();
            let _ = subscriber.try_init();
            Arc::new(move |verbosity| note_level(verbosity, handle.reload(filter(verbosity)).is_ok()))
        }
    };
    std::panic::set_hook(Box::new(log_panic));
    set_level
}

/// Logs that the level of detail was changed. `is_set` is false if another subscriber is in use.
fn note_level(verbosity: i32, is_set: bool) {
    if is_set {
        tracing::info!(verbosity, "log level set");
    }
}

/// Waits until the queued lines are written, for half a second at most. Must be called before the process
/// ends.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_MAX);
    }
}

fn log_panic(info: &PanicHookInfo) {
    let payload = info.payload();
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    tracing::error!(place, thread, panic = text, "panicked");
    // Wait until the line is written, because the panic may end the process.
    flush();
}

/// A bounded queue of lines for standard error.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    /// Complete lines, in order.
    waiting: Vec<u8>,
    /// Whether the worker is writing lines that it has taken out of `waiting`.
    is_writing: bool,
}

impl Queue {
    fn new(metrics: Arc<Metrics>) -> Queue {
        Queue { state: Mutex::default(), changed: Condvar::new(), metrics }
    }

    /// Adds a line, or drops it if the queue is full. Never waits for the reader.
    fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.waiting.len() + line.len() > QUEUE_BYTES_MAX {
            self.metrics.log_lines_dropped.add(1);
            return;
        }
        state.waiting.extend_from_slice(line);
        self.changed.notify_all();
    }

    /// Writes the queued lines to `out`, as long as the process runs.
    fn run(&self, out: &mut impl Write) -> ! {
        let mut announced = 0;
        loop {
            let lines = self.take();
            self.write(out, &lines, &mut announced);
        }
    }

    /// Waits until the queue has lines, and takes all of them.
    fn take(&self) -> Vec<u8> {
        let mut state = self.state.lock();
        state.is_writing = false;
        self.changed.notify_all();
        while state.waiting.is_empty() {
            self.changed.wait(&mut state);
        }
        state.is_writing = true;
        std::mem::take(&mut state.waiting)
    }

    /// Writes lines, and counts the lines that cannot be written. First writes the total number of dropped
    /// lines if this number has increased.
    fn write(&self, out: &mut impl Write, lines: &[u8], announced: &mut u64) {
        let dropped = self.metrics.log_lines_dropped.value();
        if dropped > *announced {
            let notice = format!("log lines dropped: {dropped} since the start\n");
            if write_whole(out, notice.as_bytes()).is_ok() {
                *announced = dropped;
            }
        }
        if write_whole(out, lines).is_err() {
            self.metrics.log_lines_dropped.add(lines.iter().filter(|byte| **byte == b'\n').count() as u64);
        }
    }

    /// Waits until all queued lines are written, up to `longest`.
    fn flush(&self, longest: Duration) {
        let until = Instant::now() + longest;
        let mut state = self.state.lock();
        while !state.waiting.is_empty() || state.is_writing {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

/// Writes all bytes, like `write_all`. Also works if another process on the same terminal has made standard
/// error non-blocking.
fn write_whole(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(FULL_PIPE_PAUSE),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A writer that passes the lines of the formatter to the queue.
struct LineWriter(Arc<Queue>);

impl<'w> MakeWriter<'w> for LineWriter {
    type Writer = Line<'w>;

    fn make_writer(&'w self) -> Line<'w> {
        Line(&self.0)
    }
}

/// A writer for one line, which the formatter writes with a single call.
struct Line<'w>(&'w Queue);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader of the log that accepts nothing while it is paused.
    struct Reader {
        is_away: bool,
        seen: Vec<u8>,
    }

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.is_away {
                return Err(ErrorKind::BrokenPipe.into());
            }
            // Accept only a few bytes, like a pipe that is nearly full.
            let taken = bytes.len().min(7);
            self.seen.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_lines_that_cannot_be_written_are_dropped_counted_and_announced() {
        let queue = Queue::new(Arc::default());
        let mut reader = Reader { is_away: true, seen: Vec::new() };
        let mut announced = 0;
        queue.push(b"one\n");
        queue.push(b"two\n");
        let lines = queue.take();
        queue.write(&mut reader, &lines, &mut announced);
        assert_eq!(queue.metrics.log_lines_dropped.value(), 2);
        reader.is_away = false;
        queue.push(b"three\n");
        let lines = queue.take();
        queue.write(&mut reader, &lines, &mut announced);
        queue.push(b"four\n");
        let lines = queue.take();
        queue.write(&mut reader, &lines, &mut announced);
        let seen = String::from_utf8(reader.seen).unwrap();
        assert_eq!(seen, "log lines dropped: 2 since the start\nthree\nfour\n");
    }

    #[test]
    fn each_verbosity_level_enables_more_log_lines() {
        use tracing::Level;
        use tracing_subscriber::layer::SubscriberExt;
        // Returns whether the filter selects each kind of line. The kinds are in the order of the lowest
        // level that includes them.
        let lines = |verbosity| {
            let subscriber = tracing_subscriber::registry().with(filter(verbosity));
            tracing::subscriber::with_default(subscriber, || {
                [
                    tracing::enabled!(target: "api::requests", Level::INFO),
                    tracing::enabled!(target: "request::failed", Level::DEBUG),
                    tracing::enabled!(target: "request::write", Level::DEBUG),
                    tracing::enabled!(target: "request::read", Level::DEBUG),
                    tracing::enabled!(target: "api::requests", Level::DEBUG),
                    tracing::enabled!(target: "h2::frame", Level::DEBUG),
                    tracing::enabled!(target: "api::requests", Level::TRACE),
                ]
            })
        };
        for level in 0..=6 {
            let enabled = lines(level);
            let expected = std::array::from_fn(|kind| kind as i32 <= level);
            assert_eq!(enabled, expected, "-v={level}");
        }
        assert_eq!((lines(-1), lines(10)), (lines(0), lines(6)));
    }

    #[test]
    fn a_full_log_queue_drops_new_lines() {
        let queue = Queue::new(Arc::default());
        let line = vec![b'x'; QUEUE_BYTES_MAX / 4];
        (0..6).for_each(|_| queue.push(&line));
        assert_eq!((queue.take().len(), queue.metrics.log_lines_dropped.value()), (QUEUE_BYTES_MAX, 2));
        // A flush ends after its time limit, even if the worker never finishes.
        queue.flush(Duration::from_millis(1));
    }
}
