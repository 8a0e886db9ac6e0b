//! `POST /backup`: the store as of its newest revision, as a stream (`docs/format.md`).
//!
//! ```text
//! what the client has ─► engine: Outgoing ─► one frame read, on a blocking thread ─► channel of one ─► connection
//! ```
//!
//! The path is no resource: a user that may `post` to it gets everything there is, secrets included, so by default that is
//! the administrator. A backup delays no other request; it keeps the files it has not sent yet from being removed, so there
//! are few at a time, and a client that does not take what it asked for is left.

use std::sync::Arc;
use std::time::Duration;

use engine::{BackupError, Engine, Outgoing};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use values::naming::Naming;
use values::status::{Details, Reason, Status};
use wire::response::Response;
use wire::server::{Body, BodySender, Shutdown};

/// Where it is.
pub const PATH: &str = "/backup";

/// Names the vocabulary that the store is written in, which is not part of the stream.
pub const NAMING: HeaderName = HeaderName::from_static("store-naming");

/// Backups at one time. Each reads everything there is and keeps superseded files on the disk; a second one is for
/// a client that comes while the first is stuck.
const BACKUPS_MAX: usize = 2;

/// When a client for which there was no room may try again, in seconds.
const RETRY_AFTER_S: u32 = 30;

/// How long a client may take for one frame, of 256 KiB. It writes to a disk and syncs a segment at a time; one that
/// is slower than some KiB a second will never be done.
const FRAME_TIMEOUT: Duration = Duration::from_secs(60);

/// Room for the backups under way.
#[derive(Debug)]
pub struct Backups(Arc<Semaphore>);

impl Default for Backups {
    fn default() -> Self {
        Backups(Arc::new(Semaphore::new(BACKUPS_MAX)))
    }
}

/// What a backup is made from.
pub struct Source<'s> {
    /// The store.
    pub engine: &'s Engine,
    /// Room for the backups under way.
    pub backups: &'s Backups,
    /// Ends a backup that is under way when the server leaves.
    pub shutdown: Shutdown,
    /// The names that the store is written in.
    pub naming: &'static Naming,
}

/// Answers a request for a backup by a client that has `held` already.
///
/// # Errors
/// 405 for other methods, 429 when there are enough backups under way, 400 when `held` is something else, 503 when
/// the store cannot bring to disk what it has acknowledged.
pub async fn respond(source: Source<'_>, method: &Method, held: &[u8]) -> Result<Response, Status> {
    if method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let Ok(permit) = source.backups.0.clone().try_acquire_owned() else { return Err(too_many()) };
    let (engine, held) = (source.engine.clone(), held.to_vec());
    let begun = tokio::task::spawn_blocking(move || engine.backup(&held)).await.map_err(Status::internal)?;
    let outgoing = begun.map_err(|error| match error {
        BackupError::Held => Status::bad_request(error.to_string()),
        BackupError::Refused(refusal) => Status::new(Reason::ServiceUnavailable, refusal.to_string()),
    })?;
    tracing::info!(revision = outgoing.revision().get(), "backup begun");
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
    Status { details: Some(Box::new(details)), ..Status::new(Reason::TooManyRequests, message) }
}

/// Sends all of it, and gives up where the client does not take it, or the server ends. What was not
/// finished breaks off, so that no client takes it for complete.
async fn send(outgoing: Outgoing, sender: BodySender, shutdown: Shutdown, _permit: OwnedSemaphorePermit) {
    let revision = outgoing.revision().get();
    match stream(outgoing, sender, shutdown).await {
        Ok(()) => tracing::info!(revision, "backup sent"),
        Err(why) => tracing::warn!(revision, "backup broken off: {why}"),
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
            // The last frame says that it is none; there is no need to break off what has ended.
            return sender.finish().await.map_or(Err(why.clone()), |()| Err(why));
        }
    }
}
