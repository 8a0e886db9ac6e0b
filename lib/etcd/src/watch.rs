//! A stream of changes: whole responses, in order, until it ends, and then why.
//!
//! etcd cuts large responses into fragments where the client allows it; they are put together again here, so that the events of
//! one revision never come apart. A stream ends by compaction, by etcd's decision, or by a broken connection; each is
//! begun again differently, so the end says which.

use crate::client::{self, Client, Stream};
use crate::error::Error;
use crate::frame::{self, Decoder, MESSAGE_BYTES_MAX};
use crate::rpc::{WatchAction, WatchCreateRequest, WatchRequest, WatchResponse};

/// A stream of changes.
pub struct Watch {
    client: Client,
    stream: Stream,
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
        let create = WatchRequest { action: Some(WatchAction::Create(request)) };
        let stream = client.stream("/etcdserverpb.Watch/Watch", frame::encode(&create)).await?;
        let (client, decoder) = (client.clone(), Decoder::default());
        Ok(Watch { client, stream, decoder, begun: None, begun_bytes: 0 })
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
            match client::data(&mut self.stream.body).await? {
                Some(data) => self.decoder.push(&data),
                None => return Err(Error::Lost("the stream broke off".into()).into()),
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
        self.client.leave(&self.stream.connection).await;
    }
}
