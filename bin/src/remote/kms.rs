//! Calls of a key service, as unary gRPC over a Unix socket (docs/api/encryption.md#key-services).
//!
//! ```text
//! any thread: call ─► queue ─► thread "kms" ─► HTTP/2 ─► socket
//!       └──────────── waits, no longer than the timeout ◄──────┘
//! ```
//!
//! A separate thread makes the calls, so that any thread can decrypt the values that it reads, even a thread
//! of the runtime. The first call opens the connection. If the connection breaks, the next call opens a new
//! connection.

use std::sync::mpsc;
use std::time::Duration;

use api::state::secrecy::KeyService;
use bytes::Bytes;
use tokio::runtime::{Handle, RuntimeFlavor};
use wire::http2::Sender;

use crate::remote::grpc;

/// Maximum number of calls that wait for the thread. There are few calls, because only a seed that is not
/// cached needs a call.
const WAITING_MAX: usize = 64;

/// Additional time that the caller waits after the timeout of the call, so that the thread can report the
/// timeout.
const GRACE: Duration = Duration::from_millis(500);

/// A client of a key service at a Unix socket.
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
    /// Creates a client for the service at `path`, and does not connect yet. A path that begins with `@` is
    /// in the abstract namespace.
    pub fn new(path: &str, timeout: Duration) -> Socket {
        let (calls, waiting) = tokio::sync::mpsc::channel(WAITING_MAX);
        let path = path.to_owned();
        // If the thread cannot start, the queue is closed, and every call fails.
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
        answer.unwrap_or_else(|_| Err("the key service did not answer in time".to_owned()))
    }
}

/// Makes the calls one after the other, until the [`Socket`] is dropped.
async fn serve(path: &str, timeout: Duration, mut waiting: tokio::sync::mpsc::Receiver<Call>) {
    let mut connection: Option<Sender> = None;
    while let Some(Call { method, message, answer }) = waiting.recv().await {
        let message = Bytes::from(message);
        let answered = async {
            let sender = match connection.take().filter(|sender| !sender.is_closed()) {
                Some(sender) => sender,
                None => grpc::connect(path).await?,
            };
            let answered =
                grpc::unary(sender.clone(), &format!("/v2.KeyManagementService/{method}"), message).await;
            connection = answered.is_ok().then_some(sender);
            answered.map_err(|failure| failure.to_string())
        };
        let answered = tokio::time::timeout(timeout, answered).await;
        let answered =
            answered.unwrap_or_else(|_| Err(format!("the key service did not answer within {timeout:?}")));
        // Ignore an error, because the caller may have stopped waiting.
        let _ = answer.try_send(answered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_kms_socket_is_an_error_with_its_path() {
        let socket = Socket::new("/nowhere/kms.sock", Duration::from_secs(1));
        let why = socket.call("Status", Vec::new()).unwrap_err();
        assert!(why.starts_with("cannot connect to /nowhere/kms.sock"), "{why}");
    }
}
