//! The part of SPDY/3.1 that a client of a node agent needs: streams that the client opens, data in both
//! directions, stream ends and pings (SPDY protocol draft 3.1, sections 2.2 and 2.6).
//!
//! ```text
//! control frame: 1 | version 3 (15 bits) | type (16) | flags (8) | length (24) | payload
//! data frame:    0 | stream (31 bits)                | flags (8) | length (24) | payload
//! ```
//!
//! Headers are sent in stored blocks of one zlib stream, which every decoder can read. Headers of the agent are
//! skipped, because this server does not need them. This module has no flow control, because agents do not
//! implement flow control. Therefore a slow reader stops the whole connection. Payloads are returned in pieces,
//! so a frame of any length needs only one buffer of fixed size.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Flag that ends a direction of a stream.
pub const FLAG_FIN: u8 = 1;

/// Maximum size of the headers of a stream that this server opens, because a stored block has a length of 16
/// bits.
const HEADERS_BYTES_MAX: usize = u16::MAX as usize;

/// Maximum number of bytes that are returned at once.
const PIECE_BYTES: usize = 8 * 1024;

mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const PING: u16 = 6;
}

/// Encodes the headers of streams. Use one value per direction of a connection, because blocks share a zlib
/// stream.
#[derive(Default)]
pub struct Headers {
    is_begun: bool,
}

impl Headers {
    /// Returns a frame that opens a stream. Header names must be in lower case.
    pub fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.extend_from_slice(&(text.len() as u32).to_be_bytes());
            block.extend_from_slice(text.as_bytes());
        }
        assert!(block.len() <= HEADERS_BYTES_MAX, "headers of streams are a few words");
        let mut payload = stream.to_be_bytes().to_vec();
        payload.extend_from_slice(&[0; 6]); // no associated stream, highest priority
        if !std::mem::replace(&mut self.is_begun, true) {
            payload.extend_from_slice(&[0x78, 0x01]); // a zlib stream without a dictionary (RFC 1950, section 2.2)
        }
        let len = block.len() as u16;
        payload.push(0); // a stored block that is not the last block (RFC 1951, section 3.2.4)
        payload.extend_from_slice(&len.to_le_bytes());
        payload.extend_from_slice(&(!len).to_le_bytes());
        payload.extend_from_slice(&block);
        // An empty block is a flush point. At a flush point, the decoders of agents return their output; without the
        // flush point, the decoders would wait for more input and fail.
        payload.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
        control(kind::SYN_STREAM, &payload)
    }
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Returns a data frame. The payload must be shorter than 2^24 bytes.
pub fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(8 + payload.len());
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(&(payload.len() as u32 | u32::from(flags) << 24).to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Returns the response to a ping.
pub fn ping(id: [u8; 4]) -> Vec<u8> {
    control(kind::PING, &id)
}

/// An item received from the agent.
#[derive(Debug, Eq, PartialEq)]
pub enum SpdyEvent<'b> {
    /// A piece of a stream's data, and whether the stream ends with this piece.
    Data(u32, &'b [u8], bool),
    /// The agent aborted a stream.
    Reset(u32),
    /// A ping that needs a response.
    Ping([u8; 4]),
    /// The connection has ended.
    Gone,
}

/// Reads frames. A cancelled read loses no data.
pub struct Reader<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Range of the bytes in the buffer that have not been returned yet.
    filled: std::ops::Range<usize>,
    /// The data frame whose payload is being received: the number of its stream, the number of remaining bytes,
    /// and whether the frame ends the stream.
    within: Option<(u32, usize, bool)>,
    /// Number of remaining bytes of a control frame to skip.
    skipped: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Returns a reader for a connection.
    pub fn new(reader: R) -> Reader<R> {
        Reader { reader, buffer: vec![0; PIECE_BYTES], filled: 0..0, within: None, skipped: 0 }
    }

    /// Returns the next relevant frame, or a piece of a data frame.
    ///
    /// # Errors
    /// The connection failed, or the data is not SPDY.
    pub async fn next(&mut self) -> io::Result<SpdyEvent<'_>> {
        loop {
            let skipped = self.skipped.min(self.filled.len());
            self.filled.start += skipped;
            self.skipped -= skipped;
            if let Some((stream, left, ends)) = self.within
                && (left == 0 || !self.filled.is_empty())
            {
                let len = left.min(self.filled.len());
                let piece = self.filled.start..self.filled.start + len;
                self.filled.start += len;
                let is_last = len == left;
                self.within = (!is_last).then_some((stream, left - len, ends));
                return Ok(SpdyEvent::Data(stream, &self.buffer[piece], ends && is_last));
            }
            if self.within.is_none() && self.skipped == 0 {
                let before = self.filled.start;
                if let Some(heard) = self.begin()? {
                    return Ok(heard);
                }
                if self.filled.start != before {
                    continue;
                }
            }
            if self.wants_more() && self.fill().await? == 0 {
                let is_clean = self.filled.is_empty() && self.within.is_none() && self.skipped == 0;
                return if is_clean { Ok(SpdyEvent::Gone) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// Returns whether the buffered bytes are not enough to proceed.
    fn wants_more(&self) -> bool {
        match self.within {
            Some(_) => self.filled.is_empty(),
            None => self.skipped > 0 || self.filled.len() < 8 || self.needs() > self.filled.len(),
        }
    }

    /// Returns how many bytes of the next frame must be buffered before the frame can be processed.
    fn needs(&self) -> usize {
        let head = &self.buffer[self.filled.clone()];
        match (head.first(), head.get(2..4)) {
            (Some(first), Some(&[0, kind])) if first & 0x80 != 0 => match u16::from(kind) {
                kind::PING => 12,
                kind::RST_STREAM => 16,
                _ => 8,
            },
            _ => 8,
        }
    }

    /// Begins the next frame, if enough bytes of the frame are buffered. The state of the reader contains the
    /// remaining steps.
    fn begin(&mut self) -> io::Result<Option<SpdyEvent<'static>>> {
        if self.filled.len() < 8 || self.filled.len() < self.needs() {
            return Ok(None);
        }
        let head = &self.buffer[self.filled.clone()];
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (first, second) = (word(0), word(4));
        let len = (second & 0x00ff_ffff) as usize;
        if first & 0x8000_0000 == 0 {
            self.within = Some((first, len, second >> 24 & u32::from(FLAG_FIN) != 0));
            self.filled.start += 8;
            return Ok(None);
        }
        if first >> 16 != 0x8003 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no frame of SPDY/3.1"));
        }
        let (heard, needed) = match first as u16 {
            kind::PING => (Some(SpdyEvent::Ping(word(8).to_be_bytes())), 4),
            kind::RST_STREAM => (Some(SpdyEvent::Reset(word(8) & 0x7fff_ffff)), 8),
            _ => (None, 0),
        };
        if len < needed {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame of SPDY/3.1 is too short"));
        }
        self.filled.start += 8;
        self.skipped = len;
        Ok(heard)
    }

    async fn fill(&mut self) -> io::Result<usize> {
        if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        let len = self.reader.read(&mut self.buffer[self.filled.end..]).await?;
        self.filled.end += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    #[test]
    fn streams_are_opened_with_zlib_compressed_headers() {
        let mut headers = Headers::default();
        let first = headers.open(1, &[("streamtype", "error")]);
        let second = headers.open(3, &[("streamtype", "stdin"), ("a", "")]);
        assert_eq!(first[..8], [0x80, 3, 0, 1, 0, 0, 0, (first.len() - 8) as u8]);
        assert_eq!(first[8..18], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let zlib = [&first[18..], &second[18..]].concat();
        let mut text = Vec::new();
        // The stream has no end, so the decoder reports an error at the end of the input.
        let _ = ZlibDecoder::new(&zlib[..]).read_to_end(&mut text);
        assert!(first.ends_with(&[0, 0, 0, 0xff, 0xff]));
        let want = b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x05error\0\0\0\x02\0\0\0\x0astreamtype\0\0\0\x05stdin\0\0\0\x01a\0\0\0\0";
        assert_eq!(text, want);
    }

    #[tokio::test]
    async fn spdy_frames_are_read_from_fragments_of_any_size() {
        let reply = control(2, &[0; 40_000]);
        let sent = [
            reply,
            data(5, 0, b"one"),
            ping([0, 0, 0, 7]),
            data(7, FLAG_FIN, b""),
            control(kind::RST_STREAM, &[0, 0, 0, 9, 0, 0, 0, 5]),
            control(9, &[0; 8]),
            data(5, FLAG_FIN, &[b'x'; 20_000]),
        ]
        .concat();
        for step in [1, 3, 7, 100_000] {
            let mut reader = Reader::new(Slow { bytes: &sent, step });
            let mut heard = Vec::new();
            let mut long = 0;
            loop {
                match reader.next().await.unwrap() {
                    SpdyEvent::Gone => break,
                    SpdyEvent::Data(5, piece, ends)
                        if piece != b"one" && piece.iter().all(|b| *b == b'x') =>
                    {
                        long += piece.len();
                        if ends {
                            heard.push(format!("{long} bytes"));
                        }
                    }
                    other => heard.push(format!("{other:?}")),
                }
            }
            let heard: String = heard.join(" ");
            let tail = "Ping([0, 0, 0, 7]) Data(7, [], true) Reset(9) 20000 bytes";
            assert!(heard.ends_with(tail), "{step}: {heard}");
        }
    }

    #[tokio::test]
    async fn bytes_that_are_not_spdy_are_an_error() {
        for (sent, want) in [
            (&b"\x80\x02\0\x01\0\0\0\0"[..], "no frame of SPDY/3.1"),
            (b"\x80\x03\0\x06\0\0\0\x01....", "a frame of SPDY/3.1 is too short"),
            (b"\0\0\0\x01\0\0\0\x05abc", "unexpected end of file"),
            (b"\0\0", "unexpected end of file"),
        ] {
            let mut reader = Reader::new(sent);
            let error = loop {
                match reader.next().await {
                    Ok(SpdyEvent::Gone) => panic!("{sent:?}"),
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(error.to_string(), want);
        }
    }

    /// A reader that returns a few bytes at a time.
    struct Slow<'b> {
        bytes: &'b [u8],
        step: usize,
    }

    impl AsyncRead for Slow<'_> {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            out: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            let len = self.step.min(self.bytes.len()).min(out.remaining());
            let (now, later) = self.bytes.split_at(len);
            out.put_slice(now);
            self.bytes = later;
            std::task::Poll::Ready(Ok(()))
        }
    }
}
