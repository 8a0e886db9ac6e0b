//! Copies bytes in both directions between a client and a node agent, or another target that accepted an
//! upgrade.
//!
//! ```text
//! client ──read──► BUFFER_BYTES ──write──► agent
//!        ◄─write── BUFFER_BYTES ◄──read──
//! ```
//!
//! If one side does not read, the server stops reading from the other side. Therefore a tunnel needs only the
//! two buffers. The end of one direction is forwarded, and the other direction may continue as long as data
//! moves. This module is independent of the protocol.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// Number of bytes buffered in each direction.
pub(super) const BUFFER_BYTES: usize = 8 * 1024;

/// Time without a byte in either direction after which a tunnel is closed. Agents use the same default for
/// their streams.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(4 * 3600);

/// Time without a byte after which a tunnel is closed, if one direction has ended.
const HALF_CLOSED_IDLE_MAX: Duration = Duration::from_secs(60);

/// Time in which a side must read waiting bytes. Other connections have the same limit.
pub(super) const WRITE_STALL: Duration = Duration::from_secs(15 * 60);

/// The time of the last activity.
pub(super) struct Activity {
    start: Instant,
    last_ms: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Activity {
        Activity { start: Instant::now(), last_ms: AtomicU64::new(0) }
    }

    /// Records the time of an activity.
    pub(super) fn touch(&self) {
        self.last_ms.store(self.start.elapsed().as_millis() as u64, Relaxed);
    }

    /// Resolves once there has been no activity for `limit`.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let ends = self.start + Duration::from_millis(self.last_ms.load(Relaxed)) + limit;
            if ends <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(ends).await;
        }
    }
}

/// Copies bytes until both directions have ended, one direction fails, or no data moves for too long.
pub async fn relay<A, B>(client: A, agent: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let activity = Activity::new();
    let (client_reader, client_writer) = tokio::io::split(client);
    let (agent_reader, agent_writer) = tokio::io::split(agent);
    let mut up = pin!(pump(client_reader, agent_writer, &activity));
    let mut down = pin!(pump(agent_reader, client_writer, &activity));
    tokio::select! {
        ended = &mut up => if ended.is_ok() {
            tokio::select! { _ = down => {}, () = activity.idle(HALF_CLOSED_IDLE_MAX) => {} }
        },
        ended = &mut down => if ended.is_ok() {
            tokio::select! { _ = up => {}, () = activity.idle(HALF_CLOSED_IDLE_MAX) => {} }
        },
        () = activity.idle(IDLE_MAX) => {}
    }
}

/// Copies the bytes of one direction, and forwards the end of the stream.
async fn pump(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let len = reader.read(&mut buffer).await?;
        activity.touch();
        let passed = async {
            if len == 0 {
                return writer.shutdown().await;
            }
            writer.write_all(&buffer[..len]).await?;
            writer.flush().await
        };
        tokio::time::timeout(WRITE_STALL, passed).await??;
        activity.touch();
        if len == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_relays_both_directions_and_stays_open_when_one_direction_ends() {
        let (mut client, near) = tokio::io::duplex(16);
        let (far, mut agent) = tokio::io::duplex(16);
        let tunnel = tokio::spawn(relay(near, far));
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = Vec::new();
        agent.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"question");
        let long = vec![b'x'; 100_000];
        let (sent, read) = tokio::join!(
            async {
                agent.write_all(&long).await.unwrap();
                agent.shutdown().await.unwrap();
                long.len()
            },
            async {
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).await.unwrap();
                answer.len()
            }
        );
        assert_eq!(sent, read);
        tunnel.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_tunnel_is_closed() {
        let (mut client, near) = tokio::io::duplex(16);
        let (far, mut agent) = tokio::io::duplex(16);
        let began = Instant::now();
        let tunnel = tokio::spawn(relay(near, far));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        client.write_all(b"a").await.unwrap();
        assert_eq!(agent.read_u8().await.unwrap(), b'a');
        tunnel.await.unwrap();
        assert_eq!(began.elapsed().as_secs(), (IDLE_MAX + Duration::from_secs(3600)).as_secs());
        // After the end of one direction, the limit for the other direction is shorter.
        let (mut client, near) = tokio::io::duplex(16);
        let (far, _agent) = tokio::io::duplex(16);
        client.shutdown().await.unwrap();
        let began = Instant::now();
        relay(near, far).await;
        assert!(began.elapsed() < HALF_CLOSED_IDLE_MAX * 2);
    }
}
