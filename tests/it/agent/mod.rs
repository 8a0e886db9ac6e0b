//! A node agent for tests. The agent serves the API of a node agent over TLS, but runs no containers: commands run as
//! processes of this machine, in their own directory.
//!
//! ```text
//! /containerLogs/<ns>/<pod>/<container>   the request, then lines for as long as the log is followed
//! /exec/<ns>/<pod>/<container>            a process, over SPDY/3.1
//! /attach/<ns>/<pod>/<container>          the input of the client, as output
//! /portForward/<ns>/<pod>                 a port of this machine
//! /stats/summary, and other paths         documents for the proxy: an echo, a page, a redirect, an upgrade
//! ```
//!
//! The agent accepts only connections with a certificate of its authority, and counts open streams.

pub mod spdy;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tests::server::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use spdy::Stream;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Keys and certificates of one cluster: an authority, and the certificates that it signed for the agent and
/// the server.
pub struct Keys {
    pub authority: String,
    pub client_certificate: String,
    pub client_key: String,
    agent: Arc<ServerConfig>,
}

impl Keys {
    pub fn new() -> Keys {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "agents");
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (client, client_key) = signed("apiserver");
        let (agent, agent_key) = signed("127.0.0.1");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![agent.der().clone()],
                PrivateKeyDer::Pkcs8(agent_key.serialize_der().into()),
            )
            .unwrap();
        Keys {
            authority: authority.pem(),
            client_certificate: client.pem(),
            client_key: client_key.serialize_pem(),
            agent: Arc::new(config),
        }
    }
}

/// A running agent, which ends when it is dropped.
pub struct Agent {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    life: watch::Sender<bool>,
}

/// The agent's observations and open streams.
pub struct Seen {
    /// Number of followed logs and forwarded connections.
    pub open: AtomicUsize,
    /// Sizes of terminals, in the order of arrival.
    pub sizes: parking_lot::Mutex<Vec<u8>>,
    /// The last request for an upgrade: its URL and headers.
    pub upgrade: parking_lot::Mutex<Value>,
    /// Working directory of commands.
    pub root: TempDir,
}

impl Agent {
    pub async fn start(keys: &Keys) -> Agent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen {
            open: AtomicUsize::new(0),
            sizes: Default::default(),
            upgrade: Default::default(),
            root: TempDir::new(),
        });
        let (life, alive) = watch::channel(true);
        let acceptor = TlsAcceptor::from(keys.agent.clone());
        let state = seen.clone();
        tokio::spawn(async move {
            let mut dying = alive.clone();
            loop {
                let stream = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap().0,
                    _ = dying.wait_for(|alive| !alive) => return,
                };
                stream.set_nodelay(true).unwrap();
                let (acceptor, state, mut alive) = (acceptor.clone(), state.clone(), alive.clone());
                // Code that took over the connection must end with the agent too.
                let socket = stream.as_fd().try_clone_to_owned().map(std::net::TcpStream::from).unwrap();
                let mut dying = alive.clone();
                tokio::spawn(async move {
                    let _ = dying.wait_for(|alive| !alive).await;
                    let _ = socket.shutdown(std::net::Shutdown::Both);
                });
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let life = alive.clone();
                    let service = service_fn(move |request| answer(request, state.clone(), life.clone()));
                    let http = hyper::server::conn::http1::Builder::new();
                    let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
                    tokio::select! {
                        _ = connection => {}
                        _ = alive.wait_for(|alive| !alive) => {}
                    }
                });
            }
        });
        Agent { address, seen, life }
    }

    /// Ends the agent and all its connections at once.
    pub fn kill(&self) {
        self.life.send_replace(false);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

fn text(code: u16, media_type: &str, text: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(text.into()).boxed_unsync();
    Response::builder().status(code).header("content-type", media_type).body(body).unwrap()
}

async fn answer(
    mut request: Request<Incoming>,
    seen: Arc<Seen>,
    life: watch::Receiver<bool>,
) -> Result<Response<Body>, Infallible> {
    let url = request.uri().to_string();
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let headers: serde_json::Map<String, Value> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().into()))
        .collect();
    let described = json!({"method": request.method().as_str(), "url": url, "headers": headers});
    if request.headers().contains_key("upgrade") {
        *seen.upgrade.lock() = described;
        let protocol = request.headers()["upgrade"].clone();
        let on = hyper::upgrade::on(&mut request);
        let query = parameters(request.uri().query().unwrap_or_default());
        let kind = parts[0].to_owned();
        let mut dying = life.clone();
        tokio::spawn(async move {
            let Ok(upgraded) = on.await else { return };
            tokio::select! {
                () = upgraded_to(&kind, query, TokioIo::new(upgraded), seen) => {}
                _ = dying.wait_for(|alive| !alive) => {}
            }
        });
        let mut response =
            Response::builder().status(101).header("connection", "Upgrade").header("upgrade", protocol);
        let versions = request.headers().get_all("x-stream-protocol-version");
        if let Some(version) = versions.iter().next() {
            response = response.header("x-stream-protocol-version", version);
        }
        return Ok(response.body(Full::default().boxed_unsync()).unwrap());
    }
    Ok(match (parts[0], parts.last().copied().unwrap_or_default()) {
        ("containerLogs", container) => log(container, &url, seen, life),
        (_, "page") => text(
            200,
            "text/html; charset=utf-8",
            "<a href=\"/stats/summary\">s</a><a href=\"x\">x</a><img src='https://example.com/i'>",
        ),
        (_, "moved") => {
            let mut response = text(302, "text/plain", "moved");
            response.headers_mut().insert("location", "/elsewhere?a=b".parse().unwrap());
            response
        }
        ("stats", "summary") => text(200, "application/json", r#"{"node":{"nodeName":"n"}}"#),
        _ => {
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let mut described = described;
            described["body"] = String::from_utf8_lossy(&body).into();
            let mut response = text(200, "application/json", described.to_string());
            response.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
            response
        }
    })
}

/// Counts an open stream until it is dropped.
struct Open(Arc<Seen>);

impl Open {
    fn new(seen: &Arc<Seen>) -> Open {
        seen.open.fetch_add(1, SeqCst);
        Open(seen.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

/// Returns the log of a container. Some names cause a failure.
fn log(container: &str, url: &str, seen: Arc<Seen>, life: watch::Receiver<bool>) -> Response<Body> {
    match container {
        "absent" => return text(404, "text/plain", "no such container"),
        "refused" => return text(400, "text/plain", "container is waiting to start"),
        "broken" => return text(500, "text/plain", "the disk is gone"),
        "moved" => {
            let mut response = text(307, "text/plain", "");
            response.headers_mut().insert("location", "https://192.0.2.1/".parse().unwrap());
            return response;
        }
        _ => {}
    }
    let first = format!("{url}\n");
    if !url.contains("follow=true") {
        return text(200, "text/plain", first);
    }
    let open = Open::new(&seen);
    let pause = Duration::from_millis(if container == "slow" { 1000 } else { 20 });
    let lines =
        futures_util::stream::unfold((0_u64, open, life), move |(number, open, mut life)| async move {
            let is_dead = tokio::select! {
                () = tokio::time::sleep(pause) => false,
                _ = life.wait_for(|alive| !alive) => true,
            };
            if is_dead {
                // The agent is killed, which ends the connection.
                std::future::pending::<()>().await;
            }
            Some((format!("line {number}\n"), (number + 1, open, life)))
        });
    let lines = futures_util::stream::iter([first]).chain(lines);
    let body = StreamBody::new(lines.map(|line| Ok(Frame::data(Bytes::from(line)))));
    Response::builder().status(StatusCode::OK).body(body.boxed_unsync()).unwrap()
}

fn parameters(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                byte => byte,
            });
        }
        String::from_utf8(bytes).unwrap()
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}

async fn upgraded_to<I>(kind: &str, query: Vec<(String, String)>, io: I, seen: Arc<Seen>)
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    match kind {
        "exec" | "attach" => {
            let has = |name: &str| query.iter().any(|(key, _)| key == name);
            let expected = 1
                + ["input", "output", "tty"].iter().filter(|name| has(name)).count()
                + usize::from(has("error") && !has("tty"));
            let mut opened = spdy::serve(io);
            let mut streams = HashMap::new();
            while streams.len() < expected {
                let Some(stream) = opened.recv().await else { return };
                streams.insert(stream.headers["streamtype"].clone(), stream);
            }
            let words: Vec<String> =
                query.into_iter().filter(|(key, _)| key == "command").map(|(_, word)| word).collect();
            let run = async {
                if kind == "exec" { exec(&words, streams, &seen).await } else { attach(streams).await }
            };
            // The end of the connection also ends the command.
            tokio::select! {
                () = run => {}
                _ = async { while opened.recv().await.is_some() {} } => {}
            }
        }
        "portForward" => {
            let mut opened = spdy::serve(io);
            let mut errors = HashMap::new();
            while let Some(stream) = opened.recv().await {
                let id = stream.headers["requestid"].clone();
                if stream.headers["streamtype"] == "error" {
                    errors.insert(id, stream);
                } else if let Some(error) = errors.remove(&id) {
                    let open = Open::new(&seen);
                    tokio::spawn(async move {
                        forward(error, stream).await;
                        drop(open);
                    });
                }
            }
        }
        _ => {
            let (mut reader, mut writer) = tokio::io::split(io);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        }
    }
}

/// Runs a process with the streams of a command, and reports its exit status.
async fn exec(words: &[String], mut streams: HashMap<String, Stream>, seen: &Arc<Seen>) {
    let error = streams.remove("error").unwrap();
    // Paths are relative to the root of the container.
    let root = seen.root.path().display().to_string();
    let mapped = |word: &String| if word.starts_with('/') { format!("{root}{word}") } else { word.clone() };
    let mut command = Command::new(&words[0]);
    command.args(words[1..].iter().map(mapped)).current_dir(&root).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(failure) => {
            let status = json!({"metadata": {}, "status": "Failure", "message": failure.to_string()});
            let _ = error.output.write(status.to_string().as_bytes()).await;
            for stream in streams.values().chain([&error]) {
                let _ = stream.output.finish().await;
            }
            return;
        }
    };
    if let Some(mut resize) = streams.remove("resize") {
        let seen = seen.clone();
        tokio::spawn(async move {
            while let Some(size) = resize.input.recv().await {
                seen.sizes.lock().extend_from_slice(&size);
            }
        });
    }
    let mut input = child.stdin.take().unwrap();
    let stdin = streams.remove("stdin");
    let fed = tokio::spawn(async move {
        if let Some(mut stdin) = stdin {
            while let Some(bytes) = stdin.input.recv().await {
                if input.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            let _ = stdin.output.finish().await;
        }
    });
    let out = copied(child.stdout.take().unwrap(), streams.remove("stdout"));
    let err = copied(child.stderr.take().unwrap(), streams.remove("stderr"));
    let ((), (), ended) = tokio::join!(out, err, child.wait());
    fed.abort();
    let status = match ended.unwrap().code() {
        Some(0) => json!({"metadata": {}, "status": "Success"}),
        code => json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": "command terminated with non-zero exit code",
            "details": {"causes": [{"reason": "ExitCode", "message": code.unwrap_or(137).to_string()}]}}),
    };
    let _ = error.output.write(status.to_string().as_bytes()).await;
    let _ = error.output.finish().await;
}

async fn copied(mut from: impl AsyncReadExt + Unpin, to: Option<Stream>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        if let Some(to) = &to
            && to.output.write(&buffer[..len]).await.is_err()
        {
            return;
        }
    }
    if let Some(to) = &to {
        let _ = to.output.finish().await;
    }
}

/// Sends a greeting, and then echoes the input until the input ends.
async fn attach(mut streams: HashMap<String, Stream>) {
    let out = streams.remove("stdout").unwrap().output;
    let _ = out.write(b"attached\n").await;
    if let Some(mut stdin) = streams.remove("stdin") {
        while let Some(bytes) = stdin.input.recv().await {
            let _ = out.write(&bytes).await;
        }
    }
    for stream in streams.into_values() {
        let _ = stream.output.finish().await;
    }
    let _ = out.finish().await;
}

/// Forwards a connection to a port.
async fn forward(error: Stream, mut data: Stream) {
    let port: u16 = data.headers["port"].parse().unwrap();
    let connection = TcpStream::connect(("127.0.0.1", port)).await;
    let Ok(connection) = connection else {
        let _ = error.output.write(format!("port {port} is closed").as_bytes()).await;
        let _ = error.output.finish().await;
        let _ = data.output.finish().await;
        return;
    };
    let (mut reader, mut writer) = connection.into_split();
    let up = async {
        while let Some(bytes) = data.input.recv().await {
            writer.write_all(&bytes).await?;
        }
        writer.shutdown().await
    };
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(len @ 1..) = reader.read(&mut buffer).await {
            data.output.write(&buffer[..len]).await?;
        }
        data.output.finish().await
    };
    // If one direction fails, the other direction must end as well. The other direction may wait for the failed one,
    // because the port reads no more than it can send back.
    let _: std::io::Result<_> = tokio::try_join!(up, down);
    let _ = error.output.finish().await;
}
