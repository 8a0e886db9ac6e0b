//! A connection through a konnectivity server: the packets of its `ProxyService`, over gRPC
//! (docs/api/egress.md).
//!
//! ```text
//! DIAL_REQ ─► DIAL_RSP ─► DATA … DATA in both directions ─► CLOSE_REQ ─► CLOSE_RSP
//! ```
//!
//! Each connection is one gRPC call over its own HTTP/2 connection. Closing one direction of a connection
//! also closes the other direction.

use std::convert::Infallible;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{FutureExt, stream};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc::{self, Sender};
use tokio::task::AbortHandle;

use super::Failure;
use crate::http2::{self, any_body};
use crate::stream::AnyStream;

/// The gRPC method of the proxy service.
const METHOD: &str = "http://localhost/ProxyService/Proxy";

/// Number of bytes that are buffered before the other side takes them, in each direction.
const BUFFER_BYTES: usize = 64 * 1024;

/// Maximum size of a packet that this side sends, in bytes.
const SENT_BYTES_MAX: usize = 32 * 1024;

/// Maximum size of a packet that this side accepts, in bytes.
const TAKEN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of packets that wait to be sent.
const WAITING_MAX: usize = 2;

/// Time limit for the reply to a CLOSE_REQ.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Length of the prefix of a gRPC message: a compression flag, and the length of the message.
const PREFIX_BYTES: usize = 5;

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(enumeration = "Kind", tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    dial: Option<Dial>,
    #[prost(message, optional, tag = "3")]
    dialed: Option<Dialed>,
    #[prost(message, optional, tag = "4")]
    data: Option<Data>,
    #[prost(message, optional, tag = "5")]
    close: Option<Close>,
    #[prost(message, optional, tag = "6")]
    closed: Option<Closed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    DialRequest = 0,
    DialResponse = 1,
    CloseRequest = 2,
    CloseResponse = 3,
    Data = 4,
    DialClose = 5,
}

#[derive(Clone, PartialEq, Message)]
struct Dial {
    #[prost(string, tag = "1")]
    protocol: String,
    #[prost(string, tag = "2")]
    address: String,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Dialed {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connection: i64,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(int64, tag = "1")]
    connection: i64,
    #[prost(string, tag = "2")]
    error: String,
    #[prost(bytes = "bytes", tag = "3")]
    data: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Close {
    #[prost(int64, tag = "1")]
    connection: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Closed {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connection: i64,
}

/// Connects to `target` (`host:port`) through the konnectivity server at the other end of `stream`.
///
/// # Errors
/// The server reports why it cannot connect, or it is not a konnectivity server.
pub(super) async fn connect_to(stream: AnyStream, target: &str) -> Result<AnyStream, Failure> {
    let odd = |error: &dyn std::fmt::Display| Failure::Other(format!("konnectivity: {error}"));
    let begun = http2::begin(stream).await;
    let (mut sender, connection) = begun.map_err(|error| odd(&error))?;
    let connection = Driven(connection.abort_handle());
    let (packets, waiting) = mpsc::channel(WAITING_MAX);
    let body = StreamBody::new(stream::unfold(waiting, |mut waiting| async move {
        let message: Bytes = waiting.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(message)), waiting))
    }));
    let request = Request::post(METHOD)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/grpc"))
        .header(TE, HeaderValue::from_static("trailers"))
        .body(any_body(body))
        .map_err(|error| odd(&error))?;
    let random = random();
    let dial = Dial { protocol: "tcp".to_owned(), address: target.to_owned(), random };
    let dial = Packet { kind: Kind::DialRequest.into(), dial: Some(dial), ..Packet::default() };
    // Sending cannot wait: the channel has room for the first packet.
    let _ = packets.send(framed(&dial)).await;
    let response = sender.send_request(request).await.map_err(|error| odd(&error))?;
    if !response.status().is_success() {
        return Err(odd(&format!("the proxy answered {}", response.status())));
    }
    let mut incoming = Packets { body: response.into_body(), gathered: BytesMut::new() };
    let id = loop {
        let packet = incoming.next().await?.ok_or_else(|| Failure::Other("tunnel closed".to_owned()))?;
        match (packet.kind(), packet.dialed) {
            (Kind::DialResponse, Some(dialed)) if dialed.random == random && dialed.error.is_empty() => {
                break dialed.connection;
            }
            (Kind::DialResponse, Some(dialed)) if dialed.random == random => {
                return Err(Failure::Other(dialed.error));
            }
            (Kind::DialClose, _) => return Err(Failure::Other("dial closed".to_owned())),
            _ => {}
        }
    };
    let (ours, theirs) = tokio::io::duplex(BUFFER_BYTES);
    tokio::spawn(carry(theirs, id, incoming, packets, connection).boxed());
    Ok(Box::new(ours))
}

/// The task of an HTTP/2 connection, which is aborted when this value is dropped.
struct Driven(AbortHandle);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Copies bytes between a connection and packets, until one side ends the connection.
async fn carry(
    stream: DuplexStream,
    id: i64,
    mut incoming: Packets,
    packets: Sender<Bytes>,
    _connection: Driven,
) {
    let (mut read, mut write) = tokio::io::split(stream);
    let up = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(SENT_BYTES_MAX);
            let mut room = (&mut buffer).limit(SENT_BYTES_MAX);
            if !read.read_buf(&mut room).await.is_ok_and(|read| read > 0) {
                break;
            }
            let data = Data { connection: id, data: buffer.split().freeze(), ..Data::default() };
            let packet = Packet { kind: Kind::Data.into(), data: Some(data), ..Packet::default() };
            if packets.send(framed(&packet)).await.is_err() {
                break;
            }
        }
        let close = Some(Close { connection: id });
        let close = Packet { kind: Kind::CloseRequest.into(), close, ..Packet::default() };
        let _ = packets.send(framed(&close)).await;
    };
    let down = async {
        while let Ok(Some(packet)) = incoming.next().await {
            let is_over = match (packet.kind(), packet.data) {
                (Kind::Data, Some(data)) if data.connection == id => {
                    write.write_all(&data.data).await.is_err()
                }
                (kind, _) => matches!(kind, Kind::CloseResponse | Kind::DialClose),
            };
            if is_over {
                return;
            }
        }
    };
    tokio::pin!(down);
    tokio::select! {
        () = up => {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, down).await;
        }
        () = &mut down => {}
    }
}

/// The packets of the response stream.
struct Packets {
    body: Incoming,
    gathered: BytesMut,
}

impl Packets {
    /// Returns the next packet; `None` at the end.
    async fn next(&mut self) -> Result<Option<Packet>, Failure> {
        let odd = |why: String| Failure::Other(format!("konnectivity: {why}"));
        loop {
            if let Some(prefix) = self.gathered.first_chunk::<PREFIX_BYTES>() {
                let [compressed, a, b, c, d] = *prefix;
                let len = u32::from_be_bytes([a, b, c, d]) as usize;
                if compressed != 0 || len > TAKEN_BYTES_MAX {
                    return Err(odd("a packet that is compressed or too long".to_owned()));
                }
                if self.gathered.len() >= PREFIX_BYTES + len {
                    self.gathered.advance(PREFIX_BYTES);
                    let packet = Packet::decode(self.gathered.split_to(len).freeze());
                    return packet.map(Some).map_err(|error| odd(error.to_string()));
                }
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(odd(error.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.gathered.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// Returns a packet as an uncompressed gRPC message.
fn framed(packet: &Packet) -> Bytes {
    let len = packet.encoded_len();
    let mut message = BytesMut::with_capacity(PREFIX_BYTES + len);
    message.put_u8(0);
    message.put_u32(len as u32);
    // Encoding cannot fail: the buffer has enough capacity.
    let _ = packet.encode(&mut message);
    message.freeze()
}

/// Returns a number that distinguishes this dial from other dials.
fn random() -> i64 {
    let mut bytes = [0; 8];
    // If no random bytes are available, the number is 0. The number 0 is harmless, because a call makes
    // only one dial.
    let _ = getrandom::fill(&mut bytes);
    i64::from_le_bytes(bytes) & i64::MAX
}
