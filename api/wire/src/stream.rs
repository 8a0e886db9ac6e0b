//! A connection whose kind does not matter: TCP, TLS, a Unix socket, or what a proxy carries.

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

/// The bytes of a connection.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> Stream for S {}

/// A connection of any kind.
pub type AnyStream = Box<dyn Stream>;
