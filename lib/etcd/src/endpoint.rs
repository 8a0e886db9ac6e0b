//! Endpoints of etcd members, and connections to them.
//!
//! An endpoint is `http://host:port` or `https://host:port`. The host name of an endpoint is resolved for
//! each connection, so a member may move.

use std::pin::Pin;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Port of an endpoint without an explicit port.
const PORT_DEFAULT: u16 = 2379;

/// The address at which a member listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port of the member.
    pub port: u16,
    /// Whether the member uses TLS.
    pub tls: bool,
}

/// The error of an invalid endpoint or TLS configuration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct EndpointError(String);

impl Endpoint {
    /// Parses a URL.
    ///
    /// # Errors
    /// The text is not `http://host[:port]` or `https://host[:port]`.
    pub fn parse(url: &str) -> Result<Endpoint, EndpointError> {
        let wrong = |why: &str| EndpointError(format!("endpoint {url:?}: {why}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("no http:// or https:// URL"))?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("no http:// or https:// URL")),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let uri: http::Uri =
            format!("{scheme}://{authority}/").parse().map_err(|_| wrong("no host and port"))?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("no host"))?;
        if uri.path() != "/" || uri.query().is_some() || authority.contains('@') {
            return Err(wrong("more than a host and a port"));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let port = match uri.port_u16() {
            Some(0) => return Err(wrong("port 0")),
            Some(port) => port,
            None if has_port => return Err(wrong("no port between 1 and 65535")),
            None => PORT_DEFAULT,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Endpoint { host, port, tls })
    }

    /// Returns the URL of the endpoint.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }

    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Opens a connection without TLS, through `dial` if `dial` is present.
    pub(crate) async fn connect(&self, dial: Option<&dyn Dial>) -> Result<Box<dyn Stream>, String> {
        if let Some(dial) = dial {
            return dial.dial(&self.host, self.port).await;
        }
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Box::new(stream))
    }

    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, String> {
        ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())
    }
}

/// The byte stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A future that resolves to a connection, or to the text of an error.
pub type Dialing<'d> = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, String>> + Send + 'd>>;

/// An alternative to direct connections, such as a proxy.
pub trait Dial: Send + Sync {
    /// Opens a connection to a port of a host.
    fn dial<'d>(&'d self, host: &'d str, port: u16) -> Dialing<'d>;
}

/// The TLS configuration: the verification of members, and the client's own certificate.
#[derive(Clone)]
pub struct Tls(pub(crate) Arc<ClientConfig>);

impl Tls {
    /// Creates the TLS configuration. `verifier` verifies the members; the client's certificate and its key
    /// are PEM texts.
    ///
    /// # Errors
    /// A text is not PEM, or contains no certificate or key.
    pub fn new(
        verifier: Arc<dyn ServerCertVerifier>,
        client: Option<(&[u8], &[u8])>,
    ) -> Result<Tls, EndpointError> {
        let wrong = |what: &str, why: &dyn std::fmt::Display| EndpointError(format!("{what}: {why}"));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder =
            builder.map_err(|why| wrong("TLS", &why))?.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
                let chain = chain.map_err(|why| wrong("client certificate", &why))?;
                if chain.is_empty() {
                    return Err(wrong("client certificate", &"no certificate in it"));
                }
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| wrong("client key", &why))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|why| wrong("client certificate and key", &why))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Tls(Arc::new(config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_a_scheme_a_host_and_a_port() {
        for (text, want) in [
            ("http://127.0.0.1:2379", Ok(("127.0.0.1", 2379, false))),
            ("https://etcd.example:2380/", Ok(("etcd.example", 2380, true))),
            ("http://[::1]:99", Ok(("::1", 99, false))),
            ("https://[::1]", Ok(("::1", 2379, true))),
            ("http://a", Ok(("a", 2379, false))),
            ("a:2379", Err(())),
            ("unix:///run/etcd", Err(())),
            ("http://a:0", Err(())),
            ("http://a:99999", Err(())),
            ("http://a:1/path", Err(())),
            ("http://u@a:1", Err(())),
            ("http://", Err(())),
            ("", Err(())),
        ] {
            let parsed = Endpoint::parse(text);
            let got = parsed.as_ref().map(|parsed| (parsed.host.as_str(), parsed.port, parsed.tls));
            assert_eq!(got.map_err(|_| ()), want, "{text}");
        }
    }
}
