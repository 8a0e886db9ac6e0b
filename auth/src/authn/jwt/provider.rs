//! Where an issuer's keys come from: its discovery document, then its key set
//! (OpenID Connect Discovery 1.0, section 4; RFC 7517).
//!
//! ```text
//! token ─► a known key signed it ─► accepted
//!             │ none
//!             ▼
//!          the key set is still fresh ─► refused
//!             │ it is not
//!             ▼
//!          the key set is read ─► a key in it signed it ─► accepted
//! ```
//!
//! The texts of errors are those of kube-apiserver, which token reviews show.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use go::json::syntax_error;
use go::quote;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::authn::jws::{Compact, Jwk, PublicKey};
use crate::authn::token_header::check_key;

/// Reads of a key set that may follow each other at once, and the time for one more: tokens with wrong signatures must not
/// cause one each.
const READS_AT_ONCE: u32 = 8;
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// A key set that ends so soon is read again for a token that none of its keys signed.
const FRESHNESS_LEEWAY: Duration = Duration::from_secs(30);

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

/// An answer to a request for a document.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// Its code, as 404.
    pub code: u16,
    /// The code with its reason, as `404 Not Found`.
    pub status: String,
    /// Media type as the answer names it; empty where it names none.
    pub content_type: String,
    /// How long the document counts without being read again (RFC 9111, section 4.2).
    pub fresh_for: Duration,
    /// The document.
    pub body: Vec<u8>,
}

impl Answered {
    /// Whether the answer is the document that was asked for.
    fn is_ok(&self) -> bool {
        self.code == 200
    }
}

/// What a [`Fetch`] answers later.
pub type Answering = Pin<Box<dyn Future<Output = Result<Answered, String>> + Send>>;

/// Reads documents of an issuer.
pub trait Fetch: Send + Sync {
    /// The answer to GET, perhaps with a bearer token. Must end within a bounded time, with a bounded body.
    fn get(&self, url: &str, token: Option<&str>) -> Answering;
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
    /// Until then no other keys are to be expected.
    fresh_until: Option<Instant>,
    /// When all reads that were made are paid for by [`READ_INTERVAL`].
    reads_settled: Option<Instant>,
}

struct Key {
    id: String,
    key: PublicKey,
}

/// The members of a discovery document that are used.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    /// Without it the document counts, and no signature can be verified.
    jwks_uri: Option<String>,
}

#[derive(Deserialize)]
struct KeySet {
    #[serde(default)]
    keys: Vec<Value>,
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
            None => {
                let base = self.url.strip_suffix('/').unwrap_or(&self.url);
                format!("{base}/.well-known/openid-configuration")
            }
        };
        let answered = self.fetch.get(&url, None).await.map_err(FetchError::Failed)?;
        if !answered.is_ok() {
            return Err(FetchError::Answer(answered.status));
        }
        let found: Configuration = serde_json::from_slice(&answered.body)
            .map_err(|error| FetchError::Failed(format!("the discovery document cannot be read: {error}")))?;
        if found.issuer != self.url {
            let why = format!("issuer did not match the issuer returned by provider, got {:?}", found.issuer);
            return Err(FetchError::Failed(why));
        }
        let uri = found.jwks_uri.unwrap_or_default();
        if !uri.is_empty() && !uri.starts_with("https://") {
            return Err(FetchError::Failed("the keys are not at an https address".to_owned()));
        }
        self.state.lock().keys_uri = Some(uri);
        Ok(())
    }

    /// Checks that a key of the issuer signed the token. Reads the key set if none of the known keys did.
    ///
    /// # Errors
    /// None did, or the key set cannot be read.
    pub async fn check_signature(&self, token: &Compact<'_>) -> Result<(), String> {
        const UNSIGNED: &str = "failed to verify id token signature";
        let keys = self.state.lock().keys.clone();
        if verifies(&keys, token) {
            return Ok(());
        }
        if !self.state.lock().take_read(Instant::now()) {
            return Err(UNSIGNED.to_owned());
        }
        let keys = self.read_keys().await.map_err(|why| format!("fetching keys {why}"))?;
        if verifies(&keys, token) { Ok(()) } else { Err(UNSIGNED.to_owned()) }
    }

    /// Reads the key set. The keys that were known stay if it cannot be read.
    async fn read_keys(&self) -> Result<Arc<[Key]>, String> {
        let uri = self.state.lock().keys_uri.clone().unwrap_or_default();
        let began = Instant::now();
        let read = match self.fetch.get(&uri, None).await {
            Ok(answered) => keys_of(&answered).map(|keys| (keys, answered.fresh_for)),
            Err(why) => Err(format!("oidc: get keys failed {why}")),
        };
        let (keys, fresh_for) = read.inspect_err(|error| {
            tracing::warn!(issuer = %self.url, %error, "keys of an issuer cannot be read");
        })?;
        let mut state = self.state.lock();
        state.keys = keys.clone();
        state.fresh_until = began.checked_add(fresh_for);
        Ok(keys)
    }
}

impl State {
    /// Whether the key set may be read at `now`; counts the read.
    fn take_read(&mut self, now: Instant) -> bool {
        if self.fresh_until.is_some_and(|until| now + FRESHNESS_LEEWAY <= until) {
            return false;
        }
        let settled = self.reads_settled.map_or(now, |settled| settled.max(now)) + READ_INTERVAL;
        let may = settled <= now + READ_INTERVAL * READS_AT_ONCE;
        if may {
            self.reads_settled = Some(settled);
        }
        may
    }
}

/// The keys of an answer: those of a kind that can verify tokens, if all have their form.
fn keys_of(answered: &Answered) -> Result<Arc<[Key]>, String> {
    let text = String::from_utf8_lossy(&answered.body);
    if !answered.is_ok() {
        return Err(format!("oidc: get keys failed: {} {text}", answered.status));
    }
    let failed = |why: String| {
        let media_type = answered.content_type.split(';').next().unwrap_or_default().trim();
        let place = match media_type.eq_ignore_ascii_case("application/json") {
            true => "got Content-Type = application/json, but could not unmarshal as JSON".to_owned(),
            false => {
                format!("expected Content-Type = application/json, got {}", quote(&answered.content_type))
            }
        };
        format!("oidc: failed to decode keys: {place}: {why} {text}")
    };
    let set: Result<KeySet, _> = serde_json::from_slice(&answered.body);
    let set = set.map_err(|why| failed(syntax_error(&answered.body).unwrap_or_else(|| why.to_string())))?;
    set.keys.iter().try_for_each(check_key).map_err(failed)?;
    let usable = set.keys.into_iter().take(KEYS_MAX).filter_map(|key| {
        let jwk: Jwk = serde_json::from_value(key).ok()?;
        Some(Key { key: PublicKey::from_jwk(&jwk)?, id: jwk.kid })
    });
    Ok(usable.collect())
}

/// A key id in the token selects keys; without one all are tried.
fn verifies(keys: &[Key], token: &Compact<'_>) -> bool {
    let wanted = &token.header.kid;
    let mut candidates = keys.iter().filter(|key| wanted.is_empty() || key.id == *wanted);
    candidates.any(|key| token.is_signed_by(&key.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_set_is_read_as_often_as_its_age_and_the_limit_allow() {
        let start = Instant::now();
        let mut state = State::default();
        let reads = |state: &mut State, seconds: u64, tries: usize| {
            let now = start + Duration::from_secs(seconds);
            (0..tries).filter(|_| state.take_read(now)).count()
        };
        assert_eq!(reads(&mut state, 0, 20), 8);
        assert_eq!(reads(&mut state, 1, 20), 1);
        assert_eq!(reads(&mut state, 60, 20), 8);
        state.fresh_until = start.checked_add(Duration::from_secs(1000));
        assert_eq!(reads(&mut state, 970, 1), 0);
        assert_eq!(reads(&mut state, 971, 1), 1);
    }

    #[test]
    fn an_odd_key_makes_the_whole_set_unusable() {
        let keys = |code: u16, content_type: &str, body: &str| {
            let status = format!("{code} Reason");
            let content_type = content_type.to_owned();
            let body = body.as_bytes().to_vec();
            keys_of(&Answered { code, status, content_type, fresh_for: Duration::ZERO, body })
                .map(|keys| keys.len())
        };
        const JSON: &str = "application/json; charset=utf-8";
        assert_eq!(keys(200, JSON, "{}"), Ok(0));
        assert_eq!(keys(200, JSON, r#"{"keys":[{"kty":"oct","k":"AA"}]}"#), Ok(0));
        assert_eq!(
            keys(200, JSON, r#"{"keys":[{"kty":"nope"}]}"#).unwrap_err(),
            "oidc: failed to decode keys: got Content-Type = application/json, but could not unmarshal as JSON: \
             go-jose/go-jose: unknown json web key type 'nope' {\"keys\":[{\"kty\":\"nope\"}]}"
        );
        assert_eq!(
            keys(200, "text/plain", r#"{"keys":[5]}"#).unwrap_err(),
            "oidc: failed to decode keys: expected Content-Type = application/json, got \"text/plain\": json: cannot \
             unmarshal number into Go value of type jose.rawJSONWebKey {\"keys\":[5]}"
        );
        assert_eq!(keys(500, JSON, "not now").unwrap_err(), "oidc: get keys failed: 500 Reason not now");
    }
}
