//! A webhook server for tests: it serves HTTPS with its own certificate, and a function of the test computes the
//! response to each request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The name of HTTP/2 in the TLS handshake.
const HTTP_2: &[u8] = b"h2";

/// A running server, which ends when it is dropped.
pub struct Hook {
    address: SocketAddr,
    /// Self-signed certificate of the server (PEM), which is also the CA certificate.
    pub certificate: String,
    received: Arc<Mutex<Vec<Value>>>,
    authorizations: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    /// The sender that stops the accept loop when it is dropped, and the task of the loop.
    ending: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Hook {
    /// Starts a server that responds with the result of `answer` for each request body.
    pub async fn start<A, F>(answer: A) -> Hook
    where
        A: Fn(Value) -> F + Send + Sync + 'static,
        F: Future<Output = Value> + Send + 'static,
    {
        Hook::named("localhost", answer).await
    }

    /// Like [`Hook::start`], with another name in the certificate.
    pub async fn named<A, F>(name: &str, answer: A) -> Hook
    where
        A: Fn(Value) -> F + Send + Sync + 'static,
        F: Future<Output = Value> + Send + 'static,
    {
        let answer = Arc::new(answer);
        let received = Arc::new(Mutex::new(Vec::new()));
        let authorizations = Arc::new(Mutex::new(Vec::new()));
        let (seen, who) = (received.clone(), authorizations.clone());
        let serve = move |stream: TlsStream<TcpStream>| {
            let (seen, who, answer) = (seen.clone(), who.clone(), answer.clone());
            async move {
                let service = service_fn(|request: http::Request<Incoming>| {
                    let (seen, who, answer) = (seen.clone(), who.clone(), answer.clone());
                    async move {
                        let (head, body) = request.into_parts();
                        let said = head.headers.get(http::header::AUTHORIZATION);
                        who.lock().extend(said.map(|said| said.to_str().unwrap_or_default().to_owned()));
                        let body = body.collect().await.unwrap().to_bytes();
                        // A request without a body is recorded as the text of its head.
                        let body: Value = serde_json::from_slice(&body).unwrap_or_else(|_| {
                            let shown = |(name, value): (&HeaderName, &HeaderValue)| {
                                (name.to_string(), Value::from(value.to_str().unwrap_or_default()))
                            };
                            let headers: Map<String, Value> = head.headers.iter().map(shown).collect();
                            json!({"path": head.uri.path_and_query().map_or("", |both| both.as_str()), "headers": headers})
                        });
                        let answer = answer(body.clone()).await;
                        seen.lock().push(body);
                        let response = http::Response::builder().header("content-type", "application/json");
                        let response = response.body(Full::new(Bytes::from(answer.to_string()))).unwrap();
                        Ok::<_, Infallible>(response)
                    }
                });
                // A client that disconnects does not fail the test.
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
                let stream = TokioIo::new(stream);
                if is_http2 {
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(stream, service).await;
                } else {
                    let _ =
                        hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
                }
            }
        };
        Hook { received, authorizations, ..Hook::speaking(name, &[HTTP_2, b"http/1.1"], serve).await }
    }

    /// Starts a server that passes each connection to `serve`.
    pub async fn raw<S, F>(name: &str, serve: S) -> Hook
    where
        S: Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Hook::speaking(name, &[], serve).await
    }

    /// Like [`Hook::raw`], with these protocols in the TLS handshake.
    async fn speaking<S, F>(name: &str, protocols: &[&[u8]], serve: S) -> Hook
    where
        S: Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        // The certificate is its own CA certificate, like a certificate from `openssl req -x509`.
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = Arc::new(serve);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            // Clients keep connections open. The end of the server closes these connections.
            let mut open = JoinSet::new();
            loop {
                let accepted = tokio::select! {
                    _ = &mut ended => break,
                    accepted = listener.accept() => accepted,
                };
                let Ok((stream, _)) = accepted else { break };
                counted.fetch_add(1, Ordering::Relaxed);
                let (acceptor, serve) = (acceptor.clone(), serve.clone());
                open.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    serve(stream).await;
                });
            }
            drop(listener);
            open.shutdown().await;
        });
        Hook {
            address,
            certificate: certificate.pem(),
            received: Arc::default(),
            authorizations: Arc::default(),
            connections,
            ending: Some((end, task)),
        }
    }

    /// Ends the server and all its connections, and waits until they have ended. Dropping the value ends the server a
    /// little later.
    pub async fn end(mut self) {
        let (end, task) = self.ending.take().expect("a server ends once");
        drop(end);
        task.await.expect("the accept loop ends");
    }

    /// Like [`Hook::end`]. Returns a socket that does not listen, and keeps other processes from taking the port.
    pub async fn close(self) -> TcpSocket {
        let address = self.address;
        self.end().await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        socket
    }

    /// Returns the URL of a path on the server.
    pub fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// Returns the port that the server listens on, at `localhost`.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the certificate as objects contain it: base64 of the PEM.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.certificate)
    }

    /// Returns all request bodies so far.
    pub fn received(&self) -> Vec<Value> {
        self.received.lock().clone()
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the `authorization` header of each request that had one.
    pub fn authorizations(&self) -> Vec<String> {
        self.authorizations.lock().clone()
    }
}
