//! Sends spans to a collector with the OpenTelemetry protocol over gRPC. The connection has no TLS, because
//! the collector usually runs on the same machine.
//!
//! `queue → batch (full, or its time is over) → one unary call over HTTP/2`
//!
//! A batch that the collector does not accept in time is lost. The log reports lost batches at most once a
//! minute.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use tokio::sync::mpsc;

use super::{Span, otlp};
use crate::http2::{self, Sender, any_body};
use crate::stream::AnyStream;

/// Maximum number of queued spans: the spans of some hundred requests, half a megabyte.
pub const QUEUED_MAX: usize = 2048;

/// Maximum number of spans in one call.
const BATCH_MAX: usize = 512;

/// Maximum time for which a span waits for further spans of its batch.
const BATCH_WAIT: Duration = Duration::from_secs(5);

/// Time limit of a call, including its connection.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response, which has a status and a few words.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Minimum time between two log lines about lost spans.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Path of the collector's gRPC method.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The collector to which spans are sent.
pub struct Collector {
    /// Address of the collector as `host:port`.
    pub endpoint: String,
    /// Function that opens a connection to the collector.
    pub connect: Connect,
}

/// Counter of spans that have not been sent yet.
#[derive(Clone)]
pub struct Waiting {
    /// A weak sender, which does not keep the queue open.
    queue: mpsc::WeakSender<Span>,
    batch: Arc<AtomicUsize>,
}

impl Waiting {
    /// Counts the spans in the queue, and the spans that [`run`] has taken from the queue.
    pub fn new(queue: &mpsc::Sender<Span>) -> Waiting {
        Waiting { queue: queue.downgrade(), batch: Arc::default() }
    }

    /// Returns the number of spans.
    pub fn count(&self) -> usize {
        let queued = self.queue.upgrade().map_or(0, |queue| queue.max_capacity() - queue.capacity());
        queued + self.batch.load(Ordering::Relaxed)
    }
}

/// A function that opens a connection.
pub type Connect = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// A connection in progress; the error says why it failed.
pub type Connecting = Pin<Box<dyn Future<Output = Result<AnyStream, String>> + Send>>;

/// Sends the spans from the queue to the collector, as spans of `service`, until the queue is closed and
/// empty. The queue is closed when `ends` resolves.
pub async fn run(
    collector: Collector,
    service: String,
    mut spans: mpsc::Receiver<Span>,
    waiting: Waiting,
    ends: impl Future<Output = ()>,
) {
    let mut sender = None;
    let mut warned: Option<Instant> = None;
    let mut ends = pin!(ends);
    let mut is_closed = false;
    let mut batch = Vec::new();
    let mut deadline = tokio::time::Instant::now();
    loop {
        tokio::select! {
            span = spans.recv() => match span {
                Some(span) => {
                    if batch.is_empty() {
                        deadline = tokio::time::Instant::now() + BATCH_WAIT;
                    }
                    batch.push(span);
                    waiting.batch.store(batch.len(), Ordering::Relaxed);
                    if batch.len() < BATCH_MAX {
                        continue;
                    }
                }
                None if batch.is_empty() => return,
                None => {}
            },
            () = tokio::time::sleep_until(deadline), if !batch.is_empty() => {}
            () = ends.as_mut(), if !is_closed => {
                is_closed = true;
                spans.close();
                continue;
            }
        }
        let batch = std::mem::take(&mut batch);
        let body = otlp::request(&service, &batch);
        let sent = tokio::time::timeout(CALL_TIMEOUT, send(&collector, &mut sender, body)).await;
        waiting.batch.store(0, Ordering::Relaxed);
        let failure = match sent {
            Ok(Ok(())) => continue,
            Ok(Err(failure)) => failure,
            Err(_) => "no answer in time".to_owned(),
        };
        sender = None;
        if warned.is_none_or(|at| at.elapsed() > WARNING_INTERVAL) {
            warned = Some(Instant::now());
            let endpoint = &*collector.endpoint;
            tracing::warn!(
                endpoint, spans = batch.len(), %failure,
                "trace spans lost: check that the collector is reachable"
            );
        }
    }
}

async fn send(collector: &Collector, slot: &mut Option<Sender>, body: Vec<u8>) -> Result<(), String> {
    let sender = match slot.take().filter(|sender| !sender.is_closed()) {
        Some(sender) => slot.insert(sender),
        None => slot.insert(connect(collector).await?),
    };
    // A gRPC message: a compression flag (none), its length, its bytes.
    let mut message = BytesMut::with_capacity(body.len() + 5);
    message.put_u8(0);
    message.put_u32(u32::try_from(body.len()).map_err(|error| error.to_string())?);
    message.put_slice(&body);
    let request = Request::post(format!("http://{}{METHOD}", collector.endpoint))
        .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
        .header(TE, HeaderValue::from_static("trailers"))
        .body(any_body(Full::new(message.freeze())))
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("the collector answered {}", response.status()));
    }
    let in_head = response.headers().get("grpc-status").cloned();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| error.to_string())?;
    let status = in_head.or_else(|| body.trailers()?.get("grpc-status").cloned());
    match status {
        Some(status) if status == "0" => Ok(()),
        Some(status) => {
            Err(format!("the collector answered status {}", String::from_utf8_lossy(status.as_bytes())))
        }
        None => Err("the collector answered without a status".to_owned()),
    }
}

async fn connect(collector: &Collector) -> Result<Sender, String> {
    let stream = (collector.connect)().await?;
    // The task ends with the sender, or with the collector.
    let (sender, _) = http2::begin(stream).await.map_err(|error| error.to_string())?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::TcpStream;

    use super::*;
    use crate::traces::Tracer;

    fn at(endpoint: String) -> Collector {
        let target = endpoint.clone();
        let connect = move || -> Connecting {
            let connecting = TcpStream::connect(target.clone());
            Box::pin(async {
                Ok(Box::new(connecting.await.map_err(|error| error.to_string())?) as AnyStream)
            })
        };
        Collector { endpoint, connect: Arc::new(connect) }
    }

    /// Starts a server that answers calls with this status, and reports the path and the number of bytes of
    /// each call.
    async fn collector(status: &'static str) -> (String, mpsc::Receiver<(String, usize)>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, calls) = mpsc::channel(8);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let sender = sender.clone();
                    async move {
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let _ = sender.send((path, body.len())).await;
                        let response = http::Response::builder().header("grpc-status", status);
                        response.body(Full::new(Bytes::new()))
                    }
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        (address, calls)
    }

    #[tokio::test]
    async fn span_batches_reach_the_collector_and_the_exporter_flushes_its_queue() {
        let (endpoint, mut calls) = collector("0").await;
        let (queue, spans) = mpsc::channel(QUEUED_MAX);
        let waiting = Waiting::new(&queue);
        let never = std::future::pending();
        let exporter = tokio::spawn(run(at(endpoint), "s".to_owned(), spans, waiting.clone(), never));
        for _ in 0..BATCH_MAX + 1 {
            let trace = Tracer::new(1_000_000, queue.clone()).begin(None).unwrap();
            assert_eq!(trace.end("get".to_owned(), Vec::new(), false), 0);
        }
        assert_eq!(waiting.count(), BATCH_MAX + 1);
        drop(queue);
        exporter.await.unwrap();
        assert_eq!(waiting.count(), 0);
        let (path, first_bytes) = calls.recv().await.unwrap();
        let (_, second_bytes) = calls.recv().await.unwrap();
        assert_eq!(path, METHOD);
        assert!(first_bytes > 50 * second_bytes, "{first_bytes} {second_bytes}");
    }

    #[tokio::test]
    async fn a_failing_collector_loses_only_its_own_spans() {
        let gone = "127.0.0.1:1".to_owned();
        for endpoint in [collector("8").await.0, gone] {
            let why = send(&at(endpoint), &mut None, vec![1]).await.unwrap_err();
            assert!(why.contains("status 8") || why.contains("refused"), "{why}");
        }
    }
}
