//! A proxy between this server and another server. This server asks the proxy for a tunnel (RFC 9110, section
//! 9.3.6), and establishes TLS with the other server through the tunnel.
//!
//! Only proxies without TLS are supported. A refusal is reported by its code; the body of the response is not
//! read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Failure;
use super::dial::{authority, dial};
use super::guard::Guard;

/// Maximum number of bytes in the head of the proxy's response.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A proxy from the URL in a kubeconfig file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Proxy {
    host: String,
    port: u16,
    /// Value of the `Proxy-Authorization` header, if the URL has a user.
    authorization: Option<String>,
}

impl Proxy {
    /// Parses `http://[user:password@]host[:port]`.
    ///
    /// # Errors
    /// The URL has another form.
    pub(super) fn read(url: &str) -> Result<Proxy, String> {
        let odd = || format!("{:?} is not a proxy: want http://host:port", without_password(url));
        let uri: Uri = url.parse().map_err(|_| odd())?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(odd()) };
        let authorization = authority.as_str().rsplit_once('@').map(|(user, _)| {
            let user: String = percent_encoding::percent_decode_str(user).decode_utf8_lossy().into_owned();
            format!("Basic {}", STANDARD.encode(user))
        });
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(odd());
        }
        Ok(Proxy { host, port: authority.port_u16().unwrap_or(80), authorization })
    }

    /// Connects to another server through the proxy.
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, Failure> {
        let mut stream = dial(&self.host, self.port, &Guard::Open).await?;
        let target = authority(host, port);
        let authorization = self.authorization.as_ref();
        let authorization = authorization
            .map(|credentials| format!("Proxy-Authorization: {credentials}\r\n"))
            .unwrap_or_default();
        match request_tunnel(&mut stream, &target, &target, &authorization).await {
            Ok(()) => Ok(stream),
            Err(Refusal::Code(_, why)) if !why.is_empty() => Err(Failure::Other(why)),
            Err(Refusal::Code(..)) => Err(Failure::Other(format!("proxyconnect tcp: {MALFORMED}"))),
            Err(Refusal::Broken(why)) => Err(Failure::Other(format!("proxyconnect tcp: {why}"))),
        }
    }
}

/// Reason why a proxy opened no tunnel.
pub(super) enum Refusal {
    /// The proxy answered with a code other than 2xx, and this reason phrase.
    Code(u16, String),
    /// There was no response, or it was malformed.
    Broken(String),
}

const MALFORMED: &str = "malformed HTTP response";

/// Requests a tunnel to `target` (`host:port`). `headers` are additional header lines, each with its line
/// end.
pub(super) async fn request_tunnel(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &str,
    host: &str,
    headers: &str,
) -> Result<(), Refusal> {
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
    let broken = |error: std::io::Error| {
        Refusal::Broken(match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
            _ => error.to_string(),
        })
    };
    stream.write_all(head.as_bytes()).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let mut answer = Vec::new();
    // The head is read byte by byte, because the bytes after it belong to the other server.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == HEAD_BYTES_MAX {
            return Err(Refusal::Broken("the answer is too long".to_owned()));
        }
        answer.push(stream.read_u8().await.map_err(broken)?);
    }
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.splitn(3, ' ');
    let (version, code, why) = (words.next(), words.next(), words.next());
    let code = code.filter(|code| code.len() == 3).and_then(|code| code.parse::<u16>().ok());
    match (version, code) {
        (Some("HTTP/1.1" | "HTTP/1.0"), Some(200..=299)) => Ok(()),
        (Some(version), Some(code)) if version.starts_with("HTTP/") => {
            Err(Refusal::Code(code, why.unwrap_or_default().to_owned()))
        }
        _ => Err(Refusal::Broken(MALFORMED.to_owned())),
    }
}

/// Returns a URL for messages, without the user information before the host, which may contain a password.
fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_proxy_is_an_http_url_and_errors_show_no_password() {
        for (url, want) in [
            ("http://proxy:3128", Ok(("proxy", 3128, None))),
            ("http://[::1]", Ok(("::1", 80, None))),
            ("http://a:b@proxy:1", Ok(("proxy", 1, Some("Basic YTpi")))),
            ("http://a:%40@proxy:1", Ok(("proxy", 1, Some("Basic YTpA")))),
            ("https://a:b@proxy", Err("\"https://…@proxy\" is not a proxy: want http://host:port")),
            ("proxy:1", Err("\"proxy:1\" is not a proxy: want http://host:port")),
            ("", Err("\"\" is not a proxy: want http://host:port")),
        ] {
            let got = Proxy::read(url);
            let want = want.map(|(host, port, authorization)| Proxy {
                host: host.to_owned(),
                port,
                authorization: authorization.map(str::to_owned),
            });
            assert_eq!(got, want.map_err(str::to_owned), "{url}");
        }
    }

    #[tokio::test]
    async fn a_tunnel_is_open_after_a_success_response_of_the_proxy() {
        for (answer, want) in [
            ("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nrest", Ok("rest")),
            ("HTTP/1.0 200 \r\n\r\nrest", Ok("rest")),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", Err("Proxy Authentication Required")),
            ("SSH-2.0-x\r\n\r\n", Err("proxyconnect tcp: malformed HTTP response")),
            ("HTTP/1.1 200", Err("proxyconnect tcp: unexpected EOF")),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://a:b@{}", listener.local_addr().unwrap());
            let proxy = Proxy::read(&url).unwrap();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 1024];
                let read = stream.read(&mut request).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                String::from_utf8(request[..read].to_vec()).unwrap()
            };
            let (request, got) = tokio::join!(server, proxy.dial("::1", 443));
            let head =
                "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\nProxy-Authorization: Basic YTpi\r\n\r\n";
            assert_eq!(request, head);
            match (got, want) {
                (Ok(mut stream), Ok(want)) => {
                    let mut rest = String::new();
                    stream.read_to_string(&mut rest).await.unwrap();
                    assert_eq!(rest, want);
                }
                (Err(failure), Err(want)) => assert_eq!(failure.to_string(), want),
                (got, want) => panic!("{answer}: {got:?}, not {want:?}"),
            }
        }
    }
}
