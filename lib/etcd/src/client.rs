//! Calls with one request and one response, each within a deadline.
//!
//! If a member does not answer a call that only reads, the call is retried at the next endpoint. A call that
//! may change something is sent only once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, HeaderMap, TE};
use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode, Uri, Version};
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout_at};

use crate::endpoint::{Dial, Endpoint, Tls};
use crate::error::{Code, Error};
use crate::frame::{self, Decoder, MESSAGE_BYTES_MAX};
use crate::pool::{Connection, Pool};
use crate::rpc::{
    Answer, CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse, MemberListRequest,
    MemberListResponse, RangeRequest, RangeResponse, ResponseHeader, StatusRequest, StatusResponse,
    TxnRequest, TxnResponse,
};

/// The configuration of a client: its endpoints, TLS and deadline.
#[derive(Clone)]
pub struct Config {
    /// Endpoints, in the order in which they are tried.
    pub endpoints: Vec<Endpoint>,
    /// TLS configuration, required for `https` endpoints.
    pub tls: Option<Tls>,
    /// Time limit of a call, including its retries.
    pub deadline: Duration,
}

/// A client of one etcd cluster. Clones share their connection.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    pool: Pool,
    deadline: Duration,
    /// Identifier of the cluster that answered first; 0 before the first response.
    cluster: AtomicU64,
}

/// Whether a call changes something. A call that changes something must not be retried.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Effect {
    Reads,
    Changes,
}

/// The limits and the retry rule of a call.
#[derive(Clone, Copy)]
struct Terms {
    effect: Effect,
    /// Time limit, including retries.
    within: Duration,
    /// Size limit of the response in bytes.
    answer_bytes_max: usize,
}

impl Client {
    /// Creates a client. The client connects at the first call.
    pub fn new(config: Config) -> Client {
        Client::dialing(config, None)
    }

    /// Creates a client that opens its connections through `dial`, if `dial` is present.
    pub fn dialing(config: Config, dial: Option<Arc<dyn Dial>>) -> Client {
        let pool = Pool::new(config.endpoints, config.tls, dial);
        Client(Arc::new(Inner { pool, deadline: config.deadline, cluster: AtomicU64::new(0) }))
    }

    /// Returns the identifier of the cluster that answered first; 0 before the first response.
    pub fn cluster(&self) -> u64 {
        self.0.cluster.load(Ordering::Acquire)
    }

    /// Returns the time limit of a call.
    pub fn deadline(&self) -> Duration {
        self.0.deadline
    }

    fn reading(&self) -> Terms {
        Terms { effect: Effect::Reads, within: self.0.deadline, answer_bytes_max: MESSAGE_BYTES_MAX }
    }

    fn changing(&self) -> Terms {
        Terms { effect: Effect::Changes, ..self.reading() }
    }

    /// Reads keys.
    ///
    /// # Errors
    /// See [`Error`]; the call only reads, so it can be repeated.
    pub async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        self.call("/etcdserverpb.KV/Range", request, self.reading()).await
    }

    /// Reads keys like [`Client::range`], with another time limit.
    ///
    /// # Errors
    /// The errors of [`Client::range`].
    pub async fn range_within(
        &self,
        request: &RangeRequest,
        within: Duration,
    ) -> Result<RangeResponse, Error> {
        self.call("/etcdserverpb.KV/Range", request, Terms { within, ..self.reading() }).await
    }

    /// Executes a transaction, at most once.
    ///
    /// # Errors
    /// See [`Error::outcome_is_unknown`].
    pub async fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        self.call("/etcdserverpb.KV/Txn", request, self.changing()).await
    }

    /// Executes a transaction that only reads. A response larger than `answer_bytes_max` is
    /// [`Error::Malformed`].
    ///
    /// # Errors
    /// See [`Error`]; the call changes nothing.
    pub async fn read(&self, request: &TxnRequest, answer_bytes_max: usize) -> Result<TxnResponse, Error> {
        self.call("/etcdserverpb.KV/Txn", request, Terms { answer_bytes_max, ..self.reading() }).await
    }

    /// Compacts the history before `revision`.
    ///
    /// # Errors
    /// See [`Error`]; repeating the compaction is harmless.
    pub async fn compact(&self, revision: i64) -> Result<CompactionResponse, Error> {
        let request = CompactionRequest { revision, physical: false };
        self.call("/etcdserverpb.KV/Compact", &request, self.changing()).await
    }

    /// Creates a lease with a time to live in seconds.
    ///
    /// # Errors
    /// See [`Error`]; if the response is lost, the lease expires by itself.
    pub async fn lease(&self, seconds: i64) -> Result<i64, Error> {
        let request = LeaseGrantRequest { ttl: seconds, id: 0 };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let answer: LeaseGrantResponse = self.call(path, &request, self.changing()).await?;
        if answer.error.is_empty() {
            Ok(answer.id)
        } else {
            Err(Error::Answered { code: Code::UNKNOWN, message: answer.error })
        }
    }

    /// Returns the status of the member that the client is connected to.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<StatusResponse, Error> {
        self.call("/etcdserverpb.Maintenance/Status", &StatusRequest {}, self.reading()).await
    }

    /// Returns the members of the cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn members(&self) -> Result<MemberListResponse, Error> {
        self.call("/etcdserverpb.Cluster/MemberList", &MemberListRequest {}, self.reading()).await
    }

    /// Sends a request and reads its response, with retries.
    async fn call<A: Answer>(
        &self,
        path: &'static str,
        message: &impl prost::Message,
        terms: Terms,
    ) -> Result<A, Error> {
        let effect = terms.effect;
        let deadline = Instant::now() + terms.within;
        let bytes = frame::encode(message);
        let mut attempts = self.0.pool.len();
        loop {
            attempts = attempts.saturating_sub(1);
            let connection = timeout_at(deadline, self.0.pool.connection()).await;
            let connection = connection.map_err(|_| Error::Unreachable("no connection in time".into()))??;
            let left = deadline.saturating_duration_since(Instant::now());
            // If the request may be retried, a silent member gets only half of the remaining time.
            let may_repeat = effect == Effect::Reads && attempts > 0;
            let wait = if may_repeat { left / 2 } else { left };
            let answered = unary::<A>(&connection, path, bytes.clone(), Terms { within: left, ..terms });
            let outcome = timeout_at(Instant::now() + wait, answered).await;
            let outcome = outcome.unwrap_or_else(|_| Err(Error::Lost("no answer in time".into())));
            match outcome {
                Ok(answer) => {
                    self.check_cluster(answer.header())?;
                    return Ok(answer);
                }
                Err(error) if error.is_of_the_member() => {
                    self.0.pool.leave(&connection).await;
                    let is_unsent = matches!(error, Error::Unreachable(_));
                    let retries = attempts > 0 && (effect == Effect::Reads || is_unsent);
                    if !retries || Instant::now() >= deadline {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks that the response comes from the client's cluster.
    pub(crate) fn check_cluster(&self, header: ResponseHeader) -> Result<(), Error> {
        let found = header.cluster_id;
        match self.0.cluster.compare_exchange(0, found, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(expected) if expected == found => Ok(()),
            Err(expected) => Err(Error::OtherCluster { expected, found }),
        }
    }

    /// Opens a bidirectional stream with a first message, at the member of the current connection.
    pub(crate) async fn stream(&self, path: &'static str, first: Bytes) -> Result<CallStream, Error> {
        let deadline = Instant::now() + self.0.deadline;
        let connection = timeout_at(deadline, self.0.pool.connection()).await;
        let connection = connection.map_err(|_| Error::Unreachable("no connection in time".into()))??;
        let opening = async {
            let (answer, mut requests) = send(&connection, path, None).await?;
            requests.send_data(first, false).map_err(|error| Error::lost(&error))?;
            Ok((requests, response_body(answer).await?))
        };
        let opened = timeout_at(deadline, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(Error::Lost("no answer in time".into())));
        match opened {
            Ok((requests, body)) => Ok(CallStream { connection, _requests: requests, body }),
            Err(error) => {
                self.0.pool.leave(&connection).await;
                Err(error)
            }
        }
    }

    /// Makes later calls use a member other than the member of this connection.
    pub(crate) async fn leave(&self, connection: &Connection) {
        self.0.pool.leave(connection).await;
    }
}

/// A bidirectional stream on a connection.
pub(crate) struct CallStream {
    pub(crate) connection: Connection,
    /// Sending half of the stream. The responses continue only while this half is open.
    _requests: SendStream<Bytes>,
    pub(crate) body: RecvStream,
}

async fn unary<A: Answer>(
    connection: &Connection,
    path: &'static str,
    bytes: Bytes,
    terms: Terms,
) -> Result<A, Error> {
    let _call = connection.begin();
    let (answer, mut request) = send(connection, path, Some(terms.within)).await?;
    request.send_data(bytes, true).map_err(|error| Error::lost(&error))?;
    let mut body = response_body(answer).await?;
    let mut decoder = Decoder::default();
    let mut taken = 0;
    let mut answer = None;
    while let Some(data) = next_data(&mut body).await? {
        taken += data.len();
        if taken > terms.answer_bytes_max {
            return Err(Error::Malformed(format!("more than {} bytes", terms.answer_bytes_max)));
        }
        decoder.push(&data);
        if answer.is_none() {
            answer = decoder.next::<A>()?;
        }
    }
    answer.ok_or_else(|| Error::Lost("the answer broke off".into()))
}

/// Sends the headers of a request.
async fn send(
    connection: &Connection,
    path: &'static str,
    left: Option<Duration>,
) -> Result<(ResponseFuture, SendStream<Bytes>), Error> {
    let mut parts = connection.base.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(path));
    let uri = Uri::from_parts(parts).map_err(|error| Error::Malformed(error.to_string()))?;
    let mut request = Request::builder().method(Method::POST).uri(uri).version(Version::HTTP_2);
    request = request.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers");
    request = match left {
        Some(left) => request.header("grpc-timeout", grpc_timeout(left)),
        // Without this header, a stream at a member without a leader stays silent; with it, etcd ends the
        // stream.
        None => request.header("hasleader", "true"),
    };
    let request = request.body(()).map_err(|error| Error::Malformed(error.to_string()))?;
    let sender = connection.sender.clone().ready().await;
    let mut sender = sender.map_err(|error| Error::unreachable(&error))?;
    sender.send_request(request, false).map_err(|error| Error::unreachable(&error))
}

/// Formats a timeout for etcd in whole seconds, rounded up. The headers of most calls are then equal, so that
/// HTTP/2 can compress them. The caller enforces the exact time limit.
fn grpc_timeout(left: Duration) -> String {
    format!("{}S", left.as_millis().div_ceil(1000).clamp(1, 99_999_999))
}

/// Waits for the headers of a response with a body.
async fn response_body(answer: ResponseFuture) -> Result<RecvStream, Error> {
    let response = answer.await.map_err(|error| Error::lost(&error))?;
    if response.status() != StatusCode::OK {
        return Err(Error::Malformed(format!("HTTP status {}", response.status().as_u16())));
    }
    check_status(response.headers())?;
    Ok(response.into_body())
}

/// Returns the next bytes of a response; `None` at its end, if the call succeeded.
pub(crate) async fn next_data(body: &mut RecvStream) -> Result<Option<Bytes>, Error> {
    match body.data().await {
        Some(data) => {
            let data = data.map_err(|error| Error::lost(&error))?;
            body.flow_control().release_capacity(data.len()).map_err(|error| Error::lost(&error))?;
            Ok(Some(data))
        }
        None => {
            let trailers = body.trailers().await.map_err(|error| Error::lost(&error))?;
            trailers.as_ref().map_or(Ok(()), check_status)?;
            Ok(None)
        }
    }
}

/// Reads the status of the call from headers or trailers; an absent status is a success.
fn check_status(headers: &HeaderMap) -> Result<(), Error> {
    let Some(status) = headers.get("grpc-status") else { return Ok(()) };
    let code = status.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(Code::UNKNOWN.0);
    if code == 0 {
        return Ok(());
    }
    let message = headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
    let message = percent_decode_str(message).decode_utf8_lossy().into_owned();
    Err(Error::Answered { code: Code(code), message })
}
