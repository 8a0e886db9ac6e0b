//! Framing of messages on a stream: one byte for the compression (0: none), four bytes for the length, then
//! the message.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use crate::error::Error;

/// Length of the frame header in bytes.
const HEAD_BYTES: usize = 5;

/// Size limit of a message in bytes, which bounds the memory: far more than a page of the largest values that
/// etcd accepts by default.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Encodes a message with its frame header.
pub(crate) fn encode(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(HEAD_BYTES + len);
    out.put_u8(0);
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    // A BytesMut grows, so encoding into it does not fail.
    let _ = message.encode(&mut out);
    out.freeze()
}

/// A buffer that collects received bytes into whole messages.
#[derive(Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole message; `None` if it is not complete yet.
    pub(crate) fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        let Some(head) = self.buffer.get(..HEAD_BYTES) else { return Ok(None) };
        if head[0] != 0 {
            return Err(Error::Malformed("a compressed message".into()));
        }
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > MESSAGE_BYTES_MAX {
            return Err(Error::Malformed(format!("a message of {len} bytes, more than {MESSAGE_BYTES_MAX}")));
        }
        if self.buffer.len() < HEAD_BYTES + len {
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        // The values in the message are slices of this buffer.
        let message = self.buffer.split_to(len).freeze();
        M::decode(message).map(Some).map_err(|error| Error::Malformed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::RangeRequest;

    #[test]
    fn messages_are_decoded_from_any_fragments() {
        let message = RangeRequest { key: "k".into(), limit: 7, ..RangeRequest::default() };
        let bytes = [encode(&message), encode(&message)].concat();
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::default();
            let mut found = 0;
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(part);
                while let Some(next) = decoder.next::<RangeRequest>().unwrap() {
                    assert_eq!(next, message);
                    found += 1;
                }
            }
            assert_eq!(found, 2, "cut at {cut}");
        }
        for bad in [&[1, 0, 0, 0, 0][..], &[0, 255, 255, 255, 255], &[0, 0, 0, 0, 1, 255]] {
            let mut decoder = Decoder::default();
            decoder.push(bad);
            assert!(decoder.next::<RangeRequest>().is_err(), "{bad:?}");
        }
    }
}
