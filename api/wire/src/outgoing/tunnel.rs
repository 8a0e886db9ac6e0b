//! The proxy of a network, and the protocols that open connections through it (docs/api/egress.md).
//!
//! ```text
//! connection to the proxy: TCP, TLS, Unix socket ─┬─ CONNECT (RFC 9110, section 9.3.6) ─► the bytes of the other server
//!                                                 └─ gRPC (`konnectivity`) ─► packets with the bytes of the other server
//! ```

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use http::Uri;
use rustls::pki_types::ServerName;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use super::call_metrics::{DialStage, tunnelled};
use super::dial::{authority, dial};
use super::guard::Guard;
use super::proxy::{Refusal, request_tunnel};
use super::{ClientTls, Credentials, Failure, konnectivity};
use crate::metrics::families::Calls;
use crate::stream::AnyStream;

/// A proxy with its transport and protocol.
#[derive(Debug)]
pub struct Tunnel {
    transport: Transport,
    protocol: Protocol,
}

/// Protocol for requesting a connection from a proxy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// The `CONNECT` method of HTTP/1.1.
    HttpConnect,
    /// The packets of a konnectivity server.
    Grpc,
}

/// Transport over which a proxy is reached.
pub enum Transport {
    /// TCP, with or without TLS.
    Tcp {
        /// Host name or address of the proxy.
        host: String,
        /// TCP port of the proxy.
        port: u16,
        /// TLS configuration and the name in the proxy's certificate; `None` if the connection is not
        /// encrypted.
        tls: Option<(ClientTls, ServerName<'static>)>,
    },
    /// A Unix socket with this path.
    Unix(PathBuf),
}

/// The output contains no keys.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transport").field(&self.address()).finish()
    }
}

impl Transport {
    /// Creates the transport to an `http` or `https` URL. The credentials are used only with `https`.
    ///
    /// # Errors
    /// The URL has another form, or the credentials cannot be used.
    pub fn of_url(url: &str, credentials: &Credentials<'_>) -> Result<Transport, String> {
        let odd = || format!("invalid proxy server url {url:?}");
        let uri: Uri = url.parse().map_err(|_| odd())?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let (port, tls) = match uri.scheme_str() {
            Some("http") => (80, None),
            Some("https") => {
                let name = ServerName::try_from(host.clone()).map_err(|_| odd())?;
                (443, Some((ClientTls::new(credentials)?, name)))
            }
            _ => return Err(odd()),
        };
        if host.is_empty() {
            return Err(odd());
        }
        Ok(Transport::Tcp { host, port: uri.port_u16().unwrap_or(port), tls })
    }

    fn address(&self) -> String {
        match self {
            Transport::Tcp { host, port, .. } => authority(host, *port),
            Transport::Unix(path) => path.display().to_string(),
        }
    }

    /// Returns the name of the transport in metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Transport::Tcp { .. } => "tcp",
            Transport::Unix(_) => "uds",
        }
    }

    async fn connect(&self) -> Result<AnyStream, Failure> {
        match self {
            Transport::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => {
                    let why = match error.kind() {
                        io::ErrorKind::NotFound => "connect: no such file or directory".to_owned(),
                        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                        _ => error.to_string(),
                    };
                    Err(Failure::Other(format!("dial unix {}: {why}", path.display())))
                }
            },
            Transport::Tcp { host, port, tls } => {
                let stream = dial(host, *port, &Guard::Open).await?;
                let Some((ClientTls(config), name)) = tls else { return Ok(Box::new(stream)) };
                let handshake = TlsConnector::from(config.clone()).connect(name.clone(), stream);
                let stream = handshake.await.map_err(|error| Failure::handshake(&error, None))?;
                Ok(Box::new(stream))
            }
        }
    }
}

impl Protocol {
    /// Returns the name of the protocol in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Protocol::HttpConnect => "http_connect",
            Protocol::Grpc => "grpc",
        }
    }
}

impl Tunnel {
    /// Creates a tunnel from a transport and a protocol.
    pub fn new(transport: Transport, protocol: Protocol) -> Tunnel {
        Tunnel { transport, protocol }
    }

    /// Connects to another server through the proxy, and counts the connection in `calls`.
    pub(super) async fn dial(
        &self,
        host: &str,
        port: u16,
        calls: Option<&Calls>,
    ) -> Result<AnyStream, Failure> {
        let Tunnel { transport, protocol } = self;
        let labels = [protocol.label(), transport.label()];
        let began = Instant::now();
        let count = |outcome| {
            if let Some(calls) = calls {
                tunnelled(calls, labels, outcome, began);
            }
        };
        let stream = transport.connect().await.inspect_err(|_| count(Err(DialStage::Connect)))?;
        let target = authority(host, port);
        let opened = match protocol {
            Protocol::HttpConnect => self.connect_to(stream, &target).await,
            Protocol::Grpc => konnectivity::connect_to(stream, &target).await,
        };
        count(opened.as_ref().map(|_| ()).map_err(|_| DialStage::Proxy));
        opened
    }

    async fn connect_to(&self, mut stream: AnyStream, target: &str) -> Result<AnyStream, Failure> {
        let proxy = self.transport.address();
        match request_tunnel(&mut stream, target, "127.0.0.1", "").await {
            Ok(()) => Ok(stream),
            Err(Refusal::Code(code, status)) => Err(Failure::Other(format!(
                "proxy error from {proxy} while dialing {target}, code {code}: {code} {status}"
            ))),
            Err(Refusal::Broken(why)) => Err(Failure::Other(format!(
                "reading HTTP response from CONNECT to {target} via proxy {proxy} failed: {why}"
            ))),
        }
    }
}
