//! Tokens that are signed by another process on the machine, which has the signing key
//! (docs/api/authentication.md#external-signers).
//!
//! ```text
//! token request ─ claims ─► Sign ─► header, signature ─ verified with the key that the header names ─► token
//! periodically, and for an unknown key ─► FetchKeys ─► verify, and the issuer's documents
//! ```
//!
//! Only one call fetches keys at a time. For unknown keys, the server fetches keys at most once a second. A
//! waiting request is answered by the next call that begins after the arrival of the request. If the signer
//! fails, the keys stay unchanged.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use auth::authn::service_account::{
    AnswerError, Draft, Drafts, Issued, ServiceAccountTokens, TokenIssueError, TokenSpec, assemble, key_id_of,
};
use auth::authn::{Accepted, Answer, Cause, RemoteTokenAuthenticator, VerificationKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use prost::Message;
use tokio::sync::{Mutex, Semaphore};

use super::IssuerDocuments;
use wire::metrics::Metrics;

/// Minimum time between two fetches for unknown keys. Without this limit, each token with an invented key would
/// cause a call.
const FETCH_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a failed fetch, as in kube-apiserver.
const FETCH_AGAIN: Duration = Duration::from_secs(10);

/// Maximum time between two fetches, even if the signer requests a longer interval.
const FRESH_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum number of requests with an unknown key that wait for the signer.
const WAITING_MAX: usize = 256;

/// Maximum number of keys of a signer.
const KEYS_MAX: usize = 1000;

/// Maximum length of a key id in bytes.
const KEY_ID_BYTES_MAX: usize = 1 << 10;

/// Minimum value of the signer's maximum token lifetime. The value is the minimum lifetime that a token request
/// may contain.
const LIFETIME_MIN_S: i64 = 10 * 60;

/// Name of the service, as in the method labels of metrics.
const SERVICE: &str = "/v1.ExternalJWTSigner";

/// Calls to the signer.
pub trait Calls: Send + Sync {
    /// Calls a method of the signer with a message, and returns the response message. Completes within a
    /// bounded time, with a response of bounded size.
    fn call(&self, method: &'static str, message: Vec<u8>) -> Called;
}

/// Future that resolves to the response of a call in [`Calls`].
pub type Called = Pin<Box<dyn Future<Output = Result<Vec<u8>, CallError>> + Send>>;

/// The reason why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("rpc error: code = {code} desc = {text}")]
pub struct CallError {
    /// Name of the gRPC status code.
    pub code: &'static str,
    /// Description for human readers.
    pub text: String,
}

#[derive(Clone, PartialEq, Message)]
struct SignRequest {
    #[prost(string, tag = "1")]
    claims: String,
}

#[derive(Clone, PartialEq, Message)]
struct SignResponse {
    #[prost(string, tag = "1")]
    header: String,
    #[prost(string, tag = "2")]
    signature: String,
}

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyMessage {
    #[prost(string, tag = "1")]
    key_id: String,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(bool, tag = "3")]
    exclude_from_oidc_discovery: bool,
}

#[derive(Clone, PartialEq, Message)]
struct KeysResponse {
    #[prost(message, repeated, tag = "1")]
    keys: Vec<KeyMessage>,
    #[prost(message, optional, tag = "2")]
    data_timestamp: Option<Timestamp>,
    #[prost(int64, tag = "3")]
    refresh_hint_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct MetadataResponse {
    #[prost(int64, tag = "1")]
    max_token_expiration_seconds: i64,
}

/// The reason why keys were not fetched, with the texts of kube-apiserver.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The call to the signer failed.
    #[error("while getting externally supported jwt signing keys: {0}")]
    Call(#[from] CallError),
    /// The response is not a message of the protocol.
    #[error("the answer cannot be read: {0}")]
    Unreadable(#[from] prost::DecodeError),
    /// The refresh hint of the response is invalid.
    #[error("found invalid refresh hint ({0}s)")]
    Hint(i64),
    /// The response has no keys.
    #[error("found no keys")]
    None,
    /// The response has too many keys.
    #[error("found {0} keys, more than {max}", max = KEYS_MAX)]
    Many(usize),
    /// The timestamp of the keys is invalid.
    #[error("invalid data timestamp")]
    Timestamp,
    /// The id of a key is invalid.
    #[error("found invalid public key id {}", go::quote(.0))]
    Id(String),
    /// A key of the response is empty.
    #[error("found empty public key")]
    Empty,
    /// A key is of an unsupported kind.
    #[error("while parsing external public keys: {0}")]
    Key(&'static str),
}

/// The reason why a token was not issued.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The token could not be drafted, because no random bytes are available.
    #[error(transparent)]
    Draft(#[from] TokenIssueError),
    /// The call to the signer failed.
    #[error("while signing jwt: {0}")]
    Call(#[from] CallError),
    /// The response is not a message of the protocol.
    #[error("while signing jwt: the answer cannot be read: {0}")]
    Unreadable(#[from] prost::DecodeError),
    /// The response did not pass verification.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The key must be used only for verification.
    #[error(
        "while validating header: key used for signing JWT (kid: {0}) is excluded from OIDC discovery docs"
    )]
    Excluded(String),
}

/// Returns the name of the outcome of a call in metrics.
fn code_of<T>(outcome: &Result<T, Option<&'static str>>) -> &'static str {
    match outcome {
        Ok(_) => "OK",
        Err(code) => code.unwrap_or("unknown-non-grpc"),
    }
}

/// The keys of a signer.
#[derive(Clone, Debug)]
struct Keys {
    all: Vec<(KeyMessage, VerificationKey)>,
    data: Timestamp,
    /// Time of the next fetch.
    refresh: Instant,
}

impl Keys {
    fn read(message: &[u8]) -> Result<Keys, FetchError> {
        let KeysResponse { keys, data_timestamp, refresh_hint_seconds: hint } =
            KeysResponse::decode(message)?;
        let fresh = u64::try_from(hint).ok().filter(|hint| *hint > 0).ok_or(FetchError::Hint(hint))?;
        match keys.len() {
            0 => return Err(FetchError::None),
            many if many > KEYS_MAX => return Err(FetchError::Many(many)),
            _ => {}
        }
        let is_valid = |time: &Timestamp| (0..1_000_000_000).contains(&time.nanos);
        let data = data_timestamp.filter(is_valid).ok_or(FetchError::Timestamp)?;
        let read = |key: KeyMessage| {
            if key.key_id.is_empty() || key.key_id.len() > KEY_ID_BYTES_MAX {
                return Err(FetchError::Id(key.key_id));
            }
            if key.key.is_empty() {
                return Err(FetchError::Empty);
            }
            let parsed = VerificationKey::named(&key.key_id, &key.key).map_err(FetchError::Key)?;
            Ok((key, parsed))
        };
        let all = keys.into_iter().map(read).collect::<Result<_, _>>()?;
        let refresh = Instant::now() + Duration::from_secs(fresh).min(FRESH_MAX);
        Ok(Keys { all, data, refresh })
    }

    fn verifying(&self) -> Vec<VerificationKey> {
        self.all.iter().map(|(_, key)| key.clone()).collect()
    }

    fn has(&self, id: &str) -> bool {
        self.all.iter().any(|(key, _)| key.key_id == id)
    }

    fn excludes(&self, id: &str) -> bool {
        self.all.iter().any(|(key, _)| key.key_id == id && key.exclude_from_oidc_discovery)
    }

    fn is_like(&self, other: &Keys) -> bool {
        self.all.iter().map(|(key, _)| key).eq(other.all.iter().map(|(key, _)| key))
    }
}

/// The content of the issuer's documents, except the keys.
#[derive(Clone, Debug)]
pub struct IssuerDescription {
    /// The issuer of tokens.
    pub issuer: String,
    /// Address of the keys, if another server serves them.
    pub keys_uri: Option<String>,
    /// Address of this server.
    pub address: String,
}

/// An external signer, and the keys that were fetched last.
pub struct External {
    calls: Arc<dyn Calls>,
    metrics: Arc<Metrics>,
    keys: RwLock<Arc<Keys>>,
    /// The lock is held while keys are fetched.
    fetches: Mutex<FetchTimes>,
    waiting: Semaphore,
    /// Maximum lifetime of a token.
    lifetime_max: Duration,
    used: OnceLock<Used>,
}

/// Start times of the last calls that fetched keys.
struct FetchTimes {
    /// Start of the last call. The caller may have stopped waiting before the response.
    last: Instant,
    /// Start of the last call that completed.
    answered: Instant,
}

/// The data that [`External::use_for`] sets.
struct Used {
    drafts: Drafts,
    about: IssuerDescription,
    verifier: Arc<ServiceAccountTokens>,
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl External {
    /// Fetches the keys and the limits of a signer.
    ///
    /// # Errors
    /// The signer did not respond, or its response is invalid.
    pub async fn open(calls: Arc<dyn Calls>, metrics: Arc<Metrics>) -> Result<External, String> {
        const SETTING_UP: &str = "while setting up external-jwt-signer";
        const FILLING: &str = "while initially filling key cache: while performing initial cache fill: \
                               while fetching token verification keys";
        let started = Instant::now();
        let keys = fetch(&*calls, &metrics).await;
        let keys = keys.map_err(|error| format!("{SETTING_UP}: {FILLING}: {error}"))?;
        let answer = timed(&*calls, &metrics, "Metadata", Empty {}.encode_to_vec()).await;
        let answer = answer.map_err(|error| format!("{SETTING_UP}: {error}"))?;
        let answer = MetadataResponse::decode(&*answer).map_err(|error| format!("{SETTING_UP}: {error}"))?;
        let longest = answer.max_token_expiration_seconds;
        let lifetime_max = u64::try_from(longest).ok().filter(|_| longest >= LIFETIME_MIN_S).ok_or_else(|| {
            format!(
                "max token life supported by external-jwt-signer ({longest}s) is less than acceptable (min \
                 {LIFETIME_MIN_S}s)"
            )
        })?;
        Ok(External {
            calls,
            metrics,
            keys: RwLock::new(Arc::new(keys)),
            fetches: Mutex::new(FetchTimes { last: started, answered: started }),
            waiting: Semaphore::new(WAITING_MAX),
            lifetime_max: Duration::from_secs(lifetime_max),
            used: OnceLock::new(),
        })
    }

    /// Replaces the client for calls to the same signer.
    #[must_use]
    pub fn calling(self, calls: Arc<dyn Calls>) -> External {
        External { calls, ..self }
    }

    /// Returns the maximum lifetime of a token that the signer signs.
    pub fn lifetime_max(&self) -> Duration {
        self.lifetime_max
    }

    /// Returns the keys for verification.
    pub fn keys(&self) -> Vec<VerificationKey> {
        self.keys.read().verifying()
    }

    /// Sets the source of token drafts, the data for the issuer's documents, and the verifier, whose keys are
    /// kept in sync with the signer. Only the first call has an effect.
    pub fn use_for(&self, drafts: Drafts, about: IssuerDescription, verifier: Arc<ServiceAccountTokens>) {
        verifier.replace_keys(self.keys());
        let _ = self.used.set(Used { drafts, about, verifier });
    }

    /// Returns the issuer's documents, with the keys that may be published.
    pub fn documents(&self) -> Option<IssuerDocuments> {
        let IssuerDescription { issuer, keys_uri, address } = &self.used.get()?.about;
        let keys = self.keys.read().clone();
        let shown = keys.all.iter().filter(|(key, _)| !key.exclude_from_oidc_discovery);
        let shown: Vec<VerificationKey> = shown.map(|(_, key)| key.clone()).collect();
        let documents = IssuerDocuments::new(issuer, &shown, keys_uri.as_deref(), address)?;
        Some(documents.fresh_for(keys.refresh.saturating_duration_since(Instant::now())))
    }

    /// Issues a token.
    ///
    /// # Errors
    /// The signer did not respond, or its response did not pass verification.
    pub async fn issue(&self, spec: &TokenSpec) -> Result<Issued, SignError> {
        let Some(used) = self.used.get() else { return Err(TokenIssueError.into()) };
        let Draft { claims, id, expires } = used.drafts.draft(spec)?;
        let token = self.sign(&URL_SAFE_NO_PAD.encode(claims)).await;
        let outcome = token.as_ref().map_err(|error| match error {
            SignError::Call(error) => Some(error.code),
            _ => None,
        });
        self.metrics.signer.tokens.count(&[code_of(&outcome)]);
        Ok(Issued { token: token?, id, expires })
    }

    async fn sign(&self, claims: &str) -> Result<String, SignError> {
        let request = SignRequest { claims: claims.to_owned() }.encode_to_vec();
        let answer = timed(&*self.calls, &self.metrics, "Sign", request).await?;
        let SignResponse { header, signature } = SignResponse::decode(&*answer)?;
        let id = key_id_of(&header)?;
        if !self.keys.read().has(&id) {
            self.learn(&id).await;
        }
        let keys = self.keys.read().clone();
        if keys.excludes(&id) {
            return Err(SignError::Excluded(id));
        }
        Ok(assemble(&header, claims, &signature, &keys.verifying())?)
    }

    /// Fetches the keys because the key `id` is unknown. Returns whether the fetched keys include this key.
    async fn learn(&self, id: &str) -> bool {
        let came = Instant::now();
        let Ok(_place) = self.waiting.try_acquire() else { return false };
        let mut fetches = self.fetches.lock().await;
        if fetches.answered < came {
            tokio::time::sleep_until((fetches.last + FETCH_INTERVAL).into()).await;
            fetches.last = Instant::now();
            self.refresh().await;
            fetches.answered = fetches.last;
        }
        drop(fetches);
        self.keys.read().has(id)
    }

    /// Fetches and stores the keys. Returns whether the signer returned valid keys.
    async fn refresh(&self) -> bool {
        let keys = match fetch(&*self.calls, &self.metrics).await {
            Ok(keys) => keys,
            Err(error) => {
                tracing::warn!(%error, "keys of service account tokens not fetched, the old ones stay in use");
                return false;
            }
        };
        if !keys.is_like(&self.keys.read()) {
            tracing::info!(keys = keys.all.len(), "keys of service account tokens fetched");
            // Update the verifier before signing uses the keys, so that no new token is refused.
            if let Some(used) = self.used.get() {
                used.verifier.replace_keys(keys.verifying());
            }
        }
        *self.keys.write() = Arc::new(keys);
        true
    }

    /// Fetches the keys repeatedly, at the interval that the signer sets.
    pub async fn follow(&self) {
        let mut next = self.keys.read().refresh;
        loop {
            tokio::time::sleep_until(next.into()).await;
            let mut fetches = self.fetches.lock().await;
            fetches.last = Instant::now();
            next = if self.refresh().await { self.keys.read().refresh } else { Instant::now() + FETCH_AGAIN };
            fetches.answered = fetches.last;
        }
    }
}

/// Makes a call and records its duration.
async fn timed(
    calls: &dyn Calls,
    metrics: &Metrics,
    method: &'static str,
    message: Vec<u8>,
) -> Result<Vec<u8>, CallError> {
    let began = Instant::now();
    let answer = calls.call(method, message).await;
    let code = code_of(&answer.as_ref().map_err(|error| Some(error.code)));
    metrics.signer.durations.time(&[code, &format!("{SERVICE}/{method}")], began.elapsed());
    answer
}

async fn fetch(calls: &dyn Calls, metrics: &Metrics) -> Result<Keys, FetchError> {
    let answer = timed(calls, metrics, "FetchKeys", Empty {}.encode_to_vec()).await;
    let keys = answer.map_err(FetchError::from).and_then(|message| Keys::read(&message));
    let outcome = keys.as_ref().map_err(|error| match error {
        FetchError::Call(error) => Some(error.code),
        _ => None,
    });
    metrics.signer.fetches.count(&[code_of(&outcome)]);
    if let Ok(keys) = &keys {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        metrics.signer.fetched.set(&[], i64::try_from(now).unwrap_or(i64::MAX));
        metrics.signer.told.set(&[], keys.data.seconds);
    }
    keys
}

/// An authenticator that fetches the keys again if a token is signed by an unknown key.
pub struct UnknownKeys(pub Arc<External>);

impl UnknownKeys {
    async fn verify_with_new_keys(
        &self,
        token: &str,
        target: &[String],
        now: SystemTime,
    ) -> Result<Option<Accepted>, Cause> {
        let Some(used) = self.0.used.get() else { return Ok(None) };
        let Some(id) = used.verifier.unknown_key(token) else { return Ok(None) };
        if self.0.learn(&id).await { Ok(used.verifier.verify(token, target, now)?) } else { Ok(None) }
    }
}

impl RemoteTokenAuthenticator for UnknownKeys {
    fn authenticate<'t>(&'t self, token: &'t str, target: &'t [String], now: SystemTime) -> Answer<'t> {
        Box::pin(self.verify_with_new_keys(token, target, now))
    }

    fn knows_audiences(&self) -> bool {
        true
    }

    fn is_remembered(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[path = "external_test.rs"]
mod tests;
