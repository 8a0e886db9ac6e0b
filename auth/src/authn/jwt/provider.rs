//! The keys of an issuer. The discovery document of the issuer names the key set, which contains the keys
//! (OpenID Connect Discovery 1.0, section 4; RFC 7517).
//!
//! ```text
//! token ─► a known key signed it ─► accepted
//!             │ no
//!             ▼
//!          the key set is still fresh ─► refused
//!             │ no
//!             ▼
//!          the key set is read ─► a key in it signed it ─► accepted
//! ```
//!
//! Error texts equal the texts of kube-apiserver, because token reviews contain these texts.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use go::json::syntax_error;
use go::quote;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::authn::jws::{Compact, Jwk, PublicKey};
use crate::authn::token_header::check_key;

/// Rate limit for reads of a key set: a burst of this many reads, then one read per [`READ_INTERVAL`].
/// Without this limit, every token with a wrong signature would cause a read.
const READS_AT_ONCE: u32 = 8;
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// If no known key signed a token, the key set is read again, unless the remaining freshness of the key set
/// is at least this long.
const FRESHNESS_LEEWAY: Duration = Duration::from_secs(30);

/// Maximum number of bytes of a response that an error or a log line contains.
const SHOWN_MAX: usize = 1024;

/// Maximum number of keys of an issuer.
const KEYS_MAX: usize = 256;

/// The response to a request for a document.
#[derive(Clone, Debug, Default)]
pub struct FetchedDocument {
    /// HTTP status code, for example 404.
    pub code: u16,
    /// Status code and reason, for example `404 Not Found`.
    pub status: String,
    /// Media type of the response; empty if the response has no media type.
    pub content_type: String,
    /// Time for which the document may be used before it must be read again (RFC 9111, section 4.2).
    pub fresh_for: Duration,
    /// Response body, which contains the document.
    pub body: Vec<u8>,
}

impl FetchedDocument {
    /// Returns whether the response is the requested document.
    fn is_ok(&self) -> bool {
        self.code == 200
    }
}

/// The future that a [`Fetch`] returns.
pub type DocumentFuture = Pin<Box<dyn Future<Output = Result<FetchedDocument, String>> + Send>>;

/// A client that reads documents of an issuer.
pub trait Fetch: Send + Sync {
    /// Sends a GET request, optionally with a bearer token. The future must complete within a bounded time
    /// and with a bounded response body.
    fn get(&self, url: &str, token: Option<&str>) -> DocumentFuture;
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
    /// Time until which the key set is fresh, so that the issuer should not publish other keys.
    fresh_until: Option<Instant>,
    /// Time at which a full burst of reads is allowed again. Every read adds one [`READ_INTERVAL`].
    reads_settled: Option<Instant>,
    /// The read in progress, if any.
    reading: Weak<Reading>,
}

/// A read of the key set. All tasks that wait for the read share this value.
type Reading = OnceCell<Result<Arc<[Key]>, String>>;

struct Key {
    id: String,
    key: PublicKey,
}

/// The members of a discovery document that the server reads.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    /// Address of the key set. A document without this address is valid, but then no signature can be
    /// verified.
    jwks_uri: Option<String>,
}

#[derive(Deserialize)]
struct KeySet {
    #[serde(default)]
    keys: Vec<Value>,
}

impl Provider {
    /// Creates a provider of the keys of the issuer `url`. The discovery document is at `discovery_url` or,
    /// if `discovery_url` is `None`, at the standard path.
    pub fn new(url: &str, discovery_url: Option<&str>, fetch: Arc<dyn Fetch>) -> Provider {
        let discovery_url = discovery_url.map(str::to_owned);
        Provider { url: url.to_owned(), discovery_url, fetch, state: Mutex::default() }
    }

    /// Returns whether discovery has succeeded, so that the keys can be read.
    pub fn is_ready(&self) -> bool {
        self.state.lock().keys_uri.is_some()
    }

    /// Reads the discovery document. The caller may call this method again after an error.
    ///
    /// # Errors
    /// Fails if the document cannot be read, or if it belongs to another issuer.
    pub async fn discover(&self) -> Result<(), String> {
        let url = match &self.discovery_url {
            Some(url) => url.clone(),
            None => {
                let base = self.url.strip_suffix('/').unwrap_or(&self.url);
                format!("{base}/.well-known/openid-configuration")
            }
        };
        let answered = self.fetch.get(&url, None).await?;
        if !answered.is_ok() {
            return Err(answered.status);
        }
        let found: Configuration = serde_json::from_slice(&answered.body)
            .map_err(|error| format!("the discovery document cannot be read: {error}"))?;
        if found.issuer != self.url {
            let why = format!("issuer did not match the issuer returned by provider, got {:?}", found.issuer);
            return Err(why);
        }
        let uri = found.jwks_uri.unwrap_or_default();
        if !uri.is_empty() && !uri.starts_with("https://") {
            return Err("the keys are not at an https address".to_owned());
        }
        self.state.lock().keys_uri = Some(uri);
        Ok(())
    }

    /// Checks that a key of the issuer signed the token. If no known key signed the token, this method reads
    /// the key set, or waits for the read in progress.
    ///
    /// # Errors
    /// Fails if no key signed the token, or if the key set cannot be read.
    pub async fn check_signature(&self, token: &Compact<'_>) -> Result<(), String> {
        const UNSIGNED: &str = "failed to verify id token signature";
        let known = self.state.lock().keys.clone();
        if verifies(&known, token) {
            return Ok(());
        }
        let reading = self.state.lock().read();
        let read = reading.get_or_init(|| self.newest_keys()).await;
        let keys = read.as_ref().map_err(|why| format!("fetching keys {why}"))?;
        // The token needs no second check if the keys are the same as before.
        let is_signed = !Arc::ptr_eq(keys, &known) && verifies(keys, token);
        if is_signed { Ok(()) } else { Err(UNSIGNED.to_owned()) }
    }

    /// Returns the current key set. Reads the set again if the set is no longer fresh and the rate limit
    /// allows a read. A read is counted when it starts, because the task that reads may be cancelled.
    async fn newest_keys(&self) -> Result<Arc<[Key]>, String> {
        let known = {
            let mut state = self.state.lock();
            (!state.take_read(Instant::now())).then(|| state.keys.clone())
        };
        match known {
            Some(keys) => Ok(keys),
            None => self.read_keys().await,
        }
    }

    /// Reads the key set. If the read fails, the known keys stay in use.
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
    /// Returns the read in progress, or starts a new one.
    fn read(&mut self) -> Arc<Reading> {
        if let Some(reading) = self.reading.upgrade() {
            return reading;
        }
        let reading = Arc::<Reading>::default();
        self.reading = Arc::downgrade(&reading);
        reading
    }

    /// Returns whether the key set may be read at `now`. If the result is true, this method counts the read.
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

/// Parses the keys in a response. Keys of types that cannot verify tokens are left out. A malformed key makes
/// the whole set invalid.
fn keys_of(answered: &FetchedDocument) -> Result<Arc<[Key]>, String> {
    let head = &answered.body[..answered.body.len().min(SHOWN_MAX)];
    let text = String::from_utf8_lossy(head);
    if !answered.is_ok() {
        return Err(format!("oidc: get keys failed: {} {text}", answered.status));
    }
    let failed = |why: String| {
        let media_type = answered.content_type.split(';').next().unwrap_or_default().trim();
        let finding = if media_type.eq_ignore_ascii_case("application/json") {
            "got Content-Type = application/json, but could not unmarshal as JSON".to_owned()
        } else {
            format!("expected Content-Type = application/json, got {}", quote(&answered.content_type))
        };
        format!("oidc: failed to decode keys: {finding}: {why} {text}")
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

/// Returns whether one of `keys` signed the token. If the token has a key id, only keys with this id are
/// tried.
fn verifies(keys: &[Key], token: &Compact<'_>) -> bool {
    let key_id = &token.header.kid;
    let mut candidates = keys.iter().filter(|key| key_id.is_empty() || key.id == *key_id);
    candidates.any(|key| token.is_signed_by(&key.key))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::{Context, Poll, Waker};

    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use rcgen::KeyPair;
    use tokio::sync::Notify;

    use super::*;

    #[test]
    fn a_key_set_is_refetched_depending_on_its_age_and_a_rate_limit() {
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
    fn a_malformed_key_makes_the_whole_key_set_unusable() {
        let keys = |code: u16, content_type: &str, body: &str| {
            let status = format!("{code} Reason");
            let content_type = content_type.to_owned();
            let body = body.as_bytes().to_vec();
            keys_of(&FetchedDocument { code, status, content_type, fresh_for: Duration::ZERO, body })
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
        assert!(keys(500, JSON, &"x".repeat(1 << 20)).unwrap_err().len() < SHOWN_MAX + 100);
    }

    /// A `Fetch` that counts its calls, and waits for a signal before it returns a key set with one key.
    struct Slow {
        fetches: AtomicUsize,
        key: String,
        release: Arc<Notify>,
    }

    impl Fetch for Slow {
        fn get(&self, _: &str, _: Option<&str>) -> DocumentFuture {
            self.fetches.fetch_add(1, Relaxed);
            let (release, body) =
                (self.release.clone(), format!(r#"{{"keys":[{}]}}"#, self.key).into_bytes());
            Box::pin(async move {
                release.notified().await;
                Ok(FetchedDocument {
                    code: 200,
                    body,
                    fresh_for: Duration::from_secs(3600),
                    ..FetchedDocument::default()
                })
            })
        }
    }

    /// Returns a token, and the key that signed the token as a member of a key set.
    fn signed() -> (String, String) {
        let pair = KeyPair::generate().unwrap();
        let point = pair.public_key_raw();
        let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
        let key = format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}"#);
        let text =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#), URL_SAFE_NO_PAD.encode("{}"));
        let signer =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.serialized_der()).unwrap();
        let signature = signer.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        (format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())), key)
    }

    #[test]
    fn fetches_whose_waiters_were_dropped_still_count_towards_the_limit() {
        let (token, key) = signed();
        let token = Compact::parse(&token).unwrap();
        let slow = Arc::new(Slow { fetches: AtomicUsize::new(0), key, release: Arc::default() });
        let provider = Provider::new("https://i.example", None, slow.clone());
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..50).map(|_| Box::pin(provider.check_signature(&token))).collect();
        let began = Instant::now();
        // Cancel the task that reads. Another waiting task then reads the key set.
        while !waiting.is_empty() {
            waiting.retain_mut(|one| one.as_mut().poll(&mut context).is_pending());
            waiting.drain(..waiting.len().min(1));
        }
        let (fetches, took) = (slow.fetches.load(Relaxed), began.elapsed());
        // On a slow machine the limit permits further reads, one per interval.
        let more = took.as_secs() / READ_INTERVAL.as_secs();
        let permitted = READS_AT_ONCE as usize..=READS_AT_ONCE as usize + more as usize;
        assert!(permitted.contains(&fetches), "{fetches} in {took:?}");
    }

    #[test]
    fn all_tokens_with_a_new_key_share_one_fetch_of_the_keys() {
        let (token, key) = signed();
        let token = Compact::parse(&token).unwrap();
        let slow = Arc::new(Slow { fetches: AtomicUsize::new(0), key, release: Arc::default() });
        let provider = Provider::new("https://i.example", None, slow.clone());
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..50).map(|_| Box::pin(provider.check_signature(&token))).collect();
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        slow.release.notify_one();
        for one in &mut waiting {
            assert_eq!(one.as_mut().poll(&mut context), Poll::Ready(Ok(())));
        }
        assert_eq!(slow.fetches.load(Relaxed), 1);
    }
}
