//! A connection after its handshake: HTTP framing, requests to the handler, and supervision.
//!
//! The socket and the requests update [`Activity`]. From this state, the pure function [`next`] decides
//! whether the connection is kept and when to check again. [`drive`] acts on the decision with a single
//! timer.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cork::{Cork, Corked};
use futures_util::FutureExt;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, StatusCode};
use hyper::body::{Body as _, Frame, SizeHint};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::head;
use super::poll_gate::PollGate;
use super::quiet_period::QuietPeriod;
use super::turns::{TurnPlace, Turns};
use super::{Aborted, Body, ConnectionInfo, Handler, Limits, Request, Response, Retire, Shutdown};
use values::cancellation::{CancellationReason, CancellationToken};

/// The response to a request whose handler panicked (docs/api/errors.md#encoding-of-errors).
const PANIC_TEXT: &str = "This request caused apiserver to panic. Look in the logs for details.\n";

/// Time that an idle connection may take to close after a graceful close was requested.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Size from which a piece of a response must be written before another piece is produced.
const LARGE_PIECE_BYTES: usize = 16 * 1024;

/// Values that say whether an HTTP/1.1 connection has room for more response bytes.
mod room {
    pub(super) const FREE: u8 = 0;
    /// No write has finished since a large piece was produced or since the socket was full.
    pub(super) const TAKEN: u8 = 1;
    /// The same as `TAKEN`; in addition the connection has polled the response for more bytes.
    pub(super) const AWAITED: u8 = 2;
}

/// Builders for both protocols, created once per server.
pub(super) struct Protocols {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl Protocols {
    pub(super) fn new(limits: &Limits) -> Self {
        let mut http1 = http1::Builder::new();
        // Hyper's own head timeout would also close idle connections; supervision distinguishes the two
        // cases.
        http1.header_read_timeout(None).max_buf_size(limits.head_bytes_max.max(8192) as usize);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.http2_streams_max)
            .max_header_list_size(limits.head_bytes_max)
            .initial_stream_window_size(limits.http2_window_bytes)
            .initial_connection_window_size(limits.http2_window_bytes.saturating_mul(2))
            .max_send_buf_size(limits.http2_send_buffer_bytes)
            .keep_alive_interval(limits.http2_ping_interval)
            .keep_alive_timeout(limits.http2_ping_timeout);
        Protocols { http1, http2 }
    }
}

/// Times of the last events on a connection, in milliseconds since its start.
pub(super) struct Activity {
    start: Instant,
    requests_in_flight: AtomicU32,
    /// Number of requests in progress on all connections of the server.
    under_way: Arc<AtomicU64>,
    /// Whether no request has arrived yet.
    fresh: AtomicBool,
    idle_since: AtomicU64,
    /// Time at which the current head began, plus one; 0 if no head is being received.
    head_since: AtomicU64,
    /// Whether the last request had a body that was not read to its end. Meaningless on HTTP/2, where
    /// requests overlap.
    body_unread: AtomicBool,
    /// Whether produced response bytes wait for the socket: one of the constants in [`room`].
    room: AtomicU8,
    /// Notified when a response requests that the connection ends.
    retire: Notify,
}

impl Activity {
    /// Creates the activity of a new connection. A new connection counts as receiving its first request head.
    /// The requests of the connection are also counted in `under_way`.
    pub(super) fn new(under_way: Arc<AtomicU64>) -> Self {
        Activity {
            start: Instant::now(),
            requests_in_flight: AtomicU32::new(0),
            under_way,
            fresh: AtomicBool::new(true),
            idle_since: AtomicU64::new(0),
            head_since: AtomicU64::new(1),
            body_unread: AtomicBool::new(false),
            room: AtomicU8::new(room::FREE),
            retire: Notify::new(),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Notes that bytes arrived. If no request is in progress, these bytes begin a head (HTTP/1.1; see
    /// [`next`] for HTTP/2).
    pub(super) fn bytes_arrived(&self) {
        if self.requests_in_flight.load(Relaxed) == 0 && self.head_since.load(Relaxed) == 0 {
            self.head_since.store(self.now() + 1, Relaxed);
        }
    }

    /// Notes that a write finished or has to wait. Returns whether a response waited for the end of the
    /// write.
    pub(super) fn wrote(&self, is_done: bool) -> bool {
        let before = self.room.load(Relaxed);
        if is_done && before != room::FREE {
            self.room.store(room::FREE, Relaxed);
        } else if !is_done && before == room::FREE {
            self.room.store(room::TAKEN, Relaxed);
        }
        is_done && before == room::AWAITED
    }

    fn request_began(self: &Arc<Self>) -> InFlight {
        self.requests_in_flight.fetch_add(1, Relaxed);
        self.under_way.fetch_add(1, Relaxed);
        self.fresh.store(false, Relaxed);
        self.head_since.store(0, Relaxed);
        InFlight(self.clone())
    }

    fn snapshot(&self) -> Seen {
        Seen {
            now: self.now(),
            idle_since: self.idle_since.load(Relaxed),
            head_since: self.head_since.load(Relaxed).checked_sub(1),
            fresh: self.fresh.load(Relaxed),
            requests_in_flight: self.requests_in_flight.load(Relaxed),
        }
    }
}

/// A request body, which reports to its connection whether it was read to its end.
pub struct Incoming(Source);

enum Source {
    Connection {
        body: hyper::body::Incoming,
        activity: Arc<Activity>,
    },
    /// The whole body, until it is read.
    AtHand(Bytes),
}

impl Incoming {
    fn new(body: hyper::body::Incoming, activity: Arc<Activity>) -> Self {
        activity.body_unread.store(!body.is_end_stream(), Relaxed);
        Incoming(Source::Connection { body, activity })
    }

    /// Returns a body that did not come over a connection, for calling a handler directly.
    pub fn detached(body: Bytes) -> Self {
        Incoming(Source::AtHand(body))
    }
}

impl hyper::body::Body for Incoming {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Source::Connection { body, activity } => {
                let frame = Pin::new(&mut *body).poll_frame(cx);
                if matches!(frame, Poll::Ready(None)) || body.is_end_stream() {
                    activity.body_unread.store(false, Relaxed);
                }
                frame
            }
            Source::AtHand(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::AtHand(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Connection { body, .. } => body.is_end_stream(),
            Source::AtHand(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Connection { body, .. } => body.size_hint(),
            Source::AtHand(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

/// A request in progress, from its dispatch to the last byte of its response.
struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Relaxed);
        self.0.requests_in_flight.fetch_sub(1, Relaxed);
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

/// A snapshot of [`Activity`].
#[derive(Clone, Copy, Debug)]
struct Seen {
    now: u64,
    idle_since: u64,
    head_since: Option<u64>,
    fresh: bool,
    requests_in_flight: u32,
}

/// The decision about a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    /// Do nothing before this time, in milliseconds since the connection's start.
    Wait(u64),
    /// Close gracefully: nothing happened for too long.
    Retire,
    /// Cut the connection: a request head took too long.
    Cut,
}

/// Decides whether a connection is kept. HTTP/2 frames that belong to no request (settings, pings) look like
/// the beginning of a head. Therefore on HTTP/2 only the head of the very first request is timed, and the
/// idle timeout covers everything else.
fn next(seen: Seen, http1: bool, limits: &Limits) -> Next {
    let head = limits.head_timeout.as_millis() as u64;
    let idle = limits.idle_timeout.as_millis() as u64;
    if seen.requests_in_flight > 0 {
        // Even if all requests ended now, no limit would be reached before this time.
        return Next::Wait(seen.now + head.min(idle));
    }
    let idle_ends = seen.idle_since + idle;
    if let Some(since) = seen.head_since.filter(|_| http1 || seen.fresh) {
        if since + head <= seen.now { Next::Cut } else { Next::Wait(since + head) }
    } else if idle_ends <= seen.now {
        Next::Retire
    } else {
        // Another head may begin at any time, so the wait is never longer than the head timeout.
        Next::Wait(idle_ends.min(seen.now + head))
    }
}

/// Graceful shutdown, which both kinds of hyper connections have.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, S> Graceful for http1::UpgradeableConnection<I, S>
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = Tracked>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: Read + Write + Unpin + Send + 'static,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// An HTTP/2 connection that sends the output of several requests together.
struct Multiplexed<C, I> {
    corked: Corked<Pin<Box<C>>, I>,
    info: Arc<ConnectionInfo>,
    activity: Arc<Activity>,
}

impl<C, I> Future for Multiplexed<C, I>
where
    C: Future<Output = hyper::Result<()>>,
    I: AsyncWrite + Unpin,
{
    type Output = hyper::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A crowded connection need not wait here: its turn comes after all other tasks anyway.
        let several = self.activity.requests_in_flight.load(Relaxed) > 1 && !self.info.is_crowded();
        self.corked.poll_among(cx, several)
    }
}

impl<I, S, E> Graceful for Multiplexed<http2::Connection<TokioIo<Cork<I>>, S, E>, I>
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = Tracked>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: AsyncRead + AsyncWrite + Unpin,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, Tracked>,
{
    fn graceful_shutdown(mut self: Pin<&mut Self>) {
        self.corked.connection().as_mut().graceful_shutdown();
    }
}

/// State that all connections of a server share after their handshake.
pub(super) struct Server {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) protocols: Protocols,
    pub(super) turns: Turns,
    pub(super) quiet_period: Arc<QuietPeriod>,
    pub(super) limits: Limits,
    pub(super) shutdown: Shutdown,
}

/// Serves `io` until it is closed, retired, or drained. The caller cuts the connection by dropping the
/// future.
pub(super) async fn run<I>(
    io: I,
    http1: bool,
    server: &Server,
    info: Arc<ConnectionInfo>,
    activity: Arc<Activity>,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Server { protocols, shutdown, .. } = server;
    let place = server.turns.place();
    let service = service_fn({
        let info = info.clone();
        let (handler, activity, shutdown) = (server.handler.clone(), activity.clone(), shutdown.clone());
        let (turns, quiet_period) = (server.turns.clone(), server.quiet_period.clone());
        move |request: http::Request<hyper::body::Incoming>| {
            let in_flight = activity.request_began();
            if shutdown.is_begun() {
                quiet_period.request_came();
            }
            let (handler, info, shutdown) = (handler.clone(), info.clone(), shutdown.clone());
            let activity = activity.clone();
            let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
            // On HTTP/1.1 the task of the connection serves its requests; on HTTP/2 each request has its own
            // task.
            let place = (is_write || !http1).then(|| turns.place());
            let token = shutdown.request_token();
            async move {
                let mut request = request.map(|body| Incoming::new(body, activity.clone()));
                request.extensions_mut().insert(token.clone());
                // The future of the handler is boxed. Otherwise the outer future, which holds the response
                // for the whole time of a watch, would also keep the space for this future.
                let answering = Box::pin(async move {
                    let answering = pin!(answer(&*handler, request, &info));
                    match place {
                        Some(place) => in_turns(place, &info, answering).await,
                        None => answering.await,
                    }
                });
                let awaited = Awaited(Some(token));
                let mut response = if is_write { answer_in_task(answering).await } else { answering.await };
                awaited.arrived();
                // An unread rest of the body precedes the next request on the wire, so hyper closes the
                // connection. Without `Connection: close` the client might send its next request while the
                // connection closes.
                let retires = response.extensions().get::<Retire>().is_some();
                if http1 && (retires || shutdown.is_begun() || activity.body_unread.load(Relaxed)) {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                } else if retires {
                    activity.retire.notify_one();
                }
                Ok::<_, Infallible>(response.map(|body| Tracked { body, in_flight, http1 }))
            }
        }
    });
    // Boxed, because a future reserves space for each variable through which a value is moved.
    if http1 {
        let connection = protocols.http1.serve_connection(TokioIo::new(io), service).with_upgrades();
        drive(Box::pin(connection), true, place, info, &activity, server).await
    } else {
        let cork = Cork::new(io);
        let connection = Box::pin(protocols.http2.serve_connection(TokioIo::new(cork.clone()), service));
        let corked = Corked::new(connection, cork);
        let connection = Multiplexed { corked, info: info.clone(), activity: activity.clone() };
        drive(Box::pin(connection), false, place, info, &activity, server).await
    }
}

async fn drive(
    mut connection: Pin<Box<impl Graceful>>,
    http1: bool,
    mut place: TurnPlace,
    info: Arc<ConnectionInfo>,
    activity: &Activity,
    Server { quiet_period, limits, shutdown, .. }: &Server,
) -> hyper::Result<()> {
    let wake = tokio::time::sleep(limits.head_timeout.min(limits.idle_timeout));
    tokio::pin!(wake);
    let begun = async {
        shutdown.wait_for_drain().await;
        if http1 {
            // HTTP/2 announces which requests the server will still answer; HTTP/1.1 cannot, so the server
            // waits for late requests.
            quiet_period.wait(limits.drain_idle_grace, limits.drain_idle_max).await;
        }
    };
    tokio::pin!(begun);
    let retire = activity.retire.notified();
    tokio::pin!(retire);
    let mut gate = PollGate::new();
    let mut draining = false;
    let mut retired = false;
    loop {
        // Signals are polled before the connection, which may use up the whole cooperative budget of the
        // task.
        let event = std::future::poll_fn(|cx| {
            let signal = gate.poll(cx, |cx| {
                if !draining && begun.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(ConnectionEvent::Drain);
                }
                if retire.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(ConnectionEvent::Retire);
                }
                wake.as_mut().poll(cx).map(|()| ConnectionEvent::Alarm)
            });
            if signal.is_ready() {
                return signal;
            }
            place.poll(cx, info.is_crowded(), |cx| connection.as_mut().poll(cx)).map(ConnectionEvent::Ended)
        });
        match event.await {
            ConnectionEvent::Ended(result) => return result,
            ConnectionEvent::Drain => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
            ConnectionEvent::Retire => {
                retire.set(activity.retire.notified());
                connection.as_mut().graceful_shutdown();
            }
            ConnectionEvent::Alarm => {
                let at = match next(activity.snapshot(), http1, limits) {
                    Next::Wait(at) => activity.start + Duration::from_millis(at),
                    Next::Cut => return Ok(()),
                    Next::Retire if retired => return Ok(()),
                    Next::Retire => {
                        retired = true;
                        connection.as_mut().graceful_shutdown();
                        Instant::now() + CLOSE_TIMEOUT
                    }
                };
                wake.as_mut().reset(at);
            }
        }
    }
}

/// An event that [`drive`] waits for.
enum ConnectionEvent {
    Ended(hyper::Result<()>),
    /// The server's shutdown has begun.
    Drain,
    /// A response requested the end of the connection.
    Retire,
    /// It is time to check the connection's activity.
    Alarm,
}

/// Runs `work` for a request of the connection, in turns while the connection is crowded.
async fn in_turns<F: Future>(
    mut place: TurnPlace,
    info: &ConnectionInfo,
    mut work: Pin<&mut F>,
) -> F::Output {
    std::future::poll_fn(|cx| place.poll(cx, info.is_crowded(), |cx| work.as_mut().poll(cx))).await
}

/// Guard of a response that a client waits for. Dropping the guard, because the client disconnected, cancels
/// the computations of the request.
struct Awaited(Option<CancellationToken>);

impl Awaited {
    /// Disarms the guard, because the response exists and the remaining work belongs to the response.
    fn arrived(mut self) {
        self.0 = None;
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            token.cancel(CancellationReason::Gone);
        }
    }
}

/// Answers a request in a separate task, because the request may compute for long. Meanwhile the task of the
/// connection, or of the stream, notices if the client disconnects. Reads need no separate task: a read
/// computes one object, or a list piece by piece.
async fn answer_in_task(answering: impl Future<Output = Response> + Send + 'static) -> Response {
    struct Answering(JoinHandle<Response>);

    impl Drop for Answering {
        fn drop(&mut self) {
            self.0.abort();
        }
    }

    let mut task = Answering(tokio::spawn(answering));
    // A panic of the handler is already converted to a response; the task fails only if the runtime shuts
    // down.
    (&mut task.0).await.unwrap_or_else(|_| panic_response())
}

async fn answer(handler: &dyn Handler, request: Request, info: &Arc<ConnectionInfo>) -> Response {
    if let Some(refusal) = head::refusal(request.version(), request.headers()) {
        return refusal;
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    // With the inner async block, a panic before the first await is caught as well.
    match AssertUnwindSafe(async { handler.handle(request, info).await }).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            // The panic hook has logged the message and the location; this line names the request.
            tracing::error!(%method, path = uri.path(), remote = %info.remote, "request handler panicked");
            panic_response()
        }
    }
}

/// Returns the response to a request whose handler panicked.
pub fn panic_response() -> Response {
    let mut response = http::Response::new(Body::from(PANIC_TEXT));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A body that keeps its request in progress until its last byte is sent or the body is dropped.
///
/// On HTTP/1.1 no more of the body is produced while earlier bytes wait for the socket. Otherwise hyper would
/// poll for more at each wake-up, until its buffer limit is reached. HTTP/2 has flow control windows for this
/// purpose.
pub(super) struct Tracked {
    body: Body,
    in_flight: InFlight,
    http1: bool,
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.http1 && self.in_flight.0.room.load(Relaxed) != room::FREE {
            self.in_flight.0.room.store(room::AWAITED, Relaxed);
            return Poll::Pending; // the socket wakes this task, the task of the connection
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if self.http1
            && let Poll::Ready(Some(Ok(frame))) = &frame
            && frame.data_ref().is_some_and(|piece| piece.len() >= LARGE_PIECE_BYTES)
        {
            self.in_flight.0.room.store(room::TAKEN, Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::wire::Wire;
    use super::*;

    #[tokio::test]
    async fn the_server_renders_no_further_chunk_until_a_slow_reader_took_the_last() {
        const PIECE: usize = LARGE_PIECE_BYTES;
        const PIPE: usize = 1024;
        let limits = Limits { head_bytes_max: 8192, ..Limits::default() };
        let activity = Arc::new(Activity::new(Arc::default()));
        let (near, mut far) = tokio::io::duplex(PIPE);
        let io = TokioIo::new(Wire::new(near, activity.clone(), &limits));
        let made = Arc::<AtomicUsize>::default();
        let service = service_fn({
            let made = made.clone();
            move |_: http::Request<hyper::body::Incoming>| {
                let (made, in_flight) = (made.clone(), activity.request_began());
                let pieces = futures_util::stream::iter(0..16).map(move |_| {
                    made.fetch_add(PIECE, Relaxed);
                    Ok(Bytes::from_static(&[7; PIECE]))
                });
                let tracked = Tracked { body: Body::stream(pieces), in_flight, http1: true };
                async { Ok::<_, Infallible>(http::Response::new(tracked)) }
            }
        });
        let serving = tokio::spawn(Protocols::new(&limits).http1.serve_connection(io, service));
        far.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let (mut read, mut before, mut rounds) = (0, 0, 0);
        loop {
            let bytes = far.read(&mut [0; PIPE]).await.unwrap();
            if bytes == 0 {
                break;
            }
            read += bytes;
            let now = made.load(Relaxed);
            if now > before {
                // The bytes of the head are included.
                assert!(
                    before <= read + PIPE,
                    "{before} bytes were made, {read} read, and now {now} are made"
                );
                (before, rounds) = (now, rounds + 1);
            }
        }
        assert!(read > 16 * PIECE && rounds > 3, "{read} bytes in {rounds} rounds");
        serving.await.unwrap().unwrap();
    }

    #[test]
    fn a_connection_is_cut_for_a_slow_head_and_retired_when_idle() {
        let limits = Limits {
            head_timeout: Duration::from_millis(30),
            idle_timeout: Duration::from_millis(90),
            ..Limits::default()
        };
        let at = |now, idle_since, head_since, requests_in_flight| Seen {
            now,
            idle_since,
            head_since,
            fresh: idle_since == 0,
            requests_in_flight,
        };
        for (what, seen, http1, want) in [
            ("new, silent", at(10, 0, Some(0), 0), true, Next::Wait(30)),
            ("new, silent", at(10, 0, Some(0), 0), false, Next::Wait(30)),
            ("new, silent for too long", at(30, 0, Some(0), 0), true, Next::Cut),
            ("new, silent for too long", at(30, 0, Some(0), 0), false, Next::Cut),
            ("busy for long", at(900, 0, None, 1), true, Next::Wait(930)),
            ("just idle", at(100, 100, None, 0), true, Next::Wait(130)),
            ("idle, about to end", at(180, 100, None, 0), true, Next::Wait(190)),
            ("idle for too long", at(190, 100, None, 0), true, Next::Retire),
            ("idle for too long", at(190, 100, None, 0), false, Next::Retire),
            ("a later head, begun late", at(195, 100, Some(185), 0), true, Next::Wait(215)),
            ("a later head, trickling", at(215, 100, Some(185), 0), true, Next::Cut),
            ("only settings and pings", at(189, 100, Some(101), 0), false, Next::Wait(190)),
            ("only settings and pings", at(190, 100, Some(101), 0), false, Next::Retire),
        ] {
            assert_eq!(next(seen, http1, &limits), want, "{what}, http1 {http1}: {seen:?}");
        }
    }
}
