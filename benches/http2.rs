//! A minimal HTTP/2 client for watches and reads. The client keeps many GETs open over one TLS connection.
//! The caller inspects the bytes of the responses, and the client does not keep the bytes.
//!
//! Flow-control windows are as large as possible, so that the server never waits for the client. Header
//! compression is off. The client can only parse the responses of the server under test.

use std::io;

use tests::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream;

use crate::socket::Socket;

/// Size of the input buffer in bytes. A frame has at most 16 KiB and a head of 9 bytes.
const INPUT_BYTES: usize = 64 * 1024;

const HEAD_BYTES: usize = 9;

/// Size of the largest flow-control window.
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// Number of used bytes after which the client extends the window.
const WINDOW_USED_MAX: u32 = 1 << 28;

/// Frame types and flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const RESET: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The header field `:status: 200`, encoded as one byte. The byte refers to an entry of the static table.
const STATUS_200: u8 = 0x88;

/// A connection with open streams.
pub struct Streams {
    stream: TlsStream<Socket>,
    input: Box<[u8]>,
    /// Start of the unread input.
    start: usize,
    end: usize,
    /// Number of the newest stream. Streams of a client have odd numbers.
    newest: u32,
    /// Used bytes of the connection's window.
    used: u32,
    /// Number of streams with a 200 response.
    pub answered: u32,
    /// Number of streams that the server ended.
    pub ended: u32,
}

impl Streams {
    /// Connects with the client's certificate.
    pub async fn open(client: &Client) -> Streams {
        let mut stream =
            client.connect_through(true, Socket::new).await.expect("the server accepts connections");
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // The settings disable pushes and the dynamic table of header compression, and set the largest
        // window. The settings do not limit the number of streams.
        let settings = [(1u16, 0), (2, 0), (4, WINDOW_MAX)];
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        push_frame(SETTINGS, 0, 0, &settings, &mut hello);
        push_frame(WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - 65_535).to_be_bytes(), &mut hello);
        stream.write_all(&hello).await.expect("the server reads");
        stream.flush().await.expect("the server reads");
        Streams {
            stream,
            input: vec![0; INPUT_BYTES].into(),
            start: 0,
            end: 0,
            newest: 0,
            used: 0,
            answered: 0,
            ended: 0,
        }
    }

    /// Opens another stream with a GET. This function does not wait for the response.
    pub async fn get(&mut self, path: &str, accept: &str) -> io::Result<u32> {
        self.newest = if self.newest == 0 { 1 } else { self.newest + 2 };
        // Two fields are complete entries of the static table. The other fields have a name from the table
        // and a literal value.
        let mut fields = vec![0x82, 0x87];
        for (name, value) in [(&[0x04][..], path), (&[0x01], "bench"), (&[0x0f, 0x04], accept)] {
            fields.extend_from_slice(name);
            push_length(value.len(), &mut fields);
            fields.extend_from_slice(value.as_bytes());
        }
        let mut frame = Vec::new();
        push_frame(HEADERS, END_HEADERS | END_STREAM, self.newest, &fields, &mut frame);
        self.stream.write_all(&frame).await?;
        self.stream.flush().await?;
        Ok(self.newest)
    }

    /// Waits for input and passes each piece of a response to the callback. The arguments are the number of
    /// the stream, the bytes, and the arrival time of the last byte that was read ([`Socket::arrived_us`]).
    pub async fn read(&mut self, mut look: impl FnMut(u32, &[u8], u64)) -> io::Result<()> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match self.stream.read(&mut self.input[self.end..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => self.end += bytes,
        }
        let arrived_us = self.stream.get_ref().0.arrived_us();
        let mut reply = Vec::new();
        while let Some((head, rest)) = self.input[self.start..self.end].split_first_chunk::<HEAD_BYTES>() {
            let [a, b, c, kind, flags, stream @ ..] = *head;
            let (len, stream) = (u32::from_be_bytes([0, a, b, c]), u32::from_be_bytes(stream));
            let Some(payload) = rest.get(..len as usize) else { break };
            match kind {
                DATA => {
                    self.used += len;
                    look(stream, payload, arrived_us);
                }
                HEADERS => self.answered += u32::from(payload.iter().take(4).any(|&byte| byte == STATUS_200)),
                SETTINGS if flags & ACK == 0 => push_frame(SETTINGS, ACK, 0, &[], &mut reply),
                PING if flags & ACK == 0 => push_frame(PING, ACK, 0, payload, &mut reply),
                GOAWAY => return Err(io::Error::other("the server closes the connection")),
                _ => {}
            }
            let ends = kind == RESET || (kind == DATA || kind == HEADERS) && flags & END_STREAM != 0;
            self.ended += u32::from(ends);
            self.start += HEAD_BYTES + len as usize;
        }
        if self.used > WINDOW_USED_MAX {
            push_frame(WINDOW_UPDATE, 0, 0, &self.used.to_be_bytes(), &mut reply);
            self.used = 0;
        }
        if !reply.is_empty() {
            self.stream.write_all(&reply).await?;
            self.stream.flush().await?;
        }
        Ok(())
    }

    /// Sends `count` GETs, with at most `at_once` of them unanswered, and waits for the last response.
    pub async fn get_in_turn(
        &mut self,
        path: &str,
        accept: &str,
        at_once: u32,
        count: u32,
    ) -> io::Result<()> {
        let (answered, ended) = (self.answered, self.ended);
        let mut sent = 0;
        loop {
            let done = self.ended - ended;
            while sent < count && sent - done < at_once {
                self.get(path, accept).await?;
                sent += 1;
            }
            if done == count {
                assert_eq!(self.answered - answered, count, "a request was refused");
                return Ok(());
            }
            self.read(|_, _, _| {}).await?;
        }
    }

    /// Opens `count` streams and waits until each of them has a response.
    pub async fn get_many(&mut self, path: &str, accept: &str, count: u32) -> io::Result<()> {
        let until = self.answered + count;
        for _ in 0..count {
            self.get(path, accept).await?;
        }
        while self.answered < until {
            self.read(|_, _, _| {}).await?;
            assert_eq!(self.ended, 0, "a stream was refused");
        }
        Ok(())
    }
}

fn push_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Encodes a length as an integer with a prefix of seven bits (RFC 7541 §5.1).
fn push_length(len: usize, out: &mut Vec<u8>) {
    if len < 127 {
        return out.push(len as u8);
    }
    out.push(127);
    let mut rest = len - 127;
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}
