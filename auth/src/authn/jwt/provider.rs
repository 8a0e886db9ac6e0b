//! Where an issuer's keys come from: its discovery document, then its key set
//! (OpenID Connect Discovery 1.0, section 4; RFC 7517).

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;

use crate::authn::jws::{Compact, Jwk, PublicKey};

/// Least time between two reads of a key set, so that tokens with wrong signatures do not cause one each.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Most keys of an issuer.
const KEYS_MAX: usize = 256;

/// Why a document could not be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FetchError {
    /// The answer was of another code than success, which it names.
    #[error("{0}")]
    Answer(String),
    /// There was no answer, or it cannot be used.
    #[error("{0}")]
    Failed(String),
}

/// What a [`Fetch`] answers later.
pub type Fetched = Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchError>> + Send>>;

/// Reads documents of an issuer.
pub trait Fetch: Send + Sync {
    /// The body of the answer to GET, perhaps with a bearer token, if its code is one of success. Must end within a bounded
    /// time, with a bounded body.
    fn get(&self, url: &str, token: Option<&str>) -> Fetched;
}

/// The keys of one issuer.
pub struct Provider {
    url: String,
    discovery_url: Option<String>,
    fetch: Arc<dyn Fetch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    keys_uri: Option<String>,
    keys: Arc<[Key]>,
    refreshed: Option<Instant>,
}

struct Key {
    id: String,
    key: PublicKey,
}

/// The members of a discovery document that are used.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

impl Provider {
    /// Reads the keys of the issuer `url`, discovered there or at `discovery_url`.
    pub fn new(url: &str, discovery_url: Option<&str>, fetch: Arc<dyn Fetch>) -> Provider {
        let discovery_url = discovery_url.map(str::to_owned);
        Provider { url: url.to_owned(), discovery_url, fetch, state: Mutex::default() }
    }

    /// Whether the keys can be read.
    pub fn is_ready(&self) -> bool {
        self.state.lock().keys_uri.is_some()
    }

    /// Reads the discovery document.
    ///
    /// # Errors
    /// It cannot be read, or is that of another issuer. May be tried again.
    pub async fn discover(&self) -> Result<(), FetchError> {
        let url = match &self.discovery_url {
            Some(url) => url.clone(),
            None => format!("{}/.well-known/openid-configuration", self.url.trim_end_matches('/')),
        };
        let text = self.fetch.get(&url, None).await?;
        let found: Configuration = serde_json::from_slice(&text)
            .map_err(|error| FetchError::Failed(format!("the discovery document cannot be read: {error}")))?;
        if found.issuer != self.url {
            let why = format!("issuer did not match the issuer returned by provider, got {:?}", found.issuer);
            return Err(FetchError::Failed(why));
        }
        if !found.jwks_uri.starts_with("https://") {
            return Err(FetchError::Failed("the keys are not at an https address".to_owned()));
        }
        self.state.lock().keys_uri = Some(found.jwks_uri);
        Ok(())
    }

    /// Whether a key of the issuer signed the token. Reads the key set once more if none of the known keys did.
    pub async fn has_signed(&self, token: &Compact<'_>) -> bool {
        let keys = self.state.lock().keys.clone();
        if verifies(&keys, token) {
            return true;
        }
        match self.refresh().await {
            Some(keys) => verifies(&keys, token),
            None => false,
        }
    }

    /// Reads the key set, unless that was done just now.
    async fn refresh(&self) -> Option<Arc<[Key]>> {
        let uri = {
            let mut state = self.state.lock();
            if state.refreshed.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
                return Some(state.keys.clone());
            }
            state.refreshed = Some(Instant::now());
            state.keys_uri.clone()?
        };
        let read = self.fetch.get(&uri, None).await;
        let read = read.and_then(|text| {
            serde_json::from_slice::<KeySet>(&text).map_err(|error| FetchError::Failed(error.to_string()))
        });
        let set = match read {
            Ok(set) => set,
            Err(error) => {
                tracing::warn!(issuer = %self.url, %error, "keys of an issuer cannot be read");
                return None;
            }
        };
        let usable = set.keys.into_iter().take(KEYS_MAX).filter_map(|key| {
            let jwk: Jwk = serde_json::from_value(key).ok()?;
            Some(Key { key: PublicKey::from_jwk(&jwk)?, id: jwk.kid })
        });
        let keys: Arc<[Key]> = usable.collect();
        self.state.lock().keys = keys.clone();
        Some(keys)
    }
}

/// A key id in the token selects keys; without one all are tried.
fn verifies(keys: &[Key], token: &Compact<'_>) -> bool {
    let wanted = &token.header.kid;
    let mut candidates = keys.iter().filter(|key| wanted.is_empty() || key.id == *wanted);
    candidates.any(|key| token.is_signed_by(&key.key))
}
