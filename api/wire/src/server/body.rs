//! Response bodies, and bounded reading of request bodies.
//!
//! A [`Body`] is an enum so that common responses (empty, or bytes in memory) cost no allocation. Two
//! variants are produced while they are sent, each with backpressure: [`Body::stream`] is polled for its next
//! chunk when the connection has room, and [`Body::channel`] makes its producer wait for room. On HTTP/2
//! every chunk becomes a frame, so producers of many small pieces should gather up to `PIECE_BYTES` per
//! chunk; HTTP/1.1 writes chunks as they come.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;

use values::memory::{Account, Charge};

/// The producer of a body gave up. The client sees a broken transfer instead of a normal end.
#[derive(Debug, thiserror::Error)]
#[error("response body broken off by its producer")]
pub struct Aborted;

/// The client of a body disconnected, so nothing more needs to be produced.
#[derive(Debug, thiserror::Error)]
#[error("the client no longer reads the response")]
pub struct ClientGone;

/// Bytes of a response.
#[derive(Default)]
pub struct Body(Inner);

#[derive(Default)]
enum Inner {
    #[default]
    Empty,
    /// Bytes that were produced for this response.
    Full(Bytes),
    /// Bytes that are already charged, or that cost nothing: a document that all responses share, or a part
    /// of a mapped file.
    Shared(Bytes),
    /// Shared bytes in several pieces.
    Parts(VecDeque<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, Aborted>> + Send>>),
    Channel(mpsc::Receiver<Piece>),
    Observed(Box<(Body, Box<dyn Observer>)>),
}

/// An observer of the chunks that are sent. The observer is dropped with the body: after everything was
/// sent, or after the client disconnected.
pub trait Observer: Send {
    /// Called when a chunk is passed to the connection.
    fn chunk(&mut self, chunk: &Bytes);
}

/// A message of the channel. The end of a body is an explicit message: a producer that panics or is cancelled
/// also drops its sender, and such a response must not look complete.
enum Piece {
    Chunk(Bytes),
    End,
}

impl Body {
    /// Returns a body without bytes.
    pub fn empty() -> Self {
        Body(Inner::Empty)
    }

    /// Returns a body of these bytes, with the header `Content-Length`.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Body(if bytes.is_empty() { Inner::Empty } else { Inner::Full(bytes) })
    }

    /// Returns a body of bytes that are already charged ([`Charge::hold`]), or that cost nothing: a document
    /// that all responses share, or a part of a mapped file.
    pub fn shared(bytes: Bytes) -> Self {
        Body(if bytes.is_empty() { Inner::Empty } else { Inner::Shared(bytes) })
    }

    /// Returns a body of shared pieces without joining them. `Content-Length` is their total length.
    pub fn parts(parts: impl Into<VecDeque<Bytes>>) -> Self {
        Body(Inner::Parts(parts.into()))
    }

    /// Returns a body of chunks that are produced on demand. An `Err` breaks the transfer off.
    pub fn stream(chunks: impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static) -> Self {
        Body(Inner::Stream(Box::pin(chunks)))
    }

    /// Calls `observer` for the chunks of the body as they are sent.
    pub fn observed(self, observer: impl Observer + 'static) -> Self {
        Body(Inner::Observed(Box::new((self, Box::new(observer)))))
    }

    /// Keeps `held` until the bytes are sent or the client disconnects. For a body whose bytes are already in
    /// memory, `held` is dropped at once.
    pub fn with<T: Send + 'static>(self, held: T) -> Self {
        match self.0 {
            Inner::Empty | Inner::Full(_) | Inner::Shared(_) => self,
            _ => self.keeping(held),
        }
    }

    /// Returns the number of bytes that were produced for this response and are not charged. A body that is
    /// produced while it is sent charges its chunks itself.
    pub fn uncharged_bytes(&self) -> usize {
        match &self.0 {
            Inner::Full(bytes) => bytes.len(),
            Inner::Observed(observed) => observed.0.uncharged_bytes(),
            Inner::Empty | Inner::Shared(_) | Inner::Parts(_) | Inner::Stream(_) | Inner::Channel(_) => 0,
        }
    }

    /// Charges each chunk of a streamed body as it arrives from another server. The transfer is aborted if
    /// memory for a chunk does not become free in time.
    pub fn charging(self, account: Account) -> Self {
        if !matches!(self.0, Inner::Stream(_) | Inner::Channel(_) | Inner::Observed(_)) {
            return self;
        }
        Body::stream(futures_util::stream::unfold(Some((self, account)), async |state| {
            let (mut body, account) = state?;
            loop {
                let chunk = match body.frame().await? {
                    Ok(frame) => frame.into_data().unwrap_or_default(),
                    Err(aborted) => return Some((Err(aborted), None)),
                };
                if chunk.is_empty() {
                    continue;
                }
                return match account.answer(chunk.len()).await {
                    Ok(charge) => Some((Ok(charge.hold(chunk)), Some((body, account)))),
                    Err(_) => Some((Err(Aborted), None)),
                };
            }
        }))
    }

    /// Keeps `charge` until the last byte is sent. A buffer that is much longer than its contents is
    /// replaced, because the charge covers only the contents.
    pub fn charged(self, charge: Charge) -> Self {
        Body(match self.0 {
            Inner::Full(bytes) => Inner::Shared(charge.hold(fitted(bytes))),
            Inner::Observed(mut observed) => {
                observed.0 = std::mem::take(&mut observed.0).charged(charge);
                Inner::Observed(observed)
            }
            other => other,
        })
    }

    /// Keeps `held` until the connection has taken all bytes or the client disconnects.
    pub fn keeping<T: Send + 'static>(self, held: T) -> Self {
        struct Held<T> {
            _held: T,
        }
        impl<T: Send> Observer for Held<T> {
            fn chunk(&mut self, _: &Bytes) {}
        }
        match self.0 {
            Inner::Empty => self,
            _ => self.observed(Held { _held: held }),
        }
    }

    /// Returns a body that another task writes, and its sender. The channel holds at most `chunks_max` (≥ 1)
    /// unsent chunks.
    pub fn channel(chunks_max: usize) -> (BodySender, Self) {
        let (sender, receiver) = mpsc::channel(chunks_max.max(1));
        (BodySender(sender), Body(Inner::Channel(receiver)))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body::full(bytes)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body::full(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Body::full(text)
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Body::full(text)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Inner::Empty => "Body(empty)",
            Inner::Full(_) => "Body(full)",
            Inner::Shared(_) => "Body(shared)",
            Inner::Parts(_) => "Body(parts)",
            Inner::Stream(_) => "Body(stream)",
            Inner::Channel(_) => "Body(channel)",
            Inner::Observed(_) => "Body(observed)",
        })
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let next = match &mut self.0 {
            Inner::Empty => None,
            Inner::Full(bytes) | Inner::Shared(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Inner::Empty;
                Some(Ok(bytes))
            }
            Inner::Parts(parts) => parts.pop_front().map(Ok),
            Inner::Stream(chunks) => match chunks.as_mut().poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(next) => next,
            },
            Inner::Channel(receiver) => match receiver.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Piece::Chunk(bytes))) => Some(Ok(bytes)),
                Poll::Ready(Some(Piece::End)) => None,
                Poll::Ready(None) => Some(Err(Aborted)),
            },
            Inner::Observed(observed) => {
                let (body, observer) = &mut **observed;
                match Pin::new(body).poll_frame(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|chunk| {
                        observer.chunk(&chunk);
                        Ok(chunk)
                    }),
                    Poll::Ready(Some(Err(aborted))) => Some(Err(aborted)),
                    Poll::Ready(None) => None,
                }
            }
        };
        if !matches!(next, Some(Ok(_))) {
            // The producer of the chunks is freed as soon as the last chunk was taken.
            self.0 = Inner::Empty;
        }
        Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Empty => true,
            Inner::Parts(parts) => parts.is_empty(),
            Inner::Observed(observed) => observed.0.is_end_stream(),
            Inner::Full(_) | Inner::Shared(_) | Inner::Stream(_) | Inner::Channel(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = match &self.0 {
            Inner::Empty => 0,
            Inner::Full(bytes) | Inner::Shared(bytes) => bytes.len() as u64,
            Inner::Parts(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            Inner::Observed(observed) => return observed.0.size_hint(),
            Inner::Stream(_) | Inner::Channel(_) => return SizeHint::default(),
        };
        SizeHint::with_exact(bytes)
    }
}

/// Copies the bytes to a smaller buffer if more than a fifth of their buffer is unused.
fn fitted(bytes: Bytes) -> Bytes {
    match bytes.try_into_mut() {
        Ok(buffer) if buffer.capacity() - buffer.len() > buffer.len() / 4 => Bytes::copy_from_slice(&buffer),
        Ok(buffer) => buffer.freeze(),
        Err(shared) => shared,
    }
}

/// The sender of [`Body::channel`]. Dropping the sender without [`finish`](BodySender::finish) breaks the
/// transfer off.
#[derive(Debug)]
pub struct BodySender(mpsc::Sender<Piece>);

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Piece::End) { "End" } else { "Chunk" })
    }
}

impl BodySender {
    /// Sends one chunk, and waits for room if necessary.
    ///
    /// # Errors
    /// [`ClientGone`] if the client disconnected.
    pub async fn send(&mut self, chunk: Bytes) -> Result<(), ClientGone> {
        self.0.send(Piece::Chunk(chunk)).await.map_err(|_| ClientGone)
    }

    /// Ends the body properly.
    ///
    /// # Errors
    /// [`ClientGone`] if the client disconnected before the end was sent.
    pub async fn finish(self) -> Result<(), ClientGone> {
        self.0.send(Piece::End).await.map_err(|_| ClientGone)
    }

    /// Resolves when the client disconnects.
    pub async fn wait_for_disconnect(&self) {
        self.0.closed().await;
    }
}

/// Reason why a request body could not be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BodyError {
    /// More bytes than allowed, announced or sent; the response is a 413.
    #[error("request body is over its limit")]
    TooLarge,
    /// The body did not arrive in time.
    #[error("request body did not arrive in time")]
    Timeout,
    /// There was no memory for the body; the response is a 429.
    #[error("no memory for the request body")]
    NoMemory,
    /// The client disconnected, or sent invalid framing.
    #[error("client went away while sending the request body")]
    Disconnected,
}

/// Reads the whole body, at most `bytes_max` bytes, within `timeout` from now.
///
/// A body that announces too many bytes is refused before a byte is read; otherwise it is refused at the
/// first byte above the limit. Memory is allocated as bytes arrive, not as they are announced. A body of one
/// chunk is not copied.
///
/// # Errors
/// See [`BodyError`]; the bytes read so far are dropped.
pub async fn read_body<B>(mut body: B, bytes_max: usize, timeout: Duration) -> Result<Bytes, BodyError>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint();
    if announced.lower() > bytes_max as u64 {
        return Err(BodyError::TooLarge);
    }
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let read = async {
        // The first chunk is kept without a copy; only a second chunk requires a buffer.
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(chunk) = frame.map_err(|_| BodyError::Disconnected)?.into_data() else { continue };
            if chunk.len() > bytes_max - first.len().max(whole.len()) {
                return Err(BodyError::TooLarge);
            }
            if first.is_empty() {
                first = chunk;
                continue;
            }
            if whole.is_empty() {
                whole.reserve(first.len() + chunk.len());
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(if whole.is_empty() { first } else { whole.freeze() })
    };
    tokio::time::timeout(timeout, read).await.unwrap_or(Err(BodyError::Timeout))
}

/// Length of a request body above which the body must not pause for long.
const STALLING_BYTES_MAX: usize = 64 * 1024;

/// Maximum pause in a long body. Other requests need the memory that such a body occupies.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a body like [`read_body`], and charges memory before it is allocated. An announced length is charged
/// as a whole. Otherwise a small amount is charged first, and then the maximum.
///
/// # Errors
/// See [`BodyError`].
pub async fn read_charged<B>(
    mut body: B,
    bytes_max: usize,
    timeout: Duration,
    account: &Account,
) -> Result<(Bytes, Charge), BodyError>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let announced = body.size_hint();
    if announced.lower() > bytes_max as u64 {
        return Err(BodyError::TooLarge);
    }
    let exact = announced.exact().and_then(|bytes| usize::try_from(bytes).ok());
    let read = async {
        let room = |bytes: usize| async move { account.body(bytes).await.map_err(|_| BodyError::NoMemory) };
        let mut charge = room(exact.unwrap_or(STALLING_BYTES_MAX.min(bytes_max))).await?;
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        loop {
            let held = first.len().max(whole.len());
            let frame = if exact.unwrap_or(held) > STALLING_BYTES_MAX {
                tokio::time::timeout(STALL_TIMEOUT, body.frame()).await.map_err(|_| BodyError::Timeout)?
            } else {
                body.frame().await
            };
            let Some(frame) = frame else { break };
            let Ok(chunk) = frame.map_err(|_| BodyError::Disconnected)?.into_data() else { continue };
            if chunk.len() > bytes_max - held {
                return Err(BodyError::TooLarge);
            }
            if first.is_empty() && whole.is_empty() {
                first = chunk;
                continue;
            }
            if exact.is_none() && held + chunk.len() > charge.bytes() {
                // The additional charge is made only once: it covers the maximum size, and the same amount
                // for the growth of the buffer.
                charge = charge.and(room(2 * bytes_max).await?);
            }
            if whole.is_empty() {
                whole.reserve(exact.unwrap_or(0).max(first.len() + chunk.len()));
                whole.extend_from_slice(&first);
                first = Bytes::new();
            }
            whole.extend_from_slice(&chunk);
        }
        Ok((if whole.is_empty() { first } else { whole.freeze() }, charge))
    };
    tokio::time::timeout(timeout, read).await.unwrap_or(Err(BodyError::Timeout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use hyper::body::Body as _;

    const LONG: Duration = Duration::from_secs(60);

    async fn drain(body: Body) -> Result<Vec<u8>, Aborted> {
        body.collect().await.map(|collected| collected.to_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_body_in_memory_announces_its_size() {
        for (body, want) in [
            (Body::empty(), ""),
            (Body::full(""), ""),
            (Body::from("abc"), "abc"),
            (Body::parts(vec![Bytes::from("a"), Bytes::from("bc")]), "abc"),
        ] {
            assert_eq!(body.size_hint().exact(), Some(want.len() as u64));
            assert_eq!(body.is_end_stream(), want.is_empty());
            assert_eq!(drain(body).await.unwrap(), want.as_bytes());
        }
    }

    #[tokio::test]
    async fn the_bytes_of_an_answer_are_charged_once_in_a_buffer_of_fitting_size() {
        struct Blind;
        impl Observer for Blind {
            fn chunk(&mut self, _: &Bytes) {}
        }
        let roomy = || {
            let mut buffer = Vec::with_capacity(1 << 20);
            buffer.extend_from_slice(&[7; 5000]);
            buffer
        };
        for (body, uncharged) in [
            (Body::full(roomy()), 5000),
            (Body::full(roomy()).observed(Blind), 5000),
            (Body::shared(Bytes::from(roomy())), 0),
            (Body::parts(vec![Bytes::from(roomy())]), 0),
            (Body::empty(), 0),
        ] {
            let shown = format!("{body:?}");
            assert_eq!(body.uncharged_bytes(), uncharged, "{shown}");
            let account = Account::detached();
            let body = body.charged(account.answer(100_000).await.unwrap());
            assert_eq!(body.uncharged_bytes(), 0, "{shown}");
            // The excess of the charge was returned to the connection's own allotment.
            let kept = uncharged.div_ceil(1024) * 1024;
            assert_eq!(account.memory().charged_bytes(), kept, "{shown}");
            let _ = drain(body).await;
            assert_eq!(account.memory().charged_bytes(), 0, "{shown}");
        }
        let passed_on =
            Body::stream(stream::iter([Ok(Bytes::from(roomy())), Ok(Bytes::new()), Ok(Bytes::from("a"))]));
        let account = Account::detached();
        let mut body = passed_on.charging(account.clone());
        // The allotment of the connection is used up, so that the budget shows the charges.
        let own = account.answer(values::memory::CONNECTION_BYTES).await.unwrap();
        let chunk = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((chunk.len(), account.memory().charged_bytes()), (5000, 5 * 1024));
        drop(chunk);
        assert_eq!(drain(body).await.unwrap(), b"a");
        assert_eq!(account.memory().charged_bytes(), 0);
        drop(own);
        let fitted = super::fitted(Bytes::from(roomy()));
        assert!(fitted.try_into_mut().unwrap().capacity() < 6000);
    }

    #[tokio::test]
    async fn a_streamed_body_is_complete_only_if_its_producer_finishes_it() {
        let chunks = |last: Result<Bytes, Aborted>| Body::stream(stream::iter([Ok(Bytes::from("a")), last]));
        assert_eq!(drain(chunks(Ok(Bytes::from("b")))).await.unwrap(), b"ab");
        drain(chunks(Err(Aborted))).await.unwrap_err();

        let (mut sender, body) = Body::channel(4);
        sender.send(Bytes::from("a")).await.unwrap();
        sender.finish().await.unwrap();
        assert_eq!(drain(body).await.unwrap(), b"a");

        let (mut sender, body) = Body::channel(4);
        sender.send(Bytes::from("a")).await.unwrap();
        drop(sender);
        drain(body).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_channel_applies_backpressure_and_reports_a_dropped_reader() {
        let (mut sender, body) = Body::channel(1);
        sender.send(Bytes::from("a")).await.unwrap();
        let blocked = tokio::time::timeout(Duration::from_millis(20), sender.send(Bytes::from("b"))).await;
        assert!(blocked.is_err(), "the second chunk must wait");
        drop(body);
        sender.wait_for_disconnect().await;
        assert!(sender.send(Bytes::from("b")).await.is_err());
    }

    #[tokio::test]
    async fn reading_stops_at_the_limit_exactly() {
        // Columns: chunks of a body without announced length, the limit, and the result.
        for (chunks, bytes_max, want) in [
            (&[][..], 0, Ok("")),
            (&["abc"][..], 3, Ok("abc")),
            (&["abc"][..], 2, Err(BodyError::TooLarge)),
            (&["ab", "", "cd", "e"][..], 5, Ok("abcde")),
            (&["ab", "cd", "e"][..], 4, Err(BodyError::TooLarge)),
        ] {
            let body =
                Body::stream(stream::iter(chunks.iter().map(|c| Ok(Bytes::from(*c))).collect::<Vec<_>>()));
            assert_eq!(
                read_body(body, bytes_max, LONG).await,
                want.map(Bytes::from),
                "{chunks:?} max {bytes_max}"
            );
        }
    }

    #[tokio::test]
    async fn a_body_announced_as_too_large_is_not_read_and_a_silent_client_times_out() {
        let mut announced = Body::parts(vec![Bytes::from("abc"), Bytes::from("d")]);
        assert_eq!(read_body(&mut announced, 3, LONG).await, Err(BodyError::TooLarge));
        assert_eq!(drain(announced).await.unwrap(), b"abcd", "not a byte was taken");

        let silent = Body::stream(stream::pending());
        assert_eq!(read_body(silent, 3, Duration::from_millis(5)).await, Err(BodyError::Timeout));
        let broken = Body::stream(stream::iter([Ok(Bytes::from("a")), Err(Aborted)]));
        assert_eq!(read_body(broken, 3, LONG).await, Err(BodyError::Disconnected));
    }
}
