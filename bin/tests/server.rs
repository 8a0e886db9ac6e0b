//! Tests of the connection layer over real sockets and TLS, with hyper's client and with hand-written
//! requests.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::server::{
    BODY_BYTES_MAX, Body, BodyError, ConnectionInfo, Drained, Handler, Limits, Request, Response, Shutdown,
    TlsSettings, read_body, serve, server_config,
};

/// The handler under test, which serves several paths.
struct Paths {
    shutdown: Shutdown,
    /// Notified of every slow request.
    begun: Arc<Notify>,
}

impl Handler for Paths {
    fn handle<'h>(
        &'h self,
        request: Request,
        connection: &'h Arc<ConnectionInfo>,
    ) -> BoxFuture<'h, Response> {
        Box::pin(self.answer(request, connection))
    }
}

impl Paths {
    async fn answer(&self, request: Request, connection: &Arc<ConnectionInfo>) -> Response {
        let path = request.uri().path().to_owned();
        let timeout = if path == "/impatient" { BODY_TIMEOUT } else { patient().head_timeout };
        match path.as_str() {
            "/hello" => Response::new(Body::from("hello")),
            "/panic" => panic!("as the test asked"),
            "/certificates" => {
                Response::new(Body::from(connection.certificates.certificates().len().to_string()))
            }
            "/slow" => {
                self.begun.notify_one();
                tokio::time::sleep(Duration::from_millis(300)).await;
                Response::new(Body::from("slow"))
            }
            "/never" => {
                self.begun.notify_one();
                std::future::pending().await
            }
            "/head" => Response::new(Body::from(request.headers().len().to_string())),
            "/echo" | "/impatient" => match read_body(request.into_body(), BODY_BYTES_MAX, timeout).await {
                Ok(bytes) => Response::new(Body::from(bytes)),
                Err(error) => {
                    let mut response = Response::new(Body::from(error.to_string()));
                    *response.status_mut() = match error {
                        BodyError::TooLarge => http::StatusCode::PAYLOAD_TOO_LARGE,
                        BodyError::Timeout => http::StatusCode::REQUEST_TIMEOUT,
                        BodyError::Disconnected => http::StatusCode::BAD_REQUEST,
                        BodyError::NoMemory => http::StatusCode::TOO_MANY_REQUESTS,
                    };
                    response
                }
            },
            // Send an event, and keep the response open until the drain begins, like a watch.
            "/watch" => {
                let (mut sender, body) = Body::channel(1);
                let shutdown = self.shutdown.clone();
                tokio::spawn(async move {
                    let _ = sender.send(Bytes::from("event\n")).await;
                    tokio::select! {
                        () = shutdown.wait_for_drain() => { let _ = sender.finish().await; }
                        () = sender.wait_for_disconnect() => {}
                    }
                });
                Response::new(body)
            }
            "/broken" => {
                let (mut sender, body) = Body::channel(1);
                tokio::spawn(async move {
                    let _ = sender.send(Bytes::from("half of it")).await;
                    panic!("as the test asked");
                });
                Response::new(body)
            }
            other => panic!("the test asks for {other}"),
        }
    }
}

struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    /// Notified when a slow request has reached its handler.
    begun: Arc<Notify>,
    ended: JoinHandle<Drained>,
    root: CertificateDer<'static>,
}

/// Returns limits that even a busy machine does not reach. A test shortens the timeout that it checks.
fn patient() -> Limits {
    let long = Duration::from_secs(120);
    Limits {
        handshake_timeout: long,
        head_timeout: long,
        idle_timeout: long,
        drain_idle_grace: long,
        drain_idle_max: long,
        drain_timeout: long,
        ..Limits::default()
    }
}

/// Timeout of request bodies on the path `/impatient`.
const BODY_TIMEOUT: Duration = Duration::from_secs(3);

/// Value of the timeout under test. All other actions of the test finish within this time, even on a busy
/// machine.
const SHORT: Duration = Duration::from_secs(10);

fn self_signed(name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>, String, String) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    (made.cert.der().clone(), key, made.cert.pem(), made.signing_key.serialize_pem())
}

async fn start(limits: Limits) -> Server {
    let (root, _, chain, key) = self_signed("localhost");
    let certificate = wire::server::ServingCertificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::standalone();
    let begun = Arc::new(Notify::new());
    let handler = Arc::new(Paths { shutdown: shutdown.clone(), begun: Arc::clone(&begun) });
    let tls = server_config(Arc::new(certificate), &TlsSettings::default()).unwrap();
    let ended = tokio::spawn(serve(listener, tls, handler, limits, shutdown.clone()));
    Server { address, shutdown, begun, ended, root }
}

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Server {
    async fn tls(&self, alpn: &[u8], identity: Option<Identity>) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    async fn client(&self, http2: bool, identity: Option<Identity>) -> Client {
        let io = TokioIo::new(self.tls(if http2 { b"h2" } else { b"http/1.1" }, identity).await.unwrap());
        if http2 {
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            Client {
                sender: Sender::Two(sender),
                connection: tokio::spawn(async { connection.await.is_ok() }),
            }
        } else {
            let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            Client {
                sender: Sender::One(sender),
                connection: tokio::spawn(async { connection.await.is_ok() }),
            }
        }
    }
}

enum Sender {
    One(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

struct Client {
    sender: Sender,
    connection: JoinHandle<bool>,
}

type Answering = Pin<Box<dyn Future<Output = hyper::Result<http::Response<hyper::body::Incoming>>> + Send>>;

impl Client {
    /// Sends a request, and returns the future response.
    async fn send(&mut self, path: &str, body: Bytes) -> Answering {
        let request = http::Request::builder()
            .method(if body.is_empty() { "GET" } else { "POST" })
            .uri(format!("https://localhost{path}"))
            .header("host", "localhost")
            .body(Full::new(body))
            .unwrap();
        match &mut self.sender {
            Sender::One(sender) => {
                let _ = sender.ready().await; // after an error, sending fails as well
                Box::pin(sender.send_request(request))
            }
            Sender::Two(sender) => Box::pin(sender.send_request(request)),
        }
    }

    async fn get(&mut self, path: &str) -> (u16, String) {
        self.post(path, Bytes::new()).await
    }

    async fn post(&mut self, path: &str, body: Bytes) -> (u16, String) {
        let response = self.send(path, body).await.await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }
}

fn text(status: u16, body: &str) -> (u16, String) {
    (status, body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http1_and_http2_answer_and_a_panic_affects_only_its_request() {
    let server = start(patient()).await;
    for http2 in [false, true] {
        let mut client = server.client(http2, None).await;
        assert_eq!(client.get("/hello").await, text(200, "hello"), "http2: {http2}");
        let panicked = client.get("/panic").await; // docs/api/errors.md#encoding-of-errors
        let want = "This request caused apiserver to panic. Look in the logs for details.\n";
        assert_eq!(panicked, text(500, want));
        assert_eq!(client.get("/hello").await, text(200, "hello"), "the connection survives");
        assert_eq!(client.post("/echo", Bytes::from("abc")).await, text(200, "abc"));

        // On HTTP/1.1, the connection may break before the server sends the head of the response.
        if let Ok(broken) = client.send("/broken", Bytes::new()).await.await {
            broken.into_body().collect().await.expect_err("half a body must not look whole");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_are_requested_but_neither_required_nor_verified() {
    let server = start(patient()).await;
    for http2 in [false, true] {
        assert_eq!(server.client(http2, None).await.get("/certificates").await, text(200, "0"));
        let (stranger, key, ..) = self_signed("an unknown name");
        let mut client = server.client(http2, Some((stranger, key))).await;
        assert_eq!(client.get("/certificates").await, text(200, "1"));
    }
    // The handshake fails if the key does not match the certificate.
    let (certificate, ..) = self_signed("one");
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let (_, other_key, ..) = self_signed("two");
    let signing = provider.key_provider.load_private_key(other_key).unwrap();
    let thief = rustls::sign::CertifiedKey::new(vec![certificate], signing);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server.root.clone()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(thief)));
    let stream = TcpStream::connect(server.address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let refused = async {
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
        stream.write_all(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        stream.read_exact(&mut [0; 1]).await
    };
    assert!(refused.await.is_err());
}

/// Sends nothing. The handshake timeout ends the connection.
async fn send_nothing(server: &Server) {
    let begun = Instant::now();
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(silent.read(&mut [0; 64]).await.unwrap_or(0), 0);
    assert!(begun.elapsed() >= SHORT - Duration::from_millis(10), "{:?}", begun.elapsed());
}

/// Sends nothing over HTTP/2 after the handshake, until the server disconnects.
async fn send_nothing_over_http2(server: &Server) {
    let mut stream = server.tls(b"h2", None).await.unwrap();
    let begun = Instant::now();
    while !matches!(stream.read(&mut [0; 1024]).await, Ok(0) | Err(_)) {}
    assert!(begun.elapsed() < patient().idle_timeout);
}

/// Sends the request `first`, if it is not empty, and then a request head byte by byte until the server
/// disconnects.
async fn send_head_slowly(server: &Server, first: &str) {
    let mut stream = server.tls(b"http/1.1", None).await.unwrap();
    if !first.is_empty() {
        stream.write_all(first.as_bytes()).await.unwrap();
        let mut answer = [0; 1024];
        let n = stream.read(&mut answer).await.unwrap();
        assert!(answer[..n].starts_with(b"HTTP/1.1 200"));
    }
    let begun = Instant::now();
    let mut head = b"GET /hello HTTP/1.1\r\nX-Slow: ".iter().cycle();
    while stream.write_all(&[*head.next().unwrap()]).await.is_ok() {
        let read = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut [0; 64])).await;
        if read.is_ok() {
            break;
        }
        assert!(begun.elapsed() < patient().head_timeout, "not cut (first {first:?})");
    }
}

/// Waits for a response. The client stays connected longer than all timeouts under test.
async fn wait_for_events(server: &Server, http2: bool) {
    let mut client = server.client(http2, None).await;
    let mut watch = client.send("/watch", Bytes::new()).await.await.unwrap().into_body();
    assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "event\n");
    let more = tokio::time::timeout(SHORT * 3 / 2, watch.frame()).await;
    assert!(more.is_err(), "the watch must still be open, got {more:?}");
}

/// Keeps a connection idle, which the server closes without an error.
async fn stay_idle(server: &Server, http2: bool) {
    let mut client = server.client(http2, None).await;
    client.get("/hello").await;
    let closed = tokio::time::timeout(patient().idle_timeout, client.connection).await;
    assert!(closed.unwrap().unwrap(), "closed cleanly, http2: {http2}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_disconnected_and_patient_ones_are_not() {
    let hasty = start(Limits { handshake_timeout: SHORT, ..patient() }).await;
    let server = start(Limits { head_timeout: SHORT, idle_timeout: SHORT, ..patient() }).await;
    // The clients wait at the same time, so the timeout under test can be long.
    tokio::join!(
        send_nothing(&hasty),
        send_nothing_over_http2(&server),
        send_head_slowly(&server, ""),
        send_head_slowly(&server, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        wait_for_events(&server, false),
        wait_for_events(&server, true),
        stay_idle(&server, false),
        stay_idle(&server, true),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_bounded_in_size_and_time() {
    // The server reads the rest of a refused body for as long as a slow client needs to send it.
    let server = start(Limits { linger_timeout: patient().head_timeout, ..patient() }).await;
    let full = Bytes::from(vec![b'x'; BODY_BYTES_MAX]);
    let over = Bytes::from(vec![b'x'; 4 * BODY_BYTES_MAX]);
    for http2 in [false, true] {
        let mut client = server.client(http2, None).await;
        let (status, body) = client.post("/echo", full.clone()).await;
        assert_eq!((status, body.len()), (200, full.len()));
        if http2 {
            assert_eq!(client.post("/echo", over.clone()).await.0, 413);
        }
    }

    // A simple HTTP/1.1 client writes the whole request before it reads. The response must arrive although
    // the server did not read the body.
    let mut stream = server.tls(b"http/1.1", None).await.unwrap();
    let head = format!("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", over.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&over).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");

    // The client announces a body, but does not send all of it.
    let mut stream = server.tls(b"http/1.1", None).await.unwrap();
    stream
        .write_all(b"POST /impatient HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc")
        .await
        .unwrap();
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 408");

    // The head exceeds the limit.
    let mut stream = server.tls(b"http/1.1", None).await.unwrap();
    let long = "x".repeat(patient().head_bytes_max as usize);
    let _ = stream.write_all(format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await;
    stream.read_exact(&mut answer).await.unwrap();
    assert!([&b"HTTP/1.1 431"[..], b"HTTP/1.1 414"].contains(&&answer[..]), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_closes_with_an_unread_body_announces_it() {
    let server = start(patient()).await;
    for (path, length, sent, close) in [
        ("/hello", 0, &b""[..], false),
        ("/echo", 3, b"abc", false),
        // The handler does not read this body. The client sends it or not.
        ("/hello", 3, b"abc", true),
        ("/hello", 3, b"", true),
        ("/echo", BODY_BYTES_MAX + 1, b"", true),
    ] {
        let mut stream = server.tls(b"http/1.1", None).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), sent].concat()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{path} {length}: cut off");
        }
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        assert_eq!(answer.contains("\r\nconnection: close\r\n"), close, "{path} {length}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_on_the_tls_port_gets_an_explanation() {
    let server = start(patient()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_refuses_new_requests_ends_watches_and_waits_for_requests() {
    for http2 in [false, true] {
        let server = start(patient()).await;
        let mut busy = server.client(http2, None).await;
        let mut watching = server.client(http2, None).await;
        let mut idle = server.client(http2, None).await;
        idle.get("/hello").await;
        let slow = tokio::spawn(busy.send("/slow", Bytes::new()).await);
        let watch = watching.send("/watch", Bytes::new()).await.await.unwrap();
        server.begun.notified().await;

        server.shutdown.begin();
        if !http2 {
            // Over HTTP/1.1, the request is answered although the server is closing the connection. Over
            // HTTP/2, the server would refuse it, so that the client sends it on another connection.
            assert_eq!(idle.get("/hello").await, text(200, "hello"));
        }
        let events = watch.into_body().collect().await.expect("a watch ends properly").to_bytes();
        assert_eq!(events, "event\n");
        let answered = slow.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(answered, "slow");
        drop((busy, watching));
        let address = server.address;
        assert_eq!(
            server.ended.await.unwrap(),
            Drained { connections_cut: 0, requests_cut: 0 },
            "http2: {http2}"
        );
        TcpStream::connect(address).await.expect_err("the listener is closed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_cuts_requests_that_do_not_end() {
    for http2 in [false, true] {
        let drain_timeout = Duration::from_millis(600);
        let server = start(Limits { drain_timeout, ..patient() }).await;
        let mut client = server.client(http2, None).await;
        let stuck = tokio::spawn(client.send("/never", Bytes::new()).await);
        server.begun.notified().await;
        let begun = Instant::now();
        server.shutdown.begin();
        assert_eq!(server.ended.await.unwrap(), Drained { connections_cut: 1, requests_cut: 1 });
        assert!(begun.elapsed() >= drain_timeout);
        stuck.await.unwrap().expect_err("cut");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_wait_for_a_free_connection() {
    let server = start(Limits { connections_max: 1, ..patient() }).await;
    let first = server.client(false, None).await;
    let second = server.tls(b"http/1.1", None);
    tokio::pin!(second);
    assert!(tokio::time::timeout(Duration::from_millis(100), second.as_mut()).await.is_err());
    drop(first);
    second.await.unwrap();
}
