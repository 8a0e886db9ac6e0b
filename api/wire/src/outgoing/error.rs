//! Reasons why a call failed, with the wording of the reference server.

use std::io;
use std::net::SocketAddr;

use http::{StatusCode, Uri};
use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error as TlsError};

use values::memory::MemoryExhausted;

/// Reason why there is no usable response.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The response did not arrive in time.
    #[error("context deadline exceeded")]
    Timeout,
    /// The connection broke in the middle of the response body.
    #[error("unexpected error when reading response body. Please retry. Original error: unexpected EOF")]
    Body,
    /// The response has more bytes than the limit.
    #[error("http: response body too large")]
    TooLong,
    /// The response has a failure code.
    #[error("{text}")]
    Code {
        /// Status code of the response.
        code: u16,
        /// Message from the response.
        text: String,
    },
    /// The peer reset the connection.
    #[error("{0}")]
    Reset(String),
    /// There was no connection, or it broke before the response.
    #[error("{0}")]
    Other(String),
}

/// The local and the remote address of a connection.
pub(super) type Ends = Option<(SocketAddr, SocketAddr)>;

impl Failure {
    pub(super) fn connect(address: &str, error: &io::Error) -> Failure {
        let why = match error.kind() {
            io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
            io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
            io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
            io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
            _ => error.to_string(),
        };
        Failure::Other(format!("dial tcp {address}: {why}"))
    }

    pub(super) fn dial_timeout(host: &str, port: u16) -> Failure {
        let url_host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Failure::Other(format!("dial tcp {url_host}:{port}: i/o timeout"))
    }

    /// Returns the failure for a response that is too large for the free memory, or for the whole budget.
    pub(super) fn no_room(error: &MemoryExhausted) -> Failure {
        match error {
            MemoryExhausted::Never { .. } => Failure::TooLong,
            MemoryExhausted::Busy => {
                Failure::Other("memory for answers of other servers is used up".to_owned())
            }
        }
    }

    /// Returns the failure for a connection to an address that is not allowed.
    pub(super) fn not_allowed(address: SocketAddr) -> Failure {
        Failure::Other(format!("dial tcp {address}: address not allowed"))
    }

    pub(super) fn unknown_host(host: &str) -> Failure {
        Failure::Other(format!("dial tcp: lookup {host}: no such host"))
    }

    /// Returns a failure if the peer reset the connection.
    fn reset(error: &(dyn std::error::Error + 'static), ends: Ends) -> Option<Failure> {
        let (here, there) = ends.filter(|_| is_io(error, io::ErrorKind::ConnectionReset))?;
        Some(Failure::Reset(format!("read tcp {here}->{there}: read: connection reset by peer")))
    }

    /// Returns whether a retry may succeed soon.
    pub fn is_passing(&self) -> bool {
        match self {
            Failure::Reset(_) => true,
            // A 503 is not retried: a server sends it on purpose while one of its dependencies is
            // unavailable.
            Failure::Code { code, .. } => matches!(code, 429 | 500..=502 | 504..),
            Failure::Timeout | Failure::Body | Failure::TooLong | Failure::Other(_) => false,
        }
    }

    pub(super) fn handshake(error: &io::Error, ends: Ends) -> Failure {
        if let Some(failure) = Failure::reset(error, ends) {
            return failure;
        }
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        Failure::Other(match inner {
            Some(TlsError::InvalidCertificate(why)) => {
                format!("tls: failed to verify certificate: x509: {}", certificate(why))
            }
            Some(TlsError::InvalidMessage(_)) => {
                "tls: first record does not look like a TLS handshake".to_owned()
            }
            Some(other) => format!("tls: {other}"),
            None if is_end(error) => "EOF".to_owned(),
            None => error.to_string(),
        })
    }

    pub(super) fn exchange(error: &hyper::Error, ends: Ends) -> Failure {
        if let Some(failure) = Failure::reset(error, ends) {
            return failure;
        }
        Failure::Other(if is_end(error) {
            "EOF".to_owned()
        } else if error.is_parse_too_large() {
            "net/http: HTTP/1.x transport connection broken: server response headers exceeded their limit"
                .to_owned()
        } else if error.is_parse() {
            "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned()
        } else {
            error.to_string()
        })
    }

    /// Adds the method Post and the URL to the message, unless the failure comes from a response.
    pub(super) fn with_post_url(self, url: &Uri) -> Failure {
        self.with_method_and_url("Post", url)
    }

    /// Adds the method and the URL to the message, unless the failure comes from a response.
    pub(super) fn with_method_and_url(self, method: &str, url: &Uri) -> Failure {
        match self {
            Failure::Timeout | Failure::Other(_) => Failure::Other(format!("{method} \"{url}\": {self}")),
            Failure::Reset(why) => Failure::Reset(format!("{method} \"{url}\": {why}")),
            Failure::Body | Failure::TooLong | Failure::Code { .. } => self,
        }
    }
}

/// Start of the message for a certificate outside its validity period.
const OUTSIDE_VALIDITY: &str = "certificate has expired or is not yet valid";

fn certificate(why: &CertificateError) -> String {
    let time_text =
        |time: UnixTime| values::clock::format_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    match why {
        // Go also reports an unknown authority if an authority of the same name has another key, or if an
        // authority presents itself as the server. `Other` occurs only in the second case.
        CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_) => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!(
                "{OUTSIDE_VALIDITY}: current time {} is after {}",
                time_text(*time),
                time_text(*not_after)
            )
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!(
                "{OUTSIDE_VALIDITY}: current time {} is before {}",
                time_text(*time),
                time_text(*not_before)
            )
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            let is_address = expected.parse::<std::net::IpAddr>().is_ok();
            // Each name is in the form `DnsName("a")` or `IpAddress(1.2.3.4)`.
            let names: Vec<&str> = presented
                .iter()
                .filter(|name| name.starts_with("IpAddress") == is_address)
                .map(|name| name.split('(').nth(1).unwrap_or(name).trim_matches(['"', ')']))
                .collect();
            match names.as_slice() {
                [] if is_address => {
                    format!(
                        "cannot validate certificate for {expected} because it doesn't contain any IP SANs"
                    )
                }
                [] => format!("certificate is not valid for any names, but wanted to match {expected}"),
                names => format!("certificate is valid for {}, not {expected}", names.join(", ")),
            }
        }
        other => other.to_string(),
    }
}

/// Returns the message for a code other than success. `text` is the text of the response, or `unknown`.
pub fn unexpected_code(code: StatusCode, text: &str) -> String {
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => text.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if text == "unknown" => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        406 => text.to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .to_owned(),
        500.. => {
            let text = values::field::go_quote(text);
            format!("an error on the server ({text}) has prevented the request from succeeding")
        }
        other => format!("the server responded with the status code {other} but did not return more information"),
    }
}

/// Returns whether the peer closed a connection without a TLS close notification, as many servers do.
pub fn is_cut(error: &hyper::Error) -> bool {
    !error.is_incomplete_message() && is_end(error)
}

/// Returns whether a connection ended before a response began.
fn is_end(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message)
        || is_io(error, io::ErrorKind::UnexpectedEof)
        || error.source().is_some_and(is_end)
}

/// Returns whether an I/O error of this kind is among the causes.
fn is_io(error: &(dyn std::error::Error + 'static), kind: io::ErrorKind) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == kind)
        || error.source().is_some_and(|source| is_io(source, kind))
}
