//! Batches of audit lines: a bounded queue, and a thread that empties it.
//!
//! ```text
//! requests ─► queue (buffer_len) ─► thread: batch_len lines, or the lines of wait_max ─► throttle ─► log or webhook
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Maximum of `buffer_len`. A limit is necessary because the memory of the whole queue is allocated at the
/// start.
pub const BUFFER_LEN_MAX: usize = 1 << 20;

/// Limits of a batch and of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batching {
    /// Maximum number of queued lines.
    pub buffer_len: usize,
    /// Maximum number of lines in a batch.
    pub batch_len: usize,
    /// How long the first line of a batch waits for more lines. Zero means that the line does not wait.
    pub wait_max: Duration,
    /// Limit of the number of batches per second, if any.
    pub throttle: Option<Throttle>,
}

/// Parameters of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Average number of batches per second.
    pub per_second: f64,
    /// Maximum number of batches that are written without delay one after the other.
    pub burst: f64,
}

/// The queue of lines. If the process is killed, queued lines are lost. [`Queue::close`] waits until all
/// queued lines are written.
pub struct Queue {
    sender: Mutex<Option<SyncSender<Vec<u8>>>>,
    progress: Arc<Progress>,
}

/// Progress of the writer thread.
#[derive(Default)]
struct Progress {
    /// Number of lines that were queued and are not written yet.
    waiting: AtomicUsize,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// A guard of the writer thread, which is dropped when the thread ends, even by a panic.
struct Writing(Arc<Progress>);

impl Drop for Writing {
    fn drop(&mut self) {
        *self.0.has_ended.lock() = true;
        self.0.ended.notify_all();
    }
}

impl Queue {
    /// Starts the thread that passes batches of lines to `write`.
    pub fn start(
        batching: Batching,
        mut write: impl FnMut(Vec<Vec<u8>>) + Send + 'static,
    ) -> io::Result<Queue> {
        let (sender, receiver) = sync_channel(batching.buffer_len);
        let progress = Arc::<Progress>::default();
        let writing = Writing(progress.clone());
        let run = move || {
            let mut pace = batching.throttle.map(Pace::new);
            while let Some(lines) = next(&receiver, &batching) {
                if let Some(pause) = pace.as_mut().map(|pace| pace.take(Instant::now())) {
                    std::thread::sleep(pause);
                }
                let count = lines.len();
                write(lines);
                writing.0.waiting.fetch_sub(count, Ordering::AcqRel);
            }
        };
        std::thread::Builder::new().name("audit-writer".to_owned()).spawn(run)?;
        Ok(Queue { sender: Mutex::new(Some(sender)), progress })
    }

    /// Returns the number of lines that are queued or being written.
    pub fn waiting(&self) -> usize {
        self.progress.waiting.load(Ordering::Acquire)
    }

    /// Adds a line without blocking.
    ///
    /// # Errors
    /// The queue is full or closed. The line is lost.
    pub fn push(&self, line: Vec<u8>) -> io::Result<()> {
        let sender = self.sender.lock();
        let Some(sender) = &*sender else { return Err(io::Error::other("the audit log is closed")) };
        // Count the line before it is queued, because the writer thread may subtract it immediately
        // afterwards.
        self.progress.waiting.fetch_add(1, Ordering::AcqRel);
        sender.try_send(line).map_err(|error| {
            self.progress.waiting.fetch_sub(1, Ordering::AcqRel);
            match error {
                TrySendError::Full(_) => io::Error::other("audit buffer queue blocked"),
                TrySendError::Disconnected(_) => io::Error::other("the audit log is closed"),
            }
        })
    }

    /// Accepts no more lines. Waits until all lines are written, or until the time `until`. Returns the
    /// number of unwritten lines.
    pub fn close(&self, until: Instant) -> usize {
        drop(self.sender.lock().take());
        let mut has_ended = self.progress.has_ended.lock();
        while !*has_ended {
            if self.progress.ended.wait_until(&mut has_ended, until).timed_out() {
                break;
            }
        }
        // A writer that has failed also leaves lines unwritten.
        self.waiting()
    }
}

/// Returns the lines of the next batch; `None` once the queue is closed and empty.
fn next(receiver: &Receiver<Vec<u8>>, batching: &Batching) -> Option<Vec<Vec<u8>>> {
    let mut lines = vec![receiver.recv().ok()?];
    let deadline = Instant::now() + batching.wait_max;
    for _ in 1..batching.batch_len {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => lines.push(line),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Some(lines)
}

/// A token bucket. Every batch takes a token from the bucket.
struct Pace {
    throttle: Throttle,
    tokens: f64,
    filled: Option<Instant>,
}

impl Pace {
    fn new(throttle: Throttle) -> Pace {
        Pace { tokens: throttle.burst, throttle, filled: None }
    }

    /// Takes a token, and returns how long to wait until the token is available.
    fn take(&mut self, now: Instant) -> Duration {
        let Throttle { per_second, burst } = self.throttle;
        let elapsed = self.filled.map_or(Duration::ZERO, |filled| now.saturating_duration_since(filled));
        self.filled = Some(now);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * per_second).min(burst) - 1.0;
        // With a rate near zero, the pause may exceed the range of `Duration`.
        Duration::try_from_secs_f64((-self.tokens / per_second).max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_complete_at_its_length_or_after_the_maximum_wait() {
        let batching =
            Batching { buffer_len: 8, batch_len: 2, wait_max: Duration::from_millis(20), throttle: None };
        let (sender, receiver) = sync_channel(batching.buffer_len);
        for line in ["a", "b", "c"] {
            sender.send(line.as_bytes().to_vec()).unwrap();
        }
        assert_eq!(next(&receiver, &batching).unwrap(), [b"a", b"b"]);
        assert_eq!(next(&receiver, &batching).unwrap(), [b"c"]);
        drop(sender);
        assert_eq!(next(&receiver, &batching), None);
    }

    #[test]
    fn close_waits_for_the_writer_and_counts_unwritten_events() {
        let batching = Batching { buffer_len: 8, batch_len: 2, wait_max: Duration::ZERO, throttle: None };
        let (let_go, held) = sync_channel::<()>(0);
        // The writer blocks with the first batch until the sender of this channel is dropped.
        let write = move |_: Vec<_>| {
            let _ = held.recv();
        };
        let queue = Queue::start(batching, write).unwrap();
        for _ in 0..5 {
            queue.push(b"line".to_vec()).unwrap();
        }
        assert_eq!(queue.close(Instant::now() + Duration::from_millis(20)), 5);
        assert!(queue.push(b"late".to_vec()).is_err());
        drop(let_go);
        assert_eq!(queue.close(Instant::now() + Duration::from_secs(60)), 0);
    }

    #[test]
    fn batches_are_throttled_after_the_burst() {
        let mut pace = Pace::new(Throttle { per_second: 10.0, burst: 2.0 });
        let start = Instant::now();
        for (after_ms, pause_ms) in [(0, 0), (0, 0), (0, 100), (0, 200), (300, 0), (1_000_000, 0)] {
            let pause = pace.take(start + Duration::from_millis(after_ms));
            assert_eq!(pause.as_millis(), pause_ms, "after {after_ms} ms");
        }
    }
}
