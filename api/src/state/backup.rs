//! `POST /backup`: streams the store as of its newest revision (`docs/format.md`).
//!
//! ```text
//! files of the client ─► engine: Outgoing ─► one frame read, on a blocking thread ─► channel of one ─► connection
//! ```
//!
//! The path is not a resource. A user with permission to `post` to this path gets the whole store, including secrets,
//! so by default only the administrator has this permission. A backup does not delay other requests, but the server
//! cannot remove the files that the backup still has to send. Therefore the number of concurrent backups is small, and
//! a client that does not read its stream is dropped.

use std::sync::Arc;
use std::time::Duration;

use engine::{BackupError, Engine, Outgoing};
use futures_util::FutureExt;
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

/// Maximum number of concurrent backups. Each backup reads the whole store, and keeps superseded files on the
/// disk. The second backup is for a client that connects while the first backup is stuck.
const BACKUPS_MAX: usize = 2;

/// Seconds after which a client may retry if there are too many backups.
const RETRY_AFTER_S: u32 = 30;

/// Time in which a client must take one frame of 256 KiB. The limit is long, because a client syncs each segment
/// to its disk. A client that is slower than a few KiB per second cannot finish.
const FRAME_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits the number of concurrent backups, and records the end of the newest backup.
pub struct Backups {
    permits: Arc<Semaphore>,
    last: Option<Arc<dyn BackupRecord>>,
}

impl Backups {
    /// Creates the limit. If `last` is `None`, the end of the newest backup is not recorded.
    pub fn recorded_in(last: Option<Arc<dyn BackupRecord>>) -> Backups {
        Backups { permits: Arc::new(Semaphore::new(BACKUPS_MAX)), last }
    }

    /// Returns the end of the newest backup in seconds since 1970; 0 if no backup is recorded.
    pub fn last_s(&self) -> u64 {
        self.last.as_ref().map_or(0, |record| record.seconds())
    }
}

/// A record of the newest complete backup that outlives the process.
pub trait BackupRecord: Send + Sync {
    /// Records that a backup is complete now. Logs an error if the record cannot be written.
    fn note(&self);
    /// Returns the end of the newest backup in seconds since 1970; 0 if no backup is recorded.
    fn seconds(&self) -> u64;
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
/// cannot sync acknowledged writes to disk.
pub async fn respond(source: BackupSource<'_>, method: &Method, held: &[u8]) -> Result<Response, Status> {
    if method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let Ok(permit) = source.backups.permits.clone().try_acquire_owned() else { return Err(too_many()) };
    let (engine, held) = (source.engine.clone(), held.to_vec());
    let begun = tokio::task::spawn_blocking(move || engine.backup(&held)).await.map_err(Status::internal)?;
    let outgoing = begun.map_err(|error| match error {
        BackupError::Held => Status::bad_request(error.to_string()),
        BackupError::Refused(refusal) => Status::new(StatusReason::ServiceUnavailable, refusal.to_string()),
    })?;
    tracing::info!(revision = outgoing.revision().get(), "backup started");
    let (sender, body) = Body::channel(1);
    let permit = BackupPermit { _slot: permit, last: source.backups.last.clone() };
    tokio::spawn(send(outgoing, sender, source.shutdown, permit).boxed());
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(NAMING, HeaderValue::from_static(source.naming.profile));
    Ok(response)
}

fn too_many() -> Status {
    let details = Details { retry_after_seconds: RETRY_AFTER_S, ..Details::default() };
    let message = format!("{BACKUPS_MAX} backups are under way already, try again later");
    let mut status = Status::new(StatusReason::TooManyRequests, message);
    status.details = Some(Box::new(details));
    status
}

/// The permit to send a backup, and the record that is updated at the end of the backup.
struct BackupPermit {
    _slot: OwnedSemaphorePermit,
    last: Option<Arc<dyn BackupRecord>>,
}

/// Sends the whole backup, and gives up if the client does not read or the server drains. An incomplete stream
/// ends with an error, so that a client cannot use it as a complete backup.
async fn send(outgoing: Outgoing, sender: BodySender, shutdown: Shutdown, permit: BackupPermit) {
    let revision = outgoing.revision().get();
    match stream(outgoing, sender, shutdown).await {
        Ok(()) => {
            tracing::info!(revision, "backup sent");
            if let Some(record) = permit.last {
                record.note();
            }
        }
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
            // The last frame marks the backup as incomplete, so the response can end normally.
            return sender.finish().await.map_or(Err(why.clone()), |()| Err(why));
        }
    }
}
