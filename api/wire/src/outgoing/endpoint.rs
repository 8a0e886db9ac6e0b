//! The endpoint of another server: the URL that is called, and the address and the kind of the connection.
//!
//! API objects can name servers only with `https` URLs. Plain connections are only for pods and services that
//! a proxy request names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::call_metrics::counted;
use super::egress::Egress;
use super::guard::Guard;
use super::pool::{ConnectionTarget, Pool};
use super::{ClientTls, Credentials, Failure, credentials};

/// Default time limit for opening a TCP connection; the same as in the reference server's HTTP client.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The URL and address of a server, with the settings for connections to it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The URL that is called, with its query.
    url: Uri,
    /// Host and port of the connection.
    address: (String, u16),
    security: Security,
    /// Headers that authenticate this server.
    identity: HeaderMap,
    /// The way in which the connection is made.
    egress: Egress,
    /// Rule for addresses to which no connection is made.
    guard: Guard,
    /// Time limit for the TCP connection.
    dial_timeout: Duration,
    /// Idle and shared connections; all copies of the endpoint share the pool.
    pool: Arc<Pool>,
}

/// Whether a connection is encrypted.
#[derive(Clone, Debug)]
pub(super) enum Security {
    /// The connection is not encrypted, and the server is not verified.
    Plain,
    /// The connection is encrypted; the server's certificate must have this name.
    Tls { config: Arc<ClientConfig>, name: ServerName<'static> },
}

impl Endpoint {
    /// Creates the endpoint of an `https` URL. `authorities` is the PEM of the authorities that verify the
    /// server.
    ///
    /// # Errors
    /// The message says why no call is possible.
    pub fn new(url: Uri, authorities: &[u8]) -> Result<Endpoint, String> {
        Endpoint::with(url, &Credentials { authorities, ..Credentials::default() })
    }

    /// Creates the endpoint of an `https` URL with credentials.
    ///
    /// # Errors
    /// The message says why no call is possible.
    pub fn with(url: Uri, credentials: &Credentials<'_>) -> Result<Endpoint, String> {
        let (host, port) = host_and_port(&url);
        if url.scheme_str() != Some("https") || host.is_empty() {
            return Err(format!("{url} is not an https URL with a host"));
        }
        let name = server_name(credentials.server_name.unwrap_or(&host))?;
        let ClientTls(config) = ClientTls::new(credentials)?;
        let egress = credentials.proxy.map(Egress::by_url).transpose()?.unwrap_or_default();
        Ok(Endpoint {
            url,
            address: (host, port),
            security: Security::Tls { config, name },
            identity: credentials::headers(credentials)?,
            egress,
            guard: Guard::Open,
            dial_timeout: DIAL_TIMEOUT,
            pool: Arc::default(),
        })
    }

    /// Returns the endpoint of a redirect. Another host gets no credentials, and must have a certificate for
    /// its own name.
    pub(super) fn redirected(&self, url: Uri) -> Result<Endpoint, String> {
        if url.authority() == self.url.authority() {
            return Ok(Endpoint { url, ..self.clone() });
        }
        let address = host_and_port(&url);
        let security = match &self.security {
            Security::Plain => Security::Plain,
            Security::Tls { config, .. } => {
                Security::Tls { config: config.clone(), name: server_name(&address.0)? }
            }
        };
        let identity = if url.host() == self.url.host() { self.identity.clone() } else { HeaderMap::new() };
        Ok(Endpoint { url, address, security, identity, ..self.clone() })
    }

    /// Creates the endpoint for the path `target` of the server at `host` (a name or an address) and `port`.
    /// The connection is encrypted only if `tls` is present.
    ///
    /// # Errors
    /// The message says why no call is possible.
    pub fn at_port(host: &str, port: u16, target: &str, tls: Option<&ClientTls>) -> Result<Endpoint, String> {
        let (scheme, security) = match tls {
            Some(ClientTls(config)) => {
                ("https", Security::Tls { config: config.clone(), name: server_name(host)? })
            }
            None => ("http", Security::Plain),
        };
        let url_host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let url = format!("{scheme}://{url_host}:{port}{target}");
        Ok(Endpoint {
            url: url.parse().map_err(|error| format!("parse {url:?}: {error}"))?,
            address: (host.to_owned(), port),
            security,
            identity: HeaderMap::new(),
            egress: Egress::default(),
            guard: Guard::Open,
            dial_timeout: DIAL_TIMEOUT,
            pool: Arc::default(),
        })
    }

    /// Sets the time limit for the TCP connection.
    #[must_use]
    pub fn dialed_within(self, dial_timeout: Duration) -> Endpoint {
        Endpoint { dial_timeout, ..self }
    }

    /// Sets the rule for addresses to which no connection is made.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Endpoint {
        Endpoint { guard, ..self }
    }

    /// Sets the egress, with the metrics in which calls are counted. A proxy that the credentials name has
    /// precedence.
    #[must_use]
    pub fn through(self, egress: &Egress) -> Endpoint {
        Endpoint { egress: self.egress.or(egress), ..self }
    }

    /// Returns the message for a call that failed because of `why`.
    pub(super) fn no_call(&self, why: &str) -> String {
        Failure::Other(why.to_owned()).with_post_url(&self.url).to_string()
    }

    /// Returns the endpoint for another path on the same server.
    ///
    /// # Errors
    /// The text is not a path.
    pub fn to(&self, path_and_query: &str) -> Result<Endpoint, String> {
        let mut parts = self.url.clone().into_parts();
        parts.path_and_query =
            Some(path_and_query.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?);
        let url = Uri::from_parts(parts).map_err(|error| error.to_string())?;
        Ok(Endpoint { url, ..self.clone() })
    }

    /// Returns the URL that is called.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    pub(super) fn address(&self) -> (&str, u16) {
        (&self.address.0, self.address.1)
    }

    pub(super) fn security(&self) -> &Security {
        &self.security
    }

    pub(super) fn identity(&self) -> &HeaderMap {
        &self.identity
    }

    pub(super) fn egress(&self) -> &Egress {
        &self.egress
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(super) fn dial_timeout(&self) -> Duration {
        self.dial_timeout
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Counts a call to the endpoint. `code` is `None` if there was no response.
    pub(super) fn count(&self, method: &Method, code: Option<StatusCode>, began: Instant) {
        if let Some(calls) = self.egress.calls() {
            let (host, port) = self.address();
            counted(calls, host, port, method, code, began);
        }
    }

    /// Returns the target of connections to the endpoint.
    pub(super) fn target(&self) -> ConnectionTarget {
        ConnectionTarget::new(&self.address.0, self.address.1, &self.url)
    }

    /// Changes the address of the connection, but not the URL.
    pub fn at(mut self, host: String, port: u16) -> Endpoint {
        self.address = (host, port);
        self
    }

    /// Returns the endpoint with another address, in the connection and in the URL.
    ///
    /// # Errors
    /// The host cannot be part of a URL.
    pub fn moved(&self, host: String, port: u16) -> Result<Endpoint, String> {
        let mut parts = self.url.clone().into_parts();
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        parts.authority = Some(authority.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?);
        let url = Uri::from_parts(parts).map_err(|error| error.to_string())?;
        Ok(Endpoint { url, address: (host, port), ..self.clone() })
    }
}

/// Returns the host and the port of the connection for a URL.
fn host_and_port(url: &Uri) -> (String, u16) {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    (host, url.port_u16().unwrap_or(443))
}

fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is not a host name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_urls_with_a_host_are_called() {
        for (url, works) in [
            ("https://example.com/a?b=c", true),
            ("https://[::1]:8443", true),
            ("http://example.com", false),
            ("/path", false),
        ] {
            assert_eq!(Endpoint::new(url.parse().unwrap(), b"").is_ok(), works, "{url}");
        }
    }

    #[test]
    fn an_endpoint_at_another_address_keeps_its_name_and_path() {
        let endpoint = Endpoint::new("https://a.b.svc:443/c?d".parse().unwrap(), b"").unwrap();
        for (host, expected) in [
            ("127.0.0.1", Some("https://127.0.0.1:8443/c?d")),
            ("::1", Some("https://[::1]:8443/c?d")),
            ("a b", None),
        ] {
            let moved = endpoint.moved(host.to_owned(), 8443).ok();
            assert_eq!(moved.as_ref().map(|moved| moved.url().to_string()).as_deref(), expected);
            if let Some(moved) = moved {
                let name = |endpoint: &Endpoint| match endpoint.security() {
                    Security::Tls { name, .. } => name.clone(),
                    Security::Plain => panic!("it is encrypted"),
                };
                assert_eq!(name(&moved), name(&endpoint));
                assert_eq!(moved.address, (host.to_owned(), 8443));
            }
        }
    }
}
