//! HTTPS client for commands that connect to a running server. Every wait has a time limit, and every error
//! is one line that names the server.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::Value;
use wire::outgoing::{self, Opened};

use crate::remote::kubeconfig::{Settings, Source};

/// Maximum time from the connection to the head of the response. A server ends requests after a minute by
/// default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum time without a byte of a response that has begun.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a response that is read as a whole; a page of metrics has about a megabyte.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes of an error response that are read; the message is at the beginning.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// A server and the credentials for it.
pub struct Client {
    /// The server's address as configured, for messages.
    address: String,
    source: Source,
    base: String,
}

impl Client {
    /// Creates a client for the server of a kubeconfig, or for `server` if given.
    pub fn new(settings: Settings, server: Option<&str>) -> anyhow::Result<Client> {
        let address = server.unwrap_or(&settings.server).to_owned();
        let server: Uri = address.parse().ok().with_context(|| format!("{address:?} is not a URL"))?;
        if server.scheme_str() != Some("https") {
            bail!("{address:?} is not an https:// URL");
        }
        let base = server.path().trim_end_matches('/').to_owned();
        Ok(Client { source: Source::new(settings, server)?, address, base })
    }

    /// Posts `body` to `path` and returns the response if its code is 200. The response body is not read yet:
    /// use [`next`].
    ///
    /// # Errors
    /// The request failed, or the server refused it; the error then contains the code and the message.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> anyhow::Result<Opened> {
        let opened = self.send(path, &request(Method::POST, body)).await?;
        match opened.response.status() {
            StatusCode::OK => Ok(opened),
            code => Err(self.refusal(code, opened.response.into_body()).await),
        }
    }

    /// Gets `path` and returns the whole response if its code is one of success.
    ///
    /// # Errors
    /// The request failed, or the server refused it; the error then contains the code and the message.
    pub async fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.answer(path, &request(Method::GET, Vec::new())).await
    }

    /// Posts an object as JSON to `path` and returns the whole response if its code is one of success.
    ///
    /// # Errors
    /// The request failed, or the server refused it; the error then contains the code and the message.
    pub async fn post_json(&self, path: &str, object: &Value) -> anyhow::Result<Vec<u8>> {
        let mut request = request(Method::POST, serde_json::to_vec(object)?);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.answer(path, &request).await
    }

    /// Gets `path` and returns the code and the whole response, whatever the code is.
    ///
    /// # Errors
    /// The request failed.
    pub async fn probe(&self, path: &str) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let opened = self.send(path, &request(Method::GET, Vec::new())).await?;
        Ok((opened.response.status(), whole(opened.response.into_body()).await?))
    }

    /// Returns the server's address as configured, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    async fn answer(&self, path: &str, request: &Request<Bytes>) -> anyhow::Result<Vec<u8>> {
        let opened = self.send(path, request).await?;
        match opened.response.status() {
            code if code.is_success() => whole(opened.response.into_body()).await,
            code => Err(self.refusal(code, opened.response.into_body()).await),
        }
    }

    async fn refusal(&self, code: StatusCode, body: Incoming) -> anyhow::Error {
        let message = message(body).await;
        anyhow!("{} refuses: {message} ({})", self.address, code.as_u16())
    }

    /// Sends a request to `path`. If the server refuses a credential that a program printed, the program runs again.
    async fn send(&self, path: &str, request: &Request<Bytes>) -> anyhow::Result<Opened> {
        loop {
            let failed = || format!("cannot connect to {}", self.address);
            let endpoint = self.source.endpoint().await.with_context(failed)?;
            let endpoint = endpoint.to(&format!("{}{path}", self.base)).map_err(anyhow::Error::msg)?;
            let request = request.clone().map(Full::new);
            let opened = tokio::time::timeout(ANSWER_TIMEOUT, outgoing::open(&endpoint, request)).await;
            let opened =
                opened.map_err(|_| anyhow!("no response")).with_context(failed)?.with_context(failed)?;
            if opened.response.status() != StatusCode::UNAUTHORIZED || !self.source.refused().await {
                return Ok(opened);
            }
        }
    }
}

fn request(method: Method, body: Vec<u8>) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from(body));
    *request.method_mut() = method;
    request
}

/// Returns the whole body of a response.
async fn whole(mut body: Incoming) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(more) = next(&mut body).await? {
        bytes.extend_from_slice(&more);
        if bytes.len() > BODY_BYTES_MAX {
            bail!("the response has more than {BODY_BYTES_MAX} bytes");
        }
    }
    Ok(bytes)
}

/// Returns the next bytes of a response; `None` at its end.
///
/// # Errors
/// The connection broke, or no byte arrived in time.
pub async fn next(body: &mut Incoming) -> anyhow::Result<Option<Bytes>> {
    loop {
        let frame = tokio::time::timeout(SILENCE_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| anyhow!("the server has sent nothing for two minutes"))?;
        let Some(frame) = frame else { return Ok(None) };
        if let Ok(bytes) = frame.context("the transfer was interrupted")?.into_data() {
            return Ok(Some(bytes));
        }
    }
}

/// Returns the text of an error response: the message of its `Status`, or the whole body.
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
