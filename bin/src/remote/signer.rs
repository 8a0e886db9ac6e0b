//! Calls of the external process that signs service account tokens
//! (docs/api/authentication.md#external-signers).
//!
//! All calls share a connection, which the first call after a failure opens again. A call waits for the
//! signer to be available, within its own time limit, so that a restart of the signer does not fail calls.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use api::state::tokens::external::{CallError, Called, Calls, External};
use bytes::Bytes;
use parking_lot::Mutex;
use wire::metrics::Metrics;

use crate::remote::grpc::{self, Failure, Sender};

/// Time limit of a call while the server starts, and later. kube-apiserver waits for a minute at the start,
/// and otherwise as long as the request that needs a token lasts.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two attempts to connect.
const CONNECT_AGAIN: Duration = Duration::from_millis(100);

/// A signer that is reached at a unix socket.
struct Signer {
    path: String,
    connection: Mutex<Option<Sender>>,
}

/// Requests the keys and limits of the signer at `path`.
///
/// # Errors
/// An error of one line, in the words of kube-apiserver.
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
                let why = if why.is_empty() { format!("it did not answer within {timeout:?}") } else { why };
                Err(Failure::new("DeadlineExceeded", why))
            });
            answer.map_err(|Failure { code, text }| CallError { code, text })
        })
    }
}

impl Signer {
    /// Makes a call. `why` receives the reason why there is no connection yet.
    async fn call(&self, method: &str, message: Bytes, why: &mut String) -> Result<Vec<u8>, Failure> {
        let method = format!("/v1.ExternalJWTSigner/{method}");
        let known = self.connection.lock().clone().filter(|sender| !sender.is_closed());
        if let Some(sender) = known {
            match grpc::unary(sender, &method, message.clone()).await {
                // The connection may have broken before the signer saw the call, so the call may be made
                // twice.
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
