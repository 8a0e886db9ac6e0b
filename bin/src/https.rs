//! One request over HTTPS: a new connection, one answer of bounded size within bounded time, no redirect.
//!
//! For documents that are read seldom (keys of issuers) and questions whose answers are remembered (tokens).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// From the first packet to the last byte of the answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Most bytes of an answer: key sets and reviews have a few thousand.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where systems keep their authorities.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// PEM of the authorities that the system believes; empty if it has none.
pub fn system_authorities() -> Vec<u8> {
    SYSTEM_BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default()
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpsError {
    /// The address is not one of a server.
    #[error("{0:?} is not an https address")]
    Address(String),
    /// The certificates given cannot be used.
    #[error("{0}")]
    Certificates(&'static str),
    /// The server was not reached, or not believed.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    /// The exchange broke off, or the answer is too long.
    #[error("the exchange broke off: {0}")]
    Exchange(String),
    /// No answer in time.
    #[error("no answer within {} seconds", TIMEOUT.as_secs())]
    Timeout,
}

/// Whom to believe, and who this server is to others.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Believes the authorities of a PEM bundle, or those of the system if it is empty. Shows a certificate, if one is
    /// given as chain and key.
    ///
    /// # Errors
    /// Text that is no PEM, or of another kind.
    pub fn new(authorities: &[u8], certificate: Option<(&[u8], &[u8])>) -> Result<Trust, HttpsError> {
        let mut roots = RootCertStore::empty();
        let text = if authorities.is_empty() { system_authorities() } else { authorities.to_vec() };
        for root in CertificateDer::pem_slice_iter(&text).filter_map(Result::ok) {
            // A system's bundle may have entries that this library does not take.
            let _ = roots.add(root);
        }
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|_| HttpsError::Certificates("cannot set up TLS"))?
                .with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
                let chain = chain.map_err(|_| HttpsError::Certificates("client-certificate is not PEM"))?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| HttpsError::Certificates("client-key is not a PEM private key"))?;
                builder.with_client_auth_cert(chain, key).map_err(|_| {
                    HttpsError::Certificates("client-certificate and client-key cannot be used")
                })?
            }
        };
        Ok(Trust(Arc::new(config)))
    }

    /// Sends a request to `uri` and returns status and body of the answer.
    pub async fn ask(
        &self,
        server_name: Option<&str>,
        uri: &Uri,
        request: http::request::Builder,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), HttpsError> {
        let exchange = self.exchange(server_name, uri, request, body);
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_| HttpsError::Timeout)?
    }

    async fn exchange(
        &self,
        server_name: Option<&str>,
        uri: &Uri,
        request: http::request::Builder,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), HttpsError> {
        let odd = || HttpsError::Address(uri.to_string());
        let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(odd()) };
        let host = authority.host().trim_matches(['[', ']']);
        let name = ServerName::try_from(server_name.unwrap_or(host).to_owned()).map_err(|_| odd())?;
        let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(443))).await?;
        let stream = TlsConnector::from(self.0.clone()).connect(name, stream).await?;
        let broken = |error: &dyn std::fmt::Display| HttpsError::Exchange(error.to_string());
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        let connection = tokio::spawn(connection);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request: Result<Request<_>, _> =
            request.uri(path).header(HOST, authority.as_str()).body(Full::new(Bytes::from(body)));
        let answer = sender.send_request(request.map_err(|error| broken(&error))?).await;
        let answer = answer.map_err(|error| broken(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        connection.abort();
        Ok((status, body.map_err(|error| broken(&*error))?.to_bytes()))
    }
}
