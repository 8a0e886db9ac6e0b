//! Compresses large responses with gzip while they are sent (docs/api/encodings.md#json-and-yaml-output).
//!
//! ```text
//! body ─► gather up to 128 KiB ─┬─ end of body ──► send unchanged
//!                               └─ more ─┬─► piece ─► task ─┐
//!                                        └─► piece ─► task ─┴─► one gzip member, in order
//! ```
//!
//! Several threads compress pieces at the same time. Each compressed piece ends on a byte boundary (RFC 1951,
//! an empty stored block), so the concatenated pieces are one stream. The checksum of the stream is combined
//! from the checksums of the pieces (RFC 1952). While a response is compressed, it needs memory for at most
//! one piece per task. This module does not interpret the bytes; the caller decides which responses may be
//! compressed.

use std::collections::VecDeque;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::thread::available_parallelism;

use bytes::Bytes;
use flate2::{Compress, CompressError, Compression, FlushCompress};
use futures_util::Stream;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::task::JoinHandle;

use crate::response::Response;
use crate::server::{Aborted, Body};
use values::memory::{Account, Charge};

/// Bodies up to this size are not compressed. On a fast network, a small body arrives sooner without
/// compression.
const THRESHOLD_BYTES: usize = 128 * 1024;

/// Number of bytes that one task compresses. The compression takes about 300 µs. Each piece is compressed
/// independently, so smaller pieces would cost the client more network time than they save.
const PIECE_BYTES: usize = 128 * 1024;

/// Initial capacity of the buffer for a compressed piece, and the amount by which the buffer grows.
const OUTPUT_BYTES: usize = 32 * 1024;

/// Maximum number of pieces that are being compressed or wait for an earlier piece.
const TASKS_MAX: usize = 5;

/// Memory for compressing one piece: the piece, its compressed form, and the window and tables of the
/// encoder.
const TASK_BYTES: usize = 2 * PIECE_BYTES + 320 * 1024;

/// Returns whether the first `Accept-Encoding` header names gzip. Weights are not interpreted: neither
/// `gzip;q=0` nor `gzip;q=1` matches.
pub fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|token| token.trim() == "gzip")
}

/// Compresses the response if its body is larger than 128 KiB. If the length of the body is unknown, this
/// function reads up to 128 KiB of the body first. The response is returned unchanged if no memory is left
/// for compression.
pub async fn gzip(response: Response, account: &Account) -> Response {
    let size = response.body().size_hint();
    if size.exact().is_some_and(|bytes| bytes <= THRESHOLD_BYTES as u64) {
        return response;
    }
    // Use as many tasks as the memory allows.
    let mut charges = Vec::new();
    while charges.len() < *TASKS
        && let Ok(charge) = account.try_answer(TASK_BYTES)
    {
        charges.push(charge);
    }
    if charges.is_empty() {
        return response;
    }
    let (mut head, mut body) = response.into_parts();
    let mut ready = VecDeque::new();
    let mut bytes = 0;
    while bytes <= THRESHOLD_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    bytes += piece.len();
                    ready.push_back(piece);
                }
            }
            // The client gets the bytes that were read so far, and then a broken transfer.
            Some(Err(Aborted)) => {
                let pieces = ready.into_iter().map(Ok).chain([Err(Aborted)]);
                return http::Response::from_parts(head, Body::stream(futures_util::stream::iter(pieces)));
            }
            None => return http::Response::from_parts(head, Body::parts(ready)),
        }
    }
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    let gzip = Gzip {
        ready,
        body,
        is_taken: false,
        idle: charges.iter().map(|_| None).collect(),
        tasks: VecDeque::new(),
        checksum: Checksum::default(),
        bytes: 0,
        step: Step::Head,
        _charges: charges,
    };
    http::Response::from_parts(head, Body::stream(gzip))
}

/// Number of tasks that compress one response on this machine: the number of processors plus one, at most
/// [`TASKS_MAX`]. The additional task keeps all processors busy while a compressed piece waits for an earlier
/// piece.
static TASKS: LazyLock<usize> =
    LazyLock::new(|| (available_parallelism().map_or(1, NonZero::get) + 1).min(TASKS_MAX));

/// Header of a gzip member: deflate, no name, no time, fastest compression, unknown operating system (RFC
/// 1952, 2.3).
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

/// The last block of the stream: final, fixed codes, empty (RFC 1951, 3.2.6).
const LAST_BLOCK: [u8; 2] = [3, 0];

/// The next part of the compressed response to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Head,
    Pieces,
    /// All pieces have been given to tasks.
    Tail,
    Over,
}

/// An encoder that is reused for several pieces.
type Encoder = Compress;

/// A compressed piece.
struct Encoded {
    encoder: Encoder,
    bytes: Vec<u8>,
    checksum: Checksum,
    /// Uncompressed size of the piece.
    read_bytes: u64,
}

/// Checksum of uncompressed bytes.
type Checksum = crc32fast::Hasher;

/// A compressed response body.
struct Gzip {
    /// Pieces that were read from the body and not yet compressed.
    ready: VecDeque<Bytes>,
    body: Body,
    /// Whether the body was read to its end.
    is_taken: bool,
    /// Encoders of tasks that are not running; `None` stands for an encoder that was not created yet.
    idle: Vec<Option<Encoder>>,
    tasks: VecDeque<JoinHandle<Result<Encoded, CompressError>>>,
    checksum: Checksum,
    /// Number of uncompressed bytes so far.
    bytes: u64,
    step: Step,
    _charges: Vec<Charge>,
}

impl Gzip {
    /// Returns the next bytes to encode, at most [`PIECE_BYTES`] in several parts.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Vec<Bytes>, Aborted>>> {
        // If the body is not ready to deliver more, the bytes that were gathered so far stay in `ready`.
        while self.ready.iter().map(Bytes::len).sum::<usize>() < PIECE_BYTES && !self.is_taken {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.ready.extend(frame.into_data()),
                Poll::Ready(Some(Err(aborted))) => return Poll::Ready(Some(Err(aborted))),
                Poll::Ready(None) => self.is_taken = true,
                // If no task is running, a short piece is compressed instead of waiting for more bytes.
                Poll::Pending if self.tasks.is_empty() && !self.ready.is_empty() => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        let (mut piece, mut bytes) = (Vec::new(), 0);
        while bytes < PIECE_BYTES
            && let Some(mut part) = self.ready.pop_front()
        {
            if bytes + part.len() > PIECE_BYTES {
                self.ready.push_front(part.split_off(PIECE_BYTES - bytes));
            }
            bytes += part.len();
            piece.push(part);
        }
        Poll::Ready((bytes > 0).then_some(Ok(piece)))
    }

    /// Starts tasks for the next pieces until no encoder is idle.
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), Aborted> {
        while self.step == Step::Pieces && !self.idle.is_empty() {
            match self.poll_piece(cx) {
                Poll::Pending => break,
                Poll::Ready(None) => self.step = Step::Tail,
                Poll::Ready(Some(piece)) => {
                    let piece = piece?;
                    let encoder = self.idle.pop().flatten();
                    self.tasks.push_back(tokio::spawn(async move { encode(encoder, &piece) }));
                }
            }
        }
        Ok(())
    }

    fn tail(&self) -> Bytes {
        let mut tail = LAST_BLOCK.to_vec();
        tail.extend(self.checksum.clone().finalize().to_le_bytes());
        // The length is stored modulo 2^32.
        tail.extend((self.bytes as u32).to_le_bytes());
        tail.into()
    }
}

/// Compresses one piece independently of the others.
fn encode(encoder: Option<Encoder>, piece: &[Bytes]) -> Result<Encoded, CompressError> {
    let mut encoder = match encoder {
        Some(mut encoder) => {
            encoder.reset();
            encoder
        }
        None => Compress::new(Compression::new(1), false),
    };
    let mut bytes = Vec::with_capacity(OUTPUT_BYTES);
    let mut checksum = Checksum::new();
    for (at, part) in piece.iter().enumerate() {
        checksum.update(part);
        let flush = if at + 1 == piece.len() { FlushCompress::Sync } else { FlushCompress::None };
        let before = encoder.total_in();
        loop {
            let read = (encoder.total_in() - before) as usize;
            encoder.compress_vec(&part[read..], &mut bytes, flush)?;
            let is_read = (encoder.total_in() - before) as usize == part.len();
            // If the buffer has room left, the encoder has written everything.
            if is_read && bytes.len() < bytes.capacity() {
                break;
            }
            bytes.reserve(OUTPUT_BYTES);
        }
    }
    let read_bytes = piece.iter().map(|part| part.len() as u64).sum();
    Ok(Encoded { encoder, bytes, checksum, read_bytes })
}

impl Stream for Gzip {
    type Item = Result<Bytes, Aborted>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.step == Step::Head {
            self.step = Step::Pieces;
            return Poll::Ready(Some(Ok(Bytes::from_static(&HEAD))));
        }
        if self.step == Step::Over {
            return Poll::Ready(None);
        }
        if let Err(aborted) = self.start(cx) {
            self.step = Step::Over;
            return Poll::Ready(Some(Err(aborted)));
        }
        let Some(task) = self.tasks.front_mut() else {
            if self.step == Step::Pieces {
                return Poll::Pending; // the body wakes the task
            }
            self.step = Step::Over;
            return Poll::Ready(Some(Ok(self.tail())));
        };
        let encoded = ready!(Pin::new(task).poll(cx));
        self.tasks.pop_front();
        match encoded.map_err(|error| error.to_string()).and_then(|it| it.map_err(|error| error.to_string()))
        {
            Ok(encoded) => {
                self.checksum.combine(&encoded.checksum);
                self.bytes += encoded.read_bytes;
                self.idle.push(Some(encoded.encoder));
                Poll::Ready(Some(Ok(encoded.bytes.into())))
            }
            Err(error) => {
                tracing::error!(%error, "a response could not be compressed");
                self.step = Step::Over;
                Poll::Ready(Some(Err(Aborted)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| b'a' + (at * at % 23) as u8).collect()
    }

    /// Returns whether a response body was compressed, and its uncompressed bytes.
    async fn sent(body: Body) -> (bool, Result<Vec<u8>, Aborted>) {
        let response = gzip(http::Response::new(body), &Account::detached()).await;
        let is_encoded = response.headers().get(CONTENT_ENCODING).is_some_and(|value| value == "gzip");
        assert_eq!(response.headers().contains_key(VARY), is_encoded);
        assert!(!is_encoded || response.body().size_hint().exact().is_none());
        let body = match response.into_body().collect().await {
            Ok(body) => body.to_bytes().to_vec(),
            Err(aborted) => return (is_encoded, Err(aborted)),
        };
        if !is_encoded {
            return (false, Ok(body));
        }
        let mut decoded = Vec::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut decoded).unwrap();
        (true, Ok(decoded))
    }

    #[test]
    fn gzip_is_accepted_by_its_bare_name_in_the_first_header() {
        for (headers, accepted) in [
            (&["gzip"][..], true),
            (&["deflate, gzip , br"], true),
            (&["gzip;q=0.5"], false),
            (&["x-gzip"], false),
            (&["GZIP"], false),
            (&["*"], false),
            (&["br", "gzip"], false),
            (&[], false),
        ] {
            let mut map = HeaderMap::new();
            for value in headers {
                map.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(is_accepted(&map), accepted, "{headers:?}");
        }
    }

    #[tokio::test]
    async fn only_bodies_larger_than_128_kib_are_compressed_and_all_arrive_whole() {
        for (bytes, piece, want) in [
            (0, 1000, false),
            (10, 3, false),
            (THRESHOLD_BYTES, THRESHOLD_BYTES, false),
            (THRESHOLD_BYTES, 1000, false),
            (THRESHOLD_BYTES + 1, 1000, true),
            (THRESHOLD_BYTES + 1, THRESHOLD_BYTES + 1, true),
            (3_000_000, 65_536, true),
            (3_000_000, 3_000_000, true),
        ] {
            let text = text(bytes);
            let pieces: Vec<Bytes> = text.chunks(piece).map(Bytes::copy_from_slice).collect();
            let stream = Body::stream(futures_util::stream::iter(pieces.clone().into_iter().map(Ok)));
            for body in [stream, Body::parts(pieces), Body::full(text.clone())] {
                let shown = format!("{body:?} {bytes} in pieces of {piece}");
                let (is_encoded, got) = sent(body).await;
                assert_eq!(is_encoded, want, "{shown}");
                assert!(got.unwrap() == text, "{shown}");
            }
        }
    }

    #[tokio::test]
    async fn a_compressed_body_fails_if_its_source_is_aborted() {
        for pieces in [1, 3, 40] {
            let whole = std::iter::repeat_n(Bytes::from(text(10_000)), pieces).map(Ok);
            let body = Body::stream(futures_util::stream::iter(whole.chain([Err(Aborted)])));
            assert!(sent(body).await.1.is_err(), "{pieces}");
        }
    }
}
