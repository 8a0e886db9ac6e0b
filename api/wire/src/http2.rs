//! HTTP/2 as a client, over any stream.
//!
//! All clients of this process use the same stream type and the same body type. The protocol is compiled once
//! for each combination of these types, and each copy has about 100 KB of machine code.

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Body;
use hyper::client::conn::http2::{self, Builder};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinHandle;

use crate::stream::AnyStream;

/// The body of an outgoing request, whose original type is erased.
pub type AnyBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The side of a connection that sends requests; its clones share the connection.
pub type Sender = http2::SendRequest<AnyBody>;

/// The task of a connection. The connection ends when the task is aborted, or when the last [`Sender`] has been
/// dropped and its calls have finished.
pub type Driver = JoinHandle<Result<(), hyper::Error>>;

/// Erases the type of a body.
pub fn any_body<B>(body: B) -> AnyBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Starts HTTP/2 with default settings on a connection.
///
/// # Errors
/// The connection broke.
pub async fn begin(stream: AnyStream) -> Result<(Sender, Driver), hyper::Error> {
    begin_with(&Builder::new(TokioExecutor::new()), stream).await
}

/// Starts HTTP/2 with these settings on a connection.
///
/// # Errors
/// The connection broke.
pub(crate) async fn begin_with(
    settings: &Builder<TokioExecutor>,
    stream: AnyStream,
) -> Result<(Sender, Driver), hyper::Error> {
    let (sender, connection) = settings.handshake(TokioIo::new(stream)).await?;
    Ok((sender, tokio::spawn(connection.boxed())))
}
