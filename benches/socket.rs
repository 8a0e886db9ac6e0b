//! A client socket that reports when the kernel received bytes, even if the client reads the bytes much
//! later.
//!
//! A thousand watchers in one process read one after the other, on cores that the server also needs. The time
//! of a watcher's read therefore depends more on the process of the watchers than on the server. The kernel
//! instead records the time at which bytes are ready to be read.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Number of words in the buffer for control data of the kernel. The buffer has space for a timestamp and a
/// margin.
const CONTROL_WORDS: usize = 16;

/// A connected socket with arrival times.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    arrived_us: u64,
}

impl Socket {
    /// Enables arrival times on a connected stream.
    ///
    /// # Errors
    /// Fails if the kernel does not support arrival times.
    pub fn new(stream: TcpStream) -> io::Result<Socket> {
        let (on, bytes) = (1_i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: the value of the option is an integer that lives during the call, and `bytes` is its size.
        let set = unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, value, bytes)
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(Socket { stream, arrived_us: 0 }) }
    }

    /// Returns the arrival time of the last byte of the last read, in microseconds since 1970. The value is 0
    /// before the first read.
    pub fn arrived_us(&self) -> u64 {
        self.arrived_us
    }

    /// Reads once without waiting.
    fn receive(&self, into: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
        let mut control = [0_u64; CONTROL_WORDS];
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        // SAFETY: zeros are valid for every member, because the members are numbers and pointers that may be
        // null.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: the message points to `into` and `control` with their sizes, and both buffers live until
        // the call returns.
        let bytes = unsafe { libc::recvmsg(self.stream.as_raw_fd(), &raw mut message, 0) };
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
        let mut arrived = None;
        // SAFETY: the kernel wrote complete headers into `control`, which is aligned for headers, and these
        // functions only iterate over the headers.
        unsafe {
            let mut head = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(found) = head.as_ref() {
                if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                    let time = libc::CMSG_DATA(head).cast::<libc::timespec>().read_unaligned();
                    arrived = Some(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000);
                }
                head = libc::CMSG_NXTHDR(&raw const message, head);
            }
        }
        Ok((bytes, arrived))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let into = buf.initialize_unfilled();
            match self.stream.try_io(Interest::READABLE, || self.receive(into)) {
                Ok((bytes, arrived)) => {
                    buf.advance(bytes);
                    self.arrived_us = arrived.unwrap_or(self.arrived_us);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
