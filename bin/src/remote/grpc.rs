//! Client for unary gRPC calls over a Unix socket, for key services and token signers on the same machine.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use tokio::net::UnixStream;
use wire::http2::{self, Sender, any_body};

use crate::host::platform::sockets;

/// Maximum size of a response. The largest responses contain a few hundred public keys.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Maximum length of the text of a failure. The rest of a longer text is cut off.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Length of the prefix of a message, which consists of a compression flag and the length of the message.
const HEAD_BYTES: usize = 5;

/// Names of the gRPC status codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// A failed call: the name of the status code, and a text for people.
#[derive(Clone, Debug, thiserror::Error)]
#[error("rpc error: code = {code} desc = {text}")]
pub struct Failure {
    pub code: &'static str,
    pub text: String,
}

impl Failure {
    pub fn new(code: &'static str, text: impl ToString) -> Failure {
        Failure { code, text: text.to_string() }
    }

    /// Returns the failure for a protocol violation by the service.
    fn internal(text: impl ToString) -> Failure {
        Failure::new("Internal", text)
    }

    /// Returns the failure for a failed connection.
    fn unavailable(text: impl ToString) -> Failure {
        Failure::new("Unavailable", text)
    }
}

/// Connects to the socket at `path`. A path that begins with `@` or `/@` is in the abstract namespace.
///
/// # Errors
/// The connection failed. The error is the reason.
pub async fn connect(path: &str) -> Result<Sender, String> {
    let name = path.strip_prefix("/@").or(path.strip_prefix('@'));
    let opened = match name {
        None => UnixStream::connect(path).await,
        Some(name) => abstract_socket(name),
    };
    let stream = opened.map_err(|error| format!("cannot connect to {path}: {error}"))?;
    // No task watches this connection. If the connection ends, the next call fails.
    let begun = http2::begin(Box::new(stream)).await;
    let (sender, _) = begun.map_err(|error| format!("cannot connect to {path}: {error}"))?;
    Ok(sender)
}

fn abstract_socket(name: &str) -> std::io::Result<UnixStream> {
    let address = sockets::abstract_address(name)?;
    let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Calls the method `/package.Service/Method` with a message.
///
/// # Errors
/// The service reports a failure, or its response is invalid. This function has no time limit, so the caller
/// must set a time limit.
pub async fn unary(mut sender: Sender, method: &str, message: Bytes) -> Result<Vec<u8>, Failure> {
    let mut framed = BytesMut::with_capacity(HEAD_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).map_err(Failure::internal)?);
    framed.put(message);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://localhost{method}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .body(any_body(Full::new(framed.freeze())))
        .map_err(Failure::internal)?;
    sender.ready().await.map_err(Failure::unavailable)?;
    let response = sender.send_request(request).await.map_err(Failure::unavailable)?;
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(Failure::new("Unknown", format!("it answered {}", head.status)));
    }
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
        match error.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => Failure::new("ResourceExhausted", "the answer is too long"),
            None => Failure::unavailable(error),
        }
    })?;
    // A response without a message has its status in the headers instead of the trailers.
    let trailers = body.trailers().cloned().unwrap_or_else(|| head.headers.clone());
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "0" => message_of(&body.to_bytes()),
        code => {
            let code = code.parse().ok().and_then(|code: usize| CODES.get(code)).unwrap_or(&"Unknown");
            Err(Failure::new(code, decoded(text("grpc-message"))))
        }
    }
}

/// Returns the single message of a response.
fn message_of(body: &[u8]) -> Result<Vec<u8>, Failure> {
    let (head, message) = body
        .split_first_chunk::<HEAD_BYTES>()
        .ok_or_else(|| Failure::internal("the answer has no message"))?;
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 || len != message.len() {
        return Err(Failure::internal("the answer is not one plain message"));
    }
    Ok(message.to_vec())
}

/// Decodes a percent-encoded text of a trailer, and cuts it after the maximum length.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len().min(TEXT_BYTES_MAX));
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first()
        && bytes.len() < TEXT_BYTES_MAX
    {
        let code = behind.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_response_is_one_uncompressed_message() {
        for (body, want) in [
            (&[0, 0, 0, 0, 2, 7, 8][..], Some(vec![7, 8])),
            (&[0, 0, 0, 0, 0], Some(vec![])),
            (&[0, 0, 0, 0, 3, 7, 8], None),
            (&[1, 0, 0, 0, 2, 7, 8], None),
            (&[0, 0, 0, 0], None),
        ] {
            assert_eq!(message_of(body).ok(), want, "{body:?}");
        }
    }

    #[test]
    fn grpc_error_messages_are_decoded_and_truncated() {
        for (text, want) in [("no key", "no key"), ("50%25 %C3%A9", "50% é"), ("%", "%"), ("%zz%4", "%zz%4")]
        {
            assert_eq!(decoded(text), want);
        }
        assert_eq!(decoded(&"x".repeat(TEXT_BYTES_MAX + 1)).len(), TEXT_BYTES_MAX);
    }
}
