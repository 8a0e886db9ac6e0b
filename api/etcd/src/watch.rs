//! A stream of changes: whole responses, in order, until it ends, and then why.
//!
//! etcd cuts large responses into fragments where the client allows it; they are put together again here, so that the events of
//! one revision never come apart. A stream ends by compaction, by etcd's decision, or by a broken connection; each is
//! begun again differently, so the end says which.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::client::{Client, verdict};
use crate::error::Error;
use crate::frame::{self, Decoder, MESSAGE_BYTES_MAX};
use crate::pool::Connection;
use crate::rpc::{WatchAction, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};

/// Requests that wait to be sent on a stream.
const REQUESTS_MAX: usize = 4;

/// A stream of changes.
pub struct Watch {
    client: Client,
    connection: Connection,
    requests: mpsc::Sender<Bytes>,
    body: Incoming,
    decoder: Decoder,
    /// Fragments of the response that is under way, and their bytes.
    begun: Option<WatchResponse>,
    begun_bytes: usize,
}

/// Why a stream ended.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WatchEnd {
    /// The revision that comes next is compacted; this is the oldest that can be followed.
    #[error("the wanted revision is compacted, the oldest is {0}")]
    Compacted(i64),
    /// etcd ended it.
    #[error("etcd ended the stream: {0}")]
    Cancelled(String),
    /// The connection or the member failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Watch {
    pub(crate) async fn open(client: &Client, request: WatchCreateRequest) -> Result<Watch, Error> {
        let (requests, outgoing) = mpsc::channel(REQUESTS_MAX);
        let create = WatchRequest { action: Some(WatchAction::Create(request)) };
        let _ = requests.try_send(frame::encode(&create));
        let (connection, body) = client.stream("/etcdserverpb.Watch/Watch", outgoing).await?;
        let client = client.clone();
        let decoder = Decoder::default();
        Ok(Watch { client, connection, requests, body, decoder, begun: None, begun_bytes: 0 })
    }

    /// Asks for a response that says how far the stream is. Nothing happens where such requests wait already.
    pub fn request_progress(&self) {
        let progress = WatchRequest { action: Some(WatchAction::Progress(WatchProgressRequest {})) };
        let _ = self.requests.try_send(frame::encode(&progress));
    }

    /// The next response; waits for ever where nothing happens. Give the wait a bound, or nothing else to wait for. A wait that is
    /// given up loses nothing.
    ///
    /// # Errors
    /// Why the stream ended. It is over then.
    pub async fn next(&mut self) -> Result<WatchResponse, WatchEnd> {
        loop {
            while let Some(response) = self.decoder.next::<WatchResponse>()? {
                self.client.belongs(response.header.unwrap_or_default())?;
                if response.canceled {
                    return Err(match response.compact_revision {
                        0 => WatchEnd::Cancelled(response.cancel_reason),
                        oldest => WatchEnd::Compacted(oldest),
                    });
                }
                if let Some(whole) = self.whole(response)? {
                    return Ok(whole);
                }
            }
            let Some(frame) = self.body.frame().await else {
                return Err(Error::Lost("the stream broke off".into()).into());
            };
            let frame = frame.map_err(|error| Error::lost(&error))?;
            match frame.into_data() {
                Ok(data) => self.decoder.push(&data),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        verdict(&trailers)?;
                    }
                }
            }
        }
    }

    /// The response that this fragment completes.
    fn whole(&mut self, response: WatchResponse) -> Result<Option<WatchResponse>, Error> {
        let bytes: usize =
            response.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.value.len()).sum();
        let is_last = !response.fragment;
        let begun = match self.begun.take() {
            None => response,
            Some(mut begun) => {
                begun.events.extend(response.events);
                begun.header = response.header;
                begun
            }
        };
        if is_last {
            self.begun_bytes = 0;
            return Ok(Some(WatchResponse { fragment: false, ..begun }));
        }
        self.begun_bytes += bytes;
        if self.begun_bytes > MESSAGE_BYTES_MAX {
            return Err(Error::Malformed(format!("a response of more than {MESSAGE_BYTES_MAX} bytes")));
        }
        self.begun = Some(begun);
        Ok(None)
    }

    /// Has later calls use another member: this one does not keep up, or has no leader.
    pub async fn leave_member(&self) {
        self.client.leave(&self.connection).await;
    }
}
