//! The subset of WebSocket that a stream of events to a client needs (RFC 6455): handshake, outgoing
//! messages, ping and close.
//!
//! ```text
//! request ─Upgrade::asked─► Upgrade ─accept(messages)─► 101 ─► task: messages ──frames──► client
//!                                                               └─ reads: ping → pong, close → close, data → ignored
//! ```
//!
//! The task holds the `ConnectionInfo` of the connection, so the connection still counts as open. A client
//! that does not read blocks only its own task, and for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frames::{FrameHead, close, close_frame, frame, opcode};
use super::upgrade::{Switch, UpgradedStream, has_token};
use super::{Aborted, ConnectionInfo, Request, Response};

/// The GUID that every server appends to the client's key (RFC 6455 §1.3).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Time for which the client may leave queued output unread; the same as on any other connection.
pub const WRITE_STALL: Duration = Duration::from_secs(15 * 60);

/// Type of the messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MessageType {
    /// UTF-8 text messages.
    Text,
    /// Messages with arbitrary bytes.
    Binary,
}

/// A connection whose client asked for WebSocket.
#[derive(Clone)]
pub struct Upgrade {
    switch: Switch,
    accept: HeaderValue,
    /// Subprotocol for a stream of events.
    protocol: Option<HeaderValue>,
}

impl Upgrade {
    /// Returns the upgrade that the request asks for, if it is WebSocket in the supported version.
    pub fn requested(request: &Request, connection: &Arc<ConnectionInfo>) -> Option<Self> {
        let switch =
            Switch::requested(request, connection).filter(|_| requests_websocket(request.headers()))?;
        let key = request.headers().get(SEC_WEBSOCKET_KEY)?.to_str().ok()?;
        let accept = HeaderValue::from_str(&accept_key(key)).ok()?;
        Some(Upgrade { switch, accept, protocol: chosen(request.headers()) })
    }

    /// Answers 101 and sends each of `messages` as one frame, until the messages end or the client
    /// disconnects. The subprotocol is the first one that the client offers: messages are the same in each,
    /// and browsers abort a connection if the server chooses no subprotocol.
    pub fn accept(
        self,
        form: MessageType,
        messages: impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static,
    ) -> Response {
        let protocol = self.protocol.clone();
        self.take_over(protocol, move |taken| converse(taken, form, messages))
    }

    /// Answers 101 with the chosen protocol, and passes the connection to `task`.
    pub fn take_over<F, T>(self, protocol: Option<HeaderValue>, task: T) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
        T: FnOnce(UpgradedStream) -> F + Send + 'static,
    {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        self.switch.take_over(headers, task)
    }
}

/// Returns whether the headers ask for an upgrade to WebSocket.
pub fn requests_websocket(headers: &HeaderMap) -> bool {
    let has = |name, token: &str| has_token(headers, name, token);
    has(&CONNECTION, "upgrade") && has(&UPGRADE, "websocket") && has(&SEC_WEBSOCKET_VERSION, "13")
}

/// Returns the subprotocols that a WebSocket request offers, separated by commas.
pub fn protocols(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().peekable();
    values.peek()?;
    let values = requests_websocket(headers).then(|| values.filter_map(|value| value.to_str().ok()))?;
    Some(values.collect::<Vec<_>>().join(","))
}

/// Returns the first subprotocol that a request offers and that is not a bearer token. The server must not
/// send a token back.
fn chosen(headers: &HeaderMap) -> Option<HeaderValue> {
    let offered = protocols(headers)?;
    let mut offered = offered.split(',').map(str::trim).filter(|name| !name.is_empty());
    let chosen = offered.find(|name| !name.starts_with(auth::authn::bearer::PROTOCOL_PREFIX))?;
    HeaderValue::from_str(chosen).ok()
}

fn accept_key(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes()))
}

/// Sends and receives until one side ends.
async fn converse<I>(io: I, form: MessageType, messages: impl Stream<Item = Result<Bytes, Aborted>>)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(io);
    tokio::pin!(messages);
    let data = match form {
        MessageType::Text => opcode::TEXT,
        MessageType::Binary => opcode::BINARY,
    };
    let mut incoming = Incoming::default();
    loop {
        let (frame, is_last) = tokio::select! {
            message = messages.next() => match message {
                Some(Ok(payload)) => (frame(data, &payload), false),
                Some(Err(Aborted)) => (close_frame(close::INTERNAL_ERROR), true),
                None => (close_frame(close::NORMAL), true),
            },
            heard = incoming.next(&mut reader) => match heard {
                Heard::Ping(payload) => (frame(opcode::PONG, &payload), false),
                Heard::Close => (close_frame(close::NORMAL), true),
                Heard::Nonsense => (close_frame(close::PROTOCOL_ERROR), true),
                Heard::Gone => return,
            },
        };
        let sent = async {
            writer.write_all(&frame).await?;
            writer.flush().await
        };
        if !matches!(tokio::time::timeout(WRITE_STALL, sent).await, Ok(Ok(()))) {
            return;
        }
        if is_last {
            let _ = tokio::time::timeout(WRITE_STALL, writer.shutdown()).await;
            return;
        }
    }
}

/// A frame from the client.
enum Heard {
    Ping(Vec<u8>),
    Close,
    /// Bytes that are not a valid frame from a client.
    Nonsense,
    /// The connection ended.
    Gone,
}

/// Bytes from the client that do not form a whole frame yet. A cancelled read loses nothing.
#[derive(Default)]
struct Incoming {
    buffer: Vec<u8>,
    /// Remaining payload bytes of a data frame, which are discarded.
    skip: u64,
}

impl Incoming {
    async fn next(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> Heard {
        loop {
            match self.take() {
                Some(heard) => return heard,
                None => {
                    let mut piece = [0; 4096];
                    match reader.read(&mut piece).await {
                        Ok(0) | Err(_) => return Heard::Gone,
                        Ok(len) => self.buffer.extend_from_slice(&piece[..len]),
                    }
                }
            }
        }
    }

    /// Returns the next relevant frame among those that arrived completely.
    fn take(&mut self) -> Option<Heard> {
        loop {
            let skipped = self.skip.min(self.buffer.len() as u64);
            self.buffer.drain(..skipped as usize);
            self.skip -= skipped;
            let head = FrameHead::read(&self.buffer)?;
            if !head.is_sound() {
                return Some(Heard::Nonsense);
            }
            let mask = head.mask(&self.buffer)?;
            if !head.is_control() {
                self.buffer.drain(..head.bytes());
                self.skip = head.len;
                continue;
            }
            let end = head.bytes() + head.len as usize;
            let masked = self.buffer.get(head.bytes()..end)?;
            let payload: Vec<u8> =
                masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            self.buffer.drain(..end);
            match head.code() {
                opcode::PING => return Some(Heard::Ping(payload)),
                opcode::CLOSE => return Some(Heard::Close),
                opcode::PONG => {}
                _ => return Some(Heard::Nonsense),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_subprotocol_that_is_not_a_token_is_chosen() {
        let token = "base64url.bearer.authorization.k8s.io.dG9rZW4";
        for (offered, want) in [
            (&[][..], None),
            (&["base64.binary.k8s.io"], Some("base64.binary.k8s.io")),
            (&["v2, v1"], Some("v2")),
            (&["v2", "v1"], Some("v2")),
            (&[token], None),
            (&[&*format!("{token}, base64.binary.k8s.io")], Some("base64.binary.k8s.io")),
            (&[token, "binary.k8s.io"], Some("binary.k8s.io")),
            (&[" , "], None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            for value in offered {
                headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(chosen(&headers).as_ref().map(|name| name.to_str().unwrap()), want, "{offered:?}");
        }
    }

    /// Returns a frame as a client sends it.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = frame(first, payload);
        out[0] = first;
        out[1] |= 0x80;
        let head = out.len() - payload.len();
        let mask = [1, 2, 3, 4];
        out.splice(head..head, mask);
        out.iter_mut().skip(head + 4).zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        out
    }

    async fn answers(sent: &[u8], messages: Vec<Result<Bytes, Aborted>>) -> Vec<u8> {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (mut reader, mut writer) = tokio::io::split(client);
        let waits = !sent.is_empty();
        let messages = futures_util::stream::iter(messages).chain(futures_util::stream::once(async move {
            if waits { std::future::pending().await } else { Err(Aborted) }
        }));
        writer.write_all(sent).await.unwrap();
        let mut heard = Vec::new();
        let (_, read) =
            tokio::join!(converse(server, MessageType::Text, messages), reader.read_to_end(&mut heard));
        read.unwrap();
        heard
    }

    #[test]
    fn the_websocket_handshake_follows_rfc_6455() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="); // RFC 6455 §1.3
        for (connection, upgrade, version, want) in [
            ("Upgrade", "websocket", "13", true),
            ("keep-alive, upgrade", "WebSocket", "13", true),
            ("keep-alive", "websocket", "13", false),
            ("Upgrade", "SPDY/3.1", "13", false),
            ("Upgrade", "websocket", "8", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, connection.parse().unwrap());
            headers.insert(UPGRADE, upgrade.parse().unwrap());
            headers.insert(SEC_WEBSOCKET_VERSION, version.parse().unwrap());
            assert_eq!(requests_websocket(&headers), want, "{connection} {upgrade} {version}");
        }
    }

    #[tokio::test]
    async fn websocket_messages_are_sent_as_frames_followed_by_a_close_frame() {
        let long = Bytes::from(vec![b'x'; 70_000]);
        let heard = answers(b"", vec![Ok("a".into()), Ok(vec![b'y'; 200].into()), Ok(long.clone())]).await;
        let want =
            [frame(1, b"a"), frame(1, &[b'y'; 200]), frame(1, &long), close_frame(close::INTERNAL_ERROR)]
                .concat();
        assert_eq!(heard, want);
        assert_eq!((&heard[..3], &heard[3..7]), (&[0x81, 1, b'a'][..], &[0x81, 126, 0, 200][..]));
    }

    #[tokio::test]
    async fn pings_are_answered_data_is_ignored_and_invalid_frames_close_the_connection() {
        let close = |code: u16| frame(opcode::CLOSE, &code.to_be_bytes());
        let (normal, wrong) = (close(close::NORMAL), close(close::PROTOCOL_ERROR));
        for (sent, want) in [
            (masked(0x88, b""), normal.clone()),
            ([masked(0x89, b"hi"), masked(0x88, b"")].concat(), [frame(10, b"hi"), normal.clone()].concat()),
            ([masked(0x82, &[0; 100_000]), masked(0x88, b"")].concat(), normal.clone()),
            (
                [masked(0x01, b"a"), masked(0x80, b"b"), masked(0x8a, b""), masked(0x88, b"")].concat(),
                normal.clone(),
            ),
            (frame(9, b"unmasked"), wrong.clone()),
            (masked(0x09, b"a control frame in pieces"), wrong.clone()),
            (masked(0x89, &[0; 126]), wrong.clone()),
            (masked(0xc2, b"reserved bit"), wrong.clone()),
            (masked(0x8b, b"reserved opcode"), wrong.clone()),
            (vec![0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], wrong.clone()),
        ] {
            assert_eq!(answers(&sent, Vec::new()).await, want, "{:?}", &sent[..sent.len().min(12)]);
        }
    }
}
