//! Calls of a key service: unary gRPC over a unix socket (docs/api/encryption.md#key-services).
//!
//! ```text
//! any thread: call ─► queue ─► thread "kms" ─► HTTP/2 ─► socket
//!       └──────────── waits, no longer than the timeout ◄──────┘
//! ```
//!
//! A thread of its own answers, so that values can be opened from wherever they are read, on threads of the runtime too. The
//! connection is made by the first call and made again by the first call after it broke.

use std::sync::mpsc;
use std::time::Duration;

use api::state::secrecy::KeyService;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Most calls that wait for the thread. There are few: one for each seed that is not remembered.
const WAITING_MAX: usize = 64;

/// Longest answer. It carries a seed, an id and annotations.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Bytes in front of a message: that it is not compressed, and its length.
const HEAD_BYTES: usize = 5;

/// How long the caller waits beyond the timeout of the call, for the thread to say what happened.
const GRACE: Duration = Duration::from_millis(500);

/// A key service at a socket.
pub struct Socket {
    calls: tokio::sync::mpsc::Sender<Call>,
    timeout: Duration,
}

struct Call {
    method: &'static str,
    message: Vec<u8>,
    answer: mpsc::SyncSender<Result<Vec<u8>, String>>,
}

impl Socket {
    /// The service at `path`; one that begins with `@` is in the abstract namespace. Not reached yet.
    pub fn new(path: &str, timeout: Duration) -> Socket {
        let (calls, waiting) = tokio::sync::mpsc::channel(WAITING_MAX);
        let path = path.to_owned();
        // Without the thread the queue is closed, and every call says so.
        let _ = std::thread::Builder::new().name("kms".to_owned()).spawn(move || {
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                runtime.block_on(serve(&path, timeout, waiting));
            }
        });
        Socket { calls, timeout }
    }
}

impl KeyService for Socket {
    #[expect(
        clippy::disallowed_methods,
        reason = "values are opened in the middle of reads, which do not wait otherwise; once for each seed"
    )]
    fn call(&self, method: &'static str, message: Vec<u8>) -> Result<Vec<u8>, String> {
        let (answer, answered) = mpsc::sync_channel(1);
        let call = Call { method, message, answer };
        self.calls.try_send(call).map_err(|_| "too many calls wait for it".to_owned())?;
        let wait = || answered.recv_timeout(self.timeout + GRACE);
        let is_shared =
            Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        let answer = if is_shared { tokio::task::block_in_place(wait) } else { wait() };
        answer.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// Answers calls, one after the other, as long as there is a [`Socket`] to make them.
async fn serve(path: &str, timeout: Duration, mut waiting: tokio::sync::mpsc::Receiver<Call>) {
    let mut connection: Option<Sender> = None;
    while let Some(Call { method, message, answer }) = waiting.recv().await {
        let message = Bytes::from(message);
        let answered = async {
            let sender = match connection.take().filter(|sender| !sender.is_closed()) {
                Some(sender) => sender,
                None => connect(path).await?,
            };
            let answered = unary(sender.clone(), method, message).await;
            connection = answered.is_ok().then_some(sender);
            answered
        };
        let answered = tokio::time::timeout(timeout, answered).await;
        let answered = answered.unwrap_or_else(|_| Err(format!("it did not answer within {timeout:?}")));
        // The caller may have given up.
        let _ = answer.try_send(answered);
    }
}

async fn connect(path: &str) -> Result<Sender, String> {
    let name = path.strip_prefix("/@").or(path.strip_prefix('@'));
    let opened = match name {
        None => UnixStream::connect(path).await,
        Some(name) => abstract_socket(name),
    };
    let stream = opened.map_err(|error| format!("cannot connect to {path}: {error}"))?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| format!("cannot connect to {path}: {error}"))?;
    tokio::spawn(async move {
        // What ends the connection is seen by the next call.
        let _ = connection.await;
    });
    Ok(sender)
}

fn abstract_socket(name: &str) -> std::io::Result<UnixStream> {
    use std::os::linux::net::SocketAddrExt;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// One call of a method with a message.
async fn unary(mut sender: Sender, method: &str, message: Bytes) -> Result<Vec<u8>, String> {
    let mut framed = BytesMut::with_capacity(HEAD_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).map_err(|error| error.to_string())?);
    framed.put(message);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://localhost/v2.KeyManagementService/{method}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(Full::new(framed.freeze()))
        .map_err(|error| error.to_string())?;
    sender.ready().await.map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(format!("it answered {}", head.status));
    }
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
    // An answer without a message has its outcome in the head.
    let trailers = body.trailers().cloned().unwrap_or_else(|| head.headers.clone());
    let text =
        |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    match text("grpc-status").as_str() {
        "0" => message_of(&body.to_bytes()),
        code => Err(format!("rpc error: code = {code} desc = {}", text("grpc-message"))),
    }
}

/// The one message of an answer.
fn message_of(body: &[u8]) -> Result<Vec<u8>, String> {
    let (head, message) = body.split_first_chunk::<HEAD_BYTES>().ok_or("the answer has no message")?;
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 || len != message.len() {
        return Err("the answer is not one plain message".to_owned());
    }
    Ok(message.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_plain_message() {
        for (body, want) in [
            (&[0, 0, 0, 0, 2, 7, 8][..], Some(vec![7, 8])),
            (&[0, 0, 0, 0, 0], Some(vec![])),
            (&[0, 0, 0, 0, 3, 7, 8], None),
            (&[1, 0, 0, 0, 2, 7, 8], None),
            (&[0, 0, 0, 0], None),
        ] {
            assert_eq!(message_of(body).ok(), want, "{body:?}");
        }
    }

    #[test]
    fn a_service_that_is_not_there_is_said() {
        let socket = Socket::new("/nowhere/kms.sock", Duration::from_secs(1));
        let why = socket.call("Status", Vec::new()).unwrap_err();
        assert!(why.starts_with("cannot connect to /nowhere/kms.sock"), "{why}");
    }
}
