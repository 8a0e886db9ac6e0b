//! HTTPS client for commands that connect to a running server. Every wait has a time limit, and every error is one
//! line that names the server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::Access;

/// Limit of the connection and the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// From the request to the head of the response. A server ends requests after a minute by default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// Without a byte of a response that has begun.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of an error that are read; its message is at the beginning.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// A server and the credentials for it.
pub struct Client {
    /// The server's address as configured, for messages.
    address: String,
    server: Uri,
    tls: TlsConnector,
    name: ServerName<'static>,
    token: Option<HeaderValue>,
}

impl Client {
    /// A client for the server of a kubeconfig, at another address if one is given.
    pub fn new(access: Access, server: Option<&str>) -> anyhow::Result<Client> {
        let address = server.unwrap_or(&access.server).to_owned();
        let server: Uri = address.parse().ok().with_context(|| format!("{address:?} is not a URL"))?;
        if server.scheme_str() != Some("https") {
            bail!("{address:?} is not an https:// URL");
        }
        let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = access.server_name.clone().unwrap_or(host);
        let name = ServerName::try_from(name.clone())
            .ok()
            .with_context(|| format!("{name:?} is not a host name"))?;
        let token = access.token.as_ref().map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let mut token =
            token.transpose().ok().context("the token contains characters that a header cannot carry")?;
        token.iter_mut().for_each(|token| token.set_sensitive(true));
        let tls = TlsConnector::from(Arc::new(tls_config(&access)?));
        Ok(Client { address, server, tls, name, token })
    }

    /// Posts `body` to `path` and returns the response, if it is 200, with its body unread: [`next`] reads it.
    ///
    /// # Errors
    /// Also if the server refuses; the error contains its code and message.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> anyhow::Result<Response<Incoming>> {
        let failed = || format!("cannot connect to {}", self.address);
        let connecting = async {
            let host = self.server.host().unwrap_or_default().trim_matches(['[', ']']);
            let stream = TcpStream::connect((host, self.server.port_u16().unwrap_or(443))).await?;
            self.tls.connect(self.name.clone(), stream).await
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let stream =
            connected.map_err(|_| anyhow!("no answer")).with_context(failed)?.with_context(failed)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.with_context(failed)?;
        tokio::spawn(connection);

        let failed = || format!("cannot ask {}", self.address);
        let authority = self.server.authority().map_or("", |authority| authority.as_str());
        let base = self.server.path().trim_end_matches('/');
        let mut request = Request::builder().method(Method::POST).uri(format!("{base}{path}"));
        request = request.header(HOST, authority);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(Bytes::from(body))).with_context(failed)?;
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(request)).await;
        let response =
            answered.map_err(|_| anyhow!("no answer")).with_context(failed)?.with_context(failed)?;
        match response.status() {
            StatusCode::OK => Ok(response),
            code => {
                let message = message(response.into_body()).await;
                bail!("{} refuses: {message} ({})", self.address, code.as_u16())
            }
        }
    }
}

/// The next bytes of a response; `None` at its end.
///
/// # Errors
/// The connection broke, or no byte arrived in time.
pub async fn next(body: &mut Incoming) -> anyhow::Result<Option<Bytes>> {
    loop {
        let frame = tokio::time::timeout(SILENCE_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| anyhow!("the server has sent nothing for two minutes"))?;
        let Some(frame) = frame else { return Ok(None) };
        if let Ok(bytes) = frame.context("the transfer broke off")?.into_data() {
            return Ok(Some(bytes));
        }
    }
}

/// The text of an error response: the message of its `Status`, or the body.
async fn message(mut body: Incoming) -> String {
    let mut text = Vec::new();
    while let Ok(Some(bytes)) = next(&mut body).await {
        text.extend_from_slice(&bytes);
        if text.len() > ERROR_BYTES_MAX {
            break;
        }
    }
    let status = serde_json::from_slice::<Value>(&text).unwrap_or_default();
    let message = status["message"].as_str().map_or_else(|| String::from_utf8_lossy(&text), Into::into);
    message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn tls_config(access: &Access) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&access.ca_pem) {
        let certificate = certificate.context("certificate-authority is not PEM")?;
        roots.add(certificate).context("certificate-authority has other entries than certificates")?;
    }
    if roots.is_empty() {
        bail!("certificate-authority has no certificate");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("cannot set up TLS")?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &access.certificate else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.context("client-certificate is not PEM")?;
    let key = PrivateKeyDer::from_pem_slice(key).ok().context("client-key is not a PEM private key")?;
    builder.with_client_auth_cert(chain, key).context("client-certificate and client-key cannot be used")
}
