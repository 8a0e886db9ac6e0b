//! Open connections, for consecutive calls (HTTP/1) or concurrent calls (HTTP/2).

use std::sync::Arc;

use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};

use super::error::Ends;
use crate::http2::{self, AnyBody};

/// Maximum number of concurrent calls on an HTTP/2 connection. RFC 9113, section 6.5.2, recommends that
/// servers allow at least this number. Further calls use another connection; otherwise watches could block
/// the calls after them.
pub(super) const SHARED_MAX: usize = 100;

/// A connection and its task. Dropping this value aborts the task; the owner drops the value after the last
/// call has finished or was cancelled.
#[derive(Debug)]
pub struct Connection {
    task: tokio::task::AbortHandle,
    ends: Ends,
}

impl Connection {
    pub(super) fn new(task: tokio::task::AbortHandle, ends: Ends) -> Connection {
        Connection { task, ends }
    }

    /// Returns the local and the remote address of the connection.
    pub(super) fn ends(&self) -> Ends {
        self.ends
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection for consecutive calls (HTTP/1) or concurrent calls (HTTP/2).
pub(super) struct Live {
    sender: Sender,
    connection: Arc<Connection>,
}

enum Sender {
    One(http1::SendRequest<AnyBody>),
    Two(http2::Sender),
}

/// Reason why a request has no response.
pub(super) enum Unsent {
    /// No byte of the request was written; the request is returned.
    Request(Box<Request<AnyBody>>),
    /// The connection ended while the request was written, or later.
    Lost(hyper::Error),
}

impl Live {
    pub(super) fn http1(sender: http1::SendRequest<AnyBody>, connection: Connection) -> Live {
        Live { sender: Sender::One(sender), connection: Arc::new(connection) }
    }

    pub(super) fn http2(sender: http2::Sender, connection: Connection) -> Live {
        Live { sender: Sender::Two(sender), connection: Arc::new(connection) }
    }

    /// Returns another handle to the connection, if calls can share the connection and it is not full.
    pub(super) fn shared(&self) -> Option<Live> {
        let Sender::Two(sender) = &self.sender else { return None };
        if self.is_full() {
            return None;
        }
        Some(Live { sender: Sender::Two(sender.clone()), connection: self.connection.clone() })
    }

    /// Returns whether a shared connection carries its maximum number of calls. Each call and the pool have a
    /// reference to the connection.
    pub(super) fn is_full(&self) -> bool {
        Arc::strong_count(&self.connection) > SHARED_MAX
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self.sender, Sender::Two(_))
    }

    pub(super) fn ends(&self) -> Ends {
        self.connection.ends()
    }

    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => sender.is_closed(),
            Sender::Two(sender) => sender.is_closed(),
        }
    }

    /// Sends a request to this URL, and waits for the head of the response.
    pub(super) async fn send(
        &mut self,
        url: &Uri,
        mut request: Request<AnyBody>,
    ) -> Result<Response<Incoming>, Unsent> {
        let sent = match &mut self.sender {
            Sender::One(sender) => {
                *request.uri_mut() =
                    url.path_and_query().map_or_else(Default::default, |path| path.clone().into());
                let authority = url.authority().and_then(|name| HeaderValue::from_str(name.as_str()).ok());
                request.headers_mut().extend(authority.map(|authority| (HOST, authority)));
                if sender.ready().await.is_err() {
                    return Err(Unsent::Request(Box::new(request)));
                }
                sender.try_send_request(request).await
            }
            Sender::Two(sender) => {
                *request.uri_mut() = url.clone();
                request.headers_mut().remove(HOST);
                if sender.ready().await.is_err() {
                    return Err(Unsent::Request(Box::new(request)));
                }
                sender.try_send_request(request).await
            }
        };
        sent.map_err(Unsent::from_error)
    }
}

impl Unsent {
    fn from_error(mut error: TrySendError<Request<AnyBody>>) -> Unsent {
        match error.take_message() {
            Some(request) => Unsent::Request(Box::new(request)),
            None => Unsent::Lost(error.into_error()),
        }
    }
}
