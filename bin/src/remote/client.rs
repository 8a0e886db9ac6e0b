//! HTTPS client for commands that connect to a running server. Every wait has a time limit. Every error is
//! one line with the address of the server.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT, WARNING};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::Value;
use wire::outgoing::{self, Opened};

use crate::remote::kubeconfig::{Settings, Source};

/// Maximum time to connect, send a request and receive the head of the response. By default, a server ends
/// requests after a minute.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum time without a byte of a response that has begun.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a response that is read as a whole. A page of metrics has about a megabyte.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Maximum number of bytes of an error response that are read. The message is at the beginning.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The error for a response that is larger than [`BODY_BYTES_MAX`].
#[derive(Debug, thiserror::Error)]
#[error("the response has more than {} bytes", BODY_BYTES_MAX)]
pub struct ResponseTooLarge;

/// User agent in requests of [`Client::exchange`]. The history of objects records the user agent.
const AGENT: &str = concat!("cluster-apiserver/", env!("CARGO_PKG_VERSION"));

/// A response that was read as a whole.
#[derive(Debug)]
pub struct WholeResponse {
    /// Status code of the response.
    pub code: StatusCode,
    /// Texts of the `Warning` headers.
    pub warnings: Vec<String>,
    /// The body of the response.
    pub body: Vec<u8>,
}

impl WholeResponse {
    /// Parses the body as JSON.
    ///
    /// # Errors
    /// The body is not JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).context("the response is not JSON")
    }

    /// Returns the message of an error response, on one line.
    pub fn message(&self) -> String {
        let bytes = self.body.get(..ERROR_BYTES_MAX).unwrap_or(&self.body);
        text_of_error(bytes)
    }
}

/// A client with the address of a server and the credentials for this server.
pub struct Client {
    /// The address of the server as configured, for messages.
    address: String,
    source: Source,
    base: String,
}

impl Client {
    /// Creates a client with the credentials in a kubeconfig. Connects to `server` if given, else to the
    /// server in the kubeconfig.
    pub fn new(settings: Settings, server: Option<&str>) -> anyhow::Result<Client> {
        let address = server.unwrap_or(&settings.server).to_owned();
        let server: Uri = address.parse().ok().with_context(|| format!("{address:?} is not a URL"))?;
        if server.scheme_str() != Some("https") {
            bail!("{address:?} is not an https:// URL");
        }
        let base = server.path().trim_end_matches('/').to_owned();
        Ok(Client { source: Source::new(settings, server)?, address, base })
    }

    /// Posts `body` to `path`, and returns the response if its code is 200. The caller reads the response
    /// body with [`next`].
    ///
    /// # Errors
    /// The request failed, or the server refused it. In the second case, the error contains the code and the
    /// message.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> anyhow::Result<Opened> {
        let opened = self.send(path, &request(Method::POST, body)).await?;
        match opened.response.status() {
            StatusCode::OK => Ok(opened),
            code => Err(self.refusal(code, opened.response.into_body()).await),
        }
    }

    /// Gets `path`, and returns the whole response body if the code is 2xx.
    ///
    /// # Errors
    /// The request failed, or the server refused it. In the second case, the error contains the code and the
    /// message.
    pub async fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.answer(path, &request(Method::GET, Vec::new())).await
    }

    /// Posts an object as JSON to `path`, and returns the whole response body if the code is 2xx.
    ///
    /// # Errors
    /// The request failed, or the server refused it. In the second case, the error contains the code and the
    /// message.
    pub async fn post_json(&self, path: &str, object: &Value) -> anyhow::Result<Vec<u8>> {
        let mut request = request(Method::POST, serde_json::to_vec(object)?);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.answer(path, &request).await
    }

    /// Gets `path`, and returns the code and the whole response body, even if the code is an error.
    ///
    /// # Errors
    /// The request failed.
    pub async fn probe(&self, path: &str) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let opened = self.send(path, &request(Method::GET, Vec::new())).await?;
        Ok((opened.response.status(), read_body(opened.response.into_body()).await?))
    }

    /// Sends a request, whose body is `object` as JSON, if given. Returns the response, even if its code is an error.
    ///
    /// # Errors
    /// The request failed.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        object: Option<&Value>,
    ) -> anyhow::Result<WholeResponse> {
        let body = object.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let mut request = request(method, body);
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let opened = self.send(path, &request).await?;
        let (code, warnings) = (opened.response.status(), warnings(opened.response.headers()));
        Ok(WholeResponse { code, warnings, body: read_body(opened.response.into_body()).await? })
    }

    /// Gets `path`, and returns the parsed response, or `None` if the code is 404.
    ///
    /// # Errors
    /// The request failed, or the server refused it. In the second case, the error contains the code and the
    /// message.
    pub async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let response = self.exchange(Method::GET, path, None).await?;
        match response.code {
            StatusCode::OK => response.json().map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refused(&response)),
        }
    }

    /// Converts a response that refuses a request into an error.
    pub fn refused(&self, response: &WholeResponse) -> anyhow::Error {
        anyhow!("{} refuses: {} ({})", self.address, response.message(), response.code.as_u16())
    }

    /// Returns the address of the server as configured, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    async fn answer(&self, path: &str, request: &Request<Bytes>) -> anyhow::Result<Vec<u8>> {
        let opened = self.send(path, request).await?;
        match opened.response.status() {
            code if code.is_success() => read_body(opened.response.into_body()).await,
            code => Err(self.refusal(code, opened.response.into_body()).await),
        }
    }

    async fn refusal(&self, code: StatusCode, body: Incoming) -> anyhow::Error {
        let message = message(body).await;
        anyhow!("{} refuses: {message} ({})", self.address, code.as_u16())
    }

    /// Sends a request to `path`. Runs the program again if the credential is from a program and the server
    /// refuses the credential.
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

/// Reads the whole body of a response.
async fn read_body(mut body: Incoming) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(more) = next(&mut body).await? {
        bytes.extend_from_slice(&more);
        if bytes.len() > BODY_BYTES_MAX {
            return Err(ResponseTooLarge.into());
        }
    }
    Ok(bytes)
}

/// Returns the next bytes of a response body, or `None` at its end.
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

/// Returns the text of an error response: the message of the `Status` in the body, or else the whole body.
async fn message(mut body: Incoming) -> String {
    let mut text = Vec::new();
    while let Ok(Some(bytes)) = next(&mut body).await {
        text.extend_from_slice(&bytes);
        if text.len() > ERROR_BYTES_MAX {
            break;
        }
    }
    text_of_error(&text)
}

fn text_of_error(body: &[u8]) -> String {
    let status = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let message = status["message"].as_str().map_or_else(|| String::from_utf8_lossy(body), Into::into);
    message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the texts in `Warning` headers. A header has the form `299 - "text"`, and a quote in the text is
/// `\"`.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.get_all(WARNING).into_iter().filter_map(|header| header.to_str().ok());
    let quoted = texts.filter_map(|text| Some(text.split_once('"')?.1.rsplit_once('"')?.0));
    quoted.map(|text| text.replace("\\\"", "\"").replace("\\\\", "\\")).collect()
}
