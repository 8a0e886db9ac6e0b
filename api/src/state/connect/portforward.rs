//! Port forwarding over WebSocket to an agent that supports only SPDY. The client's binary messages contain
//! the bytes of the agent's connection, split at arbitrary positions (docs/api/nodes.md#streams).
//!
//! ```text
//! client ─ WebSocket SPDY/3.1+portforward.k8s.io ─► messages │ bytes ─ SPDY/3.1, portforward.k8s.io ─► agent
//! ```

use std::pin::pin;
use std::time::Duration;

use http::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderName, Method};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::forward::forwarded_for;
use super::messages::{Messages, WebSocketEvent};
use super::shared_writer::SharedWriter;
use super::tunnel::{Activity, BUFFER_BYTES, IDLE_MAX};
use super::upgrade::{UpgradeOutcome, UpgradeRequest, open};
use values::status::Status;
use wire::outgoing::Endpoint;
use wire::response::Response;
use wire::server::frames::{close, close_frame, frame, frame_head, opcode};
use wire::server::upgrade::has_token;
use wire::server::websocket::{self, Upgrade};

/// Prefix of the name of a protocol that uses SPDY frames inside messages.
const PREFIX: &str = "SPDY/3.1+";

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Returns whether a request is for SPDY inside WebSocket.
pub fn offers_protocol(headers: &HeaderMap) -> bool {
    websocket::requests_websocket(headers) && !protocols(headers).is_empty()
}

/// Returns the protocols with the prefix that a request offers.
fn protocols(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).map(str::trim);
    names.filter(|name| name.starts_with(PREFIX)).map(str::to_owned).collect()
}

/// Requests SPDY from the agent and, after the agent has responded with 101, accepts the WebSocket of the client.
///
/// # Errors
/// The agent was not reached, or its response is invalid.
pub async fn pass(
    endpoint: &Endpoint,
    upgrade: Upgrade,
    request: UpgradeRequest<'_>,
    answered_within: Duration,
) -> Result<Response, Status> {
    let mut headers = request.headers.clone();
    let offered = protocols(&headers);
    for name in [SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, PROTOCOL_VERSION] {
        headers.remove(name);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    for name in &offered {
        if let Ok(name) = HeaderValue::from_str(&name[PREFIX.len()..]) {
            headers.append(PROTOCOL_VERSION, name);
        }
    }
    forwarded_for(&mut headers, request.peer);
    let (headers, agent) = match open(endpoint, &Method::POST, headers, answered_within).await? {
        UpgradeOutcome::Refused(response) => return Ok(response),
        UpgradeOutcome::Agreed { headers, agent } => (headers, agent),
    };
    if !has_token(&headers, &UPGRADE, "SPDY/3.1") {
        return Err(Status::internal("the agent agreed to another protocol than SPDY/3.1"));
    }
    let chosen = headers.get(PROTOCOL_VERSION).and_then(|chosen| chosen.to_str().ok());
    let chosen = chosen.map_or_else(|| offered[0].clone(), |chosen| format!("{PREFIX}{chosen}"));
    let shutdown = request.shutdown;
    Ok(upgrade.take_over(HeaderValue::from_str(&chosen).ok(), move |client| async move {
        let Some(agent) = agent.into_stream().await else { return };
        tokio::select! {
            () = relay(client, agent) => {}
            () = shutdown.wait_for_drain() => {}
        }
    }))
}

/// Forwards bytes until one side ends.
async fn relay<C, A>(client: C, agent: A)
where
    C: AsyncRead + AsyncWrite,
    A: AsyncRead + AsyncWrite,
{
    let activity = Activity::new();
    let (client_reader, client_writer) = tokio::io::split(client);
    let (mut agent_reader, agent_writer) = tokio::io::split(agent);
    let (client, agent) = (SharedWriter::new(client_writer), SharedWriter::new(agent_writer));
    let mut messages = Messages::new(client_reader);
    let up = pin!(async {
        loop {
            let heard = messages.next().await;
            activity.touch();
            match heard {
                WebSocketEvent::Piece { bytes, .. } => agent.send(&[&bytes]).await.ok()?,
                WebSocketEvent::Ping(payload) => {
                    client.offer(frame(opcode::PONG, &payload)).await.ok()?;
                }
                WebSocketEvent::Close => return Some(close::NORMAL),
                WebSocketEvent::Nonsense => return Some(close::PROTOCOL_ERROR),
                WebSocketEvent::Gone => return None,
            }
        }
    });
    let down = pin!(async {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let Ok(len) = agent_reader.read(&mut buffer).await else { return Some(close::INTERNAL_ERROR) };
            activity.touch();
            if len == 0 {
                return Some(close::NORMAL);
            }
            client.send(&[&frame_head(opcode::BINARY, len), &buffer[..len]]).await.ok()?;
        }
    });
    let code = tokio::select! {
        code = up => code,
        code = down => code,
        () = activity.idle(IDLE_MAX) => Some(close::NORMAL),
    };
    if let Some(code) = code
        && client.send(&[&close_frame(code)]).await.is_ok()
    {
        client.close().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn only_protocols_with_the_spdy_prefix_request_a_tunnel() {
        for (protocols, want) in [
            ("SPDY/3.1+portforward.k8s.io", true),
            ("v4.channel.k8s.io, SPDY/3.1+portforward.k8s.io", true),
            ("portforward.k8s.io", false),
            ("v4.channel.k8s.io", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
            assert_eq!(offers_protocol(&headers), want, "{protocols}");
        }
    }

    #[tokio::test]
    async fn the_tunnel_translates_websocket_messages_to_bytes_and_back() {
        let (mut client, near) = tokio::io::duplex(1 << 16);
        let (far, mut agent) = tokio::io::duplex(1 << 16);
        let tunnel = tokio::spawn(relay(near, far));
        client.write_all(&[0x82, 0x83, 0, 0, 0, 0, b'a', b'b', b'c']).await.unwrap();
        client.write_all(&[0x89, 0x80, 0, 0, 0, 0, 0x82, 0x81, 0, 0, 0, 0, b'd']).await.unwrap();
        let mut heard = [0; 4];
        agent.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"abcd");
        agent.write_all(b"hello").await.unwrap();
        let mut answer = [0; 9];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, [0x8a, 0, 0x82, 5, b'h', b'e', b'l', b'l', b'o']);
        drop(agent);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, close_frame(close::NORMAL));
        tunnel.await.unwrap();
    }
}
