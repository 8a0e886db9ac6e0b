//! Messages on a stream: a byte that says they are not compressed, four of length, the message.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use crate::error::Error;

/// Bytes in front of a message.
const HEAD_BYTES: usize = 5;

/// Greatest message that is taken: far more than a page of the largest values that etcd takes by default, and a bound on memory.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// A message with what stands in front of it.
pub(crate) fn encode(message: &impl Message) -> Bytes {
    let len = message.encoded_len();
    let mut out = BytesMut::with_capacity(HEAD_BYTES + len);
    out.put_u8(0);
    out.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    // A BytesMut grows; encoding into it does not fail.
    let _ = message.encode(&mut out);
    out.freeze()
}

/// Bytes that came, until they are whole messages.
#[derive(Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message.
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
        // Values of the message are slices of it.
        let message = self.buffer.split_to(len).freeze();
        M::decode(message).map(Some).map_err(|error| Error::Malformed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::RangeRequest;

    #[test]
    fn messages_come_whole_however_they_are_cut() {
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
