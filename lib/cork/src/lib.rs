//! A single write for everything that an HTTP/2 connection has to send.
//!
//! The HTTP/2 library writes one frame at a time to its stream and flushes after each frame with data, which
//! costs a system call and a TLS record per frame. A connection with many streams often has a frame for each
//! of them.
//!
//! ```text
//! streams ─ frames ─► connection ─► Cork: a buffer ─ after the connection has been polled ─► stream
//! ```
//!
//! [`Corked`] polls the connection and then sends. If several streams are open, the other ready tasks of the
//! thread run first. The frames of the other streams then leave in the same write.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

/// Size limit of the buffer in bytes: the content of one TLS record. A full buffer is sent before more bytes
/// are accepted.
const HELD_MAX: usize = 16 << 10;

/// A write of at least this many bytes goes to the stream without being copied.
const DIRECT_MIN: usize = 8 << 10;

/// A stream that buffers writes, even if they are flushed, until [`Cork::send`]. Clones refer to the same
/// stream.
pub struct Cork<S>(Arc<Mutex<Held<S>>>);

struct Held<S> {
    stream: S,
    bytes: BytesMut,
    /// Error of a failed write, until the error is reported to the connection.
    failed: Option<io::Error>,
}

impl<S> Clone for Cork<S> {
    fn clone(&self) -> Cork<S> {
        Cork(self.0.clone())
    }
}

impl<S: AsyncWrite + Unpin> Cork<S> {
    /// Creates a stream with an empty buffer.
    pub fn new(stream: S) -> Cork<S> {
        Cork(Arc::new(Mutex::new(Held { stream, bytes: BytesMut::new(), failed: None })))
    }

    /// Sends the buffer. If the stream is not ready, the task is woken when the stream accepts more bytes. If
    /// sending fails, the task is woken, and the next read or write of the connection fails.
    pub fn send(&self, cx: &mut Context<'_>) {
        let mut held = self.0.lock();
        if let Poll::Ready(Err(error)) = held.poll_send(cx) {
            held.failed = Some(error);
            cx.waker().wake_by_ref();
        }
    }
}

impl<S> Held<S> {
    /// Returns the error of a failed write, unless the connection has already received this error.
    fn take_failure(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl<S: AsyncWrite + Unpin> Held<S> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.bytes.advance(sent),
            }
        }
        // Frees the buffer, because most connections are idle most of the time.
        self.bytes = BytesMut::new();
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut held = self.0.lock();
        held.take_failure()?;
        Pin::new(&mut held.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut held = self.0.lock();
        held.take_failure()?;
        let len = slices.iter().map(|slice| slice.len()).sum();
        let is_direct = len >= DIRECT_MIN;
        if is_direct || held.bytes.len() + len > HELD_MAX {
            ready!(held.poll_send(cx))?;
        }
        if is_direct {
            return Pin::new(&mut held.stream).poll_write_vectored(cx, slices);
        }
        for slice in slices {
            held.bytes.extend_from_slice(slice);
        }
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing; [`Cork::send`] sends the buffer.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.0.lock();
        held.take_failure()?;
        ready!(held.poll_send(cx))?;
        Pin::new(&mut held.stream).poll_shutdown(cx)
    }
}

/// A connection on a [`Cork`]. After each poll of the connection, the buffer of the cork is sent.
pub struct Corked<C, S> {
    connection: C,
    cork: Cork<S>,
    is_put_off: bool,
}

impl<C: Future + Unpin, S: AsyncWrite + Unpin> Corked<C, S> {
    /// Wraps a connection whose stream is a clone of `cork`.
    pub fn new(connection: C, cork: Cork<S>) -> Corked<C, S> {
        Corked { connection, cork, is_put_off: false }
    }

    /// Returns the wrapped connection.
    pub fn connection(&mut self) -> &mut C {
        &mut self.connection
    }

    /// Polls the connection and sends. If the connection has several streams (`several`), the thread's other
    /// ready tasks run first.
    pub fn poll_among(&mut self, cx: &mut Context<'_>, several: bool) -> Poll<C::Output> {
        self.is_put_off = several && !self.is_put_off;
        if self.is_put_off {
            // A single poll of this future wakes the task after the thread has run all other ready tasks.
            let _ = pin!(yield_now()).poll(cx);
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.connection).poll(cx);
        if polled.is_pending() {
            self.cork.send(cx);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::Notify;

    use super::*;

    async fn send(cork: &Cork<DuplexStream>) {
        poll_fn(|cx| {
            cork.send(cx);
            let held = cork.0.lock();
            if held.bytes.is_empty() || held.failed.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Returns the bytes that have arrived at the other end so far.
    async fn arrived(other: &mut DuplexStream) -> Vec<u8> {
        let mut part = vec![0; 1 << 16];
        poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut part);
            let _ = Pin::new(&mut *other).poll_read(cx, &mut buffer);
            Poll::Ready(buffer.filled().to_vec())
        })
        .await
    }

    #[tokio::test]
    async fn small_frames_are_held_back_until_send() {
        let (stream, mut other) = duplex(1 << 20);
        let mut cork = Cork::new(stream);
        for frame in ["one", "two"] {
            cork.write_all(frame.as_bytes()).await.unwrap();
            cork.flush().await.unwrap();
        }
        assert_eq!(arrived(&mut other).await, b"");
        send(&cork).await;
        assert_eq!(arrived(&mut other).await, b"onetwo");
        other.write_all(b"back").await.unwrap();
        let mut back = [0; 4];
        cork.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"back");
        cork.write_all(b"end").await.unwrap();
        cork.shutdown().await.unwrap();
        let mut rest = Vec::new();
        other.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"end");
    }

    #[tokio::test]
    async fn large_writes_are_sent_immediately_after_the_held_back_bytes() {
        let (stream, mut other) = duplex(1 << 20);
        let mut cork = Cork::new(stream);
        cork.write_all(b"small").await.unwrap();
        cork.write_all(&[7; DIRECT_MIN]).await.unwrap();
        cork.write_all(b"after").await.unwrap();
        assert_eq!(arrived(&mut other).await, [&b"small"[..], &[7; DIRECT_MIN]].concat());
        send(&cork).await;
        assert_eq!(arrived(&mut other).await, b"after");
    }

    #[tokio::test]
    async fn the_held_back_bytes_for_a_peer_that_does_not_read_are_bounded() {
        let (stream, mut other) = duplex(1000);
        let mut cork = Cork::new(stream);
        for frame_len in [100, DIRECT_MIN] {
            let frame = vec![7; frame_len];
            let mut taken = 0;
            while let Poll::Ready(written) =
                poll_fn(|cx| Poll::Ready(Pin::new(&mut cork).poll_write(cx, &frame))).await
            {
                taken += written.unwrap();
                assert!(taken <= HELD_MAX + 1000, "{taken}");
            }
            // The remaining bytes leave as the peer reads.
            let mut read = vec![0; taken];
            let (..) = tokio::join!(send(&cork), async { other.read_exact(&mut read).await.unwrap() });
            assert_eq!(read, vec![7; taken]);
        }
    }

    #[tokio::test]
    async fn a_write_that_cannot_be_sent_fails_the_next_read() {
        let (stream, other) = duplex(1000);
        let mut cork = Cork::new(stream);
        drop(other);
        cork.write_all(b"more").await.unwrap();
        send(&cork).await;
        assert_eq!(cork.read_u8().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_connection_with_several_streams_yields_to_other_ready_tasks_first() {
        for (several, seen) in [(true, 10), (false, 0)] {
            let (woken, done) = (Arc::new(Notify::new()), Arc::new(AtomicU64::new(0)));
            let task = {
                let (woken, done) = (woken.clone(), done.clone());
                let connection = Box::pin(async move {
                    woken.notified().await;
                    done.load(Ordering::Relaxed)
                });
                let mut corked = Corked::new(connection, Cork::new(duplex(1).0));
                tokio::spawn(async move { poll_fn(|cx| corked.poll_among(cx, several)).await })
            };
            // The sending task waits to be woken.
            tokio::time::sleep(Duration::from_millis(1)).await;
            woken.notify_one();
            for _ in 0..10 {
                let done = done.clone();
                tokio::spawn(async move { done.fetch_add(1, Ordering::Relaxed) });
            }
            assert_eq!(task.await.unwrap(), seen, "{several}");
        }
    }
}
