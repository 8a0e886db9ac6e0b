//! Calls of the external process that signs service account tokens
//! (docs/api/authentication.md#external-signers).
//!
//! All calls share a connection. After a failure, the next call opens a new connection. A call waits up to
//! its time limit until the signer is available, so that calls do not fail while the signer restarts.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use api::state::tokens::external::{CallError, Called, Calls, External};
use bytes::Bytes;
use parking_lot::Mutex;
use wire::http2::Sender;
use wire::metrics::Metrics;

use crate::remote::grpc::{self, Failure};

/// Time limits of a call: while the server starts, and later. kube-apiserver waits for a minute while it
/// starts. Later, its limit is the time limit of the request that needs a token.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two attempts to connect.
const CONNECT_AGAIN: Duration = Duration::from_millis(100);

/// A client of a signer at a Unix socket.
struct Signer {
    path: String,
    connection: Mutex<Option<Sender>>,
}

/// Requests the keys and limits of the signer at `path`.
///
/// # Errors
/// The signer does not respond in time, or its response is invalid. The error is one line with the message of
/// kube-apiserver.
pub async fn open(path: &str, metrics: Arc<Metrics>) -> anyhow::Result<External> {
    let signer = Arc::new(Signer { path: path.to_owned(), connection: Mutex::default() });
    let starting = Arc::new(Timed { signer: signer.clone(), timeout: START_TIMEOUT });
    let opened = External::open(starting, metrics).await.map_err(|why| anyhow!(why))?;
    Ok(opened.calling(Arc::new(Timed { signer, timeout: CALL_TIMEOUT })))
}

/// The calls of a signer, with a time limit for each.
struct Timed {
    signer: Arc<Signer>,
    timeout: Duration,
}

impl Calls for Timed {
    fn call(&self, method: &'static str, message: Vec<u8>) -> Called {
        let (signer, timeout) = (self.signer.clone(), self.timeout);
        Box::pin(async move {
            let mut why = String::new();
            let answer = tokio::time::timeout(timeout, signer.call(method, message.into(), &mut why)).await;
            let answer = answer.unwrap_or_else(|_| {
                let why = if why.is_empty() {
                    format!("the signer did not answer within {timeout:?}")
                } else {
                    why
                };
                Err(Failure::new("DeadlineExceeded", why))
            });
            answer.map_err(|Failure { code, text }| CallError { code, text })
        })
    }
}

impl Signer {
    /// Makes a call. Sets `why` to the reason, as long as the connection cannot be opened.
    async fn call(&self, method: &str, message: Bytes, why: &mut String) -> Result<Vec<u8>, Failure> {
        let method = format!("/v1.ExternalJWTSigner/{method}");
        let known = self.connection.lock().clone().filter(|sender| !sender.is_closed());
        if let Some(sender) = known {
            match grpc::unary(sender, &method, message.clone()).await {
                // The connection may have broken before the signer received the call, so make the call again.
                Err(failure) if failure.code == "Unavailable" => *self.connection.lock() = None,
                answer => return answer,
            }
        }
        let sender = self.connect(why).await;
        grpc::unary(sender, &method, message).await
    }

    async fn connect(&self, why: &mut String) -> Sender {
        loop {
            match grpc::connect(&self.path).await {
                Ok(sender) => {
                    why.clear();
                    *self.connection.lock() = Some(sender.clone());
                    return sender;
                }
                Err(error) => *why = error,
            }
            tokio::time::sleep(CONNECT_AGAIN).await;
        }
    }
}
