//! Calls of other servers: one request, one answer.
//!
//! ```text
//! Endpoint (URL, address to connect to, name, authorities) ─► connect ─► TLS ─┬─ post: one answer of bounded length
//!                                                                            └─ open: an answer as it comes, or an
//!                                                                               upgrade
//! ```
//!
//! A post follows redirects to other HTTPS URLs, a few of them and all within its deadline; answers that are read as they
//! come are not followed. Objects name servers by `https` only; plain connections are for what an operator's request names
//! (pods, services). Each request has a connection of its own. Nothing here knows what is asked.

mod answer;
mod client;
mod error;
mod identity;
mod proxy;
mod redirect;

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::wire::traces;

pub use answer::Review;
pub use client::{Client, Service};
pub use error::{Failure, unexpected_code};
pub use identity::{Identities, Identity};
use proxy::Proxy;

use crate::wire::keepalive;

/// Most bytes of an answer that are read: far more than any object may have.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most bytes of an answer that are held before the reader takes them, which also bounds its head; and most headers.
const READ_BYTES_MAX: usize = 128 * 1024;
const HEADERS_MAX: usize = 256;

/// How often a server that asks for it is asked again within the deadline.
const RETRIES_MAX: usize = 10;

/// Where a server is, and how it is known.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The URL that is called, with its query.
    url: Uri,
    /// Host and port of the connection.
    address: (String, u16),
    /// Name that the server's certificate must have.
    name: ServerName<'static>,
    /// None: the connection is not encrypted.
    tls: Option<Arc<ClientConfig>>,
    /// The headers that say who asks.
    identity: HeaderMap,
    /// The proxy that the connection goes through.
    proxy: Option<Proxy>,
    /// Until the TCP connection is made.
    dial_timeout: Duration,
}

/// Until a TCP connection is made, where the caller has no other bound, and for the TLS handshake after it: those of the
/// reference server's HTTP client.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How servers are verified and who this one is, ready to be used for many connections.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads certificates and keys.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn new(credentials: &Credentials<'_>) -> Result<Tls, String> {
        Ok(Tls(Arc::new(tls(credentials)?)))
    }
}

/// How a server is known, and who asks it.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'c> {
    /// PEM of the certificates that the server's is verified against.
    pub authorities: &'c [u8],
    /// The same where those are empty. One that is not understood is left out, as a system's bundle may have such.
    pub otherwise: &'c [u8],
    /// Name that the server's certificate must have, if it is not the host of the URL.
    pub server_name: Option<&'c str>,
    /// PEM of a client certificate and its key.
    pub certificate: Option<(&'c [u8], &'c [u8])>,
    /// Bearer token.
    pub token: Option<&'c str>,
    /// Whether any certificate of the server will do.
    pub is_unverified: bool,
    /// User and password (RFC 7617).
    pub basic: Option<(&'c str, &'c str)>,
    /// Further headers that say who asks, or for whom.
    pub headers: &'c [(String, String)],
    /// URL of a proxy.
    pub proxy: Option<&'c str>,
}

impl Endpoint {
    /// The server of an `https` URL. `authorities` is the PEM of the certificates that the server's is verified against.
    ///
    /// # Errors
    /// Why no call is possible.
    pub fn new(url: Uri, authorities: &[u8]) -> Result<Endpoint, String> {
        Endpoint::with(url, &Credentials { authorities, ..Credentials::default() })
    }

    /// The server of an `https` URL that wants to know who asks.
    ///
    /// # Errors
    /// Why no call is possible.
    pub fn with(url: Uri, credentials: &Credentials<'_>) -> Result<Endpoint, String> {
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_u16().unwrap_or(443);
        if url.scheme_str() != Some("https") || host.is_empty() {
            return Err(format!("{url} is no https URL with a host"));
        }
        let name = credentials.server_name.unwrap_or(&host);
        let name = ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is no host name"))?;
        let tls = Some(Arc::new(tls(credentials)?));
        let proxy = credentials.proxy.map(Proxy::read).transpose()?;
        Ok(Endpoint {
            url,
            address: (host, port),
            name,
            tls,
            identity: identity(credentials)?,
            proxy,
            dial_timeout: DIAL_TIMEOUT,
        })
    }

    /// Where a redirect leads. Another host is not told who asks, and has to have a certificate of its own name.
    fn redirected(&self, url: Uri) -> Result<Endpoint, String> {
        if url.authority() == self.url.authority() {
            return Ok(Endpoint { url, ..self.clone() });
        }
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_u16().unwrap_or(443);
        let name = ServerName::try_from(host.clone()).map_err(|_| format!("{host:?} is no host name"))?;
        let identity = if url.host() == self.url.host() { self.identity.clone() } else { HeaderMap::new() };
        Ok(Endpoint { url, address: (host, port), name, identity, ..self.clone() })
    }

    /// A path of a server at `host` (a name or an address) and `port`; without `tls` the connection is not encrypted.
    ///
    /// # Errors
    /// Why no call is possible.
    pub fn at_port(host: &str, port: u16, target: &str, tls: Option<&Tls>) -> Result<Endpoint, String> {
        let name = ServerName::try_from(host.to_owned());
        let name = match (name, tls) {
            (Ok(name), _) => name,
            (Err(_), Some(_)) => return Err(format!("{host:?} is no host name")),
            (Err(_), None) => ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into()),
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let url = format!("{scheme}://{shown}:{port}{target}");
        Ok(Endpoint {
            url: url.parse().map_err(|error| format!("parse {url:?}: {error}"))?,
            address: (host.to_owned(), port),
            name,
            tls: tls.map(|tls| tls.0.clone()),
            identity: HeaderMap::new(),
            proxy: None,
            dial_timeout: DIAL_TIMEOUT,
        })
    }

    /// The same server with another bound for the TCP connection.
    #[must_use]
    pub fn dialed_within(self, dial_timeout: Duration) -> Endpoint {
        Endpoint { dial_timeout, ..self }
    }

    /// Why there is no call, in the words of a call that failed.
    fn no_call(&self, why: &str) -> String {
        Failure::Other(why.to_owned()).of(&self.url).to_string()
    }

    /// Another path of the same server.
    ///
    /// # Errors
    /// It is no path.
    pub fn to(&self, path_and_query: &str) -> Result<Endpoint, String> {
        let mut parts = self.url.clone().into_parts();
        parts.path_and_query =
            Some(path_and_query.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?);
        let url = Uri::from_parts(parts).map_err(|error| error.to_string())?;
        Ok(Endpoint { url, ..self.clone() })
    }

    /// The URL.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// The same server, reached at another address.
    pub fn at(mut self, host: String, port: u16) -> Endpoint {
        self.address = (host, port);
        self
    }

    /// The same server, reached at another address that the URL names too.
    ///
    /// # Errors
    /// The host cannot be part of a URL.
    pub fn moved(&self, host: String, port: u16) -> Result<Endpoint, String> {
        let mut parts = self.url.clone().into_parts();
        let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        parts.authority = Some(shown.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?);
        let url = Uri::from_parts(parts).map_err(|error| error.to_string())?;
        Ok(Endpoint { url, address: (host, port), ..self.clone() })
    }
}

/// An answer of a kind that says success.
#[derive(Debug)]
pub struct Answer {
    /// The code, 200 to 206.
    pub code: StatusCode,
    /// The body; never empty.
    pub body: Bytes,
}

/// Posts JSON and reads the answer, all of it within `timeout`. `agent` names this server.
///
/// # Errors
/// No connection, no answer in time, an answer that is too long, or one of another code than success.
pub async fn post(
    endpoint: &Endpoint,
    agent: &str,
    body: Bytes,
    timeout: Duration,
) -> Result<Answer, Failure> {
    let deadline = Instant::now() + timeout;
    let call = async {
        for _ in 0..RETRIES_MAX {
            let (head, text) = follow(endpoint, agent, &body).await?;
            match retry_after(head.status, &head.headers) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return judge(head.status, &head.headers, text),
            }
        }
        let text = "the server has received too many requests and has asked us to try again later".to_owned();
        Err(Failure::Code { code: 429, text })
    };
    let called = tokio::time::timeout_at(deadline, call).await;
    called.unwrap_or(Err(Failure::Timeout)).map_err(|failure| failure.of(&endpoint.url))
}

/// An answer that is read as it comes, and its connection, which ends with this.
pub struct Opened {
    /// The answer.
    pub response: Response<Incoming>,
    /// To be kept until the answer is read.
    pub connection: Connection,
}

/// Sends a request whose path and headers are the caller's, and waits for the head of the answer. Without `Host` it is the
/// URL's. The answer may be an upgrade.
///
/// # Errors
/// No connection, or none that lasted until the answer began.
pub async fn open<B>(endpoint: &Endpoint, mut request: Request<B>) -> Result<Opened, Failure>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut sender, connection) = connect(endpoint).await?;
    let path = endpoint.url.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|error| Failure::Other(format!("{error}")))?;
    let authority = endpoint.url.authority().map_or("", |authority| authority.as_str());
    let authority = HeaderValue::from_str(authority).map_err(|error| Failure::Other(error.to_string()))?;
    request.headers_mut().entry(HOST).or_insert(authority);
    traces::propagate(request.headers_mut());
    request.headers_mut().extend(endpoint.identity.clone());
    let response = sender.send_request(request).await.map_err(|error| Failure::exchange(&error))?;
    Ok(Opened { response, connection })
}

/// Gets the endpoint's URL with these headers, all of it within `timeout`; says what came, whatever its code.
///
/// # Errors
/// No connection, no answer in time, or one that is too long.
pub async fn get(
    endpoint: &Endpoint,
    headers: HeaderMap,
    timeout: Duration,
) -> Result<(StatusCode, Bytes), Failure> {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.headers_mut() = headers;
    let call = async {
        let opened = open(endpoint, request).await?;
        read(opened.response).await
    };
    let called = tokio::time::timeout(timeout, call).await.unwrap_or(Err(Failure::Timeout));
    let (head, text) = called.map_err(|failure| failure.of_method("Get", &endpoint.url))?;
    Ok((head.status, text))
}

/// A new connection.
async fn connect<B>(endpoint: &Endpoint) -> Result<(http1::SendRequest<B>, Connection), Failure>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (host, port) = &endpoint.address;
    let dial = async {
        match &endpoint.proxy {
            Some(proxy) => proxy.dial(host, *port).await,
            None => dial(host, *port).await,
        }
    };
    let dialed = tokio::time::timeout(endpoint.dial_timeout, dial).await;
    let stream = dialed.unwrap_or_else(|_| Err(Failure::dial_timeout(host, *port)))?;
    let _ = stream.set_nodelay(true);
    keepalive::probe(&stream);
    let Some(tls) = &endpoint.tls else { return begin(stream).await };
    let connector = TlsConnector::from(tls.clone());
    let handshake = connector.connect(endpoint.name.clone(), stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(stream) => begin(stream.map_err(|error| Failure::handshake(&error))?).await,
        Err(_) => Err(Failure::Other("net/http: TLS handshake timeout".to_owned())),
    }
}

/// Speaks HTTP on a connection.
async fn begin<B, S>(stream: S) -> Result<(http1::SendRequest<B>, Connection), Failure>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // Some servers compare names of headers as they are usually written.
    let mut http = http1::Builder::new();
    http.title_case_headers(true).max_buf_size(READ_BYTES_MAX).max_headers(HEADERS_MAX);
    let (sender, connection) =
        http.handshake(TokioIo::new(stream)).await.map_err(|error| Failure::exchange(&error))?;
    let connection = tokio::spawn(connection.with_upgrades());
    Ok((sender, Connection(connection.abort_handle())))
}

/// Connects to the first address of a host that takes the connection; the failure names the first one.
async fn dial(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses.map_err(|_| Failure::unknown_host(host))?;
    let mut first = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                first.get_or_insert_with(|| Failure::connect(&address.to_string(), &error));
            }
        }
    }
    Err(first.unwrap_or_else(|| Failure::unknown_host(host)))
}

/// A post and those requests that answers ask for instead of it; the last answer.
async fn follow(
    endpoint: &Endpoint,
    agent: &str,
    body: &Bytes,
) -> Result<(http::response::Parts, Bytes), Failure> {
    let (mut head, mut text) = exchange(endpoint, &Method::POST, agent, body.clone()).await?;
    let mut asked = (Method::POST, endpoint.clone());
    for _ in 1..redirect::REQUESTS_MAX {
        let Some((method, endpoint)) = redirect::next(&head, &asked.0, &asked.1)? else {
            return Ok((head, text));
        };
        let body = if method == Method::POST { body.clone() } else { Bytes::new() };
        (head, text) = exchange(&endpoint, &method, agent, body).await?;
        asked = (method, endpoint);
    }
    match redirect::next(&head, &asked.0, &asked.1)? {
        None => Ok((head, text)),
        Some(_) => Err(Failure::Other(format!("stopped after {} redirects", redirect::REQUESTS_MAX))),
    }
}

/// One request and its answer.
async fn exchange(
    endpoint: &Endpoint,
    method: &Method,
    agent: &str,
    body: Bytes,
) -> Result<(http::response::Parts, Bytes), Failure> {
    // The connection ends with its only exchange.
    let (mut sender, _connection) = connect(endpoint).await?;
    let path = endpoint.url.path_and_query().map_or("/", |path| path.as_str());
    let authority = endpoint.url.authority().map_or("", |authority| authority.as_str());
    let mut request = Request::builder();
    for (name, value) in &endpoint.identity {
        request = request.header(name, value);
    }
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let mut request = request
        .method(method)
        .uri(path)
        .header(HOST, authority)
        .header(USER_AGENT, agent)
        .header(ACCEPT, "application/json, */*")
        .header(ACCEPT_ENCODING, "gzip")
        .body(Full::new(body))
        .map_err(|error| Failure::Other(error.to_string()))?;
    traces::propagate(request.headers_mut());
    let response = sender.send_request(request).await.map_err(|error| Failure::exchange(&error))?;
    read(response).await
}

/// A connection; its task ends with this, when the call is over or given up.
#[derive(Debug)]
pub struct Connection(tokio::task::AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn read(response: Response<Incoming>) -> Result<(http::response::Parts, Bytes), Failure> {
    let (head, mut body) = response.into_parts();
    let mut text = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Body)?;
        let Ok(bytes) = frame.into_data() else { continue };
        if text.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(Failure::TooLong);
        }
        text.extend_from_slice(&bytes);
    }
    let is_compressed = head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    let text = if is_compressed { decompress(&text)? } else { text.freeze() };
    Ok((head, text))
}

/// The text of a compressed body; no longer than that of another one.
fn decompress(body: &[u8]) -> Result<Bytes, Failure> {
    let mut text = Vec::new();
    let mut limited = GzDecoder::new(body).take(ANSWER_BYTES_MAX as u64 + 1);
    limited.read_to_end(&mut text).map_err(|_| Failure::Body)?;
    if text.len() > ANSWER_BYTES_MAX {
        return Err(Failure::TooLong);
    }
    Ok(text.into())
}

/// How long a server wants to be left alone before it is asked again.
fn retry_after(code: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if code != StatusCode::TOO_MANY_REQUESTS && !code.is_server_error() {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn judge(code: StatusCode, headers: &HeaderMap, body: Bytes) -> Result<Answer, Failure> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !media_type.is_empty() && media_type.split(';').next().is_none_or(|text| text.trim().is_empty()) {
        let text = "Internal error occurred: mime: no media type".to_owned();
        return Err(Failure::Code { code: code.as_u16(), text });
    }
    if !(200..=206).contains(&code.as_u16()) {
        let is_text = media_type.starts_with("text/");
        let said = if is_text { String::from_utf8_lossy(&body) } else { "unknown".into() };
        let text = error::unexpected_code(code, said.trim());
        return Err(Failure::Code { code: code.as_u16(), text });
    }
    if body.is_empty() {
        let code = code.as_u16();
        let text = format!("0-length response with status code: {code} and content type: {media_type}");
        return Err(Failure::Code { code, text });
    }
    Ok(Answer { code, body })
}

/// The headers that say who asks.
fn identity(credentials: &Credentials<'_>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let authorization = match (credentials.token, credentials.basic) {
        (Some(token), _) => Some(("token", format!("Bearer {token}"))),
        (None, Some((user, password))) => {
            Some(("password", format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))))
        }
        (None, None) => None,
    };
    let odd = |what: &str| format!("the {what} contains characters that a header cannot carry");
    if let Some((what, authorization)) = authorization {
        let mut value = HeaderValue::try_from(authorization).map_err(|_| odd(what))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in credentials.headers {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| odd("name of a header"))?;
        headers.append(name, HeaderValue::try_from(value.as_str()).map_err(|_| odd("user to act as"))?);
    }
    Ok(headers)
}

fn tls(credentials: &Credentials<'_>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(credentials.authorities) {
        let certificate =
            certificate.map_err(|_| "the certificates of the authorities are no PEM".to_owned())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if credentials.authorities.is_empty() {
        let usable = CertificateDer::pem_slice_iter(credentials.otherwise).filter_map(Result::ok);
        roots.add_parsable_certificates(usable);
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match credentials.certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
            let chain = chain.map_err(|_| "the client certificate is no PEM".to_owned())?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|_| "the client key is no PEM private key".to_owned())?;
            builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
        }
    };
    if credentials.is_unverified {
        config.dangerous().set_certificate_verifier(Arc::new(Unverified(provider())));
    }
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Takes any certificate of a server, as the object that names the server asks for.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether the other end closed a connection without saying so by TLS, which many servers do.
pub fn is_cut(error: &hyper::Error) -> bool {
    !error.is_incomplete_message() && is_end(error)
}

/// Whether a connection ended before an answer began.
fn is_end(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message)
            || error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::UnexpectedEof)
        {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn only_https_urls_with_a_host_are_called() {
        for (url, works) in [
            ("https://example.com/a?b=c", true),
            ("https://[::1]:8443", true),
            ("http://example.com", false),
            ("/path", false),
        ] {
            assert_eq!(Endpoint::new(url.parse().unwrap(), b"").is_ok(), works, "{url}");
        }
    }

    #[test]
    fn a_server_that_moved_keeps_its_name_and_path() {
        let endpoint = Endpoint::new("https://a.b.svc:443/c?d".parse().unwrap(), b"").unwrap();
        for (host, wanted) in [
            ("127.0.0.1", Some("https://127.0.0.1:8443/c?d")),
            ("::1", Some("https://[::1]:8443/c?d")),
            ("a b", None),
        ] {
            let moved = endpoint.moved(host.to_owned(), 8443).ok();
            assert_eq!(moved.as_ref().map(|moved| moved.url().to_string()).as_deref(), wanted);
            if let Some(moved) = moved {
                assert_eq!(moved.name, endpoint.name);
                assert_eq!(moved.address, (host.to_owned(), 8443));
            }
        }
    }

    #[test]
    fn compressed_answers_are_no_longer_than_others() {
        let gzip = |bytes: usize| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&vec![b' '; bytes]).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(decompress(&gzip(100)).unwrap().len(), 100);
        assert_eq!(decompress(&gzip(ANSWER_BYTES_MAX + 1)).unwrap_err(), Failure::TooLong);
        for body in [&b"no gzip"[..], &gzip(100)[..20], b""] {
            assert_eq!(decompress(body).unwrap_err(), Failure::Body);
        }
    }

    #[test]
    fn answers_of_other_codes_than_success_are_failures() {
        let text =
            |media_type: &'static str| HeaderMap::from_iter([(CONTENT_TYPE, media_type.parse().unwrap())]);
        for (code, media_type, body, want) in [
            (200, "application/json", "{}", Ok("{}")),
            (201, "text/plain", "x", Ok("x")),
            (200, ";;", "{}", Err("Internal error occurred: mime: no media type")),
            (200, "a/b", "", Err("0-length response with status code: 200 and content type: a/b")),
            (
                302,
                "a/b",
                "",
                Err("the server responded with the status code 302 but did not return more information"),
            ),
            (403, "a/b", "no", Err("unknown")),
            (403, "text/plain", " no\n", Err("no")),
            (404, "a/b", "no", Err("the server could not find the requested resource")),
            (
                500,
                "text/html",
                "x\n",
                Err("an error on the server (\"x\") has prevented the request from succeeding"),
            ),
        ] {
            let code = StatusCode::from_u16(code).unwrap();
            let got = judge(code, &text(media_type), Bytes::from_static(body.as_bytes()));
            let got = got.map(|answer| answer.body).map_err(|failure| failure.to_string());
            assert_eq!(got, want.map(|body| Bytes::from_static(body.as_bytes())).map_err(str::to_owned));
        }
    }
}
