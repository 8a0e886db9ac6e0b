//! A minimal HTTP/1.1 client with a client certificate: sends requests unchanged and returns replies unchanged.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::PATIENCE;

/// A server's address and a client's credentials, from a kubeconfig.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Address of the server as `host:port`.
    pub address: String,
    /// CA certificate of the server (PEM).
    pub authority: Vec<u8>,
    /// Client certificate chain (PEM).
    pub certificate: Vec<u8>,
    /// Private key of the client certificate (PEM).
    pub key: Vec<u8>,
}

impl Identity {
    /// Reads a kubeconfig that the server wrote; `None` while it is absent or incomplete.
    pub fn from_kubeconfig(path: &Path) -> Option<Identity> {
        let text = std::fs::read_to_string(path).ok()?;
        let member = |name: &str| {
            let line =
                text.lines().find_map(|line| line.trim_start_matches(['-', ' ']).strip_prefix(name))?;
            Some(line.trim().trim_end_matches(',').trim_matches('"').to_owned())
        };
        let decode = |name: &str| STANDARD.decode(member(name)?).ok();
        Some(Identity {
            address: member("server:")?.strip_prefix("https://")?.to_owned(),
            authority: decode("certificate-authority-data:")?,
            certificate: decode("client-certificate-data:")?,
            key: decode("client-key-data:")?,
        })
    }
}

/// A client with one connection; its requests run one after the other.
#[derive(Clone)]
pub struct Client {
    identity: Arc<Identity>,
    tls: TlsConnector,
    connection: Arc<Mutex<Option<SendRequest<Full<Bytes>>>>>,
    bearer: Option<String>,
}

/// A response that was read completely.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code of the response.
    pub status: u16,
    /// Header fields of the response.
    pub headers: http::HeaderMap,
    /// Bytes of the response body.
    pub body: Bytes,
}

impl Reply {
    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns all values of a header.
    pub fn header_all(&self, name: &str) -> Vec<String> {
        let values = self.headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }
}

impl Client {
    /// Creates a client with the certificate of `identity`.
    pub fn new(identity: Identity) -> Client {
        Self::build(identity, true)
    }

    fn build(identity: Identity, with_certificate: bool) -> Client {
        let tls = tls_config(&identity, with_certificate);
        Client {
            identity: Arc::new(identity),
            tls: TlsConnector::from(Arc::new(tls)),
            connection: Arc::default(),
            bearer: None,
        }
    }

    /// Returns a client with the same credentials and another connection.
    pub fn another(&self) -> Client {
        Client { connection: Arc::default(), ..self.clone() }
    }

    /// Returns a client of the same server without credentials.
    pub fn anonymous(&self) -> Client {
        Self::build((*self.identity).clone(), false)
    }

    /// Returns a client of the same server with a bearer token instead of the certificate.
    pub fn with_token(&self, token: &str) -> Client {
        Client { bearer: Some(token.to_owned()), ..self.anonymous() }
    }

    /// Returns the server's address and the credentials.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Opens a bare TLS connection, for tests that write bytes themselves.
    pub async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_through(false, Ok).await
    }

    /// Opens a bare TLS connection for HTTP/2.
    pub async fn connect_http2(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_through(true, Ok).await
    }

    /// Opens a bare TLS connection for HTTP/2 or HTTP/1.1 over the stream that `wrap` makes from its socket.
    pub async fn connect_through<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        is_http2: bool,
        wrap: impl FnOnce(TcpStream) -> std::io::Result<S>,
    ) -> std::io::Result<TlsStream<S>> {
        let mut tls = self.tls.clone();
        if is_http2 {
            let mut config = (**tls.config()).clone();
            config.alpn_protocols = vec![b"h2".to_vec()];
            tls = TlsConnector::from(Arc::new(config));
        }
        let stream = TcpStream::connect(&self.identity.address).await?;
        stream.set_nodelay(true)?;
        let host = self.identity.address.rsplit_once(':').map_or("", |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        tls.connect(name.expect("the server's host is a name"), wrap(stream)?).await
    }

    /// Sends a request and returns the head of the response; the body is not read yet.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> http::Response<Incoming> {
        let response = self.try_open(method, path, headers, body).await;
        response.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Like [`Client::open`], for requests that may get no response.
    ///
    /// # Errors
    /// The server cannot be reached, or closed the connection.
    pub async fn try_open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<http::Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
        let mut request =
            http::Request::builder().method(method).uri(path).header("host", &self.identity.address);
        if let Some(token) = &self.bearer {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body)))?;
        let mut slot = self.connection.lock().await;
        let mut sender = match slot.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => {
                let stream = TokioIo::new(self.connect().await?);
                // A response may have a hundred warnings, each in a header of its own.
                let mut http = hyper::client::conn::http1::Builder::new();
                let (sender, connection) = http.max_headers(256).handshake(stream).await?;
                tokio::spawn(connection);
                sender
            }
        };
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        // The server announces that it closes a connection; hyper notices this only when the connection is
        // closed.
        let closing = response.headers().get("connection").is_some_and(|value| value == "close");
        *slot = (!closing).then_some(sender);
        Ok(response)
    }

    /// Sends a request and reads the whole reply.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let response = self.open(method, path, headers, body).await;
        let (parts, incoming) = response.into_parts();
        let body =
            incoming.collect().await.unwrap_or_else(|error| panic!("{method} {path}: {error}")).to_bytes();
        Reply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Sends a request that may get no reply or a partial reply. In these cases the outcome of the request is unknown.
    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Option<Reply> {
        let (parts, incoming) = self.try_open(method, path, headers, body).await.ok()?.into_parts();
        let body = incoming.collect().await.ok()?.to_bytes();
        Some(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Sends a GET that may fail while the server is down.
    pub async fn try_get(&self, path: &str) -> Option<Reply> {
        self.try_send("GET", path, &[], b"").await
    }

    /// Sends a GET request and reads the reply.
    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"").await
    }

    /// Sends a DELETE request without a body.
    pub async fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], b"").await
    }

    /// Sends a JSON object with POST.
    pub async fn post(&self, path: &str, object: &Value) -> Reply {
        self.send("POST", path, &[("content-type", "application/json")], object.to_string().as_bytes()).await
    }

    /// Sends a JSON object with PUT.
    pub async fn put(&self, path: &str, object: &Value) -> Reply {
        self.send("PUT", path, &[("content-type", "application/json")], object.to_string().as_bytes()).await
    }

    /// Sends a PATCH of `kind` (`json`, `merge`, `strategic-merge`).
    pub async fn patch(&self, path: &str, kind: &str, patch: &Value) -> Reply {
        let media_type = format!("application/{kind}-patch+json");
        self.send("PATCH", path, &[("content-type", &media_type)], patch.to_string().as_bytes()).await
    }

    /// Polls until `condition` holds for the object at `path`, and returns the object; `None` means 404.
    pub async fn until(&self, path: &str, condition: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        let begun = Instant::now();
        loop {
            let reply = self.get(path).await;
            let object = (reply.status != 404).then(|| reply.json());
            if matches!(reply.status, 200 | 404) && condition(object.as_ref()) {
                return object;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {}", reply.text());
            // Sleep between polls, because polling would starve the server on a single core.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until a GET returns 404.
    pub async fn until_gone(&self, path: &str) {
        self.until(path, |object| object.is_none()).await;
    }

    /// Opens a watch; events are read one by one.
    pub async fn watch(&self, path: &str) -> Watch {
        let response = self.another().open("GET", path, &[], b"").await;
        assert_eq!(response.status(), 200, "{path}");
        Watch::new(response)
    }
}

/// An open watch, whose events are read one by one.
pub struct Watch {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Watch {
    /// Creates a watch that reads events from the body of a response.
    pub fn new(response: http::Response<Incoming>) -> Watch {
        Watch { body: response.into_body(), buffer: Vec::new() }
    }

    /// Returns the next event; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("each line of a watch is JSON"));
            }
            let frame = self.body.frame().await?.ok()?;
            self.buffer.extend_from_slice(frame.data_ref()?);
        }
    }

    /// Returns type, name and resourceVersion of the next event; fails at the end of the stream.
    pub async fn expect(&mut self) -> (String, String, String) {
        let event = self.next().await.expect("the watch sends another event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &event["object"]["metadata"];
        (text(&event["type"]), text(&metadata["name"]), text(&metadata["resourceVersion"]))
    }
}

fn tls_config(identity: &Identity, with_certificate: bool) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&identity.authority) {
        roots.add(authority.expect("the CA certificate is PEM")).expect("the CA certificate is valid");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(roots);
    if !with_certificate {
        return builder.with_no_client_auth();
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&identity.certificate).collect();
    let key = PrivateKeyDer::from_pem_slice(&identity.key).expect("the key is PEM");
    builder
        .with_client_auth_cert(chain.expect("the certificate is PEM"), key)
        .expect("certificate and key match")
}
