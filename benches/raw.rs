//! Baselines that send the same bytes over the same TLS, or write the same bytes into a file, without a
//! server.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Number of bytes that the server passes to TLS at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A TLS server on its own thread that sends as many bytes as the client requests. If the source of the
/// server has only a few bytes, the bytes of a response come from the processor's cache. If the source is as
/// long as a response, the bytes come from memory, as in a list of a large collection.
pub struct Loopback {
    address: SocketAddr,
    connector: TlsConnector,
}

impl Loopback {
    /// Starts a server that sends the same few bytes repeatedly. The server ends with the process.
    pub fn start() -> Loopback {
        Loopback::start_with(vec![b'x'; PIECE_BYTES])
    }

    /// Starts a server that sends the bytes of `source`. Each response begins with the first byte of
    /// `source`, and repeats the bytes as needed. The server ends with the process.
    pub fn start_with(source: Vec<u8>) -> Loopback {
        assert!(!source.is_empty(), "there is something to answer with");
        let made =
            rcgen::generate_simple_self_signed(["bench".to_owned()]).expect("a certificate can be made");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("certificate and key match");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a self-signed certificate is its own root");
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        std::thread::spawn(move || serve(listener, TlsAcceptor::from(Arc::new(server)), source.into()));
        Loopback { address, connector: TlsConnector::from(Arc::new(client)) }
    }

    /// Opens a connection to the server.
    pub async fn connect(&self) -> Peer {
        let stream = TcpStream::connect(self.address).await.expect("the loopback accepts connections");
        stream.set_nodelay(true).expect("a socket has options");
        let name = ServerName::try_from("bench").expect("that is a name");
        let stream = self.connector.connect(name, stream).await.expect("the loopback speaks TLS");
        Peer { stream, input: vec![0; PIECE_BYTES].into() }
    }
}

/// A client connection to a [`Loopback`].
pub struct Peer {
    stream: TlsStream<TcpStream>,
    input: Box<[u8]>,
}

impl Peer {
    /// Sends `request_bytes` bytes and reads `answer_bytes` bytes.
    pub async fn exchange(&mut self, request_bytes: usize, answer_bytes: u64) -> io::Result<()> {
        let mut request = vec![b'x'; request_bytes + 16];
        request[..8].copy_from_slice(&(request_bytes as u64).to_le_bytes());
        request[8..16].copy_from_slice(&answer_bytes.to_le_bytes());
        self.stream.write_all(&request).await?;
        self.stream.flush().await?;
        let mut left = answer_bytes;
        while left > 0 {
            match self.stream.read(&mut self.input).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => left = left.saturating_sub(bytes as u64),
            }
        }
        Ok(())
    }
}

fn serve(listener: std::net::TcpListener, acceptor: TlsAcceptor, source: Arc<[u8]>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        listener.set_nonblocking(true).expect("a socket has options");
        let listener = TcpListener::from_std(listener).expect("a listener can be registered");
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let (acceptor, source) = (acceptor.clone(), source.clone());
            // The end of a connection ends only the task of this connection.
            tokio::spawn(async move { answer(acceptor.accept(stream).await?, &source).await });
        }
    });
}

async fn answer(stream: tokio_rustls::server::TlsStream<TcpStream>, source: &[u8]) -> io::Result<()> {
    let mut stream = BufReader::with_capacity(PIECE_BYTES, stream);
    let mut input = vec![0; PIECE_BYTES];
    loop {
        let mut request_left = stream.read_u64_le().await?;
        let mut left = stream.read_u64_le().await?;
        while request_left > 0 {
            let most = request_left.min(PIECE_BYTES as u64) as usize;
            request_left -= stream.read(&mut input[..most]).await? as u64;
        }
        for piece in source.chunks(PIECE_BYTES).cycle() {
            let piece = &piece[..left.min(piece.len() as u64) as usize];
            stream.write_all(piece).await?;
            left -= piece.len() as u64;
            if left == 0 {
                break;
            }
        }
        stream.flush().await?;
    }
}

/// A file that is written and synced like a log. A file of a fixed size is filled with zeros first, so that a
/// sync writes only data. Any other file is empty at first and grows.
pub struct RawLog {
    file: File,
    position: u64,
    /// Size at which writing returns to the start of the file. The value is 0 for a growing file.
    size: u64,
}

impl RawLog {
    /// Creates a file in `directory` with `size` bytes, which appends overwrite. If `size` is 0, the file
    /// grows.
    pub fn create(directory: &Path, size: u64) -> io::Result<RawLog> {
        let file = File::options().create(true).truncate(true).write(true).open(directory.join("raw"))?;
        let zeros = vec![0; 1 << 20];
        let mut filled = 0;
        while filled < size {
            file.write_all_at(&zeros, filled)?;
            filled += zeros.len() as u64;
        }
        file.sync_all()?;
        Ok(RawLog { file, position: 0, size: filled })
    }

    /// Appends bytes and syncs the file.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.size > 0 && self.position + bytes.len() as u64 > self.size {
            self.position = 0;
        }
        self.file.write_all_at(bytes, self.position)?;
        self.position += bytes.len() as u64;
        self.file.sync_data()
    }

    /// Returns the time of `count` appends of `bytes` bytes, one after the other.
    pub fn time(&mut self, count: u64, bytes: usize) -> io::Result<Duration> {
        let record = vec![b'x'; bytes];
        let start = Instant::now();
        for _ in 0..count {
            self.append(&record)?;
        }
        Ok(start.elapsed())
    }
}
