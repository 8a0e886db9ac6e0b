//! Messages that a client sends over WebSocket (RFC 6455, section 5), in pieces of a bounded size.
//!
//! A message of any length needs only one buffer of fixed size, because the server forwards the payload of the message
//! as the payload arrives. Text and binary messages are treated the same.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::tunnel::BUFFER_BYTES;
use wire::server::frames::{FrameHead, opcode};

/// An item received from the client.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum WebSocketEvent {
    /// A piece of a message. `is_first` and `is_last` give the position of the piece in the message.
    Piece { bytes: BytesMut, is_first: bool, is_last: bool },
    /// A ping, with the payload that the pong must carry.
    Ping(BytesMut),
    /// The client closes the connection.
    Close,
    /// A frame that a client must not send.
    Nonsense,
    /// The connection has ended.
    Gone,
}

/// Reads frames. A cancelled read loses no data.
pub(super) struct Messages<R> {
    reader: R,
    buffer: BytesMut,
    /// The data frame whose payload is being received.
    frame: Option<Frame>,
    /// Whether a message has begun and not ended.
    is_within: bool,
    /// Whether no piece of the message has been returned yet.
    is_first: bool,
}

/// A data frame.
#[derive(Clone, Copy)]
struct Frame {
    left: u64,
    mask: u32,
    is_final: bool,
}

impl<R: AsyncRead + Unpin> Messages<R> {
    pub(super) fn new(reader: R) -> Messages<R> {
        let buffer = BytesMut::with_capacity(BUFFER_BYTES);
        Messages { reader, buffer, frame: None, is_within: false, is_first: false }
    }

    /// Returns the next piece or control frame.
    pub(super) async fn next(&mut self) -> WebSocketEvent {
        loop {
            if let Some(heard) = self.take() {
                return heard;
            }
            self.buffer.reserve(BUFFER_BYTES.saturating_sub(self.buffer.len()).max(1));
            let mut limited =
                (&mut self.reader).take((BUFFER_BYTES - self.buffer.len().min(BUFFER_BYTES - 1)) as u64);
            match limited.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return WebSocketEvent::Gone,
                Ok(_) => {}
            }
        }
    }

    fn take(&mut self) -> Option<WebSocketEvent> {
        if let Some(frame) = self.frame {
            return self.piece(frame);
        }
        let head = FrameHead::read(&self.buffer)?;
        let code = head.code();
        let is_known = matches!(code, opcode::CONTINUATION | opcode::TEXT | opcode::BINARY)
            || matches!(code, opcode::CLOSE | opcode::PING | opcode::PONG);
        let fits = head.is_control() || (code == opcode::CONTINUATION) == self.is_within;
        if !head.is_sound() || !is_known || !fits {
            return Some(WebSocketEvent::Nonsense);
        }
        let mask = u32::from_be_bytes(head.mask(&self.buffer)?);
        if !head.is_control() {
            self.buffer.advance(head.bytes());
            self.is_first |= !self.is_within;
            self.is_within = !head.is_final();
            let frame = Frame { left: head.len, mask, is_final: head.is_final() };
            self.frame = Some(frame);
            return self.piece(frame);
        }
        let len = head.len as usize;
        if self.buffer.len() < head.bytes() + len {
            return None;
        }
        self.buffer.advance(head.bytes());
        let mut payload = self.buffer.split_to(len);
        unmask(&mut payload, mask);
        match code {
            opcode::PING => Some(WebSocketEvent::Ping(payload)),
            opcode::CLOSE => Some(WebSocketEvent::Close),
            _ => self.take(),
        }
    }

    /// Returns the available part of a data frame.
    fn piece(&mut self, frame: Frame) -> Option<WebSocketEvent> {
        if frame.left > 0 && self.buffer.is_empty() {
            return None;
        }
        let len = frame.left.min(self.buffer.len() as u64);
        let mut bytes = self.buffer.split_to(len as usize);
        unmask(&mut bytes, frame.mask);
        let left = frame.left - len;
        let mask = frame.mask.rotate_left(8 * (len % 4) as u32);
        self.frame = (left > 0).then_some(Frame { left, mask, ..frame });
        let is_first = std::mem::take(&mut self.is_first);
        Some(WebSocketEvent::Piece { bytes, is_first, is_last: left == 0 && frame.is_final })
    }
}

fn unmask(bytes: &mut [u8], mask: u32) {
    let mask = mask.to_be_bytes();
    bytes.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [9, 8, 7, 6];
        let mut frame = vec![first];
        match payload.len() {
            len @ 0..=125 => frame.push(0x80 | len as u8),
            len => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&(len as u16).to_be_bytes());
            }
        }
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    /// Returns whole messages, pings and the end, as text.
    async fn heard(sent: &[u8]) -> Vec<String> {
        let mut messages = Messages::new(sent);
        let (mut heard, mut message) = (Vec::new(), Vec::new());
        loop {
            match messages.next().await {
                WebSocketEvent::Piece { bytes, is_first, is_last } => {
                    assert_eq!(is_first, message.is_empty() && is_first);
                    message.extend_from_slice(&bytes);
                    if is_last {
                        heard.push(String::from_utf8(std::mem::take(&mut message)).unwrap());
                    }
                }
                WebSocketEvent::Ping(payload) => {
                    heard.push(format!("ping {}", String::from_utf8_lossy(&payload)))
                }
                end => {
                    heard.push(format!("{end:?}"));
                    return heard;
                }
            }
        }
    }

    #[tokio::test]
    async fn websocket_messages_are_read_whole_from_any_fragments() {
        let long = "x".repeat(30_000);
        let sent = [
            frame(0x82, b"whole"),
            frame(0x01, b"in "),
            frame(0x89, b"hi"),
            frame(0x00, b"three "),
            frame(0x80, b"parts"),
            frame(0x8a, b""),
            frame(0x82, b""),
            frame(0x82, long.as_bytes()),
            frame(0x88, b""),
        ]
        .concat();
        assert_eq!(heard(&sent).await, ["whole", "ping hi", "in three parts", "", long.as_str(), "Close"]);
    }

    #[tokio::test]
    async fn invalid_frames_of_a_client_are_errors() {
        for (sent, want) in [
            (vec![0x82, 1, b'a'], "Nonsense"),
            (frame(0xc2, b"reserved"), "Nonsense"),
            (frame(0x83, b"unknown"), "Nonsense"),
            (frame(0x80, b"continues nothing"), "Nonsense"),
            ([frame(0x02, b"a"), frame(0x82, b"b")].concat(), "Nonsense"),
            (frame(0x09, b"ping in pieces"), "Nonsense"),
            (frame(0x89, &[0; 126]), "Nonsense"),
            (vec![0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0], "Nonsense"),
            (vec![0x82], "Gone"),
        ] {
            assert_eq!(heard(&sent).await.last().unwrap(), want, "{sent:?}");
        }
    }
}
