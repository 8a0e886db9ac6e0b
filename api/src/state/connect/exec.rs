//! Runs commands for clients that use WebSocket and can close individual streams, with node agents that support
//! only SPDY (docs/api/nodes.md#streams).
//!
//! ```text
//! client ─ v5.channel.k8s.io ─┬─ channel 0 ──► stream stdin      (closed by 255 0: the stream's end)
//!                             ├─ channel 4 ──► stream resize
//!                             ◄─ channel 1 ─── stream stdout
//!                             ◄─ channel 2 ─── stream stderr
//!                             ◄─ channel 3 ─── stream error, as a Status of this server; the last message
//! ```
//!
//! Each direction is read only as fast as the other end accepts the data. Failures, including failures to
//! reach the agent, are reported on channel 3, because the client has already received the response 101.

use std::pin::pin;
use std::time::Duration;

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{HeaderName, Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite};

use super::messages::{Messages, WebSocketEvent};
use super::shared_writer::SharedWriter;
use super::spdy;
use super::tunnel::{Activity, IDLE_MAX};
use super::upgrade::{agreed, request};
use values::status::agent::{failure, outcome};
use wire::outgoing::Endpoint;
use wire::response::Response;
use wire::server::Shutdown;
use wire::server::frames::{close, close_frame, frame, frame_head, opcode};
use wire::server::upgrade::has_token;
use wire::server::websocket::{self, Upgrade};

/// The protocol in which individual streams can be closed.
const PROTOCOL: &str = "v5.channel.k8s.io";

/// Protocols from which the agent may choose. All these protocols report outcomes as a Status.
const AGENT_PROTOCOLS: [&str; 2] = [PROTOCOL, "v4.channel.k8s.io"];

/// Maximum size of an outcome or a refusal that is read.
const OUTCOME_BYTES_MAX: usize = 64 * 1024;

/// Channels of the client.
mod channel {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const ERROR: u8 = 3;
    pub(super) const RESIZE: u8 = 4;
    pub(super) const CLOSE: u8 = 255;
}

/// Streams of the agent. The streams of a client have odd numbers, in the order in which they are opened.
const ERROR: u32 = 1;

/// The streams that a command has.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Whether the command reads standard input.
    pub stdin: bool,
    /// Whether the command writes standard output.
    pub stdout: bool,
    /// Whether the command writes standard error. The value is not used with a terminal, because a terminal has
    /// only one output.
    pub stderr: bool,
    /// Whether the command runs in a terminal.
    pub tty: bool,
}

/// Returns whether a request offers the protocol in which individual streams can be closed.
pub fn offers_protocol(headers: &HeaderMap) -> bool {
    websocket::requests_websocket(headers)
        && has_token(headers, &http::header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
}

/// Accepts the WebSocket of the client, and connects it to the command.
pub fn pass(
    endpoint: Endpoint,
    upgrade: Upgrade,
    streams: Streams,
    shutdown: Shutdown,
    answered_within: Duration,
) -> Response {
    let protocol = Some(HeaderValue::from_static(PROTOCOL));
    upgrade.take_over(protocol, move |client| async move {
        let (reader, writer) = tokio::io::split(client);
        let client = SharedWriter::new(writer);
        let run = async {
            let (reader_of_agent, writer_of_agent) = match dial(&endpoint, answered_within).await {
                Ok(agent) => tokio::io::split(agent),
                Err(outcome) => return Some(outcome),
            };
            let agent = SharedWriter::new(writer_of_agent);
            translate(Messages::new(reader), &client, spdy::Reader::new(reader_of_agent), &agent, streams)
                .await
        };
        let outcome = tokio::select! {
            outcome = run => outcome,
            () = shutdown.wait_for_drain() => Some(failure("the server is shutting down", b"")),
        };
        if let Some(outcome) = outcome {
            end(&client, &outcome).await;
        }
    })
}

/// Sends the outcome, which is the last message.
async fn end<W: AsyncWrite + Unpin>(client: &SharedWriter<W>, outcome: &[u8]) {
    let head = frame_head(opcode::BINARY, outcome.len() + 1);
    let sent = client.send(&[&head, &[channel::ERROR], outcome, &close_frame(close::NORMAL)]).await;
    if sent.is_ok() {
        client.close().await;
    }
}

/// Returns the connection to the agent, or the outcome for the client if the connection failed.
async fn dial(
    endpoint: &Endpoint,
    answered_within: Duration,
) -> Result<impl AsyncRead + AsyncWrite + use<>, Vec<u8>> {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    for protocol in AGENT_PROTOCOLS {
        let name = HeaderName::from_static("x-stream-protocol-version");
        headers.append(name, HeaderValue::from_static(protocol));
    }
    let opened = request(endpoint, &Method::POST, headers, answered_within)
        .await
        .map_err(|why| failure(&format!("error sending request: Post \"{}\": {why}", endpoint.url()), b""))?;
    let broken = || failure("unable to upgrade connection: the connection was lost", b"");
    let is_spdy = has_token(opened.response.headers(), &UPGRADE, "SPDY/3.1");
    if opened.response.status() == StatusCode::SWITCHING_PROTOCOLS && is_spdy {
        return agreed(opened).into_stream().await.ok_or_else(broken);
    }
    let limited = http_body_util::Limited::new(opened.response.into_body(), OUTCOME_BYTES_MAX).collect();
    let content = match tokio::time::timeout(answered_within, limited).await {
        Ok(Ok(content)) => content.to_bytes(),
        _ => {
            return Err(failure(
                "unable to upgrade connection: unable to read error from server response",
                b"",
            ));
        }
    };
    let text = String::from_utf8_lossy(&content);
    Err(failure(&format!("unable to upgrade connection: {}", text.trim()), &content))
}

/// The streams of the agent that are open for the client.
struct Opened {
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Opened {
    /// Opens streams in the order that agents expect.
    fn new(streams: Streams) -> (Opened, Vec<u8>) {
        let mut headers = spdy::Headers::default();
        let mut frames = headers.open(ERROR, &[("streamtype", "error")]);
        let mut next = ERROR;
        let mut open = |kind: &str, is_wanted: bool| {
            is_wanted.then(|| {
                next += 2;
                frames.extend_from_slice(&headers.open(next, &[("streamtype", kind)]));
                next
            })
        };
        let opened = Opened {
            stdin: open("stdin", streams.stdin),
            stdout: open("stdout", streams.stdout),
            stderr: open("stderr", streams.stderr && !streams.tty),
            resize: open("resize", streams.tty),
        };
        (opened, frames)
    }
}

/// Forwards streams until the command has ended. Returns the outcome for the client; `None` if the client has
/// disconnected.
async fn translate<CR, CW, AR, AW>(
    messages: Messages<CR>,
    client: &SharedWriter<CW>,
    frames: spdy::Reader<AR>,
    agent: &SharedWriter<AW>,
    streams: Streams,
) -> Option<Vec<u8>>
where
    CR: AsyncRead + Unpin,
    CW: AsyncWrite + Unpin,
    AR: AsyncRead + Unpin,
    AW: AsyncWrite + Unpin,
{
    let (opened, opening) = Opened::new(streams);
    let lost = |why: &str| Some(failure(&format!("error reading from error stream: {why}"), b""));
    if agent.send(&[&opening]).await.is_err() {
        return lost("unexpected EOF");
    }
    let activity = Activity::new();
    let mut up = pin!(input(messages, client, agent, &opened, &activity));
    let mut down = pin!(output(frames, client, agent, &opened, &activity));
    let outcome = tokio::select! {
        outcome = &mut down => outcome,
        end = &mut up => match end {
            // The agent no longer reads, but the server must still deliver the output of the agent.
            InputEnd::AgentFailed => down.await,
            InputEnd::ClientLeft => return None,
            InputEnd::Nonsense => {
                let _ = client.send(&[&close_frame(close::PROTOCOL_ERROR)]).await;
                client.close().await;
                return None;
            }
        },
        () = activity.idle(IDLE_MAX) => lost("nothing moved for too long"),
    };
    agent.close().await;
    outcome
}

/// The reason why no more input is forwarded.
enum InputEnd {
    ClientLeft,
    Nonsense,
    AgentFailed,
}

/// Forwards the messages of the client to the agent.
async fn input<R, CW, AW>(
    mut messages: Messages<R>,
    client: &SharedWriter<CW>,
    agent: &SharedWriter<AW>,
    opened: &Opened,
    activity: &Activity,
) -> InputEnd
where
    R: AsyncRead + Unpin,
    CW: AsyncWrite + Unpin,
    AW: AsyncWrite + Unpin,
{
    let mut stdin_is_open = true;
    // The channel of the current message, which is known when the first byte of the message has arrived.
    let mut current = None;
    loop {
        let heard = messages.next().await;
        activity.touch();
        let (mut bytes, is_last) = match heard {
            WebSocketEvent::Piece { bytes, is_first, is_last } => {
                if is_first {
                    current = None;
                }
                (bytes, is_last)
            }
            WebSocketEvent::Ping(payload) => {
                if client.offer(frame(opcode::PONG, &payload)).await.is_err() {
                    return InputEnd::ClientLeft;
                }
                continue;
            }
            WebSocketEvent::Close | WebSocketEvent::Gone => return InputEnd::ClientLeft,
            WebSocketEvent::Nonsense => return InputEnd::Nonsense,
        };
        if current.is_none() && !bytes.is_empty() {
            current = Some(bytes.split_to(1)[0]);
        }
        let sent = match (current, bytes.first()) {
            (Some(channel::STDIN), Some(_)) if stdin_is_open => send(agent, opened.stdin, 0, &bytes).await,
            (Some(channel::RESIZE), Some(_)) => send(agent, opened.resize, 0, &bytes).await,
            (Some(channel::CLOSE), Some(&channel::STDIN)) if stdin_is_open => {
                stdin_is_open = false;
                send(agent, opened.stdin, spdy::FLAG_FIN, b"").await
            }
            // Clients do not send data on other channels. The server ignores data on other channels, as the reference
            // server does.
            _ => Ok(()),
        };
        if sent.is_err() {
            return InputEnd::AgentFailed;
        }
        if is_last {
            current = None;
        }
    }
}

/// Sends data on a stream of the agent, if the stream is open.
async fn send<W: AsyncWrite + Unpin>(
    agent: &SharedWriter<W>,
    stream: Option<u32>,
    flags: u8,
    bytes: &[u8],
) -> std::io::Result<()> {
    match stream {
        Some(stream) => agent.send(&[&spdy::data(stream, flags, bytes)]).await,
        None => Ok(()),
    }
}

/// Forwards the streams of the agent until all streams have ended. Returns the outcome for the client; `None`
/// if the client has disconnected.
async fn output<R, CW, AW>(
    mut frames: spdy::Reader<R>,
    client: &SharedWriter<CW>,
    agent: &SharedWriter<AW>,
    opened: &Opened,
    activity: &Activity,
) -> Option<Vec<u8>>
where
    R: AsyncRead + Unpin,
    CW: AsyncWrite + Unpin,
    AW: AsyncWrite + Unpin,
{
    let mut open: Vec<u32> = [Some(ERROR), opened.stdout, opened.stderr].into_iter().flatten().collect();
    let mut content = Vec::new();
    while !open.is_empty() {
        let heard = frames.next().await;
        activity.touch();
        let why = match heard {
            Ok(spdy::SpdyEvent::Data(stream, piece, is_last)) => {
                if stream == ERROR && content.len() < OUTCOME_BYTES_MAX {
                    content.extend_from_slice(&piece[..piece.len().min(OUTCOME_BYTES_MAX - content.len())]);
                }
                let number = match Some(stream) {
                    of if of == opened.stdout => Some(channel::STDOUT),
                    of if of == opened.stderr => Some(channel::STDERR),
                    _ => None,
                };
                if let Some(number) = number.filter(|_| !piece.is_empty()) {
                    let head = frame_head(opcode::BINARY, piece.len() + 1);
                    client.send(&[&head, &[number], piece]).await.ok()?;
                }
                if is_last {
                    open.retain(|open| *open != stream);
                }
                continue;
            }
            Ok(spdy::SpdyEvent::Reset(stream)) => {
                open.retain(|open| *open != stream);
                continue;
            }
            Ok(spdy::SpdyEvent::Ping(id)) => {
                let _ = agent.offer(spdy::ping(id)).await;
                continue;
            }
            Ok(spdy::SpdyEvent::Gone) => "unexpected EOF".to_owned(),
            Err(error) => error.to_string(),
        };
        // Only the outcome is required: an agent may disconnect without ending its other streams.
        if open.contains(&ERROR) {
            return Some(failure(&format!("error reading from error stream: {why}"), b""));
        }
        break;
    }
    Some(outcome(&content))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };

    fn masked(payload: &[u8]) -> Vec<u8> {
        [&[0x82, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
    }

    /// Returns all bytes that the client and the agent receive when `client_says` and `agent_says` are sent.
    async fn heard(client_says: &[u8], agent_says: &[u8], streams: Streams) -> (Vec<u8>, Vec<u8>) {
        let (client, near) = tokio::io::duplex(1 << 20);
        let (far, agent) = tokio::io::duplex(1 << 20);
        let (mut client_reader, mut client_writer) = tokio::io::split(client);
        let (mut agent_reader, mut agent_writer) = tokio::io::split(agent);
        client_writer.write_all(client_says).await.unwrap();
        let run = async {
            let (reader, writer) = tokio::io::split(near);
            let (frames, to_agent) = tokio::io::split(far);
            let (client, agent) = (SharedWriter::new(writer), SharedWriter::new(to_agent));
            let outcome =
                translate(Messages::new(reader), &client, spdy::Reader::new(frames), &agent, streams);
            if let Some(outcome) = outcome.await {
                end(&client, &outcome).await;
            }
        };
        let agent_side = async {
            // The input arrives before the command ends.
            tokio::time::sleep(Duration::from_millis(50)).await;
            agent_writer.write_all(agent_says).await.unwrap();
            agent_writer.shutdown().await.unwrap();
            let mut heard = Vec::new();
            agent_reader.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let mut said = Vec::new();
        let (_, to_agent, read) = tokio::join!(run, agent_side, client_reader.read_to_end(&mut said));
        read.unwrap();
        (said, to_agent)
    }

    fn message(channel: u8, payload: &[u8]) -> Vec<u8> {
        [&frame_head(opcode::BINARY, payload.len() + 1)[..], &[channel], payload].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn each_websocket_channel_is_one_spdy_stream() {
        let client = [
            masked(b"\0input"),
            masked(b"\x04{\"Width\":1}"),
            masked(b"\x07unknown"),
            masked(b"\xff\0"),
            masked(b"\0late"),
        ]
        .concat();
        let agent = [
            spdy::data(5, 0, b"out"),
            spdy::data(7, spdy::FLAG_FIN, b"err"),
            spdy::ping([0, 0, 0, 2]),
            spdy::data(5, spdy::FLAG_FIN, b""),
            spdy::data(1, spdy::FLAG_FIN, br#"{"metadata":{},"status":"Success"}"#),
        ]
        .concat();
        let (said, to_agent) = heard(&client, &agent, ALL).await;
        let success = message(3, br#"{"metadata":{},"status":"Success"}"#);
        let bye = close_frame(close::NORMAL);
        assert_eq!(said, [message(1, b"out"), message(2, b"err"), success, bye].concat());
        let (_, opening) = Opened::new(ALL);
        let input =
            [spdy::data(3, 0, b"input"), spdy::data(3, spdy::FLAG_FIN, b""), spdy::ping([0, 0, 0, 2])];
        assert_eq!(to_agent, [opening, input.concat()].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminal_session_has_one_output_and_a_resize_stream() {
        let streams = Streams { tty: true, ..ALL };
        let (opened, _) = Opened::new(streams);
        assert_eq!(
            (opened.stdin, opened.stdout, opened.stderr, opened.resize),
            (Some(3), Some(5), None, Some(7))
        );
        let agent = [spdy::data(5, spdy::FLAG_FIN, b"out"), spdy::data(1, spdy::FLAG_FIN, b"")].concat();
        let (_, to_agent) = heard(&masked(b"\x04{\"Width\":1}"), &agent, streams).await;
        assert!(to_agent.ends_with(&spdy::data(7, 0, b"{\"Width\":1}")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_closes_early_is_a_failure() {
        for (agent, why) in [
            (spdy::data(5, 0, b"out"), "error reading from error stream: unexpected EOF"),
            (b"garbage!!".to_vec(), "error reading from error stream"),
        ] {
            let (said, _) = heard(b"", &agent, ALL).await;
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains(why) && said.contains("InternalError"), "{said}");
        }
        // An agent that has sent the outcome may disconnect without ending the other streams.
        let agent = spdy::data(1, spdy::FLAG_FIN, b"");
        let (said, _) = heard(b"", &agent, ALL).await;
        assert!(String::from_utf8_lossy(&said).contains("Success"));
    }
}
