//! The TCP socket under TLS, with a write timeout, turns between connections, and a graceful close.
//!
//! A peer that reads fast takes megabytes of a long response at once, and the task that produces the response
//! occupies a thread for that time. Therefore written bytes are charged to the cooperative budget that the
//! runtime gives a task for each run. After [`TURN_BYTES`] the task pauses, and the runtime runs other ready
//! tasks and polls its sockets before it resumes the task (docs/api/fairness.md#turns-of-connections).
//!
//! A write fails after a timeout if the peer does not read. Closing waits briefly until the peer also closes.
//! If a socket is closed with unread input, the system resets the connection, and the reset may overtake and
//! destroy the response that was just sent. The socket also reports arriving bytes to the [`Activity`] of its
//! connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio::time::{Instant, Sleep};

use super::Limits;
use super::connection::Activity;

/// Maximum amount of input that is discarded while a connection closes and the peer still sends. Above this
/// amount the connection is cut.
const LINGER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Number of written bytes after which a task pauses. The encryption and sending of this many bytes takes
/// 0.1 to 0.3 ms.
const TURN_BYTES: usize = 128 * 1024;

/// Number of steps after which the runtime runs other tasks.
const STEPS_PER_TURN: usize = 128;

/// Converts a number of written bytes to steps, and subtracts them from the budget of the current task.
fn charge(cx: &mut Context<'_>, bytes: usize) {
    for _ in 0..bytes / (TURN_BYTES / STEPS_PER_TURN) {
        if !coop::has_budget_remaining() {
            return;
        }
        if let Poll::Ready(step) = coop::poll_proceed(cx) {
            step.made_progress();
        }
    }
}

pub(super) struct Wire<T> {
    inner: T,
    activity: Arc<Activity>,
    stall_timeout: Duration,
    linger_timeout: Duration,
    /// Timer while a write waits for the peer. Boxed, because few connections ever need the timer.
    stalled: Option<Pin<Box<Sleep>>>,
    closing: Closing,
}

enum Closing {
    Not,
    Lingering { until: Pin<Box<Sleep>>, bytes: usize },
    Done,
}

impl<T> Wire<T> {
    pub(super) fn new(inner: T, activity: Arc<Activity>, limits: &Limits) -> Self {
        Wire {
            inner,
            activity,
            stall_timeout: limits.write_stall_timeout,
            linger_timeout: limits.linger_timeout,
            stalled: None,
            closing: Closing::Not,
        }
    }

    /// Handles the result of a write: charges the bytes, or limits the wait for the peer.
    fn account(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &result {
            charge(cx, *bytes);
        }
        if self.activity.wrote(result.is_ready()) {
            cx.waker().wake_by_ref(); // the body of a response may have waited for this write
        }
        self.watch_stall(cx, result)
    }

    fn watch_stall<R>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        if !coop::has_budget_remaining() {
            return Poll::Pending; // the budget of this poll is used up; the runtime will poll the task again
        }
        let timeout = self.stall_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.bytes_arrived();
        }
        result
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.account(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let inner = Pin::new(&mut self.inner);
        let result = match bufs {
            // Most events and responses are one TLS record. `send` is less work for the kernel than `writev`.
            [one] => inner.poll_write(cx, one),
            several => inner.poll_write_vectored(cx, several),
        };
        self.account(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch_stall(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.closing {
                Closing::Not => {
                    ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
                    let until = Box::pin(tokio::time::sleep_until(Instant::now() + this.linger_timeout));
                    this.closing = Closing::Lingering { until, bytes: 0 };
                }
                Closing::Lingering { until, bytes } => {
                    let mut waste = [0; 8192];
                    let mut buf = ReadBuf::new(&mut waste);
                    let over = match Pin::new(&mut this.inner).poll_read(cx, &mut buf) {
                        Poll::Ready(Ok(())) => {
                            *bytes += buf.filled().len();
                            buf.filled().is_empty() || *bytes > LINGER_BYTES_MAX
                        }
                        Poll::Ready(Err(_)) => true,
                        Poll::Pending => false,
                    };
                    // The deadline is checked every time, so that a peer that never pauses is cut as well.
                    let late = until.as_mut().poll(cx).is_ready();
                    if over || late {
                        this.closing = Closing::Done;
                    } else if buf.filled().is_empty() {
                        return Poll::Pending;
                    }
                }
                Closing::Done => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn wire<T>(inner: T) -> Wire<T> {
        Wire::new(inner, Arc::new(Activity::new(Arc::default())), &Limits::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_if_the_peer_stops_reading_but_not_if_it_reads_slowly() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = wire(near);
        let writer = tokio::spawn(async move {
            near.write_all(&[1; 24]).await.unwrap(); // needs two reads by the peer
            near.write_all(&[1; 24]).await.unwrap_err().kind()
        });
        for _ in 0..2 {
            tokio::time::sleep(Limits::default().write_stall_timeout / 2).await;
            far.read_exact(&mut [0; 8]).await.unwrap();
        }
        let before = Instant::now();
        assert_eq!(writer.await.unwrap(), io::ErrorKind::TimedOut);
        assert!(before.elapsed() >= Limits::default().write_stall_timeout);
    }

    #[tokio::test]
    async fn a_long_answer_yields_to_other_tasks() {
        const ANSWER: usize = 16 * TURN_BYTES;
        let (near, mut far) = tokio::io::duplex(2 * ANSWER);
        let mut near = wire(near);
        // On a single thread, another task runs only while the writer does not.
        let turns = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = turns.clone();
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let written = tokio::spawn(async move {
            for piece in vec![7; ANSWER].chunks(TURN_BYTES / 2) {
                near.write_all(piece).await.unwrap();
            }
        });
        written.await.unwrap();
        assert!(turns.load(std::sync::atomic::Ordering::Relaxed) >= 15);
        other.abort();
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        assert_eq!(read.len(), ANSWER);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_waits_for_the_peer_for_a_limited_time() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = wire(near);
        let closer = tokio::spawn(async move { near.shutdown().await });
        far.write_all(&[1; 1000]).await.unwrap(); // far more than the pipe holds, so it is read and discarded
        drop(far);
        closer.await.unwrap().unwrap();

        let (near, _far) = tokio::io::duplex(8);
        let before = Instant::now();
        wire(near).shutdown().await.unwrap();
        assert_eq!(before.elapsed().as_secs(), Limits::default().linger_timeout.as_secs());
    }
}
