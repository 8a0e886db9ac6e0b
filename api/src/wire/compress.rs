//! gzip of large responses while they are sent (docs/api/encodings.md#json-and-yaml-output).
//!
//! ```text
//! body ─► gathered up to 128 KiB ─┬─ it ends ──► sent as it is
//!                                 └─ more ─────► gathered pieces, then the rest, through one encoder
//! ```
//!
//! A compressed list holds one piece and the encoder's window, little more than an uncompressed one. This module does
//! not interpret the bytes; the caller decides which responses may be compressed.

use std::collections::VecDeque;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::Stream;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use crate::values::memory::{Account, Charge};
use crate::wire::response::Response;
use crate::wire::server::{Aborted, Body};

/// Bodies up to this size are sent as they are: on a fast network they arrive sooner so.
const THRESHOLD_BYTES: usize = 128 * 1024;

/// Bytes encoded in one go: about 150 µs, which other requests on the same thread do not notice.
const PIECE_BYTES: usize = 64 * 1024;

/// Encoded bytes worth handing on: a TLS record.
const OUTPUT_BYTES: usize = 16 * 1024;

/// What compressing an answer takes: the pieces gathered before it begins, the encoder's window and tables, its output.
const MEMORY_BYTES: usize = 512 * 1024;

/// Whether the first `Accept-Encoding` header names gzip. Weights are not read: `gzip;q=0` does not name it, and
/// neither does `gzip;q=1`.
pub fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|token| token.trim() == "gzip")
}

/// The response, compressed if its body is larger than 128 KiB. Takes from a body that is made on demand until
/// that is known. Without memory for it, it is sent as it is.
pub async fn gzip(response: Response, account: &Account) -> Response {
    let size = response.body().size_hint();
    if size.exact().is_some_and(|bytes| bytes <= THRESHOLD_BYTES as u64) {
        return response;
    }
    let Ok(charge) = account.try_answer(MEMORY_BYTES) else { return response };
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
            // The transfer is cut after the bytes sent so far.
            Some(Err(Aborted)) => {
                let pieces = ready.into_iter().map(Ok).chain([Err(Aborted)]);
                return http::Response::from_parts(head, Body::stream(futures_util::stream::iter(pieces)));
            }
            None => return http::Response::from_parts(head, Body::parts(ready)),
        }
    }
    head.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    let encoder = GzEncoder::new(Vec::with_capacity(2 * OUTPUT_BYTES), Compression::new(1));
    http::Response::from_parts(
        head,
        Body::stream(Gzip { ready, body, encoder: Some(encoder), _charge: charge }),
    )
}

/// The encoded body.
struct Gzip {
    /// Pieces taken from the body already.
    ready: VecDeque<Bytes>,
    body: Body,
    /// `None` once the end was written.
    encoder: Option<GzEncoder<Vec<u8>>>,
    _charge: Charge,
}

impl Gzip {
    /// The next bytes to encode, at most [`PIECE_BYTES`].
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        let mut piece = match self.ready.pop_front() {
            Some(piece) => piece,
            None => match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(aborted)) => return Poll::Ready(Some(Err(aborted))),
                None => return Poll::Ready(None),
            },
        };
        if piece.len() > PIECE_BYTES {
            self.ready.push_front(piece.split_off(PIECE_BYTES));
        }
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Stream for Gzip {
    type Item = Result<Bytes, Aborted>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.encoder.is_some() {
            let piece = ready!(self.poll_piece(cx));
            let Some(mut encoder) = self.encoder.take() else { break };
            let encoded = match piece {
                Some(Ok(piece)) => encoder.write_all(&piece).map(|()| {
                    let output = encoder.get_mut();
                    let full = output.len() >= OUTPUT_BYTES;
                    let taken = full.then(|| std::mem::replace(output, Vec::with_capacity(2 * OUTPUT_BYTES)));
                    self.encoder = Some(encoder);
                    taken
                }),
                Some(Err(aborted)) => return Poll::Ready(Some(Err(aborted))),
                None => encoder.finish().map(Some),
            };
            match encoded {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(bytes.into()))),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "a response could not be compressed");
                    return Poll::Ready(Some(Err(Aborted)));
                }
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| b'a' + (at * at % 23) as u8).collect()
    }

    /// The body of a compressed answer, decoded, or as it is when nothing was done to it.
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
    async fn a_body_that_breaks_off_breaks_off() {
        for pieces in [1, 3, 40] {
            let whole = std::iter::repeat_n(Bytes::from(text(10_000)), pieces).map(Ok);
            let body = Body::stream(futures_util::stream::iter(whole.chain([Err(Aborted)])));
            assert!(sent(body).await.1.is_err(), "{pieces}");
        }
    }
}
