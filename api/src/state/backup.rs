//! `POST /backup`: streams the store as of its newest revision (`docs/format.md`).
//!
//! ```text
//! files of the client ─► engine: Outgoing ─► one frame read, on a blocking thread ─► channel of one ─► connection
//! ```
//!
//! The path is not a resource: a user that may `post` to it gets the whole store, secrets included, so by
//! default only the administrator may. A backup delays no other request, but it keeps files that it has not
//! sent yet from being removed. Therefore the number of concurrent backups is small, and a client that does
//! not read its stream is dropped.

use std::sync::Arc;
use std::time::Duration;

use engine::{BackupError, Engine, Outgoing};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use values::naming::Naming;
use values::status::{Details, Status, StatusReason};
use wire::response::Response;
use wire::server::{Body, BodySender, Shutdown};

/// The path of the endpoint.
pub const PATH: &str = "/backup";

/// Response header with the naming profile of the store, which is not part of the stream.
pub const NAMING: HeaderName = HeaderName::from_static("store-naming");

/// Maximum number of concurrent backups. Each one reads the whole store and keeps superseded files on the
/// disk. The second one is for a client that connects while the first is stuck.
const BACKUPS_MAX: usize = 2;

/// Seconds after which a client may retry if there are too many backups.
const RETRY_AFTER_S: u32 = 30;

/// Time in which a client must take one frame of 256 KiB. A client writes to a disk and syncs a segment at a
/// time; a client slower than a few KiB per second will never finish.
const FRAME_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits the number of concurrent backups.
#[derive(Debug)]
pub struct Backups(Arc<Semaphore>);

impl Default for Backups {
    fn default() -> Self {
        Backups(Arc::new(Semaphore::new(BACKUPS_MAX)))
    }
}

/// The inputs of a backup.
pub struct BackupSource<'s> {
    /// The store to back up.
    pub engine: &'s Engine,
    /// Limits the number of concurrent backups.
    pub backups: &'s Backups,
    /// Ends a running backup when the server drains.
    pub shutdown: Shutdown,
    /// The naming profile of the store.
    pub naming: &'static Naming,
}

/// Starts a backup for a client that already has the files described by `held`.
///
/// # Errors
/// 405 for other methods, 429 if too many backups are under way, 400 if `held` is invalid, 503 if the store
/// cannot bring acknowledged writes to disk.
pub async fn respond(source: BackupSource<'_>, method: &Method, held: &[u8]) -> Result<Response, Status> {
    if method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let Ok(permit) = source.backups.0.clone().try_acquire_owned() else { return Err(too_many()) };
    let (engine, held) = (source.engine.clone(), held.to_vec());
    let begun = tokio::task::spawn_blocking(move || engine.backup(&held)).await.map_err(Status::internal)?;
    let outgoing = begun.map_err(|error| match error {
        BackupError::Held => Status::bad_request(error.to_string()),
        BackupError::Refused(refusal) => Status::new(StatusReason::ServiceUnavailable, refusal.to_string()),
    })?;
    tracing::info!(revision = outgoing.revision().get(), "backup started");
    let (sender, body) = Body::channel(1);
    tokio::spawn(send(outgoing, sender, source.shutdown, permit));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(NAMING, HeaderValue::from_static(source.naming.profile));
    Ok(response)
}

fn too_many() -> Status {
    let details = Details { retry_after_seconds: RETRY_AFTER_S, ..Details::default() };
    let message = format!("{BACKUPS_MAX} backups are under way already, try again later");
    Status { details: Some(Box::new(details)), ..Status::new(StatusReason::TooManyRequests, message) }
}

/// Sends the whole backup, and gives up if the client does not read or the server drains. An incomplete
/// stream ends with an error, so that no client takes it for complete.
async fn send(outgoing: Outgoing, sender: BodySender, shutdown: Shutdown, _permit: OwnedSemaphorePermit) {
    let revision = outgoing.revision().get();
    match stream(outgoing, sender, shutdown).await {
        Ok(()) => tracing::info!(revision, "backup sent"),
        Err(why) => tracing::warn!(revision, "backup aborted: {why}"),
    }
}

async fn stream(mut outgoing: Outgoing, mut sender: BodySender, shutdown: Shutdown) -> Result<(), String> {
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let frame = outgoing.next_frame();
            (outgoing, frame)
        });
        let frame;
        (outgoing, frame) = read.await.map_err(|error| error.to_string())?;
        let (frame, end) = match frame {
            Some(_) if shutdown.is_begun() => {
                let why = "the server is shutting down";
                (outgoing.give_up(why), Some(why.to_owned()))
            }
            Some(frame) => (frame, None),
            None => return sender.finish().await.map_err(|gone| gone.to_string()),
        };
        let sent = tokio::time::timeout(FRAME_TIMEOUT, sender.send(frame)).await;
        sent.map_err(|_| "the client does not take it".to_owned())?.map_err(|gone| gone.to_string())?;
        if let Some(why) = end {
            // The last frame says that the backup is incomplete, so the response can end normally.
            return sender.finish().await.map_or(Err(why.clone()), |()| Err(why));
        }
    }
}
