//! The webhook that knows tokens: its kubeconfig file, and reviews sent to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use auth::authn::jwt::{FetchError, Fetched};
use auth::authn::webhook::{Reviewer, WebhookTokens};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};

use crate::flags::Profile;
use crate::https::Trust;
use crate::kubeconfig::Access;

/// Attempts for one review, while the other server is overloaded or broken.
const ATTEMPTS: u32 = 5;

/// Time before the second attempt; each further one waits half as long again.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The flags of the webhook.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    file: PathBuf,
    version: String,
    lifetime: Duration,
}

impl WebhookConfig {
    /// Takes the flags.
    ///
    /// # Errors
    /// An unknown version, or an unusable file.
    pub fn from_flags(
        file: Option<PathBuf>,
        version: &str,
        lifetime: Duration,
    ) -> anyhow::Result<Option<Self>> {
        if !matches!(version, "v1" | "v1beta1") {
            bail!("--authentication-token-webhook-version must be v1 or v1beta1");
        }
        let Some(file) = file else { return Ok(None) };
        server(&file)?;
        Ok(Some(WebhookConfig { file, version: version.to_owned(), lifetime }))
    }

    /// The authenticator; `own_audiences` are those of this server.
    ///
    /// # Errors
    /// An unusable file.
    pub fn build(&self, own_audiences: Vec<String>, naming: Profile) -> anyhow::Result<WebhookTokens> {
        let group = naming.group("authentication", true);
        let version = format!("{group}/{}", self.version);
        Ok(WebhookTokens::new(Arc::new(server(&self.file)?), version, self.lifetime, own_audiences))
    }
}

/// The server of a kubeconfig file.
fn server(path: &Path) -> anyhow::Result<Webhook> {
    let failed = || format!("--authentication-token-webhook-config-file {}", path.display());
    let access = Access::read(path).with_context(failed)?;
    let pair = access.certificate.as_ref().map(|(chain, key)| (chain.as_slice(), key.as_slice()));
    let trust = Trust::new(&access.ca_pem, pair).with_context(failed)?;
    let separator = if access.server.contains('?') { '&' } else { '?' };
    let uri = format!("{}{separator}timeout=30s", access.server);
    let uri: Uri = uri.parse().with_context(failed)?;
    let token = access.token.as_ref().map(|token| HeaderValue::try_from(format!("Bearer {token}")));
    let mut token = token.transpose().with_context(failed)?;
    token.iter_mut().for_each(|token| token.set_sensitive(true));
    Ok(Webhook { trust, server_name: access.server_name, uri, token })
}

/// The other server.
#[derive(Clone)]
struct Webhook {
    trust: Trust,
    server_name: Option<String>,
    uri: Uri,
    token: Option<HeaderValue>,
}

impl Webhook {
    async fn ask(&self, review: Vec<u8>) -> Result<(StatusCode, Vec<u8>), FetchError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .header(ACCEPT, "application/json, */*")
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let answer = self.trust.ask(self.server_name.as_deref(), &self.uri, request, review).await;
        let (status, body) = answer.map_err(|error| FetchError(error.to_string()))?;
        Ok((status, body.to_vec()))
    }
}

impl Reviewer for Webhook {
    fn review(&self, review: Vec<u8>) -> Fetched {
        let webhook = self.clone();
        Box::pin(async move {
            let mut delay = FIRST_DELAY;
            for _ in 1..ATTEMPTS {
                let (status, body) = webhook.ask(review.clone()).await?;
                if !matches!(status.as_u16(), 429 | 500 | 504) {
                    return read(status, body);
                }
                tokio::time::sleep(delay).await;
                delay = delay.mul_f32(1.5);
            }
            let (status, body) = webhook.ask(review).await?;
            read(status, body)
        })
    }
}

fn read(status: StatusCode, body: Vec<u8>) -> Result<Vec<u8>, FetchError> {
    match status {
        status if status.is_success() => Ok(body),
        StatusCode::BAD_REQUEST => {
            Err(FetchError("the server rejected our request for an unknown reason".to_owned()))
        }
        StatusCode::UNAUTHORIZED => Err(FetchError("Unauthorized".to_owned())),
        status => Err(FetchError(format!("the server answered {status}"))),
    }
}
