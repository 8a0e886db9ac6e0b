//! Where another server is: the URL that is called, and the address and the kind of connection that lead there.
//!
//! Objects name servers by `https` only; plain connections are for what an operator's request names (pods, services).

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::egress::Egress;
use super::guard::Guard;
use super::pool::Pool;
use super::{Credentials, Failure, Tls, credentials};

/// Until a TCP connection is made, where the caller has no other bound: that of the reference server's HTTP client.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a server is, and how it is known.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The URL that is called, with its query.
    url: Uri,
    /// Host and port of the connection.
    address: (String, u16),
    security: Security,
    /// The headers that say who asks.
    identity: HeaderMap,
    /// How the connection is made.
    egress: Egress,
    /// Where the connection must not lead.
    guard: Guard,
    /// Until the TCP connection is made.
    dial_timeout: Duration,
    /// Connections that are kept; all copies of the endpoint share them.
    pool: Arc<Pool>,
}

/// Whether a connection is encrypted.
#[derive(Clone, Debug)]
pub(super) enum Security {
    /// It is not, and the server is not verified.
    Plain,
    /// It is; the server's certificate must have this name.
    Tls { config: Arc<ClientConfig>, name: ServerName<'static> },
}

impl Endpoint {
    /// The server of an `https` URL. `authorities` is the PEM of the certificates that the server's is verified against.
    ///
    /// # Errors
    /// Why no call is possible.
    pub fn new(url: Uri, authorities: &[u8]) -> Result<Endpoint, String> {
        Endpoint::with(url, &Credentials { authorities, ..Credentials::default() })
    }

    /// The server of an `https` URL that wants to know who asks.
    ///
    /// # Errors
    /// Why no call is possible.
    pub fn with(url: Uri, credentials: &Credentials<'_>) -> Result<Endpoint, String> {
        let (host, port) = host_and_port(&url);
        if url.scheme_str() != Some("https") || host.is_empty() {
            return Err(format!("{url} is no https URL with a host"));
        }
        let name = server_name(credentials.server_name.unwrap_or(&host))?;
        let Tls(config) = Tls::new(credentials)?;
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

    /// Where a redirect leads. Another host is not told who asks, and has to have a certificate of its own name.
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

    /// A path of a server at `host` (a name or an address) and `port`; without `tls` the connection is not encrypted.
    ///
    /// # Errors
    /// Why no call is possible.
    pub fn at_port(host: &str, port: u16, target: &str, tls: Option<&Tls>) -> Result<Endpoint, String> {
        let (scheme, security) = match tls {
            Some(Tls(config)) => {
                ("https", Security::Tls { config: config.clone(), name: server_name(host)? })
            }
            None => ("http", Security::Plain),
        };
        let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let url = format!("{scheme}://{shown}:{port}{target}");
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

    /// The same server with another bound for the TCP connection.
    #[must_use]
    pub fn dialed_within(self, dial_timeout: Duration) -> Endpoint {
        Endpoint { dial_timeout, ..self }
    }

    /// The same server, to which no connection is made if its address is one that `guard` refuses.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Endpoint {
        Endpoint { guard, ..self }
    }

    /// The same server, in the network that is reached so, unless its credentials name a proxy.
    #[must_use]
    pub fn through(self, egress: &Egress) -> Endpoint {
        if self.egress.is_direct() { Endpoint { egress: egress.clone(), ..self } } else { self }
    }

    /// Why there is no call, in the words of a call that failed.
    pub(super) fn no_call(&self, why: &str) -> String {
        Failure::Other(why.to_owned()).of(&self.url).to_string()
    }

    /// Another path of the same server.
    ///
    /// # Errors
    /// It is no path.
    pub fn to(&self, path_and_query: &str) -> Result<Endpoint, String> {
        let mut parts = self.url.clone().into_parts();
        parts.path_and_query =
            Some(path_and_query.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?);
        let url = Uri::from_parts(parts).map_err(|error| error.to_string())?;
        Ok(Endpoint { url, ..self.clone() })
    }

    /// The URL.
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

    /// The same server, reached at another address.
    pub fn at(mut self, host: String, port: u16) -> Endpoint {
        self.address = (host, port);
        self
    }

    /// The same server, reached at another address that the URL names too.
    ///
    /// # Errors
    /// The host cannot be part of a URL.
    pub fn moved(&self, host: String, port: u16) -> Result<Endpoint, String> {
        let mut parts = self.url.clone().into_parts();
        let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        parts.authority = Some(shown.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?);
        let url = Uri::from_parts(parts).map_err(|error| error.to_string())?;
        Ok(Endpoint { url, address: (host, port), ..self.clone() })
    }
}

/// Where a connection for a URL goes.
fn host_and_port(url: &Uri) -> (String, u16) {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    (host, url.port_u16().unwrap_or(443))
}

fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is no host name"))
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
    fn a_server_that_moved_keeps_its_name_and_path() {
        let endpoint = Endpoint::new("https://a.b.svc:443/c?d".parse().unwrap(), b"").unwrap();
        for (host, wanted) in [
            ("127.0.0.1", Some("https://127.0.0.1:8443/c?d")),
            ("::1", Some("https://[::1]:8443/c?d")),
            ("a b", None),
        ] {
            let moved = endpoint.moved(host.to_owned(), 8443).ok();
            assert_eq!(moved.as_ref().map(|moved| moved.url().to_string()).as_deref(), wanted);
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
