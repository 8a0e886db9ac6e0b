//! The writing end of a connection that two tasks share. The first task writes data and waits. The second task
//! inserts responses to pings and never waits, so that neither direction blocks the other.

use std::collections::VecDeque;
use std::io;

use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::tunnel::WRITE_STALL;

/// Maximum number of ping responses that wait for a busy writer. A peer that sends more pings without reading
/// gets only the newest responses.
const WAITING_MAX: usize = 16;

/// A writer that two tasks share.
pub(super) struct SharedWriter<W> {
    writer: tokio::sync::Mutex<W>,
    waiting: Mutex<VecDeque<Vec<u8>>>,
}

impl<W: AsyncWrite + Unpin> SharedWriter<W> {
    pub(super) fn new(writer: W) -> SharedWriter<W> {
        SharedWriter { writer: tokio::sync::Mutex::new(writer), waiting: Mutex::default() }
    }

    /// Writes the parts of a frame once the writer is free, and then all waiting frames.
    pub(super) async fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        {
            let mut writer = self.writer.lock().await;
            let sent = async {
                for part in parts {
                    writer.write_all(part).await?;
                }
                writer.flush().await
            };
            tokio::time::timeout(WRITE_STALL, sent).await??;
        }
        self.send_waiting().await
    }

    /// Writes a frame now, or after the current frame if the writer is busy.
    pub(super) async fn offer(&self, frame: Vec<u8>) -> io::Result<()> {
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() == WAITING_MAX {
                waiting.pop_front();
            }
            waiting.push_back(frame);
        }
        self.send_waiting().await
    }

    /// Writes the waiting frames if the writer is free. If another task uses the writer, that task writes the
    /// frames.
    async fn send_waiting(&self) -> io::Result<()> {
        while !self.waiting.lock().is_empty() {
            let Ok(mut writer) = self.writer.try_lock() else { return Ok(()) };
            let next = self.waiting.lock().pop_front();
            let Some(frame) = next else { return Ok(()) };
            let sent = async {
                writer.write_all(&frame).await?;
                writer.flush().await
            };
            tokio::time::timeout(WRITE_STALL, sent).await??;
        }
        Ok(())
    }

    /// Closes the connection for writing.
    pub(super) async fn close(&self) {
        let mut writer = self.writer.lock().await;
        let _ = tokio::time::timeout(WRITE_STALL, writer.shutdown()).await;
    }
}
