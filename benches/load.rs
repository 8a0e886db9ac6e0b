//! A load client of minimal cost. The client sends prepared requests, counts the bytes of the responses, and
//! drops these bytes.
//!
//! The client uses HTTP/1.1 over TLS with one request at a time per connection. The client can parse only
//! responses with a length and chunked responses, as the server under test writes them.

use std::io;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tests::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream;

use crate::socket::Socket;

/// Size of the input buffer in bytes. The buffer has space for several TLS records.
const INPUT_BYTES: usize = 64 * 1024;

/// A connection to the server for one request at a time.
pub struct Connection {
    stream: TlsStream<Socket>,
    input: Box<[u8]>,
    /// Start of the unread input.
    start: usize,
    end: usize,
}

/// Framing of the body of a response.
enum Framing {
    Length(u64),
    Chunked,
}

/// A complete response, without its body.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Status code of the response.
    pub status: u16,
    /// Number of bytes in the body.
    pub body_bytes: u64,
    /// Time when the first bytes of the body arrived.
    pub first_byte: Instant,
}

/// Returns a complete request, with a JSON body unless `body` is empty.
pub fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    request_of("application/json", method, path, body)
}

/// Returns a complete request, with a body of the given media type unless `body` is empty.
pub fn request_of(media_type: &str, method: &str, path: &str, body: &str) -> Vec<u8> {
    let content = match body.len() {
        0 => String::new(),
        len => format!("content-type: {media_type}\r\ncontent-length: {len}\r\n"),
    };
    format!("{method} {path} HTTP/1.1\r\nhost: bench\r\naccept: application/json\r\n{content}\r\n{body}")
        .into_bytes()
}

/// Returns a GET request with additional headers.
pub fn get(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    (text + "\r\n").into_bytes()
}

impl Connection {
    /// Connects with the client's certificate.
    pub async fn open(client: &Client) -> Connection {
        let stream =
            client.connect_through(false, Socket::new).await.expect("the server accepts connections");
        Connection { stream, input: vec![0; INPUT_BYTES].into(), start: 0, end: 0 }
    }

    /// Sends a request and reads its complete response. Calls `look` with each piece of the body.
    pub async fn exchange(&mut self, request: &[u8], mut look: impl FnMut(&[u8])) -> io::Result<Answer> {
        self.send(request).await?;
        let (status, framing) = self.head().await?;
        let mut body = Body { left: 0, chunked: false, begun: false, ended: false };
        match framing {
            Framing::Length(bytes) => body = Body { left: bytes, ended: bytes == 0, ..body },
            Framing::Chunked => body.chunked = true,
        }
        let mut first_byte = None;
        let mut body_bytes = 0;
        while let Some(piece) = self.piece(&mut body).await? {
            first_byte.get_or_insert_with(Instant::now);
            body_bytes += piece.len() as u64;
            look(piece);
        }
        Ok(Answer { status, body_bytes, first_byte: first_byte.unwrap_or_else(Instant::now) })
    }

    /// Sends a request like [`Connection::exchange`], and panics unless the response has `status`.
    pub async fn expect(&mut self, status: u16, request: &[u8]) -> Answer {
        let mut start = Vec::new();
        let answer =
            self.exchange(request, |piece| start.extend(piece.iter().take(300 - start.len().min(300)))).await;
        let answer = answer.expect("the server answers");
        assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&start));
        answer
    }

    /// Opens an endless stream, such as a watch.
    pub async fn follow(mut self, request: &[u8]) -> Stream {
        self.send(request).await.expect("the server takes requests");
        let (status, framing) = self.head().await.expect("the server answers");
        assert!(status == 200 && matches!(framing, Framing::Chunked), "{status}");
        Stream { connection: self, body: Body { left: 0, chunked: true, begun: false, ended: false } }
    }

    async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await
    }

    /// Reads the head of a response. Returns the status and the framing of the body.
    async fn head(&mut self) -> io::Result<(u16, Framing)> {
        let mut looked = 0;
        let len = loop {
            let input = &self.input[self.start..self.end];
            if let Some(at) = input[looked..].windows(4).position(|window| window == b"\r\n\r\n") {
                break looked + at + 4;
            }
            looked = input.len().saturating_sub(3);
            self.fill().await?;
        };
        let head =
            std::str::from_utf8(&self.input[self.start..self.start + len]).map_err(io::Error::other)?;
        let status = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
        let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
        let framing = match length.map(str::parse) {
            Some(bytes) => Framing::Length(bytes.map_err(io::Error::other)?),
            None => Framing::Chunked,
        };
        self.start += len;
        Ok((status, framing))
    }

    /// Returns the next bytes of a body, or `None` at the end of the body.
    async fn piece(&mut self, body: &mut Body) -> io::Result<Option<&[u8]>> {
        while body.left == 0 && !body.ended {
            if body.chunked {
                let len = self.chunk_len(body.begun).await?;
                (body.begun, body.left, body.ended) = (true, len, len == 0);
                if body.ended {
                    self.line().await?;
                }
            } else {
                body.ended = true;
            }
        }
        if body.ended {
            return Ok(None);
        }
        if self.start == self.end {
            self.fill().await?;
        }
        let len = (self.end - self.start).min(usize::try_from(body.left).unwrap_or(usize::MAX));
        body.left -= len as u64;
        body.ended = body.left == 0 && !body.chunked;
        self.start += len;
        Ok(Some(&self.input[self.start - len..self.start]))
    }

    /// Reads the length of the next chunk. If the body had another chunk before, this function first skips
    /// the line end of that chunk.
    async fn chunk_len(&mut self, after_another: bool) -> io::Result<u64> {
        if after_another {
            self.line().await?;
        }
        let line = self.line().await?;
        let text = std::str::from_utf8(line).map_err(io::Error::other)?;
        u64::from_str_radix(text, 16).map_err(io::Error::other)
    }

    /// Reads a line of the framing. The result does not include the line end.
    async fn line(&mut self) -> io::Result<&[u8]> {
        let len = loop {
            let input = &self.input[self.start..self.end];
            if let Some(len) = input.windows(2).position(|window| window == b"\r\n") {
                break len;
            }
            self.fill().await?;
        };
        self.start += len + 2;
        Ok(&self.input[self.start - len - 2..self.start - 2])
    }

    /// Reads more input and appends it to the unread bytes.
    async fn fill(&mut self) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match self.stream.read(&mut self.input[self.end..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.end += bytes;
                Ok(())
            }
        }
    }
}

/// Position in a body.
struct Body {
    /// Remaining bytes of the body, or of the current chunk.
    left: u64,
    chunked: bool,
    /// Whether the body had a chunk before.
    begun: bool,
    ended: bool,
}

/// An endless response, such as a watch.
pub struct Stream {
    connection: Connection,
    body: Body,
}

impl Stream {
    /// Waits for the next bytes of the stream.
    pub async fn next(&mut self) -> &[u8] {
        let piece = self.connection.piece(&mut self.body).await.expect("the stream goes on");
        piece.expect("the stream goes on")
    }

    /// Waits for the next bytes of the stream. Returns these bytes and the arrival time of the last read from
    /// the socket ([`Socket::arrived_us`]).
    pub async fn next_arrived(&mut self) -> (&[u8], u64) {
        let len = self.next().await.len();
        let Connection { stream, input, start, .. } = &self.connection;
        (&input[start - len..*start], stream.get_ref().0.arrived_us())
    }

    /// Reads until `lines` lines have arrived. Returns the number of bytes of these lines.
    pub async fn lines(&mut self, lines: u64) -> u64 {
        let (mut seen, mut bytes) = (0, 0);
        while seen < lines {
            let piece = self.next().await;
            bytes += piece.len() as u64;
            seen += memchr::memchr_iter(b'\n', piece).count() as u64;
        }
        assert_eq!(seen, lines, "more events than were expected");
        bytes
    }
}

/// Times of a series of requests.
pub struct Outcome {
    /// Time from the first request to the last response.
    pub elapsed: Duration,
    /// Time of each request, shortest first.
    pub latencies: Vec<Duration>,
}

impl Outcome {
    /// Returns the number of requests per second.
    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the latency that `share` of the requests did not exceed.
    pub fn quantile(&self, share: f64) -> Duration {
        let at = (self.latencies.len() as f64 * share) as usize;
        self.latencies.get(at.min(self.latencies.len() - 1)).copied().unwrap_or_default()
    }
}

/// Sends `requests` over `connections`. A connection sends its next request after the response to its
/// previous request. All responses must have `status`.
pub async fn run(connections: &mut [Connection], requests: &[Vec<u8>], status: u16) -> Outcome {
    run_at(f64::INFINITY, connections, requests, status).await
}

/// Sends requests like [`run`], but at most `rate` requests per second.
pub async fn run_at(rate: f64, connections: &mut [Connection], requests: &[Vec<u8>], status: u16) -> Outcome {
    let next = std::cell::Cell::new(0);
    let start = Instant::now();
    let latencies = join_all(connections.iter_mut().map(async |connection| {
        let mut latencies = Vec::new();
        loop {
            let at = next.replace(next.get() + 1);
            let Some(request) = requests.get(at) else { break };
            let due = start + Duration::from_secs_f64(at as f64 / rate);
            if due > Instant::now() {
                tokio::time::sleep_until(due.into()).await;
            }
            let sent = Instant::now();
            connection.expect(status, request).await;
            latencies.push(sent.elapsed());
        }
        latencies
    }))
    .await;
    let elapsed = start.elapsed();
    let mut latencies = latencies.concat();
    latencies.sort_unstable();
    Outcome { elapsed, latencies }
}

/// Opens `count` connections to the server.
pub async fn connect(client: &Client, count: usize) -> Vec<Connection> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(Connection::open(client).await);
    }
    connections
}
