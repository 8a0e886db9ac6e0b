//! The connection that all calls share, and the choice of its endpoint.
//!
//! There is one HTTP/2 connection at a time. If the connection fails, or its member does not answer, the next
//! endpoint in the list is tried. Pings detect a peer that disappeared silently. Calls that started on an old
//! connection may finish on it.
//!
//! Calls pass their frames to HTTP/2 directly, so that the response wakes the caller without a task in
//! between. The frames of all calls that are ready at the same time leave in one write.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cork::{Cork, Corked};
use h2::client::{Builder, SendRequest};
use h2::{Ping, PingPong};
use http::Uri;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::endpoint::{Dial, Endpoint, Stream, Tls};
use crate::error::{Error, with_causes};

/// Time limit for opening a connection, including its handshakes.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Time between two pings, and time limit for the response to a ping.
const PING: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));

/// Number of bytes that etcd may send before they are read: per stream, and in total.
const WINDOWS: (u32, u32) = (4 << 20, 8 << 20);

/// A connection that accepts requests.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Bytes>,
    pub(crate) base: Uri,
    id: u64,
    /// Channel that closes when the connection ends.
    alive: watch::Receiver<()>,
    calls: Arc<AtomicUsize>,
}

/// A guard that counts a call in progress on its connection.
pub(crate) struct Call(Arc<AtomicUsize>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// Counts a call. If the call is the only call on the connection, its frames are sent without waiting for
    /// other tasks.
    pub(crate) fn begin(&self) -> Call {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Call(self.calls.clone())
    }

    fn is_closed(&self) -> bool {
        self.alive.has_changed().is_err()
    }
}

pub(crate) struct Pool {
    endpoints: Vec<Endpoint>,
    tls: Option<Tls>,
    dial: Option<Arc<dyn Dial>>,
    ids: AtomicU64,
    state: tokio::sync::Mutex<State>,
}

struct State {
    /// Index of the endpoint of the connection, or of the endpoint to be tried next.
    at: usize,
    connection: Option<Connection>,
}

impl Pool {
    pub(crate) fn new(endpoints: Vec<Endpoint>, tls: Option<Tls>, dial: Option<Arc<dyn Dial>>) -> Pool {
        let state = tokio::sync::Mutex::new(State { at: 0, connection: None });
        Pool { endpoints, tls, dial, ids: AtomicU64::new(1), state }
    }

    /// Returns the number of endpoints.
    pub(crate) fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Returns the current connection, or opens a new connection.
    pub(crate) async fn connection(&self) -> Result<Connection, Error> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection
            && !connection.is_closed()
        {
            return Ok(connection.clone());
        }
        if state.connection.take().is_some() {
            state.at = (state.at + 1) % self.endpoints.len().max(1);
        }
        let mut troubles = Vec::new();
        for _ in 0..self.endpoints.len() {
            let Some(endpoint) = self.endpoints.get(state.at) else { break };
            match self.connect(endpoint).await {
                Ok(connection) => {
                    state.connection = Some(connection.clone());
                    return Ok(connection);
                }
                Err(why) => troubles.push(format!("{}: {why}", endpoint.url())),
            }
            state.at = (state.at + 1) % self.endpoints.len();
        }
        Err(Error::Unreachable(troubles.join("; ")))
    }

    /// Makes later calls use an endpoint other than the endpoint of this connection, if there is another
    /// endpoint.
    pub(crate) async fn leave(&self, connection: &Connection) {
        let mut state = self.state.lock().await;
        if state.connection.as_ref().is_some_and(|current| current.id == connection.id) {
            state.connection = None;
            state.at = (state.at + 1) % self.endpoints.len().max(1);
        }
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Connection, String> {
        let connecting = async {
            let stream = endpoint.connect(self.dial.as_deref()).await?;
            let calls = Arc::default();
            let (sender, alive) = match (endpoint.tls, &self.tls) {
                (false, _) => handshake(stream, &calls).await?,
                (true, Some(tls)) => {
                    let connector = TlsConnector::from(tls.0.clone());
                    let stream = connector.connect(endpoint.server_name()?, stream).await;
                    handshake(Box::new(stream.map_err(|error| error.to_string())?), &calls).await?
                }
                (true, None) => return Err("no CA certificates are configured to verify it".to_owned()),
            };
            let base = endpoint.url().parse().map_err(|_| "no URL".to_owned())?;
            Ok(Connection { sender, base, id: self.ids.fetch_add(1, Ordering::Relaxed), alive, calls })
        };
        let connected = tokio::time::timeout(CONNECT_WAIT, connecting).await;
        connected.map_err(|_| "no connection in time".to_owned())?
    }
}

async fn handshake(
    stream: Box<dyn Stream>,
    calls: &Arc<AtomicUsize>,
) -> Result<(SendRequest<Bytes>, watch::Receiver<()>), String> {
    let mut builder = Builder::new();
    builder.initial_window_size(WINDOWS.0).initial_connection_window_size(WINDOWS.1).enable_push(false);
    let cork = Cork::new(stream);
    let handshake = builder.handshake::<_, Bytes>(cork.clone()).await;
    let (sender, mut connection) = handshake.map_err(|error| with_causes(&error))?;
    let (lives, alive) = watch::channel(());
    let calls = calls.clone();
    tokio::spawn(async move {
        let pings = connection.ping_pong();
        let mut connection = Corked::new(connection, cork);
        let ended = poll_fn(|cx| connection.poll_among(cx, calls.load(Ordering::Relaxed) > 1));
        let why = tokio::select! {
            ended = ended => ended.err().map(|error| with_causes(&error)),
            why = keep_alive(pings) => Some(why),
        };
        if let Some(error) = why {
            tracing::debug!(error, "a connection to etcd ended");
        }
        drop(lives);
    });
    Ok((sender, alive))
}

/// Sends pings until a ping is not answered in time, and returns the reason.
async fn keep_alive(pings: Option<PingPong>) -> String {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PING.0).await;
        match timeout(PING.1, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return with_causes(&error),
            Err(_) => return "a ping is not answered".to_owned(),
        }
    }
}
