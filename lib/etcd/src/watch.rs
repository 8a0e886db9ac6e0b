//! A stream of changes: whole responses in order, and then the reason why the stream ended.
//!
//! If the client allows it, etcd splits large responses into fragments. The fragments are joined here, so
//! that the events of one revision are never separated. A stream ends by compaction, by a decision of etcd,
//! or by a broken connection. The caller has to restart the stream differently in each of these cases, so the
//! end states the reason.

use crate::client::{CallStream, Client, next_data};
use crate::error::Error;
use crate::frame::{self, Decoder, MESSAGE_BYTES_MAX};
use crate::rpc::{WatchAction, WatchCreateRequest, WatchRequest, WatchResponse};

/// A stream of changes of keys.
pub struct Watch {
    client: Client,
    stream: CallStream,
    decoder: Decoder,
    /// Fragments of the current response, and their size in bytes.
    begun: Option<WatchResponse>,
    begun_bytes: usize,
}

/// The reasons why a stream ended.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WatchEnd {
    /// The next revision is compacted; the value is the oldest revision that can be watched.
    #[error("the wanted revision is compacted, the oldest is {0}")]
    Compacted(i64),
    /// etcd ended the stream with this reason.
    #[error("etcd ended the stream: {0}")]
    Cancelled(String),
    /// The connection or the member failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Client {
    /// Starts a watch. The opening of the watch has the time limit of a call.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn watch(&self, request: WatchCreateRequest) -> Result<Watch, Error> {
        let create = WatchRequest { action: Some(WatchAction::Create(request)) };
        let stream = self.stream("/etcdserverpb.Watch/Watch", frame::encode(&create)).await?;
        let (client, decoder) = (self.clone(), Decoder::default());
        Ok(Watch { client, stream, decoder, begun: None, begun_bytes: 0 })
    }
}

impl Watch {
    /// Returns the next response; waits indefinitely if nothing changes, so the caller should bound the wait.
    /// Dropping the future loses no events.
    ///
    /// # Errors
    /// The reason why the stream ended. The stream cannot be used afterwards.
    pub async fn next(&mut self) -> Result<WatchResponse, WatchEnd> {
        loop {
            while let Some(response) = self.decoder.next::<WatchResponse>()? {
                self.client.check_cluster(response.header.unwrap_or_default())?;
                if response.canceled {
                    return Err(match response.compact_revision {
                        0 => WatchEnd::Cancelled(response.cancel_reason),
                        oldest => WatchEnd::Compacted(oldest),
                    });
                }
                if let Some(whole) = self.completed(response)? {
                    return Ok(whole);
                }
            }
            match next_data(&mut self.stream.body).await? {
                Some(data) => self.decoder.push(&data),
                None => return Err(Error::Lost("the stream broke off".into()).into()),
            }
        }
    }

    /// Adds a fragment, and returns the response if this fragment completes it.
    fn completed(&mut self, response: WatchResponse) -> Result<Option<WatchResponse>, Error> {
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

    /// Makes later calls use another member. The caller uses this function if the member of the watch lags or
    /// has no leader.
    pub async fn leave_member(&self) {
        self.client.leave(&self.stream.connection).await;
    }
}
