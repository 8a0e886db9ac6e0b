//! The server side of SPDY/3.1, as node agents implement it. The client opens streams with headers.
//!
//! This side is independent of the server's client side, so that a mistake in one of them becomes visible.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, mpsc};

/// Dictionary for the compression of headers (SPDY protocol draft 3.1, section 2.6.10.1).
const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|\
    accept-ranges|age|allow|authorization|cache-control|connection|content-base|content-encoding|content-language|\
    content-length|content-location|content-md5|content-range|content-type|date|etag|expect|expires|from|host|if-match|\
    if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|location|max-forwards|pragma|\
    proxy-authenticate|proxy-authorization|range|referer|retry-after|server|te|trailer|transfer-encoding|upgrade|\
    user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|public|set-cookie|\
    keep-alive|origin";

const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
    Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov \
    Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
    application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-\
    1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let words = WORDS.split('|');
    let mut dictionary: Vec<u8> =
        words.flat_map(|word| [&(word.len() as u32).to_be_bytes()[..], word.as_bytes()].concat()).collect();
    dictionary.extend_from_slice(TEXT.as_bytes());
    dictionary
}

/// A stream that the client opened.
pub struct Stream {
    pub headers: HashMap<String, String>,
    /// Data of the stream; it ends when the client ends the stream.
    pub input: mpsc::Receiver<Bytes>,
    pub output: Output,
}

/// The writing side of a stream.
#[derive(Clone)]
pub struct Output {
    id: u32,
    writer: Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>,
}

impl Output {
    pub async fn write(&self, payload: &[u8]) -> std::io::Result<()> {
        self.frame(0, payload).await
    }

    /// Ends the stream in this direction.
    pub async fn finish(&self) -> std::io::Result<()> {
        self.frame(1, b"").await
    }

    async fn frame(&self, flags: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut frame = self.id.to_be_bytes().to_vec();
        frame.push(flags);
        frame.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        frame.extend_from_slice(payload);
        let mut writer = self.writer.lock().await;
        writer.write_all(&frame).await?;
        writer.flush().await
    }
}

/// Reads a connection to its end, and returns its streams as they are opened.
pub fn serve<I: AsyncRead + AsyncWrite + Send + Unpin + 'static>(io: I) -> mpsc::Receiver<Stream> {
    let (reader, writer): (ReadHalf<I>, WriteHalf<I>) = tokio::io::split(io);
    let (opened, streams) = mpsc::channel(16);
    let writer: Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>> = Arc::new(Mutex::new(Box::new(writer)));
    tokio::spawn(async move {
        // When the connection ends for any reason, the streams end as well.
        let _ = read(BufReader::new(reader), writer, opened).await;
    });
    streams
}

async fn read<R: AsyncRead + Unpin>(
    mut reader: R,
    writer: Arc<Mutex<Box<dyn AsyncWrite + Send + Unpin>>>,
    opened: mpsc::Sender<Stream>,
) -> std::io::Result<()> {
    let mut headers = Decompress::new(true);
    let mut inputs: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    loop {
        let mut head = [0; 8];
        reader.read_exact(&mut head).await?;
        let len = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let mut payload = vec![0; len];
        reader.read_exact(&mut payload).await?;
        let id = |at: &[u8]| u32::from_be_bytes(at[..4].try_into().unwrap()) & 0x7fff_ffff;
        if head[0] & 0x80 == 0 {
            let stream = id(&head);
            if let Some(input) = inputs.get(&stream).filter(|_| !payload.is_empty()) {
                let _ = input.send(payload.into()).await;
            }
            if head[4] & 1 != 0 {
                inputs.remove(&stream);
            }
            continue;
        }
        match head[3] {
            1 => {
                let stream = id(&payload);
                let headers = inflate(&mut headers, &payload[10..]);
                let (sender, input) = mpsc::channel(16);
                inputs.insert(stream, sender);
                // A reply without headers: a stored block of a zlib stream with zero pairs, and the empty
                // block of a flush.
                let mut reply = vec![0x80, 3, 0, 2, 0, 0, 0, 4];
                reply.extend_from_slice(&stream.to_be_bytes());
                {
                    let mut writer = writer.lock().await;
                    let block: &[u8] = &[0x78, 0x01, 0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
                    // Only the first block of a connection has the header of the zlib stream.
                    let block = if stream == 1 { block } else { &block[2..] };
                    reply[7] += block.len() as u8;
                    reply.extend_from_slice(block);
                    writer.write_all(&reply).await?;
                    writer.flush().await?;
                }
                let output = Output { id: stream, writer: writer.clone() };
                if opened.send(Stream { headers, input, output }).await.is_err() {
                    return Ok(());
                }
            }
            3 => drop(inputs.remove(&id(&payload))),
            6 => {
                let mut writer = writer.lock().await;
                writer.write_all(&[&head[..], &payload].concat()).await?;
                writer.flush().await?;
            }
            _ => {}
        }
    }
}

/// Decompresses the headers in a block.
fn inflate(decompress: &mut Decompress, block: &[u8]) -> HashMap<String, String> {
    let mut text = Vec::with_capacity(64 * 1024);
    let before = decompress.total_in();
    if let Err(error) = decompress.decompress_vec(block, &mut text, FlushDecompress::Sync) {
        assert!(error.needs_dictionary().is_some(), "{error}");
        decompress.set_dictionary(&dictionary()).unwrap();
        let read = (decompress.total_in() - before) as usize;
        let status = decompress.decompress_vec(&block[read..], &mut text, FlushDecompress::Sync).unwrap();
        assert_ne!(status, Status::StreamEnd);
    }
    let count = u32::from_be_bytes(text[..4].try_into().unwrap());
    let mut headers = HashMap::new();
    let mut rest = &text[4..];
    let mut next = || {
        let len = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let (text, left) = rest[4..].split_at(len);
        rest = left;
        String::from_utf8(text.to_vec()).unwrap()
    };
    for _ in 0..count {
        let name = next();
        headers.insert(name, next());
    }
    headers
}
