//! The stand-in for etcd, which answers health checks and reports the path of its data directory. The
//! stand-in stores no objects. The API server of the test stores them in this directory.
//!
//! | path | answer |
//! |---|---|
//! | `/health` | `{"health":"true","reason":""}` |
//! | `/version` | the version of etcd that the stand-in reports |
//! | `/livez`, `/readyz` | `ok` |
//! | [`DATA_DIR_PATH`] | `{"dataDir":"/absolute/path"}`, so that a restarted API server finds its store again |
//! | gRPC | `UNIMPLEMENTED`, and once a line on standard error |
//!
//! For tests that use etcd directly, the environment variable `ENVTEST_REAL_ETCD` names a real etcd. The
//! stand-in then replaces its process by this etcd.

use std::convert::Infallible;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::envtest::{line, orphan, report};
use crate::host::failure::one_line;
use crate::host::files;

/// The path from which the API server reads the data directory.
pub const DATA_DIR_PATH: &str = "/cluster-apiserver/data-dir";

/// Variable with the path or the name of a real etcd.
const REAL: &str = "ENVTEST_REAL_ETCD";

/// The version of etcd in the responses.
const VERSION: &str = "3.6.0";

/// The help, with the flag that test control planes look for.
const HELP: &str = "\
Usage:

  etcd [flags]
    Stand-in for etcd in a test control plane: it answers health checks, and the API server next to it
    stores the objects in the data directory. ENVTEST_REAL_ETCD=FILE starts that etcd instead.

Flags:

  --data-dir 'default.etcd'
    Directory of the data.
  --listen-client-urls 'http://localhost:2379'
    URLs to listen on, separated by commas.
  --unsafe-no-fsync 'false'
    Accepted without effect, as are the other flags of etcd.
  --version
    Print the version.
";

/// Maximum number of connections. Further connections wait.
const CONNECTIONS_MAX: usize = 256;

/// Maximum time until the head of a request has arrived.
const HEAD_WAIT: Duration = Duration::from_secs(60);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Flags of the stand-in.
#[derive(Debug, Eq, PartialEq)]
struct EtcdFlags {
    data_dir: PathBuf,
    /// Hosts and ports to listen on.
    listen: Vec<(String, u16)>,
}

/// The state of the stand-in.
struct StandIn {
    data_dir: PathBuf,
    /// Whether the use of gRPC has been reported on standard error.
    reported: AtomicBool,
}

/// Serves until a signal arrives or the parent ends, and returns the exit code.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let words = line::joined(arguments.into_iter().skip(1));
    if let Some(real) = std::env::var_os(REAL).filter(|real| !real.is_empty()) {
        let error = Command::new(&real).args(&words).exec();
        report(format_args!("etcd: cannot start {} of {REAL}: {error}", real.display()));
        return ExitCode::FAILURE;
    }
    if ["--help", "--h"].iter().any(|question| words.iter().any(|word| word == question)) {
        return printed(HELP);
    }
    if words.iter().any(|word| word == "--version") {
        return printed(&format!("etcd Version: {VERSION}\n"));
    }
    let result = EtcdFlags::read(&words).and_then(|flags| {
        orphan::exit_with_parent("etcd").context("cannot watch the parent process")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("cannot start the runtime")?.block_on(serve(flags))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(format_args!("etcd: {}", one_line(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Prints a text on standard output. A closed pipe is not an error.
fn printed(text: &str) -> ExitCode {
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    ExitCode::SUCCESS
}

impl EtcdFlags {
    fn read(words: &[OsString]) -> anyhow::Result<EtcdFlags> {
        let data_dir = line::last(words, "data-dir").filter(|dir| !dir.is_empty()).unwrap_or("default.etcd");
        let data_dir = std::path::absolute(data_dir).with_context(|| format!("--data-dir={data_dir}"))?;
        let urls = line::last(words, "listen-client-urls").unwrap_or("http://localhost:2379");
        let listen = urls.split(',').map(str::trim).filter(|url| !url.is_empty());
        let listen = listen.map(host_and_port).collect::<anyhow::Result<Vec<_>>>()?;
        if listen.is_empty() {
            bail!("--listen-client-urls is empty: give a URL such as http://127.0.0.1:2379");
        }
        Ok(EtcdFlags { data_dir, listen })
    }
}

fn host_and_port(url: &str) -> anyhow::Result<(String, u16)> {
    let wrong = |why: &str| {
        anyhow!("--listen-client-urls={url}: {why}, a URL such as http://127.0.0.1:2379 is accepted")
    };
    let uri: Uri = url.parse().map_err(|_| wrong("not a URL"))?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong(&format!("the stand-in serves http only (set {REAL} to start a real etcd)")));
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    if host.is_empty() {
        return Err(wrong("no host"));
    }
    Ok((host, uri.port_u16().unwrap_or(2379)))
}

/// Listens on all addresses, and serves until a signal arrives.
async fn serve(flags: EtcdFlags) -> anyhow::Result<()> {
    files::private_dir(&flags.data_dir)?;
    let mut terminated = signal(SignalKind::terminate()).context("cannot listen to signals")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("cannot listen to signals")?;
    let stand_in = Arc::new(StandIn { data_dir: flags.data_dir, reported: AtomicBool::new(false) });
    let turns = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    for (host, port) in &flags.listen {
        let failed = || format!("listen tcp {host}:{port}: bind");
        let listener = match host.parse::<IpAddr>() {
            Ok(address) => TcpListener::bind(SocketAddr::new(address, *port)).await,
            Err(_) => TcpListener::bind((host.as_str(), *port)).await,
        };
        tokio::spawn(accept(listener.with_context(failed)?, stand_in.clone(), turns.clone()));
    }
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}

async fn accept(listener: TcpListener, stand_in: Arc<StandIn>, turns: Arc<Semaphore>) {
    loop {
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let stand_in = stand_in.clone();
                tokio::spawn(async move {
                    connection(stream, stand_in).await;
                    drop(turn);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, stand_in: Arc<StandIn>) {
    let service = service_fn(move |request| {
        let response = stand_in.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
    // Ignore an error, because it only ends this connection.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

impl StandIn {
    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("application/grpc")) {
            return self.unimplemented(request.uri().path());
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return response(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "Method Not Allowed\n".to_owned());
        }
        let json = |value: serde_json::Value| response(StatusCode::OK, "application/json", value.to_string());
        match request.uri().path() {
            "/health" => json(json!({"health": "true", "reason": ""})),
            "/version" => json(json!({"etcdserver": VERSION, "etcdcluster": VERSION, "storage": VERSION})),
            "/livez" | "/readyz" => response(StatusCode::OK, "text/plain", "ok\n".to_owned()),
            DATA_DIR_PATH => json(json!({"dataDir": self.data_dir.to_string_lossy()})),
            _ => response(StatusCode::NOT_FOUND, "text/plain", "404 page not found\n".to_owned()),
        }
    }

    /// Returns the response to a gRPC request, which is the protocol of etcd.
    fn unimplemented(&self, path: &str) -> Response<Full<Bytes>> {
        if !self.reported.swap(true, Ordering::Relaxed) {
            report(format_args!(
                "etcd: a client called {path}, but this is a stand-in that stores nothing: set {REAL} to the path of a real etcd"
            ));
        }
        let message = format!("stand-in for etcd without a store; {REAL} starts a real etcd");
        let mut response = response(StatusCode::OK, "application/grpc", String::new());
        let headers = response.headers_mut();
        headers.insert("grpc-status", http::HeaderValue::from_static("12"));
        headers.extend(
            http::HeaderValue::try_from(message)
                .map(|text| (http::HeaderName::from_static("grpc-message"), text)),
        );
        response
    }
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_etcd_stand_in_accepts_the_flags_of_etcd() {
        let read = |text: &str| EtcdFlags::read(&line::joined(text.split_whitespace().map(OsString::from)));
        let listen = |text: &str| {
            let flags = read(text).map_err(|error| format!("{error:#}"))?;
            Ok::<_, String>(
                flags.listen.into_iter().map(|(host, port)| format!("{host} {port}")).collect::<Vec<_>>(),
            )
        };
        for (text, want) in [
            ("", Ok("localhost 2379")),
            ("--listen-client-urls=http://127.0.0.1:1 --unsafe-no-fsync=true", Ok("127.0.0.1 1")),
            ("-listen-client-urls http://[::1]:1,http://localhost", Ok("::1 1, localhost 2379")),
            ("--listen-client-urls=https://127.0.0.1:1", Err("ENVTEST_REAL_ETCD")),
            ("--listen-client-urls=127.0.0.1", Err("http://127.0.0.1:2379 is accepted")),
            ("--listen-client-urls=", Err("is empty")),
        ] {
            match (listen(text), want) {
                (Ok(got), Ok(want)) => assert_eq!(got.join(", "), want, "{text}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
        assert_eq!(read("--data-dir /a/b").unwrap().data_dir, PathBuf::from("/a/b"));
        assert!(read("").unwrap().data_dir.ends_with("default.etcd"));
    }
}
