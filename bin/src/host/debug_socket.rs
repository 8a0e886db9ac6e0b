//! A Unix socket for debugging the process, which serves `/debug/flags` and `/debug/pprof` without
//! credentials (`--debug-socket-path`, docs/api/operations.md#debugging).
//!
//! Every user who may open the socket file may send requests. The server creates the file with access only
//! for its own user, and removes the file when it ends. The server opens the socket at the beginning of the
//! start, so that a slow start can be examined. If the socket cannot be created, the server logs the error
//! and continues.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::state::debug::{DebugRequest, Debugging};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use wire::response::{Response, respond_text};

/// Maximum number of connections. Further connections wait.
const CONNECTIONS_MAX: usize = 16;

/// Maximum time until the head of a request has arrived, and then until its body has arrived.
const READ_WAIT: Duration = Duration::from_secs(10);

/// Maximum size of a request body, which is a number or a list of addresses.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The path of the socket file, which is removed when this value is dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves the socket until the task is dropped.
pub async fn serve(path: PathBuf, debugging: Debugging) {
    let listener = match listen(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, path = %path.display(), "debug socket not opened: check --debug-socket-path");
            return;
        }
    };
    let _file = SocketFile(path);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let debugging = debugging.clone();
                let answering = async move {
                    connection(stream, &debugging).await;
                    drop(place);
                };
                tokio::spawn(answering.boxed());
            }
            Err(error) => {
                tracing::warn!(%error, "the debug socket cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Listens at `path`. Replaces a socket file that an earlier run left at `path`.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn connection(stream: UnixStream, debugging: &Debugging) {
    let service = service_fn(|request| async { Ok::<_, Infallible>(respond(request, debugging).await) });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(READ_WAIT);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection of the debug socket ended");
    }
}

async fn respond(request: Request<Incoming>, debugging: &Debugging) -> Response {
    let (head, body) = request.into_parts();
    let query = head.uri.query().unwrap_or_default();
    let debug_request = DebugRequest { method: &head.method, path: head.uri.path(), query };
    let body = if debug_request.has_body() { read(body).await } else { Some(Bytes::new()) };
    let Some(body) = body else {
        return respond_text(StatusCode::BAD_REQUEST, "the body cannot be read, or is too long\n");
    };
    let not_found = || respond_text(StatusCode::NOT_FOUND, "404 page not found\n");
    debugging.respond_to(debug_request, &body).await.unwrap_or_else(not_found)
}

/// Reads a request body. Returns `None` if the body is too long or does not arrive in time.
async fn read(body: Incoming) -> Option<Bytes> {
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return None;
    }
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    Some(tokio::time::timeout(READ_WAIT, body).await.ok()?.ok()?.to_bytes())
}
