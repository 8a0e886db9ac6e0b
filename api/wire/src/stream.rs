//! A connection of any kind: TCP, TLS, a Unix socket, or a tunnel through a proxy.

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

/// The byte stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Stream for S {}

/// A connection of any kind.
pub type AnyStream = Box<dyn Stream>;
